"""Settings of a remote client: what the environment names, and an outbox for each server and key."""

from __future__ import annotations

from pathlib import Path

import pytest

from commonbook.core.settings.remote import RemoteSettings, outbox_path
from commonbook.errors import BadInput

HERE = "http://127.0.0.1:7373"
THERE = "https://memory.example.com:443"


@pytest.fixture
def settings(tmp_path: Path) -> RemoteSettings:
    return RemoteSettings.load({"HOME": str(tmp_path)})


def test_each_server_and_each_key_given_by_hand_has_an_outbox_of_its_own(settings, tmp_path):
    paths = [outbox_path(settings, origin, key) for origin in (HERE, THERE) for key in (None, "cbk_one", "cbk_two")]
    assert len(set(paths)) == 6
    assert all(Path(path).is_relative_to(tmp_path / ".local" / "state" / "commonbook") for path in paths)
    assert not any("cbk_" in path for path in paths)
    named = RemoteSettings.load({"HOME": str(tmp_path), "COMMONBOOK_OUTBOX": "~/out.db"})
    assert outbox_path(named, HERE, None) == str(tmp_path / "out.db")


def test_the_environment_names_addresses_key_and_folders(tmp_path):
    environ = {
        "HOME": str(tmp_path),
        "COMMONBOOK_URL": "http://127.0.0.1:1,http://127.0.0.1:2",
        "COMMONBOOK_KEY": "cbk_one",
        "COMMONBOOK_SPACE": "team",
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "XDG_STATE_HOME": "relative",
    }
    settings = RemoteSettings.load(environ)
    assert (settings.url, settings.key, settings.space) == ("http://127.0.0.1:1,http://127.0.0.1:2", "cbk_one", "team")
    assert settings.keys == str(tmp_path / "config" / "commonbook" / "keys")
    assert settings.outboxes == str(tmp_path / ".local" / "state" / "commonbook" / "outboxes")
    with pytest.raises(BadInput):
        RemoteSettings.load({"COMMONBOOK_KEY": "two words"})

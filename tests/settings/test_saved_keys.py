"""Saved keys: one for each server, in files that others cannot read."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from commonbook.core.settings.remote import RemoteSettings, require_savable, save_key, saved_key
from commonbook.errors import BadInput, HomeReadOnly

pytestmark = pytest.mark.promise("client.saved-key")

HERE = "http://127.0.0.1:7373"
THERE = "https://memory.example.com:443"


@pytest.fixture
def settings(tmp_path: Path) -> RemoteSettings:
    return RemoteSettings.load({"HOME": str(tmp_path)})


def test_a_saved_key_belongs_to_its_origin_and_its_user(settings, tmp_path):
    old = os.umask(0)
    try:
        path = Path(save_key(settings, HERE, "cbk_one"))
    finally:
        os.umask(old)
    assert path.is_relative_to(tmp_path / ".config" / "commonbook")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert saved_key(settings, HERE) == "cbk_one"
    assert saved_key(settings, THERE) is None
    assert "cbk_one" not in repr(saved_key(settings, HERE))
    save_key(settings, HERE, "cbk_two")
    assert saved_key(settings, HERE) == "cbk_two"
    assert [one.name for one in path.parent.iterdir()] == [path.name]


def test_a_key_that_others_can_read_is_not_used(settings):
    path = Path(save_key(settings, HERE, "cbk_one"))
    path.chmod(0o640)
    with pytest.raises(BadInput, match="others can read") as refused:
        saved_key(settings, HERE)
    assert "cbk_one" not in refused.value.message + refused.value.fix


@pytest.mark.parametrize("content", [b"", b"two words", b"\xff\xfe"])
def test_a_file_that_holds_no_key_is_refused(settings, content):
    path = Path(save_key(settings, HERE, "cbk_one"))
    path.write_bytes(content)
    with pytest.raises(BadInput):
        saved_key(settings, HERE)


def test_a_folder_that_cannot_be_written_is_known_before_a_code_is_used(settings, tmp_path):
    (tmp_path / ".config").write_text("no folder")
    with pytest.raises(HomeReadOnly):
        require_savable(settings)
    with pytest.raises(HomeReadOnly):
        save_key(settings, HERE, "cbk_one")

"""The setup dialog, the status, the command line and the panel of Hermes, as Hermes calls them.

`tests_hermes/test_commands.py` does the same with the real Hermes.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import commonbook
from commonbook.adapters.hermes import cli, config_schema, options
from commonbook.adapters.hermes.provider import CommonbookMemoryProvider


@pytest.fixture
def hermes_home(tmp_path, home, monkeypatch):
    monkeypatch.setenv("COMMONBOOK_HOME", str(home))
    monkeypatch.setenv("HERMES_HOME", str(tmp_path / "hermes"))
    return tmp_path / "hermes"


@pytest.fixture
def saved(monkeypatch):
    """The configurations that Hermes was told to save."""
    configurations: list[dict[str, Any]] = []
    module = ModuleType("hermes_cli.config")
    module.save_config = configurations.append  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "hermes_cli", ModuleType("hermes_cli"))
    monkeypatch.setitem(sys.modules, "hermes_cli.config", module)
    return configurations


def set_up(hermes_home, monkeypatch, *answers, config=None):
    monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{answer}\n" for answer in answers)))
    CommonbookMemoryProvider().post_setup(str(hermes_home), config if config is not None else {"model": "m"})


def stored(hermes_home):
    path = hermes_home / "commonbook" / "config.json"
    return json.loads(path.read_text()) if path.exists() else None


def test_the_setup_asks_saves_and_makes_commonbook_the_provider(hermes_home, saved, monkeypatch, tmp_path, capsys):
    set_up(hermes_home, monkeypatch, str(tmp_path / "book"), "work", "", "4")
    assert stored(hermes_home) == {"home": str(tmp_path / "book"), "space": "work", "settle_every": 4}
    assert saved == [{"model": "m", "memory": {"provider": "commonbook"}}]
    assert options.schema()[0]["description"] in capsys.readouterr().out


def test_a_second_setup_keeps_what_was_chosen_and_a_dash_puts_the_default_back(hermes_home, saved, monkeypatch):
    set_up(hermes_home, monkeypatch, "", "work", "mine", "4")
    set_up(hermes_home, monkeypatch, *[""] * 6, config={"memory": {"provider": "commonbook"}})
    assert stored(hermes_home) == {"space": "work", "tags": "mine", "settle_every": 4}
    # Hermes' file is written anew only if something changes in it.
    assert len(saved) == 1
    set_up(hermes_home, monkeypatch, "", "-", "", "-")
    assert stored(hermes_home) == {"tags": "mine"}


def test_a_bad_answer_is_asked_for_again(hermes_home, saved, monkeypatch, capsys):
    set_up(hermes_home, monkeypatch, "", "", "", "often", "7")
    assert stored(hermes_home) == {"settle_every": 7}
    assert "settle_every in the answer is not a number" in capsys.readouterr().out


def test_a_broken_configuration_is_not_overwritten_by_the_setup(hermes_home, saved, monkeypatch, capsys):
    path = hermes_home / "commonbook" / "config.json"
    path.parent.mkdir(parents=True)
    path.write_text("{not json")
    set_up(hermes_home, monkeypatch, "", "work")
    assert path.read_text() == "{not json"
    assert saved == []
    assert "Nothing was saved" in capsys.readouterr().out


def test_the_status_says_where_the_book_is_and_what_is_wrong(hermes_home, home, monkeypatch):
    provider = CommonbookMemoryProvider()
    shown = provider.get_status_config({"ignored": 1})
    assert shown["book"] == str(home)
    assert "problem" not in shown
    path = hermes_home / "commonbook" / "config.json"
    path.parent.mkdir(parents=True)
    path.write_text('{"settle_every": "often"}')
    assert "settle_every" in provider.get_status_config({})["problem"]
    assert not provider.is_available()


@pytest.mark.parametrize("place", ["file/book", "file", "locked/book"])
def test_a_home_that_cannot_be_made_is_not_available(hermes_home, tmp_path, place, monkeypatch):
    (tmp_path / "file").write_text("a file")
    (tmp_path / "locked").mkdir()
    # Root may write everywhere.
    monkeypatch.setattr(os, "access", lambda path, _mode: not str(path).endswith("locked"))
    options.save({"home": str(tmp_path / place)}, str(hermes_home))
    provider = CommonbookMemoryProvider()
    assert not provider.is_available()
    assert str(tmp_path / place.partition("/")[0]) in provider.unavailable_reason()
    assert provider.get_status_config({})["problem"] == provider.unavailable_reason()


def run_command(*words, capfd):
    parser = argparse.ArgumentParser()
    cli.register_cli(parser)
    try:
        cli.commonbook_command(parser.parse_args(list(words)))
    except SystemExit as end:
        return end.code, capfd.readouterr().out
    return 0, capfd.readouterr().out


def test_the_command_of_hermes_runs_commonbook_on_the_book_that_hermes_uses(hermes_home, tmp_path, capfd):
    options.save({"home": str(tmp_path / "chosen")}, str(hermes_home))
    with commonbook.open(tmp_path / "chosen", create=True) as book:
        book.remember("Herons nest by the mill")
    assert run_command(capfd=capfd) == (0, f"book: {tmp_path / 'chosen'}\nspace: hermes/PROFILE/USER\n")
    code, shown = run_command("list", "--json", capfd=capfd)
    assert code == 0
    assert "Herons nest by the mill" in shown
    assert run_command("show", "nothing", capfd=capfd)[0] not in (0, None)


def test_the_panel_of_hermes_has_every_option_but_the_server(monkeypatch):
    assert config_schema.CONFIG_SCHEMA is None
    hermes = ModuleType("plugins.memory.config_schema")
    hermes.KIND_TEXT, hermes.KIND_NUMBER = "text", "number"  # type: ignore[attr-defined]
    hermes.ProviderField = hermes.ProviderConfigSchema = SimpleNamespace  # type: ignore[attr-defined]
    for name in ("plugins", "plugins.memory"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "plugins.memory.config_schema", hermes)
    schema = config_schema._schema()
    assert schema.name == "commonbook"
    assert {field.key for field in schema.fields} == set(options.Options._fields) - {"url"}
    assert {field.key: field.kind for field in schema.fields}["settle_every"] == "number"

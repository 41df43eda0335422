"""`install hermes` and `uninstall hermes`, against golden files and a stand-in for Hermes' interpreter.

`tests_hermes/test_commands.py` does the same with the real Hermes.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from commonbook.core.settings.settings import AgentFolders
from commonbook.errors import BadInput
from commonbook.interfaces.agents import hermes as hermes_agent
from commonbook.interfaces.agents.installation import BACKUP
from commonbook.interfaces.cli.main import main
from commonbook.version import __version__

GOLDEN = Path(__file__).parent / "golden"
PROVIDER = hermes_agent.ProviderSetting()
FOUND = "  Provider:  commonbook\n  Plugin:    installed ✓\n  Status:    available ✓\n"


class StandIn:
    """A program `hermes` whose interpreter answers as that of Hermes does."""

    def __init__(self, folder: Path, **has: object) -> None:
        self.program, self.python = folder / "bin" / "hermes", folder / "bin" / "python"
        self.status, self.requests = folder / "status", folder / "requests"
        self.program.parent.mkdir(parents=True)
        answer = {"hermes": "0.19.0", "commonbook": __version__, "entry_points": False, "pip": True, "found": True}
        (folder / "answer").write_text(json.dumps(answer | has))
        self.status.write_text(FOUND)
        self.program.write_text(f"#!{self.python}\nimport hermes_cli\n")
        self.python.write_text(
            f'#!/bin/sh\ncase "$*" in\n-I*) cat {folder}/answer;;\n'
            f'*status) echo "$HERMES_HOME" >>{self.requests}; cat {self.status};;\n'
            f'*) echo "$*" >>{self.requests};;\nesac\n'
        )
        self.program.chmod(0o755)
        self.python.chmod(0o755)


@pytest.fixture
def user(tmp_path, monkeypatch):
    folder = tmp_path / "user"
    (folder / ".hermes" / "profiles" / "coder").mkdir(parents=True)
    (folder / ".hermes" / "config.yaml").write_bytes((GOLDEN / "hermes.before").read_bytes())
    for name in ("XDG_CONFIG_HOME", "CODEX_HOME", "HERMES_HOME", "COMMONBOOK_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(folder))
    return folder


@pytest.fixture
def hermes(user, tmp_path, monkeypatch):
    """A Hermes that is in PATH."""
    stand_in = StandIn(tmp_path / "environment")
    monkeypatch.setattr(shutil, "which", lambda name: str(stand_in.program) if name == "hermes" else None)
    return stand_in


def files(folder: Path) -> dict[str, bytes]:
    """Return the files below a folder, but for the copies of before."""
    paths = [path for path in folder.rglob("*") if path.is_file() and path.suffix != BACKUP]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


@pytest.mark.promise("install.undone")
def test_an_installation_is_as_the_golden_file_in_every_profile_and_its_removal_undoes_it(user, hermes):
    before = files(user)
    assert main(["install", "hermes", "--yes"]) == 0
    after = files(user)
    config = after[".hermes/config.yaml"]
    if os.environ.get("COMMONBOOK_WRITE_GOLDEN"):
        (GOLDEN / "hermes.after").write_bytes(config)
    assert config == (GOLDEN / "hermes.after").read_bytes()
    assert yaml.safe_load(after[".hermes/profiles/coder/config.yaml"]) == {"memory": {"provider": "commonbook"}}
    for profile in (".hermes", ".hermes/profiles/coder"):
        # Hermes looks for this word before it imports a folder.
        assert b"register_memory_provider" in after[f"{profile}/plugins/commonbook/__init__.py"]
    assert hermes.requests.read_text().split() == [str(user / ".hermes"), str(user / ".hermes" / "profiles" / "coder")]
    assert main(["install", "hermes", "--yes"]) == 0
    assert files(user) == after
    (user / ".hermes" / "plugins" / "commonbook" / "__pycache__").mkdir()
    assert main(["uninstall", "hermes", "--yes"]) == 0
    assert files(user) == before
    assert not (user / ".hermes" / "plugins").exists()
    assert main(["uninstall", "hermes", "--yes"]) == 0


def test_a_home_of_ones_own_is_written_for_the_provider_and_removed_again(user, hermes, tmp_path):
    assert main(["--home", str(tmp_path / "book"), "install", "hermes", "--yes"]) == 0
    config = user / ".hermes" / "commonbook" / "config.json"
    assert json.loads(config.read_text()) == {"home": str(tmp_path / "book")}
    assert main(["uninstall", "hermes", "--yes"]) == 0
    assert not config.parent.exists()


def test_a_hermes_that_was_never_started_leaves_nothing_behind_and_the_home_directory_stays(user, hermes):
    shutil.rmtree(user / ".hermes")
    assert main(["install", "hermes", "--yes"]) == 0
    assert main(["uninstall", "hermes", "--yes"]) == 0
    assert user.exists()
    assert list(user.iterdir()) == []


def test_nothing_is_changed_without_a_question_or_by_a_dry_run(user, hermes, capsys):
    before = files(user)
    assert main(["install", "hermes"]) == 2
    assert main(["install", "hermes", "--dry-run"]) == 0
    assert "# commonbook: was" in capsys.readouterr().out
    assert files(user) == before
    assert not hermes.requests.exists()


def test_a_hermes_without_the_package_is_given_it_by_a_command_that_is_shown(user, tmp_path, capsys, monkeypatch):
    hermes = StandIn(tmp_path / "bare", commonbook=None)
    monkeypatch.setattr(hermes_agent, "_source", lambda: ("commonbook==9",))
    assert main(["install", "hermes", "--program", str(hermes.program), "--yes"]) == 0
    assert f"{hermes.python} -m pip install commonbook==9" in capsys.readouterr().out
    assert hermes.requests.read_text().startswith("-m pip install commonbook==9\n")


def test_a_package_that_cannot_be_installed_changes_nothing_and_the_command_is_named(user, tmp_path, capsys):
    hermes = StandIn(tmp_path / "bare", commonbook=None)
    hermes.python.write_text(
        hermes.python.read_text().replace("*) echo", "*pip*) echo no network >&2; exit 1;;\n*) echo")
    )
    before = files(user)
    assert main(["install", "hermes", "--program", str(hermes.program), "--yes"]) == 2
    shown = capsys.readouterr().err
    assert "no network" in shown
    assert f"run it by hand: {hermes.python} -m pip install" in shown
    assert files(user) == before


def test_a_hermes_without_pip_is_served_by_uv_or_named_the_command(user, tmp_path, monkeypatch):
    found = hermes_agent.find(AgentFolders.load(), str(StandIn(tmp_path / "a", commonbook="0.0.1", pip=False).program))
    monkeypatch.setattr(shutil, "which", lambda name: "/opt/uv" if name == "uv" else None)
    command = hermes_agent.package_command(found)
    assert command is not None
    assert command[:5] == ("/opt/uv", "pip", "install", "--python", found.python)
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    with pytest.raises(BadInput, match="pip") as refused:
        hermes_agent.package_command(found)
    assert "ensurepip" in refused.value.fix


def test_a_hermes_that_knows_entry_points_needs_no_folder(user, tmp_path):
    hermes = StandIn(tmp_path / "new", entry_points=True)
    assert main(["install", "hermes", "--program", str(hermes.program), "--yes"]) == 0
    assert not (user / ".hermes" / "plugins").exists()
    assert b"provider: commonbook" in files(user)[".hermes/config.yaml"]


def test_no_hermes_and_several_are_reported_with_what_to_do(user, hermes, tmp_path, monkeypatch, capsys):
    before = files(user)
    StandIn(user / ".hermes" / "hermes-agent" / "venv")
    assert main(["install", "hermes", "--yes"]) == 2
    message = capsys.readouterr().err
    assert str(hermes.program) in message
    assert "--program" in message
    assert main(["install", "hermes", "--program", str(hermes.program), "--dry-run"]) == 0
    shutil.rmtree(user / ".hermes" / "hermes-agent")
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    assert main(["install", "hermes", "--yes"]) == 2
    assert "Hermes was not found" in capsys.readouterr().err
    assert main(["install", "hermes", "--program", sys.executable, "--yes"]) == 2
    assert files(user) == before


def test_a_wrapper_script_leads_to_the_interpreter(user, tmp_path):
    hermes = StandIn(tmp_path / "real")
    wrapper = user / ".local" / "bin" / "hermes"
    wrapper.parent.mkdir(parents=True)
    wrapper.write_text(f'#!/bin/sh\nunset PYTHONPATH\nexec "{hermes.program}" "$@"\n')
    wrapper.chmod(0o755)
    assert hermes_agent.find(AgentFolders.load(), None).python == str(hermes.python)


def test_a_provider_that_hermes_does_not_find_is_reported(user, hermes, capsys):
    hermes.status.write_text(
        "  Provider:  commonbook\n\n  commonbook config:\n    problem: no room\n  Status: not available ✗\n"
    )
    assert main(["install", "hermes", "--yes"]) == 2
    assert "no room" in capsys.readouterr().err
    hermes.status.write_text("  Provider:  (none)\n")
    assert main(["install", "hermes", "--yes"]) == 2


def test_a_link_to_the_package_is_not_written_through(user, hermes, tmp_path, capsys):
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("the provider itself")
    (user / ".hermes" / "plugins").mkdir()
    (user / ".hermes" / "plugins" / "commonbook").symlink_to(package)
    for verb in ("install", "uninstall"):
        assert main([verb, "hermes", "--yes"]) == 2
        assert f"rm {user / '.hermes' / 'plugins' / 'commonbook'}" in capsys.readouterr().err
    assert files(package) == {"__init__.py": b"the provider itself"}


def test_what_is_for_agents_with_mcp_is_refused(user, hermes):
    before = files(user)
    for words in (["--space", "team"], ["--instructions"], ["--tool-output"], ["--scope", "project"]):
        assert main(["install", "hermes", "--yes", *words]) == 2
    assert main(["--url", "https://book.example", "install", "hermes", "--yes"]) == 2
    assert files(user) == before


def test_a_profile_of_hermes_leads_to_its_root(user, monkeypatch):
    monkeypatch.setenv("HERMES_HOME", str(user / ".hermes" / "profiles" / "coder"))
    assert AgentFolders.load().hermes == str(user / ".hermes")
    assert list(hermes_agent.profiles(str(user / ".hermes"))) == ["default", "coder"]


def test_the_folder_says_that_the_package_is_missing(tmp_path, user, hermes):
    """The folder outlives the environment of Hermes, which an update may make anew."""
    assert main(["install", "hermes", "--yes"]) == 0
    script = """
import runpy, sys
sys.modules["commonbook"] = None
found = []
class Context:
    register_memory_provider = staticmethod(found.append)
runpy.run_path(sys.argv[1])["register"](Context)
print(found[0].name, found[0].is_available(), found[0].get_status_config({}))
"""
    path = user / ".hermes" / "plugins" / "commonbook" / "__init__.py"
    done = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("commonbook False")
    assert "-m pip install commonbook" in done.stdout


@pytest.mark.promise("install.undone")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "a: 1\n",
        "a: 1",
        "memory:\n  provider: honcho\n  x: 1\n",
        "memory:\n  # one\n  x: 1  # two\n\n\nb: 2\n",
        "memory:\n    x:\n        provider: 1\n    provider: mem0  # mine\nb: 2\n",
        "memory:\nb: 2\n",
        "memory:\n  provider:\n  x: 1\n",
        "memory:\n  provider: ''  # none\n",
    ],
)
def test_the_value_is_set_once_and_taken_out_by_its_meaning(text):
    made = PROVIDER.made(text)
    before = yaml.safe_load(text) or {}
    assert yaml.safe_load(made) == {**before, "memory": {**(before.get("memory") or {}), "provider": "commonbook"}}
    assert PROVIDER.made(made) == made
    undone = PROVIDER.undone(made)
    assert (yaml.safe_load(undone) or {}) == before
    assert [line for line in text.splitlines() if "#" in line and line.split("#")[1] not in undone] == []
    assert PROVIDER.undone(text) == text


def test_a_file_that_hermes_wrote_anew_loses_the_value_all_the_same():
    rewritten = yaml.safe_dump(yaml.safe_load(PROVIDER.made("memory:\n  provider: honcho\n")))
    assert yaml.safe_load(PROVIDER.undone(rewritten)) == {"memory": {"provider": ""}}


@pytest.mark.parametrize(
    "text",
    [
        *("- a\n", "memory: [1]\n", "memory: text\n", "{a: 1}\n", "a: [\n"),
        *("memory: {provider: x}\n", "memory: null\n", "memory:\r\n  provider: x\r\n"),
    ],
)
def test_a_file_that_cannot_be_edited_is_refused(text):
    with pytest.raises(BadInput):
        PROVIDER.made(text)


@given(
    st.dictionaries(st.sampled_from(["a", "b", "memory"]), st.dictionaries(st.text("xyz", min_size=1), st.integers())),
    st.booleans(),
)
def test_any_mapping_is_as_before_after_both_edits(content, flow):
    text = yaml.safe_dump(content, default_flow_style=flow, sort_keys=False)
    try:
        made = PROVIDER.made(text)
    except BadInput:
        assert flow or not content or content.get("memory") == {}
        return
    assert yaml.safe_load(made) == {**content, "memory": {**content.get("memory", {}), "provider": "commonbook"}}
    assert (yaml.safe_load(PROVIDER.undone(made)) or {}) == content

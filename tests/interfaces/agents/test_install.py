"""`install` and `uninstall`, for each agent, against golden files."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tomllib
from pathlib import Path

import pytest

import commonbook
from commonbook.interfaces.agents.clients import CLIENTS
from commonbook.interfaces.agents.edits import parse_json
from commonbook.interfaces.agents.installation import BACKUP
from commonbook.interfaces.cli.main import main
from tests.support.mcp_clients import PlainClient
from tests.support.repositories import repository

GOLDEN = Path(__file__).parent / "golden"
PROGRAM = "/opt/commonbook/bin/commonbook"
FILES = {
    "claude-code": {"claude-code": ".claude.json", "claude-code-settings": ".claude/settings.json"},
    "codex": {"codex": ".codex/config.toml"},
    "gemini": {"gemini": ".gemini/settings.json"},
    "claude-desktop": {"claude-desktop": ".config/Claude/claude_desktop_config.json"},
    "cursor": {"cursor": ".cursor/mcp.json"},
    "vscode": {"vscode": ".config/Code/User/mcp.json"},
    "opencode": {"opencode": ".config/opencode/opencode.json"},
}


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home directory of a user, in which no agent is installed; commands find `commonbook` and nothing else."""
    folder = tmp_path / "user"
    folder.mkdir()
    for name in ("XDG_CONFIG_HOME", "CODEX_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr(shutil, "which", lambda name: PROGRAM if name == "commonbook" else None)
    return folder


def put_golden(user: Path, client: str) -> None:
    for golden, name in FILES[client].items():
        path = user / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes((GOLDEN / f"{golden}.before").read_bytes())


def contents(user: Path, client: str) -> dict[str, bytes]:
    """Return the files of an agent; one that says nothing is removed."""
    paths = {golden: user / name for golden, name in FILES[client].items()}
    return {golden: path.read_bytes() if path.exists() else b"" for golden, path in paths.items()}


def of_golden(client: str, end: str) -> dict[str, bytes]:
    return {golden: (GOLDEN / f"{golden}.{end}").read_bytes() for golden in FILES[client]}


def meaning(data: bytes, name: str) -> object:
    """Return what a configuration says, without the empty objects that a removal may leave out."""
    text = data.decode()
    if name.endswith(".toml"):
        return tomllib.loads(text)
    return without_empty(parse_json(text))


def without_empty(value: object) -> object:
    if not isinstance(value, dict):
        return value
    found = {key: without_empty(each) for key, each in value.items()}
    return {key: each for key, each in found.items() if each not in ({}, [])}


def meanings(files: dict[str, bytes], client: str) -> dict[str, object]:
    return {golden: meaning(data, FILES[client][golden]) for golden, data in files.items()}


@pytest.mark.promise("install.undone")
@pytest.mark.parametrize("client", FILES)
def test_an_installation_is_as_the_golden_files_and_its_removal_undoes_it(user, client):
    put_golden(user, client)
    assert main(["install", client, "--yes"]) == 0
    if os.environ.get("COMMONBOOK_WRITE_GOLDEN"):
        for golden, data in contents(user, client).items():
            (GOLDEN / f"{golden}.after").write_bytes(data)
    assert contents(user, client) == of_golden(client, "after")
    assert main(["install", client, "--yes"]) == 0
    assert contents(user, client) == of_golden(client, "after")
    assert main(["uninstall", client, "--yes"]) == 0
    assert meanings(contents(user, client), client) == meanings(of_golden(client, "before"), client)
    assert main(["uninstall", client, "--yes"]) == 0


@pytest.mark.promise("install.undone")
@pytest.mark.parametrize("client", FILES)
def test_a_copy_of_each_changed_file_is_kept_beside_it(user, client):
    put_golden(user, client)
    assert main(["install", client, "--yes"]) == 0
    copies = {golden: (user / f"{name}{BACKUP}").read_bytes() for golden, name in FILES[client].items()}
    assert copies == of_golden(client, "before")


@pytest.mark.promise("install.undone")
@pytest.mark.parametrize("client", FILES)
def test_files_that_an_installation_made_are_gone_without_a_trace(user, client):
    assert main(["install", client, "--yes"]) == 0
    assert all((user / name).exists() for name in FILES[client].values())
    assert main(["uninstall", client, "--yes"]) == 0
    left = {path.name for path in user.iterdir()} - {"commonbook", ".config"}
    assert left == set()


def test_every_agent_of_the_table_has_golden_files():
    # Hermes has golden files too, in test_install_hermes.py.
    assert FILES.keys() == CLIENTS.keys() - {"other", "hermes"}


@pytest.mark.promise("install.asks")
@pytest.mark.parametrize("client", FILES)
def test_no_key_is_written_and_the_principal_is_named(user, client, monkeypatch):
    put_golden(user, client)
    assert main(["install", client, "--yes"]) == 0
    data = b"".join(contents(user, client).values())
    assert f"agent:{client}".encode() in data
    assert b"cbk_" not in data
    assert b"COMMONBOOK_KEY" not in data


def test_an_agent_reaches_personal_and_its_project_and_what_else_was_named(user, tmp_path, monkeypatch):
    assert main(["install", "codex", "--space", "team", "--yes"]) == 0
    monkeypatch.chdir(repository(tmp_path / "garden"))
    with PlainClient("--as", "agent:codex", env={"HOME": str(user)}) as client:
        assert client.call("remember", text="Roses need water")["structuredContent"]["space"] == "projects/garden"
        assert client.call("status")["structuredContent"]["spaces"] == ["personal", "projects/garden", "team"]
    assert main(["uninstall", "codex", "--yes"]) == 0
    with PlainClient("--as", "agent:codex", env={"HOME": str(user)}) as client:
        words = client.call("recall", query="roses")["content"][0]["text"]
        assert "commonbook install codex" in words


@pytest.mark.promise("install.asks")
def test_an_installation_again_changes_no_grant(user):
    assert main(["install", "gemini", "--yes"]) == 0
    with commonbook.open(user / "commonbook") as book:
        before = book.log_size()
    assert main(["install", "gemini", "--yes"]) == 0
    with commonbook.open(user / "commonbook") as book:
        assert book.log_size() == before


@pytest.mark.promise("install.asks")
def test_without_a_terminal_nothing_is_changed_without_yes(user, capsys):
    assert main(["install", "gemini"]) == 2
    assert "--yes" in capsys.readouterr().err
    assert main(["install", "gemini", "--dry-run"]) == 0
    assert '+    "commonbook": {' in capsys.readouterr().out
    assert list(user.iterdir()) == []


def test_a_project_gets_files_that_others_can_use(user, tmp_path, monkeypatch):
    garden = repository(tmp_path / "garden")
    monkeypatch.chdir(garden)
    assert main(["install", "claude-code", "--scope", "project", "--no-permissions", "--no-hooks", "--yes"]) == 0
    server = json.loads((garden / ".mcp.json").read_text())["mcpServers"]["commonbook"]
    assert server == {"type": "stdio", "command": "commonbook", "args": ["mcp", "--as", "agent:claude-code"]}
    assert not (garden / ".claude").exists()
    assert main(["uninstall", "claude-code", "--scope", "project", "--yes"]) == 0
    assert not (garden / ".mcp.json").exists()


def test_grants_stay_while_the_agent_has_the_book_in_another_place(user, tmp_path, monkeypatch):
    monkeypatch.chdir(repository(tmp_path / "garden"))
    assert main(["install", "gemini", "--yes"]) == 0
    assert main(["install", "gemini", "--scope", "project", "--yes"]) == 0
    assert main(["uninstall", "gemini", "--scope", "project", "--yes"]) == 0
    with commonbook.open(user / "commonbook") as book:
        assert {grant.space.name for grant in book.grants()} == {"personal", "projects"}
    assert main(["uninstall", "gemini", "--yes"]) == 0
    with commonbook.open(user / "commonbook") as book:
        assert book.grants() == ()


def test_instructions_are_written_only_if_asked_and_in_one_block(user, tmp_path, monkeypatch):
    garden = repository(tmp_path / "garden")
    monkeypatch.chdir(garden)
    (garden / "AGENTS.md").write_text("# Garden\n\nBe brief.\n")
    assert main(["install", "codex", "--yes"]) == 0
    assert (garden / "AGENTS.md").read_text() == "# Garden\n\nBe brief.\n"
    assert main(["install", "codex", "--instructions", "--yes"]) == 0
    text = (garden / "AGENTS.md").read_text()
    assert text.startswith("# Garden\n\nBe brief.\n\n<!-- commonbook: begin -->\n")
    assert main(["uninstall", "codex", "--yes"]) == 0
    assert (garden / "AGENTS.md").read_text() == "# Garden\n\nBe brief.\n"


def test_a_server_and_another_home_are_named_in_the_command(user, tmp_path):
    assert main(["install", "codex", "--url", "https://book.example", "--yes"]) == 0
    config = tomllib.loads((user / ".codex" / "config.toml").read_text())
    assert config["mcp_servers"]["commonbook"]["args"] == ["mcp", "--url", "https://book.example"]
    assert not (user / "commonbook").exists()
    commonbook.open(tmp_path / "other", create=True).close()
    assert main(["--home", str(tmp_path / "other"), "install", "codex", "--yes"]) == 0
    config = tomllib.loads((user / ".codex" / "config.toml").read_text())
    assert config["mcp_servers"]["commonbook"]["args"][-2:] == ["--home", str(tmp_path / "other")]


@pytest.mark.promise("install.foreign")
def test_configurations_of_other_tools_or_with_mistakes_are_left_alone(user, capsys):
    config = user / ".codex" / "config.toml"
    config.parent.mkdir()
    for text, named in (("[mcp_servers.commonbook]\ncommand = 'mine'\n", "did not write"), ("a = \n", "not TOML")):
        config.write_text(text)
        assert main(["install", "codex", "--yes"]) == 2
        assert named in capsys.readouterr().err
        assert config.read_text() == text
    settings = user / ".gemini" / "settings.json"
    settings.parent.mkdir()
    for text in ('{\n"a": \n}', '{"hooks": {}, // mine\n}', '{"mcpServers": []}'):
        settings.write_text(text)
        assert main(["install", "gemini", "--yes"]) == 2
        shown = capsys.readouterr().err
        assert str(settings) in shown
        assert "agent:gemini" in shown, "the lines to add are shown"
        assert settings.read_text() == text


@pytest.mark.promise("install.undone")
def test_a_link_to_a_configuration_stays_a_link(user):
    real = user / "dotfiles.json"
    real.write_text("{}\n")
    real.chmod(0o640)
    (user / ".gemini").mkdir()
    (user / ".gemini" / "settings.json").symlink_to(real)
    assert main(["install", "gemini", "--yes"]) == 0
    assert (user / ".gemini" / "settings.json").is_symlink()
    assert "commonbook" in real.read_text()
    assert real.stat().st_mode & 0o777 == 0o640
    assert main(["uninstall", "gemini", "--yes"]) == 0
    assert (user / ".gemini" / "settings.json").read_text() == "{}\n"


FAKE_CLAUDE = """#!{python}
import json, os, sys
path = os.path.expanduser("~/.claude.json")
config = json.load(open(path))
servers = config.setdefault("mcpServers", {{}})
if sys.argv[1:5] == ["mcp", "add-json", "--scope", "user"]:
    assert sys.argv[5] not in servers, "it exists already"
    servers[sys.argv[5]] = json.loads(sys.argv[6])
elif sys.argv[1:3] == ["mcp", "remove"] and sys.argv[4:] == ["--scope", "user"]:
    del servers[sys.argv[3]]
else:
    sys.exit(1)
json.dump(config, open(path, "w"), indent=2)
"""


def test_claude_code_edits_its_own_file_where_it_can(user, monkeypatch):
    program = user / "claude"
    program.write_text(FAKE_CLAUDE.format(python=sys.executable))
    program.chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda name: str(program) if name == "claude" else "/old/commonbook")
    put_golden(user, "claude-code")
    before = json.loads((user / ".claude.json").read_text())
    assert main(["install", "claude-code", "--yes"]) == 0
    monkeypatch.setattr(shutil, "which", lambda name: str(program) if name == "claude" else PROGRAM)
    for _ in range(2):
        assert main(["install", "claude-code", "--yes"]) == 0
    after = parse_json((GOLDEN / "claude-code.after").read_text())
    assert json.loads((user / ".claude.json").read_text()) == after
    assert main(["uninstall", "claude-code", "--yes"]) == 0
    assert json.loads((user / ".claude.json").read_text()) == {**before, "mcpServers": {}}


def test_the_list_says_where_the_book_is(user, capsys):
    assert main(["install", "codex", "--yes"]) == 0
    capsys.readouterr()
    assert main(["install", "--list", "--json"]) == 0
    listed = {each["client"]: each for each in json.loads(capsys.readouterr().out)["clients"]}
    assert listed["codex"] == {"client": "codex", "title": "Codex", "tried": True, "installed": ["user"]}
    assert listed["cursor"]["installed"] == []
    assert {name for name, each in listed.items() if each["tried"]} == {"claude-code", "codex", "gemini", "hermes"}


def test_another_agent_gets_a_principal_and_its_configuration_is_shown(user, capsys):
    assert main(["install", "other", "--yes", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["granted"] == ["personal", "projects"]
    assert answer["configuration"]["mcpServers"]["commonbook"]["args"] == ["mcp", "--as", "agent:other"]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["install"], "no agent was named"),
        (["install", "emacs"], "'emacs'"),
        (["install", "claude-desktop", "--scope", "project"], "--scope"),
        (["install", "codex", "--as", "agent:codex"], "owner"),
    ],
)
def test_bad_input_is_refused_with_a_fix(user, capsys, words, named):
    assert main([*words, "--yes"]) == 2
    assert named in capsys.readouterr().err
    assert list(user.iterdir()) == []


@pytest.mark.promise("install.asks")
def test_the_address_of_a_database_is_not_written_into_files(user, capsys, monkeypatch):
    monkeypatch.setenv("COMMONBOOK_DATABASE", "postgresql://ada:secret@db.example/book")
    assert main(["install", "codex", "--yes"]) == 2
    assert "--url" in capsys.readouterr().err
    assert list(user.iterdir()) == []


def test_a_hook_of_an_earlier_place_is_replaced(user, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: "/old/commonbook" if name == "commonbook" else None)
    put_golden(user, "claude-code")
    assert main(["install", "claude-code", "--yes"]) == 0
    monkeypatch.setattr(shutil, "which", lambda name: PROGRAM if name == "commonbook" else None)
    assert main(["install", "claude-code", "--yes"]) == 0
    after = meanings(of_golden("claude-code", "after"), "claude-code")
    assert meanings(contents(user, "claude-code"), "claude-code") == after


@pytest.mark.promise("hooks.tool-output")
@pytest.mark.parametrize("client", ["claude-code", "codex", "gemini"])
def test_hooks_can_be_switched_off_and_on_again(user, client):
    put_golden(user, client)
    assert main(["install", client, "--yes", "--no-hooks"]) == 0
    without = meanings(contents(user, client), client)
    assert main(["install", client, "--yes", "--tool-output"]) == 0
    with_tools = b"".join(contents(user, client).values())
    assert (b"PostToolUse" in with_tools) or (b"AfterTool" in with_tools)
    assert main(["install", client, "--yes"]) == 0
    assert meanings(contents(user, client), client) == meanings(of_golden(client, "after"), client)
    assert main(["install", client, "--yes", "--no-hooks"]) == 0
    assert meanings(contents(user, client), client) == without
    assert main(["install", client, "--yes", "--tool-output"]) == 0
    assert main(["uninstall", client, "--yes"]) == 0
    assert meanings(contents(user, client), client) == meanings(of_golden(client, "before"), client)


def test_codex_is_said_to_ask_for_trust_in_its_hooks(user, capsys):
    assert main(["install", "codex", "--yes"]) == 0
    assert "after you have trusted them" in capsys.readouterr().err
    assert main(["install", "codex", "--no-hooks", "--yes"]) == 0
    assert "trusted" not in capsys.readouterr().err


def test_hooks_can_be_left_out(user):
    assert main(["install", "codex", "--no-hooks", "--yes"]) == 0
    assert "hooks" not in tomllib.loads((user / ".codex" / "config.toml").read_text())
    assert main(["install", "codex", "--yes"]) == 0
    hooks = tomllib.loads((user / ".codex" / "config.toml").read_text())["hooks"]
    assert hooks["Stop"][0]["hooks"][0]["command"] == f"{PROGRAM} hook codex --as agent:codex"

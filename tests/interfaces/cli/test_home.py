"""The commands on spaces and the home, and what holds for every command."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from commonbook.values.reports import Status
from commonbook.values.spaces import Space
from tests.interfaces.cli.test_cli import cli, cli_without_book
from tests.support.repositories import repository
from tests.support.transfers import opened

__all__ = ["cli", "cli_without_book"]

# --- spaces and the home


def test_spaces_are_created_listed_and_renamed(cli):
    made = cli("space", "create", "team/backend", "--json").json
    assert made.keys() == set(Space._fields)
    renamed = cli("space", "rename", "team/backend", "team/server", "--json").json
    assert (renamed["id"], renamed["name"]) == (made["id"], "team/server")
    listed = cli("space", "list", "--json").json
    assert {space["name"]: space["id"] for space in listed}["team/server"] == made["id"]
    assert cli("space", "create", "team/server").code == 5
    assert "team/server\t" in cli("space", "list").out


def test_space_which_names_the_space_of_the_surroundings_and_makes_no_home(cli_without_book, tmp_path, home):
    assert cli_without_book("space", "which", "--json").json == {"space": "personal"}
    (tmp_path / ".commonbook.toml").write_text('space = "team/backend"')
    assert cli_without_book("space", "which").out == "team/backend\n"
    assert cli_without_book("--space", "x", "space", "which").out == "x\n"
    assert not home.exists()


def test_a_project_file_of_a_repository_is_trusted_by_a_command(cli, tmp_path, monkeypatch):
    clone = repository(tmp_path / "clone", "https://host.example/eve/birds.git")
    (clone / ".commonbook.toml").write_text('space = "team/birds"')
    monkeypatch.chdir(clone)
    untrusted = cli("space", "which", "--json").json
    assert untrusted == {
        "space": "projects/birds",
        "untrusted": {"path": str(clone / ".commonbook.toml"), "space": "team/birds"},
    }
    assert "not trusted" in cli("space", "which").err
    trusted = cli("trust", "--json").json
    assert trusted == {**untrusted["untrusted"], "capture": "on", "trusted": True}
    assert (cli("space", "which").out, cli("space", "which").err) == ("team/birds\n", "")
    assert cli.remember("the heron nests")["space"] == "team/birds"
    assert not cli("trust", "--no-longer", "--json").json["trusted"]
    assert cli("space", "which").out == "projects/birds\n"
    assert cli("trust", str(tmp_path)).code == 3


def test_status_has_counts_sizes_versions_what_is_pending_and_what_is_wrong(cli, chosen):
    cli.remember("one", "--kind", "fact")
    cli("delete", cli.remember("two")["id"])
    status = cli("status", "--json").json
    assert status.keys() == set(Status._fields)
    assert status["home"] == (chosen.database.place if chosen.database else chosen.home)
    assert (status["memories"], status["kinds"], status["deleted"]) == (1, {"fact": 1}, 1)
    pending = ("pending_files", "pending_deletions", "waiting_jobs", "failed_jobs", "unsent", "refused", "unsettled")
    assert not any(status[name] for name in pending)
    assert status["findings"] == []
    plain = cli("status")
    assert plain.code == 0
    assert "memories: 1\n" in plain.out
    assert "nothing is wrong\n" in plain.out


def test_status_says_how_large_the_files_are_where_there_are_files(cli, chosen):
    path = cli.remember("one")["path"]
    sizes, plain = cli("status", "--json").json, cli("status").out
    assert sizes["database_bytes"] > 0
    assert "\ndatabase: " in plain
    about_files = [line for line in plain.splitlines() if line.startswith(("markdown", "pending"))]
    if chosen.database:
        assert (sizes["markdown_bytes"], about_files) == (None, [])
    else:
        size = (Path(chosen.home) / path).stat().st_size
        assert sizes["markdown_bytes"] == size
        assert about_files == [f"markdown: {size} bytes", "pending files: 0", "pending deletions: 0"]


def test_status_does_not_tell_everybody_how_large_the_book_is(cli):
    cli.remember("one")
    cli("grant", "add", "user:bob", "personal", "reader")
    status = cli("--as", "user:bob", "status", "--json").json
    assert (status["home"], status["memories"]) == ("", 1)
    assert (status["database_bytes"], status["markdown_bytes"]) == (None, None)
    assert "bytes" not in cli("--as", "user:bob", "status").out


def test_status_names_a_file_that_is_wrong(cli, home):
    receipt = cli.remember("one")
    (home / receipt["path"]).write_text("---\nid: [\n---\n")
    status = cli("status", "--json").json
    assert [wrong.keys() for wrong in status["findings"]] == [{"what", "where", "why", "fix"}]
    assert status["findings"][0]["where"] == receipt["path"]
    assert "malformed file" in cli("status").out


def test_doctor_ends_with_one_when_something_is_wrong(cli, home):
    receipt = cli.remember("one")
    assert cli("doctor", "--json").json == []
    (home / receipt["path"]).write_text("---\nid: [\n---\n")
    result = cli("doctor", "--json")
    assert result.code == 1
    assert [wrong.keys() for wrong in result.json] == [{"what", "where", "why", "fix"}]
    assert cli("doctor").code == 1


@pytest.mark.slow
def test_doctor_accepts_deletions_that_were_held_back(cli, home):
    lines = "".join(json.dumps({"text": f"memory {number}"}) + "\n" for number in range(12))
    cli("remember", "--batch", "-", stdin=lines.encode())
    for path in home.glob("personal/**/*.md"):
        path.unlink()
    assert cli("status", "--json").json["pending_deletions"] == 12
    assert len(cli.ids()) == 12
    assert cli("doctor", "--accept", "--json").json == []
    assert cli.ids() == []


def test_rebuild_reports_what_it_took_in(cli):
    cli.remember("one")
    result = cli("rebuild", "--json")
    assert result.code == 0
    assert result.json.keys() == {
        "new", "edited", "moved", "deleted", "restored", "malformed", "held_back", "read",
    }  # fmt: skip


def test_the_log_is_verified_and_listed(cli):
    cli.remember("one")
    cli.remember("two", "--space", "team")
    report = cli("audit", "verify", "--json").json
    assert report.keys() == {"spaces", "entries", "findings"}
    assert (report["spaces"], report["findings"]) == (2, [])
    one = cli("audit", "verify", "--space", "team", "--json").json
    assert (one["findings"], one["spaces"]) == ([], 1)
    listed = cli("audit", "list", "--json").json
    assert [entry["action"] for entry in listed][-1] == "remember"
    after = cli("audit", "list", "--after", "1", "--limit", "1", "--json").json
    assert [entry["seq"] for entry in after] == [2]
    assert cli("audit", "list").out.splitlines()[-1].split("\t")[3] == "remember"
    assert cli("audit", "list", "--space", "nowhere").code == 3


def test_import_and_export_report_in_the_same_words(cli, tmp_path):
    vault = tmp_path / "vault"
    vault.mkdir()
    (vault / "One.md").write_text("See [[Two]]. #idea\n")
    (vault / "Two.md").write_text("The second.\n")
    keys = {
        "done",
        "unchanged",
        "updated",
        "links",
        "skipped",
        "spaces",
        "ids",
        "new_ids",
        "sessions",
        "messages",
        "left_out",
        "masked",
        "attachments",
    }
    dry = cli("import", str(vault), "--dry-run", "--json")
    assert (dry.code, dry.json.keys()) == (0, keys)
    assert cli.ids() == []
    assert cli("import", str(vault), "--space", "vault", "--json").json["done"] == 2
    assert len(cli.ids("--space", "vault")) == 2
    assert cli("import", str(vault), "--space", "vault", "--json").json["unchanged"] == 2
    result = cli("export", str(tmp_path / "out"), "--json")
    assert (result.code, result.json.keys()) == (0, keys)
    assert len(list((tmp_path / "out").rglob("*.md"))) == 2


def test_sessions_come_and_leave_by_import_and_export(cli, tmp_path):
    with opened(tmp_path / "other") as other:
        other.append("s", ["the heron nests", "the otter swims"], space="team")
        other.rewind("s", 1, space="team")
        other.export(str(tmp_path / "out.zip"))
    dry = cli("import", str(tmp_path / "out.zip"), "--dry-run", "--json").json
    taken = cli("import", str(tmp_path / "out.zip"), "--json").json
    assert [(one["sessions"], one["messages"], one["skipped"]) for one in (dry, taken)] == [(1, 2, [])] * 2
    messages = cli("session", "show", "s", "--json").json["items"]
    assert [(one["seq"], one["text"], one["rewound_at"] is None) for one in messages] == [
        (1, "the heron nests", True),
        (2, "the otter swims", False),
    ]
    cli("session", "append", "s", "the walrus sleeps", "--space", "team")
    result = cli("export", str(tmp_path / "again"))
    assert "sessions 1 (messages 3)" in result.out
    assert "the signed log" in result.err
    assert "sessions" not in cli("import", str(tmp_path / "again")).out


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_completion_prints_a_script_that_knows_every_command(cli_without_book, shell, home):
    result = cli_without_book("completion", shell)
    assert result.code == 0
    assert "remember" in result.out
    assert "verify" in result.out
    assert not home.exists()
    if shell == "bash":
        assert subprocess.run(["bash", "-n"], input=result.out, text=True, check=False).returncode == 0


# --- what holds everywhere


@pytest.mark.parametrize(
    "args",
    [
        ("--json", "--home", "{}", "--space", "team", "--no-color", "remember", "tea"),
        ("remember", "tea", "--json", "--home", "{}", "--space", "team", "--no-color"),
        ("--space=wrong", "remember", "--json", "--home={}", "tea", "--space=team"),
        ("--json", "--space", "team", "remember", "tea", "--home", "{}"),
    ],
)
def test_options_that_hold_everywhere_stand_before_or_behind_the_command(cli_without_book, tmp_path, args, home):
    cli_without_book("init", str(tmp_path / "elsewhere"), "--yes")
    result = cli_without_book(*(arg.format(tmp_path / "elsewhere") for arg in args))
    assert result.json["space"] == "team"
    assert (tmp_path / "elsewhere" / result.json["path"]).exists()
    assert not home.exists()


def test_they_also_hold_for_commands_of_two_words(cli_without_book, tmp_path, home):
    other = str(tmp_path / "elsewhere")
    cli_without_book("init", other, "--yes")
    for args in (("--json", "space", "list"), ("space", "--json", "list"), ("space", "list", "--json")):
        assert cli_without_book(*args, "--home", other).json == []
    assert not home.exists()


def test_version_and_help_need_no_home(cli_without_book, home):
    assert cli_without_book("--version").out.startswith("commonbook ")
    assert "remember" in cli_without_book("--help").out
    assert "--importance" in cli_without_book("remember", "--help").out
    assert not home.exists()


@pytest.mark.parametrize(
    "args",
    [
        (), ("no-such-command",), ("remember", "a", "--no-such-option"), ("space",), ("list", "--limit", "many"),
        ("list", "--limit", "0"), ("audit", "list", "--after", "9" * 30), ("audit", "list", "--limit", "-1"),
        ("edit", "x", "--expected-version", "one"), ("remember", "a", "b"), ("completion", "fish"), ("list", "--tag"),
        ("remember", "a", "--importance", "high"), ("remember", "a", "--link", "nonsense"), ("--home", "", "status"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused_in_words_and_in_json(cli, args, home):
    result = cli(*args)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("commonbook: ")
    assert "\nfix: " in result.err
    result = cli("--json", *args)
    assert (result.code, result.out) == (2, "")
    assert result.error.keys() == {"type", "message", "fix"}
    assert all(result.error.values())


def test_json_is_readable_and_one_line(cli):
    cli.remember("grün 🍵\nzwei")
    result = cli("list", "--json")
    assert result.out.count("\n") == 1
    assert "grün 🍵\\nzwei" in result.out


def test_an_unexpected_error_is_not_hidden(cli, monkeypatch, home):
    def broken(*_args: object, **_options: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("commonbook.service.book.Book.status", broken)
    with pytest.raises(ZeroDivisionError):
        cli("status")


def test_an_interrupt_ends_quietly(cli, monkeypatch, home):
    def interrupted(*_args: object, **_options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("commonbook.service.book.Book.status", interrupted)
    assert (cli("status").code, cli("status").err) == (130, "")


def test_keys_for_a_server_are_made_once(cli_without_book, tmp_path, home):
    made = cli_without_book("audit", "keys", str(tmp_path / "keys"), "--json").json
    assert sorted(path.name for path in (tmp_path / "keys").iterdir()) == ["hashing.key", "signing.key"]
    assert made["folder"] == str(tmp_path / "keys")
    assert made["key_id"] in cli_without_book("audit", "keys", str(tmp_path / "keys")).out
    assert not home.exists()

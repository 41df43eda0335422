"""Every command, and what it answers to programs and in pipes."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import commonbook
from commonbook.interfaces.cli.main import main
from commonbook.service.book import Book
from commonbook.values.memory import MAX_TEXT_BYTES, Memory, Receipt, Revision

RECEIPT = set(Receipt._fields)
MEMORY = set(Memory._fields)
INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z\Z")


@dataclass
class Said:
    """How a run ended and what it printed."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def error(self) -> dict[str, str]:
        return dict(json.loads(self.err)["error"])


class Cli:
    """The command line on a book of its own, in this process."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.home = folder / "home"
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def __call__(self, *args: str, stdin: bytes = b"") -> Said:
        self._monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8"))
        self._capsys.readouterr()
        code = main([*args])
        printed = self._capsys.readouterr()
        return Said(code, printed.out, printed.err)

    def remember(self, text: str, *options: str) -> dict[str, Any]:
        result = self("remember", text, *options, "--json")
        assert (result.code, result.err) == (0, "")
        return dict(result.json)

    def ids(self, *options: str) -> list[str]:
        return [item["id"] for item in self("list", "--json", *options).json["items"]]


@pytest.fixture
def cli(chosen, tmp_path, monkeypatch, capsys):
    """The command line, on the engine of this test, with an empty book."""
    commonbook.open(None if chosen.database else chosen.home, create=True).close()
    return _cli_in(tmp_path, monkeypatch, capsys)


@pytest.fixture
def cli_without_book(chosen, tmp_path, monkeypatch, capsys):
    """The command line, on the engine of this test, before there is a book."""
    return _cli_in(tmp_path, monkeypatch, capsys)


def _cli_in(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    for name in ("VISUAL", "EDITOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(folder)
    return Cli(folder, monkeypatch, capsys)


# --- remember and show


def test_remember_prints_the_receipt_that_others_rely_on(cli):
    receipt = cli.remember("Alice owns billing")
    assert receipt.keys() == RECEIPT
    assert (receipt["space"], receipt["revision"], receipt["version"]) == ("personal", 1, 1)
    assert (receipt["new"], receipt["durable"], receipt["duplicate_of"]) == (True, True, None)


def test_what_is_remembered_is_a_file(cli, home):
    receipt = cli.remember("Alice owns billing")
    assert (home / receipt["path"]).read_text().endswith("\nAlice owns billing\n")


def test_remember_in_a_pipe_prints_id_space_path_and_version_between_tabs(cli):
    memory_id, space, path, version = cli("remember", "tea", "--space", "team/backend").out.rstrip("\n").split("\t")
    assert (space, version) == ("team/backend", "1")
    assert cli("show", memory_id, "--json").json["path"] == path


def test_every_field_can_be_given_and_is_shown(cli):
    other = cli.remember("the other")["id"]
    given = cli.remember(
        "the text", "--title", "A title", "--kind", "decision", "--tag", "a,b", "--tag", "c", "--importance", "0.5",
        "--occurred", "2026-01-02T03:04Z", "--valid-from", "2026-01-01T00:00Z", "--valid-until", "2027-01-01T00:00Z",
        "--expires", "2099-01-01T00:00Z", "--link", f"related_to:{other[-8:]}", "--space", "team/x",
    )  # fmt: skip
    shown = cli("show", given["id"], "--json").json
    assert shown.keys() == MEMORY
    assert (shown["title"], shown["text"], shown["kind"], shown["tags"]) == (
        "A title", "the text", "decision", ["a", "b", "c"],
    )  # fmt: skip
    assert (shown["importance"], shown["space"], shown["author"]) == (0.5, "team/x", "user:local")
    assert shown["occurred"] == "2026-01-02T03:04:00.000000Z"
    for name in ("created", "updated", "occurred", "valid_from", "valid_until", "expires"):
        assert INSTANT.match(shown[name]), name
    link = {"source": given["id"], "relation": "related_to", "target": other}
    assert shown["links"] == [link]
    assert cli("links", other, "--json").json == [link]


@pytest.mark.parametrize("final", ["", "\n", "\r\n"])
def test_text_comes_from_standard_input_or_a_file_without_one_final_break(cli, tmp_path, final):
    text = "  zwei Zeilen\n\tmit Ümläuten 🍵\n" if final else "  zwei Zeilen\n\tmit Ümläuten 🍵"
    (tmp_path / "note.md").write_bytes((text + final).encode())
    for result in (
        cli("remember", "-", "--json", stdin=(text + final).encode()),
        cli("remember", "--json", stdin=(text + final).encode()),
        cli("remember", "--file", "note.md", "--json"),
    ):
        assert cli("show", result.json["id"], "--json").json["text"] == text


@pytest.mark.parametrize("text", ["- an item", "---\na: b\n---\n", "-5 degrees", "--- a line", "-"])
def test_a_text_may_begin_with_dashes(cli, text):
    result = cli("remember", "--json", text, "--tag", "x") if text != "-" else cli("remember", "--json", stdin=b"-")
    assert cli("show", result.json["id"], "--json").json["text"] == text


def test_what_follows_two_dashes_is_never_an_option(cli):
    result = cli("remember", "--json", "--", "--json")
    assert cli("show", result.json["id"], "--json").json["text"] == "--json"


def test_a_process_that_may_open_no_more_files_says_so(cli, monkeypatch):
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(Book, "remember", fail)
    result = cli("remember", "another")
    assert (result.code, "no more files can be opened" in result.err, "ulimit" in result.err) == (1, True, True)


@pytest.mark.promise("writes.bad-input")
def test_remember_without_a_text_is_refused(cli):
    assert cli("remember").code == 2
    assert cli("remember", "a", "--file", "b").code == 2


@pytest.mark.promise("writes.once")
def test_a_key_is_stored_once_and_other_content_under_it_is_a_conflict(cli):
    first = cli.remember("tea", "--key", "k1")
    assert cli.remember("tea", "--key", "k1") == {**first, "new": False}
    assert cli("remember", "tea", "--key", "k1").out.split("\t")[0] == first["id"]
    result = cli("remember", "coffee", "--key", "k1", "--json")
    assert (result.code, result.error["type"]) == (5, "key_conflict")
    assert cli.ids() == [first["id"]]


def test_a_duplicate_is_named_beside_the_answer(cli):
    first = cli.remember("tea")
    result = cli("remember", "tea")
    assert result.out.count("\n") == 1
    assert first["id"] in result.err


def test_replaces_supersedes(cli):
    old = cli.remember("Alice owns billing")["id"]
    new = cli.remember("Bob owns billing", "--replaces", old[-8:])["id"]
    shown = cli("show", old, "--json").json
    assert (shown["superseded_by"], shown["marks"]) == (new, ["superseded"])


def test_ids_may_be_given_by_their_ends_or_their_file(cli):
    receipt = cli.remember("Alice owns billing")
    for name in (receipt["id"][-8:], receipt["id"][:16], receipt["path"], Path(receipt["path"]).name):
        assert cli("show", name, "--json").json["id"] == receipt["id"]


def test_show_in_a_pipe_is_plain(cli):
    receipt = cli.remember("[bold]not markup[/bold]\nsecond line", "--tag", "a")
    result = cli("show", receipt["id"])
    assert "\x1b" not in result.out
    assert f"id: {receipt['id']}\n" in result.out
    assert result.out.endswith("\n\n[bold]not markup[/bold]\nsecond line\n")


def test_a_memory_cannot_steer_the_terminal(cli):
    receipt = cli.remember("red \x1b[31m, bell \x07, csi \x9b1m, return \r, tab \t.", "--title", "x")
    for args in (("show", receipt["id"]), ("history", receipt["id"]), ("show", receipt["id"], "--json"), ("list",)):
        out = cli(*args).out
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", out), args
    assert "red ␛[31m" in cli("show", receipt["id"]).out
    assert cli("show", receipt["id"], "--json").json["text"].startswith("red \x1b[31m, bell \x07, csi \x9b1m")


# --- change


def test_edit_changes_what_is_given_and_nothing_else(cli):
    receipt = cli.remember("one", "--tag", "a,b", "--importance", "0.4", "--expires", "2099-01-01", "--title", "T")
    result = cli("edit", receipt["id"], "--kind", "fact", "two", "--json")
    assert result.json.keys() == RECEIPT
    assert (result.json["revision"], result.json["version"], result.json["new"]) == (2, 2, False)
    shown = cli("show", receipt["id"], "--json").json
    assert (shown["text"], shown["kind"], shown["tags"], shown["title"]) == ("two", "fact", ["a", "b"], "T")
    cli("edit", receipt["id"], "--importance", "none", "--expires", "", "--tag", "", "--title", "")
    shown = cli("show", receipt["id"], "--json").json
    assert (shown["importance"], shown["expires"], shown["tags"], shown["title"]) == (None, None, [], "two")


def test_edit_takes_its_text_from_standard_input_or_a_file(cli, tmp_path):
    memory_id = cli.remember("one")["id"]
    cli("edit", memory_id, "-", stdin=b"two\n")
    assert cli("show", memory_id, "--json").json["text"] == "two"
    (tmp_path / "three").write_text("three\n")
    cli("edit", memory_id, "--file", "three")
    assert cli("show", memory_id, "--json").json["text"] == "three"


def test_tags_are_added_and_removed_one_by_one(cli):
    memory_id = cli.remember("one", "--tag", "a,b")["id"]
    cli("edit", memory_id, "--add-tag", "c,d", "--remove-tag", "a")
    assert cli("show", memory_id, "--json").json["tags"] == ["b", "c", "d"]
    cli("edit", memory_id, "--tag", "x", "--add-tag", "y")
    assert cli("show", memory_id, "--json").json["tags"] == ["x", "y"]


def test_tags_that_somebody_else_changes_meanwhile_are_not_overwritten(cli, monkeypatch):
    memory_id = cli.remember("one", "--tag", "a")["id"]
    read = Book.get

    def read_just_before_another_edit(book: Book, wanted: str) -> Memory:
        found = read(book, wanted)
        book.edit(wanted, tags=["a", "theirs"])
        return found

    monkeypatch.setattr(Book, "get", read_just_before_another_edit)
    result = cli("edit", memory_id, "--add-tag", "ours", "--json")
    monkeypatch.undo()
    assert (result.code, result.error["type"]) == (5, "version_conflict")


def test_edit_without_anything_to_change_is_refused_where_nobody_can_type(cli):
    memory_id = cli.remember("one")["id"]
    result = cli("edit", memory_id, "--json")
    assert (result.code, result.error["type"]) == (2, "bad_input")


def test_move_takes_a_memory_to_another_space(cli):
    receipt = cli.remember("one")
    moved = cli("move", receipt["id"], "team/backend", "--expected-version", "1", "--json").json
    assert (moved["space"], moved["version"]) == ("team/backend", 2)
    assert cli.ids("--space", "team/backend") == [receipt["id"]]
    assert cli("move", receipt["id"], "team", "--expected-version", "1").code == 5


def test_move_takes_the_file_along(cli, home):
    receipt = cli.remember("one")
    moved = cli("move", receipt["id"], "team/backend", "--json").json
    assert (home / moved["path"]).exists()
    assert not (home / receipt["path"]).exists()


def test_link_and_unlink(cli):
    one, two = cli.remember("one")["id"], cli.remember("two")["id"]
    assert cli("link", one[-8:], "related_to", two[-8:], "--json").json["version"] == 2
    (link,) = cli("show", one, "--json").json["links"]
    assert (link["source"], link["relation"], link["target"]) == (one, "related_to", two)
    assert cli("unlink", one, "related_to", two, "--json").json.keys() == RECEIPT
    assert cli("show", one, "--json").json["links"] == []
    assert cli("unlink", one, "related_to", two).code == 3


# --- delete


def test_delete_by_id_removes_several_and_a_dry_run_none(cli):
    one, two, three = (cli.remember(text)["id"] for text in ("one", "two", "three"))
    named = {"ids": [one, two], "titles": ["one", "two"]}
    assert cli("delete", one, "--dry-run", two[-8:], "--json").json == {**named, "dry_run": True}
    assert len(cli.ids()) == 3
    assert cli("delete", one, two, "--json").json == {**named, "dry_run": False}
    assert cli.ids() == [three]
    assert sorted(cli.ids("--deleted")) == sorted([one, two])


@pytest.mark.promise("undo.asks")
def test_delete_by_filter_needs_an_agreement(cli):
    one = cli.remember("one", "--tag", "old", "--kind", "fact")["id"]
    two = cli.remember("two")["id"]
    refused = cli("delete", "--tag", "old", "--json")
    assert (refused.code, refused.error["type"]) == (2, "bad_input")
    assert "--yes" in refused.error["fix"]
    assert cli("delete", "--tag", "old", "--kind", "fact", "--dry-run", "--json").json["ids"] == [one]
    assert len(cli.ids()) == 2
    deleted = cli("delete", "--tag", "old", "--yes", "--json").json
    assert deleted == {"ids": [one], "titles": ["one"], "dry_run": False}
    assert cli.ids() == [two]


def test_delete_refuses_ids_together_with_a_filter_and_neither_of_them(cli):
    one = cli.remember("one")["id"]
    assert cli("delete", one, "--tag", "x", "--yes").code == 2
    assert cli("delete", "--yes").code == 2
    assert cli.ids() == [one]


# --- list and history


def test_list_pages_through_all_spaces(cli):
    ids = [cli.remember(str(number), "--space", f"s{number % 2}")["id"] for number in range(5)]
    first = cli("list", "--limit", "2", "--json").json
    assert first.keys() == {"items", "next"}
    assert first["items"][0].keys() == MEMORY
    assert [item["id"] for item in first["items"]] == [ids[4], ids[3]]
    rest = cli("list", "--limit", "3", "--after", first["next"], "--json").json
    assert [item["id"] for item in rest["items"]] == [ids[2], ids[1], ids[0]]
    assert rest["next"] is None


def test_list_filters(cli):
    one = cli.remember("one", "--space", "team/a", "--tag", "x,y", "--kind", "fact")["id"]
    two = cli.remember("two", "--space", "team/b", "--tag", "x")["id"]
    three = cli.remember("three", "--space", "team")["id"]
    assert cli.ids("--space", "team") == [three]
    assert cli.ids("--space", "team/") == [three, two, one]
    assert cli.ids("--tag", "x") == [two, one]
    assert cli.ids("--tag", "x", "--tag", "y") == [one]
    assert cli.ids("--kind", "fact", "--kind", "decision") == [one]
    assert cli.ids("--since", "yesterday") == [three, two, one]
    assert cli.ids("--until", "yesterday") == []


def test_list_does_not_use_the_space_of_the_surroundings(cli, monkeypatch):
    cli.remember("one", "--space", "team")
    monkeypatch.setenv("COMMONBOOK_SPACE", "other")
    assert len(cli.ids()) == 1


def test_list_in_a_pipe_has_one_line_for_each_and_says_beside_it_that_there_is_more(cli):
    for number in range(3):
        cli.remember(f"memory {number}", "--tag", "a,b")
    result = cli("list", "--limit", "2")
    lines = [line.split("\t") for line in result.out.splitlines()]
    assert [line[4] for line in lines] == ["memory 2", "memory 1"]
    assert all(len(line) == 7 and line[5] == "a, b" for line in lines)
    assert "--after" in result.err


def test_history_shows_what_each_revision_changed(cli):
    receipt = cli.remember("Alice owns billing\nsince May", "--title", "Billing")
    cli("edit", receipt["id"], "Bob owns billing\nsince May")
    cli("edit", receipt["id"], "--title", "Who owns billing")
    history = cli("history", receipt["id"][-8:], "--json").json
    first, second, third = history
    assert first.keys() == set(Revision._fields)
    assert (first["current"], third["current"], second["author"]) == (False, True, "user:local")
    assert (second["text"], third["title"]) == ("Bob owns billing\nsince May", "Who owns billing")
    shown = cli("history", receipt["id"]).out
    assert "-Alice owns billing\n+Bob owns billing\n since May\n" in shown
    assert "--- revision 2: Billing\n+++ revision 3: Who owns billing\n" in shown
    assert "+Bob" not in cli("history", receipt["id"], "--no-diff").out


def test_history_ends_with_the_memory_that_superseded_it_and_why(cli):
    old, new = cli.remember("Alice owns billing")["id"], cli.remember("Bob owns billing")["id"]
    assert "superseded" not in cli("history", old).out
    assert cli("supersede", old, "--by", new, "--reason", "Alice left").code == 0
    last = cli("history", old).out.splitlines()[-1]
    assert last == f"superseded by {new}  Bob owns billing: Alice left"
    cli("reinstate", old)
    assert "superseded" not in cli("history", old).out


def test_a_deleted_memory_keeps_its_history(cli):
    memory_id = cli.remember("one")["id"]
    cli("delete", memory_id)
    assert cli("show", memory_id).code == 3
    assert cli("history", memory_id, "--json").json[0]["text"] == "one"


def test_a_deletion_names_the_title_can_be_undone_and_is_in_the_history(cli):
    memory_id = cli.remember("Alice owns billing\nsince May")["id"]
    deleted = cli("delete", memory_id)
    assert deleted.out == f"{memory_id}  Alice owns billing\n"
    assert "commonbook undelete" in deleted.err
    assert cli("undelete", memory_id[-8:], "--json").json.keys() == RECEIPT
    assert cli("undelete", memory_id).code == 0
    assert cli.ids() == [memory_id]
    (revision,) = cli("history", memory_id, "--json").json
    (deletion,) = revision["deletions"]
    assert deletion.keys() == {"at", "by", "how", "restored_at", "restored_by", "restored_how"}
    shown = cli("history", memory_id).out
    assert shown.index("deleted  ") < shown.index("undeleted  ")
    assert cli("undelete", "01900000-0000-7000-8000-000000000000").code == 3


def test_edit_goes_back_to_an_older_revision(cli):
    memory_id = cli.remember("one")["id"]
    cli("edit", memory_id, "two")
    assert cli("edit", memory_id, "--to-revision", "1", "--json").json["revision"] == 3
    assert cli("show", memory_id, "--json").json["text"] == "one"
    assert [one["text"] for one in cli("history", memory_id, "--json").json] == ["one", "two", "one"]
    assert cli("edit", memory_id, "--to-revision", "9").code == 3
    assert cli("edit", memory_id, "three", "--to-revision", "1").code == 2


def test_an_edit_by_hand_is_seen_by_the_next_command(cli, home):
    receipt = cli.remember("Alice owns billing")
    path = home / receipt["path"]
    path.write_text(path.read_text().replace("Alice", "Bob"))
    assert cli("show", receipt["id"], "--json").json["text"] == "Bob owns billing"
    assert cli("history", receipt["id"], "--json").json[1]["author"] == "user:filesystem"


def test_a_text_as_large_as_allowed_is_taken_from_standard_input(cli):
    result = cli("remember", "-", "--json", stdin=b"x" * MAX_TEXT_BYTES)
    assert result.code == 0
    assert len(cli("show", result.json["id"], "--json").json["text"]) == MAX_TEXT_BYTES


def test_undelete_takes_the_title_or_the_file_of_a_deleted_memory(cli):
    stored = cli.remember("Tabs are nice", "--title", "Tabs are nice")
    for name in ("tabs are nice", stored["path"], Path(stored["path"]).name, stored["id"][-8:]):
        cli("delete", "Tabs are nice")
        assert cli("undelete", name, "--json").json["id"] == stored["id"], name
        assert cli.ids() == [stored["id"]]
    other = cli.remember("Tabs are wide", "--title", "Tabs are nice", "--space", "team")["id"]
    cli("delete", stored["id"], other)
    several = cli("undelete", "Tabs are nice", "--json")
    assert (several.code, several.error["type"]) == (2, "ambiguous")
    assert stored["id"] in several.error["message"]
    unknown = cli("undelete", "Blanks are nice", "--json")
    assert (unknown.code, "list --deleted" in unknown.error["fix"]) == (3, True)


def test_show_says_of_the_title_of_a_deleted_memory_that_it_was_deleted(cli):
    stored = cli.remember("Tabs are nice", "--title", "Tabs are nice")
    cli("delete", stored["id"])
    for name in ("Tabs are nice", stored["id"][-8:]):
        shown = cli("show", name, "--json")
        assert (shown.code, "was deleted" in shown.error["message"]) == (3, True)
        assert f"undelete {stored['id']}" in shown.error["fix"]


def test_a_deleted_memory_of_a_space_that_one_may_not_read_is_not_found_by_its_title(cli):
    cli.remember("x", "--title", "Tabs are nice", "--space", "team")
    cli("delete", "Tabs are nice")
    cli("space", "create", "open")
    cli("grant", "add", "user:eve", "open", "admin")
    assert cli("undelete", "Tabs are nice", "--as", "user:eve").code == 3
    assert "was deleted" not in cli("show", "Tabs are nice", "--as", "user:eve", "--json").error["message"]


# --- help


@pytest.mark.parametrize(
    ("command", "words", "not_words"),
    [
        ("remember", "--space SPACE the space to write to;", "a final /"),
        ("recall", "/ alone means all that you may read", "to write to"),
        ("install", "--space SPACE a space that the agent may write to as well", "a final /"),
        ("edit", "--tag TAG these tags in place of all others", "--tag TAG a tag"),
    ],
)
def test_the_help_of_an_option_says_what_it_does_in_that_command(capsys, command, words, not_words):
    assert main([command, "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert words in shown
    assert not_words not in shown


def test_a_deleted_memory_is_named_as_such_and_its_history_is_found_by_its_title(cli):
    memory = cli.remember("Alice owns billing")["id"]
    cli("delete", memory)
    for name in (memory, memory[-8:]):
        refused = cli("show", name, "--json")
        assert (refused.code, refused.error["message"]) == (3, "the memory 'Alice owns billing' was deleted")
        assert f"`commonbook undelete {memory}`" in refused.error["fix"]
    (revision,) = cli("history", "alice owns billing", "--json").json
    assert revision["title"] == "Alice owns billing"
    unknown = cli("history", "no such title", "--json")
    assert (unknown.code, "--deleted" in unknown.error["fix"]) == (3, True)
    assert "was deleted" not in cli("show", "01a1eecc-8c8b-70c5-9e85-267a00dd70b4").err


@pytest.mark.promise("files.metadata")
def test_the_properties_of_a_note_are_shown_listed_recalled_and_edited(cli, tmp_path):
    (tmp_path / "vault").mkdir()
    (tmp_path / "vault" / "Tom Berger.md").write_text("---\nbirthday: 1980-03-16  # May\nteas: [mint, 3]\n---\nTom.\n")
    assert cli("import", str(tmp_path / "vault")).code == 0
    (tom,) = cli.ids("--meta", "birthday=1980-03-16")
    assert cli.ids("--meta", "teas=mint") == cli.ids("--meta", "teas=3") == [tom]
    shown = cli("show", tom).out
    assert "birthday=1980-03-16" in shown
    assert "teas=mint, 3" in shown
    assert cli("recall", "1980-03-16", "--json").json["hits"][0]["id"] == tom
    assert cli("edit", tom, "--meta", "birthday=2000-01-01").code == 0
    assert cli("show", tom, "--json").json["metadata"] == {"birthday": "2000-01-01", "teas": ["mint", 3]}
    assert cli("export", str(tmp_path / "out")).code == 0
    (file,) = (tmp_path / "out").rglob("Tom*.md")
    assert file.read_text().startswith("---\nbirthday: 2000-01-01\nteas: [mint, 3]\nid: ")
    refused = cli("edit", tom, "--meta", "type=x")
    assert (refused.code, "my_type" in refused.err) == (2, True)

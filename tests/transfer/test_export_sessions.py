"""Sessions are exported with every message, and an import brings them back, each message once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from commonbook.errors import KeyConflict
from commonbook.service.book import Book
from commonbook.values.memory import Filter
from commonbook.values.session import NewMessage, Session
from tests.support.transfers import opened, texts

SPACES = ("personal", "team", "vault")


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Book]:
    """Another book, in a home of its own with keys of its own."""
    with opened(tmp_path / "other") as book:
        yield book


def all_sessions(book: Book) -> dict[tuple[str, str], Session]:
    return {(one.space.name, one.id): one for one in book.sessions(limit=1000)}


def log_of(book: Book, session: str, space: str) -> list[tuple[Any, ...]]:
    """Return the messages of a session, with everything but the book's own ids of episodes that were deleted."""
    page = book.messages(session, space=space, limit=1000)
    return [tuple(message) for message in page.items]


def about(session: Session) -> tuple[Any, ...]:
    return (
        session.tags,
        session.created,
        session.closed,
        session.parent,
        session.parent_space,
        session.last,
        session.unsettled,
    )


def same(one: Book, other: Book) -> None:
    """Assert that two books have the same sessions, with the same messages."""
    assert all_sessions(one).keys() == all_sessions(other).keys()
    for (space, name), session in all_sessions(one).items():
        assert about(session) == about(all_sessions(other)[space, name]), (space, name)
        assert log_of(one, name, space) == log_of(other, name, space), (space, name)


def fill(book: Book) -> None:
    """Make sessions in every state that a session or a message can be in."""
    book.append(
        "open", [NewMessage("the heron nests", client_id="c1"), "the otter swims"], space="team", tags=["birds"]
    )
    book.append("half", ["the walrus sleeps"], space="team")
    book.settle("half", space="team")
    book.append("half", [NewMessage("### not a heading\n\n\\", role="tool", author="agent:\u00fc %0A; ")], space="team")
    book.append("rewound", ["kept", "taken back", NewMessage("taken back too", client_id="c9")], space="team")
    book.settle("rewound", space="team")
    book.append("rewound", ["never settled, taken back"], space="team")
    book.rewind("rewound", 1, space="team")
    book.append("rewound", ["said again"], space="team")
    book.append("moved", ["the crane calls"], space="team")
    (episode,) = book.settle("moved", space="team").episodes
    book.move(episode, "vault")
    book.append("gone", ["the swan hides"], space="team")
    book.delete(book.settle("gone", space="team").episodes[0])
    book.append("before", ["it begins"], space="vault")
    book.switch("before", "after", space="vault", to_space="team")
    book.append("after", ["it goes on"], space="team")
    book.append("child", [f"use sk-ant-api03-{'a' * 40} and go"], space="team", parent="after")
    book.close_session("half", space="team")
    book.append("open", ["another of that name"])


@pytest.mark.promise("export.sessions")
@pytest.mark.parametrize("name", ["out", "out.zip", "out.tar", "out.tgz"])
def test_every_session_comes_back_as_it_was(book: Book, other: Book, tmp_path: Path, name: str):
    fill(book)
    report = book.export(str(tmp_path / name))
    assert (report.sessions, report.skipped) == (len(all_sessions(book)), ())
    taken = other.import_folder(str(tmp_path / name))
    assert (taken.done, taken.skipped) == (report.done, ())
    assert taken.sessions == report.sessions
    same(book, other)
    for query in ("heron", "walrus", "otter", "it goes on"):
        assert [(hit.id, hit.session, hit.seq) for hit in other.recall(query, spaces="/").hits] == [
            (hit.id, hit.session, hit.seq) for hit in book.recall(query, spaces="/").hits
        ]
    moved = [(one.session, one.session_space) for one in other.list(Filter(space="vault", kinds=("episode",))).items]
    assert sorted(moved) == [("before", None), ("moved", "team")]
    assert other.doctor() == ()
    assert other.verify_log().ok


def test_what_comes_back_can_be_exported_and_imported_on_the_other_engine(book: Book, other: Book, tmp_path: Path):
    fill(other)
    other.export(str(tmp_path / "out"))
    assert book.import_folder(str(tmp_path / "out")).skipped == ()
    same(book, other)
    book.export(str(tmp_path / "again"))
    sessions = [path for path in texts(tmp_path / "out") if "_sessions" in path]
    assert len(sessions) == 9
    assert {path: texts(tmp_path / "again")[path] for path in sessions} == {
        path: texts(tmp_path / "out")[path] for path in sessions
    }


@pytest.mark.promise("export.sessions")
def test_an_import_that_is_repeated_changes_nothing(book: Book, other: Book, tmp_path: Path):
    fill(book)
    book.export(str(tmp_path / "out"))
    for target in (other, book):
        if target is other:
            target.import_folder(str(tmp_path / "out"))
        before = {key: log_of(target, key[1], key[0]) for key in all_sessions(target)}
        logs = {space: target.log(space=space, limit=1000) for space in SPACES}
        again = target.import_folder(str(tmp_path / "out"))
        assert (again.sessions, again.messages, again.done, again.skipped) == (0, 0, 0, ())
        assert {key: log_of(target, key[1], key[0]) for key in all_sessions(target)} == before
        assert {space: target.log(space=space, limit=1000) for space in SPACES} == logs


@pytest.mark.promise("export.sessions")
def test_sessions_go_on_after_an_import(book: Book, other: Book, tmp_path: Path):
    fill(book)
    book.export(str(tmp_path / "out"))
    other.import_folder(str(tmp_path / "out"))
    (repeat,) = other.append("open", [NewMessage("the heron nests", client_id="c1")], space="team").messages
    assert (repeat.new, repeat.seq) == (False, 1)
    (repeat,) = other.append("rewound", [NewMessage("taken back too", client_id="c9")], space="team").messages
    assert (repeat.new, repeat.rewound) == (False, True)
    with pytest.raises(KeyConflict):
        other.append("open", [NewMessage("the heron flies", client_id="c1")], space="team")
    assert other.append("open", ["and on"], space="team").messages[0].seq == 3
    (episode,) = other.settle("open", space="team").episodes
    assert all(word in other.get(episode).text for word in ("heron", "otter", "and on"))
    other.rewind("half", 0, space="team")
    assert "walrus" not in str(other.list(Filter(space="team")).items)


@pytest.mark.promise("export.sessions")
def test_a_message_that_was_edited_before_its_export_is_known_again_by_its_client_id(
    book: Book, other: Book, tmp_path: Path
):
    sent = [NewMessage("the heron nests", client_id="c1"), NewMessage("the otter swims", client_id="c2")]
    book.append("s", sent, space="team")
    (episode,) = book.settle("s", space="team").episodes
    book.edit(episode, text=book.get(episode).text.replace("heron", "crane"))
    first = book.append("s", sent, space="team")
    book.export(str(tmp_path / "out"))
    other.import_folder(str(tmp_path / "out"))
    with opened(tmp_path / "third") as third:
        other.export(str(tmp_path / "again"))
        third.import_folder(str(tmp_path / "again"))
        for imported in (other, third):
            assert imported.append("s", sent, space="team") == first
            with pytest.raises(KeyConflict):
                imported.append("s", [NewMessage("the otter dives", client_id="c2")], space="team")
            assert len(imported.messages("s", space="team").items) == 2


def test_a_repeat_of_a_masked_message_is_recognised_after_an_import(book: Book, other: Book, tmp_path: Path):
    sent = NewMessage(f"use sk-ant-api03-{'a' * 40} and go", client_id="c1")
    book.append("s", [sent])
    book.export(str(tmp_path / "out"))
    other.import_folder(str(tmp_path / "out"))
    assert other.append("s", [sent]).messages[0].new is False


@pytest.mark.promise("export.existing")
def test_an_import_changes_no_session_that_exists_and_names_what_it_leaves_out(book: Book, other: Book, tmp_path: Path):
    book.append("s", ["the heron nests", "the otter swims"], space="team")
    book.export(str(tmp_path / "old"))
    other.import_folder(str(tmp_path / "old"))
    book.append("s", ["the walrus sleeps"], space="team")
    book.append("t", ["the crane calls"], space="team")
    book.export(str(tmp_path / "new"))
    other.append("t", ["the goose gaggles"], space="team")
    before = {name: log_of(other, name, "team") for name in ("s", "t")}
    report = other.import_folder(str(tmp_path / "new"))
    assert (report.sessions, report.messages) == (0, 0)
    assert {name: log_of(other, name, "team") for name in ("s", "t")} == before
    whys = sorted(finding.why for finding in report.skipped)
    assert [why.rpartition(": ")[2] for why in whys] == [
        "not imported are the message 1 of t",
        "not imported are the message 3 of s",
    ]
    assert all("changes no session" in why for why in whys)


def test_a_book_keeps_each_message_once_whatever_space_it_is_imported_into(book: Book, tmp_path: Path):
    book.append("s", ["the heron nests"], space="team")
    book.export(str(tmp_path / "out"))
    report = book.import_folder(str(tmp_path / "out"), space="zoo")
    assert (report.sessions, len(report.skipped)) == (0, 1)
    assert "in other sessions here" in report.skipped[0].why
    assert list(all_sessions(book)) == [("team", "s")]
    assert "zoo/team" not in [space.name for space in book.spaces()]


def test_sessions_are_imported_below_a_space(book: Book, other: Book, tmp_path: Path):
    fill(book)
    book.export(str(tmp_path / "out"))
    assert other.import_folder(str(tmp_path / "out"), space="zoo").skipped == ()
    assert all_sessions(other).keys() == {(f"zoo/{space}", name) for space, name in all_sessions(book)}
    after = all_sessions(other)["zoo/team", "after"]
    assert (after.parent, after.parent_space) == ("before", "zoo/vault")


@pytest.mark.promise("export.spaces")
def test_of_two_sessions_of_one_name_that_come_into_one_space_the_second_is_skipped(
    book: Book, other: Book, tmp_path: Path
):
    fill(book)
    book.export(str(tmp_path / "out"))
    for file in (tmp_path / "out").rglob(".space.toml"):
        # As a copy that leaves hidden files out.
        file.unlink()
    for _ in range(2):
        (skipped,) = other.import_folder(str(tmp_path / "out"), space="zoo").skipped
        assert skipped.where.startswith("team/_sessions/open--")
        assert "the session exists here" in skipped.why
        assert "the messages 1, 2 of open" in skipped.why
    assert all_sessions(other).keys() == {("zoo", name) for _, name in all_sessions(book)}
    assert [one.text for one in other.messages("open", space="zoo").items] == ["another of that name"]
    after = all_sessions(other)["zoo", "after"]
    assert (after.parent, after.parent_space) == ("before", "zoo")


@pytest.mark.promise("export.spaces")
def test_sessions_and_their_parents_are_found_in_spaces_that_were_renamed(book: Book, other: Book, tmp_path: Path):
    book.append("before", ["it begins"], space="vault")
    book.switch("before", "after", space="vault", to_space="team")
    book.append("after", ["it goes on"], space="team")
    book.append("mine", ["the heron nests"], space="personal")
    book.export(str(tmp_path / "out"))
    report = other.import_folder(str(tmp_path / "out"))
    assert (report.skipped, set(report.spaces)) == ((), {"personal", "team", "vault"})
    exported = {space.name: space.id for space in book.spaces() if space.name in report.spaces}
    assert {space.name: space.id for space in other.spaces()}.items() >= exported.items()
    other.rename_space("vault", "safe")
    other.rename_space("team", "crew")
    book.switch("after", "later", space="team", to_space="vault")
    book.append("later", ["it ends"], space="vault")
    book.export(str(tmp_path / "again"))
    assert other.import_folder(str(tmp_path / "again")).skipped == ()
    later = all_sessions(other)["safe", "later"]
    assert (later.parent, later.parent_space) == ("after", "crew")


@pytest.mark.promise("export.spaces")
def test_parents_are_found_when_the_folder_of_a_space_becomes_another_space(book: Book, other: Book, tmp_path: Path):
    book.append("before", ["it begins"], space="team/a")
    book.switch("before", "after", space="team/a", to_space="team")
    book.append("after", ["it goes on"], space="team")
    book.export(str(tmp_path / "out"))
    assert other.import_folder(str(tmp_path / "out" / "team"), space="crew").skipped == ()
    after = all_sessions(other)["crew", "after"]
    assert (after.parent, after.parent_space) == ("before", "crew/a")


def test_a_space_alone_is_exported_with_the_words_that_its_episodes_lack(book: Book, other: Book, tmp_path: Path):
    fill(book)
    book.export(str(tmp_path / "out"), space="team")
    report = other.import_folder(str(tmp_path / "out"))
    assert [finding.where.rpartition("--")[0] for finding in report.skipped] == ["team/_sessions/after"]
    assert "the parent before of after is in the space vault" in report.skipped[0].why
    assert set(all_sessions(other)) == {key for key in all_sessions(book) if key[0] == "team"}
    for name in ("open", "half", "rewound", "moved", "gone", "after", "child"):
        assert log_of(other, name, "team") == log_of(book, name, "team")


def test_words_are_exported_once(book: Book, tmp_path: Path):
    book.append("s", ["the heron nests", "the otter swims"], space="team")
    book.settle("s", space="team")
    book.append("s", ["the walrus sleeps"], space="team")
    assert book.export(str(tmp_path / "out")).messages == 1
    whole = b"".join(texts(tmp_path / "out").values())
    assert [whole.count(word) for word in (b"otter swims", b"walrus sleeps")] == [1, 1]


def test_a_long_session_has_several_files(book: Book, other: Book, tmp_path: Path):
    book.append("long", [f"{number} " + "x" * 300_000 for number in range(9)], space="team")
    book.export(str(tmp_path / "out"))
    files = sorted((tmp_path / "out" / "team" / "_sessions").iterdir())
    assert len(files) == 3
    assert other.import_folder(str(tmp_path / "out")).messages == 9
    same(book, other)
    with ExitStack() as stack:
        third = stack.enter_context(opened(tmp_path / "third"))
        files[-1].unlink()
        report = third.import_folder(str(tmp_path / "out"))
        assert (report.sessions, [finding.what for finding in report.skipped]) == (0, ["not imported"])
        assert "of its 9 messages" in report.skipped[0].why


@pytest.mark.promise("export.existing")
def test_an_episode_that_is_missing_is_named(book: Book, other: Book, tmp_path: Path):
    book.append("s", ["the heron nests"], space="team")
    (episode,) = book.settle("s", space="team").episodes
    book.append("s", ["the otter swims"], space="team")
    book.export(str(tmp_path / "out"))
    (tmp_path / "out" / book.get(episode).path).unlink()
    report = other.import_folder(str(tmp_path / "out"))
    assert [(one.seq, one.text) for one in other.messages("s").items] == [(2, "the otter swims")]
    assert "the message 1 of s" in report.skipped[0].why


SPOILT = {
    "no json": ('created: "', "created: "),
    "a number twice": ("- [2,", "- [1,"),
    "a leap": ("- [2,", "- [99999999,"),
    "a line less": ("\nmessages: 2", "\nmessages: 3"),
    "another message": (" \u00b7 2 \u00b7 ", " \u00b7 3 \u00b7 "),
    "an odd name": ('commonbook_session: "s"', 'commonbook_session: "s s"'),
    "an odd role": ("(user)", "(USER)"),
    "an odd field": ("part: 1", "part: 1\nodd"),
}  # fmt: skip


@pytest.mark.parametrize("case", SPOILT)
def test_a_file_of_a_session_that_is_spoilt_is_named_and_changes_nothing(
    book: Book, other: Book, tmp_path: Path, case: str
):
    book.append("s", ["the heron nests", "the otter swims"], space="team")
    book.append("t", ["the walrus sleeps"], space="team")
    book.export(str(tmp_path / "out"))
    (file,) = (tmp_path / "out" / "team" / "_sessions").glob("s--*.md")
    old, new = SPOILT[case]
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new, 1), encoding="utf-8")
    report = other.import_folder(str(tmp_path / "out"))
    assert [finding.where for finding in report.skipped] == [f"team/_sessions/{file.name}"]
    assert list(all_sessions(other)) == [("team", "t")]


def test_a_file_of_a_session_with_other_line_ends_is_read(book: Book, other: Book, tmp_path: Path):
    book.append("s", ["the heron nests", "the otter\nswims"], space="team")
    book.export(str(tmp_path / "out"))
    (file,) = (tmp_path / "out" / "team" / "_sessions").iterdir()
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes().replace(b"\n", b"\r\n"))
    assert other.import_folder(str(tmp_path / "out")).skipped == ()
    same(book, other)


def test_an_import_masks_secrets_in_the_file_of_a_session(book: Book, other: Book, tmp_path: Path):
    book.append("s", ["the heron nests"], space="team")
    book.export(str(tmp_path / "out"))
    (file,) = (tmp_path / "out" / "team" / "_sessions").iterdir()
    secret = f"sk-ant-api03-{'a' * 40}"
    file.write_text(file.read_text(encoding="utf-8").replace("the heron nests", f"use {secret}"), encoding="utf-8")
    other.import_folder(str(tmp_path / "out"))
    (message,) = other.messages("s").items
    assert (secret in message.text, message.masked) == (False, 1)


def test_the_file_of_a_session_claims_no_memory_that_is_none_of_its_episodes(book: Book, tmp_path: Path, other: Book):
    book.append("s", ["the heron nests"], space="team")
    book.export(str(tmp_path / "out"))
    (file,) = (tmp_path / "out" / "team" / "_sessions").iterdir()
    note = other.remember("a note", space="team").id
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace(", {}]", f', {{"episode": "{note}"}}]'), encoding="utf-8")
    other.import_folder(str(tmp_path / "out"))
    assert [one.episode for one in other.messages("s").items] == [None]
    assert other.get(note).session is None


def test_a_dry_run_tells_which_sessions_would_come(book: Book, other: Book, tmp_path: Path):
    fill(book)
    book.export(str(tmp_path / "out"))
    tried = other.import_folder(str(tmp_path / "out"), dry_run=True)
    assert all_sessions(other) == {}
    done = other.import_folder(str(tmp_path / "out"))
    assert (tried.sessions, tried.messages, tried.skipped) == (done.sessions, done.messages, done.skipped)


@pytest.mark.promise("export.left-out")
def test_an_export_names_what_it_leaves_out(book: Book, tmp_path: Path):
    note = book.remember("one", space="team").id
    assert book.export(str(tmp_path / "out")).left_out == ("the signed log",)
    book.edit(note, text="two")
    book.edit(note, text="three")
    book.delete(book.remember("gone", space="team").id)
    book.grant("user:bob", "team", "reader")
    book.add_rule("vault", "team")
    book.create_key("user:bob")
    book.set_limit("write", 5, principal="user:bob")
    left_out = ("2 past revisions", "1 deleted memory", "1 grant")
    assert book.export(str(tmp_path / "out"), space="team").left_out == (*left_out, "the signed log")
    others = ("1 empty space", "1 grant", "1 sharing rule", "1 API key", "1 rate limit")
    assert book.export(str(tmp_path / "all")).left_out == (*left_out[:2], *others, "the signed log")


def test_a_message_that_was_edited_in_its_episode_comes_back_with_its_present_words(
    book: Book, other: Book, tmp_path: Path
):
    book.append("s", ["the heron nests", "the otter swims"], space="team")
    (episode,) = book.settle("s", space="team").episodes
    book.edit(episode, text=book.get(episode).text.replace("the otter swims", "the otter dives"))
    assert "1 earlier text of a message" in book.export(str(tmp_path / "out")).left_out
    other.import_folder(str(tmp_path / "out"))
    assert [one.text for one in other.messages("s").items] == ["the heron nests", "the otter dives"]


@pytest.mark.promise("export.left-out")
def test_a_bundle_names_the_messages_that_it_leaves_out(book: Book, tmp_path: Path):
    book.append("s", ["the heron nests", "the otter swims"], space="team")
    book.append("t", ["the walrus sleeps"], space="team")
    book.settle("t", space="team")
    report = book.export(str(tmp_path / "out"), okf=True)
    assert [(finding.where, "2 messages of 1 sessions" in finding.why) for finding in report.skipped] == [
        ("team", True)
    ]
    assert not (tmp_path / "out" / "team" / "_sessions").exists()


@pytest.mark.promise("export.sessions")
def test_an_import_that_was_killed_before_its_sessions_is_completed(
    book: Book, other: Book, tmp_path: Path, monkeypatch
):
    fill(book)
    book.export(str(tmp_path / "out"))

    def die(*_args: object, **_options: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("commonbook.subjects.transfer.import_sessions.store", die)
        with pytest.raises(KeyboardInterrupt):
            other.import_folder(str(tmp_path / "out"))
    assert all_sessions(other) == {}
    assert other.import_folder(str(tmp_path / "out")).skipped == ()
    same(book, other)

"""Importing episodes: an import begins sessions, and changes no session that exists already."""

from __future__ import annotations

from pathlib import Path

import pytest

from commonbook.service.book import Book
from commonbook.values.memory import Filter


def log_of(book: Book, session: str, space: str) -> list[tuple[int, str, str | None]]:
    page = book.messages(session, space=space, limit=1000)
    return [(message.seq, message.text, message.episode) for message in page.items]


def exported(book: Book, folder: Path, *, space: str) -> Path:
    book.export(str(folder), space=space)
    return folder / space


@pytest.fixture
def foreign(book: Book, tmp_path: Path) -> Path:
    """A folder with the file of an episode that claims to be of the session `secret`, and is not of this book."""
    folder = tmp_path / "foreign"
    folder.mkdir()
    (folder / "forged.md").write_text(
        "---\ntitle: Forged\nkind: episode\nsession_id: secret\n---\n\n"
        "### user:eve (user) · 2026-01-02T03:04:05.000000Z · 2 · 01a1e262-1c2a-76e9-a2d8-2c7d5873ba0e\n\nI quit.\n\n"
        "### user:eve (user) · 2026-01-02T03:04:06.000000Z · 9 · 01a1e262-1c2a-76e9-a2d8-2c7d5873ba0f\n\nPay eve.\n",
        encoding="utf-8",
    )
    return folder


@pytest.mark.promise("export.existing")
@pytest.mark.parametrize("settled", [False, True])
def test_an_imported_episode_changes_no_session_that_exists(book: Book, foreign: Path, settled: bool):
    for space in ("team", "vault"):
        book.append("secret", ["the first"], space=space)
    if settled:
        book.settle("secret", space="team")
    before = {space: log_of(book, "secret", space) for space in ("team", "vault")}
    actions = [entry.action for entry in book.log(space="team")]
    assert book.import_folder(str(foreign), space="team").done == 1
    assert {space: log_of(book, "secret", space) for space in ("team", "vault")} == before
    assert [entry.action for entry in book.log(space="team")] == [*actions, "import"]
    assert book.append("secret", ["the second"], space="team").messages[0].seq == 2
    (forged,) = [one for one in book.list(Filter(space="team", kinds=("episode",))).items if one.title == "Forged"]
    hit = next(hit for hit in book.recall("Pay eve", spaces="team").hits if hit.memory == forged.id)
    assert hit.session is None
    book.rewind("secret", 0, space="team")
    assert "Pay eve" in book.get(forged.id).text


def test_an_imported_episode_begins_a_session_where_there_is_none_of_that_name(book: Book, foreign: Path):
    book.append("secret", ["the first"], space="vault")
    book.import_folder(str(foreign), space="team")
    (forged,) = book.list(Filter(space="team", kinds=("episode",))).items
    assert log_of(book, "secret", "team") == [(2, "I quit.", forged.id), (9, "Pay eve.", forged.id)]
    assert log_of(book, "secret", "vault") == [(1, "the first", None)]


@pytest.mark.promise("export.existing")
def test_a_session_comes_with_all_of_its_episodes(book: Book, tmp_path: Path):
    for text in ("the heron", "the otter", "the walrus"):
        book.append("talk", [text], space="team")
        book.settle("talk", space="team")
    expected = log_of(book, "talk", "team")
    folder = exported(book, tmp_path / "out", space="team")
    for file in folder.rglob("*.md"):
        # Another book's messages: these have ids that are not known here.
        file.write_text(file.read_text(encoding="utf-8").replace("01a1", "01a0"), encoding="utf-8")
    assert book.import_folder(str(folder), space="zoo").done == 3
    assert [(seq, text) for seq, text, _ in log_of(book, "talk", "zoo")] == [(seq, text) for seq, text, _ in expected]
    assert log_of(book, "talk", "team") == expected


def test_messages_that_are_known_are_not_stored_again(book: Book, tmp_path: Path):
    book.append("talk", ["the heron"], space="team")
    book.settle("talk", space="team")
    folder = exported(book, tmp_path / "out", space="team")
    for file in folder.rglob("*.md"):
        file.write_text(file.read_text(encoding="utf-8").replace("\nid: ", "\nwas: ", 1), encoding="utf-8")
    assert book.import_folder(str(folder), space="zoo").done == 1
    assert [(one.id, one.space.name) for one in book.sessions()] == [("talk", "team")]


def test_an_episode_that_was_moved_away_from_its_session_claims_none_when_it_is_imported(book: Book, tmp_path: Path):
    book.append("talk", ["the heron"], space="team")
    (episode,) = book.settle("talk", space="team").episodes
    book.move(episode, "vault")
    folder = exported(book, tmp_path / "out", space="vault")
    (file,) = folder.rglob("*.md")
    assert "session_space: team\n" in file.read_text(encoding="utf-8")
    file.write_text(file.read_text(encoding="utf-8").replace("01a1", "01a0"), encoding="utf-8")
    before = log_of(book, "talk", "team")
    book.import_folder(str(folder), space="zoo")
    (imported,) = book.list(Filter(space="zoo", kinds=("episode",))).items
    assert (imported.session, imported.session_space) == (None, None)
    assert log_of(book, "talk", "team") == before
    assert [(one.id, one.space.name) for one in book.sessions()] == [("talk", "team")]

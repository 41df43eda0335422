"""Recall and the folder: hand edits show, and what only serves search can be made again."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

import pytest

import commonbook
from commonbook.core.markdown.transcript import TranscriptMessage, render
from commonbook.service.book import Book
from commonbook.values.hit import Hit
from commonbook.values.memory import Draft
from commonbook.values.recall import RecallResult
from tests.conftest import OpenBook
from tests.support.best_of import takes_less_than
from tests.support.hand_edits import change


def ids(found: RecallResult) -> list[str]:
    return [hit.id for hit in found.hits]


# --- what people do to the files


class Edited:
    """A memory whose file a person has edited in every field, and another that it is linked to."""

    def __init__(self, book: Book, home: Path, *, before: Callable[[], None] = lambda: None) -> None:
        self.old = book.remember("The heron is old")
        self.receipt = book.remember("The walrus swims", title="Bathing", tags=["a"], valid_until="2031-01-01")
        book.reindex()
        before()
        path = home / self.receipt.path
        text = path.read_text()
        for old, new in (
            ("\nThe walrus swims\n", "\nThe otter dives\n"),
            ("title: Bathing", "title: Sunday outing"),
            ("tags: [a]", "tags: [b, c]"),
            ("type: note", "type: decision"),
            ("valid_until: ", "occurred: 2020-02-03\nvalid_from: 2020-01-01\nvalid_until: 2025-01-01 # was "),
            ("\n---\n\n", f"\nlinks:\n  - supersedes {self.old.id}\n---\n\n"),
        ):
            assert old in text, old
            text = text.replace(old, new)
        path.write_text(text)

    def shows(self, book: Book) -> bool:
        """Tell whether the text is the new one; then everything else must be."""
        id_ = self.receipt.id
        if ids(book.recall("otter")) != [id_]:
            return False
        hit = book.recall("otter").hits[0]
        assert (hit.text, hit.title, hit.tags, hit.kind) == ("The otter dives", "Sunday outing", ("b", "c"), "decision")
        assert book.recall("walrus").hits == ()
        assert ids(book.recall("Sunday outing")) == [id_]
        assert book.recall("bathing", min_confidence=0.3).hits == ()
        assert ids(book.recall("otter", tags=["c"], kinds=["decision"])) == [id_]
        assert book.recall("otter", tags=["a"]).hits == book.recall("otter", kinds=["note"]).hits == ()
        assert ids(book.recall("otter", since="2020-02-03", until="2020-02-03")) == [id_]
        assert book.recall("otter", as_of="2019-06-01").hits == book.recall("otter", as_of="2026-06-01").hits == ()
        assert ids(book.recall("otter", as_of="2024-06-01")) == [id_]
        assert book.recall("heron", min_confidence=0.3).hits == ()
        assert book.recall("heron", include=["superseded"]).hits[0].superseded_by == id_
        return True


def test_hand_edits_of_every_field_show_in_recall_at_the_next_opening(book, home: Path, open_book: OpenBook):
    edited = Edited(book, home, before=book.close)
    assert edited.shows(open_book())


@pytest.mark.promise("files.edits")
def test_hand_edits_show_in_recall_within_two_seconds_while_somebody_watches(book: Book, home: Path):
    (home / "personal").mkdir(exist_ok=True)
    with book.watching(lambda _report: None):
        # The first look of a watcher may itself take a moment: one edit shows that it watches.
        _seconds_until_recalled(book, home, "pelican")
        words = iter(f"invoice{number}" for number in range(20))
        takes_less_than(2, lambda: _seconds_until_recalled(book, home, next(words)))
        edited = Edited(book, home)
        begun = time.monotonic()
        while not edited.shows(book):
            assert time.monotonic() - begun < 60
            time.sleep(0.02)


def _seconds_until_recalled(book: Book, home: Path, word: str) -> float:
    (home / "personal" / f"{word}.md").write_text(f"The {word} was noted\n")
    begun = time.monotonic()
    while not any(word in hit.text for hit in book.recall(word).hits):
        assert time.monotonic() - begun < 60
        time.sleep(0.02)
    return time.monotonic() - begun


def test_a_file_that_does_not_parse_is_recalled_as_last_read_and_marked(book: Book, home: Path):
    receipt = book.remember("The walrus swims")
    written = (home / receipt.path).read_text()
    (home / receipt.path).write_text(written.replace("id:", "id: [", 1).replace("walrus", "otter"))
    book.sync()
    for query in ("walrus", ""):
        assert [(hit.text, hit.marks) for hit in book.recall(query).hits] == [("The walrus swims", ("malformed",))]
    (home / receipt.path).write_text(written.replace("walrus swims", "otter dives"))
    book.sync()
    assert [(hit.text, hit.marks) for hit in book.recall("otter").hits] == [("The otter dives", ())]


def test_new_moved_and_removed_files_show_in_recall(book: Book, home: Path):
    receipt = book.remember("The walrus swims", space="a")
    book.reindex()
    book.create_space("b")
    (home / "b" / "new.md").write_text("An otter dives\n")
    (home / receipt.path).rename(home / "b" / "moved.md")
    book.sync()
    assert book.recall("walrus", spaces="a").hits == ()
    assert ids(book.recall("walrus", spaces="b")) == [receipt.id]
    assert [hit.text for hit in book.recall("otter", spaces="b").hits] == ["An otter dives"]
    for name in ("moved.md", "new.md"):
        (home / "b" / name).unlink()
    book.sync()
    book.sync()
    assert book.recall("walrus otter", spaces="b", min_confidence=0).hits == ()


def test_an_edited_line_of_a_transcript_changes_what_its_message_says(book: Book, home: Path):
    when = datetime(2026, 5, 7, 10, tzinfo=UTC)
    talk = [
        TranscriptMessage(f"m{n}", n, "user:alice", "user", when, f"The {word}")
        for n, word in enumerate(("owl", "heron"))
    ]
    receipt = book.remember(render(talk), kind="episode", title="Talk")
    book.reindex()
    change(home / receipt.path, "The heron", "The walrus")
    book.sync()
    assert ids(book.recall("walrus"))[0] == "m1"
    assert [hit.passage for hit in book.recall("heron", min_confidence=0.3).hits] == []
    text = (home / receipt.path).read_text()
    (home / receipt.path).write_text(text[: text.rindex("### ")])
    book.sync()
    assert "m1" not in ids(book.recall("walrus", min_confidence=0))
    assert ids(book.recall("owl")) == ["m0"]


# --- thrown away and made again

Answer: TypeAlias = tuple[str, tuple[Hit, ...], tuple[str, ...], tuple[str, ...]]
"""A question, and everything of its answer but the time that it took."""


def fill(book: Book, *, many: int = 60) -> None:
    """Write a book with something of everything, and its index."""
    words = ("walrus", "otter", "heron", "billing", "invoice", "Alice", "garden", "server")
    drafts = [
        Draft(
            text=f"The {words[n % 8]} and the {words[n % 5]} met {words[n % 3]} number {n % 11}.",
            space=("personal", "team/a", "team/b")[n % 3],
            tags=(f"t{n % 4}",),
            kind=("note", "fact", "decision")[n % 3],
            occurred=f"20{10 + n % 15}-05-07",
        )
        for n in range(many)
    ]
    made = book.remember_many(drafts)
    when = datetime(2026, 5, 7, 10, tzinfo=UTC)
    talk = [
        TranscriptMessage(
            f"0192f3a1-5c2e-7b1d-9a3f-4e6d7f3a9c{n:02x}", n, f"user:{who}", "user", when, f"The {words[n]} sleeps"
        )
        for n, who in enumerate(("alice", "bob", "alice", "carol"))
    ]
    book.remember(render(talk, introduction="A talk"), kind="episode", title="Talk")
    book.remember("\n\n".join(f"Part {n} is about the {words[n % 8]}. " + "filler " * 60 for n in range(12)), title="L")
    book.remember("The walrus is retired", replaces=made[0].id, valid_from="2020-01-01")
    book.remember("The walrus is gone", expires="2020-01-01")
    book.edit(made[3].id, text="The walrus edited this billing line")
    book.move(made[4].id, "team/a")
    book.reindex()
    book.delete(made[6].id, made[7].id)
    book.edit(made[8].id, text="The server edited this after the index was written")


def answers(book: Book) -> list[Answer]:
    """Ask many questions, and return everything of the answers but the time that they took."""
    questions: list[tuple[str, dict[str, Any]]] = [
        ("walrus", {}),
        ("Where did the otter meet Alice?", {"spaces": ["team/", "personal"], "k": 50}),
        ("billing invoice number 7", {"spaces": "team/a", "explain": True}),
        ("What does Alice say about sleep?", {}),
        ("walrus", {"include": ["superseded", "expired"], "k": 100}),
        ("server", {"tags": ["t1"], "spaces": "team/"}),
        ("money matters", {"min_confidence": 0, "k": 30}),
        ("heron in May 2015", {"kinds": ["fact", "decision"], "spaces": "team/"}),
        ("walrus", {"as_of": "2021-01-01"}),
        ("", {"k": 100, "spaces": ["team/", "personal"]}),
        ("nothing like it", {}),
    ]
    found: list[Answer] = []
    for query, more in questions:
        recalled = book.recall(query, **more)
        found.append((query, recalled.hits, tuple(recalled.steps), recalled.notes))
    assert sum(len(hits) for _, hits, _, _ in found) > 80
    return found


WIPED = ("DELETE FROM memory_tag", "DELETE FROM link", "DELETE FROM file", "UPDATE memory SET digest = ''")


def wipe(home: Path, *statements: str) -> None:
    with sqlite3.connect(home / ".commonbook" / "state.db") as state:
        for statement in statements:
            state.execute(statement)
    state.close()


def test_a_lost_index_is_made_again_and_gives_the_same_answers(book: Book, home: Path, open_book: OpenBook):
    fill(book, many=140)
    before = answers(book)
    shutil.rmtree(home / ".commonbook" / "index")
    assert answers(book) == before
    assert answers(open_book()) == before
    shutil.rmtree(home / ".commonbook" / "index")
    assert answers(open_book()) == before
    book.reindex()
    assert answers(book) == before


@pytest.mark.promise("derived.rebuild")
def test_what_rebuild_makes_can_be_thrown_away_and_every_id_score_and_answer_is_the_same(book: Book, home: Path):
    fill(book)
    before = answers(book)
    book.close()
    wipe(home, *WIPED)
    shutil.rmtree(home / ".commonbook" / "index")
    with commonbook.open(home) as again:
        again.rebuild()
        assert answers(again) == before
        assert again.doctor() == ()
    with commonbook.open(home) as later:
        assert answers(later) == before


def test_derived_tables_thrown_away_beside_a_whole_index_come_back_by_rebuild(book: Book, home: Path):
    fill(book)
    before = answers(book)
    book.close()
    wipe(home, *WIPED)
    with commonbook.open(home) as again:
        again.rebuild()
        assert answers(again) == before


@pytest.mark.parametrize("harm", ["cut", "emptied", "garbled", "manifest", "manifest gone", "segment gone", "foreign"])
def test_a_damaged_index_is_never_believed(book: Book, home: Path, harm):
    fill(book)
    before = answers(book)
    book.close()
    index = home / ".commonbook" / "index"
    segment, manifest = next(index.glob("*.segment")), index / "manifest.json"
    if harm == "cut":
        segment.write_bytes(segment.read_bytes()[:-100])
    elif harm == "emptied":
        segment.write_bytes(b"")
    elif harm == "garbled":
        segment.write_bytes(segment.read_bytes()[:200] + b"\xff" * 400 + segment.read_bytes()[600:])
    elif harm == "manifest":
        manifest.write_text('{"format": 1, "segments": [')
    elif harm == "foreign":
        manifest.write_text('{"format": 1, "segments": []}')
    elif harm == "manifest gone":
        manifest.unlink()
    else:
        segment.unlink()
    with commonbook.open(home) as again:
        assert answers(again) == before
        again.reindex(anew=True)
        assert answers(again) == before


def test_an_index_of_another_home_or_of_another_past_is_not_believed(book: Book, home: Path, tmp_path: Path):
    fill(book)
    book.reindex()
    before = answers(book)
    book.close()
    kept = tmp_path / "kept"
    shutil.copytree(home, kept)
    other = tmp_path / "other"
    with commonbook.open(other, create=True) as stranger:
        stranger.remember_many([Draft(text=f"The walrus of a stranger {n}") for n in range(140)])
        stranger.reindex()
    for_home = home / ".commonbook" / "index"
    shutil.rmtree(for_home)
    shutil.copytree(other / ".commonbook" / "index", for_home)
    with commonbook.open(home, create=True) as again:
        assert answers(again) == before
        # Now a past that the older copy of this home never had.
        again.remember_many([Draft(text=f"The walrus of later {n}") for n in range(140)])
        again.reindex()
    shutil.rmtree(kept / ".commonbook" / "index")
    shutil.copytree(for_home, kept / ".commonbook" / "index")
    with commonbook.open(kept, create=True) as older:
        assert answers(older) == before
        older.remember("The walrus of another future")
        assert len(older.recall("walrus of another future", k=1).hits) == 1
        assert all("of later" not in hit.text for hit in older.recall("walrus of later", k=50).hits)


WRITING = (
    "import sys, commonbook\n"
    "with commonbook.open(sys.argv[1], create=True) as book:\n"
    "    for n in range(60):\n"
    "        print(book.remember(f'The pelican {n} flies', space='beside').id, flush=True)\n"
)


@pytest.mark.promise("derived.rebuild")
@pytest.mark.slow
def test_rebuilding_while_another_process_writes_changes_no_answer_and_loses_nothing(book: Book, home: Path):
    fill(book, many=140)
    before = answers(book)
    rounds = 0
    with subprocess.Popen([sys.executable, "-c", WRITING, str(home)], stdout=subprocess.PIPE, text=True) as writer:
        while writer.poll() is None or rounds < 2:
            shutil.rmtree(home / ".commonbook" / "index", ignore_errors=True)
            book.rebuild()
            assert answers(book) == before
            rounds += 1
        assert writer.stdout
        beside = writer.stdout.read().split()
    assert writer.returncode == 0
    assert len(beside) == 60
    assert answers(book) == before
    found = ids(book.recall("pelican", spaces="beside", k=50))
    assert len(found) == 50
    assert set(found) <= set(beside)
    assert ids(book.recall("", spaces="beside", k=100)) == beside[::-1]


@pytest.mark.promise("lost.files")
def test_with_the_database_lost_opening_the_folder_gives_the_same_answers(book: Book, home: Path):
    fill(book)
    before = comparable(answers(book))
    book.close()
    for name in ("state.db", "state.db-wal", "state.db-shm"):
        (home / ".commonbook" / name).unlink(missing_ok=True)
    with commonbook.open(home) as again:
        assert comparable(answers(again)) == before


def test_importing_the_folder_into_another_home_gives_the_same_answers(book: Book, home: Path, tmp_path: Path):
    fill(book)
    before = comparable(answers(book))
    book.close()
    with commonbook.open(tmp_path / "other", create=True) as other:
        other.import_folder(str(home))
        assert comparable(answers(other)) == before


def comparable(found: list[Answer]) -> list[Answer]:
    """Return answers without what a file does not hold: how its text came about."""
    return [
        (query, tuple(hit._replace(path=None, revision=None) for hit in hits), steps, notes)
        for query, hits, steps, notes in found
    ]

"""A database that is lost, older than the files, or newer: copies and decisions say what is true of the words."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import commonbook
from commonbook.errors import VersionConflict
from commonbook.service.book import Book
from tests.support.lost_databases import keep_database, lose_database, put_database_back

FIRST, SECOND, OURS = "oil costs five", "oil costs seven", "oil is none of our business"


class World:
    """A source with a live and a snapshot copy, and a thought whose ground was superseded."""

    def __init__(self, book: Book) -> None:
        self.source = book.remember(FIRST, space="personal").id
        self.live = book.share(self.source, "team").id
        self.snapshot = book.share(self.source, "archive", refresh="snapshot").id
        self.ground = book.remember("milk costs one", space="personal").id
        self.thought = book.reflect("milk is cheap", [self.ground], space="personal").id
        self.newer = book.remember("milk costs three", space="personal", replaces=self.ground).id


def state(book: Book, *ids: str) -> list[tuple[str, str | None]]:
    return [(memory.text, memory.freshness) for memory in map(book.get, ids)]


def require_truth(book: Book) -> None:
    """A copy is fresh if and only if it says what its source says."""
    for memory in book.list(limit=1000).items:
        if memory.shared is not None and memory.freshness in ("fresh", "stale", "diverged"):
            source = book.get(memory.shared.source)
            is_same = (memory.title, memory.text) == (source.title, source.text)
            assert (memory.freshness == "fresh") == is_same, (memory, source)


# --- what happened before the database was lost, and what must be true after it


def edit_source(book: Book, world: World) -> None:
    book.edit(world.source, text=SECOND)


def source_was_edited(book: Book, world: World) -> None:
    assert state(book, world.source, world.live, world.snapshot) == [
        (SECOND, None),
        (SECOND, "fresh"),
        (FIRST, "stale"),
    ]


def edit_copy(book: Book, world: World) -> None:
    book.edit(world.live, text=OURS)


def copy_was_edited(book: Book, world: World) -> None:
    assert state(book, world.live, world.snapshot) == [(OURS, "diverged"), (FIRST, "fresh")]
    book.edit(world.source, text="a third text")
    assert state(book, world.live) == [(OURS, "diverged")], "what was written here is not overwritten"


def edit_both(book: Book, world: World) -> None:
    edit_copy(book, world)
    edit_source(book, world)


def both_were_edited(book: Book, world: World) -> None:
    assert state(book, world.live, world.snapshot) == [(OURS, "diverged"), (FIRST, "stale")]


def decide(book: Book, world: World) -> None:
    book.triage(world.thought, "keep", note="it still holds")


def it_was_decided(book: Book, world: World) -> None:
    thought = book.get(world.thought)
    assert "suspect" not in thought.marks
    assert [(one.verdict, one.invalidated, one.note) for one in thought.decisions] == [
        ("keep", world.ground, "it still holds")
    ]
    assert "it still holds" in (Path(book.home) / thought.path).read_text()


def make_copy(book: Book, world: World) -> None:
    book.share(world.source, "later")


def a_copy_was_made(book: Book, world: World) -> None:
    copy = book.share(world.source, "later")
    assert not copy.new
    book.edit(world.source, text="a third text")
    assert state(book, copy.id) == [("a third text", "fresh")]


def detach(book: Book, world: World) -> None:
    book.detach(world.live)


def it_was_detached(book: Book, world: World) -> None:
    assert state(book, world.live) == [(FIRST, "detached")]
    book.edit(world.source, text="a third text")
    assert state(book, world.live) == [(FIRST, "detached")]


def adopt(book: Book, world: World) -> None:
    edit_both(book, world)
    book.adopt(world.live)


def it_was_adopted(book: Book, world: World) -> None:
    assert state(book, world.live, world.snapshot) == [(SECOND, "fresh"), (FIRST, "stale")]
    book.edit(world.source, text="a third text")
    assert state(book, world.live) == [("a third text", "fresh")]


def set_mode(book: Book, world: World) -> None:
    book.set_refresh(world.live, "lazy")


def mode_was_set(book: Book, world: World) -> None:
    copy = book.get(world.live)
    assert (copy.shared and copy.shared.mode, copy.freshness) == ("lazy", "fresh")


def nothing_was_decided(book: Book, world: World) -> None:
    copy, thought = book.get(world.live), book.get(world.thought)
    assert (copy.shared and copy.shared.mode, copy.freshness) == ("live", "fresh")
    assert ("suspect" in thought.marks, thought.decisions) == (True, ())
    assert "it still holds" not in (Path(book.home) / thought.path).read_text(), "the line is put back"


def share_again(book: Book, world: World) -> None:
    book.unshare(world.live)
    world.live = book.share(world.source, "team").id


def it_was_shared_again(book: Book, world: World) -> None:
    assert state(book, world.live) == [(FIRST, "fresh")]
    book.edit(world.source, text="a third text")
    assert state(book, world.live) == [("a third text", "fresh")]
    assert not book.share(world.source, "team").new


def move_source(book: Book, world: World) -> None:
    """Move the source away, and share it into the space where it was: the file of the copy is read first."""
    book.unshare(world.live)
    book.move(world.source, "vault")
    world.live = book.share(world.source, "personal").id


def it_was_moved(book: Book, world: World) -> None:
    assert (book.get(world.source).space, book.get(world.live).space) == ("vault", "personal")
    assert state(book, world.live) == [(FIRST, "fresh")]
    book.edit(world.source, text="a third text")
    assert state(book, world.live) == [("a third text", "fresh")]


CASES = {
    "source edited": (edit_source, source_was_edited),
    "copy edited": (edit_copy, copy_was_edited),
    "both edited": (edit_both, both_were_edited),
    "decision made": (decide, it_was_decided),
    "copy made": (make_copy, a_copy_was_made),
    "detached": (detach, it_was_detached),
    "adopted": (adopt, it_was_adopted),
    "mode set": (set_mode, mode_was_set),
    "shared again": (share_again, it_was_shared_again),
    "source moved": (move_source, it_was_moved),
}

DECIDED_BY_THE_DATABASE = ("decision made", "detached", "mode set")
"""A database that has not seen these takes them back; without any database, the files tell them."""

FAULTS = ("lost", "older", "copied in use")


@pytest.mark.promise("lost.decisions", "lost.ties")
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("case", CASES)
def test_what_happened_is_still_true(home: Path, tmp_path: Path, fault: str, case: str):
    happen, then = CASES[case]
    with commonbook.open(home, create=True) as book:
        world = World(book)
        keep_database(home, tmp_path / "kept")
        happen(book, world)
        if fault == "copied in use":
            # A plain copy of a home in use has the database of one moment and the files of a later one.
            shutil.copytree(home, tmp_path / "copied")
    if fault == "copied in use":
        home = tmp_path / "copied"
    lose_database(home) if fault == "lost" else put_database_back(home, tmp_path / "kept")
    for _ in range(2):
        with commonbook.open(home, create=True) as book:
            require_truth(book)
    with commonbook.open(home, create=True) as book:
        book.adopt_all()
        if fault != "lost" and case in DECIDED_BY_THE_DATABASE:
            then = nothing_was_decided
        then(book, world)
        require_truth(book)
        book.rebuild()
        require_truth(book)
        assert book.doctor() == ()


@pytest.mark.parametrize("case", CASES)
def test_a_home_copied_in_use_with_files_older_than_the_database_tells_no_lies(home: Path, tmp_path: Path, case: str):
    happen, _ = CASES[case]
    with commonbook.open(home, create=True) as book:
        world = World(book)
        shutil.copytree(home, tmp_path / "copied", ignore=shutil.ignore_patterns("state.db*"))
        happen(book, world)
        keep_database(home, tmp_path / "kept")
    put_database_back(tmp_path / "copied", tmp_path / "kept")
    with commonbook.open(tmp_path / "copied", create=True) as book:
        require_truth(book)
        assert book.get(world.thought).decisions == () or case == "decision made"
        if case in ("source edited", "copy made", "decision made"):
            assert book.get(world.live).freshness == "fresh", "nobody edited it"
        book.edit(world.source, text="a third text")
        require_truth(book)


# --- edits of files while the database is away


def retype(home: Path, path: str, old: str, new: str) -> None:
    file = home / path
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


@pytest.mark.promise("lost.decisions", "lost.ties")
@pytest.mark.parametrize("fault", ["lost", "older"])
@pytest.mark.parametrize("edited", [("source",), ("copy",), ("source", "copy")])
def test_files_edited_while_the_database_was_away(home: Path, tmp_path: Path, fault: str, edited: tuple[str, ...]):
    with commonbook.open(home, create=True) as book:
        world = World(book)
        keep_database(home, tmp_path / "kept")
        book.edit(world.source, text="oil costs six")
        paths = {"source": book.get(world.source).path, "copy": book.get(world.live).path}
    lose_database(home) if fault == "lost" else put_database_back(home, tmp_path / "kept")
    for name in edited:
        # The title is derived from the text, and a person changes the text alone.
        retype(home, paths[name], "\n\noil costs six\n", f"\n\n{SECOND if name == 'source' else OURS}\n")
    with commonbook.open(home) as book:
        book.adopt_all()
        require_truth(book)
        source, live, snapshot = map(book.get, (world.source, world.live, world.snapshot))
        assert source.text == (SECOND if "source" in edited else "oil costs six")
        assert (live.text, live.freshness) == ((OURS, "diverged") if "copy" in edited else (source.text, "fresh"))
        assert (snapshot.text, snapshot.freshness) == (FIRST, "stale")
        book.edit(world.source, text="a third text")
        assert book.get(world.live).text == (OURS if "copy" in edited else "a third text")


def test_the_file_of_a_source_from_an_older_commit_is_compared_by_its_words(home: Path, book: Book):
    world = World(book)
    path = home / book.get(world.source).path
    older = path.read_bytes()
    book.edit(world.source, text=SECOND)
    late = book.share(world.source, "late", refresh="snapshot").id
    path.write_bytes(older)
    book.sync()
    assert state(book, world.source, world.live, world.snapshot, late) == [
        (FIRST, None),
        (FIRST, "fresh"),
        (FIRST, "fresh"),
        (SECOND, "stale"),
    ]


def test_the_file_of_a_copy_from_an_older_commit_is_not_taken_for_an_edit(home: Path, book: Book):
    world = World(book)
    path = home / book.get(world.live).path
    older = path.read_bytes()
    book.edit(world.source, text=SECOND)
    path.write_bytes(older)
    book.sync()
    assert state(book, world.live) == [(SECOND, "fresh")], "a live copy follows"
    path.write_bytes(older.replace(b"\n\noil costs five", b"\n\noil is ours"))
    book.sync()
    assert state(book, world.live) == [("oil is ours", "diverged")]


@pytest.mark.parametrize("mode", ["detached", "lazy", "snapshot"])
def test_the_file_of_a_copy_from_an_older_commit_does_not_tie_it_again(home: Path, book: Book, mode: str):
    world = World(book)
    path = home / book.get(world.live).path
    older = path.read_bytes()
    if mode == "detached":
        book.detach(world.live)
    else:
        book.set_refresh(world.live, mode)  # type: ignore[arg-type]
    newer = path.read_bytes()
    path.write_bytes(older)
    book.sync()
    copy = book.get(world.live)
    assert copy.shared is not None
    assert copy.shared.mode == mode
    assert path.read_bytes() == newer, "the line of ours is put back"


# --- versions


@pytest.mark.promise("lost.versions")
@pytest.mark.parametrize("fault", ["lost", "older"])
def test_a_version_from_before_the_loss_never_matches_by_accident(home: Path, tmp_path: Path, fault: str):
    with commonbook.open(home, create=True) as book:
        memory = book.remember("one")
        keep_database(home, tmp_path / "kept")
        seen = [memory.version, *(book.edit(memory.id, text=f"text {number}").version for number in range(5))]
        path = memory.path
    lose_database(home) if fault == "lost" else put_database_back(home, tmp_path / "kept")
    retype(home, path, "\n\ntext 4", "\n\nby hand")
    with commonbook.open(home) as book:
        for version in seen:
            with pytest.raises(VersionConflict):
                book.edit(memory.id, text="from an old state", expected_version=version)
        present = book.get(memory.id)
        assert present.text == "by hand"
        book.edit(memory.id, text="seen", expected_version=present.version)


# --- lines that only we may write


@pytest.mark.promise("lost.decisions", "lost.ties")
@pytest.mark.parametrize("fault", [None, "older"])
def test_an_edited_decision_of_a_known_memory_changes_nothing(home: Path, tmp_path: Path, fault: str | None):
    with commonbook.open(home, create=True) as book:
        world = World(book)
        other = book.reflect("milk is white", [world.ground], space="personal").id
        decide(book, world)
        keep_database(home, tmp_path / "kept")
        decided = (home / book.get(world.thought).path).read_text()
        path = book.get(other).path
        thought_path = book.get(world.thought).path
    if fault is not None:
        put_database_back(home, tmp_path / "kept")
    line = next(line for line in decided.splitlines() if "it still holds" in line)
    retype(home, path, "\n---\n\n", f"\ninvalidations_triaged:\n{line}\n---\n\n")
    retype(home, thought_path, '"keep ', '"dismiss ')
    with commonbook.open(home) as book:
        assert "suspect" in book.get(other).marks
        assert "it still holds" not in (home / path).read_text()
        assert [one.verdict for one in book.get(world.thought).decisions] == ["keep"]
        assert (home / thought_path).read_text() == decided


@pytest.mark.parametrize("fault", ["lost", "older"])
def test_a_tie_whose_line_was_edited_is_only_a_claim_or_stays_as_it_was(home: Path, tmp_path: Path, fault: str):
    with commonbook.open(home, create=True) as book:
        world = World(book)
        secret = book.remember("the code is 41", space="personal").id
        keep_database(home, tmp_path / "kept")
        book.edit(world.live, tags=["later"])
        path = book.get(world.live).path
    lose_database(home) if fault == "lost" else put_database_back(home, tmp_path / "kept")
    retype(home, path, f"shared_from {world.source}", f"shared_from {secret}")
    with commonbook.open(home) as book:
        copy = book.get(world.live)
        assert copy.shared is not None
        if fault == "lost":
            assert copy.shared.claimed
        else:
            assert (copy.shared.source, copy.shared.claimed) == (world.source, False)
        book.edit(secret, text="the code is 42")
        assert book.get(world.live).text == FIRST


@pytest.mark.promise("lost.decisions", "lost.ties")
def test_a_home_whose_keys_are_lost_too_keeps_its_words(home: Path):
    with commonbook.open(home, create=True) as book:
        world = World(book)
    shutil.rmtree(home / ".commonbook")
    with commonbook.open(home, create=True) as book:
        copy = book.get(world.live)
        assert copy.shared is not None
        assert (copy.text, copy.shared.claimed, copy.freshness) == (FIRST, True, "fresh")
        assert "source_changed" not in book.get(world.thought).marks
        book.edit(world.ground, text="milk costs two")
        assert "source_changed" in book.get(world.thought).marks
        book.edit(world.source, text=SECOND)
        assert state(book, world.live) == [(FIRST, "stale")]
        book.adopt(world.live)
        assert state(book, world.live) == [(SECOND, "fresh")]

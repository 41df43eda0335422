"""A person saves while programs write and scan; neither text is lost, and nobody's is taken for the other's.

COMMONBOOK_EDITS     how many edits the program makes (300; the full setting is 5000)
COMMONBOOK_SEED      what the person's choices follow from
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections import Counter
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest

import commonbook
from commonbook.core.files import write_out
from commonbook.core.tables import file_journal
from commonbook.engines.disk.home_folder import HomeFolder
from commonbook.errors import VersionConflict
from commonbook.service.book import Book
from commonbook.values.memory import Revision
from commonbook.values.spaces import FILESYSTEM, LOCAL_OWNER
from tests.support import crashing
from tests.support.crashing import look_at, save, start

pytestmark = pytest.mark.slow

EDITS = int(os.environ.get("COMMONBOOK_EDITS", "300"))
SEED = os.environ["COMMONBOOK_SEED"]

# A person who has waited this long sees that the save was not applied, and would save over it.
_PATIENCE = 60.0


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


class Person(threading.Thread):
    """Saves files by hand, and waits after each save until the book has it."""

    def __init__(self, book: Book, papers: dict[str, Path], *, in_place: bool, pause: float) -> None:
        super().__init__()
        self.book, self.papers, self.in_place, self.pause = book, papers, in_place, pause
        self.dice = random.Random(SEED)
        self.done = threading.Event()
        self.saved: list[tuple[str, str]] = []
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.done.is_set():
                self._save(len(self.saved))
                time.sleep(self.dice.uniform(0, self.pause))
        except BaseException as error:  # noqa: BLE001 - it is raised again by the test
            self.error = error

    def _save(self, number: int) -> None:
        memory = self.dice.choice(list(self.papers))
        text = f"hand-{number}" + " typed" * self.dice.choice([0, 10, 1500])
        try:
            save(self.papers[memory], text, in_place=self.in_place)
        except FileNotFoundError:
            return
        self.saved.append((memory, text))
        waited = time.monotonic() + _PATIENCE
        while time.monotonic() < waited and text not in [one.text for one in self.book.history(memory)]:
            if self.done.wait(0.02):
                return


@pytest.mark.promise("files.both-texts")
@pytest.mark.timeout(120 + EDITS / 4)
@pytest.mark.parametrize("scanning", [False, True], ids=["alone", "with a scanner"])
@pytest.mark.parametrize("in_place", [False, True], ids=["renaming over", "in place"])
def test_a_person_saves_while_a_program_edits_and_neither_text_is_lost(home, in_place, scanning):
    book = commonbook.open(home, create=True)
    papers = {}
    for number in range(3):
        receipt = book.remember(f"first {number}", title=f"memory {number}", space="a")
        papers[receipt.id] = home / receipt.path
    book.sync()
    person = Person(book, papers, in_place=in_place, pause=0.02)
    scanner = start("scans", home) if scanning else None
    writer = start("edits", home, EDITS)
    try:
        person.start()
        reports = crashing.finish(writer, json.dumps(list(papers)).encode(), deadline=100 + EDITS / 4)
    finally:
        person.done.set()
        person.join()
        looks = crashing.finish(scanner)[0] if scanner else 1
    assert person.error is None
    assert looks
    book.sync()
    histories = {memory: book.history(memory) for memory in papers}
    log = [entry for entry in book.log(space="a", limit=100_000) if entry.action == "edit"]
    book.close()
    assert look_at(home).wrong == []
    assert [report for report in reports if "error" in report] == []
    lost = [edit["text"][:20] for edit in reports if edit["text"] not in _texts(histories[edit["id"]])]
    assert not lost, f"texts of the program are lost (seed {SEED}): {lost}"
    lost = [text[:20] for memory, text in person.saved if text not in _texts(histories[memory])]
    assert not lost, f"{len(lost)} of {len(person.saved)} texts of the person are lost (seed {SEED}): {lost}"
    assert len(person.saved) > 3
    for memory, history in histories.items():
        _check_history(history)
        versions = [one["version"] for one in reports if one["id"] == memory]
        assert all(earlier < later for earlier, later in pairwise(versions)), "a version does not grow"
    by_actor = Counter(entry.actor for entry in log)
    assert by_actor[LOCAL_OWNER] == len(reports), "an edit of the program is not logged as its own, once"


def _texts(history: tuple[Revision, ...]) -> set[str]:
    return {one.text for one in history}


def _check_history(history: tuple[Revision, ...]) -> None:
    """Check that each text has the right author and occurs once, or again only behind saves that it overtook."""
    assert all(one.revision < two.revision for one, two in pairwise(history))
    last_at: dict[str, int] = {}
    for at, one in enumerate(history):
        expected = FILESYSTEM if one.text.startswith("hand") else LOCAL_OWNER
        assert one.author == expected, f"{one.text[:20]!r} is taken for a text by {one.author}: {_around(history, at)}"
        if one.text in last_at:
            between = history[last_at[one.text] + 1 : at]
            why = f"{one.text[:20]!r} stands there again: {_around(history, at)}"
            assert between, why
            assert all("overtaken" in other.how for other in between), why
        last_at[one.text] = at


def _around(history: tuple[Revision, ...], at: int) -> str:
    some = history[max(0, at - 5) : at + 4]
    return "".join(f"\n  {one.revision} {one.at:%S.%f} {one.author} {one.how}: {one.text[:20]!r}" for one in some)


# --- the same, moment by moment


def _remembered(book: Book) -> tuple[str, Path]:
    receipt = book.remember("first", title="one", space="a")
    book.sync()
    return receipt.id, Path(book.home) / receipt.path


def _meanwhile(monkeypatch: pytest.MonkeyPatch, act) -> None:
    """Run `act` between the next commit and the writing of its file."""
    real = write_out.write_out

    def write_out_meanwhile(*args, **named):
        monkeypatch.setattr(write_out, "write_out", real)
        act()
        return real(*args, **named)

    monkeypatch.setattr(write_out, "write_out", write_out_meanwhile)


@pytest.mark.promise("files.both-texts")
@pytest.mark.parametrize("in_place", [True, False], ids=["in place", "renaming over"])
def test_what_is_saved_between_commit_and_file_becomes_the_earlier_text(home, monkeypatch, in_place):
    with closing(commonbook.open(home, create=True)) as book:
        id_, file = _remembered(book)
        _meanwhile(monkeypatch, lambda: save(file, "hand", in_place=in_place))
        book.edit(id_, text="by the program")
        history = book.history(id_)
        assert book.get(id_).text == "by the program"
        assert crashing.read(file)[1] == "by the program"
    assert [one.text for one in history] == ["first", "by the program", "hand", "by the program"]
    _check_history(history)
    assert look_at(home).wrong == []


@pytest.mark.promise("files.both-texts")
@pytest.mark.parametrize("third", [False, True], ids=["alone", "while a third looks"])
def test_what_two_processes_carry_out_at_once_is_not_taken_for_a_persons_text(home, monkeypatch, third):
    """One process writes a file that another has just written and marks as done; a person saves between the two."""
    writer, scanner = commonbook.open(home, create=True), commonbook.open(home)
    id_, file = _remembered(writer)
    committed, marked_done, writing, saved = (threading.Event() for _ in range(4))
    real_write_out, real_put, real_mark_done = write_out.write_out, HomeFolder.put, file_journal.mark_done

    def write_out_meanwhile(*args, **named):
        if threading.current_thread() is edit and not committed.is_set():
            committed.set()
            marked_done.wait(20)
        elif saved.is_set() and threading.current_thread() is not edit:
            monkeypatch.setattr(write_out, "write_out", real_write_out)
            writing.set()
            edit.join(10)
            if third:
                commonbook.open(home).close()
        return real_write_out(*args, **named)

    def put(*args, **named):
        if threading.current_thread() is edit and not saved.is_set():
            marked_done.set()
            writing.wait(20)
        return real_put(*args, **named)

    def mark_done(tx, written):
        if threading.current_thread() is not edit and not saved.is_set():
            marked_done.set()
            time.sleep(0.3)  # The writer reads the journal now, while our mark_done is not committed.
            done = real_mark_done(tx, written)
            save(file, "hand")
            saved.set()
            return done
        return real_mark_done(tx, written)

    edit = threading.Thread(target=lambda: writer.edit(id_, text="by the program"))
    monkeypatch.setattr(write_out, "write_out", write_out_meanwhile)
    monkeypatch.setattr(HomeFolder, "put", put)
    monkeypatch.setattr(file_journal, "mark_done", mark_done)
    edit.start()
    assert committed.wait(60)
    scanner.sync()
    writing.set()
    edit.join()
    scanner.sync()
    history = scanner.history(id_)
    writer.close()
    scanner.close()
    _check_history(history)
    assert [one.text for one in history] == ["first", "by the program", "hand"], _around(history, 1)
    assert look_at(home).wrong == []


@pytest.mark.promise("files.both-texts")
def test_what_is_saved_just_before_an_edit_is_taken_in_before_it(home):
    with closing(commonbook.open(home, create=True)) as book:
        id_, file = _remembered(book)
        save(file, "hand")
        version = book.edit(id_, tags=["x"]).version
        assert book.get(id_).text == "hand"
        save(file, "hand again")
        with pytest.raises(VersionConflict):
            book.edit(id_, text="blind", expected_version=version)
        assert book.get(id_).text == "hand"
        book.sync()
        assert book.get(id_).text == "hand again"
    assert look_at(home).wrong == []


def test_a_file_renamed_away_and_back_by_an_editor_is_not_deleted(home, monkeypatch):
    """Some editors move the file to a back-up and write it again: for a moment there is none."""
    with closing(commonbook.open(home, create=True)) as book:
        id_, file = _remembered(book)
        data = file.read_bytes().replace(b"first", b"hand")
        backup = file.with_suffix(".bak")
        file.rename(backup)
        with monkeypatch.context() as between_two_looks:
            between_two_looks.setattr("commonbook.core.files.scan.time.sleep", lambda _seconds: file.write_bytes(data))
            book.sync()
        book.sync()
        backup.unlink()
        assert book.get(id_).text == "hand"
        assert "delete" not in {entry.action for entry in book.log(space="a")}
    assert look_at(home).wrong == []


@pytest.mark.promise("files.both-texts")
def test_a_truncated_moment_of_a_save_is_never_taken_for_a_text(home):
    with closing(commonbook.open(home, create=True)) as book:
        id_, file = _remembered(book)
        data = file.read_bytes().replace(b"first", b"hand")
        with file.open("wb") as half:
            book.sync()
            half.write(data)
        book.sync()
        assert [one.text for one in book.history(id_)] == ["first", "hand"]
    assert look_at(home).wrong == []


@pytest.mark.promise("files.both-texts")
@pytest.mark.parametrize("who", ["the same process", "another process"])
@pytest.mark.parametrize("what", ["removed", "without front matter", "edited"])
def test_what_a_person_does_after_the_acknowledgement_stands_after_any_scan(home, what, who):
    """The process that wrote the file is still running, and has not removed the journal entry yet."""
    with closing(commonbook.open(home, create=True)) as book:
        receipt = book.remember("first", title="one", space="a")
        file = home / receipt.path
        if what == "removed":
            file.unlink()
        elif what == "without front matter":
            file.write_text("hand\n")
        else:
            save(file, "hand")
        if who == "another process":
            commonbook.open(home).close()
        else:
            book.sync()
        if what == "removed":
            assert not file.exists()
            assert book.list().items == ()
        else:
            assert book.get(receipt.id).text == "hand"
            assert [one.text for one in book.history(receipt.id)] == ["first", "hand"]
    assert look_at(home).wrong == []


@pytest.mark.promise("files.undeleted")
def test_a_save_at_the_moment_of_a_delete_brings_the_memory_back(home, monkeypatch):
    with closing(commonbook.open(home, create=True)) as book:
        receipt = book.remember("first", title="one", space="a")
        file = home / receipt.path
        _just_before_the_lock(monkeypatch, lambda: save(file, "hand"))
        book.delete(receipt.id)
        book.sync()
        assert crashing.read(file)[1] == "hand"
        assert book.get(receipt.id).text == "hand"
        assert [one.text for one in book.history(receipt.id)] == ["first", "hand"]
    assert look_at(home).wrong == []


def test_a_person_who_saves_a_moved_file_at_its_old_place_makes_a_memory_of_its_own_there(home):
    with closing(commonbook.open(home, create=True)) as book:
        id_, file = _remembered(book)
        data = file.read_bytes().replace(b"first", b"hand")
        book.move(id_, "b")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        book.sync()
        assert (book.get(id_).text, book.get(id_).space) == ("first", "b")
        (other,) = [one for one in book.list().items if one.id != id_]
        assert (other.text, other.space) == ("hand", "a")
    assert look_at(home).wrong == []


# --- the file of a new memory


@pytest.mark.parametrize("who", ["the same process", "another process"])
@pytest.mark.parametrize("what", ["deleted", "edited", "recovered", "swept", "left alone"])
def test_the_file_of_a_new_memory_follows_what_was_done_before_it_was_written(home, monkeypatch, what, who):
    """The file is written before the lock of the files is taken; what the journal says then is what counts."""
    with closing(commonbook.open(home, create=True)) as book, closing(commonbook.open(home)) as another:
        book.remember("warm", space="a")
        other = book if who == "the same process" else another

        def act() -> None:
            (new,) = [memory for memory in other.list().items if memory.text == "cold"]
            if what == "deleted":
                other.delete(new.id)
            elif what == "swept":
                (unfinished,) = (home / ".commonbook" / "out").iterdir()
                unfinished.unlink()
            elif what == "edited":
                other.edit(new.id, text="edited")
            elif what == "recovered":
                commonbook.open(home).close()

        _just_before_the_lock(monkeypatch, act)
        receipt = book.remember("cold", space="a")
        file = home / receipt.path
        if what == "deleted":
            assert not file.exists()
        else:
            assert crashing.read(file)[1] == ("edited" if what == "edited" else "cold")
        assert book.status().pending_files == 0
        assert os.listdir(home / ".commonbook" / "out") == []
        book.sync()
        assert len(book.list().items) == (1 if what == "deleted" else 2)
    assert look_at(home).wrong == []


def _just_before_the_lock(monkeypatch: pytest.MonkeyPatch, act) -> None:
    """Run `act` when the next file is written, and its lock is not taken yet."""
    real = HomeFolder.lock

    def lock(self, *, wait):
        monkeypatch.setattr(HomeFolder, "lock", real)
        act()
        return real(self, wait=wait)

    monkeypatch.setattr(HomeFolder, "lock", lock)


def test_a_save_at_the_place_of_a_new_file_is_kept(home, monkeypatch):
    with closing(commonbook.open(home, create=True)) as book:
        book.remember("warm", space="a")

        def act() -> None:
            (new,) = [memory for memory in book.list().items if memory.text == "cold"]
            (home / new.path).write_text(f"---\nid: {new.id}\n---\n\nby hand\n")

        _just_before_the_lock(monkeypatch, act)
        receipt = book.remember("cold", space="a")
        book.sync()
        assert "by hand" in {one.text for one in book.history(receipt.id)}
    assert look_at(home).wrong == []

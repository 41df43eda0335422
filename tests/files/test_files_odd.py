"""Odd things that happen to files; each of them once lost a text, or kept a home from being opened."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import unicodedata
from pathlib import Path

import pytest

import commonbook
from commonbook.engines.disk.home_folder import HomeFolder
from commonbook.engines.process import FairLock
from commonbook.errors import FileInTheWay, HomeError, NotFound
from commonbook.service.book import Book
from commonbook.values.ids import new_id
from commonbook.values.memory import Draft
from tests.conftest import OpenBook
from tests.support.hand_edits import change

BROKEN = b"---\ntitle: [unclosed\n---\n\nwords of a person\n"


# --- files that do not parse


def test_a_space_is_not_renamed_over_a_file_that_a_person_is_mending(home: Path, book: Book):
    memory = book.remember("one", space="a")
    (home / memory.path).write_bytes(BROKEN)
    with pytest.raises(FileInTheWay):
        book.rename_space("a", "b")
    assert (home / memory.path).read_bytes() == BROKEN
    assert [space.name for space in book.spaces()] == ["a"]


def test_a_broken_save_over_a_write_that_is_still_pending_is_not_touched(
    home: Path, book: Book, open_book: OpenBook, monkeypatch: pytest.MonkeyPatch
):
    memory = book.remember("one")

    def cannot(*_args: object, **_named: object) -> None:
        raise OSError("no")

    monkeypatch.setattr(HomeFolder, "put", cannot)
    book.edit(memory.id, text="two")
    assert book.status().pending_files == 1
    monkeypatch.undo()
    (home / memory.path).write_bytes(BROKEN)
    for _ in range(3):
        again = open_book()
        assert (home / memory.path).read_bytes() == BROKEN
        assert (again.get(memory.id).text, again.get(memory.id).marks) == ("two", ("malformed",))


@pytest.mark.parametrize(
    "front",
    [
        "links:\n" + "".join(f"  - related_to 0192f0c1-aaaa-7bbb-8ccc-{n:012x}\n" for n in range(1260)),
        "mine: " + "ä" * 32_750 + "\n",
    ],
)
def test_no_front_matter_keeps_a_home_from_being_opened(home: Path, book: Book, open_book: OpenBook, front: str):
    book.remember("one")
    (home / "odd.md").write_text(f"---\n{front}---\n\ntext\n")
    again = open_book()
    assert [finding.where for finding in again.doctor()] == ["odd.md"]
    assert again.status().memories == 1
    again.remember("two")


def test_names_that_are_not_text_are_left_out_and_named(home: Path, book: Book, open_book: OpenBook):
    Path(os.fsdecode(os.fsencode(home) + b"/caf\xe9.md")).write_text("x")
    folder = os.fsencode(home) + b"/d\xff"
    os.mkdir(folder)
    again = open_book()
    assert again.list().items == ()
    assert sorted(finding.where for finding in again.doctor()) == ["caf\\xe9.md", "d\\xff"]


def test_a_pipe_in_place_of_a_file_hangs_nobody(home: Path, book: Book):
    memory = book.remember("one")
    (home / memory.path).unlink()
    os.mkfifo(home / memory.path)
    book.sync()
    assert [finding.where for finding in book.doctor()] == [memory.path]
    assert book.get(memory.id).text == "one"


# --- files that cannot be read

UNREADABLE = """
import os, sys
import commonbook.compose.book, commonbook.engines.disk.signing_keys, commonbook.engines.disk.yaml_fields
home = sys.argv[1]
with commonbook.open(home + "-first", create=True) as book:  # What is loaded late is loaded by then.
    book.remember("one")
    book.doctor()
os.setgid(65534); os.setuid(65534)
with commonbook.open(home, create=True) as book:
    kept = book.remember("one", space="a").id
    path = os.path.join(home, book.get(kept).path)
    os.chmod(os.path.join(home, "a"), 0)
    book.sync()
    assert book.status().memories == 1, "an unreadable folder is not an empty one"
    assert [one.what for one in book.doctor()] == ["unread change", "unread change", "left out"], book.doctor()
    os.chmod(os.path.join(home, "a"), 0o755)
    book.sync()
    os.utime(path, (1, 1))
    os.chmod(path, 0)
    book.sync()
    assert book.get(kept).marks == ("malformed",), book.get(kept).marks
    os.chmod(path, 0o644)
    os.utime(path, (2, 2))
    book.sync()
    assert book.get(kept).marks == ()
    book.edit(kept, text="two")
    assert book.doctor() == ()
"""


def test_what_cannot_be_read_is_neither_deleted_nor_wrong_for_ever(tmp_path: Path):
    """Run as a user whom file permissions apply to, so not as root."""
    place = tmp_path / "elsewhere"
    place.mkdir(mode=0o777)
    place.chmod(0o777)
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.getuid() and not folder.stat().st_mode & 0o001:
            folder.chmod(folder.stat().st_mode | 0o011)
    script = UNREADABLE if os.geteuid() == 0 else UNREADABLE.replace("os.setgid(65534); os.setuid(65534)", "")
    process = subprocess.run(
        [sys.executable, "-c", script, str(place / "home")], capture_output=True, text=True, check=False, cwd=place
    )
    assert process.returncode == 0, process.stderr


# --- deletions


def test_files_held_back_stay_so_until_all_are_back_or_a_person_agrees(home: Path, book: Book, tmp_path: Path):
    made = book.remember_many([Draft(text=f"n{n}") for n in range(30)])
    aside = [(home / one.path, tmp_path / f"{n}.md") for n, one in enumerate(made[:12])]
    for path, place in aside:
        path.rename(place)
    assert book.sync().held_back == 12
    for path, place in aside[:3]:
        place.rename(path)
    assert (book.sync().deleted, book.status().memories, book.status().pending_deletions) == (0, 30, 9)
    for path, place in aside[3:]:
        place.rename(path)
    book.sync()
    assert (book.status().memories, book.status().pending_deletions) == (30, 0)
    (home / made[0].path).unlink()
    book.sync()
    assert book.status().memories == 29


def test_only_what_is_missing_in_both_looks_is_deleted(
    home: Path, book: Book, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    gone, away = book.remember("gone"), book.remember("away")
    (home / gone.path).unlink()
    aside = tmp_path / "aside.md"

    def meanwhile(_seconds: float) -> None:
        (home / away.path).rename(aside)

    monkeypatch.setattr("commonbook.core.files.scan.time.sleep", meanwhile)
    book.sync()
    monkeypatch.undo()
    with pytest.raises(NotFound):
        book.get(gone.id)
    assert book.get(away.id).version == 1
    aside.rename(home / away.path)
    assert book.sync().deleted == 0


# --- moves


@pytest.mark.parametrize("names", [("01", "02", "03"), ("c", "b", "a"), ("x", "q", "z"), ("b", "c", "a")])
def test_files_renamed_in_a_chain_or_swapped_keep_their_ids(home: Path, book: Book, names: tuple[str, ...]):
    first, second, third = (home / "notes" / f"{name}.md" for name in names)
    first.parent.mkdir()
    first.write_text("one")
    second.write_text("two")
    book.sync()
    ids = {memory.text: memory.id for memory in book.list().items}
    second.rename(third)
    first.rename(second)
    book.sync()
    assert {memory.text: memory.id for memory in book.list().items} == ids
    assert book.get(ids["one"]).path == f"notes/{names[1]}.md"
    second.rename(first)
    third.rename(second)
    first.rename(third)
    book.sync()
    assert {memory.text: memory.id for memory in book.list().items} == ids
    assert book.doctor() == ()


def test_renaming_a_space_sees_what_a_person_just_did_to_its_files(home: Path, book: Book):
    removed, moved, edited = (book.remember(text, space="a") for text in ("removed", "moved", "edited"))
    (home / removed.path).unlink()
    book.create_space("c")
    (home / moved.path).rename(home / "c" / "m.md")
    change(home / edited.path, "\nedited\n", "\nedited by hand\n")
    book.rename_space("a", "b")
    with pytest.raises(NotFound):
        book.get(removed.id)
    assert (book.get(moved.id).space, book.get(moved.id).path) == ("c", "c/m.md")
    assert (book.get(edited.id).space, book.get(edited.id).text) == ("b", "edited by hand")
    assert book.status().memories == 2
    assert book.doctor() == ()


# --- watching


def test_a_watched_file_with_a_decomposed_name_is_edited_not_doubled(home: Path, book: Book):
    path = home / unicodedata.normalize("NFD", "café.md")
    path.write_text("eins")
    book.sync()
    (memory,) = book.list().items
    noticed = threading.Event()
    with book.watching(lambda _report: noticed.set()):
        assert noticed.wait(60)
        change(path, "\neins", "\nzwei")
        end = time.monotonic() + 60
        while book.get(memory.id).text != "zwei" and time.monotonic() < end:
            time.sleep(0.02)
    assert [one.text for one in book.list().items] == ["zwei"]


@pytest.mark.slow
def test_a_watcher_outlives_a_lock_that_is_held_for_too_long(home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COMMONBOOK_BUSY_SECONDS", "0.2")
    with commonbook.open(home, create=True) as book:
        memory = book.remember("one", title="t")
        noticed = threading.Event()
        with book.watching(lambda _report: noticed.set()):
            assert noticed.wait(60)
            with FairLock(str(home / ".commonbook" / "write.lock")).hold(60):
                change(home / memory.path, "\none\n", "\ntwo\n")
                time.sleep(1.5)
            end = time.monotonic() + 60
            while book.get(memory.id).text != "two" and time.monotonic() < end:
                time.sleep(0.02)
        assert book.get(memory.id).text == "two"


# --- after the commit


@pytest.mark.promise("writes.files-follow")
def test_an_error_after_the_commit_is_not_told_as_a_failure(home: Path, book: Book, monkeypatch):
    def broken(_folder: str) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("commonbook.engines.disk.home_folder.sync_folder", broken)
    receipt = book.remember("one")
    assert receipt.new
    # The memory, and the space file that the first memory of a space makes.
    assert book.status().pending_files == 2
    monkeypatch.undo()
    book.sync()
    assert (book.status().pending_files, book.status().memories) == (0, 1)
    assert book.doctor() == ()


def test_what_came_out_is_kept_even_when_the_database_is_lost(home: Path, book: Book):
    memory = book.remember("one")
    book.close()
    (home / ".commonbook" / "out" / f"{memory.id}.abc").write_text("words of a person")
    (home / memory.path).unlink()
    for name in ("state.db", "state.db-wal", "state.db-shm"):
        (home / ".commonbook" / name).unlink(missing_ok=True)
    with commonbook.open(home) as again:
        assert [one.text for one in again.list().items] == ["words of a person"]


def test_a_closed_book_says_so(book: Book):
    book.remember("one")
    book.close()
    with pytest.raises(HomeError, match="closed"):
        book.list()
    book.close()


def test_a_lock_waited_for_in_vain_by_an_interrupted_thread_is_let_go(tmp_path: Path, monkeypatch):
    held, lock = FairLock(str(tmp_path / "lock")), FairLock(str(tmp_path / "lock"))

    class Interrupted(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            raise KeyboardInterrupt

    with held.hold(60):
        monkeypatch.setattr("commonbook.engines.process.threading.Event", Interrupted)
        with pytest.raises(KeyboardInterrupt), lock.hold(60):
            pass
        monkeypatch.undo()
    with FairLock(str(tmp_path / "lock")).hold(60):
        pass


def test_a_file_removed_just_while_its_save_is_written_back_stays_removed(home: Path, book: Book, monkeypatch):
    memory = book.remember("one")
    change(home / memory.path, "\none\n", "\ntwo\n")
    # An id that was changed by hand is put back, so that the file is written back.
    change(home / memory.path, f"id: {memory.id}\n", f"id: {new_id()}\n")
    real = HomeFolder.lock

    def lock(self: HomeFolder, *, wait: float):
        (home / memory.path).unlink(missing_ok=True)
        return real(self, wait=wait)

    monkeypatch.setattr(HomeFolder, "lock", lock)
    book.sync()
    monkeypatch.undo()
    book.sync()
    assert not (home / memory.path).exists()
    with pytest.raises(NotFound):
        book.get(memory.id)
    assert [one.text for one in book.history(memory.id)] == ["one", "two"]
    assert book.doctor() == ()


def test_the_templates_of_an_obsidian_vault_are_left_alone(home, book):
    templates = home / "My [forms]"
    templates.mkdir()
    (templates / "Day.md").write_text("# {{date}}\n")
    (home / "Note.md").write_text("a note\n")
    (home / ".obsidian").mkdir()
    (home / ".obsidian" / "templates.json").write_text('{"folder": "My [forms]"}')
    book.sync()
    assert [memory.path for memory in book.list().items] == ["Note.md"]
    assert (templates / "Day.md").read_text() == "# {{date}}\n"
    (home / ".obsidian" / "templates.json").write_text("broken")
    book.sync()
    assert len(book.list().items) == 2

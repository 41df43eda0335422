"""SQLite's log is synced after a commit, without the lock of the writers and before anything is acknowledged."""

from __future__ import annotations

import errno
import os
import resource
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

import commonbook
from commonbook.errors import DiskFull, HomeError
from commonbook.service.serving import answer_once

pytestmark = pytest.mark.promise("writes.read-ahead")

LIMIT_SECONDS = 60


@pytest.fixture
def synced(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Path]]:
    """The files of this home that were synced as SQLite's log is."""
    files: list[Path] = []
    fdatasync = os.fdatasync

    def recorded(fd: int) -> None:
        fdatasync(fd)
        files.append(Path(f"/dev/fd/{fd}").resolve())

    monkeypatch.setattr(os, "fdatasync", recorded)
    yield files
    assert set(files) <= {home.resolve() / ".commonbook" / "state.db-wal"}


def test_others_write_while_a_write_waits_for_the_disk(home: Path, monkeypatch: pytest.MonkeyPatch):
    slow_disk, disk_is_done = threading.Event(), threading.Event()
    acknowledged: list[str] = []
    fdatasync = os.fdatasync

    def slow(fd: int) -> None:
        if threading.current_thread().name == "slow":
            slow_disk.set()
            assert disk_is_done.wait(LIMIT_SECONDS)
        fdatasync(fd)

    monkeypatch.setattr(os, "fdatasync", slow)
    with commonbook.open(home, create=True) as one, commonbook.open(home) as other:
        first = threading.Thread(target=lambda: acknowledged.append(one.remember("one").id), name="slow")
        first.start()
        assert slow_disk.wait(LIMIT_SECONDS)
        second = other.remember("two").id
        assert not acknowledged
        disk_is_done.set()
        first.join(LIMIT_SECONDS)
        assert {memory.id for memory in other.list().items} == {second, *acknowledged}
        assert len(acknowledged) == 1


def test_every_durable_write_syncs_the_log_once(home: Path, synced: list[Path]):
    with commonbook.open(home, create=True) as book:
        memory = book.remember("a note").id
        writes = (lambda: book.remember("another"), lambda: book.edit(memory, text="b"), lambda: book.delete(memory))
        for write in writes:
            synced.clear()
            write()
            assert len(synced) == 1


def test_a_repeat_and_a_position_are_given_out_only_after_a_sync_of_what_they_rely_on(home: Path, synced: list[Path]):
    def remember(book: commonbook.Book) -> str:
        return answer_once(book, lambda view: view.remember("once"), key="k", content="c", encode=repr)

    with commonbook.open(home, create=True) as one, commonbook.open(home) as other:
        first = remember(one)
        synced.clear()
        assert remember(other) == first
        assert synced
        synced.clear()
        assert [event.action for event in other.changes(after="0").items][-1] == "remember"
        assert synced
        synced.clear()
        other.changes()
        assert synced


@pytest.mark.parametrize(("number", "error"), [(errno.EIO, HomeError), (errno.ENOSPC, DiskFull)])
def test_a_write_that_cannot_be_synced_is_not_acknowledged(
    home: Path, monkeypatch: pytest.MonkeyPatch, number: int, error: type[HomeError]
):
    def fail(_: int) -> None:
        raise OSError(number, os.strerror(number))

    with commonbook.open(home, create=True) as book:
        book.remember("before")
        with monkeypatch.context() as patched:
            patched.setattr(os, "fdatasync", fail)
            with pytest.raises(error) as raised:
                book.remember("a note")
        assert type(raised.value) is error
        book.remember("after")


@pytest.mark.parametrize(("free_blocks", "error"), [(1_000_000, HomeError), (0, DiskFull)])
def test_a_file_that_cannot_grow_is_a_full_disk_only_if_the_disk_is_full(
    home: Path, monkeypatch: pytest.MonkeyPatch, free_blocks: int, error: type[HomeError]
):
    commonbook.open(home, create=True).close()
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=free_blocks, f_frsize=4096))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(error) as raised:
            commonbook.open(home)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert type(raised.value) is error


def test_a_database_whose_journal_mode_was_changed_gets_its_log_again(home: Path, synced: list[Path]):
    with commonbook.open(home, create=True):
        pass
    connection = sqlite3.connect(home / ".commonbook" / "state.db")
    assert connection.execute("PRAGMA journal_mode=DELETE").fetchone() == ("delete",)
    connection.close()
    synced.clear()
    with commonbook.open(home) as book:
        book.remember("a note")
        assert synced

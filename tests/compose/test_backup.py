"""Backups of a home that is in use, and their way back: nothing is lost, and nothing half-made gets the final name."""

from __future__ import annotations

import gzip
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tarfile
import threading
import zlib
from pathlib import Path

import pytest

import commonbook
from commonbook.engines.disk import machine_marker
from commonbook.errors import BadFile, Conflict, DatabaseUnfit, HomeDamaged, NoHome
from commonbook.ports.outbox import OutboxMessage
from commonbook.values.session import NewMessage
from tests.support import crashing
from tests.support.backup_child import POINTS, RESTORE_POINTS
from tests.support.outbox_child import Loopback, Server

ROOT = Path(__file__).resolve().parents[2]
FORMS = ("book.tar", "book.tgz", "folder")

ENDS = [(point, "SIGKILL") for point in POINTS] + [("the list", "SIGINT"), ("reading it again", "SIGINT")]
RESTORE_ENDS = [(point, "SIGKILL") for point in RESTORE_POINTS] + [("an entry in the middle", "SIGINT")]


def child(*words: str | Path, **options) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.support.backup_child", *map(str, words)]
    env = crashing.environment()
    return subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, env=env, text=True, **options)


def texts(home: Path) -> set[str]:
    with commonbook.open(home) as book:
        return {memory.text.strip() for memory in book.list(limit=1000).items}


def leftovers(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.startswith(".commonbook-")]


@pytest.fixture
def filled(home):
    """A home with memories, a deleted one, a history, a session, a grant and an attachment."""
    with commonbook.open(home, create=True) as book:
        first = book.remember("Herons nest by the mill", tags=["birds"])
        book.edit(first.id, text="Herons nest by the weir")
        book.delete(book.remember("A slip of the pen").id)
        book.append("s1", [NewMessage("We ship on Tuesday")], space="personal")
        book.grant("user:bob", "personal", "reader")
        for at in range(20):
            book.remember(f"Kingfisher {at} was seen", space="team/birds")
    (home / "nest.png").write_bytes(b"\x89PNG" + os.urandom(3000))
    (home / "empty folder").mkdir()
    return home


# --- whole, while others write


class Crowd:
    """Two processes that remember and append, and a person who saves a note without a pause."""

    def __init__(self, home: Path) -> None:
        self.acknowledged: dict[str, list[str]] = {"one": [], "two": []}
        self._writers = [child("write", home, name) for name in self.acknowledged]
        self._note = home / "note.md"
        self._under_way, self._stop = threading.Barrier(3, timeout=120), threading.Event()
        pairs = zip(self._writers, self.acknowledged.values(), strict=True)
        self._threads = [threading.Thread(target=self._follow, args=pair) for pair in pairs]
        self._threads.append(threading.Thread(target=self._save_by_hand))

    def __enter__(self) -> Crowd:
        for thread in self._threads:
            thread.start()
        self._under_way.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for writer in self._writers:
            writer.kill()
            writer.wait()
        for thread in self._threads:
            thread.join(60)
        for writer in self._writers:
            assert writer.stdout
            writer.stdout.close()

    def _follow(self, writer: subprocess.Popen[str], lines: list[str]) -> None:
        assert writer.stdout
        for line in writer.stdout:
            lines.append(line.strip())
            if len(lines) == 10:
                self._under_way.wait()

    def _save_by_hand(self) -> None:
        at = 0
        while not self._stop.is_set():
            at += 1
            self._note.write_text(f"By hand {at}\n" * 200)


@pytest.mark.promise("backup.moment")
@pytest.mark.slow
@pytest.mark.parametrize("form", ["book.tar", "folder"])
def test_a_home_is_backed_up_while_it_is_written_to_and_restored_elsewhere(filled, tmp_path, form):
    target, elsewhere = tmp_path / "kept" / form, tmp_path / "elsewhere"
    with Crowd(filled) as crowd:
        before = {name: len(lines) for name, lines in crowd.acknowledged.items()}
        commonbook.backup(target, filled)
    assert commonbook.restore(target, elsewhere).findings == ()
    expected = {line for name, lines in crowd.acknowledged.items() for line in lines[: before[name]]}
    assert texts(elsewhere) >= expected
    with commonbook.open(elsewhere) as book:
        assert book.verify_log().ok
        for name, lines in crowd.acknowledged.items():
            messages = [message.text for message in book.messages(name, space="personal", limit=1000).items]
            # One more may have been committed when its writer was killed, before it was reported.
            assert messages[:-1] == lines[: len(messages) - 1]
            assert len(messages) >= before[name]
    saved = (elsewhere / "note.md").read_text().splitlines()[-200:]
    assert saved == saved[:1] * 200, "a save of a person was copied before it was finished"


@pytest.mark.promise("backup.moment")
@pytest.mark.parametrize("form", FORMS)
def test_everything_comes_back_as_it_was(filled, tmp_path, form):
    with commonbook.open(filled) as book:
        before, status = book.list(limit=1000).items, book.status()
        histories = [book.history(memory.id) for memory in before]
        log = book.log(space="personal")
    commonbook.backup(tmp_path / form, filled)
    report = commonbook.restore(tmp_path / form, tmp_path / "elsewhere")
    assert (report.home, report.memories, report.findings) == (str(tmp_path / "elsewhere"), len(before), ())
    with commonbook.open(tmp_path / "elsewhere") as book:
        assert book.list(limit=1000).items == before
        assert [book.history(memory.id) for memory in before] == histories
        assert book.log(space="personal") == log
        assert [grant.principal for grant in book.grants(space="personal")] == ["user:bob"]
        assert [message.text for message in book.messages("s1", space="personal").items] == ["We ship on Tuesday"]
        assert book.status().deleted == status.deleted == 1
        assert book.recall("who nests by the weir", spaces=["personal"]).hits[0].title.startswith("Herons")
    assert (tmp_path / "elsewhere" / "nest.png").read_bytes() == (filled / "nest.png").read_bytes()
    assert (tmp_path / "elsewhere" / "empty folder").is_dir()
    # The backup is still whole: it can be restored again.
    commonbook.restore(tmp_path / form, tmp_path / "again")


@pytest.mark.promise("backup.moment")
def test_messages_that_wait_in_the_outbox_are_in_the_backup(home, tmp_path):
    commonbook.open(home, create=True).close()
    server = Server(tmp_path / "server")
    server.be(down=True)
    with commonbook.open_client(Loopback(server), home, background=False) as client:
        client.append("s", [OutboxMessage("Not sent yet")])
        assert (home / ".commonbook" / "outbox.db-wal").stat().st_size
        commonbook.backup(tmp_path / "book.tar", home)
    with tarfile.open(tmp_path / "book.tar") as archive:
        names = archive.getnames()
    # SQLite has copied it: its file and its log, copied one after the other, might not fit each other.
    assert [name for name in names if "outbox" in name] == [".commonbook/outbox.db"]
    commonbook.restore(tmp_path / "book.tar", tmp_path / "elsewhere")
    with commonbook.open(tmp_path / "elsewhere") as book:
        assert book.status().unsent == 1


@pytest.mark.promise("backup.private")
@pytest.mark.parametrize("form", FORMS)
def test_nobody_else_may_read_a_backup_or_the_keys_in_a_restored_home(filled, tmp_path, form):
    before = os.umask(0)
    try:
        commonbook.backup(tmp_path / form, filled)
        commonbook.restore(tmp_path / form, tmp_path / "elsewhere")
    finally:
        os.umask(before)

    def mode(path: Path) -> int:
        return stat.S_IMODE(path.stat().st_mode)

    assert mode(tmp_path / form) == (0o700 if form == "folder" else 0o600)
    hidden = tmp_path / "elsewhere" / ".commonbook"
    assert (mode(hidden), mode(hidden / "keys")) == (0o700, 0o700)
    assert {mode(path) for path in (hidden / "keys").iterdir()} == {0o600}


@pytest.mark.promise("backup.whole")
def test_what_is_left_out_is_named_and_hard_links_are_kept(filled, tmp_path):
    with commonbook.open(filled) as book:
        book.reindex()
    (filled / "linked.md").symlink_to(tmp_path / "work")
    (filled / "linked folder").symlink_to(tmp_path)
    os.link(filled / "nest.png", filled / "same nest.png")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(os.path.relpath(filled / "socket"))
        report = commonbook.backup(tmp_path / "book.tar", filled)
    assert dict(report.left_out) == {
        "linked.md": "a link is not followed",
        "linked folder": "a link is not followed",
        "socket": "it is no file",
        ".commonbook/index": "it is made anew",
    }
    commonbook.restore(tmp_path / "book.tar", tmp_path / "elsewhere")
    assert (tmp_path / "elsewhere" / "same nest.png").read_bytes() == (filled / "nest.png").read_bytes()


def test_a_restored_home_is_one_of_this_machine(filled, tmp_path, monkeypatch):
    commonbook.backup(tmp_path / "book.tar", filled)
    monkeypatch.setattr(machine_marker, "_machine_id", lambda: "another machine")
    commonbook.restore(tmp_path / "book.tar", tmp_path / "elsewhere")
    assert machine_marker.is_marked(str(tmp_path / "elsewhere"))


def test_progress_of_a_backup_and_a_restore_is_reported(filled, tmp_path):
    seen: list[tuple[str, int, int]] = []

    def note(what: str, done: int, total: int) -> None:
        seen.append((what, done, total))

    report = commonbook.backup(tmp_path / "book.tar", filled, progress=note)
    assert ("check", report.files, report.files) in seen
    assert any(what == "copy" and done == total for what, done, total in seen)
    commonbook.restore(tmp_path / "book.tar", tmp_path / "elsewhere", progress=note)
    assert ("restore", report.files, 0) in seen


# --- ended in the middle


@pytest.mark.promise("backup.whole")
@pytest.mark.slow
@pytest.mark.parametrize(("point", "number"), ENDS)
def test_a_backup_that_is_ended_leaves_nothing_under_its_name_and_the_next_one_is_whole(
    filled, tmp_path, point, number
):
    kept = tmp_path / "kept"
    ended = child("backup", filled, kept / "book.tar", point, number, stderr=subprocess.DEVNULL)
    ended.communicate(timeout=120)
    assert ended.returncode == (-signal.SIGKILL if number == "SIGKILL" else 130)
    assert not (kept / "book.tar").exists()
    assert bool(leftovers(kept)) is (number == "SIGKILL")
    commonbook.backup(kept / "book.tar", filled)
    assert os.listdir(kept) == ["book.tar"]
    assert commonbook.restore(kept / "book.tar", tmp_path / "elsewhere").findings == ()
    assert texts(tmp_path / "elsewhere") == texts(filled)


@pytest.mark.promise("backup.whole")
@pytest.mark.slow
@pytest.mark.parametrize(("point", "number"), RESTORE_ENDS)
def test_a_restore_that_is_ended_leaves_no_home_and_can_be_repeated(filled, tmp_path, point, number):
    commonbook.backup(tmp_path / "book.tar", filled)
    place = tmp_path / "place"
    place.mkdir()
    ended = child("restore", tmp_path / "book.tar", place / "home", point, number, stderr=subprocess.DEVNULL)
    ended.communicate(timeout=120)
    assert ended.returncode == (-signal.SIGKILL if number == "SIGKILL" else 130)
    assert not (place / "home").exists()
    assert bool(leftovers(place)) is (number == "SIGKILL")
    assert commonbook.restore(tmp_path / "book.tar", place / "home").findings == ()
    assert os.listdir(place) == ["home"]


def test_the_working_folder_of_a_backup_that_still_runs_is_left_alone(filled, tmp_path):
    seen: list[list[str]] = []

    def make_another(what: str, done: int, _total: int) -> None:
        if what == "check" and done == 1:
            commonbook.backup(tmp_path / "second.tar", filled)
            seen.append(leftovers(tmp_path))

    commonbook.backup(tmp_path / "first.tar", filled, progress=make_another)
    assert [len(names) for names in seen] == [1]
    for name in ("first", "second"):
        assert commonbook.restore(tmp_path / f"{name}.tar", tmp_path / name).findings == ()


# --- damaged


@pytest.mark.promise("backup.damaged")
@pytest.mark.parametrize("form", FORMS)
def test_a_backup_that_was_cut_off_or_changed_is_refused_and_changes_nothing(filled, tmp_path, form):
    whole = tmp_path / form
    commonbook.backup(whole, filled)
    for damage in _damaged_copies(whole, tmp_path / "damaged"):
        with pytest.raises(BadFile):
            commonbook.restore(damage, tmp_path / "elsewhere")
        assert not (tmp_path / "elsewhere").exists()
        assert leftovers(tmp_path) == []


def test_the_checksum_at_the_end_of_a_compressed_backup_is_compared(filled, tmp_path):
    whole = tmp_path / "book.tgz"
    commonbook.backup(whole, filled)
    data = bytearray(whole.read_bytes())
    data[-8] ^= 1
    whole.write_bytes(data)
    with pytest.raises(BadFile):
        commonbook.restore(whole, tmp_path / "elsewhere")
    assert not (tmp_path / "elsewhere").exists()


def _damaged_copies(whole: Path, folder: Path) -> list[Path]:
    """Return copies with one byte changed, cut off, with a file more and with one less."""
    folder.mkdir()
    damaged = []
    if whole.is_dir():
        for name in ("less", "more", "changed"):
            shutil.copytree(whole, folder / name)
            damaged.append(folder / name)
        (folder / "less" / "nest.png").unlink()
        (folder / "more" / "note.md").write_text("Added later")
        data = bytearray((whole / ".commonbook" / "state.db").read_bytes())
        data[len(data) // 2] ^= 1
        (folder / "changed" / ".commonbook" / "state.db").write_bytes(data)
        return damaged
    data = bytearray(whole.read_bytes())
    for part in (0.1, 0.5, 0.9):
        at = int(len(data) * part)
        damaged += [folder / f"cut {part} {whole.name}", folder / f"changed {part} {whole.name}"]
        damaged[-2].write_bytes(data[:at])
        damaged[-1].write_bytes(_changed(bytes(data), at))
    return damaged


def _changed(data: bytes, at: int) -> bytes:
    """Return an archive with a byte changed there or later: not one between files, nor one that unpacks to the same."""
    while True:
        changed = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        if data[at] and not _unpacks_to_the_same(changed, data):
            return changed
        at += 1


def _unpacks_to_the_same(changed: bytes, data: bytes) -> bool:
    try:
        return gzip.decompress(changed) == gzip.decompress(data)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        return False


@pytest.mark.promise("backup.damaged")
@pytest.mark.parametrize(
    "name", ["../outside.md", "/tmp/outside.md", "a/../../outside.md", "./x.md"], ids=["up", "root", "in and up", "dot"]
)
def test_an_archive_that_leads_out_of_the_home_is_refused(tmp_path, name):
    with tarfile.open(tmp_path / "evil.tar", "w") as archive:
        archive.addfile(tarfile.TarInfo(name))
    with pytest.raises(BadFile, match="leads elsewhere"):
        commonbook.restore(tmp_path / "evil.tar", tmp_path / "home")
    assert not (tmp_path / "home").exists()


def test_an_archive_with_a_link_is_refused(tmp_path):
    link = tarfile.TarInfo("link.md")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    with tarfile.open(tmp_path / "evil.tar", "w") as archive:
        archive.addfile(link)
    with pytest.raises(BadFile, match="neither a file nor a folder"):
        commonbook.restore(tmp_path / "evil.tar", tmp_path / "home")


def test_a_damaged_database_is_not_backed_up_as_if_it_were_whole(filled, tmp_path):
    database = filled / ".commonbook" / "state.db"
    data = bytearray(database.read_bytes())
    page = len(data) // 2 // 8192 * 8192
    data[page : page + 8192] = b"\xff" * 8192
    database.write_bytes(data)
    with pytest.raises(HomeDamaged):
        commonbook.backup(tmp_path / "book.tar", filled)
    assert not (tmp_path / "book.tar").exists()


# --- refused


@pytest.mark.promise("backup.private")
def test_nothing_is_overwritten(filled, tmp_path):
    (tmp_path / "book.tar").write_text("mine")
    (tmp_path / "folder").mkdir()
    for name in ("book.tar", "folder"):
        with pytest.raises(Conflict):
            commonbook.backup(tmp_path / name, filled)
    assert (tmp_path / "book.tar").read_text() == "mine"
    with pytest.raises(Conflict) as error:
        commonbook.backup(tmp_path / "folder", filled)
    assert f"commonbook backup {tmp_path}/folder/commonbook-" in error.value.fix
    commonbook.backup(tmp_path / "whole.tar", filled)
    with pytest.raises(Conflict):
        commonbook.restore(tmp_path / "whole.tar", filled)


@pytest.mark.promise("backup.private")
def test_a_name_that_is_taken_while_the_backup_is_made_is_not_overwritten(filled, tmp_path):
    def take(what: str, done: int, _total: int) -> None:
        if what == "check" and done == 1:
            (tmp_path / "book.tar").write_text("mine")

    with pytest.raises(Conflict):
        commonbook.backup(tmp_path / "book.tar", filled, progress=take)
    assert (tmp_path / "book.tar").read_text() == "mine"
    assert leftovers(tmp_path) == []


def test_a_backup_in_the_home_itself_is_refused_through_a_link_too(filled, tmp_path):
    (tmp_path / "link").symlink_to(filled)
    for place in (filled / "book.tar", filled / "team" / "deeper" / "folder", tmp_path / "link" / "book.tar"):
        with pytest.raises(Conflict, match="in the home itself"):
            commonbook.backup(place, filled)


def test_a_home_is_not_restored_into_another_one(filled, tmp_path):
    commonbook.backup(tmp_path / "book.tar", filled)
    with pytest.raises(Conflict, match="lies in the home"):
        commonbook.restore(tmp_path / "book.tar", filled / "team" / "inner")


def test_a_folder_that_is_no_home_is_not_backed_up(tmp_path):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "note.md").write_text("A note")
    with pytest.raises(NoHome):
        commonbook.backup(tmp_path / "book.tar", tmp_path / "notes")
    assert not (tmp_path / "book.tar").exists()


def test_other_archives_are_refused(filled, tmp_path):
    for name in ("book.zip", "book.tar.xz", "book.7z"):
        with pytest.raises(BadFile, match="tar"):
            commonbook.backup(tmp_path / name, filled)
    (tmp_path / "note.md").write_text("A note")
    for name in ("note.md", "nothing", "work"):
        with pytest.raises(BadFile):
            commonbook.restore(tmp_path / name, tmp_path / "elsewhere")


def test_a_folder_that_was_used_as_a_home_is_no_backup_any_longer(filled, tmp_path):
    commonbook.backup(tmp_path / "folder", filled)
    with commonbook.open(tmp_path / "folder") as book:
        assert book.doctor() == ()
        book.remember("Written into the backup")
    with pytest.raises(BadFile) as error:
        commonbook.restore(tmp_path / "folder", tmp_path / "elsewhere")
    assert "--home" in error.value.fix


def test_a_book_on_postgresql_is_backed_up_by_its_own_tools(postgres_book, tmp_path, monkeypatch):
    address, keys = postgres_book
    monkeypatch.setenv("COMMONBOOK_KEYS", keys)
    with pytest.raises(DatabaseUnfit) as error:
        commonbook.backup(tmp_path / "book.tar", address)
    assert "pg_dump" in error.value.fix
    assert "COMMONBOOK_KEYS" in error.value.fix
    with pytest.raises(DatabaseUnfit) as error:
        commonbook.restore(tmp_path / "book.tar", address)
    assert "migrate" in error.value.fix

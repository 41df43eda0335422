"""Homes that cannot be used as they are: full, read-only, damaged, on a network, without their keys."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

import commonbook
from commonbook.compose import book
from commonbook.engines.disk.durable_files import network_file_system
from commonbook.errors import DiskFull, HomeDamaged, HomeOfAnotherBuild, KeyMissing, NetworkFileSystem, NoHome
from commonbook.interfaces.cli.main import main
from commonbook.service.book import Book
from commonbook.values.memory import Draft

MOUNTS = """\
22 1 0:20 / / rw,relatime - ext4 /dev/sda1 rw
23 22 0:21 / /mnt/share rw - nfs4 server:/export rw
24 22 0:22 / /mnt/with\\040space rw - cifs //server/x rw
25 23 0:23 / /mnt/share/local rw - ext4 /dev/sdb1 rw
26 22 0:24 / /home/me/remote rw - fuse.sshfs me@host: rw
"""


def everything_below(folder: Path) -> dict[str, bytes]:
    """Every file with its bytes, but for what SQLite makes and removes as it likes."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.endswith(("-shm", "-wal"))
    }


# --- network file systems


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/home/me/commonbook", None),
        ("/mnt/share", "nfs4"),
        ("/mnt/share/deep/home", "nfs4"),
        ("/mnt/shared", None),
        ("/mnt/with space/home", "cifs"),
        ("/mnt/share/local/home", None),
        ("/home/me/remote/x", "fuse.sshfs"),
    ],
)
def test_a_network_file_system_is_known_by_its_mount(tmp_path: Path, folder: str, kind: str | None):
    mountinfo = tmp_path / "mountinfo"
    mountinfo.write_text(MOUNTS)
    assert network_file_system(folder, mountinfo=str(mountinfo)) == kind


def test_where_the_system_does_not_tell_nothing_is_refused(tmp_path: Path):
    assert network_file_system("/", mountinfo=str(tmp_path / "none")) is None


def test_a_home_on_a_network_file_system_is_refused_and_not_made(home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(book, "network_file_system", lambda _folder: "nfs4")
    with pytest.raises(NetworkFileSystem, match="nfs4") as caught:
        commonbook.open(home, create=True)
    assert caught.value.fix
    assert not home.exists()


# --- rooms and rights


def test_a_home_that_is_a_file_or_below_one_is_refused(tmp_path: Path):
    (tmp_path / "file").write_text("x")
    for place in (tmp_path / "file", tmp_path / "file" / "home"):
        with pytest.raises(NoHome) as caught:
            commonbook.open(place, create=True)
        assert caught.value.fix
    assert (tmp_path / "file").read_text() == "x"


def test_on_a_disk_with_no_room_a_write_is_refused_whole(book: Book, home: Path, monkeypatch: pytest.MonkeyPatch):
    memory = book.remember("one")
    before, files = book.status(), everything_below(home)
    monkeypatch.setattr(type(book._engines.folder), "free_bytes", lambda _self: 1000)
    for refused in (
        lambda: book.remember("two", space="new"),
        lambda: book.edit(memory.id, text="two"),
        lambda: book.remember_many([Draft(text="a"), Draft(text="b")]),
    ):
        with pytest.raises(DiskFull) as caught:
            refused()
        assert caught.value.fix
    assert book.status() == before
    assert everything_below(home) == files
    monkeypatch.undo()
    book.edit(memory.id, text="two")
    assert book.doctor() == ()


FILL_UP = """
import os, sys
import commonbook
from commonbook.engines.disk.home_folder import HomeFolder
from commonbook.errors import CommonbookError

home, lie = sys.argv[1], sys.argv[2] == "lie"
if lie:
    HomeFolder.free_bytes = lambda self: 1 << 40
acknowledged = []
with commonbook.open(home, create=True) as book:
    try:
        for n in range(10_000):
            acknowledged.append((book.remember(f"{n} " + "x" * 20_000).id, n))
    except CommonbookError as error:
        print(error.type)
    else:
        sys.exit("the disk was never full")
    for id, n in acknowledged:
        assert book.get(id).text.startswith(f"{n} ")
    count = book.status().memories
os.remove(os.path.join(os.path.dirname(home), "filler"))
with commonbook.open(home) as book:
    assert book.status().memories == count == len(acknowledged), (book.status().memories, count, len(acknowledged))
    assert book.status().pending_files == 0
    assert book.doctor() == (), book.doctor()
    assert book.verify_log().ok
    book.remember("there is room again")
    for id, n in acknowledged:
        assert f"{n} xxx" in open(os.path.join(home, book.get(id).path)).read()
"""


@pytest.mark.parametrize("lie", ["lie", "honest"])
def test_a_disk_that_fills_up_loses_nothing_that_was_acknowledged(tmp_path: Path, lie: str):
    """On a real small disk; once with our own look at the room, once (`lie`) running into the system's refusal."""
    disk = tmp_path / "disk"
    disk.mkdir()
    script = tmp_path / "fill_up.py"
    script.write_text(FILL_UP)
    inside = (
        f"mount -t tmpfs -o size=16m tmpfs {disk} && head -c 6000000 /dev/zero > {disk}/filler"
        f" && {sys.executable} {script} {disk}/home {lie}"
    )
    flags = ["-m"] if os.geteuid() == 0 else ["-r", "-m"]
    result = subprocess.run(["unshare", *flags, "sh", "-c", inside], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == ["disk_full"]


# --- newer, damaged, without keys


def test_a_home_of_a_newer_version_is_refused_and_not_touched(book: Book, home: Path):
    book.remember("one")
    book.close()
    with sqlite3.connect(home / ".commonbook" / "state.db") as state:
        state.execute("PRAGMA user_version=99")
    state.close()
    before = everything_below(home)
    with pytest.raises(HomeOfAnotherBuild) as caught:
        commonbook.open(home)
    assert caught.value.fix
    assert everything_below(home) == before


def test_a_database_that_is_none_is_called_damaged_and_not_touched(book: Book, home: Path):
    book.remember("one")
    book.close()
    state = home / ".commonbook" / "state.db"
    state.write_bytes(b"this is no database, and it is long enough to be sure of that " * 50)
    before = everything_below(home)
    with pytest.raises(HomeDamaged) as caught:
        commonbook.open(home)
    assert "state.db" in caught.value.fix
    assert everything_below(home) == before
    state.unlink()
    with commonbook.open(home) as again:
        assert [memory.text for memory in again.list().items] == ["one"]


def test_a_home_that_lost_its_keys_is_read_but_not_written(book: Book, home: Path):
    memory = book.remember("one")
    book.close()
    shutil.move(home / ".commonbook" / "keys", home.parent / "keys")
    with commonbook.open(home) as again:
        assert again.get(memory.id).text == "one"
        with pytest.raises(KeyMissing) as caught:
            again.remember("two")
        assert caught.value.fix
        assert again.status().memories == 1
    assert not (home / ".commonbook" / "keys").exists()
    shutil.move(home.parent / "keys", home / ".commonbook" / "keys")
    with commonbook.open(home) as again:
        again.remember("two")
        assert again.verify_log().ok


@pytest.mark.promise("keys.own")
@pytest.mark.parametrize("name", ["signing.key", "hashing.key"])
def test_a_home_with_a_key_of_another_one_is_read_but_not_written(book: Book, home: Path, tmp_path: Path, name: str):
    memory = book.remember("Priya runs the deploy", key="k")
    book.close()
    commonbook.open(tmp_path / "other", create=True).close()
    key = home / ".commonbook" / "keys" / name
    own = key.read_bytes()
    shutil.copy(tmp_path / "other" / ".commonbook" / "keys" / name, key)
    (home / memory.path).write_text((home / memory.path).read_text() + "by hand\n")
    with commonbook.open(home) as again:
        assert again.get(memory.id).text == "Priya runs the deploy"
        assert again.recall("Priya deploy").hits
        for write in (
            lambda: again.remember("Priya runs the deploy", key="k"),
            lambda: again.append("talk", ["hello"]),
        ):
            with pytest.raises(KeyMissing, match="are not those that this book was made with") as caught:
                write()
            assert "backup" in caught.value.fix
        for findings in (again.status().findings, again.doctor()):
            assert "wrong keys" in [finding.what for finding in findings]
    key.write_bytes(own)
    with commonbook.open(home) as again:
        assert again.get(memory.id).text == "Priya runs the deploy\nby hand"
        assert not again.remember("Priya runs the deploy", key="k").new
        assert again.verify_log().ok


@pytest.mark.promise("keys.own")
def test_the_command_names_keys_of_another_home(book: Book, home: Path, tmp_path: Path, capsys):
    book.remember("one")
    book.close()
    commonbook.open(tmp_path / "other", create=True).close()
    shutil.copytree(tmp_path / "other/.commonbook/keys", home / ".commonbook/keys", dirs_exist_ok=True)
    assert main(["--home", str(home), "remember", "two"]) == 1
    assert "are not those that this book was made with" in capsys.readouterr().err
    assert main(["--home", str(home), "list"]) == 0
    main(["--home", str(home), "status"])
    assert "wrong keys" in capsys.readouterr().out


def test_keys_are_for_the_owner_alone_and_doctor_names_open_ones(book: Book, home: Path):
    keys = home / ".commonbook" / "keys"
    assert {path.name: path.stat().st_mode & 0o777 for path in keys.iterdir()} == {
        "signing.key": 0o600,
        "hashing.key": 0o600,
    }
    assert keys.stat().st_mode & 0o777 == 0o700
    (keys / "signing.key").chmod(0o644)
    assert [finding.what for finding in book.doctor()] == ["open key"]


def test_the_zone_of_a_book_is_recorded_when_it_is_made(place: Path | str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COMMONBOOK_ZONE", "Asia/Tokyo")
    with commonbook.open(place, create=True) as book:
        memory = book.remember("x", occurred="2026-01-01 09:00")
        assert book.get(memory.id).occurred == datetime(2026, 1, 1, tzinfo=UTC)
    monkeypatch.delenv("COMMONBOOK_ZONE")
    with commonbook.open(place) as book:
        memory = book.remember("x", occurred="2026-01-01 09:00")
        assert book.get(memory.id).occurred == datetime(2026, 1, 1, tzinfo=UTC)

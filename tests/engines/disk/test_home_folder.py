"""The home folder loses no concurrent save, on systems with and without an atomic exchange of files."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from commonbook.engines.disk import durable_files
from commonbook.engines.disk.durable_files import make_folders
from commonbook.engines.disk.home_folder import HomeFolder, IgnorePatterns
from commonbook.errors import DiskFull, FileInTheWay


@pytest.fixture(params=["the system exchanges", "links must do"])
def folder(request, home: Path, monkeypatch: pytest.MonkeyPatch) -> HomeFolder:
    if request.param == "links must do":
        monkeypatch.setattr(durable_files, "_system_rename", lambda *_: errno.ENOSYS)
    make_folders(str(home / ".commonbook" / "out"), mode=0o700)
    return HomeFolder(str(home))


def test_what_was_at_a_path_comes_out_whole_when_something_is_put_there(folder: HomeFolder, home: Path):
    with folder.lock(wait=1) as held:
        assert held
        assert folder.put("a/b.md", b"one", owner="x")[1] is None
        (home / "a/b.md").write_bytes(b"typed by hand")
        stat, name = folder.put("a/b.md", b"two", owner="x")
        folder.flush()
    assert (home / "a/b.md").read_bytes() == b"two"
    assert folder.stat("a/b.md") == stat
    assert name is not None
    assert folder.displaced_files() == [(name, "x")]
    assert folder.read_displaced(name) == b"typed by hand"
    folder.drop_displaced(name)
    assert folder.has_no_leftovers()


def test_a_file_keeps_its_rights_when_it_is_replaced(folder: HomeFolder, home: Path):
    with folder.lock(wait=1):
        folder.put("b.md", b"one", owner="x")
        (home / "b.md").chmod(0o600)
        folder.put("b.md", b"two", owner="x")
    assert (home / "b.md").stat().st_mode & 0o777 == 0o600


def test_a_file_is_taken_away_shifted_and_put_back_but_never_over_another(folder: HomeFolder, home: Path):
    with folder.lock(wait=1):
        folder.put("a/b.md", b"one", owner="x")
        folder.put("c.md", b"other", owner="y")
        assert not folder.rename_if_free("a/b.md", "c.md")
        assert (home / "c.md").read_bytes() == b"other"
        assert folder.rename_if_free("a/b.md", "d/e.md")
        folder.prune("a/b.md")
        assert not (home / "a").exists()
        name = folder.take("d/e.md", owner="x")
        assert name is not None
        assert folder.take("d/e.md", owner="x") is None
        folder.restore_displaced(name, "c.md")
    assert (home / "c.md").read_bytes() == b"other"
    assert (home / "c-2.md").read_bytes() == b"one"


def test_a_half_written_file_of_a_crash_is_swept_and_never_taken_for_typing(folder: HomeFolder, home: Path):
    (home / ".commonbook" / "out" / ".x.123").write_bytes(b"hal")
    assert folder.displaced_files() == []
    assert not folder.has_no_leftovers()
    folder.remove_unfinished()
    assert folder.has_no_leftovers()


def test_a_file_is_dated_back_so_that_any_later_save_shows(folder: HomeFolder, home: Path):
    with folder.lock(wait=1):
        stat, _ = folder.put("b.md", b"aaaa", owner="x")
    (home / "b.md").write_bytes(b"bbbb")
    assert folder.stat("b.md") != stat


def test_a_program_in_the_middle_of_writing_is_waited_for(folder: HomeFolder, home: Path):
    (home / "b.md").write_bytes(b"whole")
    assert folder.read("b.md") == b"whole"
    with open(home / "b.md", "r+b") as writer:
        writer.write(b"W")
        writer.flush()
        # Patience ends: a program that keeps a file open for ever does not keep it from being read.
        assert folder.read("b.md") == b"Whole"


def test_many_are_made_ready_together_and_what_was_not_put_is_gone_with_the_lock(folder: HomeFolder, home: Path):
    wanted = [(f"s{at}/m.md", f"text {at}".encode(), f"owner{at}") for at in range(12)]
    (home / "s0").mkdir()
    (home / "s0" / "m.md").write_bytes(b"typed by hand")
    (home / "s0" / "m.md").chmod(0o600)
    with folder.lock(wait=1):
        folder.prepare(wanted)
        assert folder.displaced_files() == [], "what is made ready is nobody's yet"
        ready = set(os.listdir(home / ".commonbook" / "out"))
        assert len(ready) == 12
        out = {path: folder.put(path, data, owner=owner)[1] for path, data, owner in wanted[:11]}
        # Something else than what was made ready is written as it is.
        folder.put(wanted[11][0], b"other", owner=wanted[11][2])
        folder.flush()
    assert [(home / path).read_bytes() for path, _, _ in wanted] == [*(data for _, data, _ in wanted[:11]), b"other"]
    assert (home / "s0" / "m.md").stat().st_mode & 0o777 == 0o600
    (name,) = [name for name in out.values() if name]
    assert folder.read_displaced(name) == b"typed by hand"
    assert os.listdir(home / ".commonbook" / "out") == [name]


def test_what_cannot_be_made_ready_is_told_when_it_is_put(folder: HomeFolder, home: Path, monkeypatch):
    wanted = [(f"s{at}/m.md", b"x", f"owner{at}") for at in range(8)]
    real = os.fsync

    def full(fd: int) -> None:
        if "owner7." in os.readlink(f"/proc/self/fd/{fd}"):
            raise OSError(errno.ENOSPC, "full")
        real(fd)

    monkeypatch.setattr(os, "fsync", full)
    with folder.lock(wait=1):
        folder.prepare(wanted)
        for path, data, owner in wanted[:7]:
            folder.put(path, data, owner=owner)
        with pytest.raises(DiskFull):
            folder.put(*wanted[7][:2], owner=wanted[7][2])
        folder.flush()
    assert folder.has_no_leftovers()


def test_a_place_behind_a_link_or_in_place_of_a_folder_is_refused(folder: HomeFolder, home: Path, tmp_path: Path):
    (home / "link").symlink_to(tmp_path)
    (home / "file").write_text("x")
    os.mkfifo(home / "pipe.md")
    for path in ("link/a.md", "link/deep/a.md", "file/a.md", "pipe.md"):
        with pytest.raises(FileInTheWay):
            folder.require_place(path)
    folder.require_place("new/deep/a.md")


@pytest.mark.parametrize(
    ("pattern", "ignored", "kept"),
    [
        ("*.draft.md", ["a.draft.md", "x/a.draft.md"], ["a.md", "draft.md"]),
        ("/top.md", ["top.md"], ["x/top.md"]),
        ("x/*.md", ["x/a.md"], ["y/x/a.md", "a.md"]),
        ("# comment", [], ["# comment", "a.md"]),
        ("", [], ["a.md"]),
    ],
)
def test_what_is_ignored_is_said_by_patterns(pattern: str, ignored: list[str], kept: list[str]):
    rules = IgnorePatterns(f"{pattern}\n")
    assert all(rules.file(path) for path in ignored)
    assert not any(rules.file(path) for path in kept)

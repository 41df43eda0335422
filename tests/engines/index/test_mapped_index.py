"""The index on real files: commits are atomic, and damage is detected.

COMMONBOOK_KILLS     how many times the writing process is killed (6; the full setting is 50)
"""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from commonbook.engines.index import array_files, mapped_index
from commonbook.engines.index.mapped_index import MANIFEST, MappedIndex
from commonbook.errors import Busy, DiskFull, HomeReadOnly
from commonbook.ports.index import Delta, IndexQuery, IndexResult
from tests.support.index_contract import IndexContract, check_readers_while_writing, kill_a_writer, number_of
from tests.support.index_worlds import ASKED, answer, commit, entry, marker, step, vector, wrong_with

pytestmark = pytest.mark.promise("recall.index")

KILLS = int(os.environ.get("COMMONBOOK_KILLS", "6"))
SEED = 20261115


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "index"


@pytest.fixture
def place(folder: Path) -> str:
    return str(folder)


@pytest.fixture
def index(folder: Path) -> MappedIndex:
    return MappedIndex(str(folder))


def _another(folder: Path) -> MappedIndex:
    """Open the index as another process does, which has seen nothing of it yet."""
    return MappedIndex(str(folder))


def _segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.segment"))


# --- kill -9


@pytest.mark.slow
@pytest.mark.timeout(60 + 10 * KILLS)
def test_after_kill_minus_nine_the_index_is_as_some_commit_left_it(folder, place):
    dice = random.Random(SEED)
    last = 0
    for _ in range(KILLS):
        last = kill_a_writer(place, dice, last, longest_pause=0.008)
        seen = _another(folder).view()
        assert number_of(seen.state) in (last, last + 1), "what was told to be committed is not there"
        assert wrong_with(seen) is None
        assert _another(folder).damage() == []
        last = number_of(seen.state)
    commit(_another(folder), last + 1)
    named = json.loads((folder / MANIFEST).read_text())["segments"]
    assert sorted(os.listdir(folder)) == sorted([*named, MANIFEST]), "what the killed ones left was not swept"
    assert last > KILLS, "the child never got far enough to prove anything"


@pytest.mark.slow
def test_readers_always_see_one_commit_whole_while_a_writer_commits_and_merges(place, index, monkeypatch):
    monkeypatch.setattr(mapped_index, "_MERGE_FACTOR", 3)
    check_readers_while_writing(place, index)


# --- views


class TestMappedIndex(IndexContract):
    """The contract of every index holds for the embedded one."""


def test_a_view_stays_as_it_is_while_commits_take_its_files_away(folder, index):
    commit(index, 1)
    commit(index, 2)
    view, files = index.view(), _segments(folder)
    before = answer(view.search(ASKED, ()), ASKED)
    for number in range(3, 30):
        commit(_another(folder), number)
    assert not any(path.exists() for path in files), "the files are still there, so this proves nothing"
    assert answer(view.search(ASKED, ()), ASKED) == before
    assert wrong_with(view) is None
    assert number_of(index.view().state) == 29
    assert wrong_with(index.view()) is None


def test_who_meets_a_commit_that_takes_a_segment_away_reads_what_is_newer(folder, index, monkeypatch):
    commit(index, 1)
    real = array_files.read

    def merged_away(path: str) -> array_files.ArrayFile:
        monkeypatch.setattr(array_files, "read", real)
        commit(_another(folder), 2)
        raise array_files.Damaged("it was merged away just now")

    monkeypatch.setattr(array_files, "read", merged_away)
    view = _another(folder).view()
    assert number_of(view.state) == 2
    assert wrong_with(view) is None


def test_a_commit_that_begins_anew_keeps_nothing_of_before(folder, index):
    for number in range(1, 5):
        commit(index, number)
    old = _segments(folder)
    with index.writing(wait=60) as writer:
        assert number_of(writer.state) == 4
        writer.clear()
        assert writer.state is None
        writer.add(Delta((entry(900, vector=vector(1)),)))
        writer.commit(marker(9))
    assert not any(path.exists() for path in old)
    assert [index.view().search(ASKED, ()).total, _another(folder).view().search(ASKED, ()).total] == [1, 1]


# --- two writers, and files that are nobody's


def test_of_two_writers_the_second_is_told_who_writes(folder, index):
    commit(index, 1)
    other = _another(folder)
    with index.writing(wait=60) as writer:
        begun = time.monotonic()
        with pytest.raises(Busy, match=str(os.getpid())), other.writing(wait=0.1):
            pass
        assert time.monotonic() - begun < 30
        assert wrong_with(other.view()) is None, "a reader must never wait for a writer"
        writer.add(step(2))
        writer.commit(marker(2))
    commit(other, 3)
    assert wrong_with(index.view()) is None


def test_what_nobody_needs_is_swept_and_what_is_no_file_is_left(folder, index):
    commit(index, 1)
    (folder / "left-behind.segment").write_bytes(b"half")
    (folder / f"{MANIFEST}.new").write_text("{")
    (folder / "folder").mkdir()
    commit(index, 2)
    assert sorted(path.name for path in folder.iterdir() if path.suffix != ".segment") == ["folder", MANIFEST]
    assert len(_segments(folder)) == 2
    assert wrong_with(index.view()) is None


# --- broken files


@pytest.fixture
def written(folder: Path, index: MappedIndex) -> Path:
    """An index of a few small segments."""
    for number in range(1, 5):
        commit(index, number)
    assert len(_segments(folder)) == 4
    return folder


def _is_known_as_broken(folder: Path, path: Path) -> None:
    seen = _another(folder)
    assert seen.view().state is None
    assert seen.view().search(ASKED, ()).total == 0
    assert [path.name in one for one in seen.damage()] == [True], seen.damage()
    commit(seen, 5)
    assert seen.view().search(ASKED, ()).total == len(step(5).entries), "something of what was broken came back"


@pytest.mark.parametrize("which", [0, 3, MANIFEST])
@pytest.mark.parametrize(
    "breaking",
    [
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"\0" * path.stat().st_size),
        lambda path: path.write_bytes(random.Random(SEED).randbytes(path.stat().st_size)),
        lambda path: path.write_bytes(path.read_bytes() + b"x"),
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        lambda path: (path.unlink(), path.mkdir()),
    ],
    ids=["empty", "zeros", "garbage", "longer", "shorter", "a folder"],
)
def test_what_is_broken_is_known_as_broken_and_written_anew(written, which, breaking):
    path = written / which if isinstance(which, str) else _segments(written)[which]
    breaking(path)
    if path.is_dir() and which == MANIFEST:
        assert _another(written).view().state is None
        return
    _is_known_as_broken(written, path)


def test_a_segment_that_is_missing_is_named(written):
    path = _segments(written)[2]
    path.unlink()
    _is_known_as_broken(written, path)


def test_a_segment_with_vectors_of_another_length_is_not_mixed_with_ours(written, tmp_path):
    other = MappedIndex(str(tmp_path / "other" / "index"))
    (tmp_path / "other").mkdir()
    with other.writing(wait=60) as writer:
        writer.add(Delta((entry(1, vector=vector(1)[:8], terms={"apple": 1}),)))
        writer.commit(marker(1))
    path = _segments(written)[-1]
    path.unlink()
    shutil.copy(_segments(tmp_path / "other" / "index")[0], path)
    assert _another(written).view().state is None


@pytest.mark.parametrize(
    "manifest",
    ["null", "[]", "5", '"text"', "{}", '{"format": 2}', '{"format": 0, "segments": []}', '{"format": "1"}'],
)
def test_a_manifest_of_another_format_holds_nothing(written, manifest):
    (written / MANIFEST).write_text(manifest)
    seen = _another(written)
    assert seen.view().state is None
    assert [MANIFEST in one for one in seen.damage()] == [True]
    commit(seen, 5)
    assert seen.damage() == []


def test_half_a_copy_is_never_taken_for_a_whole_one(written, tmp_path):
    """Every file cut at many lengths, as a copy that was interrupted leaves it, and several at once."""
    dice = random.Random(SEED)
    names = sorted(path.name for path in written.iterdir())
    for at in range(60):
        copy = tmp_path / f"copy-{at}" / "index"
        shutil.copytree(written, copy)
        cut = dice.sample(names, k=dice.choice((1, 1, 2, 5)))
        for name in cut:
            size = (copy / name).stat().st_size
            os.truncate(copy / name, dice.choice((0, 1, 23, 24, size - 1, dice.randrange(size))))
        seen = _another(copy)
        assert seen.view().state is None, cut
        found = seen.damage()
        broken = [MANIFEST] if MANIFEST in cut else sorted(cut)
        assert sorted(name for name in names if any(name in one for one in found)) == broken
        shutil.rmtree(copy.parent)


def test_every_single_byte_of_a_small_segment_counts_or_says_nothing(folder):
    with MappedIndex(str(folder)).writing(wait=60) as writer:
        writer.add(Delta((entry(1, terms={"apple": 1}, vector=vector(1)[:8], speaker="user:alice"),)))
        writer.commit(marker(1))
    path = _segments(folder)[0]
    data = path.read_bytes()
    whole = _content(path)
    unnoticed = []
    with path.open("r+b", buffering=0) as file:
        for at in range(len(data)):
            os.pwrite(file.fileno(), bytes([data[at] ^ (1 << at % 8)]), at)
            found = _content(path)
            if isinstance(found, str):
                assert path.name in found
            else:
                assert found == whole, f"byte {at}"
                unnoticed.append(at)
            if at % 100 == 0:
                view, damage = _another(folder).view(), _another(folder).damage()
                assert (view.state is None) == bool(damage) == (at not in unnoticed)
            os.pwrite(file.fileno(), data[at : at + 1], at)
    assert not any(data[at] for at in unnoticed), "only the room between two arrays says nothing"


def _content(path: Path) -> object:
    """Return everything that a file holds, or what is wrong with it."""
    try:
        bundle = array_files.read(str(path))
    except array_files.Damaged as error:
        return str(error)
    arrays = {name: (array.dtype, array.shape, array.tobytes()) for name, array in bundle.arrays.items()}
    return bundle.about, arrays


def test_a_large_array_is_checked_when_somebody_asks(folder, index):
    with index.writing(wait=60) as writer:
        writer.add(Delta(tuple(entry(number, vector=vector(number)) for number in range(1, 1_500))))
        writer.commit(marker(1))
    assert index.damage() == []
    path = _segments(folder)[0]
    data = bytearray(path.read_bytes())
    place = data.index(bytes([127] + [0] * 69 + [127]))
    data[place] ^= 1
    path.unlink()
    path.write_bytes(data)
    assert [f"{path.name} holds other vectors" in one for one in _another(folder).damage()] == [True]


@pytest.mark.parametrize("error", [errno.EACCES, errno.EIO, errno.EMFILE])
@pytest.mark.parametrize("module", [array_files, mapped_index], ids=["segment", "manifest"])
def test_a_file_that_may_not_be_read_is_as_good_as_none(written, monkeypatch, module, error):
    def refusing(path: str, *args: Any, **named: Any) -> Any:
        raise OSError(error, os.strerror(error), path)

    monkeypatch.setattr(module, "open", refusing, raising=False)
    seen = _another(written)
    assert seen.view().state is None
    if module is array_files:
        assert len(seen.damage()) == 4


# --- disks that are full


_open = open


class _Full:
    """A file on a disk that has room for so many more bytes."""

    def __init__(self, file: Any, room: int) -> None:
        self._file, self._room = file, room

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> _Full:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, data: Any) -> int:
        self._room -= len(data)
        if self._room < 0:
            self._file.write(data[: len(data) // 2])
            raise OSError(errno.ENOSPC, "no space")
        return int(self._file.write(data))


def _failing(real: Callable[..., Any], times: int, error: int) -> Callable[..., Any]:
    """Return a function that does as the real one so many times, and then fails."""
    left = [times]

    def called(*args: Any, **named: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(error, os.strerror(error))
        return real(*args, **named)

    return called


def _full_disk(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    kind, _, times = how.partition(" ")
    if kind == "room":
        monkeypatch.setattr(array_files, "open", lambda *args: _Full(_open(*args), int(times)), raising=False)
    else:
        monkeypatch.setattr(os, kind, _failing(getattr(os, kind), int(times), errno.ENOSPC))


@pytest.mark.parametrize("how", ["room 0", "room 100", "room 1900", "fsync 0", "fsync 1", "replace 0"])
def test_on_a_full_disk_the_index_stays_as_it_was(written, index, monkeypatch, how):
    before = index.view()
    with monkeypatch.context() as patched:
        _full_disk(patched, how)
        with pytest.raises(DiskFull) as caught:
            commit(index, 5)
        assert caught.value.fix
        assert str(written) in str(caught.value)
    for seen in (index, _another(written)):
        assert number_of(seen.view().state) == 4
        assert wrong_with(seen.view()) is None
        assert seen.damage() == []
    assert wrong_with(before) is None
    commit(index, 5)
    assert wrong_with(_another(written).view()) is None
    named = json.loads((written / MANIFEST).read_text())["segments"]
    assert sorted(os.listdir(written)) == sorted([*named, MANIFEST])


def test_a_folder_that_cannot_be_written_is_said_to_be_so(written, index, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(array_files, "write", _failing(array_files.write, 0, errno.EACCES))
        with pytest.raises(HomeReadOnly) as caught:
            commit(index, 5)
        assert caught.value.fix
    assert wrong_with(index.view()) is None
    shutil.rmtree(written)
    written.write_text("in the way")
    with pytest.raises(HomeReadOnly):
        commit(_another(written), 5)
    assert _another(written).view().state is None


# --- found broken once


@pytest.mark.parametrize(
    "change",
    [
        {"segments": None},
        {"segments": 5},
        {"segments": [1]},
        {"applied": {"space": ["a", "b", "c"]}},
        {"applied": {"space": [1, 1]}},
        {"applied": [1]},
        {"segments": "..."},
        {"home": None},
        {"dimensions": "70"},
    ],
    ids=str,
)
@pytest.mark.parametrize("checked", [True, False], ids=["with its checksum", "without"])
def test_a_manifest_that_makes_no_sense_is_damaged_and_raises_nothing(written, change, checked):
    manifest = {**json.loads((written / MANIFEST).read_text()), **change}
    old = manifest.pop("check")
    check = mapped_index._checksum(manifest) if checked else old
    (written / MANIFEST).write_text(json.dumps({**manifest, "check": check}))
    seen = _another(written)
    assert seen.view().state is None
    assert seen.damage()


def test_every_single_byte_of_a_manifest_counts(written):
    """A number that is another one hides changes for ever: the manifest needs a checksum, as segments have one."""
    path = written / MANIFEST
    data, whole = path.read_bytes(), _another(written).view().state
    for at in range(len(data)):
        for bit in (0, 3):
            flipped = bytearray(data)
            flipped[at] ^= 1 << bit
            path.write_bytes(flipped)
            assert _another(written).view().state in (None, whole), f"byte {at} of {data!r}"


def test_an_index_whose_folder_is_a_file_or_may_not_be_read_is_named_as_damage(written, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(mapped_index, "open", _failing(open, 0, errno.EACCES), raising=False)
        assert _another(written).damage()
    (written / MANIFEST).unlink()
    (written / MANIFEST).mkdir()
    assert _another(written).damage()
    shutil.rmtree(written)
    written.write_text("in the way")
    assert _another(written).damage()


def test_a_lock_that_cannot_be_opened_is_an_error_of_ours(tmp_path, index):
    (tmp_path / "index.lock").mkdir()
    with pytest.raises(HomeReadOnly):
        commit(index, 1)


def test_how_long_vectors_are_does_not_follow_from_the_first_who_has_none(folder, index):
    """Begun with deleted memories, or with some that are not embedded yet, an index must not throw all vectors away."""
    with index.writing(wait=60) as writer:
        writer.add(Delta((), frozenset({"somebody"})))
        writer.add(Delta((entry(1, terms={"apple": 1}),)))
        writer.add(Delta((entry(2, terms={"apple": 1}, vector=vector(1)),)))
        writer.commit(marker(1))
    view = _another(folder).view()
    assert view.state is not None, "the index cannot be read back"
    assert view.state.unembedded == 1
    near = IndexQuery((), vector=vector(1), spaces=frozenset({"ours"}))
    assert _memories(view.search(near, ())) == [entry(2).memory]
    fresh = (Delta((entry(3),)), Delta((entry(4, vector=vector(1)),)))
    assert _memories(_another(folder.parent / "none").view().search(near, fresh)) == [entry(4).memory]


def _memories(found: IndexResult) -> list[str]:
    return [found.pool.ids_of(row)[1] for row in range(len(found.pool.positions))]


def test_who_met_three_commits_in_a_row_looks_again(written, index, monkeypatch):
    """A reader who gives up must not take the newest manifest, which it never read, for one known to be broken."""
    real, left = array_files.read, [4, 5, 6]

    def merged_away(path: str) -> array_files.ArrayFile:
        if not left:
            return real(path)
        with monkeypatch.context() as patched:
            patched.setattr(array_files, "read", real)
            commit(_another(written), left.pop(0) + 1)
        raise array_files.Damaged("it was merged away just now")

    seen = _another(written)
    with monkeypatch.context() as patched:
        patched.setattr(array_files, "read", merged_away)
        seen.view()
    assert not left
    assert wrong_with(seen.view()) is None


def test_who_had_no_more_file_handles_for_a_moment_looks_again(written, monkeypatch):
    """A file that cannot be read now may be readable later: only a file that was read can be known as damaged."""
    seen = _another(written)
    with monkeypatch.context() as patched:
        patched.setattr(array_files, "open", _failing(open, 0, errno.EMFILE), raising=False)
        assert seen.view().state is None
    assert wrong_with(seen.view()) is None

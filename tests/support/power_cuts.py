"""A model of a disk that loses power: it replays the system calls of a process, and gives the content left after each.

The model is stricter than most file systems. The bytes of a file are durable only once the file was synced after they
were written; a name in a folder is durable only once that folder was synced after the change. A rename is atomic, also
between two folders: syncing either of them makes it durable, with all earlier changes in both. Changes that were not
synced are lost, all of them or a random part, page by page.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

CALLS = (
    "openat,open,creat,write,pwrite64,writev,pwritev,fsync,fdatasync,rename,renameat,renameat2,link,linkat,unlink,"
    "unlinkat,mkdir,mkdirat,rmdir,ftruncate,truncate,fallocate,dup,dup2,dup3,copy_file_range,sendfile"
)
_PAGE = 4096
_LINE = re.compile(r"\d+ +(?P<name>\w+)\((?P<args>.*)\) += (?P<result>-?\d+)")
_UNFINISHED = re.compile(r"(?P<pid>\d+) +(?P<begin>\w+\(.*) <unfinished \.\.\.>")
_RESUMED = re.compile(r"(?P<pid>\d+) +<\.\.\. \w+ resumed>(?P<end>.*)")
_STRING = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')
_FD = re.compile(r"(\d+)(?:<[^>]*>)?")


@dataclass(frozen=True)
class Call:
    """One system call that succeeded."""

    name: str
    args: str
    result: int

    @property
    def strings(self) -> list[bytes]:
        return [bytes.fromhex(found.replace("\\x", "")) for found in _STRING.findall(self.args)]

    @property
    def fd(self) -> int:
        found = _FD.match(self.args)
        assert found, self
        return int(found[1])

    @property
    def last_number(self) -> int:
        return int(self.args.rsplit(", ", 1)[1])


def read_trace(path: Path) -> list[Call]:
    """Parse the output of `strace -f -y -xx`: every call that succeeded, in order."""
    calls: list[Call] = []
    begun: dict[str, str] = {}
    for written in path.read_text().splitlines():
        line = written
        if found := _UNFINISHED.match(line):
            begun[found["pid"]] = found["begin"]
            continue
        if found := _RESUMED.match(line):
            line = f"{found['pid']} {begun.pop(found['pid'])}{found['end']}"
        if (found := _LINE.match(line)) and int(found["result"]) >= 0:
            calls.append(Call(found["name"], found["args"], int(found["result"])))
    return calls


@dataclass(eq=False)
class File:
    """The bytes of a file: the synced content, and the writes since."""

    synced: bytes = b""
    since: list[tuple[int, bytes | None]] = field(default_factory=list)
    """(offset, data) for a write, (size, None) for a cut."""

    def after(self, keep: random.Random | None) -> bytes:
        """Return the content after a power cut: only the synced bytes, or also some of the unsynced pages."""
        data = bytearray(self.synced)
        for offset, written in self.since if keep else ():
            if written is None:
                if keep and keep.random() < 0.5:
                    _resize(data, offset)
                continue
            for start in range(0, len(written), _PAGE):
                if keep and keep.random() < 0.5:
                    _put(data, offset + start, written[start : start + _PAGE])
        return bytes(data)

    def sync(self) -> None:
        self.synced = bytes(self.now())
        self.since.clear()

    def now(self) -> bytearray:
        data = bytearray(self.synced)
        for offset, written in self.since:
            if written is None:
                _resize(data, offset)
            else:
                _put(data, offset, written)
        return data


def _resize(data: bytearray, size: int) -> None:
    del data[size:]
    data.extend(bytes(size - len(data)))


def _put(data: bytearray, offset: int, written: bytes) -> None:
    if len(data) < offset:
        data.extend(bytes(offset - len(data)))
    data[offset : offset + len(written)] = written


@dataclass(eq=False)
class Folder:
    """A folder and its current entries."""

    entries: dict[bytes, File | Folder] = field(default_factory=dict)


@dataclass(eq=False)
class Change:
    """One atomic change of names: the new target of each entry (None: removed)."""

    entries: list[tuple[Folder, bytes, File | Folder | None]]
    safe: bool = False


class Disk:
    """The files below one folder, as the system calls of a process left them."""

    def __init__(self, root: Path) -> None:
        """Start with an empty, durable folder; files outside of it are ignored."""
        self.root = bytes(root)
        self.top = Folder()
        self.changes: list[Change] = []
        self.open: dict[int, tuple[File | Folder, int]] = {}

    # --- names

    def _find(self, path: bytes) -> File | Folder | None:
        if path == self.root:
            return self.top
        folder, name = self._parent(path)
        return folder.entries.get(name) if folder else None

    def _parent(self, path: bytes) -> tuple[Folder | None, bytes]:
        if not path.startswith(self.root + b"/"):
            return None, b""
        *above, name = path[len(self.root) + 1 :].split(b"/")
        folder: File | Folder | None = self.top
        for part in above:
            assert isinstance(folder, Folder), path
            folder = folder.entries.get(part)
        assert isinstance(folder, Folder), path
        return folder, name

    def _change(self, *entries: tuple[bytes, File | Folder | None]) -> None:
        steps = []
        for path, became in entries:
            folder, name = self._parent(path)
            if folder is not None:
                steps.append((folder, name, became))
        for folder, name, became in steps:
            if became is None:
                folder.entries.pop(name, None)
            else:
                folder.entries[name] = became
        if steps:
            self.changes.append(Change(steps))

    def _sync_names(self, folder: Folder) -> None:
        """Make every change of this folder durable, and earlier changes in the folders that share a change with it."""
        touched = {folder}
        for change in reversed(self.changes):
            folders = {one for one, _, _ in change.entries}
            if folders & touched:
                change.safe = True
                touched |= folders

    # --- calls

    def feed(self, call: Call) -> None:
        """Replay one call."""
        act = getattr(self, f"_{call.name}", None)
        assert act is not None, f"the model does not know {call.name}"
        act(call)

    def new_process(self) -> None:
        """Forget the open files of a process that ended."""
        self.open.clear()

    def _openat(self, call: Call) -> None:
        path = call.strings[0]
        if not path.startswith(b"/"):
            self.open.pop(call.result, None)
            return
        found = self._find(path) if path.startswith(self.root) else None
        if found is None and path.startswith(self.root + b"/"):
            assert "O_CREAT" in call.args, call
            found = File()
            self._change((path, found))
        if isinstance(found, File) and "O_TRUNC" in call.args:
            found.since.append((0, None))
        if found is None:
            self.open.pop(call.result, None)
        else:
            self.open[call.result] = (found, 0)

    _open = _openat

    def _write(self, call: Call) -> None:
        if call.fd in self.open:
            file, at = self.open[call.fd]
            assert isinstance(file, File)
            file.since.append((at, call.strings[-1][: call.result]))
            self.open[call.fd] = (file, at + call.result)

    def _pwrite64(self, call: Call) -> None:
        if call.fd in self.open:
            file, _ = self.open[call.fd]
            assert isinstance(file, File)
            file.since.append((call.last_number, call.strings[-1][: call.result]))

    def _fsync(self, call: Call) -> None:
        one, _ = self.open.get(call.fd, (None, 0))
        if isinstance(one, Folder):
            self._sync_names(one)
        elif one is not None:
            one.sync()

    _fdatasync = _fsync

    def _ftruncate(self, call: Call) -> None:
        if call.fd in self.open:
            file, _ = self.open[call.fd]
            assert isinstance(file, File)
            file.since.append((call.last_number, None))

    def _mkdir(self, call: Call) -> None:
        self._change((call.strings[0], Folder()))

    def _rmdir(self, call: Call) -> None:
        self._change((call.strings[0], None))

    _unlink = _rmdir

    def _link(self, call: Call) -> None:
        self._change((call.strings[1], self._find(call.strings[0])))

    def _rename(self, call: Call) -> None:
        source, target = call.strings
        self._change((target, self._find(source)), (source, None))

    def _renameat2(self, call: Call) -> None:
        source, target = call.strings
        if "RENAME_EXCHANGE" in call.args:
            self._change((target, self._find(source)), (source, self._find(target)))
        else:
            self._rename(call)

    # --- the power cut

    def cut(self, target: Path, keep: random.Random | None = None) -> None:
        """Write the remaining content into a folder: only the durable part, or some of the rest as well."""
        upto = keep.randrange(len(self.changes) + 1) if keep else 0
        entries: dict[Folder, dict[bytes, File | Folder]] = {}
        for number, change in enumerate(self.changes):
            if not change.safe and number >= upto:
                continue
            for folder, name, became in change.entries:
                there = entries.setdefault(folder, {})
                if became is None:
                    there.pop(name, None)
                else:
                    there[name] = became
        self._write_out(self.top, target, entries, keep)

    def _write_out(
        self,
        folder: Folder,
        target: Path,
        entries: dict[Folder, dict[bytes, File | Folder]],
        keep: random.Random | None,
    ) -> None:
        target.mkdir(mode=0o700, parents=True, exist_ok=True)
        for raw, one in entries.get(folder, {}).items():
            name = raw.decode()
            if isinstance(one, Folder):
                self._write_out(one, target / name, entries, keep)
            elif not name.endswith("-shm"):  # SQLite recreates it; its bytes never went through a write.
                (target / name).write_bytes(one.after(keep))
                (target / name).chmod(0o600)


def acknowledgements(calls: list[Call]) -> Iterator[tuple[int, bytes]]:
    """Yield (position, line) of everything that the process wrote to standard output."""
    for at, call in enumerate(calls):
        if call.name == "write" and call.fd == 1:
            yield at, call.strings[-1]

"""Folders outside the home: reading Markdown from them, and writing an export so that it is never half of a file.

A folder that we exported to has the file `.commonbook-export`. It names every content that we wrote there, so
that the next export knows its own files from those that somebody else put there or changed.
"""

from __future__ import annotations

import errno
import json
import os
import unicodedata
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from hashlib import sha256
from pathlib import PurePosixPath
from typing import Final, Literal

from commonbook.engines.disk import archives
from commonbook.engines.disk.archives import LARGEST, MARKER, MARKER_TEXT, finding, is_markdown, too_large
from commonbook.engines.disk.ignore_file import Ignored
from commonbook.errors import BadInput, CommonbookError, Conflict, DiskFull, NotFound
from commonbook.model.reports import Finding
from commonbook.ports.files import ExportTarget, SourceFile

_IGNORE_FILE: Final = ".commonbookignore"
_PART: Final = MARKER + ".part"


class ExternalFolder:
    """The Outside port on the local file system."""

    def __init__(self, home: str | None) -> None:
        """Keep clear of this home, if there is one."""
        self._home = None if home is None else os.path.realpath(home)

    def source(self, place: str) -> str:
        """Return the real path of what is to be read."""
        real = os.path.realpath(place)
        if not os.path.exists(real):
            raise NotFound(f"there is no {place}", fix="name a folder, a Markdown file or an archive that is there")
        if archives.kind_of(real) and not os.path.isdir(real):
            return real
        if self._is_inside(real):
            raise BadInput(
                f"{place} lies in the home itself",
                fix="what is in the home's folder is taken in already; `commonbook doctor` names what could not be",
            )
        if not os.path.isdir(real) and not is_markdown(real):
            raise BadInput(
                f"{place} is neither a folder nor a Markdown file nor an archive",
                fix="name a folder, an .md file, or a .zip, .tar, .tar.gz or .tgz",
            )
        return real

    def files(self, place: str, *, only: Collection[str] | None = None) -> Iterator[SourceFile | Finding]:
        """Yield the Markdown files of a folder by path, of an archive as they stand in it."""
        real = self.source(place)
        if os.path.isdir(real):
            yield from self._folder(real, only)
        elif archives.kind_of(real):
            yield from archives.files(real, only=only)
        else:
            yield _read(real, os.path.basename(real))

    @contextmanager
    def target(self, place: str) -> Iterator[ExportTarget]:
        """Open a folder or, by the ending of the name, an archive to write to."""
        real = os.path.realpath(place)
        if self._is_inside(real):
            raise BadInput(f"{place} lies in the home itself", fix="export to a place outside of the home")
        with _typed(place):
            if archives.kind_of(real) and not os.path.isdir(real):
                with archives.writing(real) as archive:
                    yield archive
            else:
                with closing(FolderTarget(real)) as folder:
                    yield folder
                    folder.finish()

    def _is_inside(self, real: str) -> bool:
        home = self._home
        return home is not None and (real == home or real.startswith(home.rstrip(os.sep) + os.sep))

    # --- a folder to read

    def _folder(self, top: str, only: Collection[str] | None) -> Iterator[SourceFile | Finding]:
        places: dict[str, str] = {}
        yield from self._walk(top, places)
        for path in sorted(places):
            if only is None or path in only:
                yield _read(places[path], path)

    def _walk(self, top: str, places: dict[str, str]) -> Iterator[Finding]:
        """Find Markdown files: nothing hidden or ignored, no links, and not the home if it lies below."""
        ignored = _ignored(top)
        folders = [(top, "")]
        while folders:
            folder, prefix = folders.pop()
            try:
                entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
            except OSError as error:
                yield finding(_shown(prefix) or ".", f"the folder cannot be read: {error.strerror}", "mend its rights")
                continue
            for entry in entries:
                path = unicodedata.normalize("NFC", prefix + entry.name)
                if entry.name[0] == ".":
                    continue
                if entry.is_dir(follow_symlinks=False):
                    if not ignored.folder(path) and entry.path != self._home:
                        folders.append((entry.path, prefix + entry.name + "/"))
                elif is_markdown(path) and entry.is_file(follow_symlinks=False) and not ignored.file(path):
                    if path != _shown(path):
                        yield finding(_shown(path), "the name of the file is not valid UTF-8", "rename it")
                    else:
                        places[path] = entry.path


def _ignored(top: str) -> Ignored:
    try:
        with open(os.path.join(top, _IGNORE_FILE), encoding="utf-8", errors="replace") as file:
            return Ignored(file.read())
    except OSError:
        return Ignored("")


def _shown(path: str) -> str:
    return path.encode("utf-8", "replace").decode()


def _read(place: str, path: str) -> SourceFile | Finding:
    try:
        fd = os.open(place, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(fd, "rb") as file:
            data = file.read(LARGEST + 1)
            mtime_ns = os.fstat(file.fileno()).st_mtime_ns
    except OSError as error:
        return finding(path, f"the file cannot be read: {error.strerror}", "mend its rights, then import again")
    if len(data) > LARGEST:
        return too_large(path)
    return SourceFile(path, mtime_ns, data)


# --- a folder to write


class FolderTarget:
    """A folder that mirrors what is exported: our files of an earlier export go, what others changed stays."""

    def __init__(self, top: str) -> None:
        """Use the folder, which is new, empty, or one that we exported to before."""
        self._top = top
        self._marker = os.path.join(top, MARKER)
        self._require_ours()
        os.makedirs(top, exist_ok=True)
        self._before = self._known()
        self._now: dict[str, str] = {}
        self._folders = {os.path.dirname(top), top}
        self._notes = open(self._marker, "a", encoding="utf-8")  # noqa: SIM115 - open until finish
        if not self._before:
            self._note(MARKER_TEXT)

    def put(self, path: str, data: bytes, *, changed: datetime) -> Literal["new", "changed", "same", "foreign"]:
        """Write one file in one step, unless somebody else changed what is there."""
        self._now[path] = hash_ = sha256(data).hexdigest()
        place = self._ensure_folders(path)
        present = _hash(place)
        if present == hash_:
            self._note([path, hash_])
            return "same"
        if present is not None and present not in self._before.get(path, ()):
            del self._now[path]
            return "foreign"
        # Noted first: if we are killed right after the rename, the next export still knows the file as ours.
        self._note([path, hash_])
        _write(os.path.join(self._top, _PART), data, changed)
        os.replace(os.path.join(self._top, _PART), place)
        return "changed" if present else "new"

    def finish(self) -> None:
        """Remove what is no longer exported and make everything durable."""
        for path in sorted(self._before.keys() - self._now.keys()):
            place = os.path.join(self._top, path)
            if os.path.realpath(place) == place and _hash(place) in self._before[path]:
                os.unlink(place)
                self._prune(os.path.dirname(place))
        lines = [MARKER_TEXT, *([path, hash_] for path, hash_ in sorted(self._now.items()))]
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        _write(os.path.join(self._top, _PART), text.encode(), None)
        os.replace(os.path.join(self._top, _PART), self._marker)
        for folder in self._folders:
            _sync_folder(folder)

    def close(self) -> None:
        """Let go of the notes."""
        self._notes.close()

    def _require_ours(self) -> None:
        try:
            if os.listdir(self._top) and not os.path.isfile(self._marker):
                raise Conflict(
                    f"{self._top} is not empty, and nothing says that an export made it",
                    fix="export to a new folder, or to an archive such as memories.zip",
                )
        except FileNotFoundError:
            return
        except NotADirectoryError:
            raise Conflict(f"{self._top} is a file", fix="name a folder, or a .zip, .tar, .tar.gz or .tgz") from None

    def _known(self) -> dict[str, set[str]]:
        """Return every content that we wrote at each path; a line that a crash cut short is none."""
        known: dict[str, set[str]] = {}
        with suppress(FileNotFoundError), open(self._marker, encoding="utf-8") as file:
            for line in file:
                with suppress(ValueError):
                    said = json.loads(line)
                    if isinstance(said, list) and len(said) == 2 and _stays_below(str(said[0])):
                        known.setdefault(str(said[0]), set()).add(str(said[1]))
        return known

    def _note(self, line: object) -> None:
        self._notes.write(json.dumps(line, ensure_ascii=False) + "\n")
        self._notes.flush()

    def _ensure_folders(self, path: str) -> str:
        """Make the folders above a file, each a real one, and return where the file goes."""
        folder = self._top
        for part in path.split("/")[:-1]:
            folder = os.path.join(folder, part)
            if folder not in self._folders:
                with suppress(FileExistsError):
                    os.mkdir(folder)
                if os.path.islink(folder) or not os.path.isdir(folder):
                    raise Conflict(f"{folder} is a link or a file, not a folder", fix="move it away")
                self._folders.add(folder)
        return os.path.join(self._top, path)

    def _prune(self, folder: str) -> None:
        while folder != self._top:
            try:
                os.rmdir(folder)
            except OSError:
                return
            self._folders.discard(folder)
            folder = os.path.dirname(folder)
            self._folders.add(folder)


def _stays_below(path: str) -> bool:
    return not path.startswith("/") and ".." not in PurePosixPath(path).parts


def _hash(place: str) -> str | None:
    """Return the hash of what is at a place; a link or a folder has one that nothing else has."""
    if not os.path.lexists(place):
        return None
    if os.path.islink(place) or not os.path.isfile(place):
        return "not a file"
    with open(place, "rb") as file:
        return sha256(file.read()).hexdigest()


def _write(place: str, data: bytes, changed: datetime | None) -> None:
    with open(place, "wb") as file:
        file.write(data)
        file.flush()
        if changed is not None:
            os.utime(file.fileno(), (changed.timestamp(), changed.timestamp()))
        os.fsync(file.fileno())


def _sync_folder(folder: str) -> None:
    with suppress(FileNotFoundError, PermissionError):
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


@contextmanager
def _typed(place: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _translated(error, place) from error


def _translated(error: OSError, place: str) -> CommonbookError:
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return DiskFull(f"there is no room left for {place}", fix="free some space, or export to another disk")
    return BadInput(f"{place} cannot be written: {error.strerror}", fix="choose another place, or mend its rights")

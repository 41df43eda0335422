"""The format of a backup: the files of a folder with a list of their hashes, in a tar archive or in a folder.

The list, `.commonbook/backup.json`, is written last. So a backup that was cut off has none, and a changed or missing
file is found when the backup is read.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from hashlib import sha256
from io import BytesIO
from typing import IO, Final, NamedTuple, Protocol, cast

from commonbook.engines.disk.durable_files import sync_folder
from commonbook.errors import BadFile

LIST_NAME: Final = ".commonbook/backup.json"
_FORMAT: Final = 1
_MAX_LIST_BYTES: Final = 1 << 30
_CHUNK_BYTES: Final = 1 << 20
_TAR_ENDINGS: Final = (".tar", ".tar.gz", ".tgz")
_GZIP_ENDINGS: Final = (".tar.gz", ".tgz")
_OTHER_ARCHIVES: Final = (".zip", ".gz", ".bz2", ".xz", ".zst", ".7z", ".rar")
_UNREADABLE: Final = (tarfile.TarError, zlib.error, EOFError, gzip.BadGzipFile)
_IMPOSSIBLE_ENTRY: Final = (FileNotFoundError, FileExistsError, NotADirectoryError, ValueError, OverflowError)
"""A name in a folder that no entry has made, a name that occurs twice, a name or a time that no system has."""


class Entry(NamedTuple):
    """A file or folder of a backup, by its path from the top."""

    name: str
    is_folder: bool
    mode: int
    modified: float
    size: int = 0


class BackupList(NamedTuple):
    """The list of a backup: when it was made, the size and hash of each file, and why others were left out."""

    made: str
    version: str
    files: dict[str, tuple[int, str]]
    left_out: dict[str, str]


class Writer(Protocol):
    """Writes the entries of a backup."""

    def add(self, entry: Entry, content: IO[bytes]) -> None:
        """Write a file of this size, or a folder."""
        ...

    def close(self) -> None:
        """Finish, and sync everything."""
        ...


def is_archive(path: str) -> bool:
    """Return whether a backup of this name is an archive; else it is a folder. BadFile if the archive is of no kind."""
    name = path.lower()
    if name.endswith(_TAR_ENDINGS):
        return True
    if name.endswith(_OTHER_ARCHIVES):
        raise BadFile(f"{path}: a backup is a folder or a tar archive", fix="end its name with .tar or .tar.gz")
    return False


def compress_if_named(source: str, target: str) -> str:
    """Compress an archive if its final name asks for it, and return the path of the result."""
    if not target.lower().endswith(_GZIP_ENDINGS):
        return source
    compressed = f"{source}.gz"
    with (
        open(source, "rb") as plain,
        _new_file(compressed) as file,
        gzip.GzipFile(filename="", mode="wb", fileobj=file, compresslevel=6, mtime=0) as packed,
    ):
        shutil.copyfileobj(plain, packed, _CHUNK_BYTES)
        packed.close()
        _sync(file)
    os.unlink(source)
    return compressed


# --- writing


class TarWriter:
    """Writes a tar archive."""

    def __init__(self, file: IO[bytes]) -> None:
        """Write to a file that is open."""
        self._file = file
        self._archive = tarfile.TarFile(fileobj=self._file, mode="w", format=tarfile.PAX_FORMAT)

    def add(self, entry: Entry, content: IO[bytes]) -> None:
        """Write a file of this size, or a folder."""
        member = tarfile.TarInfo(entry.name)
        member.mode, member.mtime, member.size = entry.mode, entry.modified, entry.size
        if entry.is_folder:
            member.type = tarfile.DIRTYPE
            self._archive.addfile(member)
        else:
            self._archive.addfile(member, content)

    def close(self) -> None:
        """Finish the archive, and sync it."""
        self._archive.close()
        _sync(self._file)


class FolderWriter:
    """Writes files into a folder that is new."""

    def __init__(self, path: str) -> None:
        """Make the folder, which nobody else may read."""
        self._path = path
        os.mkdir(path, 0o700)
        self._folders: list[Entry] = []

    def add(self, entry: Entry, content: IO[bytes]) -> None:
        """Write and sync a file of this size, or make a folder."""
        place = os.path.join(self._path, entry.name)
        if entry.is_folder:
            os.mkdir(place, 0o700)
            self._folders.append(entry)
            return
        with _new_file(place) as file:
            shutil.copyfileobj(content, file, _CHUNK_BYTES)
            os.fchmod(file.fileno(), entry.mode)
            os.utime(file.fileno(), (entry.modified, entry.modified))
            _sync(file)

    def close(self) -> None:
        """Give the folders their modes and times, and sync them."""
        for entry in reversed(self._folders):
            place = os.path.join(self._path, entry.name)
            os.chmod(place, entry.mode | 0o700)
            os.utime(place, (entry.modified, entry.modified))
            sync_folder(place)
        sync_folder(self._path)


@contextmanager
def new_backup(path: str, *, archived: bool) -> Iterator[ListedWriter]:
    """Make a backup that nobody else may read, as an archive or a folder; its writer's `finish` completes it."""
    if archived:
        with _new_file(path) as file:
            yield ListedWriter(TarWriter(file))
    else:
        yield ListedWriter(FolderWriter(path))


class ListedWriter:
    """Writes entries through another writer, and the list of them at the end."""

    def __init__(self, writer: Writer) -> None:
        """Begin with an empty list."""
        self._writer = writer
        self.files: dict[str, tuple[int, str]] = {}

    def add(self, entry: Entry, content: IO[bytes]) -> None:
        """Write a file or a folder, and note the hash of a file."""
        hashing = _HashingReader(content)
        self._writer.add(entry, cast("IO[bytes]", hashing))
        if not entry.is_folder:
            self.files[entry.name] = (entry.size, hashing.digest())

    def finish(self, *, made: str, modified: float, version: str, left_out: dict[str, str]) -> BackupList:
        """Write the list, and sync everything."""
        result = BackupList(made, version, self.files, left_out)
        data = json.dumps({"format": _FORMAT, **result._asdict()}, ensure_ascii=True, indent=1).encode()
        self._writer.add(
            Entry(LIST_NAME, is_folder=False, mode=0o600, modified=modified, size=len(data)), BytesIO(data)
        )
        self._writer.close()
        return result


# --- reading


def read_backup(
    path: str, writer: Writer | None = None, *, on_file: Callable[[int], None] = lambda _count: None
) -> BackupList:
    """Read a whole backup, compare each file with the list, and hand all entries to a writer, if there is one.

    BadFile if the path is not a backup, or names the first file that is missing, changed or not in the list.
    """
    try:
        return _read(path, writer, on_file)
    except _UNREADABLE as error:
        raise _damaged(path, f"it cannot be read to its end ({error})") from error


def _read(path: str, writer: Writer | None, on_file: Callable[[int], None]) -> BackupList:
    hashes: dict[str, tuple[int, str]] = {}
    backup_list: BackupList | None = None
    for entry, content in _entries(path):
        _require_plain_name(path, entry.name)
        if entry.name == LIST_NAME:
            backup_list = _parse_list(path, content.read(_MAX_LIST_BYTES))
            continue
        hashing = _HashingReader(content)
        if writer is not None:
            try:
                writer.add(entry, cast("IO[bytes]", hashing))
            except _IMPOSSIBLE_ENTRY as error:
                raise _damaged(path, f"{entry.name!r} cannot be made ({error})") from error
        if not entry.is_folder:
            hashing.read_to_end()
            hashes[entry.name] = (hashing.size, hashing.digest())
            on_file(len(hashes))
    if backup_list is None:
        raise BadFile(f"{path} is no backup, or only a part of one", fix="name what `commonbook backup` has made")
    _compare(path, backup_list.files, hashes)
    if writer is not None:
        writer.close()
    return backup_list


def _entries(path: str) -> Iterator[tuple[Entry, IO[bytes]]]:
    if os.path.isdir(path):
        yield from _folder_entries(path)
    elif os.path.isfile(path):
        yield from _tar_entries(path)
    else:
        raise BadFile(f"there is no backup at {path}", fix="name the file or folder that `commonbook backup` has made")


def _tar_entries(path: str) -> Iterator[tuple[Entry, IO[bytes]]]:
    try:
        archive = tarfile.open(path)  # noqa: SIM115 - closed below
    except tarfile.ReadError as error:
        raise BadFile(
            f"{path} is no backup: it is no tar archive", fix="name what `commonbook backup` has made"
        ) from error
    with closing(archive):
        for member in archive:
            entry = Entry(member.name, member.isdir(), member.mode & 0o777, float(member.mtime), member.size)
            if member.isdir():
                yield entry, BytesIO()
            elif content := archive.extractfile(member) if member.isfile() else None:
                yield entry, content
            else:
                raise _damaged(path, f"{member.name} is neither a file nor a folder")
        # The checksum of a compressed archive stands at its end, behind all entries.
        while archive.fileobj.read(_CHUNK_BYTES):
            pass


def _folder_entries(path: str) -> Iterator[tuple[Entry, IO[bytes]]]:
    for folder, names, files in os.walk(path):
        names.sort()
        for name in [*names, *sorted(files)]:
            place = os.path.join(folder, name)
            status = os.lstat(place)
            is_folder = name in names
            entry = Entry(
                os.path.relpath(place, path), is_folder, status.st_mode & 0o777, status.st_mtime, status.st_size
            )
            if os.path.islink(place) or not (is_folder or os.path.isfile(place)):
                raise _damaged(path, f"{entry.name} is neither a file nor a folder")
            if is_folder:
                yield entry, BytesIO()
            else:
                with open(place, "rb") as content:
                    yield entry, content


def _require_plain_name(path: str, name: str) -> None:
    """Refuse a name that leads out of the folder into which the backup is restored."""
    if not name or name.startswith("/") or os.path.normpath(name) != name or ".." in name.split("/"):
        raise _damaged(path, f"the name {name!r} leads elsewhere")


def _parse_list(path: str, data: bytes) -> BackupList:
    try:
        values = json.loads(data)
        if values["format"] != _FORMAT:
            raise BadFile(
                f"{path} was made by another version ({values['version']})", fix="restore it with that version"
            )
        files = {name: (int(size), str(digest)) for name, (size, digest) in values["files"].items()}
        return BackupList(str(values["made"]), str(values["version"]), files, dict(values["left_out"]))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(path, f"{LIST_NAME} cannot be read") from error


def _compare(path: str, listed: dict[str, tuple[int, str]], found: dict[str, tuple[int, str]]) -> None:
    for name in sorted(listed.keys() | found.keys()):
        if name not in found:
            raise _damaged(path, f"{name} is missing")
        if name not in listed:
            raise _damaged(path, f"{name} was added")
        if listed[name] != found[name]:
            raise _damaged(path, f"{name} has changed")


def _damaged(path: str, reason: str) -> BadFile:
    return BadFile(
        f"{path} is not as it was when the backup was made: {reason}",
        fix="use another backup; a folder that was opened as a home is one already: use it with --home",
    )


class _HashingReader:
    """Reads from a file, and hashes what it has read."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._hash, self.size = file, sha256(), 0

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self._hash.update(data)
        self.size += len(data)
        return data

    def read_to_end(self) -> None:
        while self.read(_CHUNK_BYTES):
            pass

    def digest(self) -> str:
        return self._hash.hexdigest()


def _new_file(path: str) -> IO[bytes]:
    """Make a file that nobody else may read, before there is anything in it."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb")


def _sync(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())

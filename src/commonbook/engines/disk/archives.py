"""Reads and writes archives of Markdown files (.zip, .tar, .tar.gz, .tgz).

Archives are read member by member, without unpacking. They are untrusted input: names that lead out of the archive,
links and devices are refused, and the bytes read are limited per member and per archive, also if the headers
declare other sizes. An archive is written to a temporary file and renamed into place, so that it is whole or absent.

The modules for archives are imported where they are used: every start would load them, and hardly any reads an archive.
"""

from __future__ import annotations

import fcntl
import glob
import os
import re
import stat as modes
import unicodedata
import zlib
from collections.abc import Callable, Container, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import UTC, datetime
from functools import cache
from io import BytesIO
from typing import IO, TYPE_CHECKING, Final, Protocol, cast

from commonbook.errors import BadFile, Conflict, TooLarge
from commonbook.ports.files import Outcome, SourceFile
from commonbook.values.memory import MAX_FRONT_BYTES, MAX_TEXT_BYTES
from commonbook.values.reports import Finding
from commonbook.values.spaces import is_space_file

if TYPE_CHECKING:
    import zipfile

MAX_FILE_BYTES: Final = MAX_TEXT_BYTES + MAX_FRONT_BYTES + 1024
MAX_ATTACHMENT_BYTES: Final = 100 * 1024 * 1024
MAX_ARCHIVE_BYTES: Final = 2 * 1024 * 1024 * 1024
MARKER: Final = ".commonbook-export"
MARKER_TEXT: Final = "An export of Commonbook; the next one to the same place replaces it."

VAULT_SETTINGS: Final = ".obsidian/templates.json"

_ENDINGS: Final = {".zip": "zip", ".tar": "tar", ".tar.gz": "gz", ".tgz": "gz"}
_MARKDOWN: Final = (".md", ".markdown")
_CONTROL_CHARACTERS: Final = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_DRIVE_LETTER: Final = re.compile(r"[A-Za-z]:")
# The range of times that a zip archive can hold; other times are clamped to it.
_EARLIEST_ZIP: Final = datetime(1980, 1, 1, tzinfo=UTC)
_LATEST_ZIP: Final = datetime(2107, 12, 31, 23, 59, 58, tzinfo=UTC)


@cache
def _damage_errors(*others: type[Exception]) -> tuple[type[Exception], ...]:
    """Return the errors of damaged archives, and the others."""
    import gzip
    import tarfile
    import zipfile

    return tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, gzip.BadGzipFile, *others


def kind_of(place: str) -> str | None:
    """Return the kind of archive that a file name stands for (zip, tar or gz), or None."""
    name = os.path.basename(place).lower()
    return next((kind for ending, kind in _ENDINGS.items() if name.endswith(ending)), None)


def is_markdown(path: str) -> bool:
    """Return whether a file with this name is Markdown."""
    return path.lower().endswith(_MARKDOWN)


def finding(where: str, why: str, fix: str) -> Finding:
    """Return the finding for a file that cannot be imported."""
    return Finding(what="not imported", where=where, why=why, fix=fix)


def too_large(path: str, limit: int = MAX_FILE_BYTES) -> Finding:
    """Return the finding for a file that is too large for a memory, or for an attachment."""
    fix = "split it into several" if is_markdown(path) else "copy it by hand, beside the notes that name it"
    return finding(path, f"the file has more than {limit:,} bytes", fix)


def is_vault_setting(path: str) -> bool:
    """Return whether a file names the folder of the templates of an Obsidian vault."""
    return path == VAULT_SETTINGS or path.endswith("/" + VAULT_SETTINGS)


# --- reading


def files(
    place: str,
    *,
    only: Container[str] | None = None,
    wanted: Callable[[str], bool] = is_markdown,
    limit: int = MAX_FILE_BYTES,
) -> Iterator[SourceFile | Finding]:
    """Yield the Markdown files of an archive, or others that are `wanted`, in the order of its members."""
    members = _zip_members if kind_of(place) == "zip" else _tar_members
    try:
        yield from members(place, only, wanted, limit)
    except _damage_errors() as error:
        raise BadFile(
            f"{place} is damaged, or not an archive: {error}", fix="create it again, or unpack it and import the folder"
        ) from error


def _zip_members(
    place: str, only: Container[str] | None, wanted: Callable[[str], bool], limit: int
) -> Iterator[SourceFile | Finding]:
    import zipfile

    with zipfile.ZipFile(place) as archive:
        # A replaced member is in the archive twice: the last one counts.
        members = {info.filename: info for info in archive.infolist() if not info.is_dir()}
        if sum(info.file_size for info in members.values() if wanted(info.filename)) > MAX_ARCHIVE_BYTES:
            raise _archive_too_large(place)
        for name, info in members.items():
            path = _check_member(name, wanted, regular=modes.S_IFMT(info.external_attr >> 16) in {0, modes.S_IFREG})
            if path is None or (isinstance(path, str) and only is not None and path not in only):
                continue
            if isinstance(path, Finding):
                yield path
            elif info.file_size > limit:
                yield too_large(path, limit)
            else:
                yield _read_zip_member(archive, info, path, limit)


def _read_zip_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: str, limit: int) -> SourceFile | Finding:
    try:
        with archive.open(info) as member:
            data = member.read(limit + 1)
    except _damage_errors(RuntimeError) as error:
        return finding(path, f"the member cannot be read: {error}", "create the archive again, without a password")
    if len(data) > limit:
        return too_large(path, limit)
    try:
        changed = datetime(*info.date_time, tzinfo=UTC)
    except ValueError:
        changed = _EARLIEST_ZIP
    return SourceFile(path, int(changed.timestamp()) * 1_000_000_000, data)


def _tar_members(
    place: str, only: Container[str] | None, wanted: Callable[[str], bool], limit: int
) -> Iterator[SourceFile | Finding]:
    import gzip
    import tarfile

    with ExitStack() as opened:
        raw: IO[bytes] = opened.enter_context(open(place, "rb"))
        if kind_of(place) == "gz":
            raw = cast("IO[bytes]", opened.enter_context(gzip.GzipFile(fileobj=raw)))
        stream = _BoundedStream(raw, place, 2 * max(limit, MAX_FILE_BYTES))
        archive = opened.enter_context(tarfile.open(fileobj=cast("IO[bytes]", stream), mode="r:"))
        for member in archive:
            path = None if member.isdir() else _check_member(member.name, wanted, regular=member.isreg())
            if path is None or (isinstance(path, str) and only is not None and path not in only):
                continue
            if isinstance(path, Finding):
                yield path
                continue
            file = archive.extractfile(member) if member.size <= limit else None
            if file is None:
                yield too_large(path, limit)
            else:
                yield SourceFile(path, int(member.mtime * 1_000_000_000), file.read(limit + 1))
        if stream.at_end:
            raise tarfile.ReadError("its end is missing")


class _BoundedStream:
    """A stream that limits the total number of bytes read and the size of a single read."""

    def __init__(self, raw: IO[bytes], place: str, max_read: int) -> None:
        self._raw = raw
        self._place = place
        self._max_read = max_read
        # A tar archive ends with empty blocks; one that reaches the end of the file without them was cut short.
        self.at_end = False

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= self._max_read or self._raw.tell() + size > MAX_ARCHIVE_BYTES:
            raise _archive_too_large(self._place)
        data = self._raw.read(size)
        self.at_end = not data
        return data

    def seek(self, offset: int, whence: int = 0) -> int:
        if offset > MAX_ARCHIVE_BYTES:
            raise _archive_too_large(self._place)
        return self._raw.seek(offset, whence)

    def tell(self) -> int:
        return self._raw.tell()


def _check_member(name: str, wanted: Callable[[str], bool], *, regular: bool) -> str | Finding | None:
    """Return the path of a member to import, a finding for a refused one, or None for one that is skipped."""
    path = unicodedata.normalize("NFC", name.replace("\\", "/")).removeprefix("./")
    shown = _CONTROL_CHARACTERS.sub("\ufffd", path)
    parts = path.split("/")
    if path.startswith("/") or _DRIVE_LETTER.match(path) or ".." in parts or shown != path:
        return finding(shown, "the name leads out of the archive's own folder", "create the archive again")
    if not regular:
        return finding(shown, "it is a link or a device, not a file", "put the file itself into the archive")
    seen = parts[:-1] if is_space_file(path) else parts
    hidden = any(not part or part[0] == "." for part in seen) and not is_vault_setting(path)
    if hidden or not wanted(path):
        return None
    return path


def _archive_too_large(place: str) -> TooLarge:
    return TooLarge(f"{place} unpacks to more than {MAX_ARCHIVE_BYTES:,} bytes", fix="split it into several archives")


def read_member(place: str, name: str) -> bytes | None:
    """Return the content of one member of a zip archive, None if it is missing, too large or damaged."""
    import zipfile

    try:
        with zipfile.ZipFile(place) as archive:
            info = archive.getinfo(name)
            return archive.read(info) if info.file_size <= MAX_ATTACHMENT_BYTES else None
    except _damage_errors(KeyError, OSError, RuntimeError):
        return None


# --- writing


class _ArchiveWriter(Protocol):
    def add(self, path: str, data: bytes, changed: datetime) -> None: ...

    def close(self) -> None: ...


class ArchiveTarget:
    """The ExportTarget port: an archive that is being written."""

    def __init__(self, archive: _ArchiveWriter) -> None:
        """Write to this archive."""
        self._archive = archive

    def put(self, path: str, data: bytes, *, changed: datetime) -> Outcome:
        """Add one file."""
        self._archive.add(path, data, changed)
        return "new"


@contextmanager
def packing(place: str) -> Iterator[ArchiveTarget]:
    """Write a new zip archive that is only sent to somebody: it has no marker of an export, and is not synced."""
    with open(place, "xb") as file, closing(_ZipWriter(file)) as archive:
        yield ArchiveTarget(archive)


@contextmanager
def writing(place: str) -> Iterator[ArchiveTarget]:
    """Write an archive to a temporary file and rename it into place when it is whole.

    Raises Conflict when the name is taken by anything but an earlier export.
    """
    _require_own_export(place)
    folder, name = os.path.split(place)
    os.makedirs(folder, exist_ok=True)
    _remove_abandoned_parts(folder, name)
    part = os.path.join(folder, f".{name}.{os.urandom(6).hex()}.part")
    try:
        with open(part, "xb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            archive = _ZipWriter(file) if kind_of(place) == "zip" else _TarWriter(file, kind_of(place) == "gz")
            try:
                archive.add(MARKER, f"{MARKER_TEXT}\n".encode(), _EARLIEST_ZIP)
                yield ArchiveTarget(archive)
            finally:
                archive.close()
            file.flush()
            os.fsync(file.fileno())
            os.replace(part, place)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(part)
        raise
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _require_own_export(place: str) -> None:
    import tarfile
    import zipfile

    if not os.path.lexists(place):
        return
    try:
        if kind_of(place) == "zip":
            with zipfile.ZipFile(place) as archive:
                is_export = archive.namelist()[:1] == [MARKER]
        else:
            with tarfile.open(place) as archive:
                first = archive.next()
                is_export = first is not None and first.name == MARKER
    except _damage_errors(OSError):
        is_export = False
    if not is_export:
        raise Conflict(f"{place} exists already, and is not an export of Commonbook", fix="choose another name")


def _remove_abandoned_parts(folder: str, name: str) -> None:
    """Remove the temporary files of exports that were killed; a running export holds the lock of its file."""
    for part in glob.glob(os.path.join(glob.escape(folder), f".{glob.escape(name)}.*.part")):
        with suppress(OSError), open(part, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(part)


class _ZipWriter:
    def __init__(self, file: IO[bytes]) -> None:
        from zipfile import ZIP_DEFLATED, ZipFile

        self._zip = ZipFile(file, "w", ZIP_DEFLATED)

    def add(self, path: str, data: bytes, changed: datetime) -> None:
        import zipfile

        at = min(max(changed.astimezone(UTC), _EARLIEST_ZIP), _LATEST_ZIP)
        info = zipfile.ZipInfo(path, at.timetuple()[:6])
        info.compress_type = zipfile.ZIP_DEFLATED
        info.create_system = 3
        info.external_attr = (modes.S_IFREG | 0o644) << 16
        self._zip.writestr(info, data)

    def close(self) -> None:
        self._zip.close()


class _TarWriter:
    def __init__(self, file: IO[bytes], zipped: bool) -> None:  # noqa: FBT001 - called once, above
        import gzip
        import tarfile

        # No name and no time in the gzip header, so that the same memories give the same bytes.
        self._gzip = gzip.GzipFile("", "wb", fileobj=file, mtime=0) if zipped else None
        stream = cast("IO[bytes]", self._gzip) if self._gzip else file
        self._tar = tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT)  # noqa: SIM115 - until close

    def add(self, path: str, data: bytes, changed: datetime) -> None:
        from tarfile import TarInfo

        info = TarInfo(path)
        info.size = len(data)
        info.mtime = int(changed.timestamp())
        info.mode = 0o644
        self._tar.addfile(info, BytesIO(data))

    def close(self) -> None:
        try:
            self._tar.close()
        finally:
            if self._gzip:
                self._gzip.close()

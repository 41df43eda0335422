"""Archives of Markdown: .zip, .tar, .tar.gz and .tgz, read without unpacking and written whole or not at all.

Nothing in an archive is believed: names that lead elsewhere, links and devices are refused, and no more is read
of a member, or of the archive, than is allowed, whatever sizes it declares.
"""

from __future__ import annotations

import fcntl
import glob
import gzip
import os
import re
import secrets
import stat as modes
import tarfile
import unicodedata
import zipfile
import zlib
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from io import BytesIO
from typing import IO, Final, Literal, Protocol, cast

from commonbook.errors import BadFile, Conflict, TooLarge
from commonbook.model.memory import MAX_FRONT_BYTES, MAX_TEXT_BYTES
from commonbook.model.reports import Finding
from commonbook.ports.files import SourceFile

LARGEST: Final = MAX_TEXT_BYTES + MAX_FRONT_BYTES + 1024
TOTAL: Final = 2 * 1024 * 1024 * 1024
MARKER: Final = ".commonbook-export"
MARKER_TEXT: Final = "An export of Commonbook; the next one to the same place replaces it."

_ENDINGS: Final = {".zip": "zip", ".tar": "tar", ".tar.gz": "gz", ".tgz": "gz"}
_MARKDOWN: Final = (".md", ".markdown")
_CONTROLS: Final = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_DRIVE: Final = re.compile(r"[A-Za-z]:")
# What the times of a zip archive can say; what lies beyond comes as near as it can.
_EARLIEST_ZIP: Final = datetime(1980, 1, 1, tzinfo=UTC)
_LATEST_ZIP: Final = datetime(2107, 12, 31, 23, 59, 58, tzinfo=UTC)
_BROKEN: Final = (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, gzip.BadGzipFile)


def kind_of(place: str) -> str | None:
    """Return which kind of archive a name means, or None."""
    name = os.path.basename(place).lower()
    return next((kind for ending, kind in _ENDINGS.items() if name.endswith(ending)), None)


def is_markdown(path: str) -> bool:
    """Tell whether a name is that of a Markdown file."""
    return path.lower().endswith(_MARKDOWN)


def finding(where: str, why: str, fix: str) -> Finding:
    """Return what is said of a file that cannot be taken."""
    return Finding(what="not imported", where=where, why=why, fix=fix)


def too_large(path: str) -> Finding:
    """Return what is said of a file that is too large for a memory."""
    return finding(path, f"the file has more than {LARGEST:,} bytes", "split it into several")


# --- reading


def files(place: str, *, only: Collection[str] | None = None) -> Iterator[SourceFile | Finding]:
    """Yield the Markdown files of an archive in the order in which they stand in it."""
    members = _zip_members if kind_of(place) == "zip" else _tar_members
    try:
        yield from members(place, only)
    except _BROKEN as error:
        raise BadFile(
            f"{place} is damaged, or not an archive: {error}", fix="make it anew, or unpack it and import the folder"
        ) from error


def _zip_members(place: str, only: Collection[str] | None) -> Iterator[SourceFile | Finding]:
    with zipfile.ZipFile(place) as archive:
        # A member that was replaced stands in the archive twice: the last one counts.
        members = {info.filename: info for info in archive.infolist() if not info.is_dir()}
        if sum(info.file_size for info in members.values() if is_markdown(info.filename)) > TOTAL:
            raise _too_much(place)
        for name, info in members.items():
            path = _checked(name, regular=modes.S_IFMT(info.external_attr >> 16) in {0, modes.S_IFREG})
            if path is None or (isinstance(path, str) and only is not None and path not in only):
                continue
            if isinstance(path, Finding):
                yield path
            elif info.file_size > LARGEST:
                yield too_large(path)
            else:
                yield _unzipped(archive, info, path)


def _unzipped(archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: str) -> SourceFile | Finding:
    try:
        with archive.open(info) as member:
            data = member.read(LARGEST + 1)
    except (RuntimeError, NotImplementedError, *_BROKEN) as error:
        return finding(path, f"the member cannot be read: {error}", "make the archive anew, without a password")
    if len(data) > LARGEST:
        return too_large(path)
    try:
        changed = datetime(*info.date_time, tzinfo=UTC)
    except ValueError:
        changed = _EARLIEST_ZIP
    return SourceFile(path, int(changed.timestamp()) * 1_000_000_000, data)


def _tar_members(place: str, only: Collection[str] | None) -> Iterator[SourceFile | Finding]:
    with ExitStack() as opened:
        raw: IO[bytes] = opened.enter_context(open(place, "rb"))
        if kind_of(place) == "gz":
            raw = cast("IO[bytes]", opened.enter_context(gzip.GzipFile(fileobj=raw)))
        bounded = _Bounded(raw, place)
        archive = opened.enter_context(tarfile.open(fileobj=cast("IO[bytes]", bounded), mode="r:"))
        for member in archive:
            path = None if member.isdir() else _checked(member.name, regular=member.isreg())
            if path is None or (isinstance(path, str) and only is not None and path not in only):
                continue
            if isinstance(path, Finding):
                yield path
                continue
            file = archive.extractfile(member) if member.size <= LARGEST else None
            if file is None:
                yield too_large(path)
            else:
                yield SourceFile(path, int(member.mtime * 1_000_000_000), file.read(LARGEST + 1))
        if bounded.at_end:
            raise tarfile.ReadError("its end is missing")


class _Bounded:
    """A stream that is never read beyond what an archive may hold, nor in one piece larger than a memory."""

    def __init__(self, raw: IO[bytes], place: str) -> None:
        self._raw = raw
        self._place = place
        # An archive ends with empty blocks; one that just stops was cut short.
        self.at_end = False

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= 2 * LARGEST or self._raw.tell() + size > TOTAL:
            raise _too_much(self._place)
        data = self._raw.read(size)
        self.at_end = not data
        return data

    def seek(self, offset: int, whence: int = 0) -> int:
        if offset > TOTAL:
            raise _too_much(self._place)
        return self._raw.seek(offset, whence)

    def tell(self) -> int:
        return self._raw.tell()


def _checked(name: str, *, regular: bool) -> str | Finding | None:
    """Return the path of a member that may be taken in, what is wrong with it, or None for what is left alone."""
    path = unicodedata.normalize("NFC", name.replace("\\", "/")).removeprefix("./")
    shown = _CONTROLS.sub("\ufffd", path)
    parts = path.split("/")
    if path.startswith("/") or _DRIVE.match(path) or ".." in parts or shown != path:
        return finding(shown, "the name leads out of the archive's own folder", "make the archive anew")
    if not regular:
        return finding(shown, "it is a link or a device, not a file", "put the file itself into the archive")
    if not is_markdown(path) or any(not part or part[0] == "." for part in parts):
        return None
    return path


def _too_much(place: str) -> TooLarge:
    return TooLarge(f"{place} unpacks to more than {TOTAL:,} bytes", fix="split it into several archives")


# --- writing


class _Archive(Protocol):
    def add(self, path: str, data: bytes, changed: datetime) -> None: ...

    def close(self) -> None: ...


class ArchiveTarget:
    """An archive that is being written."""

    def __init__(self, archive: _Archive) -> None:
        """Write to this one."""
        self._archive = archive

    def put(self, path: str, data: bytes, *, changed: datetime) -> Literal["new", "changed", "same", "foreign"]:
        """Add one file."""
        self._archive.add(path, data, changed)
        return "new"


@contextmanager
def writing(place: str) -> Iterator[ArchiveTarget]:
    """Write an archive beside its place and put it there when it is whole; an archive of others is left alone."""
    _require_ours(place)
    folder, name = os.path.split(place)
    os.makedirs(folder, exist_ok=True)
    _drop_abandoned(folder, name)
    part = os.path.join(folder, f".{name}.{secrets.token_hex(6)}.part")
    try:
        with open(part, "xb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            archive = _ZipArchive(file) if kind_of(place) == "zip" else _TarArchive(file, kind_of(place) == "gz")
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


def _require_ours(place: str) -> None:
    if not os.path.lexists(place):
        return
    try:
        if kind_of(place) == "zip":
            with zipfile.ZipFile(place) as archive:
                ours = archive.namelist()[:1] == [MARKER]
        else:
            with tarfile.open(place) as archive:
                first = archive.next()
                ours = first is not None and first.name == MARKER
    except (*_BROKEN, OSError):
        ours = False
    if not ours:
        raise Conflict(f"{place} is there already, and is no export of ours", fix="choose another name")


def _drop_abandoned(folder: str, name: str) -> None:
    """Remove what exports that were killed left; one that is still being written holds its lock."""
    for part in glob.glob(os.path.join(glob.escape(folder), f".{glob.escape(name)}.*.part")):
        with suppress(OSError), open(part, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(part)


class _ZipArchive:
    def __init__(self, file: IO[bytes]) -> None:
        self._zip = zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED)

    def add(self, path: str, data: bytes, changed: datetime) -> None:
        at = min(max(changed.astimezone(UTC), _EARLIEST_ZIP), _LATEST_ZIP)
        info = zipfile.ZipInfo(path, at.timetuple()[:6])
        info.compress_type = zipfile.ZIP_DEFLATED
        info.create_system = 3
        info.external_attr = (modes.S_IFREG | 0o644) << 16
        self._zip.writestr(info, data)

    def close(self) -> None:
        self._zip.close()


class _TarArchive:
    def __init__(self, file: IO[bytes], zipped: bool) -> None:  # noqa: FBT001 - called once, above
        # Neither a name nor a time in the header: the same memories give the same bytes.
        self._gzip = gzip.GzipFile("", "wb", fileobj=file, mtime=0) if zipped else None
        stream = cast("IO[bytes]", self._gzip) if self._gzip else file
        self._tar = tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT)  # noqa: SIM115 - until close

    def add(self, path: str, data: bytes, changed: datetime) -> None:
        info = tarfile.TarInfo(path)
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

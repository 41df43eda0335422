"""Reads Markdown files from folders outside the home, and writes exports to them; each file is replaced atomically.

An export folder has the marker file `.commonbook-export`. It lists the path and hash of every file that was exported
there, so that the next export tells its own files from those that others added or changed.

Lists everything in a home, with the reason why a scan skips an entry: hidden, ignored, a link or unreadable.
"""

from __future__ import annotations

import errno
import json
import os
import unicodedata
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from hashlib import sha256
from itertools import chain
from typing import Final

from commonbook.engines.disk import archives
from commonbook.engines.disk.archives import (
    MARKER,
    MARKER_TEXT,
    MAX_ATTACHMENT_BYTES,
    MAX_FILE_BYTES,
    VAULT_SETTINGS,
    finding,
    is_markdown,
    is_vault_setting,
    too_large,
)
from commonbook.engines.disk.home_folder import IgnorePatterns, folder_pattern, template_folder
from commonbook.errors import BadFile, BadInput, CommonbookError, Conflict, DiskFull, NotFound
from commonbook.ports.files import ExportTarget, HomeEntry, Outcome, SourceFile
from commonbook.values.reports import Finding
from commonbook.values.spaces import SPACE_FILE, is_space_file

_IGNORE_FILE: Final = ".commonbookignore"
_TEMPORARY: Final = MARKER + ".part"


class ExternalFolder:
    """The ports ExternalFiles and ArchiveFiles on the local file system."""

    def __init__(self, home: str | None) -> None:
        """Refuse paths inside this home, if there is one."""
        self._home = None if home is None else os.path.realpath(home)

    def source(self, place: str) -> str:
        """Return the real path of a source to import; raises an error if it cannot be one."""
        real = os.path.realpath(place)
        if not os.path.exists(real):
            raise NotFound(f"there is no {place}", fix="name a folder, a Markdown file or an archive that exists")
        if archives.kind_of(real) and not os.path.isdir(real):
            return real
        if self._is_inside(real):
            raise BadInput(
                f"{place} lies in the home itself",
                fix="files in the home are imported already; `commonbook doctor` names those that could not be",
            )
        if not os.path.isdir(real) and not is_markdown(real):
            raise BadInput(
                f"{place} is neither a folder nor a Markdown file nor an archive",
                fix="name a folder, an .md file, or a .zip, .tar, .tar.gz or .tgz",
            )
        return real

    def files(self, place: str, *, only: Container[str] | None = None) -> Iterator[SourceFile | Finding]:
        """Yield the Markdown files of a folder by path, or of an archive in the order of its members."""
        real = self.source(place)
        if os.path.isdir(real):
            yield from self._read_folder(real, only)
        elif archives.kind_of(real):
            yield from _known(archives.files(real, only=only), _marker_of_archive(real))
        else:
            yield _read(real, os.path.basename(real))

    def space_files(self, place: str) -> Iterator[SourceFile]:
        """Yield the files of a folder or an archive that make their folders spaces."""
        real = self.source(place)
        found: Iterator[SourceFile | Finding] = iter(())
        if os.path.isdir(real):
            places: dict[str, str] = {}
            list(self._walk(real, places, is_space_file))
            found = (_read(place, path) for path, place in sorted(places.items()))
        elif archives.kind_of(real):
            found = archives.files(real, wanted=is_space_file)
        yield from (file for file in found if isinstance(file, SourceFile))

    def attachments(
        self, place: str | None, *, wanted: Callable[[str], bool], with_data: bool
    ) -> Iterator[SourceFile | Finding]:
        """Yield the wanted files that are not Markdown; None stands for the home, if there is one."""
        real = self._home if place is None else self.source(place)

        def is_wanted(path: str) -> bool:
            is_setting = is_space_file(path) or is_vault_setting(path)
            return not is_markdown(path) and not is_setting and wanted(path)

        if real is not None and os.path.isdir(real):
            places: dict[str, str] = {}
            # A folder that cannot be read was named with the Markdown files.
            list(self._walk(real, places, is_wanted))
            for path in sorted(places):
                yield _read(places[path], path, limit=MAX_ATTACHMENT_BYTES) if with_data else SourceFile(path, 0, b"")
        elif real is not None and archives.kind_of(real):
            yield from archives.files(real, wanted=is_wanted, limit=MAX_ATTACHMENT_BYTES)

    def home_entries(self) -> Iterator[HomeEntry]:
        """Yield every file of the home, if there is one, and every entry that a scan skips; a folder ends with `/`."""
        home = self._home
        if home is not None and os.path.isdir(home):
            settings = _read(os.path.join(home, VAULT_SETTINGS), VAULT_SETTINGS)
            templates = _template_folder(settings) if isinstance(settings, SourceFile) else ""
            yield from home_entries(home, _read_ignore_file(home, folder_pattern(templates) if templates else ""))

    def template_folders(self, place: str) -> list[str]:
        """Return the folders of templates that the settings of the Obsidian vaults in a folder or archive name."""
        real = self.source(place)
        found: Iterator[SourceFile | Finding] = iter(())
        if os.path.isdir(real):
            found = iter([_read(os.path.join(real, VAULT_SETTINGS), VAULT_SETTINGS)])
        elif archives.kind_of(real):
            found = archives.files(real, wanted=is_vault_setting)
        folders = [_template_folder(file) for file in found if isinstance(file, SourceFile)]
        return [folder for folder in folders if folder]

    @contextmanager
    def target(self, place: str) -> Iterator[ExportTarget]:
        """Open a folder, or an archive if the name ends like one, for an export."""
        real = os.path.realpath(place)
        if self._is_inside(real):
            raise BadInput(f"{place} lies in the home itself", fix="export to a place outside of the home")
        with _translate_errors(place):
            if archives.kind_of(real) and not os.path.isdir(real):
                with archives.writing(real) as archive:
                    yield archive
            else:
                with closing(FolderTarget(real)) as folder:
                    yield folder
                    folder.finish()

    def pack(self, place: str, archive: str, *, wanted: Callable[[str], bool]) -> tuple[str, list[Finding]]:
        """Write all that an import of a source would read to a new zip archive, with the `wanted` attachments.

        Returns the path of the archive, which is the source itself if that is a zip archive, and the findings about
        files that are not in it.
        """
        real = self.source(place)
        if archives.kind_of(real) == "zip" and not os.path.isdir(real):
            return real, []
        findings: list[Finding] = []
        with _translate_errors(archive), archives.packing(archive) as out:
            attachments = self.attachments(place, wanted=wanted, with_data=True)
            for file in chain(self.files(place), self.space_files(place), _settings_of(real), attachments):
                if isinstance(file, Finding):
                    findings.append(file)
                else:
                    out.put(file.path, file.data, changed=datetime.fromtimestamp(file.mtime_ns // 1_000_000_000, UTC))
        return archive, findings

    def unpack(self, archive: str, place: str) -> list[tuple[str, Outcome]]:
        """Write the files of an exported zip archive to a folder or another archive; return how each compares."""
        with self.target(place) as out:
            outcomes: list[tuple[str, Outcome]] = []
            for file in archives.files(archive, wanted=lambda _: True, limit=MAX_ATTACHMENT_BYTES):
                if isinstance(file, Finding):
                    raise BadFile(f"the archive has {file.where}: {file.why}", fix=file.fix)
                changed = datetime.fromtimestamp(file.mtime_ns // 1_000_000_000, UTC)
                outcomes.append((file.path, out.put(file.path, file.data, changed=changed)))
            return outcomes

    def _is_inside(self, real: str) -> bool:
        home = self._home
        return home is not None and (real == home or real.startswith(home.rstrip(os.sep) + os.sep))

    # --- reading a folder

    def _read_folder(self, top: str, only: Container[str] | None) -> Iterator[SourceFile | Finding]:
        places: dict[str, str] = {}
        yield from self._walk(top, places, is_markdown)
        chosen = (path for path in sorted(places) if only is None or path in only)
        yield from _known((_read(places[path], path) for path in chosen), _read_marker(os.path.join(top, MARKER)))

    def _walk(self, top: str, places: dict[str, str], wanted: Callable[[str], bool]) -> Iterator[Finding]:
        """Add the wanted files to `places`, except ignored ones, those in hidden folders or in the home, and links."""
        ignored = _read_ignore_file(top)
        folders = [(top, "")]
        while folders:
            folder, prefix = folders.pop()
            try:
                entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
            except OSError as error:
                yield finding(
                    _printable(prefix) or ".", f"the folder cannot be read: {error.strerror}", "fix its permissions"
                )
                continue
            for entry in entries:
                path = unicodedata.normalize("NFC", prefix + entry.name)
                if entry.name[0] == "." and entry.name != SPACE_FILE:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    if not ignored.folder(path) and entry.path != self._home:
                        folders.append((entry.path, prefix + entry.name + "/"))
                elif wanted(path) and entry.is_file(follow_symlinks=False) and not ignored.file(path):
                    if path != _printable(path):
                        yield finding(_printable(path), "the name of the file is not valid UTF-8", "rename it")
                    else:
                        places[path] = entry.path


def _known(
    files: Iterable[SourceFile | Finding], exported: Mapping[str, Iterable[str]]
) -> Iterator[SourceFile | Finding]:
    """Yield the files, each with the hashes of what an export has written to its path."""
    for file in files:
        if isinstance(file, SourceFile) and file.path in exported:
            yield file._replace(exported=frozenset(exported[file.path]))
        else:
            yield file


def _read_ignore_file(top: str, further: str = "") -> IgnorePatterns:
    """Return the patterns of the ignore file of a folder, and a further line of them."""
    try:
        with open(os.path.join(top, _IGNORE_FILE), encoding="utf-8", errors="replace") as file:
            return IgnorePatterns(f"{file.read()}\n{further}")
    except OSError:
        return IgnorePatterns(further)


def _printable(path: str) -> str:
    return path.encode("utf-8", "replace").decode()


def _settings_of(real: str) -> Iterator[SourceFile]:
    """Yield the files of a source that tell how the others are to be read: of a vault, and of an earlier export."""
    found: Iterator[SourceFile | Finding] = iter(())
    if os.path.isdir(real):
        paths = (VAULT_SETTINGS, MARKER)
        found = (_read(os.path.join(real, path), path, limit=MAX_ATTACHMENT_BYTES) for path in paths)
    elif archives.kind_of(real):
        found = archives.files(real, wanted=is_vault_setting)
    yield from (file for file in found if isinstance(file, SourceFile))


def _template_folder(settings: SourceFile) -> str:
    """Return the folder of templates that the settings of a vault name, as a path in the source; "" if none."""
    folder = template_folder(settings.data)
    return settings.path.removesuffix(VAULT_SETTINGS) + folder if folder else ""


def _read(place: str, path: str, *, limit: int = MAX_FILE_BYTES) -> SourceFile | Finding:
    try:
        fd = os.open(place, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        # Without a buffer, which would be as large as the limit.
        with os.fdopen(fd, "rb", buffering=0) as file:
            if os.fstat(fd).st_size > limit:
                return too_large(path, limit)
            data = file.read()
            mtime_ns = os.fstat(fd).st_mtime_ns
    except OSError as error:
        return finding(path, f"the file cannot be read: {error.strerror}", "fix its permissions, then import again")
    if len(data) > limit:
        return too_large(path, limit)
    return SourceFile(path, mtime_ns, data)


# --- writing a folder


class FolderTarget:
    """The ExportTarget port: a folder that mirrors the export.

    Files of an earlier export that are no longer exported are removed; files that others changed stay.
    """

    def __init__(self, top: str) -> None:
        """Use the folder, which is new, empty, or an earlier export."""
        self._top = top
        self._marker = os.path.join(top, MARKER)
        self._require_own_export()
        os.makedirs(top, exist_ok=True)
        self._exported_before = _read_marker(self._marker)
        self._exported_now: dict[str, str] = {}
        self._folders = {os.path.dirname(top), top}
        self._marker_file = open(self._marker, "a", encoding="utf-8")  # noqa: SIM115 - open until finish
        if not self._exported_before:
            self._append_marker(MARKER_TEXT)

    def put(self, path: str, data: bytes, *, changed: datetime) -> Outcome:
        """Write one file atomically, unless the current one does not come from an export."""
        self._exported_now[path] = hash_ = sha256(data).hexdigest()
        place = self._ensure_folders(path)
        current = _content_hash(place)
        if current == hash_:
            self._append_marker([path, hash_])
            return "same"
        if current is not None and current not in self._exported_before.get(path, ()):
            del self._exported_now[path]
            return "foreign"
        # The marker comes first: after a crash right after the rename, the next export still knows the file as its own.
        self._append_marker([path, hash_])
        _write_synced(os.path.join(self._top, _TEMPORARY), data, changed)
        os.replace(os.path.join(self._top, _TEMPORARY), place)
        return "changed" if current else "new"

    def finish(self) -> None:
        """Remove files that are no longer exported, rewrite the marker, and sync the folders."""
        for path in sorted(self._exported_before.keys() - self._exported_now.keys()):
            place = os.path.join(self._top, path)
            if os.path.realpath(place) == place and _content_hash(place) in self._exported_before[path]:
                os.unlink(place)
                self._prune(os.path.dirname(place))
        lines = [MARKER_TEXT, *([path, hash_] for path, hash_ in sorted(self._exported_now.items()))]
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        _write_synced(os.path.join(self._top, _TEMPORARY), text.encode(), None)
        os.replace(os.path.join(self._top, _TEMPORARY), self._marker)
        for folder in self._folders:
            _sync_folder(folder)

    def close(self) -> None:
        """Close the marker file."""
        self._marker_file.close()

    def _require_own_export(self) -> None:
        try:
            if os.listdir(self._top) and not os.path.isfile(self._marker):
                raise Conflict(
                    f"{self._top} is not empty, and has no marker of an earlier export",
                    fix="export to a new folder, or to an archive such as memories.zip",
                )
        except FileNotFoundError:
            return
        except NotADirectoryError:
            raise Conflict(f"{self._top} is a file", fix="name a folder, or a .zip, .tar, .tar.gz or .tgz") from None

    def _append_marker(self, line: object) -> None:
        self._marker_file.write(json.dumps(line, ensure_ascii=False) + "\n")
        self._marker_file.flush()

    def _ensure_folders(self, path: str) -> str:
        """Create the folders above a file, none of them a link; return the place of the file."""
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


def _read_marker(place: str) -> dict[str, set[str]]:
    """Return the hashes of every content exported to each path in a folder."""
    with suppress(OSError), open(place, encoding="utf-8", errors="replace") as file:
        return _parse_marker(file)
    return {}


def _marker_of_archive(place: str) -> dict[str, set[str]]:
    """Return the same of an archive that was packed from such a folder; the marker of other archives has no hashes."""
    data = archives.read_member(place, MARKER) if archives.kind_of(place) == "zip" else None
    return _parse_marker((data or b"").decode(errors="replace").splitlines())


def _parse_marker(lines: Iterable[str]) -> dict[str, set[str]]:
    """Return the hashes in a marker by path; lines cut short by a crash are skipped."""
    known: dict[str, set[str]] = {}
    for line in lines:
        with suppress(ValueError, RecursionError):
            record = json.loads(line)
            if isinstance(record, list) and len(record) == 2 and _is_below(str(record[0])):
                known.setdefault(str(record[0]), set()).add(str(record[1]))
    return known


def _is_below(path: str) -> bool:
    return not path.startswith("/") and ".." not in path.split("/")


def _content_hash(place: str) -> str | None:
    """Return the hash of a file's content, None if nothing is there; links and folders get a value that no file has."""
    if not os.path.lexists(place):
        return None
    if os.path.islink(place) or not os.path.isfile(place):
        return "not a file"
    with open(place, "rb") as file:
        return sha256(file.read()).hexdigest()


def _write_synced(place: str, data: bytes, changed: datetime | None) -> None:
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
def _translate_errors(place: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _typed_error(error, place) from error


def _typed_error(error: OSError, place: str) -> CommonbookError:
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return DiskFull(f"there is no room left for {place}", fix="free some space, or export to another disk")
    return BadInput(f"{place} cannot be written: {error.strerror}", fix="choose another place, or fix its permissions")


_OWN_FOLDER: Final = ".commonbook"
_OWN_IGNORE_FILE: Final = "_invalidations/.gitignore"
"""The program writes it itself, in the folder of the notices."""


def home_entries(home: str, ignored: IgnorePatterns) -> Iterator[HomeEntry]:
    """Yield every file of a home by path, and every entry that a scan skips; a skipped folder is one entry."""
    folders = [(home, "")]
    while folders:
        folder, prefix = folders.pop()
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError as error:
            yield HomeEntry(prefix, f"the folder cannot be read: {error.strerror}")
            continue
        for entry in entries:
            path = unicodedata.normalize("NFC", prefix + entry.name)
            is_folder = entry.is_dir(follow_symlinks=False)
            reason = _reason(entry, path, ignored, is_folder=is_folder)
            if path == _OWN_FOLDER or path.endswith(_OWN_IGNORE_FILE):
                continue
            if is_folder and reason is None:
                folders.append((entry.path, f"{prefix}{entry.name}/"))
            else:
                shown = os.fsencode(path).decode("utf-8", "backslashreplace")
                yield HomeEntry(f"{shown}/" if is_folder else shown, reason)


def _reason(entry: os.DirEntry[str], path: str, ignored: IgnorePatterns, *, is_folder: bool) -> str | None:
    if entry.name[0] == "." and entry.name != SPACE_FILE:
        return "it is hidden: its name begins with a dot"
    if os.fsencode(path).decode("utf-8", "replace") != path:
        return "its name is not UTF-8"
    if entry.is_symlink():
        return "it is a link"
    if ignored.folder(path) if is_folder else ignored.file(path):
        return "it is ignored: `.commonbookignore` names it, or it is the folder of Obsidian's templates"
    if not is_folder and not entry.is_file(follow_symlinks=False):
        return "it is no regular file"
    return None

"""Attachments: the pictures, documents and other files beside notes, copied by import and export as they are.

They are no memories: nothing is indexed or logged. In the home they lie in the folder of the space that their notes are
in, at the same relative path, so that links to them lead there. No file is ever overwritten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from commonbook.core.tables import spaces
from commonbook.core.text import titles
from commonbook.errors import Busy, FileInTheWay
from commonbook.ports.files import SourceFile
from commonbook.subjects.transfer.import_reading import not_imported
from commonbook.values.reports import Finding

if TYPE_CHECKING:
    from commonbook.ports.database import Reading
    from commonbook.ports.engines import Engines
    from commonbook.ports.files import ExportTarget
    from commonbook.values.path_filter import PathFilter
    from commonbook.values.spaces import SpaceScope

_LOCK_SECONDS: Final = 30.0
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ENDINGS: Final = tuple(
    f".{ending}"
    for ending in [
        "canvas",
        "base",
        "drawio",
        "excalidraw",
        "avif",
        "bmp",
        "gif",
        "heic",
        "heif",
        "ico",
        "jpeg",
        "jpg",
        "png",
        "svg",
        "tif",
        "tiff",
        "webp",
        "3gp",
        "aac",
        "aif",
        "aiff",
        "flac",
        "m4a",
        "mp3",
        "oga",
        "ogg",
        "opus",
        "wav",
        "webm",
        "avi",
        "m4v",
        "mkv",
        "mov",
        "mp4",
        "mpeg",
        "mpg",
        "ogv",
        "pdf",
        "epub",
        "djvu",
        "ps",
        "eps",
        "rtf",
        "doc",
        "docx",
        "odt",
        "xls",
        "xlsx",
        "ods",
        "ppt",
        "pptx",
        "odp",
        "pages",
        "numbers",
        "key",
        "csv",
        "tsv",
        "txt",
        "json",
        "xml",
        "html",
        "htm",
        "bib",
        "ics",
        "eml",
        "zip",
    ]
)


class Attachments(NamedTuple):
    """The result of copying attachments: the paths of those that were copied, and findings for the others.

    `unchanged` are the paths of those that were there already.
    """

    copied: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    unchanged: tuple[str, ...] = ()

    @property
    def paths(self) -> set[str]:
        """The paths of all attachments of an export."""
        return {*self.copied, *self.unchanged, *(finding.where for finding in self.findings)}


def selects(chosen: PathFilter) -> Callable[[str], bool]:
    """Return the test whether a file is an attachment: by its ending, or because a pattern of `include` names it."""
    return lambda path: chosen.takes(path) and (path.lower().endswith(_ENDINGS) or chosen.names(path))


# --- import


def import_attachments(
    engines: Engines,
    source: str,
    wanted: Callable[[str], bool],
    home_path: Callable[[str], str],
    *,
    dry_run: bool,
) -> Attachments:
    """Copy the attachments of a folder or archive into the home; `home_path` returns the path there."""
    keeps_files = engines.folder.keeps_files
    files = engines.external_files.attachments(source, wanted=wanted, with_data=keeps_files)
    if not keeps_files:
        return Attachments(findings=tuple(_no_files(file) for file in files))
    copied: list[str] = []
    findings: list[Finding] = []
    with engines.folder.lock(wait=_LOCK_SECONDS) as held:
        if not held:
            raise Busy("the files of the home are in use", fix="try again when the other command has ended")
        for file in files:
            result = file if isinstance(file, Finding) else _copy(engines, file, home_path(file.path), dry_run=dry_run)
            if isinstance(result, Finding):
                findings.append(result)
            elif result is not None:
                copied.append(result)
        engines.folder.flush()
    return Attachments(tuple(copied), tuple(findings))


def _copy(engines: Engines, file: SourceFile, path: str, *, dry_run: bool) -> str | Finding | None:
    """Copy one file; return its path in the source, None if the home has it already, or why it cannot be copied."""
    try:
        outcome = engines.folder.add_file(path, file.data, mtime_ns=file.mtime_ns, dry_run=dry_run)
    except FileInTheWay as error:
        return not_imported(file.path, error.message, error.fix)
    if outcome == "taken":
        return not_imported(
            file.path,
            f"the home has another file at {path}",
            "rename one of the two, or remove the one in the home, then import again",
        )
    return file.path if outcome == "new" else None


def _no_files(file: SourceFile | Finding) -> Finding:
    if isinstance(file, Finding):
        return file
    return not_imported(
        file.path,
        "this book is in a database server and has no folder for attachments",
        "keep the file where it is; a book in a home copies attachments",
    )


class TemplateFolders:
    """The folders of Obsidian's templates in a source: their notes are forms to fill in, and not imported."""

    def __init__(self, folders: Iterable[str]) -> None:
        """Skip these folders."""
        self._skipped: dict[str, set[str]] = {folder: set() for folder in folders}

    def skips(self, path: str) -> bool:
        """Return whether a file is a template, and note it."""
        for folder, skipped in self._skipped.items():
            if path.startswith(folder + "/"):
                skipped.add(path)
                return True
        return False

    def findings(self) -> list[Finding]:
        """Return a finding for each folder of which files were skipped."""
        return [
            not_imported(
                f"{folder}/",
                f"it is the folder of Obsidian's templates ({len(skipped)} {'file' if len(skipped) == 1 else 'files'})",
                "import the folder by itself if the templates should be memories",
            )
            for folder, skipped in self._skipped.items()
            if skipped
        ]


# --- export


def lies_in(tx: Reading, chosen: SpaceScope, *, whole: bool) -> Callable[[str], bool]:
    """Return the test whether a file of the home is in the folder of one of these spaces.

    A file in no space, which a home without the space `personal` may have, is part of a whole export.
    """
    everywhere = spaces.get_all(tx).values()

    def is_chosen(path: str) -> bool:
        space = titles.space_at(path, everywhere)
        return whole if space is None else space.id in chosen

    return is_chosen


def export_attachments(engines: Engines, wanted: Callable[[str], bool], out: ExportTarget) -> Attachments:
    """Write the attachments in the home to an export, at the same paths."""
    copied: list[str] = []
    unchanged: list[str] = []
    findings: list[Finding] = []
    for file, outcome in _put(engines.external_files.attachments(None, wanted=wanted, with_data=True), out):
        if isinstance(file, Finding):
            findings.append(file._replace(what="not exported"))
        elif outcome == "foreign":
            findings.append(
                Finding(
                    what="not exported",
                    where=file.path,
                    why="the file there was changed by others since the last export",
                    fix="move it away, then export again",
                )
            )
        else:
            (unchanged if outcome == "same" else copied).append(file.path)
    return Attachments(tuple(copied), tuple(findings), tuple(unchanged))


def _put(files: Iterable[SourceFile | Finding], out: ExportTarget) -> Iterator[tuple[SourceFile | Finding, str]]:
    for file in files:
        if isinstance(file, Finding):
            yield file, ""
        else:
            changed = _EPOCH + timedelta(microseconds=max(0, file.mtime_ns) // 1000)
            yield file, out.put(file.path, file.data, changed=changed)

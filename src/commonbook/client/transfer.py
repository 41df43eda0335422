"""Import and export of a remote book: folders of this machine are sent to the server, or come from it, as zip archives.

An archive is streamed through a file of this machine. It is packed once: a repeat after a lost answer sends the same
bytes, so that the server knows it as a repeat.
"""

from __future__ import annotations

import os
import socket
import tempfile
import zipfile
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from commonbook.client.http import Answer, SentFiles
from commonbook.errors import BadInput, DiskFull, ServerFailed
from commonbook.model.path_filter import PathFilter
from commonbook.model.reports import Progress, TransferReport, no_progress, not_exported
from commonbook.ports.files import ArchiveFiles, Outcome
from commonbook.runtime.lazy_modules import LazyModule
from commonbook.verbs import Verbs
from commonbook.verbs.declaration import Verb
from commonbook.wire.encoding import Malformed, decode
from commonbook.wire.verbs import REPORT_MEMBER, VERBS

if TYPE_CHECKING:
    from commonbook.transfer import attachments
else:
    # Only an import needs to know which files are attachments.
    attachments = LazyModule("commonbook.transfer.attachments")

_MAX_REPORT_BYTES: Final = 512 << 20


class TransferVerbs(Verbs):
    """The verbs of a remote book, with import and export."""

    _files: ArchiveFiles

    @abstractmethod
    def _send(self, verb: Verb, arguments: dict[str, Any], files: SentFiles | None = None) -> Answer:
        """Send a call to the server, and return its answer; the error of the server is raised here."""

    def import_folder(
        self,
        folder: str,
        *,
        space: str | None = None,
        folders_as_spaces: bool = False,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        okf: bool = False,
        dry_run: bool = False,
        mask: bool = True,
        progress: Progress = no_progress,  # noqa: ARG002 - as in the book
    ) -> TransferReport:
        """Import a folder of this machine, one file, or an archive; `Book.import_folder` explains the arguments.

        It is sent as a zip archive. The same folder of the same machine that comes again updates what it has imported.
        """
        chosen = _path_filter(include, exclude)
        options = {"space": space, "folders_as_spaces": folders_as_spaces, "include": chosen.include}
        options |= {"exclude": chosen.exclude, "okf": okf, "dry_run": dry_run, "mask": mask}
        with _temporary_archive() as place:
            archive, findings = self._files.pack(folder, place, wanted=attachments.selects(chosen))
            answer = self._send(
                VERBS["import_folder"], {"folder": _source_name(folder), **options}, SentFiles(upload=archive)
            )
        report = _decode(answer)
        return report._replace(skipped=(*findings, *report.skipped))

    def export(
        self,
        target: str,
        *,
        space: str | None = None,
        okf: bool = False,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        progress: Progress = no_progress,  # noqa: ARG002 - as in the book
    ) -> TransferReport:
        """Export to a folder or an archive of this machine; `Book.export` explains the arguments."""
        chosen = _path_filter(include, exclude)
        options = {"space": space, "okf": okf, "include": chosen.include, "exclude": chosen.exclude}
        with _temporary_archive() as place:
            answer = self._send(VERBS["export"], options, SentFiles(download=place))
            report = _decode(answer._replace(body=_read_report(answer, place)))
            return _with_outcomes(report, self._files.unpack(place, target))


def _path_filter(include: Sequence[str], exclude: Sequence[str]) -> PathFilter:
    if isinstance(include, str) or isinstance(exclude, str):
        raise BadInput("`include` and `exclude` are lists of patterns", fix='give a list, such as ["*.pdf"]')
    return PathFilter(tuple(include), tuple(exclude))


@contextmanager
def _temporary_archive() -> Iterator[str]:
    """Make a folder that nobody else can read, and yield the path of an archive in it."""
    try:
        with tempfile.TemporaryDirectory(prefix="commonbook-") as folder:
            yield os.path.join(folder, "archive.zip")
    except OSError as error:
        raise DiskFull(
            f"no archive can be kept here: {error.strerror}", fix="free some space, or set TMPDIR"
        ) from error


def _source_name(folder: str) -> str:
    """Return a name for a folder of this machine, which tells the server neither."""
    return sha256(f"{socket.gethostname()}\n{os.path.realpath(folder)}".encode(errors="surrogateescape")).hexdigest()


def _read_report(answer: Answer, place: str) -> bytes:
    try:
        with zipfile.ZipFile(place) as archive, archive.open(REPORT_MEMBER) as member:
            return member.read(_MAX_REPORT_BYTES)
    except (KeyError, zipfile.BadZipFile) as error:
        raise ServerFailed(f"{answer.address} sent no whole export", fix="try again, or update Commonbook") from error


def _decode(answer: Answer) -> TransferReport:
    try:
        report: TransferReport = decode(TransferReport, answer.json())
    except Malformed as error:
        raise ServerFailed(f"{answer.address} sent another report: {error}", fix="update Commonbook") from error
    return report


def _with_outcomes(report: TransferReport, outcomes: Sequence[tuple[str, Outcome]]) -> TransferReport:
    """Return the report about the target here; an exported archive begins with the memories, in the order of `ids`."""
    of_memories = outcomes[: len(report.ids)]
    counts = Counter(outcome for _, outcome in of_memories)
    foreign = [path for path, outcome in outcomes if outcome == "foreign"]
    return report._replace(
        done=counts["new"],
        updated=counts["changed"],
        unchanged=counts["same"],
        skipped=(*map(not_exported, foreign), *report.skipped),
        ids=tuple(id_ for id_, (_, outcome) in zip(report.ids, of_memories, strict=True) if outcome != "foreign"),
        attachments=tuple(path for path in report.attachments if path not in foreign),
    )

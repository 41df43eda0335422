"""The engines of one book, bundled, and the subjects that are loaded at first use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import tzinfo
from typing import TYPE_CHECKING, NamedTuple, Protocol

from commonbook.model.recall import RecallRequest, RecallResult
from commonbook.model.reports import Finding, Progress, TransferReport
from commonbook.model.spaces import Actor
from commonbook.ports.database import Database
from commonbook.ports.files import ExternalFiles, Folder, Watcher, Yaml
from commonbook.ports.keys import Clock, Keys

if TYPE_CHECKING:
    pass


class TransferService(Protocol):
    """Import and export, which most runs never use: they are loaded when they are first asked for."""

    def import_folder(
        self, engines: Engines, actor: Actor, folder: str, *, space: str | None, dry_run: bool, progress: Progress
    ) -> TransferReport:
        """Take in a folder, a Markdown file or an archive."""
        ...

    def export(
        self, engines: Engines, actor: Actor, target: str, *, space: str | None, progress: Progress
    ) -> TransferReport:
        """Write memories as a folder or an archive."""
        ...


class RecallService(Protocol):
    """Recall and its index, which most runs never use: they are loaded when they are first asked for."""

    def recall(self, engines: Engines, actor: Actor, asked: RecallRequest, *, progress: Progress) -> RecallResult:
        """Return the passages that answer a question best; without a question, the newest."""
        ...

    def similarity(self, some: Sequence[str], others: Sequence[str]) -> float:
        """Return how alike two runs of texts are in meaning."""
        ...

    def reindex(self, engines: Engines, *, anew: bool, progress: Progress) -> int:
        """Bring vectors and index up to the book; `anew`, from nothing. Return how many memories were written down."""
        ...

    def findings(self) -> tuple[Finding, ...]:
        """Return what is wrong with the index."""
        ...

    def close(self) -> None:
        """Let go of the index."""
        ...


class BeforeFinalize(Protocol):
    """A step of a write that runs in its transaction, behind the operation and before its changes are finalized."""

    def __call__(self, context: object, /) -> None:
        """Complete the changes of one actor, whose write context this is; what is raised undoes the whole write.

        The type of the context is defined above this module: `desk.step` makes such a step of a function of it.
        """
        ...


class AfterCommit(Protocol):
    """The step of a write that runs when its transaction is committed."""

    def __call__(self, engines: Engines, contents: Mapping[str, bytes | None], /) -> None:
        """Write the files of the committed change, by the ids of their memories; None stands for a file to remove.

        An error of the disk or of the home does not reach the caller of the write: the change is made, and the journal
        keeps what could not be written.
        """
        ...


class Engines(NamedTuple):
    """What every flow is handed: the engines of this book."""

    db: Database
    folder: Folder
    watcher: Watcher
    outside: ExternalFiles
    keys: Keys
    yaml: Yaml
    clock: Clock
    zone: tzinfo
    before_seal: tuple[BeforeFinalize, ...]
    """In the order in which they run."""
    after_commit: AfterCommit

"""The engines of one book as one value, the functions that complete a write, and services loaded at first use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import tzinfo
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from commonbook.ports.database import Database, Transaction
    from commonbook.ports.files import ExternalFiles, FilesToWrite, Folder, Watcher, Yaml
    from commonbook.ports.keys import Clock, Keys
    from commonbook.values.recall import RecallRequest, RecallResult
    from commonbook.values.reports import Finding, Progress
    from commonbook.values.spaces import Actor


class RecallService(Protocol):
    """Recall and its index; loaded at first use, since most runs never use them."""

    def recall(self, engines: Engines, actor: Actor, request: RecallRequest, *, progress: Progress) -> RecallResult:
        """Return the passages that answer a query best; without a query, the newest."""
        ...

    def similarity(self, texts: Sequence[str], others: Sequence[str]) -> float:
        """Return the similarity in meaning of two sequences of texts."""
        ...

    def reindex(self, engines: Engines, *, anew: bool, progress: Progress) -> int:
        """Update vectors and index; with `anew`, build them from nothing. Return how many memories were indexed."""
        ...

    def catch_up(self, engines: Engines, is_over: Callable[[], bool]) -> int:
        """Write pending changes into the index, slice by slice until `is_over`; return how many slices were written."""
        ...

    def findings(self) -> tuple[Finding, ...]:
        """Return the faults of the index."""
        ...

    def pending_changes(self, engines: Engines) -> int:
        """Return how many changed memories and messages are not in the index yet."""
        ...

    def close(self) -> None:
        """Close the index."""
        ...


class BeforeFinalize(Protocol):
    """Completes a write in its transaction, after the operation and before `finalize`."""

    def __call__(self, context: Any, /) -> None:  # noqa: ANN401 - a WriteContext, whose type is defined above this
        """Complete the changes of one actor in its write context; an error rolls the whole write back."""
        ...


class AfterCommit(Protocol):
    """Completes a write whose transaction is committed."""

    def __call__(self, engines: Engines, tx: Transaction, files: FilesToWrite, /) -> None:
        """Write the files of the committed change.

        An error of the disk or of the home does not reach the caller of the write: the change is committed, and the
        journal keeps the files that could not be written.
        """
        ...


class Engines(NamedTuple):
    """The engines of one book, which `compose` creates and every use case receives."""

    db: Database
    folder: Folder
    watcher: Watcher
    external_files: ExternalFiles
    """Folders and archives outside the home, for import and export."""
    keys: Keys
    yaml: Yaml
    clock: Clock
    zone: tzinfo
    """The time zone of times that are given without one."""
    before_finalize: BeforeFinalize
    after_commit: AfterCommit

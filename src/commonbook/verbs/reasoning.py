"""The verbs of a book: reflect on memories, supersede them, and decide about those that depend on superseded ones."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING

from commonbook.verbs.declaration import Declarations, verb

if TYPE_CHECKING:
    from commonbook.values.invalidation import Verdict
    from commonbook.values.memory import Receipt
    from commonbook.values.reasoning import Dependent, Inbox, SupersedeReport, TriageReport


class Reasoning(Declarations):
    """Reflect on memories, supersede them, and decide about memories that depend on superseded ones."""

    @verb("POST", "/v1/reflect", changes=True, versioned=True)
    def reflect(
        self,
        text: str,
        on: Iterable[str],
        *,
        space: str | None = None,
        title: str | None = None,
        tags: Iterable[str] = (),
        importance: float | None = None,
        occurred: datetime | str | None = None,
        key: str | None = None,
        mask: bool = True,
    ) -> Receipt:
        """Store a reflection: a memory that was reasoned from others, whose ids are in `on`.

        When one of them is superseded or deleted, the reflection is marked `suspect` and a notice comes to the inbox.
        The other parameters are those of `remember`.
        """

    @verb("POST", "/v1/memories/{old}/supersede", changes=True)
    def supersede(self, old: str, by: str, *, reason: str = "") -> SupersedeReport:
        """Mark a memory as superseded by another; memories that depend on the old one get a notice with the reason."""

    @verb("POST", "/v1/memories/{old}/reinstate", changes=True)
    def reinstate(self, old: str, *, by: str | None = None) -> SupersedeReport:
        """Undo that a memory was superseded: by all memories that do, or by the one in `by`.

        Without `by`, undo also that it was retracted: it is valid again, and suspect if the cause still stands.
        """

    @verb("GET", "/v1/memories/{memory_id}/dependents")
    def dependents(self, memory_id: str) -> tuple[Dependent, ...]:
        """Return every memory that depends on a memory or on a copy of it, the nearest first."""

    @verb("GET", "/v1/inbox")
    def inbox(
        self, *, space: str | None = None, expired: bool = False, limit: int = 100, after: str | None = None
    ) -> Inbox:
        """Return the notices about memories that you may read, newest first; with `expired`, also expired ones.

        A notice asks for a decision about a memory that depends on a superseded or deleted one: see `triage`. The first
        page also has the newest proposed memories that wait for your decision, and your own: see `approve`.
        """

    @verb("POST", "/v1/memories/{memory_id}/triage", changes=True, versioned=True)
    def triage(self, memory_id: str, verdict: Verdict, *, note: str = "", by: str | None = None) -> TriageReport:
        """Decide about a notice, or about all open invalidations of a memory; the verdict is one of:

        - `keep`: the memory still holds.
        - `retract`: it holds no longer, and expires now.
        - `supersede`: the memory in `by` holds in its place.
        - `dismiss`: the notice does not matter for the memory.

        The decision and its `note` stay with the memory; the notices are removed.
        """

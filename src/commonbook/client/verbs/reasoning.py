"""Verbs of a remote book: reasoning. Made by `tools/make_client.py`; a test compares it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from commonbook.client.verbs.base import VerbCaller
from commonbook.model.invalidation import Verdict
from commonbook.model.memory import Receipt
from commonbook.model.reasoning import Dependent, Inbox, SupersedeReport, TriageReport
from commonbook.model.spaces import Space


class ReasoningVerbs(VerbCaller):
    """Verbs of a remote book: reasoning."""

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
        result: Receipt = self._call(
            "reflect",
            {
                "text": text,
                "on": on,
                "space": space,
                "title": title,
                "tags": tags,
                "importance": importance,
                "occurred": occurred,
                "key": key,
                "mask": mask,
            },
        )
        return result

    def supersede(self, old: str, by: str, *, reason: str = "") -> SupersedeReport:
        """Mark a memory as superseded by another; memories that depend on the old one get a notice with the reason."""
        result: SupersedeReport = self._call("supersede", {"old": old, "by": by, "reason": reason})
        return result

    def reinstate(self, old: str, *, by: str | None = None) -> SupersedeReport:
        """Undo that a memory was superseded: by all memories that do, or by the one in `by`.

        Without `by`, undo also that it was retracted: it is valid again, and suspect if the cause still stands.
        """
        result: SupersedeReport = self._call("reinstate", {"old": old, "by": by})
        return result

    def dependents(self, memory_id: str) -> tuple[Dependent, ...]:
        """Return every memory that depends on a memory or on a copy of it, the nearest first."""
        result: tuple[Dependent, ...] = self._call("dependents", {"memory_id": memory_id})
        return result

    def inbox(
        self, *, space: str | None = None, expired: bool = False, limit: int = 100, after: str | None = None
    ) -> Inbox:
        """Return the notices about memories that you may read, newest first; with `expired`, also expired ones.

        A notice asks for a decision about a memory that depends on a superseded or deleted one: see `triage`. The first
        page also has the newest proposed memories that wait for your decision, and your own: see `approve`.
        """
        result: Inbox = self._call("inbox", {"space": space, "expired": expired, "limit": limit, "after": after})
        return result

    def triage(self, memory_id: str, verdict: Verdict, *, note: str = "", by: str | None = None) -> TriageReport:
        """Decide about a notice, or about all open invalidations of a memory; the verdict is one of:

        - `keep`: the memory still holds.
        - `retract`: it holds no longer, and expires now.
        - `supersede`: the memory in `by` holds in its place.
        - `dismiss`: the notice does not matter for the memory.

        The decision and its `note` stay with the memory; the notices are removed.
        """
        result: TriageReport = self._call(
            "triage", {"memory_id": memory_id, "verdict": verdict, "note": note, "by": by}
        )
        return result

    def set_depth(self, space: str, depth: int | None) -> Space:
        """Limit how many reflections may build on each other in a space and below it (1 to 10).

        None removes the limit of this space, so that the one of the space above applies.
        """
        result: Space = self._call("set_depth", {"space": space, "depth": depth})
        return result

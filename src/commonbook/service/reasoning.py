"""Verbs of a book for reasoning: reflect, supersede, and triage the memories that this invalidates."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING

from commonbook.ports.database import retry_read
from commonbook.runtime import LazyModule
from commonbook.service.base import BookBase
from commonbook.values.memory import Draft

if TYPE_CHECKING:
    from commonbook.core.text import validation
    from commonbook.subjects.admin import spaces
    from commonbook.subjects.memories import proposals, remember
    from commonbook.subjects.reasoning import dependents as reasoning_dependents
    from commonbook.subjects.reasoning import supersede as reasoning_supersede
    from commonbook.subjects.reasoning import triage as reasoning_triage
    from commonbook.values.invalidation import Verdict
    from commonbook.values.memory import Receipt
    from commonbook.values.reasoning import Dependent, Inbox, SupersedeReport, TriageReport
    from commonbook.values.spaces import Space
else:
    # A verb loads the module that it needs, so that a command loads no more than its own subject.
    proposals = LazyModule("commonbook.subjects.memories.proposals")
    reasoning_dependents = LazyModule("commonbook.subjects.reasoning.dependents")
    reasoning_supersede = LazyModule("commonbook.subjects.reasoning.supersede")
    reasoning_triage = LazyModule("commonbook.subjects.reasoning.triage")
    remember = LazyModule("commonbook.subjects.memories.remember")
    spaces = LazyModule("commonbook.subjects.admin.spaces")
    validation = LazyModule("commonbook.core.text.validation")


class ReasoningVerbs(BookBase):
    """Reflect on memories, supersede them, and decide about memories that depend on superseded ones."""

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
        draft = Draft(
            text=text,
            space=space or self.space_for_writing(),
            title=title,
            tags=validation.validate_list(tags, "tags"),
            importance=importance,
            occurred=occurred,
            key=key,
            mask=mask,
        )
        return remember.reflect(self._engines, self._caller, draft, on=validation.validate_list(on, "ids"))

    def supersede(self, old: str, by: str, *, reason: str = "") -> SupersedeReport:
        return reasoning_supersede.supersede(self._engines, self._caller, old, by=by, reason=reason)

    def reinstate(self, old: str, *, by: str | None = None) -> SupersedeReport:
        return reasoning_supersede.reinstate(self._engines, self._caller, old, by=by)

    @retry_read
    def dependents(self, memory_id: str) -> tuple[Dependent, ...]:
        return reasoning_dependents.dependents(self._engines, self._actor, memory_id)

    @retry_read
    def inbox(
        self, *, space: str | None = None, expired: bool = False, limit: int = 100, after: str | None = None
    ) -> Inbox:
        return proposals.inbox(self._engines, self._actor, space=space, expired=expired, limit=limit, after=after)

    def triage(self, memory_id: str, verdict: Verdict, *, note: str = "", by: str | None = None) -> TriageReport:
        return reasoning_triage.triage(self._engines, self._caller, memory_id, verdict, note=note, by=by)

    def set_depth(self, space: str, depth: int | None) -> Space:
        return spaces.set_depth(self._engines, self._caller, space, depth)

"""Verbs of a book for recall: recall, prefetch, reindex."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from commonbook.access import permissions
from commonbook.book.base import BookBase
from commonbook.model.recall import RecallRequest, RecallResult
from commonbook.model.reports import Progress, no_progress
from commonbook.ports.database import retry_read
from commonbook.runtime.lazy_modules import LazyModule
from commonbook.text.space_paths import PERSONAL

if TYPE_CHECKING:
    from commonbook.memories import read
    from commonbook.recall import prefetch as recall_prefetch
    from commonbook.sessions import append
    from commonbook.sessions import read as sessions_read
    from commonbook.text import validation
else:
    # A verb loads the module that it needs, so that a command loads no more than its own subject.
    append = LazyModule("commonbook.sessions.append")
    read = LazyModule("commonbook.memories.read")
    recall_prefetch = LazyModule("commonbook.recall.prefetch")
    sessions_read = LazyModule("commonbook.sessions.read")
    validation = LazyModule("commonbook.text.validation")


class RecallVerbs(BookBase):
    """Recall passages, and keep the index."""

    @retry_read
    def recall(
        self,
        query: str = "",
        *,
        spaces: str | Iterable[str] | None = None,
        k: int = 10,
        kinds: Iterable[str] = (),
        tags: Iterable[str] = (),
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        as_of: datetime | str | None = None,
        min_score: float | None = None,
        budget_tokens: int | None = None,
        include: Iterable[str] = (),
        explain: bool = False,
        progress: Progress = no_progress,
    ) -> RecallResult:
        """Return the passages that answer a question best, of the space meant and `personal` if none is named.

        Without a question, the newest. `as_of` asks for what was valid then; `include` for what is left out otherwise.
        """
        named = (spaces,) if isinstance(spaces, str) else tuple(spaces or ())
        asked = RecallRequest(
            query=query,
            spaces=named or tuple(dict.fromkeys((self.default_space, PERSONAL))),
            k=k,
            kinds=validation.validate_list(kinds, "kinds"),
            tags=validation.validate_list(tags, "tags"),
            since=since,
            until=until,
            as_of=as_of,
            min_score=min_score,
            budget_tokens=budget_tokens,
            include=validation.validate_list(include, "include"),
            explain=explain,
        )
        return self._recalls.recall(self._engines, self._actor, asked, progress=progress)

    def prefetch(self, session: str, query: str, **asked: Any) -> bool:  # noqa: ANN401 - as for `recall`
        """Begin a recall for a session in the background; take it with `prefetched`."""
        generation = sessions_read.generation(self._engines, self._actor, session)
        return self._prefetcher.begin(session, generation, query, lambda: self.recall(query, **asked))

    def prefetched(self, session: str, query: str, *, wait: float = 0.0) -> RecallResult | None:
        """Return what was fetched for just this session and query, once; None if it is not there in time."""
        generation = sessions_read.generation(self._engines, self._actor, session)
        found = self._prefetcher.take(session, generation, query, wait=wait)
        # Somebody may have switched while this waited, in another process too, or taken a right away since.
        if found is None or sessions_read.generation(self._engines, self._actor, session) != generation:
            return None
        return found if recall_prefetch.may_read_hits(self._engines, self._actor, found.hits) else None

    def reindex(self, *, anew: bool = False, progress: Progress = no_progress) -> int:
        """Bring vectors and index up to the book now, also after a change of embedder; `anew`, from nothing.

        Return how many memories were written down.
        """
        permissions.require_owner(self._actor, "make the index anew")
        return self._recalls.reindex(self._engines, anew=anew, progress=progress)

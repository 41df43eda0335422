"""Verbs of a book for recall: recall, prefetch, reindex."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from commonbook.book.base import BookBase
from commonbook.model.memory import NO_METADATA
from commonbook.model.reports import Progress, no_progress
from commonbook.ports.retry_read import retry_read
from commonbook.runtime.lazy_modules import LazyModule

if TYPE_CHECKING:
    from commonbook.model import recall as recall_values
    from commonbook.model.memory import Kind, Scalar
    from commonbook.model.recall import Include, RecallResult
    from commonbook.model.spaces import Actor
    from commonbook.recall import prefetch as recall_prefetch
    from commonbook.sessions import read as sessions_read
    from commonbook.text import space_names, validation
else:
    # A verb loads the module that it needs, so that a command loads no more than its own subject.
    recall_prefetch = LazyModule("commonbook.recall.prefetch")
    recall_values = LazyModule("commonbook.model.recall")
    sessions_read = LazyModule("commonbook.sessions.read")
    space_names = LazyModule("commonbook.text.space_names")
    validation = LazyModule("commonbook.text.validation")


class RecallVerbs(BookBase):
    """Recall passages, and maintain the index."""

    @retry_read
    def recall(
        self,
        query: str = "",
        *,
        spaces: str | Iterable[str] | None = None,
        k: int = 10,
        kinds: Iterable[Kind] = (),
        tags: Iterable[str] = (),
        session: str | None = None,
        author: str | None = None,
        metadata: Mapping[str, Scalar] = NO_METADATA,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        as_of: datetime | str | None = None,
        min_confidence: float | None = None,
        budget_tokens: int | None = None,
        include: Iterable[Include] = (),
        explain: bool = False,
        progress: Progress = no_progress,
    ) -> RecallResult:
        """Return the passages of memories and messages that answer a query best; without a query, the newest.

        - `spaces`: a name or several; by default those of the default space and `personal` that may be read.
        - `k`: the maximum number of hits.
        - `kinds`, `tags`: only memories of one of these kinds, with all of these tags.
        - `session`: only messages of the session of this name, and episodes of it.
        - `author`: only messages and memories of this author, such as `user:bob`.
        - `metadata`: only memories with all of these fields of metadata, such as `{"ticket": "A-12"}`.
        - `since`, `until`: only what happened, or else was created, in this period.
        - `as_of`: only what was valid at this time.
        - `min_confidence`: only hits with at least this estimated chance to answer, from 0 to 1. Without it, nothing is
          returned if probably nothing found is about the query; 0 returns all.
        - `budget_tokens`: only as many hits as fit into a prompt of so many tokens.
        - `include`: also `superseded` or `expired` memories, or `notices`, which are left out by default.
        - `explain`: also return the parts of each score and the duration of each step.

        Every restriction applies before the best hits are chosen.
        """
        named = (spaces,) if isinstance(spaces, str) else tuple(spaces or ())
        request = recall_values.RecallRequest(
            query=query,
            spaces=named or tuple(dict.fromkeys((self.default_space, space_names.PERSONAL))),
            spaces_by_default=not named,
            k=k,
            kinds=validation.validate_list(kinds, "kinds"),
            tags=validation.validate_list(tags, "tags"),
            session=session,
            author=author,
            metadata=metadata,
            since=since,
            until=until,
            as_of=as_of,
            min_confidence=min_confidence,
            budget_tokens=budget_tokens,
            include=validation.validate_list(include, "include"),
            explain=explain,
        )
        return self._recall_service.recall(self._engines, self._actor, request, progress=progress)

    def prefetch(self, session: str, query: str, *, space: str | None = None, **options: Any) -> bool:  # noqa: ANN401 - as for `recall`
        """Begin a recall for a session in the background, to be fetched with `prefetched`.

        `space` is the space of the session; without it, that of the only readable session of that name, else the
        default space. `options` are the parameters of `recall`, except `session`. Return False if too many are running,
        and this one is not begun.
        """
        key, generation = self._generation(session, space)
        return self._prefetcher.begin(key, generation, query, lambda: self.recall(query, **options))

    def prefetched(
        self, session: str, query: str, *, space: str | None = None, wait: float = 0.0
    ) -> RecallResult | None:
        """Return the prefetched result of this session and query, once; None if it is not ready within `wait` seconds.

        A switch or a rewind of the session discards the result. `space` is as for `prefetch`.
        """
        validation.validate_seconds(wait, "wait")
        key, generation = self._generation(session, space)
        result = self._prefetcher.take(key, generation, query, wait=wait)
        # Another process may have switched the session, or revoked a permission, while this waited.
        if result is None or self._generation(session, space) != (key, generation):
            return None
        return result if recall_prefetch.may_read_result(self._engines, self._actor, result) else None

    def _generation(self, session: str, space: str | None) -> tuple[tuple[Actor, str, str], int]:
        """Return the key of a session, by the actor and the name of its space, and its generation."""
        name, generation = sessions_read.generation(
            self._engines, self._actor, session, space=space, default=self.default_space
        )
        return (self._actor, name, session), generation

    def reindex(self, *, anew: bool = False, progress: Progress = no_progress) -> int:
        """Update vectors and index now, also after a change of the embedder; with `anew`, build them from nothing.

        Return how many memories were indexed. Only the owner may call it.
        """
        self._require_owner("make the index anew")
        return self._recall_service.reindex(self._engines, anew=anew, progress=progress)

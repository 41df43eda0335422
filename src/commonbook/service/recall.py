"""Verbs of a book for recall: recall, prefetch, reindex."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from commonbook.ports.database import retry_read
from commonbook.runtime import LazyModule
from commonbook.service.base import BookBase
from commonbook.values.reports import Progress, no_progress
from commonbook.verbs.declaration import implements
from commonbook.verbs.recall import Recall

if TYPE_CHECKING:
    from commonbook.core.text import space_names, validation
    from commonbook.subjects.recall import prefetch as recall_prefetch
    from commonbook.subjects.sessions import read as sessions_read
    from commonbook.values import recall as recall_values
    from commonbook.values.memory import Kind
    from commonbook.values.recall import Include, RecallResult
    from commonbook.values.spaces import Actor
else:
    # A verb loads the module that it needs, so that a command loads no more than its own subject.
    recall_prefetch = LazyModule("commonbook.subjects.recall.prefetch")
    recall_values = LazyModule("commonbook.values.recall")
    sessions_read = LazyModule("commonbook.subjects.sessions.read")
    space_names = LazyModule("commonbook.core.text.space_names")
    validation = LazyModule("commonbook.core.text.validation")


class RecallVerbs(BookBase):
    """Recall passages, and maintain the index."""

    @implements(Recall.recall)
    @retry_read
    def recall(
        self,
        query: str = "",
        *,
        spaces: str | Iterable[str] | None = None,
        kinds: Iterable[Kind] = (),
        tags: Iterable[str] = (),
        include: Iterable[Include] = (),
        progress: Progress = no_progress,
        **restrictions: Any,  # noqa: ANN401 - fields of the request
    ) -> RecallResult:
        named = (spaces,) if isinstance(spaces, str) else tuple(spaces or ())
        included = validation.validate_list(include, "include")
        needs_default = not named or "wishes" in included
        by_default = tuple(dict.fromkeys((self.default_space, space_names.PERSONAL))) if needs_default else ()
        request = recall_values.RecallRequest(
            query,
            named or by_default,
            spaces_by_default=not named,
            default_spaces=by_default,
            kinds=validation.validate_list(kinds, "kinds"),
            tags=validation.validate_list(tags, "tags"),
            include=included,
            **restrictions,
        )
        return self._recall_service.recall(self._engines, self._actor, request, progress=progress)

    def prefetch(self, session: str, query: str, *, space: str | None = None, **options: Any) -> bool:  # noqa: ANN401 - as for `recall`
        key, generation = self._generation(session, space)
        return self._prefetcher.begin(key, generation, query, lambda: self.recall(query, **options))

    def prefetched(
        self, session: str, query: str, *, space: str | None = None, wait: float = 0.0
    ) -> RecallResult | None:
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
        self._require_owner("make the index anew")
        return self._recall_service.reindex(self._engines, anew=anew, progress=progress)

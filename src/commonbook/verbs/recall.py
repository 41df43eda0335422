"""The verbs of a book: recall passages of memories and messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from commonbook.values.memory import NO_METADATA
from commonbook.values.reports import no_progress
from commonbook.verbs.declaration import Declarations, verb

if TYPE_CHECKING:
    from commonbook.values.memory import Kind, MetadataValue
    from commonbook.values.recall import Include, RecallResult
    from commonbook.values.reports import Progress


class Recall(Declarations):
    """Recall passages of memories and messages."""

    @verb("POST", "/v1/recall")
    def recall(
        self,
        query: str = "",
        *,
        spaces: str | Iterable[str] | None = None,
        k: int = 10,
        kinds: Iterable[Kind] = (),
        tags: Iterable[str] = (),
        session: str | None = None,
        exclude_session: str | None = None,
        exclude_last: int | None = None,
        author: str | None = None,
        metadata: Mapping[str, MetadataValue] = NO_METADATA,
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
        - `exclude_session`: no messages of the session of this name, and no episodes of it.
        - `exclude_last`: of that session, leave out only this number of its last messages.
        - `author`: only messages and memories of this author, such as `user:bob`.
        - `metadata`: only memories with all of these fields of metadata, such as `{"ticket": "A-12"}`.
        - `since`, `until`: only what happened, or else was created, in this period.
        - `as_of`: only what was valid at this time.
        - `min_confidence`: only hits with at least this estimated chance to answer, from 0 to 1. Without it, nothing is
          returned if probably nothing found is about the query; 0 returns all.
        - `budget_tokens`: only as many hits as fit into a prompt of so many tokens; if none does, the first is cut.
        - `include`: also `superseded` or `expired` memories, or `notices`, which are left out by default; or `wishes`,
          the newest standing wishes of the user who asks, from the default space and `personal`.
        - `explain`: also return the parts of each score and the duration of each step.

        Every restriction applies before the best hits are chosen.
        """

    @verb("POST", "/v1/sessions/{session:path}/prefetch", options="recall")
    def prefetch(self, session: str, query: str, *, space: str | None = None, **options: Any) -> bool:  # noqa: ANN401 - as for `recall`
        """Begin a recall for a session in the background, to be fetched with `prefetched`.

        `space` is the space of the session; without it, that of the only readable session of that name, else the
        default space. `options` are the parameters of `recall`, except `session`. Return False if too many are running,
        and this one is not begun.
        """

    @verb("POST", "/v1/sessions/{session:path}/prefetched")
    def prefetched(
        self, session: str, query: str, *, space: str | None = None, wait: float = 0.0
    ) -> RecallResult | None:
        """Return the prefetched result of this session and query, once; None if it is not ready within `wait` seconds.

        A switch or a rewind of the session discards the result. `space` is as for `prefetch`.
        """

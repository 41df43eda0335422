"""Recall: from a question to the passages that answer it best, each with what is to be known about it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Final

import numpy as np
import numpy.typing as npt

from commonbook.access import scope
from commonbook.errors import Busy, CommonbookError, EmbedderFailed
from commonbook.model.memory import Memory
from commonbook.model.recall import RecallRequest, RecallResult
from commonbook.model.reports import Finding, Progress
from commonbook.model.spaces import Actor, SpaceScope
from commonbook.ports.database import RetryTransaction
from commonbook.ports.embedding import Embedder, Thesaurus
from commonbook.ports.engines import Engines
from commonbook.ports.index import FOREVER, Index, IndexQuery, IndexView
from commonbook.recall import embed_missing, index_updater, indexed_passages, ranking
from commonbook.recall.hits import HitBuilder, within_budget
from commonbook.recall.query import ParsedQuery, parse
from commonbook.recall.query_expansion import QueryExpansion
from commonbook.recall.scoring import newest_first, ranked
from commonbook.sharing import refresh
from commonbook.tables import changes

_MEANINGS: Final = 500
_CANDIDATES: Final = 50
_LOOKS: Final = 3


class _Watch:
    """Notes how long each step takes, in milliseconds."""

    def __init__(self) -> None:
        self.steps: dict[str, float] = {}
        self._begun = self._last = time.perf_counter()

    def lap(self, step: str) -> None:
        now = time.perf_counter()
        self.steps[step] = round((now - self._last) * 1000, 3)
        self._last = now

    @property
    def total(self) -> float:
        return round((time.perf_counter() - self._begun) * 1000, 3)


class Recaller:
    """Answers questions to one book; what it keeps between them only saves time."""

    def __init__(self, index: Index, embedder: Embedder, thesaurus: Thesaurus) -> None:
        """Recall with this index, these vectors and these near words."""
        self._index = index
        self._embedder = embedder
        self._thesaurus = thesaurus
        self._follower = index_updater.IndexUpdater(index, embedder)
        self._meanings: dict[str, npt.NDArray[np.float64]] = {}
        self._expansion = QueryExpansion(thesaurus)

    def recall(self, engines: Engines, actor: Actor, asked: RecallRequest, *, progress: Progress) -> RecallResult:
        """Return the passages that answer a question best; without a question, the newest."""
        watch = _Watch()
        clear = parse(engines, asked)
        # First from what is known of the index already, unless too much has changed since: mostly that is enough.
        known = self._follower.known()
        watch.lap("follow")
        if known is not None:
            with suppress(RetryTransaction):
                return self._answered(engines, actor, clear, known, watch, most=index_updater.FEW_CHANGES)
        for _ in range(_LOOKS):
            view = self._follower.view(engines, progress)
            watch.lap("follow")
            with suppress(RetryTransaction):
                return self._answered(engines, actor, clear, view, watch)
        # Others write the index all the time: without it the answer is the same, and takes longer.
        return self._answered(engines, actor, clear, self._index.nothing(), watch)

    def _answered(
        self,
        engines: Engines,
        actor: Actor,
        clear: ParsedQuery,
        view: IndexView,
        watch: _Watch,
        *,
        most: int = index_updater.NO_LIMIT,
    ) -> RecallResult:
        """Answer from one view of the index; Overtaken if that is no longer to be had, or more than `most` changed."""
        asked, notes = clear.asked, list[str]()
        vector = None if clear.is_empty else self._vector(asked.query, view, notes)
        watch.lap("embed")
        with engines.db.reading() as tx:
            changed = changes.total_deferred(tx)
            allowed = scope.scope_of(tx, actor, asked.spaces)
            tail = self._follower.tail(tx, view, changed(), most=most)
            watch.lap("tail")
            sought, near = self._sought(clear, allowed, vector)
            watch.lap("near")
            try:
                found = view.search(sought, tail, tx)
            except Busy as error:
                raise RetryTransaction from error
            watch.lap("search")
            rows, scores = newest_first(found) if clear.is_empty else ranked(engines, clear, sought, found, near)
            watch.lap("rank")
            readable = scope.LazyScope(partial(scope.readable, tx, actor))
            teller = HitBuilder(engines, tx, allowed, clear, found.pool, scores, readable=readable)
            hits = tuple(within_budget(teller.hits(rows), asked.budget_tokens))
            watch.lap("tell")
        self._renew(engines, teller.stale)
        return RecallResult(hits, watch.total, watch.steps if asked.explain else {}, tuple(notes))

    def _renew(self, engines: Engines, stale: Sequence[Memory]) -> None:
        """Ask for what was told stale to be refreshed; recall itself changes nothing, and waits for nobody."""
        if stale:
            with suppress(CommonbookError):
                refresh.enqueue_refresh(engines, stale)

    def _meaning(self, text: str) -> npt.NDArray[np.float64]:
        """Return the vector of a text; windows of messages overlap, so that each is asked for many times."""
        found = self._meanings.get(text)
        if found is None:
            if len(self._meanings) >= _MEANINGS:
                self._meanings.clear()
            found = self._meanings[text] = self._thesaurus.embed([indexed_passages.embedding_input(text)])[0].astype(
                np.float64
            )
        return found

    def similarity(self, some: Sequence[str], others: Sequence[str]) -> float:
        """Return how alike two runs of texts are in meaning: the cosine of what each holds in all."""
        one, other = (np.sum([self._meaning(text) for text in texts], axis=0) for texts in (some, others))
        lengths = float(np.linalg.norm(one) * np.linalg.norm(other))
        return float(one @ other) / lengths if lengths else 1.0

    def reindex(self, engines: Engines, *, anew: bool, progress: Progress) -> int:
        """Bring vectors and index up to the book, while others write and recall; `anew`, from nothing."""
        embedded = (
            embed_missing.embed_missing(engines, self._embedder, progress=progress) if self._embedder.slow else ()
        )
        view = self._index.view()
        without = bool(embedded) and view.marker is not None and not view.marker.dimensions
        anew = anew or without or not self._follower.compares(view)
        return self._follower.write(engines, anew=anew, also=embedded, progress=progress)

    def findings(self) -> tuple[Finding, ...]:
        """Return what is wrong with the index; recall is right without it, and slower."""
        fix = "run `commonbook reindex --anew`; nothing is lost, the index can be made again at any time"
        return tuple(Finding("index", ".commonbook/index", why, fix) for why in self._index.damage())

    def close(self) -> None:
        """Let go of the index."""
        self._index.close()

    def _vector(self, query: str, view: IndexView, notes: list[str]) -> indexed_passages.Vector | None:
        try:
            if not self._follower.compares(view):
                notes.append(
                    "searched by words only: the index has another embedder's vectors; run `commonbook reindex`"
                )
                return None
            vector: indexed_passages.Vector = self._embedder.embed([indexed_passages.embedding_input(query)])[0]
        except EmbedderFailed as error:
            notes.append(f"searched by words only: {error}")
            return None
        if view.marker is not None and view.marker.unembedded and self._embedder.slow:
            notes.append(f"{view.marker.unembedded} passages wait for their vectors; run `commonbook reindex`")
        return vector

    def _sought(
        self, clear: ParsedQuery, allowed: SpaceScope, vector: indexed_passages.Vector | None
    ) -> tuple[IndexQuery, list[ranking.Near]]:
        terms = clear.terms
        near_terms, near = self._expansion.expand(clear.words, terms)
        include = clear.asked.include
        sought = IndexQuery(
            terms=terms,
            near=near_terms,
            vector=vector,
            spaces=frozenset(allowed),
            kinds=frozenset(clear.asked.kinds),
            without=frozenset() if "notices" in include or "notice" in clear.asked.kinds else frozenset({"notice"}),
            tags=clear.asked.tags,
            since=indexed_passages.micros(clear.since) if clear.since else -FOREVER,
            until=indexed_passages.micros(clear.until) if clear.until else FOREVER,
            as_of=indexed_passages.micros(clear.as_of) if clear.as_of else None,
            alive_at=-FOREVER if "expired" in include else indexed_passages.micros(clear.now),
            superseded="superseded" in include,
            first=max(_CANDIDATES, clear.asked.k),
            reach=ranking.REACH,
            newest=clear.is_empty,
        )
        return sought, near

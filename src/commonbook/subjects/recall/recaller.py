"""The recaller answers a recall request: parse, embed, search the index, rank, build hits.

It searches a view of the index together with the changes that the index does not have yet. So an answer is always up to
date, and a missing or damaged index only makes it slower.
"""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from datetime import date
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from commonbook.core.access import permissions
from commonbook.core.tables import changes
from commonbook.core.text import dates_in_text, terms
from commonbook.core.text.wishes import asks_for_advice
from commonbook.errors import Busy, CommonbookError, EmbedderFailed
from commonbook.ports.database import Reading
from commonbook.ports.embedding import Embedder, Thesaurus
from commonbook.ports.engines import Engines
from commonbook.ports.index import (
    IS_MESSAGE,
    Index,
    IndexQuery,
    IndexResult,
    IndexView,
    PendingDeltas,
)
from commonbook.runtime import reset_in_child
from commonbook.subjects.recall import index_updater, indexed_passages, phrases, scoring, spelling, wishes
from commonbook.subjects.recall.confidence import QueryRarity
from commonbook.subjects.recall.hits import Answer, HitBuilder, result_of
from commonbook.subjects.recall.index_updater import ViewOutdated
from commonbook.subjects.recall.query import MAX_QUERY_CHARS, IndexQueryBuilder, ParsedQuery, parse, questions_in
from commonbook.subjects.sharing import propagate
from commonbook.values import prompts
from commonbook.values.hit import Bars
from commonbook.values.recall import RecallRequest, RecallResult, Wish
from commonbook.values.reports import Finding, Progress
from commonbook.values.spaces import Actor

Search: TypeAlias = Callable[[IndexQuery], IndexResult]

_CACHE_TEXTS: Final = 500
_CANDIDATES_AMONG_ECHOES: Final = 400
_MAX_ATTEMPTS: Final = 3
_ONLY_STOP_WORDS: Final = 'every word of the query is too common to search for; "in quotes" it is found as it stands'


class _Stopwatch:
    """Records how long each step takes, in milliseconds."""

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


class _Call(NamedTuple):
    """One call of `recall`: who asks what; `is_counted` if a limit of the actor's recalls needs no further look."""

    actor: Actor
    query: ParsedQuery
    watch: _Stopwatch
    is_counted: bool = False


class _Ranking(NamedTuple):
    """The sources of a ranking: a view of the index and what is not in it yet, the search, and its vector."""

    view: IndexView
    search: phrases.Search
    vector: indexed_passages.Vector | None
    pending: PendingDeltas


class _Ranked(NamedTuple):
    """The result of a search, with the rows of its candidates, best first, and their scores."""

    query: IndexQuery
    result: IndexResult
    rows: Sequence[int]
    scores: scoring.Scores


class Recaller:
    """Answers recalls of one book; its state between recalls consists of caches only."""

    def __init__(
        self,
        index: Index,
        embedder: Embedder,
        thesaurus: Thesaurus,
        *,
        bars: Bars | None = None,
        recalls_at_once: int | None = None,
    ) -> None:
        """Recall with this index, this embedder and this thesaurus.

        `recalls_at_once` limits the threads that rank at the same time. Ranking is Python with short calls into numpy:
        among 32 threads that compete for the interpreter's lock, each recall takes three times the processor time.
        """
        self._recalls_at_once = recalls_at_once
        self._bars = bars or Bars()
        self.reset_after_fork()
        reset_in_child(self)
        self._index = index
        self._embedder = embedder
        self._thesaurus = thesaurus
        self._updater = index_updater.IndexUpdater(index, embedder)
        self._text_vectors: dict[str, npt.NDArray[np.float64]] = {}
        self._queries = IndexQueryBuilder(thesaurus)
        self._caught_up_to = -1

    def reset_after_fork(self) -> None:
        """Make the semaphore new, at first and in a forked child: threads of the parent may hold it."""
        self._turn: AbstractContextManager[object] = nullcontext()
        if self._recalls_at_once is not None:
            self._turn = threading.BoundedSemaphore(self._recalls_at_once)

    def recall(self, engines: Engines, actor: Actor, request: RecallRequest, *, progress: Progress) -> RecallResult:
        """Return the passages that answer a query best; without a query, the newest.

        If hardly any answers a query of several sentences, the questions among them are asked alone.
        """
        found = self._recall_once(engines, actor, request, progress=progress)
        questions = questions_in(request.query[:MAX_QUERY_CHARS])
        if not questions or request.min_confidence is not None or self._reaches_prompt(found):
            return found
        alone = self._recall_once(engines, actor, request._replace(query=questions), progress=progress)
        return alone if self._reaches_prompt(alone) else found

    def _reaches_prompt(self, result: RecallResult) -> bool:
        return prompts.chance(result.hits) >= self._bars.prompt

    def _recall_once(
        self, engines: Engines, actor: Actor, request: RecallRequest, *, progress: Progress
    ) -> RecallResult:
        watch = _Stopwatch()
        query = parse(engines, request)
        try:
            return self._recall(engines, _Call(actor, query, watch), progress)
        except permissions.NotCounted:
            permissions.count_recall(engines, actor)
            return self._recall(engines, _Call(actor, query, watch, is_counted=True), progress)

    def _recall(self, engines: Engines, call: _Call, progress: Progress) -> RecallResult:
        # The view of the last recall is enough unless too much has changed since, and costs no look at the index.
        last_view = self._updater.last_view()
        call.watch.lap("index view")
        if last_view is not None:
            with suppress(ViewOutdated):
                return self._answer(engines, call, last_view, limit=index_updater.MAX_PENDING)
        for attempt in range(_MAX_ATTEMPTS):
            view = self._updater.view(engines, progress)
            call.watch.lap("index view")
            with suppress(ViewOutdated):
                # The first attempt may find long texts, which the next one has in the index.
                limit = index_updater.NO_LIMIT if attempt else index_updater.MAX_PENDING
                return self._answer(engines, call, view, limit=limit)
        # Other processes rewrite the index all the time: without it the answer is the same, and takes longer.
        return self._answer(engines, call, self._index.empty_view())

    def _answer(
        self, engines: Engines, call: _Call, view: IndexView, *, limit: int = index_updater.NO_LIMIT
    ) -> RecallResult:
        """Answer from one view of the index.

        Raises ViewOutdated if the view is no longer available, or with a `limit` too much is pending.
        """
        actor, query, watch = call.actor, call.query, call.watch
        request, notes = query.request, list[str]()
        # A number is near to other numbers, which says nothing.
        has_words = any(map(str.isalpha, request.query))
        vector = self._query_vector(request.query, view, notes) if has_words else None
        watch.lap("embed")
        with self._turn, engines.db.reading() as tx:
            allowed = permissions.without_proposals(
                permissions.scope_of(tx, actor, request.spaces, refuse=not request.spaces_by_default), *request.spaces
            )
            if not call.is_counted:
                permissions.require_counted(tx, actor)
            if request.spaces_by_default and not allowed:
                notes += permissions.note_other_spaces(tx, actor)
            pending = self._updater.pending(tx, view, changes.total(tx), limit=limit)
            watch.lap("pending")
            ranking = _Ranking(view, phrases.Search(tx, allowed, query), vector, pending)
            try:
                ranked = self._rank(engines, ranking, watch)
                meant = self._meant(ranking, ranked)
                if meant:
                    query = parse(engines, request._replace(query=spelling.corrected(request.query, meant)))
                    notes.append(spelling.note(meant))
                    ranking = ranking._replace(search=phrases.Search(tx, allowed, query))
                    ranked = self._rank(engines, ranking, watch)
                builder, answer = self._build(engines, actor, ranking, ranked)
                if builder.is_crowded:
                    wider = self._rank(engines, ranking, watch, max_candidates=_CANDIDATES_AMONG_ECHOES)
                    builder, answer = self._build(engines, actor, ranking, wider)
            except Busy as error:
                raise ViewOutdated from error
            if query.quoted and not ranked.rows:
                notes.append(phrases.nothing_has(query.quoted))
            elif query.has_only_stop_words and not ranked.rows:
                notes.append(_ONLY_STOP_WORDS)
            standing = self._wishes(engines, tx, call, ranking)
            answered = result_of(engines.keys, answer, standing, budget_tokens=request.budget_tokens, notes=notes)
            watch.lap("hits")
        if stale := builder.stale:
            # Enqueued only: the recall itself changes no memory and does not wait for the refresh.
            with suppress(CommonbookError):
                propagate.enqueue_refresh(engines, stale)
        return answered._replace(
            took_ms=watch.total, steps=watch.steps if request.explain else {}, meant=meant, bars=self._bars
        )

    def _rank(self, engines: Engines, ranking: _Ranking, watch: _Stopwatch, **filters: Any) -> _Ranked:  # noqa: ANN401 - fields of `IndexQuery`
        """Search the index, with more filters, and order what it finds."""
        query = ranking.search.query
        index_query, expansions = self._queries.build(ranking.search.tx, query, ranking.search.scope, ranking.vector)
        index_query = index_query._replace(**filters)
        watch.lap("expansion")
        result, shares = phrases.search(ranking.view, ranking.search, index_query, ranking.pending)
        watch.lap("search")
        rows, scores = order_candidates(engines, query, index_query, result, expansions, shares)
        watch.lap("rank")
        return _Ranked(index_query, result, rows, scores)

    def _meant(self, ranking: _Ranking, ranked: _Ranked) -> dict[str, str]:
        return spelling.meant(
            ranking.view, ranking.search, ranked.query, ranked.result, ranking.pending, knows=self._thesaurus.knows
        )

    def _build(self, engines: Engines, actor: Actor, ranking: _Ranking, ranked: _Ranked) -> tuple[HitBuilder, Answer]:
        """Build the hits; the builder knows afterwards which copies are stale."""
        tx, allowed, query = ranking.search
        builder = HitBuilder(
            engines,
            tx,
            allowed,
            query,
            ranked.result.pool,
            ranked.scores,
            readable=permissions.LazyScope(partial(permissions.select, tx, actor)),
            nearness=partial(self._queries.nearness, query),
            word_nearness=self._thesaurus.nearness,
        )
        return builder, builder.answer(ranked.rows)

    def _wishes(self, engines: Engines, tx: Reading, call: _Call, ranking: _Ranking) -> tuple[Wish, ...]:
        """Return the standing wishes of the user who asks, in the spaces that a recall asks by default."""
        names = call.query.request.default_spaces
        if "wishes" not in call.query.request.include:
            return ()
        allowed = permissions.without_proposals(permissions.scope_of(tx, call.actor, names, refuse=False), *names)
        asker = wishes.asker(call.actor, in_home=engines.folder.keeps_files)
        search = phrases.Search(tx, allowed, parse(engines, RecallRequest(k=wishes.CANDIDATES)))
        newest = ranking._replace(search=search, vector=None)
        found = self._rank(engines, newest, call.watch, tags=(wishes.LABEL + asker,))
        return wishes.list_wishes(tx, asker, self._build(engines, call.actor, newest, found)[1].hits)

    def _text_vector(self, text: str) -> npt.NDArray[np.float64]:
        """Return the thesaurus vector of a text, cached: windows of messages overlap, so each recurs many times."""
        vector = self._text_vectors.get(text)
        if vector is None:
            if len(self._text_vectors) >= _CACHE_TEXTS:
                self._text_vectors.clear()
            inputs = [indexed_passages.embedding_input(text)]
            vector = self._text_vectors[text] = self._thesaurus.embed(inputs)[0].astype(np.float64)
        return vector

    def similarity(self, texts: Sequence[str], others: Sequence[str]) -> float:
        """Return the similarity in meaning of two groups of texts: the cosine of the sums of their vectors."""
        first, second = (np.sum([self._text_vector(text) for text in group], axis=0) for group in (texts, others))
        norms = float(np.linalg.norm(first) * np.linalg.norm(second))
        return float(first @ second) / norms if norms else 1.0

    def reindex(self, engines: Engines, *, anew: bool, progress: Progress) -> int:
        """Make missing vectors and update the index, while others write and recall; return the memories written.

        Afterwards the index is in one piece, or two, so that recalls are as fast as they can be.
        `anew` rebuilds the index from nothing. So does a new embedder, or the first vectors of an index without any.
        """
        embedded = (
            index_updater.embed_missing(engines, self._embedder, progress=progress) if self._embedder.slow else ()
        )
        view = self._index.view()
        lacks_vectors = bool(embedded) and view.state is not None and not view.state.dimensions
        anew = anew or lacks_vectors or not self._updater.has_own_vectors(view)
        return self._updater.write(engines, anew=anew, also=embedded, thorough=True, progress=progress)

    def catch_up(self, engines: Engines, is_over: Callable[[], bool]) -> int:
        """Write pending changes into the index, so that the next recall need not; return how many slices were written.

        `is_over` is asked after each slice. While another process writes the index, nothing is done.
        """
        with engines.db.reading() as tx:
            total = changes.total(tx)
        slices = 0
        if total != self._caught_up_to:
            with suppress(Busy):
                while self._updater.write_slice(engines):
                    slices += 1
                    if is_over():
                        return slices
                self._caught_up_to = total
        return slices

    def findings(self) -> tuple[Finding, ...]:
        """Return the damage found in the index; recall is right without it, and slower."""
        fix = "run `commonbook reindex --anew`; nothing is lost, the index can be made again at any time"
        return tuple(Finding("index", ".commonbook/index", why, fix) for why in self._index.damage())

    def pending_changes(self, engines: Engines) -> int:
        """Return how many changed memories and messages are not in the index yet."""
        return self._updater.count_pending(engines)

    def close(self) -> None:
        """Close the index."""
        self._index.close()

    def _query_vector(self, query: str, view: IndexView, notes: list[str]) -> indexed_passages.Vector | None:
        """Return the vector of a query; None, with a note, if only words can be searched."""
        try:
            if not self._updater.has_own_vectors(view):
                notes.append(
                    "searched by words only: the index has another embedder's vectors; run `commonbook reindex`"
                )
                return None
            vector: indexed_passages.Vector = self._embedder.embed([indexed_passages.embedding_input(query)])[0]
        except EmbedderFailed as error:
            notes.append(f"searched by words only: {error}")
            return None
        if view.state is not None and view.state.unembedded and self._embedder.slow:
            notes.append(f"{view.state.unembedded} passages wait for their vectors; run `commonbook reindex`")
        return vector


_DAY_MICROS: Final = 86_400_000_000
_FEW_PASSAGES: Final = 60
_EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()


def order_candidates(
    engines: Engines,
    query: ParsedQuery,
    index_query: IndexQuery,
    result: IndexResult,
    expansions: list[scoring.ExpandedTerm],
    phrase_matches: npt.NDArray[np.float64] | None = None,
) -> tuple[Sequence[int], scoring.Scores]:
    """Return the eligible rows of the candidate pool, best first, and the scores of all rows.

    Without a query, the newest come first.
    """
    if query.is_empty:
        return _newest_first(result)
    features = scoring.QueryFeatures(
        idf=[
            # A date that nobody wrote down says nothing: the time of a passage may still match it.
            0.0 if not having and terms.is_date(term) else scoring.idf(result.total, having)
            for term, having in zip(index_query.terms, result.document_frequencies, strict=True)
        ],
        words=frozenset(re.findall(r"\w+", query.request.query[:MAX_QUERY_CHARS].lower())),
        asks_when=dates_in_text.asks_when(query.request.query[:MAX_QUERY_CHARS]),
        asks_for_advice=asks_for_advice(query.request.query[:MAX_QUERY_CHARS]),
        asks_for_name=terms.asks_for_name(query.request.query[:MAX_QUERY_CHARS]),
        vector=index_query.vector,
        name_place=len(index_query.terms) + len(index_query.expansion_terms) - 1,
    )
    named = dates_in_text.named_dates(query.request.query[:MAX_QUERY_CHARS])
    date_matches = match_days(engines, named, result.pool.times) if named else None
    rows, scores = scoring.rank(
        features, result.pool, expansions=expansions, date_matches=date_matches, phrase_matches=phrase_matches
    )
    return rows.tolist(), scores._replace(rarity=_rarity(features.idf, query, result))


def _newest_first(result: IndexResult) -> tuple[Sequence[int], scoring.Scores]:
    """Return messages and first passages of memories, newest first, with a score of zero.

    Of equal times, the later position in its thread comes first.
    """
    pool = result.pool
    listed = pool.eligible & (((pool.flags & IS_MESSAGE) > 0) | (pool.positions == 0))
    last_first = np.lexsort((pool.orders, pool.positions, pool.times))[::-1]
    return last_first[listed[last_first]].tolist(), scoring.Scores(np.zeros(len(listed)), np.zeros((0, len(listed))))


def _rarity(idf: Sequence[float], query: ParsedQuery, result: IndexResult) -> QueryRarity:
    """Return how rare the terms of a query are: in a home of few passages, as if it had more.

    Among three passages every word is as common as any, which says nothing about a query.
    """
    passages = max(result.total, _FEW_PASSAGES)
    frequencies = result.document_frequencies
    weights = [
        scoring.idf(passages, having) if weight else 0.0 for weight, having in zip(idf, frequencies, strict=True)
    ]
    total = sum(weights)
    known = sum(weight for weight, having in zip(weights, frequencies, strict=True) if having)
    share = known / total if total else 0.0
    words = len(query.request.query[:MAX_QUERY_CHARS].split())
    return QueryRarity(len(idf), total, share, _unknown_names(query, frequencies), result.total, words)


def _unknown_names(query: ParsedQuery, frequencies: Sequence[int]) -> tuple[int, ...]:
    """Return the places of the query's terms that are names, and occur nowhere."""
    if all(frequencies):
        return ()
    names = terms.names_in(query.request.query[:MAX_QUERY_CHARS])
    named = {term for word, term in query.words if word in names}
    return tuple(
        place
        for place, (term, having) in enumerate(zip(query.terms, frequencies, strict=True))
        if not having and term in named
    )


def match_days(
    engines: Engines, named: dates_in_text.NamedDates, times: npt.NDArray[np.int64]
) -> npt.NDArray[np.float64]:
    """Return how well the day of each time, in the home's zone, matches the dates that the query names.

    No zone is a whole day ahead of UTC or behind it. So where a UTC day and both its neighbours match equally, every
    time of that day has this match in any zone, and need not be converted to local time.
    """
    days, day_of_row = np.unique(times // _DAY_MICROS, return_inverse=True)
    match_by_day = np.array([_uniform_match(named, _EPOCH_ORDINAL + day) for day in days.tolist()])
    matches: npt.NDArray[np.float64] = match_by_day[day_of_row]
    for row in np.flatnonzero(np.isnan(matches)).tolist():
        matches[row] = named.match(_local_day(engines, int(times[row])))
    return matches


def _uniform_match(named: dates_in_text.NamedDates, day: int) -> float:
    """Return how well a day matches, if the days before and after it match equally; else NaN."""
    if not date.min.toordinal() < day < date.max.toordinal():
        return math.nan
    matches = {named.match(date.fromordinal(day + offset)) for offset in (-1, 0, 1)}
    return matches.pop() if len(matches) == 1 else math.nan


def _local_day(engines: Engines, time: int) -> date:
    """Return the day of a time in the home's zone; at the ends of the calendar, in UTC."""
    moment = indexed_passages.time_of_micros(time)
    try:
        return moment.astimezone(engines.zone).date()
    except OverflowError:
        return moment.date()

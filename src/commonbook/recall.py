"""Recall: from a question to the passages that answer it best, each with what is to be known about it."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import date, datetime
from functools import partial
from typing import Final

import numpy as np
import numpy.typing as npt

from commonbook import (
    analysis,
    changes,
    dates,
    embedding,
    indexing,
    ranking,
    reading,
    refreshing,
    when,
    wording,
)
from commonbook.catalogue import FOREVER, IS_CHAT, Found, Sought
from commonbook.errors import BadInput, Busy, CommonbookError, EmbedderFailed
from commonbook.model import Asked, Finding, Memory, Progress, Recalled, Spaces
from commonbook.ports import Embedder, Index, IndexView, Overtaken, Parts, Thesaurus
from commonbook.principals import Actor
from commonbook.query_expansion import QueryExpansion
from commonbook.telling import Clear, Teller, within

MOST: Final = 200
INCLUDE: Final = ("superseded", "expired", "notices")
"""What is left out unless it is asked for."""

MAX_QUERY_CHARS: Final = 20_000
_TERMS: Final = 64
_MEANINGS: Final = 500
_CANDIDATES: Final = 50
_LOOKS: Final = 3
_DAY: Final = 86_400_000_000
_FIRST_DAY: Final = date(1970, 1, 1).toordinal()


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
        self._follower = indexing.Follower(index, embedder)
        self._meanings: dict[str, npt.NDArray[np.float64]] = {}
        self._expansion = QueryExpansion(thesaurus)

    def recall(self, parts: Parts, actor: Actor, asked: Asked, *, progress: Progress) -> Recalled:
        """Return the passages that answer a question best; without a question, the newest."""
        watch = _Watch()
        clear = parse(parts, asked)
        # First from what is known of the index already, unless too much has changed since: mostly that is enough.
        known = self._follower.known()
        watch.lap("follow")
        if known is not None:
            with suppress(Overtaken):
                return self._answered(parts, actor, clear, known, watch, most=indexing.FEW)
        for _ in range(_LOOKS):
            view = self._follower.view(parts, progress)
            watch.lap("follow")
            with suppress(Overtaken):
                return self._answered(parts, actor, clear, view, watch)
        # Others write the index all the time: without it the answer is the same, and takes longer.
        return self._answered(parts, actor, clear, self._index.nothing(), watch)

    def _answered(
        self, parts: Parts, actor: Actor, clear: Clear, view: IndexView, watch: _Watch, *, most: int = indexing.ANY
    ) -> Recalled:
        """Answer from one view of the index; Overtaken if that is no longer to be had, or more than `most` changed."""
        asked, notes = clear.asked, list[str]()
        vector = None if clear.is_empty else self._vector(asked.query, view, notes)
        watch.lap("embed")
        with parts.db.reading() as tx:
            changed = changes.total(tx)
            allowed = reading.reached(tx, actor, asked.spaces)
            tail = self._follower.tail(tx, view, changed(), most=most)
            watch.lap("tail")
            sought, near = self._sought(clear, allowed, vector)
            watch.lap("near")
            try:
                found = view.search(sought, tail, tx)
            except Busy as error:
                raise Overtaken from error
            watch.lap("search")
            rows, scores = newest_first(found) if clear.is_empty else ranked(parts, clear, sought, found, near)
            watch.lap("rank")
            readable = reading.Later(partial(reading.readable, tx, actor))
            teller = Teller(parts, tx, allowed, clear, found.pool, scores, readable=readable)
            hits = tuple(within(teller.hits(rows), asked.budget_tokens))
            watch.lap("tell")
        self._renew(parts, teller.stale)
        return Recalled(hits, watch.total, watch.steps if asked.explain else {}, tuple(notes))

    def _renew(self, parts: Parts, stale: Sequence[Memory]) -> None:
        """Ask for what was told stale to be refreshed; recall itself changes nothing, and waits for nobody."""
        if stale:
            with suppress(CommonbookError):
                refreshing.ask_to_renew(parts, stale)

    def _meaning(self, text: str) -> npt.NDArray[np.float64]:
        """Return the vector of a text; windows of messages overlap, so that each is asked for many times."""
        found = self._meanings.get(text)
        if found is None:
            if len(self._meanings) >= _MEANINGS:
                self._meanings.clear()
            found = self._meanings[text] = self._thesaurus.embed([indexing.said(text)])[0].astype(np.float64)
        return found

    def likeness(self, some: Sequence[str], others: Sequence[str]) -> float:
        """Return how alike two runs of texts are in meaning: the cosine of what each holds in all."""
        one, other = (np.sum([self._meaning(text) for text in texts], axis=0) for texts in (some, others))
        lengths = float(np.linalg.norm(one) * np.linalg.norm(other))
        return float(one @ other) / lengths if lengths else 1.0

    def reindex(self, parts: Parts, *, anew: bool, progress: Progress) -> int:
        """Bring vectors and index up to the book, while others write and recall; `anew`, from nothing."""
        embedded = embedding.embed_missing(parts, self._embedder, progress=progress) if self._embedder.slow else ()
        view = self._index.view()
        without = bool(embedded) and view.marker is not None and not view.marker.dimensions
        anew = anew or without or not self._follower.compares(view)
        return self._follower.write(parts, anew=anew, also=embedded, progress=progress)

    def findings(self) -> tuple[Finding, ...]:
        """Return what is wrong with the index; recall is right without it, and slower."""
        fix = "run `commonbook reindex --anew`; nothing is lost, the index can be made again at any time"
        return tuple(Finding("index", ".commonbook/index", why, fix) for why in self._index.damage())

    def close(self) -> None:
        """Let go of the index."""
        self._index.close()

    def _vector(self, query: str, view: IndexView, notes: list[str]) -> indexing.Vector | None:
        try:
            if not self._follower.compares(view):
                notes.append(
                    "searched by words only: the index has another embedder's vectors; run `commonbook reindex`"
                )
                return None
            vector: indexing.Vector = self._embedder.embed([indexing.said(query)])[0]
        except EmbedderFailed as error:
            notes.append(f"searched by words only: {error}")
            return None
        if view.marker is not None and view.marker.unembedded and self._embedder.slow:
            notes.append(f"{view.marker.unembedded} passages wait for their vectors; run `commonbook reindex`")
        return vector

    def _sought(
        self, clear: Clear, allowed: Spaces, vector: indexing.Vector | None
    ) -> tuple[Sought, list[ranking.Near]]:
        terms = clear.terms
        near_terms, near = self._expansion.expand(clear.words, terms)
        include = clear.asked.include
        sought = Sought(
            terms=terms,
            near=near_terms,
            vector=vector,
            spaces=frozenset(allowed),
            kinds=frozenset(clear.asked.kinds),
            without=frozenset() if "notices" in include or "notice" in clear.asked.kinds else frozenset({"notice"}),
            tags=clear.asked.tags,
            since=indexing.micros(clear.since) if clear.since else -FOREVER,
            until=indexing.micros(clear.until) if clear.until else FOREVER,
            as_of=indexing.micros(clear.as_of) if clear.as_of else None,
            alive_at=-FOREVER if "expired" in include else indexing.micros(clear.now),
            superseded="superseded" in include,
            first=max(_CANDIDATES, clear.asked.k),
            reach=ranking.REACH,
            newest=clear.is_empty,
        )
        return sought, near


# --- the question


def parse(parts: Parts, asked: Asked) -> Clear:
    """Check everything that was asked, and read its times and words."""
    _require_types(asked)
    if not wording.is_unicode(asked.query):
        raise BadInput("the question has characters that are no text", fix="send UTF-8")
    if not 1 <= asked.k <= MOST:
        raise BadInput(f"k {asked.k} is out of range", fix=f"ask for 1 to {MOST} hits")
    if asked.budget_tokens is not None and asked.budget_tokens < 1:
        raise BadInput(f"a budget of {asked.budget_tokens} tokens has room for nothing", fix="give at least 1")
    for name in asked.include:
        if name not in INCLUDE:
            raise BadInput(f"{name!r} is nothing that is left out", fix=f"include some of {', '.join(INCLUDE)}")
    if asked.min_score is not None and not 0 <= asked.min_score <= 2:
        raise BadInput(f"min_score {asked.min_score} is out of range", fix="give a number from 0 to 2")
    now = parts.clock.now()
    asked = asked._replace(tags=wording.tags(asked.tags), kinds=reading.known_kinds(asked.kinds))
    if not asked.query.strip():
        asked = asked._replace(min_score=0.0)
    return Clear(
        asked=asked,
        words=_few(analysis.query_words(asked.query[:MAX_QUERY_CHARS])),
        since=_time(parts, "since", asked.since, now),
        until=_time(parts, "until", asked.until, now),
        as_of=_time(parts, "as_of", asked.as_of, now),
        now=now,
    )


def _require_types(asked: Asked) -> None:
    """Refuse what is no text or number, before anything stumbles over it."""
    texts = (asked.query, *asked.spaces, *asked.kinds, *asked.tags, *asked.include)
    if not all(isinstance(text, str) for text in texts):
        raise BadInput("a question, space, kind, tag or include is no text", fix="give strings")
    numbers: list[object] = [asked.k, *(one for one in (asked.min_score, asked.budget_tokens) if one is not None)]
    if any(isinstance(one, bool) or not isinstance(one, int | float) for one in numbers) or asked.k != int(asked.k):
        raise BadInput("k, min_score or budget_tokens is no number", fix="give numbers")


def _time(parts: Parts, name: str, value: datetime | str | None, now: datetime) -> datetime | None:
    if value is None:
        return None
    return dates.read_time(value, zone=parts.zone, edge=dates.field_edge(name), now=now)


def _few(words: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return the words of a question; of a long one those at its ends, where people say what it is about."""
    distinct = list({term: (word, term) for word, term in words}.values())
    half = _TERMS // 2
    return tuple(distinct if len(distinct) <= _TERMS else distinct[:half] + distinct[-half:])


def ranked(
    parts: Parts, clear: Clear, sought: Sought, found: Found, near: list[ranking.Near]
) -> tuple[Sequence[int], ranking.Scores]:
    """Return the candidates of a question, best first, with their scores."""
    question = ranking.Question(
        idf=[ranking.idf(found.total, having) for having in found.having],
        words=frozenset(re.findall(r"\w+", clear.asked.query[:MAX_QUERY_CHARS].lower())),
        asks_when=when.asks_when(clear.asked.query[:MAX_QUERY_CHARS]),
        vector=sought.vector,
    )
    named = when.named(clear.asked.query[:MAX_QUERY_CHARS])
    days = matching_days(parts, named, found.pool.times) if named else None
    rows, scores = ranking.rank(question, found.pool, near=near, dates=days)
    return rows.tolist(), scores


def matching_days(parts: Parts, named: when.Named, times: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Return how well the day of each moment, in the home's zone, matches the one that is named.

    No zone is a whole day ahead of UTC or behind it: where three days match alike, so does each moment of the middle
    one, and need not be told in local time.
    """
    days, places = np.unique(times // _DAY, return_inverse=True)
    alike = np.array([_if_alike(named, _FIRST_DAY + day) for day in days.tolist()])
    matching: npt.NDArray[np.float64] = alike[places]
    for at in np.flatnonzero(np.isnan(matching)).tolist():
        matching[at] = named.match(_day(parts, int(times[at])))
    return matching


def _if_alike(named: when.Named, day: int) -> float:
    """Return how well a day matches, if those beside it match as well; else no number."""
    if not date.min.toordinal() < day < date.max.toordinal():
        return math.nan
    around = {named.match(date.fromordinal(day + apart)) for apart in (-1, 0, 1)}
    return around.pop() if len(around) == 1 else math.nan


def _day(parts: Parts, time: int) -> date:
    """Return the day of a moment in the home's zone; at the ends of the calendar, in UTC."""
    moment = indexing.moment_at(time)
    try:
        return moment.astimezone(parts.zone).date()
    except OverflowError:
        return moment.date()


# --- without a question


def newest_first(found: Found) -> tuple[Sequence[int], ranking.Scores]:
    """Return what happened last, without a score; what was said at one moment, in the order in which it was said."""
    pool = found.pool
    told = pool.eligible & (((pool.flags & IS_CHAT) > 0) | (pool.positions == 0))
    last_first = np.lexsort((pool.orders, pool.positions, pool.times))[::-1]
    return last_first[told[last_first]].tolist(), ranking.Scores(np.zeros(len(told)), {})

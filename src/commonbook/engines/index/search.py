"""Searching segments: filter, count, choose candidates by terms and by vector, and gather what scoring needs.

Nothing here depends on how passages are spread over segments, nor on passages that the question may not see:
candidates of one score are chosen by their ids, and the first pass over vectors keeps everything up to a distance.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import accumulate
from typing import Any, Final, NamedTuple

import numpy as np

from commonbook.engines.index.segments import Bools, Floats, Hashes, Rows, Segment, hashes, tag_term
from commonbook.engines.index.vector_distance import cosines, embedded, near_by_sketch, rough_cosines, roughness
from commonbook.model.memory import KINDS
from commonbook.ports.index import FOREVER, IS_CHAT, CandidatePool, IndexQuery, IndexResult

_ENOUGH: Final = 2
"""So many times the rows that are needed the rarest terms shall have, before others are left out: some have several."""

_ROUGHLY: Final = 4
"""So many times the rows that are needed are compared exactly, where there are more."""

PARTS_OF_ONE: Final = 3
"""So many parts of one memory are candidates: it is told once, whatever else of it would do."""

_NO_KEYS: Final = np.zeros(0, np.uint64)
_NO_ROWS: Final = np.zeros(0, np.int64)
_NO_ONE: Final[tuple[Rows, Any]] = (np.zeros(0, np.intp), np.zeros(0))


class Part(NamedTuple):
    """A segment, and which of its rows still count."""

    segment: Segment
    alive: Bools


class _Open(NamedTuple):
    """A segment as one question sees it: the live rows of its spaces, and those that it may find."""

    segment: Segment
    visible: Bools
    wanted: Bools


class Counts(NamedTuple):
    """How many live passages the asked spaces have, and how many of them each term."""

    total: int
    having: tuple[int, ...]

    @property
    def weights(self) -> list[float]:
        """How much each term tells."""
        return [float(np.log(1 + (self.total - df + 0.5) / (df + 0.5))) for df in self.having]


def count(parts: Sequence[Part], sought: IndexQuery) -> Counts:
    """Count the live passages of the asked spaces, whether the question may find them or not."""
    opened = [_opened(part, sought) for part in parts]
    return _counted(opened, _postings(opened, sought), sought)


def search(
    parts: Sequence[Part], sought: IndexQuery, counts: Counts | None = None, *, exactly: bool = False
) -> IndexResult:
    """Return the candidates and all that scoring needs to know of them.

    `counts` are given where the parts are not everything: then candidates are compared as among all. `exactly`, all
    vectors are compared, and not first their sketches, which these parts need not have.
    """
    opened = [_opened(part, sought) for part in parts]
    postings = _postings(opened, sought)
    counted = counts or _counted(opened, postings, sought)
    chosen = _chosen(opened, postings, counted, sought, exactly=exactly)
    return IndexResult(counted.total, counted.having, _pool(opened, chosen, sought))


def candidates(parts: Sequence[Part], sought: IndexQuery, counts: Counts) -> list[tuple[int, int]]:
    """Return the threads and places of these parts' candidates among all."""
    opened = [_opened(part, sought) for part in parts]
    chosen = _chosen(opened, _postings(opened, sought), counts, sought, exactly=True)
    return [
        place
        for one, rows in zip(opened, chosen, strict=True)
        for place in zip(one.segment.thread[rows].tolist(), one.segment.position[rows].tolist(), strict=True)
    ]


def _postings(opened: Sequence[_Open], sought: IndexQuery) -> list[list[Rows]]:
    return [one.segment.with_terms(sought.terms) for one in opened]


def _counted(opened: Sequence[_Open], postings: Sequence[Sequence[Rows]], sought: IndexQuery) -> Counts:
    total, having = 0, [0] * len(sought.terms)
    for one, rows_of in zip(opened, postings, strict=True):
        seen = int(np.count_nonzero(one.visible))
        total += seen
        for at, rows in enumerate(rows_of):
            # Mostly every row is seen: then nobody has to look which of the term's are.
            having[at] += len(rows) if seen == one.segment.rows else int(np.count_nonzero(one.visible[rows]))
    return Counts(total, tuple(having))


def _chosen(
    opened: Sequence[_Open], postings: Sequence[Sequence[Rows]], counts: Counts, sought: IndexQuery, *, exactly: bool
) -> list[Rows]:
    if sought.newest:
        return _by_time(opened, sought)
    by_terms = _by_terms(opened, postings, counts.weights, sought)
    by_vector = _by_vector(opened, sought, exactly=exactly)
    return [np.concatenate(both).astype(np.intp) for both in zip(by_terms, by_vector, strict=True)]


def _opened(part: Part, sought: IndexQuery) -> _Open:
    segment, alive = part
    spaces = np.array([space in sought.spaces for space in segment.table("space")], np.bool_)
    if not len(spaces) or not spaces.any():
        nothing = np.zeros(segment.rows, np.bool_)
        return _Open(segment, nothing, nothing)
    visible = alive if spaces.all() else alive & spaces[segment.column("space")]
    wanted = visible
    for condition in _conditions(segment, sought):
        wanted = wanted & condition
    return _Open(segment, visible, wanted)


def _conditions(segment: Segment, sought: IndexQuery) -> list[Bools]:
    """Return what must hold of each row, but for what holds of all."""
    found: list[Any] = []
    if sought.kinds or sought.without:
        allowed = [(not sought.kinds or kind in sought.kinds) and kind not in sought.without for kind in KINDS]
        if not all(allowed[kind] for kind in segment.bundle.about["kinds"]):
            found.append(np.array(allowed, np.bool_)[segment.column("kind")])
    for tag in sought.tags:
        tagged = np.zeros(segment.rows, np.bool_)
        tagged[segment.with_terms([tag_term(tag)])[0]] = True
        found.append(tagged)
    if sought.since > -FOREVER:
        found.append(segment.column("time") >= sought.since)
    if sought.until < FOREVER:
        found.append(segment.column("time") <= sought.until)
    if segment.bundle.about["soonest_expiry"] <= sought.alive_at:
        found.append(segment.column("expires") > sought.alive_at)
    if sought.as_of is not None:
        found.append(segment.column("valid_from") <= sought.as_of)
        found.append(segment.column("valid_until") > sought.as_of)
    if segment.bundle.about["has_superseded"] and not sought.superseded:
        found.append(segment.column("superseded") > (FOREVER - 1 if sought.as_of is None else sought.as_of))
    return found


# --- candidates


def _by_terms(
    opened: Sequence[_Open], postings: Sequence[Sequence[Rows]], weights: Sequence[float], sought: IndexQuery
) -> list[Rows]:
    """Return the rows with the largest sum of the rarity of the terms that they have."""
    kept = []
    for one, rows_of in zip(opened, postings, strict=True):
        few, beyond = _telling(rows_of, weights, sought.first)
        best = _first_of(one.segment, *_sums(one, rows_of, weights, few), sought.first, beyond=beyond)
        if best is None:
            best = _first_of(one.segment, *_sums(one, rows_of, weights, range(len(weights))), sought.first)
        kept.append(best or _NO_ONE)
    return _first(opened, kept, sought.first)


def _telling(postings: Sequence[Rows], weights: Sequence[float], first: int) -> tuple[Collection[int], float]:
    """Return the terms of which each of the first rows probably has one, and the most that a row without them has.

    Common words are in many rows and tell little: where the rows of rarer ones suffice, those that have nothing else
    are left out, and need not be read. Whether they suffice is seen from what they come to.
    """
    rarest = sorted(range(len(weights)), key=lambda at: -weights[at])
    reached = accumulate(len(postings[at]) for at in rarest)
    # So much have enough rows already for one of the rarest.
    least = next((weights[at] for at, rows in zip(rarest, reached, strict=True) if rows >= _ENOUGH * first), 0.0)
    few = set(rarest)
    left_out = 0.0
    for at in reversed(rarest):
        left_out += weights[at]
        if left_out >= least:
            break
        few.remove(at)
    beyond = 0.0
    for at, weight in enumerate(weights):
        # One after the other, as a row's are added up, so that no row without the few comes to more, to the last digit:
        # Python's own sum is more exact, and may come to less.
        beyond += 0.0 if at in few else weight
    return few, beyond


def _sums(one: _Open, postings: Sequence[Rows], weights: Sequence[float], few: Collection[int]) -> tuple[Rows, Any]:
    """Return the rows that have one of a few terms, and the sum of the rarity of all that each of them has."""
    marked = np.zeros(one.segment.rows, np.bool_)
    for at in few:
        marked[postings[at]] = True
    sums = np.zeros(one.segment.rows)
    for at, (rows, weight) in enumerate(zip(postings, weights, strict=True)):
        sums[rows if at in few else rows[marked[rows]]] += weight
    found = np.flatnonzero(marked & one.wanted)
    return found, sums[found]


def _by_vector(opened: Sequence[_Open], sought: IndexQuery, *, exactly: bool) -> list[Rows]:
    """Return the rows that are nearest by vector: first by their sketches, then those exactly; or all of them so."""
    vector = sought.vector
    if vector is None or not vector.any():
        return [np.zeros(0, np.intp) for _ in opened]
    wanted = [(one.segment, one.wanted) for one in opened]
    if exactly:
        near = [(segment, embedded(segment, rows, vector)) for segment, rows in wanted]
        kept = [_nearest(segment, rows, vector, sought.first) for segment, rows in near]
    else:
        kept = [
            _first_of(segment, rows, cosines(segment.vectors[rows], vector), sought.first) or _NO_ONE
            for (segment, _), rows in zip(wanted, near_by_sketch(wanted, vector), strict=True)
        ]
    return _first(opened, kept, sought.first)


def _nearest(segment: Segment, rows: Rows, vector: Floats, first: int) -> tuple[Rows, Any]:
    """Return at least the first of these rows by their vectors; of many, only those are compared that may be."""
    many = _ROUGHLY * first
    rough = rough_cosines(segment, vector)[rows] if len(rows) > many else np.zeros(0)
    while True:
        few = rows
        if len(rows) > many:
            least = -np.partition(-rough, many - 1)[many - 1]
            few = rows[rough >= least - roughness(vector)]
        found = _first_of(segment, few, cosines(segment.vectors[few], vector), first) or _NO_ONE
        if len(found[0]) >= first or len(few) == len(rows):
            return found
        # A long memory took the places of others: look further down.
        many *= _ROUGHLY


def _by_time(opened: Sequence[_Open], sought: IndexQuery) -> list[Rows]:
    """Return the rows of what happened last: messages, and each other memory once. At one moment, the last said."""
    found = [_last_of(one, sought.first) for one in opened]
    if not found:
        return found
    orders, positions, times = (
        np.concatenate([one.segment.column(name)[rows] for one, rows in zip(opened, found, strict=True)])
        for name in ("order", "position", "time")
    )
    owners = np.repeat(np.arange(len(found)), [len(rows) for rows in found])
    first = np.lexsort((orders, positions, times))[::-1][: sought.first]
    rows = np.concatenate(found)[first]
    return [rows[owners[first] == at] for at in range(len(found))]


def _last_of(one: _Open, first: int) -> Rows:
    """Return at least the last rows of one segment, with few others."""
    rows = np.flatnonzero(one.wanted & (((one.segment.flags & IS_CHAT) > 0) | (one.segment.position == 0)))
    times = one.segment.column("time")[rows]
    return rows if len(rows) <= first else rows[times >= np.partition(times, -first)[-first]]


class _Standing(NamedTuple):
    """By what candidates are compared."""

    scores: Any
    orders: Hashes
    threads: Hashes
    positions: Any
    flags: Any


def _standing(segment: Segment, rows: Rows, scores: Any) -> _Standing:  # noqa: ANN401 - an array
    return _Standing(scores, segment.order[rows], segment.thread[rows], segment.position[rows], segment.flags[rows])


def _first(opened: Sequence[_Open], kept: Sequence[tuple[Rows, Any]], first: int) -> list[Rows]:
    """Return of the first of each segment those that are the first of all by score, then by the order of their ids."""
    sizes = [len(rows) for rows, _ in kept]
    # Mostly one segment has as many as are needed, and nobody has to be compared with others.
    if sum(sizes) <= first and np.count_nonzero(sizes) <= 1:
        return [rows for rows, _ in kept]
    owners = np.repeat(np.arange(len(opened)), sizes)
    rows = np.concatenate([rows for rows, _ in kept])
    columns = [_standing(one.segment, *some) for one, some in zip(opened, kept, strict=True)]
    all_ = _Standing(*(np.concatenate(column) for column in zip(*columns, strict=True)))
    # Segment by segment a few of each were kept; a thread may lie in several.
    few = _few_of_each(all_) if np.count_nonzero(sizes) > 1 else np.arange(len(rows))
    best = few[np.lexsort((all_.positions[few], all_.threads[few], ~all_.orders[few], -all_.scores[few]))[:first]]
    return [rows[best[owners[best] == at]] for at in range(len(opened))]


def _first_of(
    segment: Segment,
    rows: Rows,
    scores: Any,  # noqa: ANN401 - an array
    first: int,
    *,
    beyond: float = 0.0,
) -> tuple[Rows, Any] | None:
    """Return at least the first rows of one segment, with few others; of one memory not more than a few.

    `beyond` is the most that rows score which are not among these: None if one of them might be among the first.
    """
    wanted = first
    while True:
        some, theirs = _best(segment, rows, scores, wanted)
        if beyond and (len(rows) <= wanted or theirs.min() <= beyond):
            return None
        kept = _few_of_each(_standing(segment, some, theirs))
        if len(kept) >= first or (len(some) == len(rows) and not beyond):
            return some[kept], theirs[kept]
        # A long memory took the places of others: look further down.
        wanted *= 4


def _few_of_each(some: _Standing) -> Rows:
    """Return which of these to keep: every message, and the best parts of each other memory."""
    together = np.sort(some.threads)
    if not (together[PARTS_OF_ONE:] == together[:-PARTS_OF_ONE]).any():
        return np.arange(len(together))
    order = np.lexsort((some.positions, ~some.orders, -some.scores, some.threads))
    threads = some.threads[order]
    begins = np.flatnonzero(np.concatenate([np.ones(min(len(order), 1), np.bool_), threads[1:] != threads[:-1]]))
    place = np.arange(len(order)) - np.repeat(begins, np.diff(np.append(begins, len(order))))
    chat = (some.flags[order] & IS_CHAT) > 0
    return np.sort(order[chat | (place < PARTS_OF_ONE)])


def _best(segment: Segment, rows: Rows, scores: Any, first: int) -> tuple[Rows, Any]:  # noqa: ANN401 - an array
    """Return the best rows, and of those that are equal to the last of them the newest."""
    if len(rows) <= first:
        return rows, scores
    # From the best downwards: most rows share a few of the lowest scores, among which a selection from below is slow.
    least = -np.partition(-scores, first - 1)[first - 1]
    better, equal = np.flatnonzero(scores > least), np.flatnonzero(scores == least)
    missing = first - len(better)
    if len(equal) > missing:
        orders = segment.order[rows[equal]]
        newest = np.partition(orders, len(orders) - missing)[len(orders) - missing]
        equal = equal[orders >= newest]
    kept = np.concatenate([better, equal])
    return rows[kept], scores[kept]


# --- the pool


def _pool(opened: Sequence[_Open], chosen: Sequence[Rows], sought: IndexQuery) -> CandidatePool:
    """Gather the candidates, their neighbours, and the neighbours of those."""
    there = [(one.segment, rows) for one, rows in zip(opened, chosen, strict=True)]
    keys = _end_to_end([_NO_KEYS, *(segment.key[rows] for segment, rows in there)])
    threads = _end_to_end([_NO_KEYS, *(segment.thread[rows] for segment, rows in there)])
    positions = _end_to_end([_NO_ROWS, *(segment.position[rows] for segment, rows in there)])
    near, rows_of = [], []
    for one in opened:
        rows, close = one.segment.around(keys, threads, positions, sought.reach)
        seen = one.visible[rows]
        rows_of.append(rows[seen])
        near.append(close[seen] & one.wanted[rows[seen]])
    return _laid_out(opened, rows_of, near, sought)


def _laid_out(
    opened: Sequence[_Open], rows_of: Sequence[Rows], near: Sequence[Bools], sought: IndexQuery
) -> CandidatePool:
    pairs = [(one.segment, rows) for one, rows in zip(opened, rows_of, strict=True)]
    threads = _end_to_end([_NO_KEYS, *(segment.thread[rows] for segment, rows in pairs)])
    positions = _end_to_end([_NO_ROWS, *(segment.position[rows] for segment, rows in pairs)])
    sorting = None if _is_sorted(threads, positions) else np.lexsort((positions, threads))

    def in_order(columns: Sequence[Any]) -> Any:  # noqa: ANN401 - arrays
        column = _end_to_end(columns)
        return column if sorting is None else column[sorting]

    def joined(name: str) -> Any:  # noqa: ANN401 - an array
        return in_order([segment.column(name)[rows] for segment, rows in pairs] or [_NO_ROWS])

    told = [(len(rows), segment.names(rows)) for segment, rows in pairs if len(rows)]

    def name(row: int) -> tuple[str, str]:
        at = row if sorting is None else int(sorting[row])
        for size, named in told:
            if at < size:
                return named(at)
            at -= size
        raise IndexError(row)

    speakers = sorted({speaker for segment, _ in pairs for speaker in segment.table("speaker")})
    places = {speaker: at for at, speaker in enumerate(speakers)}
    spoken = [
        np.array([places[speaker] for speaker in segment.table("speaker")], np.int64)[segment.column("speaker")[rows]]
        for segment, rows in pairs
        if len(rows)
    ]
    asked = sought.vector
    with_vectors = bool(pairs) and asked is not None and all(one.dimensions == len(asked) for one, _ in pairs)
    return CandidatePool(
        name=name,
        speakers=speakers,
        speaker=in_order([_NO_ROWS, *spoken]),
        eligible=in_order([np.zeros(0, np.bool_), *near]),
        threads=_numbered(in_order([threads])),
        positions=in_order([positions]),
        orders=joined("order"),
        starts=joined("start"),
        ends=joined("end"),
        seqs=joined("seq"),
        times=joined("time"),
        flags=joined("flags"),
        lengths=joined("length"),
        entries=_entries(pairs, sorting, sought),
        vectors=joined("vectors") if with_vectors else None,
        scales=joined("scales") if with_vectors else None,
    )


def _end_to_end(columns: Sequence[Any]) -> Any:  # noqa: ANN401 - arrays
    """Return columns as one; where only one has something, that one as it is."""
    full = [column for column in columns if len(column)]
    return full[0] if len(full) == 1 else np.concatenate(columns)


def _is_sorted(threads: Hashes, positions: Any) -> bool:  # noqa: ANN401 - an array
    """Tell whether rows stand in the order of threads and positions: those of one segment do, mostly."""
    same = threads[1:] == threads[:-1]
    return bool(((threads[1:] > threads[:-1]) | (same & (positions[1:] >= positions[:-1]))).all())


def _numbered(threads: Hashes) -> Any:  # noqa: ANN401 - an array
    """Number sorted threads from 0 on."""
    numbers = np.zeros(len(threads), np.int64)
    np.cumsum(threads[1:] != threads[:-1], out=numbers[1:])
    return numbers


def _entries(pairs: Sequence[tuple[Segment, Rows]], sorting: Rows | None, sought: IndexQuery) -> tuple[Any, Any, Any]:
    terms_asked = hashes(sought.terms + sought.near)
    found = [(_NO_ROWS, _NO_ROWS, _NO_ROWS)]
    before = 0
    for segment, rows in pairs:
        if len(rows):
            at, term, count = segment.terms_of(rows, terms_asked)
            found.append((at + before, term.astype(np.int64), count.astype(np.int64)))
            before += len(rows)
    rows_, terms, counts = (_end_to_end(columns) for columns in zip(*found, strict=True))
    if sorting is not None:
        place = np.empty_like(sorting)
        place[sorting] = np.arange(len(sorting))
        rows_ = place[rows_]
    return rows_, terms, counts

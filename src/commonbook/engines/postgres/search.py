"""Searching in PostgreSQL: two questions to the database, and the rest as the embedded index does it.

The first brings, for each term, the ids of the passages that have it, and the ids of the nearest by vector; how many
there are of each is counted on the way. The second brings the best of them with their neighbours, which are laid out as
a segment beside the tail's and searched as segments are. So both engines choose and gather by the same code. Spaces
that are kept in this process are such segments already, and neither question asks for them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np

from commonbook.engines.index.search import PARTS_OF_ONE, Counts, Part, candidates, count, search
from commonbook.engines.index.segments import Floats, Segment, compact, tag_term, widened
from commonbook.engines.postgres.hnsw import DEEPEST, WHOLE, GraphMaintainer, GraphQuery, Nearest, column_of
from commonbook.engines.postgres.passage_cache import EMPTY, FEW, CachedVersion, PassageCache, part_of
from commonbook.engines.postgres.passage_rows import FETCHED, ID, ids_of, numbers_of, signed, unpacked
from commonbook.engines.postgres.pipeline import Binary, Pipeline, PipelineResult, Row
from commonbook.errors import Busy
from commonbook.model.memory import KINDS
from commonbook.ports.index import FOREVER, IS_CHAT, IndexQuery, IndexResult, IndexState

_SPARE: Final = 10
"""So many more than are wanted are looked at first: some are not to be found, or parts of one memory."""

_DEEPER: Final = 4

_LOOK_UPS: Final = 10_000
"""So many times a term is looked up in a space for one question; beyond that, only the rarest terms are."""

_FEWEST: Final = 4
_TOGETHER: Final = 8
"""So many candidates come in one row, with their neighbours: all in one would be moved about in memory too often."""

_MANY: Final = 64
_SAMPLE: Final = 16

# Which graphs there are is looked up only where there may be one.
_ABOUT: Final = f"""
    SELECT generation, embedder, coalesce(dimensions, 0), array_send(spaces), array_send(sizes), array_send(versions),
      CASE WHEN passages > %(least)s THEN ({WHOLE}) END
    FROM recall_index CROSS JOIN (
      SELECT array_agg(space) AS spaces, array_agg(passages) AS sizes, array_agg(version) AS versions,
        coalesce(sum(passages), 0)::bigint AS passages
      FROM recall_space WHERE space = ANY(%(every)s::bigint[])
    ) s
"""
_REPLACED: Final = """
    SELECT array_send(array_agg(id)) FROM recall_passage
    WHERE owner = ANY(%(owners)s::bigint[]) AND space = ANY(%(spaces)s::bigint[])
"""
_POSTINGS: Final = """
    SELECT space, term, array_send(array_agg(id)), NULL::bigint FROM recall_posting
    WHERE space = ANY(%(spaces)s::bigint[]) AND term = ANY(%(terms)s::bigint[]) GROUP BY space, term
"""
_FILTERED: Final = """
    SELECT o.space, o.term, array_send(array_agg(o.id) FILTER (WHERE {wanted})), count(*)
    FROM recall_posting o JOIN recall_passage p USING (space, id)
    WHERE o.space = ANY(%(spaces)s::bigint[]) AND o.term = ANY(%(terms)s::bigint[]){others} GROUP BY o.space, o.term
"""
# How common the terms are in the largest of the asked spaces.
_COMMON: Final = f"""
    WITH largest AS MATERIALIZED (
      SELECT space, passages FROM recall_space WHERE space = ANY(%(spaces)s::bigint[])
      ORDER BY passages DESC, space LIMIT {_SAMPLE}
    )
    SELECT term, count(*), (SELECT sum(passages)::bigint FROM largest) FROM recall_posting
    WHERE space IN (SELECT space FROM largest) AND term = ANY(%(terms)s::bigint[]) GROUP BY term
"""
# Vectors of another embedder than the question's are not even looked at.
_NEAREST: Final = """
    SELECT space, uuid_send(id){distance} FROM (
      SELECT space, id, {column} <=> %(vector)s::halfvec AS distance FROM recall_passage p
      WHERE space = ANY(%(spaces)s::bigint[]) AND {column} IS NOT NULL AND {wanted}{others}
        AND (SELECT embedder FROM recall_index) = %(embedder)s
      ORDER BY distance, id LIMIT %(depth)s
    ) nearest
"""
# Without a question: messages, and each other memory once. The newest of each space, as its index has them in order:
# of several spaces at once, all would be read.
_NEWEST: Final = f"""
    SELECT space, uuid_send(id) FROM unnest(%(spaces)s::bigint[]) AS asked CROSS JOIN LATERAL (
      SELECT space, id, time, position FROM recall_passage p
      WHERE space = asked AND (flags & {IS_CHAT} > 0 OR position = 0) AND {{wanted}}{{others}}
      ORDER BY time DESC, position DESC, id LIMIT %(depth)s
    ) p
    ORDER BY time DESC, position DESC, id LIMIT %(depth)s
"""
# What is asked for by its key is looked up by it, however many the database believes that to be: hence the OFFSETs.
_AROUND: Final = f"""
    WITH asked AS (
      SELECT * FROM unnest(%(which)s::smallint[], %(of)s::bigint[], %(ids)s::uuid[])
        WITH ORDINALITY AS a (which, space, id, place)
    ), wanted AS (
      SELECT which, place, p.thread, p.position, p.flags & {IS_CHAT} > 0 AS chat,
        row_number() OVER (PARTITION BY which, p.thread ORDER BY place) AS nth
      FROM asked a CROSS JOIN LATERAL (
        SELECT thread, position, flags FROM recall_passage p
        WHERE p.space = a.space AND p.id = a.id AND {{wanted}} OFFSET 0
      ) p
    ), few AS MATERIALIZED (
      SELECT which, thread, position, row_number() OVER (PARTITION BY which ORDER BY place) AS place
      FROM wanted WHERE chat OR nth <= {PARTS_OF_ONE} OR %(newest)s
    ), places AS (
      SELECT thread, position FROM few WHERE place <= %(first)s
      UNION SELECT * FROM unnest(%(threads)s::bigint[], %(positions)s::bigint[])
    ), spans AS (
      SELECT thread, position + %(far)s AS last, greatest(
        position - %(far)s, lag(position) OVER (PARTITION BY thread ORDER BY position) + %(far)s + 1) AS first,
        row_number() OVER (ORDER BY thread, position) / {_TOGETHER} AS few
      FROM places
    )
    SELECT (SELECT count(*) FROM few WHERE which = 0), (SELECT count(*) FROM few WHERE which = 1), {FETCHED}
    FROM spans s LEFT JOIN LATERAL (
      SELECT columns, entries, name, speaker, vector FROM recall_passage p
      WHERE p.thread = s.thread AND p.position BETWEEN s.first AND s.last
        AND p.space = ANY(%(spaces)s::bigint[]){{others}} OFFSET 0
    ) p ON true
    GROUP BY s.few
"""

# All of one space, to be kept.
_WHOLE: Final = f"""
    SELECT {FETCHED} FROM (
      SELECT columns, entries, name, speaker, vector, row_number() OVER () / {_MANY} AS few
      FROM recall_passage WHERE space = %(space)s
    ) p GROUP BY few
"""


class SearchResources(NamedTuple):
    """What a process has for all its searches."""

    kept: PassageCache
    graphs: GraphMaintainer


class _First(NamedTuple):
    """What the first question brings: which index it is, how much it has, and what may be an answer."""

    generation: int
    embedder: str
    dimensions: int
    known: dict[int, CachedVersion]
    postings: list[Row]
    nearest: list[Row]
    replaced: Any
    whole: Segment | None

    def is_as(self, marker: IndexState) -> bool:
        """Tell whether vectors are as a marker says."""
        return (self.embedder, self.dimensions) == (marker.embedder, marker.dimensions)


class Search:
    """One search in the transaction of one connection: of what that sees, and of a tail."""

    def __init__(
        self, pipe: Pipeline, sought: IndexQuery, tail: Sequence[Part], owners: frozenset[str], at_hand: SearchResources
    ) -> None:
        """Search for this through a pipe; `owners` are those whose passages the tail replaces."""
        self._pipe = pipe
        self._kept, self._graphs = at_hand
        self._sought = sought
        self._tail = tail
        self._owners = owners
        self._spaces: Final = {signed(space): space for space in sought.spaces}
        self._asked: Sequence[int] = ()
        self._given: Final[dict[str, Any]] = {
            "every": _array(self._spaces),
            "terms": _array(map(signed, sought.terms)),
            "owners": _array(map(signed, owners)),
            "first": sought.first,
            "far": 2 * sought.reach,
            "newest": sought.newest,
            "least": self._graphs.least,
        }
        self._dimensions = 0
        self._wanted, self._narrow = _wanted(sought, self._given)
        self._others = " AND p.owner <> ALL(%(owners)s::bigint[])" if owners else ""

    def found(self, marker: IndexState) -> tuple[int, IndexResult]:
        """Return the generation of the index in this transaction, and what is found; vectors are as the marker says."""
        first, common, kept = self._asked_first(marker)
        if first.embedder != marker.embedder:
            self._sought = self._sought._replace(vector=None)
        parts = [*self._tail, *(part_of(segment, self._owners) for segment in kept)]
        counts = None
        if self._asked:
            counts, fetched = self._asked_then(marker, first, common, parts)
            parts = [Part(fetched, np.ones(fetched.rows, np.bool_)), *parts]
        wide = [Part(widened(part.segment, marker.dimensions), part.alive) for part in parts]
        return first.generation, search(wide, self._sought, counts, exactly=True)

    def _asked_first(self, marker: IndexState) -> tuple[_First, dict[str, float], list[Segment]]:
        """Ask the first question in those spaces of which nothing is kept; return what is kept of the others."""
        by_graph = self._graphs.of(self._spaces, marker.dimensions)
        # What a graph finds is not always the same as what is found by comparing all: never now one, now the other.
        few = [space for space in self._spaces if space not in by_graph] if len(self._spaces) <= FEW else []
        expected = self._kept.has(few)
        worth = self._kept.worth_reading(space for space in few if space not in expected)
        first, common = self._first(marker, [space for space in self._spaces if space not in {*expected, worth}], worth)
        kept = self._kept.of(expected, first.known)
        if len(kept) < len(expected):
            # Something that was kept is of another moment: then all of it is asked for, this time.
            first, common = self._first(marker, tuple(self._spaces))
            kept = []
        elif first.whole is not None and worth is not None:
            kept.append(first.whole)
            if first.is_as(marker):
                self._kept.keep(worth, first.known.get(worth, EMPTY).version, first.whole)
        self._kept.note((space for space in few if space in self._asked), first.known)
        return first, common, kept

    def _asked_then(
        self, marker: IndexState, first: _First, common: Mapping[str, float], parts: Sequence[Part]
    ) -> tuple[Counts, Segment]:
        """Ask for the best with their neighbours; return how many there are of everything, and what was fetched."""
        passages = sum(first.known.get(space, EMPTY).passages for space in self._asked)
        matched = _matched(self._sought.terms, first.postings, first.replaced)
        matched = matched.supposing([round(passages * common.get(term, 0)) for term in self._sought.terms])
        here = count(parts, self._sought)
        having = tuple(map(sum, zip(matched.having, here.having, strict=True)))
        counts = Counts(passages - len(first.replaced) + here.total, having)
        rows = self._fetched(matched.weighed(counts.weights), first.nearest, counts, parts)
        said = (*self._sought.terms, *self._sought.near, *map(tag_term, self._sought.tags))
        return counts, unpacked(rows, spaces=self._spaces, terms=said, dimensions=marker.dimensions)

    def _common(self) -> dict[str, float]:
        """Leave out terms that are common, where all would be too many; return the share that may have each."""
        most = max(_LOOK_UPS // max(len(self._asked), 1), _FEWEST)
        if len(self._sought.terms) <= most:
            return {}
        counted = {term: (having, passages) for term, having, passages in self._ask(_COMMON).rows()}
        shares = {term: counted.get(signed(term), (0, 1)) for term in self._sought.terms}
        by_rarity = sorted(self._sought.terms, key=lambda term: shares[term][0])
        self._given["terms"] = _array(map(signed, by_rarity[:most]))
        return {term: shares[term][0] / shares[term][1] for term in by_rarity[most:]}

    def _first(
        self, marker: IndexState, asked: Sequence[int], whole: int | None = None
    ) -> tuple[_First, dict[str, float]]:
        """Ask how many there are, what has the terms, what is nearest, and what the tail replaces; of one space all."""
        self._asked = asked
        self._given["spaces"] = _array(asked)
        self._given["embedder"] = marker.embedder
        self._dimensions = marker.dimensions
        vector = self._sought.vector
        near = vector is not None and len(vector) == marker.dimensions and bool(vector.any())
        near = near or self._sought.newest
        common = self._common()
        about = self._ask(_ABOUT)
        postings = self._ask(self._postings()) if asked and self._sought.terms else None
        nearest = self._nearest(self._sought.first + _SPARE, filtered=self._narrow) if asked and near else None
        replaced = self._ask(_REPLACED) if asked and self._others else None
        all_ = self._ask(_WHOLE, space=whole) if whole is not None else None
        said = about.row()
        if said is None:
            raise Busy("the index is gone", fix="ask again")
        generation, embedder, dimensions, *arrays, graphs = said
        spaces, sizes, versions = map(numbers_of, arrays)
        if self._graphs.learn(graphs, self._spaces, self._dimensions) and nearest:
            # Another server has made one, or dropped it: from now on it is known here too.
            nearest = self._nearest(self._sought.first + _SPARE, filtered=self._narrow)
        first = _First(
            generation,
            embedder,
            dimensions,
            {space: CachedVersion(size, version) for space, size, version in zip(spaces, sizes, versions, strict=True)},
            postings=postings.rows() if postings else [],
            nearest=nearest.rows() if nearest else [],
            replaced=ids_of(next((ids for (ids,) in replaced.rows()), None) if replaced else None),
            whole=None if all_ is None else self._unpacked(all_.rows(), marker),
        )
        return first, common

    def _postings(self) -> str:
        # What leaves out only a few is looked at when the best are known; what leaves out many, before.
        return _FILTERED.format(wanted=self._wanted, others=self._others) if self._narrow else _POSTINGS

    def _nearest(self, depth: int, *, filtered: bool) -> PipelineResult | Nearest:
        if self._sought.newest:
            return self._ask(_NEWEST.format(wanted=self._wanted, others=self._others), depth=depth)
        given = {**self._given, "vector": Binary(_written(self._sought.vector)), "depth": depth}
        wanted = self._wanted if filtered else "true"
        asked = GraphQuery(given, column_of(self._dimensions), self._dimensions, wanted, self._others, depth)
        # What has a tag is found by it, and is mostly little: no graph is as fast.
        by_graph = depth <= DEEPEST and not self._sought.tags
        graphs = self._graphs.of(self._asked, self._dimensions) if by_graph else []
        if not graphs:
            return self._compared(asked, distance="")
        others = [space for space in self._asked if space not in graphs]
        return Nearest(self._pipe, asked, graphs, others, partial(self._compared, asked))

    def _compared(
        self, asked: GraphQuery, spaces: Iterable[int] | None = None, *, distance: str = ", distance"
    ) -> PipelineResult:
        statement = _NEAREST.format(column=asked.column, wanted=asked.wanted, others=asked.others, distance=distance)
        some = {} if spaces is None else {"spaces": _array(spaces)}
        return self._pipe.ask(statement, {**asked.given, **some}, binary=True)

    def _fetched(self, matched: _Weighed, nearest: list[Row], counts: Counts, parts: Sequence[Part]) -> list[Row]:
        """Return the best by terms and by vector with their neighbours, and those of the candidates of other parts."""
        first, depth = self._sought.first, self._sought.first + _SPARE
        beside = candidates(parts, self._sought, counts)
        while True:
            chosen = matched.best(depth)
            by_terms, by_vector, rows = self._around(chosen, nearest, beside)
            short = by_terms < first and len(chosen) < matched.size
            far = by_vector < first and len(nearest) == depth
            if not short and not far:
                return rows
            # Much of it is not to be found, or parts of a long memory: look further down.
            depth *= _DEEPER
            nearest = self._nearest(depth, filtered=True).rows() if nearest else []

    def _around(
        self, chosen: list[Row], nearest: list[Row], beside: Sequence[tuple[int, int]]
    ) -> tuple[int, int, list[Row]]:
        found = [*chosen, *nearest]
        ids = b"".join([id_ for _, id_ in found]).hex()
        rows = self._ask(
            _AROUND.format(wanted=self._wanted, others=self._others),
            which=_array([0] * len(chosen) + [1] * len(nearest)),
            of=_array([space for space, _ in found]),
            ids=_array([ids[at : at + 32] for at in range(0, len(ids), 32)]),
            threads=_array(thread - (1 << 64) if thread >= 1 << 63 else thread for thread, _ in beside),
            positions=_array(position for _, position in beside),
        ).rows()
        by_terms, by_vector, *_ = next(iter(rows), (0, 0))
        return by_terms, by_vector, [tuple(columns) for _, _, *columns in rows]

    def _unpacked(self, rows: list[Row], marker: IndexState) -> Segment:
        return compact(unpacked(rows, spaces=self._spaces, terms=None, dimensions=marker.dimensions))

    def _ask(self, statement: str, **given: object) -> PipelineResult:
        return self._pipe.ask(statement, {**self._given, **given}, binary=True)


def _array(items: Iterable[object]) -> str:
    """Return numbers or ids as the database reads an array, which is many times as fast as by its driver."""
    return "{" + ",".join(map(str, items)) + "}"


def _written(vector: Floats | None) -> bytes:
    """Return a vector as the database keeps it; only its direction counts."""
    if vector is None:
        return b""
    halves: bytes = (vector / np.abs(vector).max()).astype(">f2").tobytes()
    return struct.pack("!HH", len(vector), 0) + halves


# --- what has the terms


class _Weighed(NamedTuple):
    """Passages, each once, and the sum of the rarity of the terms that they have."""

    spaces: Any
    ids: Any
    sums: Any

    @property
    def size(self) -> int:
        return len(self.sums)

    def best(self, most: int) -> list[Row]:
        """Return space and id of the best; of equal ones those whose ids come first."""
        rows = np.arange(self.size)
        if self.size > most:
            least = -np.partition(-self.sums, most - 1)[most - 1]
            rows = np.flatnonzero(self.sums >= least)
        ids = self.ids[rows]
        best = rows[np.lexsort((ids["rest"], ids["newest"], -self.sums[rows]))[:most]]
        said = self.ids[best].astype(ID).tobytes()
        own = (said[at : at + ID.itemsize] for at in range(0, len(said), ID.itemsize))
        return list(zip(self.spaces[best].tolist(), own, strict=True))


class _Matched(NamedTuple):
    """Which passages have which terms, one after the other in the order of the terms."""

    having: tuple[int, ...]
    terms: Any
    spaces: Any
    ids: Any

    def supposing(self, having: Sequence[int]) -> _Matched:
        """Return this with how many may have the terms that were not looked up."""
        return self._replace(having=tuple(map(sum, zip(self.having, having, strict=True))))

    def weighed(self, weights: Sequence[float]) -> _Weighed:
        """Sum up for each passage what its terms weigh, in their order: so the sums are the same everywhere."""
        _, first, places = np.unique(_mixed(self.ids), return_index=True, return_inverse=True)
        sums = np.bincount(places, np.array(weights)[self.terms]) if len(places) else np.zeros(0)
        return _Weighed(self.spaces[first], self.ids[first], sums)


def _matched(terms: Sequence[str], postings: Sequence[Row], replaced: Any) -> _Matched:  # noqa: ANN401 - ids
    """Take apart what has each term, without what is replaced."""
    place = {signed(term): at for at, term in enumerate(terms)}
    runs = sorted(
        ((place[term], space, ids_of(ids), size) for space, term, ids, size in postings), key=lambda run: run[0]
    )
    lengths = [len(ids) for _, _, ids, _ in runs]
    found = _Matched(
        (),
        np.repeat(np.array([at for at, _, _, _ in runs], np.intp), lengths),
        np.repeat(np.array([space for _, space, _, _ in runs], np.int64), lengths),
        np.concatenate([ids_of(None), *(ids for _, _, ids, _ in runs)]),
    )
    if len(replaced):
        kept = ~np.isin(_mixed(found.ids), _mixed(replaced))
        found = _Matched((), found.terms[kept], found.spaces[kept], found.ids[kept])
    having = np.bincount(found.terms, minlength=len(terms))
    for at, _, _, size in runs:
        # Where only some of them may be found, they were counted apart.
        having[at] = 0 if size is not None else having[at]
    for at, _, _, size in runs:
        having[at] += size or 0
    return found._replace(having=tuple(having.tolist()))


def _mixed(ids: Any) -> Any:  # noqa: ANN401 - arrays
    """Return one number for each id, of as many bits as tell them apart."""
    return ids["newest"].astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) ^ ids["rest"].astype(np.uint64)


# --- what must hold of a passage


def _wanted(sought: IndexQuery, given: dict[str, Any]) -> tuple[str, bool]:
    """Return what must hold of a passage, and whether that leaves out more than a few."""
    allowed = [
        at for at, kind in enumerate(KINDS) if (not sought.kinds or kind in sought.kinds) and kind not in sought.without
    ]
    found, narrow = [], bool(sought.kinds or sought.tags)
    if len(allowed) < len(KINDS):
        found.append("p.kind = ANY(%(kinds)s::smallint[])")
        given["kinds"] = _array(allowed)
    for at, tag in enumerate(sought.tags):
        found.append(
            "EXISTS (SELECT FROM recall_posting t WHERE t.space = p.space AND t.id = p.id"
            f" AND t.term = %(tag{at})s::bigint)"
        )
        given[f"tag{at}"] = signed(tag_term(tag))
    bounds = (
        ("time", ">=", "since", sought.since, sought.since > -FOREVER),
        ("time", "<=", "until", sought.until, sought.until < FOREVER),
        ("valid_from", "<=", "as_of", sought.as_of, sought.as_of is not None),
        ("valid_until", ">", "as_of", sought.as_of, sought.as_of is not None),
    )
    for column, how, name, value, applies in bounds:
        if applies:
            found.append(f"p.{column} {how} %({name})s::bigint")
            given[name], narrow = value, True
    if sought.alive_at > -FOREVER:
        found.append("p.expires > %(alive_at)s::bigint")
        given["alive_at"] = sought.alive_at
    if not sought.superseded:
        found.append("p.superseded > %(superseded)s::bigint")
        given["superseded"] = FOREVER - 1 if sought.as_of is None else sought.as_of
    return " AND ".join(found) or "true", narrow

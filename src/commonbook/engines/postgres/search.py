"""A search of the recall index in PostgreSQL: two rounds of queries, then the same ranking as in the embedded index.

The first round returns, for each term, the ids of the passages that have it, and the ids of the nearest by vector; it
also counts the passages for each. The second round fetches the best candidates with their neighbours. They form a
segment beside the segments of the pending deltas, and all are searched as segments. So both engines choose candidates
by the same code. Spaces in the cache of this process are segments already, and are not queried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import psycopg

from commonbook.engines.index.search import (
    MAX_PARTS_PER_MEMORY,
    Part,
    TermCounts,
    candidates,
    count,
    extra_depth,
    search,
)
from commonbook.engines.index.segments import Segment, copy_columns, tag_term, with_zero_vectors
from commonbook.engines.postgres import vector_index
from commonbook.engines.postgres.connections import Connection, Row
from commonbook.engines.postgres.passage_cache import (
    MAX_SPACES,
    NO_PASSAGES,
    PassageCache,
    SpaceVersion,
    live_part,
)
from commonbook.engines.postgres.passage_rows import (
    FETCHED,
    ID_TYPE,
    array_literal,
    decode_ids,
    decode_ints,
    signed_hash,
    unpack_rows,
    vector_literal,
)
from commonbook.errors import Busy
from commonbook.ports.index import FOREVER, IS_MESSAGE, MAX_FURTHER_CANDIDATES, IndexQuery, IndexResult, IndexState
from commonbook.values.memory import KINDS

_EXTRA_CANDIDATES: Final = 10
"""How many more candidates than wanted are taken at first: some are filtered out, parts of one memory, or copies."""

_DEPTH_FACTOR: Final = 4

_MAX_LOOKUPS: Final = 10_000
"""The largest number of look-ups of a term in a space per query; beyond it, only the rarest terms are looked up."""

_MIN_TERMS: Final = 4
_CANDIDATES_PER_ROW: Final = 8
"""Candidates, with their neighbours, that are aggregated into one row: a larger row is copied in memory too often."""

_PASSAGES_PER_ROW: Final = 64
_SAMPLE_SPACES: Final = 16

_STATE: Final = """
    SELECT generation, embedder, coalesce(dimensions, 0), array_send(spaces), array_send(sizes), array_send(versions)
    FROM recall_index CROSS JOIN (
      SELECT array_agg(space) AS spaces, array_agg(passages) AS sizes, array_agg(version) AS versions
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
_FILTERED_POSTINGS: Final = """
    SELECT o.space, o.term, array_send(array_agg(o.id) FILTER (WHERE {wanted})), count(*)
    FROM recall_posting o JOIN recall_passage p USING (space, id)
    WHERE o.space = ANY(%(spaces)s::bigint[]) AND o.term = ANY(%(terms)s::bigint[]){others} GROUP BY o.space, o.term
"""
# Frequencies of the terms in the largest of the queried spaces.
_TERM_FREQUENCIES: Final = f"""
    WITH largest AS MATERIALIZED (
      SELECT space, passages FROM recall_space WHERE space = ANY(%(spaces)s::bigint[])
      ORDER BY passages DESC, space LIMIT {_SAMPLE_SPACES}
    )
    SELECT term, count(*), (SELECT sum(passages)::bigint FROM largest) FROM recall_posting
    WHERE space IN (SELECT space FROM largest) AND term = ANY(%(terms)s::bigint[]) GROUP BY term
"""
# Vectors of another embedder than the query's are not compared.
_NEAREST: Final = """
    SELECT space, uuid_send(id), distance FROM (
      SELECT space, id, {column} <=> %(vector)s::halfvec AS distance FROM recall_passage p
      WHERE space = ANY(%(spaces)s::bigint[]) AND {column} IS NOT NULL AND {wanted}{others}
        AND (SELECT embedder FROM recall_index) = %(embedder)s
      ORDER BY distance, id LIMIT %(depth)s
    ) nearest
"""
# For an empty query: messages, and each other memory once. The newest of each space are read in the order of its
# index; a query of several spaces at once would read all rows.
_NEWEST: Final = f"""
    SELECT space, uuid_send(id) FROM unnest(%(spaces)s::bigint[]) AS asked CROSS JOIN LATERAL (
      SELECT space, id, time, position FROM recall_passage p
      WHERE space = asked AND (flags & {IS_MESSAGE} > 0 OR position = 0) AND {{wanted}}{{others}}
      ORDER BY time DESC, position DESC, id LIMIT %(depth)s
    ) p
    ORDER BY time DESC, position DESC, id LIMIT %(depth)s
"""
# The newest passages of a further sort; of one memory, only a few parts are kept afterwards.
_FURTHER: Final = f"""
    SELECT space, uuid_send(id) FROM (
      SELECT p.space, p.id FROM recall_passage p
      WHERE p.space = ANY(%(spaces)s::bigint[]) AND {{wanted}}{{others}} AND ({{condition}})
      ORDER BY p.id LIMIT {MAX_FURTHER_CANDIDATES * MAX_PARTS_PER_MEMORY}
    ) found
"""
# Rows are looked up by key, however many the planner expects: hence the OFFSETs, which keep it from joining.
_NEIGHBOURS: Final = f"""
    WITH asked AS (
      SELECT * FROM unnest(%(which)s::smallint[], %(of)s::bigint[], %(ids)s::uuid[])
        WITH ORDINALITY AS a (which, space, id, place)
    ), wanted AS (
      SELECT which, place, p.thread, p.position, p.flags & {IS_MESSAGE} > 0 AS is_message,
        row_number() OVER (PARTITION BY which, p.thread ORDER BY place) AS nth,
        first_value(p.thread) OVER (PARTITION BY which, p.wording ORDER BY place) AS first_thread
      FROM asked a CROSS JOIN LATERAL (
        SELECT thread, position, flags, wording FROM recall_passage p
        WHERE p.space = a.space AND p.id = a.id AND {{wanted}} OFFSET 0
      ) p
    ), few AS MATERIALIZED (
      SELECT which, thread, position, row_number() OVER (PARTITION BY which ORDER BY place) AS place
      FROM wanted WHERE is_message OR thread = first_thread AND (nth <= {MAX_PARTS_PER_MEMORY} OR %(newest)s)
    ), places AS (
      SELECT thread, position FROM few
      WHERE place <= CASE WHEN which < 2 THEN %(first)s ELSE {MAX_FURTHER_CANDIDATES} END
      UNION SELECT * FROM unnest(%(threads)s::bigint[], %(positions)s::bigint[])
    ), spans AS (
      SELECT thread, position + %(far)s AS last, greatest(
        position - %(far)s, lag(position) OVER (PARTITION BY thread ORDER BY position) + %(far)s + 1) AS first,
        row_number() OVER (ORDER BY thread, position) / {_CANDIDATES_PER_ROW} AS few
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

# All of one space, for the cache.
_WHOLE_SPACE: Final = f"""
    SELECT {FETCHED} FROM (
      SELECT columns, entries, name, speaker, vector, row_number() OVER () / {_PASSAGES_PER_ROW} AS few
      FROM recall_passage WHERE space = %(space)s
    ) p GROUP BY few
"""


class SearchResources(NamedTuple):
    """The cache that all searches of a process share, and the spaces that have a vector index."""

    cache: PassageCache
    indexed: frozenset[int] = frozenset()


class _FirstRound(NamedTuple):
    """The result of the first round: the generation and sizes of the index, and the possible candidates."""

    generation: int
    embedder: str
    dimensions: int
    versions: dict[int, SpaceVersion]
    postings: list[Row]
    nearest: list[Row]
    further: list[list[Row]]
    replaced: Any
    whole: Segment | None

    def has_vectors_of(self, state: IndexState) -> bool:
        """Return whether the vectors belong to an index state."""
        return (self.embedder, self.dimensions) == (state.embedder, state.dimensions)


class Search:
    """One search in the transaction of one connection: of its snapshot and of the pending deltas."""

    def __init__(
        self,
        connection: Connection,
        query: IndexQuery,
        pending: Sequence[Part],
        owners: frozenset[str],
        resources: SearchResources,
    ) -> None:
        """Prepare a search; `owners` are those whose passages the pending deltas replace."""
        self._connection = connection
        self._cache, self._indexed = resources
        self._query = query
        self._pending = pending
        self._owners = owners
        self._spaces: Final = {signed_hash(space): space for space in query.spaces}
        self._queried: Sequence[int] = ()
        self._params: Final[dict[str, Any]] = {
            "every": array_literal(self._spaces),
            "terms": array_literal(map(signed_hash, query.terms)),
            "owners": array_literal(map(signed_hash, owners)),
            "far": 2 * query.reach,
            "newest": query.newest,
        }
        self._dimensions = 0
        self._filters, self._selective = filter_condition(query, self._params)
        self._exclusion = " AND p.owner <> ALL(%(owners)s::bigint[])" if owners else ""

    def run(self, state: IndexState) -> tuple[int, IndexResult]:
        """Return the generation of the index in this transaction, and the result for the vectors of this state."""
        first, term_shares, cached = self._run_first_round(state)
        if first.embedder != state.embedder:
            self._query = self._query._replace(vector=None)
        parts = [*self._pending, *(live_part(segment, self._owners) for segment in cached)]
        counts = None
        if self._queried:
            counts, fetched = self._run_second_round(first, term_shares, parts)
            parts = [Part(fetched, np.ones(fetched.rows, np.bool_)), *parts]
        wide = [Part(with_zero_vectors(part.segment, state.dimensions), part.alive) for part in parts]
        return first.generation, search(wide, self._query, counts, exactly=True)

    def _run_first_round(self, state: IndexState) -> tuple[_FirstRound, dict[str, float], list[Segment]]:
        """Run the first round in the spaces that are not cached; return also the cached segments."""
        # Not those with a vector index: it may return other neighbours than a full comparison, and results must not
        # alternate.
        few = self._spaces if len(self._spaces) <= MAX_SPACES else ()
        cacheable = [space for space in few if space not in self._indexed]
        cached = self._cache.has(cacheable)
        admitted = self._cache.space_to_admit(space for space in cacheable if space not in cached)
        queried = [space for space in self._spaces if space not in {*cached, admitted}]
        first, term_shares = self._query_first_round(state, queried, admitted)
        segments = self._cache.get(cached, first.versions)
        if len(segments) < len(cached):
            # A cached space is of another version: this time all spaces are queried.
            first, term_shares = self._query_first_round(state, tuple(self._spaces))
            segments = []
        elif first.whole is not None and admitted is not None:
            segments.append(first.whole)
            if first.has_vectors_of(state):
                self._cache.put(admitted, first.versions.get(admitted, NO_PASSAGES).version, first.whole)
        self._cache.count_misses((space for space in cacheable if space in self._queried), first.versions)
        return first, term_shares, segments

    def _run_second_round(
        self, first: _FirstRound, term_shares: Mapping[str, float], parts: Sequence[Part]
    ) -> tuple[TermCounts, Segment]:
        """Fetch the best candidates with their neighbours; return the counts of all, and the fetched segment."""
        passages = sum(first.versions.get(space, NO_PASSAGES).passages for space in self._queried)
        matched = _match_terms(self._query.terms, first.postings, first.replaced)
        matched = matched.with_estimates([round(passages * term_shares.get(term, 0)) for term in self._query.terms])
        local = count(parts, self._query)
        having = tuple(map(sum, zip(matched.document_frequencies, local.document_frequencies, strict=True)))
        counts = TermCounts(passages - len(first.replaced) + local.total, having)
        return counts, self._fetch_best(matched.weigh(counts.weights), first, counts, parts)

    def _drop_common_terms(self) -> dict[str, float]:
        """Leave out common terms where the look-ups would be too many; return the estimated share that has each."""
        max_terms = max(_MAX_LOOKUPS // max(len(self._queried), 1), _MIN_TERMS)
        if len(self._query.terms) <= max_terms:
            return {}
        frequencies = {term: (having, passages) for term, having, passages in self._send(_TERM_FREQUENCIES).fetchall()}
        shares = {term: frequencies.get(signed_hash(term), (0, 1)) for term in self._query.terms}
        by_rarity = sorted(self._query.terms, key=lambda term: shares[term][0])
        self._params["terms"] = array_literal(map(signed_hash, by_rarity[:max_terms]))
        return {term: shares[term][0] / shares[term][1] for term in by_rarity[max_terms:]}

    def _query_first_round(
        self, state: IndexState, spaces: Sequence[int], whole: int | None = None
    ) -> tuple[_FirstRound, dict[str, float]]:
        """Query the counts, postings, nearest and replaced passages of these spaces, and all passages of `whole`."""
        self._queried = spaces
        self._params["spaces"] = array_literal(spaces)
        self._params["embedder"] = state.embedder
        self._dimensions = state.dimensions
        vector = self._query.vector
        by_distance = vector is not None and len(vector) == state.dimensions and bool(vector.any())
        by_distance = by_distance or self._query.newest
        term_shares = self._drop_common_terms()
        state_result = self._send(_STATE)
        postings = self._send(self._postings_statement()) if spaces and self._query.terms else None
        depth = self._query.max_candidates + _EXTRA_CANDIDATES
        nearest = self._query_nearest(depth, filtered=self._selective) if spaces and by_distance else None
        further = self._query_further() if spaces else []
        replaced = self._send(_REPLACED) if spaces and self._exclusion else None
        whole_result = self._send(_WHOLE_SPACE, space=whole) if whole is not None else None
        columns = state_result.fetchone()
        if columns is None:
            raise Busy("the index was dropped during the search", fix="search again")
        generation, embedder, dimensions, *arrays = columns
        numbers, sizes, versions = map(decode_ints, arrays)
        first = _FirstRound(
            generation,
            embedder,
            dimensions,
            {space: SpaceVersion(size, version) for space, size, version in zip(numbers, sizes, versions, strict=True)},
            postings=postings.fetchall() if postings else [],
            nearest=nearest() if nearest else [],
            further=[found.fetchall() for found in further],
            replaced=decode_ids(next((ids for (ids,) in replaced.fetchall()), None) if replaced else None),
            whole=None if whole_result is None else self._unpack_space(whole_result.fetchall(), state),
        )
        return first, term_shares

    def _postings_statement(self) -> str:
        # Filters that exclude few passages are applied to the best candidates, others before.
        return _FILTERED_POSTINGS.format(wanted=self._filters, others=self._exclusion) if self._selective else _POSTINGS

    def _query_further(self) -> list[psycopg.Cursor[Row]]:
        """Query the passages that have all words of the phrase, and the passages of the spans."""
        params: dict[str, Any] = {}
        terms = [has_term(term, f"phrase{index}", params) for index, term in enumerate(self._query.phrase_terms)]
        spans = [f"p.time >= %(first{at})s AND p.time < %(end{at})s" for at in range(len(self._query.spans))]
        for at, span in enumerate(self._query.spans):
            params[f"first{at}"], params[f"end{at}"] = span
        conditions = [condition for condition in (" AND ".join(terms), " OR ".join(spans)) if condition]
        statements = [
            _FURTHER.format(wanted=self._filters, others=self._exclusion, condition=one) for one in conditions
        ]
        return [self._send(statement, **params) for statement in statements]

    def _query_nearest(self, depth: int, *, filtered: bool) -> Callable[[], list[Row]]:
        """Query the nearest by vector, or the newest; call the result to read their spaces and ids."""
        if self._query.newest or self._query.vector is None:
            return self._send(_NEWEST.format(wanted=self._filters, others=self._exclusion), depth=depth).fetchall
        wanted = self._filters if filtered else "true"
        vector = vector_literal(self._query.vector / np.abs(self._query.vector).max())
        # Passages with a tag are found by its postings and are mostly few: no vector index is as fast.
        usable = depth <= vector_index.MAX_NEIGHBOURS and not (self._query.tags or self._query.required_terms)
        indexed = [space for space in self._queried if space in self._indexed] if usable else []

        def compare(spaces: Iterable[int]) -> psycopg.Cursor[Row]:
            column = vector_index.vector_column(self._dimensions)
            statement = _NEAREST.format(column=column, wanted=wanted, others=self._exclusion)
            return self._send(statement, spaces=array_literal(spaces), vector=vector, depth=depth)

        by_index = self._query_indexed(indexed, vector, wanted, depth) if indexed else {}
        compared = compare(space for space in self._queried if space not in by_index)

        def read() -> list[Row]:
            nearest = compared.fetchall()
            for space, found in by_index.items():
                rows = found.fetchall()
                nearest += rows if len(rows) >= depth else compare([space]).fetchall()
            nearest.sort(key=_nearness)
            return [(space, id_) for space, id_, _ in nearest[:depth]]

        return read

    def _query_indexed(
        self, spaces: Iterable[int], vector: str, wanted: str, depth: int
    ) -> dict[int, psycopg.Cursor[Row]]:
        """Query the nearest of each of these spaces, which have vector indexes."""
        params = {**self._params, "vector": vector}
        self._connection.execute(vector_index.BEFORE_NEAREST)
        found = {
            space: self._connection.execute(
                vector_index.nearest_statement(space, self._dimensions, wanted=wanted + self._exclusion, depth=depth),
                params,
                binary=True,
            )
            for space in spaces
        }
        self._connection.execute(vector_index.AFTER_NEAREST)
        return found

    def _fetch_best(
        self, matched: _Weighted, possible: _FirstRound, counts: TermCounts, parts: Sequence[Part]
    ) -> Segment:
        """Return the best by terms and by vector, rows with the phrase, and rows of other parts, with neighbours."""
        limit, nearest = self._query.max_candidates, possible.nearest
        first, depth = limit, limit + _EXTRA_CANDIDATES
        local = candidates(parts, self._query, counts)
        while True:
            best = matched.best(depth)
            by_terms, by_vector, rows = self._fetch_neighbours((best, nearest, *possible.further), local, first)
            needs_more_terms = by_terms < first and len(best) < matched.size
            needs_more_nearest = by_vector < first and len(nearest) == depth
            if needs_more_terms or needs_more_nearest:
                # Many candidates are filtered out, parts of a long memory, or copies: take more.
                depth *= _DEPTH_FACTOR
                nearest = self._query_nearest(depth, filtered=True)() if nearest else []
                continue
            fetched = self._unpack_best(rows)
            others = () if self._query.newest else [part.segment for part in parts]
            needed = limit + extra_depth(fetched, others)
            if first >= needed:
                return fetched
            # Copies in other parts may replace several of these, or these several of theirs.
            first = needed
            local = candidates(parts, self._query._replace(max_candidates=first), counts)

    def _fetch_neighbours(
        self, kinds: Sequence[list[Row]], local: Sequence[tuple[int, int]], first: int
    ) -> tuple[int, int, list[Row]]:
        passages = [passage for kind in kinds for passage in kind]
        ids = b"".join([id_ for _, id_ in passages]).hex()
        rows = self._send(
            _NEIGHBOURS.format(wanted=self._filters, others=self._exclusion),
            which=array_literal(which for which, kind in enumerate(kinds) for _ in kind),
            of=array_literal([space for space, _ in passages]),
            ids=array_literal([ids[start : start + 32] for start in range(0, len(ids), 32)]),
            first=first,
            threads=array_literal(thread - (1 << 64) if thread >= 1 << 63 else thread for thread, _ in local),
            positions=array_literal(position for _, position in local),
        ).fetchall()
        by_terms, by_vector, *_ = next(iter(rows), (0, 0))
        return by_terms, by_vector, [tuple(columns) for _, _, *columns in rows]

    def _unpack_best(self, rows: list[Row]) -> Segment:
        query = self._query
        terms = (*query.terms, *query.expansion_terms, *query.phrase_terms, *query.required_terms)
        terms += tuple(map(tag_term, (*query.tags, *filter(None, [query.excluded_tag]))))
        return unpack_rows(rows, spaces=self._spaces, terms=terms, dimensions=self._dimensions)

    def _unpack_space(self, rows: list[Row], state: IndexState) -> Segment:
        return copy_columns(unpack_rows(rows, spaces=self._spaces, terms=None, dimensions=state.dimensions))

    def _send(self, statement: str, **params: object) -> psycopg.Cursor[Row]:
        return self._connection.execute(statement, {**self._params, **params}, prepare=True, binary=True)


def _nearness(row: Row) -> tuple[float, bytes]:
    _, id_, distance = row
    return distance, id_


# --- passages that have the terms


class _Weighted(NamedTuple):
    """Distinct passages, and for each the sum of the weights of the terms that it has."""

    spaces: Any
    ids: Any
    sums: Any

    @property
    def size(self) -> int:
        return len(self.sums)

    def best(self, limit: int) -> list[Row]:
        """Return space and id of the best; equal sums are ordered by id."""
        rows = np.arange(self.size)
        if self.size > limit:
            threshold = -np.partition(-self.sums, limit - 1)[limit - 1]
            rows = np.flatnonzero(self.sums >= threshold)
        ids = self.ids[rows]
        best = rows[np.lexsort((ids["rest"], ids["newest"], -self.sums[rows]))[:limit]]
        packed = self.ids[best].astype(ID_TYPE).tobytes()
        chosen_ids = (packed[start : start + ID_TYPE.itemsize] for start in range(0, len(packed), ID_TYPE.itemsize))
        return list(zip(self.spaces[best].tolist(), chosen_ids, strict=True))


class _TermMatches(NamedTuple):
    """Pairs of terms and passages that have them, in the order of the terms."""

    document_frequencies: tuple[int, ...]
    terms: Any
    spaces: Any
    ids: Any

    def with_estimates(self, estimates: Sequence[int]) -> _TermMatches:
        """Return this with the estimated counts of the terms that were not looked up."""
        return self._replace(
            document_frequencies=tuple(map(sum, zip(self.document_frequencies, estimates, strict=True)))
        )

    def weigh(self, weights: Sequence[float]) -> _Weighted:
        """Sum the weights of each passage in the order of the terms, so that sums are identical everywhere."""
        _, first, numbers = np.unique(_hash_ids(self.ids), return_index=True, return_inverse=True)
        sums = np.bincount(numbers, np.array(weights)[self.terms]) if len(numbers) else np.zeros(0)
        return _Weighted(self.spaces[first], self.ids[first], sums)


def _match_terms(terms: Sequence[str], postings: Sequence[Row], replaced: Any) -> _TermMatches:  # noqa: ANN401 - ids
    """Decode the postings of each term, without the passages that are replaced."""
    term_index = {signed_hash(term): index for index, term in enumerate(terms)}
    runs = sorted(
        ((term_index[term], space, decode_ids(ids), size) for space, term, ids, size in postings),
        key=lambda run: run[0],
    )
    lengths = [len(ids) for _, _, ids, _ in runs]
    matches = _TermMatches(
        (),
        np.repeat(np.array([index for index, _, _, _ in runs], np.intp), lengths),
        np.repeat(np.array([space for _, space, _, _ in runs], np.int64), lengths),
        np.concatenate([decode_ids(None), *(ids for _, _, ids, _ in runs)]),
    )
    if len(replaced):
        live = ~np.isin(_hash_ids(matches.ids), _hash_ids(replaced))
        matches = _TermMatches((), matches.terms[live], matches.spaces[live], matches.ids[live])
    having = np.bincount(matches.terms, minlength=len(terms))
    for index, _, _, size in runs:
        # Where filters apply, the passages with the term were counted separately.
        having[index] = 0 if size is not None else having[index]
    for index, _, _, size in runs:
        having[index] += size or 0
    return matches._replace(document_frequencies=tuple(having.tolist()))


def _hash_ids(ids: Any) -> Any:  # noqa: ANN401 - arrays
    """Return a 64-bit hash of each id, enough to tell ids apart."""
    return ids["newest"].astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) ^ ids["rest"].astype(np.uint64)


def filter_condition(query: IndexQuery, params: dict[str, Any]) -> tuple[str, bool]:
    """Return the filter condition of a query, and whether it excludes more than a few passages."""
    allowed = [
        index
        for index, kind in enumerate(KINDS)
        if (not query.kinds or kind in query.kinds) and kind not in query.excluded_kinds
    ]
    conditions, selective = [], bool(query.kinds or query.tags or query.required_terms)
    if len(allowed) < len(KINDS):
        conditions.append("p.kind = ANY(%(kinds)s::smallint[])")
        params["kinds"] = array_literal(allowed)
    required = (*map(tag_term, query.tags), *query.required_terms)
    conditions += [has_term(term, f"required{index}", params) for index, term in enumerate(required)]
    if query.excluded_tag:
        kept = [f"p.space = {signed_hash(space)} AND p.position <= {int(last)}" for space, last in query.kept_until]
        has_tag = has_term(tag_term(query.excluded_tag), "excluded", params)
        conditions.append(f"({' OR '.join([f'NOT {has_tag}', *kept])})")
    bounds = (
        ("time", ">=", "since", query.since, query.since > -FOREVER),
        ("time", "<=", "until", query.until, query.until < FOREVER),
        ("valid_from", "<=", "as_of", query.as_of, query.as_of is not None),
        ("valid_until", ">", "as_of", query.as_of, query.as_of is not None),
    )
    for column, operator, name, value, applies in bounds:
        if applies:
            conditions.append(f"p.{column} {operator} %({name})s::bigint")
            params[name], selective = value, True
    if query.alive_at > -FOREVER:
        conditions.append("p.expires > %(alive_at)s::bigint")
        params["alive_at"] = query.alive_at
    if not query.superseded:
        conditions.append("(p.superseded > %(superseded)s::bigint OR p.superseded_until <= %(now)s::bigint)")
        params["superseded"] = FOREVER - 1 if query.as_of is None else query.as_of
        params["now"] = query.now
    return " AND ".join(conditions) or "true", selective


def has_term(term: str, name: str, params: dict[str, Any]) -> str:
    """Return the condition that a passage has a term, which becomes the parameter of this name."""
    params[name] = signed_hash(term)
    return (
        f"EXISTS (SELECT FROM recall_posting t WHERE t.space = p.space AND t.id = p.id AND t.term = %({name})s::bigint)"
    )

"""Gathers the candidate pool: the candidates of a search, their neighbours, and the neighbours of those.

The pool has the features by which ranking scores each of them; nothing in it is of a passage that may not be seen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np

from commonbook.engines.index.postings import Rows
from commonbook.engines.index.segments import Bools, Hashes, Segment
from commonbook.ports.index import HAS_DECISIONS, CandidatePool, IndexQuery

_NO_KEYS: Final = np.zeros(0, np.uint64)
_NO_ROWS: Final = np.zeros(0, np.int64)
_NO_NUMBERS: Final = np.zeros(0)


class SegmentView(NamedTuple):
    """A segment as one query sees it: its live rows, those in the query's spaces, and those that pass its filters."""

    segment: Segment
    alive: Bools
    visible: Bools
    wanted: Bools


def gather(views: Sequence[SegmentView], chosen: Sequence[Rows], query: IndexQuery) -> CandidatePool:
    """Gather the candidates, their neighbours, and the neighbours of those."""
    chosen_rows = [(view.segment, rows) for view, rows in zip(views, chosen, strict=True)]
    keys = _concatenate([_NO_KEYS, *(segment.key[rows] for segment, rows in chosen_rows)])
    threads = _concatenate([_NO_KEYS, *(segment.thread[rows] for segment, rows in chosen_rows)])
    positions = _positions(chosen_rows)
    near, rows_of = [], []
    for view in views:
        rows, is_near = view.segment.around(keys, threads, positions, query.reach)
        seen = view.visible[rows]
        rows_of.append(rows[seen])
        near.append(is_near[seen] & view.wanted[rows[seen]])
    return _assemble_pool(views, rows_of, near, query)


def _assemble_pool(
    views: Sequence[SegmentView], rows_of: Sequence[Rows], near: Sequence[Bools], query: IndexQuery
) -> CandidatePool:
    pairs = [(view.segment, rows) for view, rows in zip(views, rows_of, strict=True)]
    threads = _concatenate([_NO_KEYS, *(segment.thread[rows] for segment, rows in pairs)])
    positions = _positions(pairs)
    sorting = None if _is_sorted(threads, positions) else np.lexsort((positions, threads))

    def in_order(columns: Sequence[Any]) -> Any:  # noqa: ANN401 - arrays
        column = _concatenate(columns)
        return column if sorting is None else column[sorting]

    full = [pair for pair in pairs if len(pair[1])] or pairs[:1]

    def joined(name: str) -> Any:  # noqa: ANN401 - an array
        return in_order([segment.column(name)[rows] for segment, rows in full] or [_NO_ROWS])

    id_readers = [(len(rows), segment.id_reader(rows)) for segment, rows in full]

    def ids_of(row: int) -> tuple[str, str]:
        at = row if sorting is None else int(sorting[row])
        for size, ids_at in id_readers:
            if at < size:
                return ids_at(at)
            at -= size
        raise IndexError(row)

    speakers, speaker_columns = _speakers(full)
    vector, flags = query.vector, joined("flags")
    with_vectors = bool(pairs) and vector is not None and all(part.dimensions == len(vector) for part, _ in pairs)
    return CandidatePool(
        ids_of=ids_of,
        speakers=speakers,
        speaker=in_order([_NO_ROWS, *speaker_columns]),
        eligible=in_order([np.zeros(0, np.bool_), *near]),
        threads=_number_threads(in_order([threads])),
        positions=in_order([positions]),
        orders=joined("order"),
        starts=joined("start").astype(np.int64),
        ends=joined("end").astype(np.int64),
        seqs=joined("seq"),
        times=joined("time"),
        flags=flags,
        lengths=joined("length").astype(np.int64),
        entries=_term_entries(pairs, sorting, query),
        vectors=joined("vectors") if with_vectors else None,
        scales=joined("scales") if with_vectors else None,
        suspect=_suspects(views, partial(joined, "owner"), flags),
        squares=in_order(_stored_squares(views, rows_of, query.reach)) if with_vectors else None,
    )


def _speakers(pairs: Sequence[tuple[Segment, Rows]]) -> tuple[Sequence[str], list[Any]]:
    """Return the names of speakers, and for each segment the numbers of those of its rows."""
    if len(pairs) == 1:
        ((segment, rows),) = pairs
        return segment.table("speaker"), [segment.column("speaker")[rows].astype(np.int64)]
    speakers = sorted({speaker for segment, _ in pairs for speaker in segment.table("speaker")})
    numbers = {speaker: at for at, speaker in enumerate(speakers)}
    return speakers, [
        np.array([numbers[speaker] for speaker in segment.table("speaker")], np.int64)[segment.column("speaker")[rows]]
        for segment, rows in pairs
    ]


def _suspects(views: Sequence[SegmentView], owners: Callable[[], Hashes], flags: Any) -> Bools:  # noqa: ANN401 - an array
    """Tell which rows are of owners that open notices of any space are about, and that have no decisions."""
    suspect: Bools = np.zeros(len(flags), np.bool_)
    with_notices = [view for view in views if view.segment.has_notices]
    # Mostly there are none, and the owners need not be read.
    if with_notices:
        of_rows = owners()
        for view in with_notices:
            suspect |= view.segment.doubts(of_rows, view.alive)
        suspect &= (flags & HAS_DECISIONS) == 0
    return suspect


def _stored_squares(views: Sequence[SegmentView], rows_of: Sequence[Rows], reach: int) -> list[Any]:
    """Return the squared norm of each row's pooled vector, as its segment has it, by segments.

    A row has none (NaN) if its segment could not tell it, if one of its neighbours is hidden, or if its thread goes on
    in another segment.
    """
    full = [(view, rows) for view, rows in zip(views, rows_of, strict=True) if len(rows)]
    squares = [_NO_NUMBERS]
    for view, rows in full:
        stored = view.segment.squares
        of_rows = np.full(len(rows), np.nan) if stored is None else stored[rows]
        if not view.visible.all():
            of_rows[_has_hidden_neighbour(view, rows, reach)] = np.nan
        others = [other.segment.thread[theirs] for other, theirs in full if other is not view]
        if others:
            of_rows[np.isin(view.segment.thread[rows], np.concatenate(others))] = np.nan
        squares.append(of_rows)
    return squares


def _has_hidden_neighbour(view: SegmentView, rows: Rows, reach: int) -> Bools:
    """Tell which rows have a row of their thread within reach that the query does not see."""
    nearest = np.clip(rows[:, None] + np.arange(-reach, reach + 1), 0, view.segment.rows - 1)
    is_hidden = ~view.visible[nearest] & (view.segment.thread[nearest] == view.segment.thread[rows][:, None])
    hidden: Bools = is_hidden.any(axis=1)
    return hidden


def _positions(rows_of: Sequence[tuple[Segment, Rows]]) -> Any:  # noqa: ANN401 - an array
    """Return the positions of rows, in a type that can be subtracted."""
    return _concatenate([_NO_ROWS, *(segment.position[rows].astype(np.int64) for segment, rows in rows_of)])


def _concatenate(columns: Sequence[Any]) -> Any:  # noqa: ANN401 - arrays
    """Concatenate columns, without a copy if only one is not empty."""
    full = [column for column in columns if len(column)]
    return full[0] if len(full) == 1 else np.concatenate(columns)


def _is_sorted(threads: Hashes, positions: Any) -> bool:  # noqa: ANN401 - an array
    """Return whether rows are sorted by thread and position, as those of one segment usually are."""
    same = threads[1:] == threads[:-1]
    return bool(((threads[1:] > threads[:-1]) | (same & (positions[1:] >= positions[:-1]))).all())


def _number_threads(threads: Hashes) -> Any:  # noqa: ANN401 - an array
    """Number sorted threads from 0."""
    numbers = np.zeros(len(threads), np.int64)
    np.cumsum(threads[1:] != threads[:-1], out=numbers[1:])
    return numbers


def _term_entries(
    pairs: Sequence[tuple[Segment, Rows]], sorting: Rows | None, query: IndexQuery
) -> tuple[Any, Any, Any]:
    wanted = query.terms + query.expansion_terms
    entries = [(_NO_ROWS, _NO_ROWS, _NO_ROWS)]
    row_offset = 0
    for segment, rows in pairs:
        if len(rows):
            at, term, count = segment.terms_of(rows, wanted)
            entries.append((at + row_offset, term.astype(np.int64), count))
            row_offset += len(rows)
    rows_, terms, counts = (_concatenate(columns) for columns in zip(*entries, strict=True))
    if sorting is not None:
        place = np.empty_like(sorting)
        place[sorting] = np.arange(len(sorting))
        rows_ = place[rows_]
    return rows_, terms, counts

"""The index tests share made-up passages, histories that lead to them, and a model of what a search must find.

The model of a search is plain Python over a list of entries. Nothing in it knows of segments, rows or hashes; it takes
from the program only how a vector is rounded and how an id or a thread orders, which have tests of their own.
"""

from __future__ import annotations

import json
import math
import os
import random
import select
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

import commonbook
from commonbook.engines.index import segments
from commonbook.engines.index.mapped_index import MappedIndex
from commonbook.engines.index.segments import quantise, tie_break_of
from commonbook.errors import Busy
from commonbook.ports.index import (
    FOREVER,
    IS_COPY,
    IS_MESSAGE,
    CandidatePool,
    Delta,
    Index,
    IndexedPassage,
    IndexQuery,
    IndexResult,
    IndexState,
    IndexView,
    SpacePosition,
)
from commonbook.subjects.recall.scoring import squares_of_rows
from commonbook.values.memory import KINDS
from tests.support.crashing import environment

DIMENSIONS: Final = 70
"""Neither a whole number of bytes nor of words, so that the padding of a sketch counts."""

WORDS: Final = ("apple", "brook", "cedar", "delta", "ember", "frost")
SPACES: Final = ("ours", "theirs", "other")
TAGS: Final = ("red", "green")
SPEAKERS: Final = ("", "user:alice", "agent:bob", "日本")
NOWHERE: Final = 1 << 14
"""The flag of a passage that is in no memory."""

_FIRST_PASS: Final = 400
_PARTS_OF_ONE: Final = 3


def memory_id(number: int) -> str:
    """Return an id whose order is that of its number."""
    return f"{number:08x}-0000-7000-8000-{number:012x}"


def entry(number: int, *, position: int = 0, **given: Any) -> IndexedPassage:
    """Return a passage of a memory with this number; whatever is not given is nothing special."""
    memory = memory_id(number)
    usual = IndexedPassage(
        passage=f"{memory}#{position}",
        memory=memory,
        owner=memory,
        thread=memory,
        position=position,
        space="ours",
        kind="note",
        tags=(),
        time=1_000,
        valid_from=0,
        valid_until=FOREVER,
        superseded=FOREVER,
        expires=FOREVER,
        start=0,
        end=10,
        seq=-1,
        flags=0,
        speaker="",
        length=3,
        terms={},
        vector=None,
    )
    made = usual._replace(**given)
    return made if "wording" in given else made._replace(wording=f"{made.memory} {made.owner}")


def vector(*numbers: float) -> Any:
    """Return a vector that begins with these numbers."""
    found = np.zeros(DIMENSIONS, np.float32)
    found[: len(numbers)] = numbers
    return found


# --- worlds


class Maker:
    """Makes up owners with passages, always the same from one seed."""

    def __init__(self, seed: int | str) -> None:
        self.dice: Final = random.Random(seed)
        # Few directions, so that many passages are equally near.
        self.directions: Final = [
            np.array([self.dice.choice((-2, -1, 0, 1, 3)) for _ in range(DIMENSIONS)], np.float32) for _ in range(6)
        ]

    def owner(self, number: int) -> tuple[IndexedPassage, ...]:
        """Return the passages of one owner, in a thread that it may share with others."""
        dice = self.dice
        # Some owners share a thread, each with positions of its own, as messages do that no episode holds yet.
        thread = memory_id(number) if dice.random() < 0.6 else f"thread {number // 3}"
        first = 10 * (number % 3) if thread.startswith("thread") else 0
        space = dice.choice(SPACES)
        size = dice.choice((1, 1, 1, 2, 3, 7))
        passages = tuple(self._passage(number, thread, first + at, space) for at in range(size))
        return passages if first or thread != memory_id(number) else self._as_copy(number, passages)

    def _as_copy(self, number: int, passages: tuple[IndexedPassage, ...]) -> tuple[IndexedPassage, ...]:
        """Return these passages as those of a root or, often, of a copy; some copies say what their root says."""
        root = max(number // 7, 1) * 7
        wording = f"{root} {self.dice.choice('aab')}"
        copied = number != root
        return tuple(
            one._replace(
                root=memory_id(root) if copied else "",
                wording=wording,
                flags=one.flags & ~IS_MESSAGE | IS_COPY * copied,
            )
            for one in passages
        )

    def _passage(self, number: int, thread: str, position: int, space: str) -> IndexedPassage:
        dice = self.dice
        passage_id = f"{memory_id(number)}#{position}"
        return entry(
            number,
            position=position,
            # One in four is named by an id that is no UUID.
            passage=passage_id if dice.random() < 0.75 else f"ñ·{number}·{position}",
            thread=thread,
            space=space,
            kind=dice.choice(KINDS),
            tags=tuple(tag for tag in TAGS if dice.random() < 0.4),
            time=dice.choice((-5_000, 0, 1_000, 2_000)),
            valid_from=dice.choice((-FOREVER, -10, 1_000)),
            valid_until=dice.choice((FOREVER, FOREVER, 1_500)),
            superseded=dice.choice((FOREVER, FOREVER, FOREVER, 1_200)),
            superseded_until=dice.choice((FOREVER, FOREVER, 1_750)),
            expires=dice.choice((FOREVER, FOREVER, FOREVER, 1_800)),
            start=dice.randrange(1_000),
            end=dice.randrange(1_000, 2_000),
            seq=dice.randrange(-1, 5),
            flags=dice.randrange(16),
            speaker=dice.choice(SPEAKERS),
            length=dice.randrange(100),
            terms={word: dice.choice((1, 1, 2, 70_000)) for word in WORDS if dice.random() < 0.3},
            vector=None if dice.random() < 0.2 else dice.choice(self.directions) * dice.choice((0.5, 1, 2)),
        )

    def world(self, owners: int) -> dict[str, tuple[IndexedPassage, ...]]:
        """Return so many owners with their passages."""
        return {memory_id(number): self.owner(number) for number in range(1, owners + 1)}

    def history(self, world: dict[str, tuple[IndexedPassage, ...]], steps: int) -> list[Delta]:
        """Return changes, in so many steps, after which exactly this world is left: edits and deletions on the way."""
        dice = self.dice
        steps_of: list[dict[str, tuple[IndexedPassage, ...]]] = [{} for _ in range(steps)]
        gone = {memory_id(number): self.owner(number) for number in range(0x20000, 0x20000 + dice.randrange(4))}
        for owner, passages in [*world.items(), *gone.items()]:
            last = dice.randrange(steps)
            for before in sorted(dice.sample(range(last), k=min(last, dice.randrange(3)))):
                # An earlier version, or a time when it was deleted.
                steps_of[before][owner] = () if dice.random() < 0.3 else self.owner(int(owner[:8], 16))
            steps_of[last][owner] = passages if owner in world else ()
        layers = []
        for changed in steps_of:
            entries = [one for passages in changed.values() for one in passages]
            dice.shuffle(entries)
            # Who is replaced need not be named as gone as well.
            withdrawn = {owner for owner, passages in changed.items() if not passages or dice.random() < 0.5}
            layers.append(Delta(tuple(entries), frozenset(withdrawn)))
        return layers

    def sought(self, **given: Any) -> IndexQuery:
        """Return a random query."""
        dice = self.dice

        def some(texts: Sequence[str], share: float = 0.5) -> list[str]:
            return [text for text in texts if dice.random() < share]

        query = IndexQuery(
            terms=tuple(dice.sample(WORDS, k=dice.randrange(4))),
            vector=dice.choice((None, vector(), *self.directions)),
            spaces=frozenset(some(SPACES, 0.7)),
            kinds=frozenset(some(KINDS) if dice.random() < 0.3 else ()),
            excluded_kinds=frozenset(some(KINDS, 0.2) if dice.random() < 0.3 else ()),
            tags=tuple(some(TAGS) if dice.random() < 0.3 else ()),
            since=dice.choice((-FOREVER, -FOREVER, 0)),
            until=dice.choice((FOREVER, FOREVER, 1_000)),
            as_of=dice.choice((None, None, -10, 1_200, 1_600)),
            alive_at=dice.choice((-FOREVER, 1_700, 1_800)),
            superseded=dice.random() < 0.3,
            now=dice.choice((-FOREVER, 1_700, 1_750, 1_800)),
            max_candidates=dice.choice((1, 3, 10, 50)),
            reach=dice.choice((0, 1, 4)),
        )
        query = query._replace(expansion_terms=tuple(word for word in some(WORDS) if word not in query.terms))
        return query._replace(**given)


MARKER: Final = IndexState(home="home", rules="1", embedder="made up", applied={"space": SpacePosition(1, 1, "hash")})

ELSEWHERE: Final = entry(0xFFFF, space="nowhere", vector=vector(1), speaker="nobody")
"""A passage that nobody asks for: from it an index knows how long vectors are."""


class Laid(NamedTuple):
    """An index as a reader has it: what was written, and what came since."""

    view: IndexView
    tail: tuple[Delta, ...]

    def search(self, sought: IndexQuery) -> IndexResult:
        """Search what was written and what came since."""
        return self.view.search(sought, self.tail)


def laid_out(folder: Path, layers: Sequence[Delta], *, unwritten: int = 0) -> Laid:
    """Write these changes into a new index, but for the last ones, and return it as another process sees it."""
    place = str(folder / str(len(list(folder.iterdir()))) / "index")
    os.makedirs(os.path.dirname(place))
    written = len(layers) - unwritten
    with MappedIndex(place, pool_squares=squares_of_rows).writing(wait=60) as writer:
        for layer in (Delta((ELSEWHERE,)), *layers[:written]):
            # What one commit adds is one segment: so each layer has a commit of its own.
            writer.add(layer)
            writer.commit(MARKER)
    view = MappedIndex(place).view()
    assert view.state is not None, "what was just written is not whole"
    return Laid(view, tuple(layers[written:]))


# --- what a search found, and what it must find


class Answer(NamedTuple):
    """An answer that two searches can be compared by: everything that scoring sees, row by row."""

    total: int
    document_frequencies: tuple[int, ...]
    rows: Counter[tuple[object, ...]]
    places: list[tuple[int, int]]


def answer(found: IndexResult, sought: IndexQuery) -> Answer:
    """Return what was found, in a form to compare."""
    pool = found.pool
    rows: Counter[tuple[object, ...]] = Counter()
    entries: dict[int, list[tuple[str, int]]] = {}
    for row, term, count in zip(*(column.tolist() for column in pool.entries), strict=True):
        entries.setdefault(row, []).append(((sought.terms + sought.expansion_terms)[term], count))
    for row in range(len(pool.positions)):
        rows[(*_columns(pool, row), tuple(sorted(entries.get(row, ()))), *_vector(pool, row))] += 1
    return Answer(
        found.total,
        found.document_frequencies,
        rows,
        list(zip(pool.threads.tolist(), pool.positions.tolist(), strict=True)),
    )


def _columns(pool: CandidatePool, row: int) -> tuple[object, ...]:
    columns = (pool.positions, pool.orders, pool.starts, pool.ends, pool.seqs, pool.times, pool.flags, pool.lengths)
    numbers = (int(column[row]) for column in columns)
    return (*pool.ids_of(row), bool(pool.eligible[row]), pool.speakers[pool.speaker[row]], *numbers)


def _vector(pool: CandidatePool, row: int) -> tuple[object, ...]:
    if pool.vectors is None or pool.scales is None:
        return (None, None)
    return pool.vectors[row].tobytes(), float(pool.scales[row])


def expected(entries: Sequence[IndexedPassage], sought: IndexQuery) -> Answer:
    """Return what a search of these passages must find."""
    visible = [one for one in entries if one.space in sought.spaces]
    wanted = [one for one in visible if _wanted(one, sought)]
    having = tuple(sum(term in one.terms for one in visible) for term in sought.terms)
    if sought.newest:
        chosen = _by_time(wanted, sought)
    else:
        chosen = [*_by_terms(wanted, having, len(visible), sought), *_by_vector(wanted, sought)]
    rows: Counter[tuple[object, ...]] = Counter()
    places = []
    wanted_ids = {id(one) for one in wanted}
    for one in visible:
        apart = min((abs(one.position - other.position) for other in chosen if other.thread == one.thread), default=-1)
        if 0 <= apart <= 2 * sought.reach:
            eligible = id(one) in wanted_ids and apart <= sought.reach
            rows[_row(one, sought, eligible=eligible)] += 1
            places.append((one.thread, one.position))
    # Which thread comes first is the engine's business; that each stands together, in order, is not.
    return Answer(len(visible), having, rows, _numbered(places))


def same_places(found: list[tuple[int, int]], wanted: list[tuple[int, int]]) -> bool:
    """Tell whether threads stand together and in order, whichever comes first."""

    def by_thread(places: list[tuple[int, int]]) -> Counter[tuple[int, ...]]:
        threads: dict[int, list[int]] = {}
        for thread, position in places:
            threads.setdefault(thread, []).append(position)
        return Counter(tuple(positions) for positions in threads.values())

    together = [thread for thread, _ in found]
    return by_thread(found) == by_thread(wanted) and together == sorted(together)


def _numbered(places: list[tuple[str, int]]) -> list[tuple[int, int]]:
    threads = {thread: number for number, thread in enumerate(sorted({thread for thread, _ in places}))}
    return sorted((threads[thread], position) for thread, position in places)


def _wanted(one: IndexedPassage, sought: IndexQuery) -> bool:
    ended = one.superseded <= sought.as_of if sought.as_of is not None else one.superseded < FOREVER
    ended = ended and one.superseded_until > sought.now
    return (
        (not sought.kinds or one.kind in sought.kinds)
        and one.kind not in sought.excluded_kinds
        and all(tag in one.tags for tag in sought.tags)
        and sought.since <= one.time <= sought.until
        and one.expires > sought.alive_at
        and (sought.as_of is None or one.valid_from <= sought.as_of < one.valid_until)
        and (sought.superseded or not ended)
    )


def _by_terms(
    wanted: Sequence[IndexedPassage], having: Sequence[int], total: int, sought: IndexQuery
) -> list[IndexedPassage]:
    weights = [float(np.log(1 + (total - df + 0.5) / (df + 0.5))) for df in having]
    scored = []
    for one in wanted:
        score = 0.0
        for term, weight in zip(sought.terms, weights, strict=True):
            score += weight if term in one.terms else 0.0
        if score:
            scored.append((score, one))
    return _first(scored, sought.max_candidates)


def _by_time(wanted: Sequence[IndexedPassage], sought: IndexQuery) -> list[IndexedPassage]:
    listed = [one for one in wanted if one.flags & IS_MESSAGE or one.position == 0]
    listed.sort(key=lambda one: (one.time, one.position, order_of(one)), reverse=True)
    return _of_first_memory(listed)[: sought.max_candidates]


def _by_vector(wanted: Sequence[IndexedPassage], sought: IndexQuery) -> list[IndexedPassage]:
    if sought.vector is None or not any(sought.vector):
        return []
    query_vector = [float(number) for number in sought.vector]
    signs = [number > 0 for number in _rounded(sought.vector)[0]]
    near = []
    for one in wanted:
        if one.vector is not None and any(one.vector):
            rounded = _rounded(one.vector)[0]
            differing = sum((number > 0) != sign for number, sign in zip(rounded, signs, strict=True))
            near.append((differing, rounded, one))
    near.sort(key=lambda candidate: candidate[0])
    limit = near[_FIRST_PASS - 1][0] if len(near) >= _FIRST_PASS else DIMENSIONS
    scored = [(round(_cosine(rounded, query_vector), 9), one) for differing, rounded, one in near if differing <= limit]
    return _first(scored, sought.max_candidates)


def _first(scored: Sequence[tuple[float, IndexedPassage]], first: int) -> list[IndexedPassage]:
    """Return the best, and of equal ones the newest; of one memory, unless it is a talk, a few parts at most."""

    def place(candidate: tuple[float, IndexedPassage]) -> tuple[float, int, int, int]:
        score, one = candidate
        return -score, -order_of(one), segments.hash_text(one.thread), one.position

    better: Counter[str] = Counter()
    kept = []
    for _, one in sorted(scored, key=place):
        if one.flags & IS_MESSAGE or better[one.thread] < _PARTS_OF_ONE:
            kept.append(one)
        better[one.thread] += 1
    return _of_first_memory(kept)[:first]


def _of_first_memory(best_first: Sequence[IndexedPassage]) -> list[IndexedPassage]:
    """Return all messages, and of each wording the passages of the memory that comes first."""
    first: dict[str, str] = {}
    return [
        one for one in best_first if one.flags & IS_MESSAGE or first.setdefault(one.wording, one.thread) == one.thread
    ]


def order_of(one: IndexedPassage) -> int:
    """Return the number that breaks ties: of a copy, one below that of its root."""
    if not one.root:
        return tie_break_of(one.passage)
    return max(tie_break_of(one.root) - 1 - segments.hash_text(one.owner) % (1 << 16), 0)


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    dot = math.fsum(a * b for a, b in zip(one, other, strict=True))
    return dot / math.sqrt(math.fsum(a * a for a in one)) / math.sqrt(math.fsum(b * b for b in other))


def _rounded(numbers: Any) -> tuple[list[int], float]:
    bytes_, scales = quantise(np.asarray(numbers, np.float32)[None, :])
    return bytes_[0].tolist(), float(scales[0])


def _row(one: IndexedPassage, sought: IndexQuery, *, eligible: bool) -> tuple[object, ...]:
    rounded, scale = _rounded(one.vector if one.vector is not None else vector())
    with_vector = sought.vector is not None
    return (
        one.passage,
        one.memory,
        eligible,
        one.speaker,
        one.position,
        order_of(one),
        one.start,
        one.end,
        one.seq,
        one.time,
        one.flags | NOWHERE * (not one.memory),
        one.length,
        tuple(
            sorted(
                (term, min(one.terms[term], 65535))
                for term in sought.terms + sought.expansion_terms
                if term in one.terms
            )
        ),
        np.array(rounded, np.int8).tobytes() if with_vector else None,
        scale if with_vector else None,
    )


# --- an index that changes step by step, in this process or in others


def step(number: int) -> Delta:
    """Return what the step of this number changes: one owner says something else, and sometimes another goes."""
    owner = number % 17
    gone = frozenset({memory_id((number * 5) % 17)} if number % 7 == 0 else ())
    passages = tuple(
        entry(
            owner, position=at, terms={"apple": 1, WORDS[(number + at) % 6]: number}, start=number, vector=vector(1, at)
        )
        for at in range(1 + number % 3)
    )
    return Delta(passages, gone - {memory_id(owner)})


def after(number: int) -> list[IndexedPassage]:
    """Return what is there after all steps up to this number."""
    return left_of(map(step, range(1, number + 1)))


def left_of(layers: Iterable[Delta]) -> list[IndexedPassage]:
    """Return what is there after all of these changes, each of one owner at most."""
    there: dict[str, tuple[IndexedPassage, ...]] = {}
    for layer in layers:
        for owner in layer.replaced_owners:
            there.pop(owner, None)
        there |= {one.owner: layer.entries for one in layer.entries}
    return [one for passages in there.values() for one in passages]


def marker(number: int) -> IndexState:
    """Return the marker of the commit of this step."""
    return MARKER._replace(applied={"space": SpacePosition(number, number, f"hash {number}")})


def written_state(seen: IndexState) -> tuple[object, ...]:
    """Return what a writer gave in a state, without what the index itself counts."""
    return seen.home, seen.rules, seen.embedder, seen.applied


_OPENED: Final[list[Callable[[], None]]] = []


def hang_up() -> None:
    """Close the connections of every index that was opened in a database."""
    while _OPENED:
        _OPENED.pop()()


def opened(place: str, **options: Any) -> Index:
    """Open the index in a folder, or in a database; only the latter has options."""
    if not place.startswith("postgresql:"):
        return MappedIndex(place)
    from commonbook.engines.postgres.connections import ConnectionPool
    from commonbook.engines.postgres.index import PostgresIndex

    lines = ConnectionPool(place, most=5, wait=30)
    _OPENED.append(lines.close)

    return PostgresIndex(lines.connection, **{"cache_bytes": 100 << 20, **options})


def commit(index: Index, number: int) -> None:
    """Take this step."""
    with index.writing(wait=60) as writer:
        writer.add(step(number))
        writer.commit(marker(number))


ASKED: Final = IndexQuery(WORDS, vector=vector(1, 1), spaces=frozenset(SPACES), max_candidates=20, reach=1)


def wrong_with(view: IndexView) -> str | None:
    """Say what is wrong with an index that took these steps: it must hold what it held after exactly one of them."""
    if view.state is None:
        return "there is nothing whole"
    number = view.state.applied["space"].number
    if written_state(view.state) != written_state(marker(number)):
        return f"the marker is mixed: {view.state}"
    found, wanted = answer(view.search(ASKED, ()), ASKED), expected(after(number), ASKED)
    if found._replace(places=[]) != wanted._replace(places=[]) or not same_places(found.places, wanted.places):
        return f"after step {number} there are {found.total} passages, and not these {wanted.total}: {found.rows}"
    return None


def _commits(folder: str) -> None:
    """Take one step after the other, telling each, until somebody kills us."""
    index = opened(folder)
    there = index.view().state
    number = there.applied["space"].number if there else 0
    while True:
        number += 1
        commit(index, number)
        _tell(number)


def _looks(folder: str) -> None:
    """Search the index before anybody writes, again and again until standard input closes, and when nobody does.

    Tell what was seen, and what was wrong.
    """
    index = opened(folder)
    seen: set[int] = set()
    wrong: list[str] = []

    def look() -> None:
        view = index.view()
        # Where an index has only its newest commit, a view may have been overtaken.
        with suppress(Busy):
            if found := wrong_with(view):
                wrong.append(found)
            elif view.state is not None:
                seen.add(view.state.applied["space"].number)

    look()
    _tell("ready")
    while not select.select([0], [], [], 0)[0]:
        look()
    look()
    _tell({"seen": sorted(seen), "wrong": wrong[:3]})


def _answers(home: str) -> None:
    """Answer the questions of standard input, one on each line, from one book that stays open."""
    with commonbook.open(home, create=True) as book:
        _tell("ready")
        for line in sys.stdin:
            _tell([[hit.id, hit.passage_id, hit.score] for hit in book.recall(**json.loads(line)).hits])


def _tell(report: object) -> None:
    sys.stdout.write(json.dumps(report) + "\n")
    sys.stdout.flush()


def start(mode: str, *args: object) -> subprocess.Popen[bytes]:
    """Start a child of this module."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.support.index_worlds", mode, *map(str, args)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).resolve().parents[2],
        env=environment(),
        bufsize=0,
    )


if __name__ == "__main__":
    {"commits": _commits, "looks": _looks, "answers": _answers}[sys.argv[1]](*sys.argv[2:])

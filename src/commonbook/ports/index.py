"""The recall index seam: indexed passages, queries, results, and the writer and reader of an index."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias

from commonbook.ports.database import Reading

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float32]
    Ints = npt.NDArray[np.int64]
    Flags = npt.NDArray[np.bool_]


FOREVER: Final = 2**62
"""A time in microseconds that never comes; minus this, one that always was."""


class IndexedPassage(NamedTuple):
    """A passage as an index keeps it. Times are microseconds since 1970.

    `owner` is what is replaced as a whole: the memory, or a message that no episode holds yet. `thread` and `position`
    tell who the neighbours are; `start` and `end` where the passage stands in the memory's text.
    """

    passage: str
    memory: str
    owner: str
    thread: str
    position: int
    space: str
    kind: str
    tags: tuple[str, ...]
    time: int
    valid_from: int
    valid_until: int
    superseded: int
    expires: int
    start: int
    end: int
    seq: int
    flags: int
    speaker: str
    length: int
    terms: Mapping[str, int]
    vector: Floats | None


IS_CHAT: Final = 1
IS_QUESTION: Final = 2
TELLS_TIME: Final = 4
BY_USER: Final = 8


class IndexQuery(NamedTuple):
    """What an index is asked for. Everything given must hold of a passage before it can be a candidate.

    With `newest`, nothing is compared: the candidates are what happened last.
    """

    terms: tuple[str, ...]
    near: tuple[str, ...] = ()
    vector: Floats | None = None
    spaces: frozenset[str] = frozenset()
    kinds: frozenset[str] = frozenset()
    without: frozenset[str] = frozenset()
    tags: tuple[str, ...] = ()
    since: int = -FOREVER
    until: int = FOREVER
    as_of: int | None = None
    alive_at: int = -FOREVER
    superseded: bool = False
    first: int = 50
    reach: int = 4
    newest: bool = False


class CandidatePool(NamedTuple):
    """Candidates, their neighbours (also `eligible`), and theirs, which only count: sorted by thread and position.

    Row by row, but for `name`, which tells a row's passage and memory; `speakers`, the names that `speaker` counts; and
    `entries`: (row, place of the term in `Sought.terms + Sought.near`, how often) for each term that a row has.
    """

    name: Callable[[int], tuple[str, str]]
    speakers: Sequence[str]
    speaker: Ints
    eligible: Flags
    threads: Ints
    positions: Ints
    orders: npt.NDArray[np.uint64]
    starts: Ints
    ends: Ints
    seqs: Ints
    times: Ints
    flags: Ints
    lengths: Ints
    entries: tuple[Ints, Ints, Ints]
    vectors: npt.NDArray[np.int8] | None
    scales: Floats | None


class IndexResult(NamedTuple):
    """What an index found: how many live passages the asked spaces have, how many of them each term, and the pool."""

    total: int
    having: tuple[int, ...]
    pool: CandidatePool


class SpacePosition(NamedTuple):
    """How far an index has followed a space: its last change, and the head of its log then, to know it again."""

    number: int
    seq: int
    hash: str


class IndexState(NamedTuple):
    """What an index holds: of which home, by which rules, whose vectors, and how far it has followed each space."""

    home: str
    rules: str
    embedder: str
    applied: Mapping[str, SpacePosition]
    dimensions: int = 0
    unembedded: int = 0


class Delta(NamedTuple):
    """Some changes: passages that there are now, and owners whose older passages are gone."""

    entries: tuple[IndexedPassage, ...] = ()
    gone: frozenset[str] = frozenset()


PendingDeltas: TypeAlias = tuple[Delta, ...]
"""What has changed since the index was written, later layers over earlier ones."""


class IndexWriter(Protocol):
    """The one who may change an index, as long as it holds the index's lock."""

    @property
    def marker(self) -> IndexState | None:
        """What the index holds now; None if there is none, or none that is whole."""
        ...

    def clear(self) -> None:
        """Begin anew: what is committed next replaces everything."""
        ...

    def add(self, layer: Delta) -> None:
        """Take in passages, and withdraw the older ones of every owner that is gone or replaced."""
        ...

    def commit(self, marker: IndexState) -> None:
        """Let everybody see what was added, in one step."""
        ...


class IndexView(Protocol):
    """An index as it was at one moment."""

    @property
    def marker(self) -> IndexState | None:
        """What the index holds; None if there is none, or none that is whole."""
        ...

    def search(self, sought: IndexQuery, tail: PendingDeltas, tx: Reading | None = None) -> IndexResult:
        """Return candidates with their neighbours, from the index and from the tail.

        `tx` is the reading that the tail was made in: an index in the same database looks at that very moment.
        """
        ...


class Index(Protocol):
    """A projection of the book that finds passages; it can be thrown away at any time."""

    def view(self) -> IndexView:
        """Look at what is there now."""
        ...

    def known(self) -> IndexView:
        """Return what was last seen, without looking again if that takes long.

        Its search raises Overtaken if the index has become another since.
        """
        ...

    def nothing(self) -> IndexView:
        """Return a view of no index at all."""
        ...

    def writing(self, *, wait: float) -> AbstractContextManager[IndexWriter]:
        """Take the index's lock; raises Busy when it is not to be had in time."""
        ...

    def damage(self) -> list[str]:
        """Read everything and return what is broken."""
        ...

    def close(self) -> None:
        """Let go of everything."""
        ...

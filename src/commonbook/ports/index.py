"""The port of the recall index: indexed passages, queries and results, and the writer and reader of an index.

An index is derived from the book and can be rebuilt from it at any time. It lags behind: changes since it was written
are given to each search as deltas in memory (`PendingDeltas`), so that a recall sees every committed change.
"""

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
"""A time in microseconds that stands for no upper limit; its negative for no lower limit."""


class IndexedPassage(NamedTuple):
    """A passage as an index stores it. Times are microseconds since 1970.

    `owner` is the unit that is replaced as a whole: the memory, or a message that is not in an episode yet. `thread`
    and `position` determine the neighbours of a passage; `start` and `end` are its place in the text of the memory.
    `tags` are all texts by which it can be filtered: the tags of its memory, and the labels of `recall.labels`.
    `root` is the first source of a copy, and empty for other passages. `wording` is the same for a root and for those
    of its copies that have its title and text: only the first of these memories is a candidate.
    It is superseded from `superseded` on, and until its last successor ends.
    `doubted` is the memory that becomes suspect by this passage, if it is of an open notice.
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
    root: str = ""
    wording: str = ""
    superseded_until: int = FOREVER
    doubted: str = ""


IS_MESSAGE: Final = 1
"""Flag: the passage is a message, alone or within an episode."""
IS_QUESTION: Final = 2
"""Flag: the passage is a message that is a short question."""
TELLS_TIME: Final = 4
"""Flag: the passage names a time."""
BY_USER: Final = 8
"""Flag: the passage is a message with the role `user`."""
IS_COPY: Final = 16
"""Flag: the passage is of a copy that follows its source."""
HAS_DECISIONS: Final = 32
"""Flag: the passage is of a memory with decisions about what made it suspect."""
TELLS_NAME: Final = 64
"""Flag: the passage names somebody or something."""
IS_WISH: Final = 128
"""Flag: the passage has a standing wish of a user."""


MAX_FURTHER_CANDIDATES: Final = 200
"""At most so many passages are candidates because they have all words of a phrase, or because of their time."""


class IndexQuery(NamedTuple):
    """A query to an index. A passage must pass every given filter before it can be a candidate.

    Passages of `excluded_kinds` are left out. `max_candidates` limits the
    candidates by words, and those by vectors. With `newest`, nothing is compared: the candidates are the latest
    passages. A passage whose last successor has ended by `now` counts as not superseded. Every passage must have
    all `required_terms`. Those that have all `phrase_terms` are candidates too, and those whose time is in one of
    the `spans`: of each sort the newest, at most MAX_FURTHER_CANDIDATES. A span is a first time, and the first one
    after it. Passages with the `excluded_tag` are left out, but in the spaces of
    `kept_until` only those behind this position.
    """

    terms: tuple[str, ...]
    expansion_terms: tuple[str, ...] = ()
    vector: Floats | None = None
    spaces: frozenset[str] = frozenset()
    kinds: frozenset[str] = frozenset()
    excluded_kinds: frozenset[str] = frozenset()
    tags: tuple[str, ...] = ()
    since: int = -FOREVER
    until: int = FOREVER
    as_of: int | None = None
    alive_at: int = -FOREVER
    superseded: bool = False
    now: int = -FOREVER
    max_candidates: int = 50
    reach: int = 4
    newest: bool = False
    required_terms: tuple[str, ...] = ()
    phrase_terms: tuple[str, ...] = ()
    spans: tuple[tuple[int, int], ...] = ()
    excluded_tag: str = ""
    kept_until: tuple[tuple[str, int], ...] = ()


class CandidatePool(NamedTuple):
    """The features of candidates and of the passages around them, one row a passage, by thread and position.

    Candidates and their neighbours are `eligible` as hits; the neighbours of those only add to scores. Three fields are
    not arrays of rows: `ids_of` returns the ids of a row's passage and memory; `speakers` are the names that the
    numbers in `speaker` point to; `entries` has (row, index of the term in `IndexQuery.terms +
    IndexQuery.expansion_terms`, frequency) for each term of a row.
    """

    ids_of: Callable[[int], tuple[str, str]]
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
    suspect: Flags
    """The rows that are suspect for certain: an open notice is about their memory, which has no decision.

    Others may be suspect too.
    """
    squares: npt.NDArray[np.float64] | None = None
    """The squared norm of each row's vector, pooled with its neighbours'; NaN where the index does not know it."""


class IndexResult(NamedTuple):
    """The answer to a query: the number of live passages in its spaces, how many have each term, and the candidates."""

    total: int
    document_frequencies: tuple[int, ...]
    pool: CandidatePool


class SpacePosition(NamedTuple):
    """How far an index is up to date with a space: the number of the last applied change, and the log head then.

    The log head shows whether the space is still the same, and not one from a restored back-up.
    """

    number: int
    seq: int
    hash: str


class IndexState(NamedTuple):
    """The state of an index: its home, the rules it was built by, the embedder, and its position in each space."""

    home: str
    rules: str
    embedder: str
    applied: Mapping[str, SpacePosition]
    dimensions: int = 0
    unembedded: int = 0


class Delta(NamedTuple):
    """A set of changes: the present passages of some owners, and all owners whose older passages they replace.

    An owner that is only among `replaced_owners` was deleted.
    """

    entries: tuple[IndexedPassage, ...] = ()
    replaced_owners: frozenset[str] = frozenset()


PendingDeltas: TypeAlias = tuple[Delta, ...]
"""The changes since the index was written; later deltas override earlier ones."""


class IndexWriter(Protocol):
    """The only writer of an index, for as long as it holds the lock of the index."""

    @property
    def state(self) -> IndexState | None:
        """The present state; None if there is no index, or no complete one."""
        ...

    def clear(self) -> None:
        """Start from nothing: the next commit replaces the whole index."""
        ...

    def add(self, delta: Delta) -> None:
        """Add passages, and remove the older ones of every owner that is gone or replaced."""
        ...

    def commit(self, state: IndexState) -> None:
        """Publish everything that was added, in one step."""
        ...


class IndexView(Protocol):
    """A snapshot of an index."""

    @property
    def state(self) -> IndexState | None:
        """The state of the snapshot; None if there is no index, or no complete one."""
        ...

    def search(self, query: IndexQuery, pending: PendingDeltas, tx: Reading | None = None) -> IndexResult:
        """Return candidates with their neighbours, from the index and from the pending deltas.

        `tx` is the reading that the deltas were computed in: an index in the same database uses that snapshot too.
        """
        ...


class Index(Protocol):
    """An index of passages, derived from the book; it can be deleted at any time."""

    def view(self) -> IndexView:
        """Open a snapshot of the present index."""
        ...

    def last_view(self) -> IndexView:
        """Return the last opened snapshot, without opening another if that takes long.

        Its search raises Busy if the index has been replaced since.
        """
        ...

    def empty_view(self) -> IndexView:
        """Return a snapshot of an empty index."""
        ...

    def writing(
        self, *, wait: float, hurried: bool = False, thorough: bool = False
    ) -> AbstractContextManager[IndexWriter]:
        """Take the lock of the index; raise Busy if it cannot be had in time.

        A writer that is `hurried`, since somebody waits for it, leaves long merges to others. A `thorough` one merges
        more than it has to, so that every search has less to do.
        """
        ...

    def damage(self) -> list[str]:
        """Read the whole index, and return a description of each fault."""
        ...

    def close(self) -> None:
        """Close all files and connections."""
        ...

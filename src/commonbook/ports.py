"""Every seam of the house on one page: what the flows are handed, and engines fulfil."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, tzinfo
from functools import wraps
from threading import Event
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, ParamSpec, Protocol, TypeAlias, TypeVar

from commonbook.catalogue import Found, Layer, Marker, Sought, Tail
from commonbook.errors import ServerLost
from commonbook.model import Asked, Change, Finding, Progress, Recalled, TransferReport
from commonbook.principals import Actor

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float32]
    Ints = npt.NDArray[np.int64]
    Flags = npt.NDArray[np.bool_]

Row = tuple[Any, ...]
Told = TypeVar("Told")
_Arguments = ParamSpec("_Arguments")
_Answer = TypeVar("_Answer")


class Clock(Protocol):
    """Tells the time; tests hand in their own."""

    def now(self) -> datetime:
        """Return the present moment, in UTC with its zone."""
        ...


class Reading(Protocol):
    """One consistent view of the database. A sequence as a parameter stands for a list: `IN :ids`."""

    now: datetime
    """The one time of everything that is read or written together."""

    def rows(self, sql: str, /, **params: object) -> list[Row]:
        """Return all rows of a query."""
        ...

    def row(self, sql: str, /, **params: object) -> Row | None:
        """Return the first row of a query, or None."""
        ...

    def ask(self, sql: str, /, **params: object) -> Callable[[], list[Row]]:
        """Send a query, and return what waits for its rows: so several are sent before anybody waits.

        In a transaction each sees what those before it have done, and waited for.
        """
        ...


class Transaction(Reading, Protocol):
    """The writing transaction: everything in it is committed together, or nothing is."""

    recorded: list[Change]
    touched: dict[str, str | None]
    """What is to be numbered besides, with its space; None for a memory, wherever it is: it is served otherwise now."""
    locking: str
    """What a SELECT ends with to keep the rows that it finds as they are, for all others, until this is over.

    Nothing where only one can write at a time. What is read without it may have changed when it is acted on.
    """
    claiming: str
    """The same, but rows that others keep already are left out."""
    hurrying: str
    """Ends a list of columns so that from then on the transaction waits for nobody, or for a moment only."""
    proof: Callable[[Transaction], bool] | None
    """Finds out in a later transaction whether this one was committed, and waits until it has ended; if there is such.

    For whoever lost the answer. Where nobody says how, the database sees to it by itself.
    """

    def run(self, sql: str, /, **params: object) -> int:
        """Run one statement and return how many rows it touched."""
        ...

    def run_many(self, sql: str, params: Sequence[Mapping[str, object]], /) -> None:
        """Run one statement for each set of parameters, soon: what goes wrong with it may be told by a later call."""
        ...

    def record(self, change: Change) -> None:
        """Note a change, to be numbered and logged when the transaction is sealed."""
        ...


class Overtaken(Exception):
    """What a story has read was changed by another meanwhile: it is to be told again from the beginning."""


class Database(Protocol):
    """Where rows live."""

    @property
    def schema(self) -> int:
        """The version of the schema."""
        ...

    def damage(self) -> list[str]:
        """Return what is broken in the database itself."""
        ...

    def reading(self) -> AbstractContextManager[Reading]:
        """Open a consistent view."""
        ...

    def write(self, story: Callable[[Transaction], Told], *, durable: bool = True) -> Told:
        """Let a story happen in a writing transaction: committed when it returns, rolled back by any error.

        It may be told more than once, when others were in its way: whatever it changes besides the database must be
        its own, made anew each time. What is not `durable` may be lost in a power cut (never in a crash of ours): only
        for what the next process would find out again by itself.
        """
        ...

    def close(self) -> None:
        """Let go of everything."""
        ...


def asking(verb: Callable[_Arguments, _Answer]) -> Callable[_Arguments, _Answer]:
    """Repeat a verb that only reads, once, when the server is lost in the middle of its answer."""

    @wraps(verb)
    def repeated(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Answer:
        try:
            return verb(*args, **kwargs)
        except ServerLost:
            return verb(*args, **kwargs)

    return repeated


class Keys(Protocol):
    """Signs the log and hashes what the log may not say."""

    @property
    def key_id(self) -> str:
        """The id of the signing key."""
        ...

    def sign(self, message: bytes) -> bytes:
        """Sign with Ed25519."""
        ...

    def verify(self, key_id: str, signature: bytes, message: bytes) -> bool:
        """Tell whether the signature is that key's; False for a key that is not known."""
        ...

    def keyed_hash(self, *parts: str) -> str:
        """Hash the parts under the home's hashing key: equal texts match, nothing can be guessed."""
        ...

    def load(self, *, create: bool) -> None:
        """Read the keys now; with `create`, make them if there are none: only right while the log is empty."""
        ...

    def loose(self) -> list[str]:
        """Return the paths of keys that others than the owner have rights on."""
        ...


class YamlField(NamedTuple):
    """One top-level field of a YAML mapping, and the lines it stands on (first, one past the last)."""

    name: str
    value: object
    first_line: int
    end_line: int


class Yaml(Protocol):
    """Reads front matter that is not in our own plain form."""

    def fields(self, text: str) -> list[YamlField]:
        """Return the top-level fields, in order.

        Every scalar is the string as written (null and empty are None); lists and maps nest.
        Raises BadFile for what does not parse, aliases, tags, and anything nested too deep.
        """
        ...


class FileStat(NamedTuple):
    """What a directory listing tells about a file without reading it (a tuple: there are many of them)."""

    size: int
    mtime_ns: int


class Folder(Protocol):
    """The Markdown side of a home. Paths are relative to the home, with `/`."""

    @property
    def keeps_files(self) -> bool:
        """Whether memories are files here; otherwise their rows are the truth, and nothing else below is used."""
        ...

    def walk(self) -> dict[str, tuple[int, int]]:
        """Return size and time (in nanoseconds) of every Markdown file that is ours to look at."""
        ...

    def stat(self, path: str) -> FileStat | None:
        """Look at one file, or None if there is none."""
        ...

    def read(self, path: str) -> bytes | None:
        """Return what a file holds, or None if there is none."""
        ...

    def exists(self, path: str) -> bool:
        """Tell whether anything is at the path, a placeholder of a cloud drive included."""
        ...

    def known_as(self, path: str) -> str:
        """Return how a walk would spell this path."""
        ...

    def odd(self) -> dict[str, str]:
        """Return what the last walk could not look at, and why."""
        ...

    def is_ours(self, path: str) -> bool:
        """Tell whether a walk would return this path if it were a file."""
        ...

    def lock(self, *, wait: float) -> AbstractContextManager[bool]:
        """Take `files.lock`; yields False when it could not be had in time."""
        ...

    def require_place(self, path: str) -> None:
        """Raise FileInTheWay unless the path can be written without leaving the home."""
        ...

    def prepare(self, wanted: Collection[tuple[str, bytes, str]]) -> None:
        """Make ready what is about to be put, each a path, its data and its owner: many together are quicker."""
        ...

    def put(self, path: str, data: bytes, *, owner: str) -> tuple[FileStat, str | None]:
        """Put data at the path in one step; return its stat and the name of what came out, if anything did."""
        ...

    def take(self, path: str, *, owner: str) -> str | None:
        """Take the file away in one step; return the name of what came out, if there was a file."""
        ...

    def shift(self, old: str, new: str) -> bool:
        """Rename a file unless something is at the new path; tell whether it is done."""
        ...

    def secure(self, path: str) -> None:
        """Make durable, at the next flush, what is or is no longer at a path, whoever did it."""
        ...

    def flush(self) -> None:
        """Make durable every put, take and shift since the last flush."""
        ...

    def came_out(self) -> list[tuple[str, str]]:
        """Return (name, owner) of everything that came out and was not dropped."""
        ...

    def is_tidy(self) -> bool:
        """Tell whether nothing is on its way in or out."""
        ...

    def sweep(self) -> None:
        """Remove what a crash left half written; only under the lock, where nobody is writing."""
        ...

    def read_out(self, name: str) -> bytes | None:
        """Return what came out."""
        ...

    def drop_out(self, name: str) -> None:
        """Throw away what came out."""
        ...

    def put_back(self, name: str, path: str) -> None:
        """Put what came out at the path again, or beside it if that is taken."""
        ...

    def prune(self, path: str) -> None:
        """Remove the folders that became empty above a path that was left."""
        ...

    def free_bytes(self) -> int:
        """Return the room left on the disk."""
        ...

    def bytes_used(self) -> int:
        """Return the size of the database and its log."""
        ...

    def present(self) -> bool:
        """Tell whether the home is still there, as the folder it was when it was opened."""
        ...

    def close(self) -> None:
        """Let go of everything."""
        ...


class Watcher(Protocol):
    """Tells which files change while a process lives."""

    def changes(self, stop: Event) -> Iterator[set[str]]:
        """Yield sets of paths that changed, and an empty set now and then, until stop is set.

        From the first set on, whatever it holds, no change goes unnoticed.
        """
        ...


class SourceFile(NamedTuple):
    """A Markdown file outside the home: its path in its folder or archive, when it was changed, what it holds."""

    path: str
    mtime_ns: int
    data: bytes


class Target(Protocol):
    """A folder or archive that an export is written to."""

    def put(self, path: str, data: bytes, *, changed: datetime) -> Literal["new", "changed", "same", "foreign"]:
        """Write one file, unless somebody else's is there; tell what it was."""
        ...


class Outside(Protocol):
    """Folders and archives outside the home."""

    def source(self, place: str) -> str:
        """Return the real path of what is to be read, or refuse it."""
        ...

    def files(self, place: str, *, only: Collection[str] | None = None) -> Iterator[SourceFile | Finding]:
        """Yield the Markdown files, and a finding for each that cannot be read."""
        ...

    def target(self, place: str) -> AbstractContextManager[Target]:
        """Open a folder or archive for writing; what is there becomes whole on leaving, or stays as it was."""
        ...


class Transfers(Protocol):
    """Import and export, which most runs never use: they are loaded when they are first asked for."""

    def import_folder(
        self, parts: Parts, actor: Actor, folder: str, *, space: str | None, dry_run: bool, progress: Progress
    ) -> TransferReport:
        """Take in a folder, a Markdown file or an archive."""
        ...

    def export(
        self, parts: Parts, actor: Actor, target: str, *, space: str | None, progress: Progress
    ) -> TransferReport:
        """Write memories as a folder or an archive."""
        ...


class Said(NamedTuple):
    """A text to be embedded: as it stands, and the words of it that say something, each with its share."""

    text: str
    bag: Mapping[str, float]


class Embedder(Protocol):
    """Turns texts into vectors: what is near in meaning is near in direction."""

    @property
    def fingerprint(self) -> str:
        """The name under which its vectors are kept: those of another are never compared with them."""
        ...

    @property
    def dimensions(self) -> int:
        """How many numbers a vector has."""
        ...

    @property
    def slow(self) -> bool:
        """Whether its vectors are worth keeping, and never made while somebody waits for a write or a recall."""
        ...

    def embed(self, texts: Sequence[Said], *, patient: bool = False) -> Floats:
        """Return one row for each text; raises EmbedderFailed when it cannot, at once unless it shall be `patient`."""
        ...


class Thesaurus(Protocol):
    """Knows which words mean nearly the same."""

    def near(self, word: str) -> Sequence[tuple[str, float]]:
        """Return other words and how near each is (a cosine), nearest first."""
        ...

    def embed(self, texts: Sequence[Said]) -> Floats:
        """Return a vector for each text that grows with what it holds, so that vectors can be added up."""
        ...


Likeness: TypeAlias = Callable[[Sequence[str], Sequence[str]], float]
"""How alike two runs of texts are in meaning: 1 for the same."""


class IndexWriter(Protocol):
    """The one who may change an index, as long as it holds the index's lock."""

    @property
    def marker(self) -> Marker | None:
        """What the index holds now; None if there is none, or none that is whole."""
        ...

    def clear(self) -> None:
        """Begin anew: what is committed next replaces everything."""
        ...

    def add(self, layer: Layer) -> None:
        """Take in passages, and withdraw the older ones of every owner that is gone or replaced."""
        ...

    def commit(self, marker: Marker) -> None:
        """Let everybody see what was added, in one step."""
        ...


class IndexView(Protocol):
    """An index as it was at one moment."""

    @property
    def marker(self) -> Marker | None:
        """What the index holds; None if there is none, or none that is whole."""
        ...

    def search(self, sought: Sought, tail: Tail, tx: Reading | None = None) -> Found:
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


class Recalls(Protocol):
    """Recall and its index, which most runs never use: they are loaded when they are first asked for."""

    def recall(self, parts: Parts, actor: Actor, asked: Asked, *, progress: Progress) -> Recalled:
        """Return the passages that answer a question best; without a question, the newest."""
        ...

    def likeness(self, some: Sequence[str], others: Sequence[str]) -> float:
        """Return how alike two runs of texts are in meaning."""
        ...

    def reindex(self, parts: Parts, *, anew: bool, progress: Progress) -> int:
        """Bring vectors and index up to the book; `anew`, from nothing. Return how many memories were written down."""
        ...

    def findings(self) -> tuple[Finding, ...]:
        """Return what is wrong with the index."""
        ...

    def close(self) -> None:
        """Let go of the index."""
        ...


class BeforeSeal(Protocol):
    """A step of a write that runs in its transaction, behind the operation and before its changes are finalized."""

    def __call__(self, context: object, /) -> None:
        """Complete the changes of one actor, whose write context this is; what is raised undoes the whole write.

        The type of the context is defined above this module: `desk.step` makes such a step of a function of it.
        """
        ...


class AfterCommit(Protocol):
    """The step of a write that runs when its transaction is committed."""

    def __call__(self, parts: Parts, contents: Mapping[str, bytes | None], /) -> None:
        """Write the files of the committed change, by the ids of their memories; None stands for a file to remove.

        An error of the disk or of the home does not reach the caller of the write: the change is made, and the journal
        keeps what could not be written.
        """
        ...


class Parts(NamedTuple):
    """What every flow is handed: the engines of this book."""

    db: Database
    folder: Folder
    watcher: Watcher
    outside: Outside
    keys: Keys
    yaml: Yaml
    clock: Clock
    zone: tzinfo
    before_seal: tuple[BeforeSeal, ...]
    """In the order in which they run."""
    after_commit: AfterCommit

"""The index in PostgreSQL: passages and postings as rows beside the book, seen by every server as soon as one commits.

Whoever has locked the row of `recall_index` may write; what it adds and the marker are one transaction. Readers never
wait. A search looks at the moment of the recall's own reading: the index may have gone on since the view was taken, but
not further than the book in that reading, and a tail covers what it already holds a second time without harm.

Nothing here is the truth: the tables can be dropped at any time, and are made again by whoever writes next.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, Final, Protocol, runtime_checkable

import psycopg
from psycopg import errors as pg

from commonbook.engines.index.overlay import OverlaidIndex
from commonbook.engines.index.search import search
from commonbook.engines.postgres.connections import PooledConnection
from commonbook.engines.postgres.hnsw import GraphMaintainer, has_graphs, interrupt, without_graphs
from commonbook.engines.postgres.index_schema import CREATE, DROP, DROP_ROWS, FORMAT, INDEX, MARKER, TABLES
from commonbook.engines.postgres.passage_cache import PassageCache
from commonbook.engines.postgres.passage_rows import PASSAGE, POSTING, packed, signed
from commonbook.engines.postgres.pipeline import Connection, Pipeline
from commonbook.engines.postgres.search import Search, SearchResources
from commonbook.errors import Busy, HomeDamaged, HomeIsNewer
from commonbook.ports.database import Reading
from commonbook.ports.index import Delta, IndexQuery, IndexResult, IndexState, PendingDeltas, SpacePosition

Lend = Callable[[], AbstractContextManager[PooledConnection]]
"""Lends a line in autocommit mode, and turns the database's errors into ours."""

_LARGE: Final = 1_000
_LATEST: Final = 1 << 63
_SHARE: Final = 0.05
"""A commit of so many passages, and of this share of all, is followed by a clean-up; others wait for the database's."""

_READ: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_WRITE: Final = """
    BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;
    SET LOCAL lock_timeout TO {milliseconds};
    SET LOCAL statement_timeout TO 0;
    -- Whoever hangs with the lock in its hands loses it.
    SET LOCAL idle_in_transaction_session_timeout TO '120s';
    -- What a crash of the server takes is found out again, and nobody waits for a standby.
    SET LOCAL synchronous_commit TO off;
    -- Rows are always found by an index here; the table may be new, and nothing known of it yet.
    SET LOCAL enable_seqscan TO off; SET LOCAL enable_hashjoin TO off; SET LOCAL enable_mergejoin TO off
"""
_ATTEMPTS: Final = 4
# Who makes the extension anew takes the columns of its types along.
_MISSING: Final = """
    SELECT count(*) FILTER (WHERE to_regclass(name) IS NULL), 2 - (
      SELECT count(*) FROM pg_attribute WHERE attrelid = to_regclass('recall_passage') AND attname IN ('v', 'w'))
    FROM unnest(%(tables)s::text[]) name
"""
_GENERATION: Final = """
    SELECT format, generation FROM recall_index
    WHERE to_regclass('recall_passage') IS NOT NULL AND to_regclass('recall_posting') IS NOT NULL
"""
_MARKER: Final = """
    SELECT format, generation, home, rules, embedder, dimensions, s.name, s.number, s.seq, s.head,
      (SELECT coalesce(sum(unembedded), 0)::bigint FROM recall_space)
    FROM recall_index LEFT JOIN recall_space s ON s.number IS NOT NULL
"""
_LOCK: Final = "SELECT format, generation FROM recall_index FOR UPDATE"
_HOLDER: Final = """
    SELECT pid, application_name, coalesce(client_addr::text, 'this machine') FROM pg_stat_activity
    WHERE pid IN (
      SELECT pid FROM pg_locks WHERE relation = to_regclass('recall_index') AND mode = 'RowShareLock' AND granted)
    ORDER BY xact_start LIMIT 1
"""
_WITHDRAW: Final = """
    WITH gone AS (
      DELETE FROM recall_passage WHERE owner = ANY(%(owners)s::bigint[])
      RETURNING space, id, terms, v IS NULL AND w IS NULL AS bare
    ), unposted AS (
      DELETE FROM recall_posting o USING (SELECT space, id, unnest(terms) AS term FROM gone) g
      WHERE o.space = g.space AND o.term = g.term AND o.id = g.id
    )
    SELECT space, count(*), count(*) FILTER (WHERE bare) FROM gone GROUP BY space
"""
_SHRINK: Final = """
    UPDATE recall_space SET passages = passages - %(passages)s, unembedded = unembedded - %(unembedded)s,
      version = %(version)s
    WHERE space = %(space)s
"""
_GROW: Final = """
    INSERT INTO recall_space (space, name, passages, unembedded, version)
    VALUES (%(space)s, %(name)s, %(passages)s, %(unembedded)s, %(version)s)
    ON CONFLICT (space) DO UPDATE SET
      passages = recall_space.passages + excluded.passages, unembedded = recall_space.unembedded + excluded.unembedded,
      version = excluded.version
"""
_FOLLOW: Final = """
    INSERT INTO recall_space (space, name, passages, unembedded, version, number, seq, head)
    VALUES (%(space)s, %(name)s, 0, 0, 0, %(number)s, %(seq)s, %(hash)s)
    ON CONFLICT (space) DO UPDATE SET number = excluded.number, seq = excluded.seq, head = excluded.head
"""
_COMMIT: Final = """
    UPDATE recall_index SET format = %(format)s, generation = %(generation)s, home = %(home)s, rules = %(rules)s,
      embedder = %(embedder)s, dimensions = %(dimensions)s
"""
_EMPTY: Final = "DELETE FROM recall_posting; DELETE FROM recall_passage; DELETE FROM recall_space"
_CHECKS: Final = {
    "recall_space counts other passages than there are": """
        SELECT count(*) FROM (
          SELECT space, count(*) AS n, count(*) FILTER (WHERE v IS NULL AND w IS NULL) AS bare
          FROM recall_passage GROUP BY space
        ) p FULL JOIN (SELECT * FROM recall_space WHERE passages <> 0) s USING (space)
        WHERE n IS DISTINCT FROM passages OR bare IS DISTINCT FROM unembedded
    """,
    "recall_posting lacks terms that passages have, or has others": """
        SELECT count(*) FROM (SELECT space, id, unnest(terms) AS term FROM recall_passage) p
        FULL JOIN recall_posting o USING (space, id, term) WHERE p.id IS NULL OR o.id IS NULL
    """,
}


@runtime_checkable
class Piped(Protocol):
    """A reading of the book in the database that the index is in."""

    @property
    def pipe(self) -> Pipeline:
        """The pipe of the connection whose transaction it is."""
        ...


class PostgresIndex:
    """The Index port in the database that the book is in."""

    def __init__(self, lend: Lend, *, kept: int, graph_above: int) -> None:
        """Use connections as they are lent, and so many bytes for small spaces; nothing is made before it is needed.

        A space of more than so many passages has a graph; if that is 0, none has.
        """
        self._lend = lend
        self._turn = threading.Lock()
        self._at_hand: Final = SearchResources(PassageCache(kept), GraphMaintainer(graph_above))
        self._nothing = _View(self._lend, self._at_hand, 0, None)
        self._view = self._nothing

    def known(self) -> _View:
        """Return what was last seen, without a look; in a reading, its search finds out whether that is still so."""
        return self._view.as_known()

    def nothing(self) -> _View:
        """Return a view of no index at all."""
        return self._nothing

    def view(self) -> _View:
        """Look at the marker, and read all of it if it is another one than before."""
        with self._lend() as line:
            try:
                format_, generation = line.connection.execute(_GENERATION).fetchone() or (None, None)
                if format_ != FORMAT:
                    self._view = self._nothing
                elif generation != self._view.generation:
                    self._view = _View(self._lend, self._at_hand, *_marker(line.connection))
            except pg.UndefinedTable:
                self._view = self._nothing
            return self._view

    @contextmanager
    def writing(self, *, wait: float) -> Iterator[_Writer]:
        """Hold the index's lock."""
        # One thread of a process waits in the database, so that the others leave it connections.
        if not self._turn.acquire(timeout=wait):
            raise _busy("another thread of this process")
        try:
            with self._lend() as line:
                _prepare(line.connection)
                writer = _Writer(line.connection, wait)
                try:
                    writer.begin()
                    yield writer
                finally:
                    writer.end()
                # Only now: whoever wrote has read the book meanwhile, and an open reading hides what is new from it.
                writer.tidy()
                self._at_hand.graphs.tend(line.connection)
        finally:
            self._turn.release()

    def damage(self) -> list[str]:
        """Read everything and return what is broken."""
        if self.view().marker is None:
            return []
        with self._lend() as line, line.pipe as pipe:
            pipe.ask(_READ)
            asked = {what: pipe.ask(check) for what, check in _CHECKS.items()}
            found = [(what, count) for what, answer in asked.items() for (count,) in answer.rows()]
            pipe.ask("ROLLBACK")
        return [f"{what}: {rows} rows" for what, rows in found if rows]

    def close(self) -> None:
        """Let go of what was seen; connections belong to whoever lent them."""
        self._view = self._nothing
        self._at_hand.kept.clear()


class _View:
    """What the index held when the marker was read."""

    def __init__(
        self,
        lend: Lend,
        at_hand: SearchResources,
        generation: int,
        marker: IndexState | None,
        layers: OverlaidIndex | None = None,
    ) -> None:
        self.generation: Final = generation
        self.marker: Final = marker
        self._lend = lend
        self._at_hand = at_hand
        self._layers: Final = OverlaidIndex() if layers is None else layers
        self._newest = _LATEST

    def as_known(self) -> _View:
        """Return the same, but for a search of no other index than just this one."""
        view = _View(self._lend, self._at_hand, self.generation, self.marker, self._layers)
        view._newest = self.generation
        return view

    def search(self, sought: IndexQuery, tail: PendingDeltas, tx: Reading | None = None) -> IndexResult:
        """Search the database at the moment of a reading that is not older than this view, and the tail."""
        parts = self._layers.under(tail)
        if self.marker is None:
            return search(parts, sought)
        owners = frozenset(owner for layer in tail for owner in layer.gone)
        owners |= {entry.owner for layer in tail for entry in layer.entries}
        if isinstance(tx, Piped):
            try:
                generation, found = Search(tx.pipe, sought, parts, owners, self._at_hand).found(self.marker)
            except (pg.UndefinedTable, pg.UndefinedColumn, pg.DeadlockDetected) as error:
                raise _moved() from error
            if not self.generation <= generation <= self._newest:
                raise _moved()
            return found
        with self._lend() as line, line.pipe as pipe:
            pipe.ask(_READ)
            generation, found = Search(pipe, sought, parts, owners, self._at_hand).found(self.marker)
            pipe.ask("ROLLBACK")
        if generation != self.generation:
            raise _moved()
        return found


class _Writer:
    """Adds to the index, in one transaction that holds its lock."""

    def __init__(self, connection: Connection, wait: float) -> None:
        self._connection = connection
        self._wait = wait
        self._marker: IndexState | None = None
        self._generation = -1
        self._open = False
        self._bare = self._empty = False
        self._dimensions = self._version = 0
        self._added: set[str] = set()
        self._grown: dict[str, tuple[int, int]] = {}
        self._written = self._committed = 0

    @property
    def marker(self) -> IndexState | None:
        """What the index holds before this commit."""
        return self._marker

    def begin(self) -> None:
        """Take the lock."""
        self._connection.execute(_WRITE.format(milliseconds=max(int(self._wait * 1000), 1)))
        self._open = True
        # By chance: a number that was counted could come again after a restored back-up, for something else.
        self._version = secrets.randbits(62)
        try:
            format_, generation = self._connection.execute(_LOCK).fetchone() or (None, None)
        except pg.LockNotAvailable as error:
            self.end()
            holder = self._connection.execute(_HOLDER).fetchone()
            raise _busy("connection {} of {} from {}".format(*holder) if holder else "another server") from error
        if format_ != FORMAT:
            raise HomeDamaged("recall_index is not as it was made", fix="drop the tables recall_*; they are made again")
        if self._generation not in (-1, generation):
            raise Busy("another has written the index between two commits", fix="try again")
        self._generation, self._marker = _marker(self._connection)
        self._dimensions = self._marker.dimensions if self._marker else 0

    def end(self) -> None:
        """Let go of the lock; what was not committed never was."""
        if self._open and not self._connection.closed:
            self._connection.execute("ROLLBACK")
        self._open = False

    def clear(self) -> None:
        """Begin with nothing."""
        if not self._open:
            self.begin()
        self._grown, self._added = {}, set()
        if self._marker is None:
            # Nobody reads what has no marker: new tables are filled without indexes, which is several times as fast.
            self._connection.execute("DELETE FROM recall_space")
            self._connection.execute(f"{DROP_ROWS}; {CREATE}")
            self._bare = True
        else:
            if has_graphs(self._connection):
                self.end()
                without_graphs(self._connection)
                self.begin()
            self._connection.execute(_EMPTY)
        self._marker, self._dimensions, self._empty = None, 0, True

    def add(self, layer: Delta) -> None:
        """Withdraw what a layer replaces, and copy what is new."""
        self._resume()
        owners = {entry.owner for entry in layer.entries}
        self._withdraw(layer.gone | owners)
        self._added |= owners
        given = (len(entry.vector) for entry in layer.entries if entry.vector is not None)
        self._dimensions = self._dimensions or next(given, 0)
        passages = packed(layer.entries, dimensions=self._dimensions)
        self._copy(f"recall_passage ({PASSAGE})", passages.rows)
        self._copy(f"recall_posting ({POSTING})", passages.postings)
        for space, sizes in passages.spaces.items():
            size, unembedded = (a + b for a, b in zip(sizes, self._grown.get(space, (0, 0)), strict=True))
            self._grown[space] = (size, unembedded)
        self._written += len(layer.entries)

    def commit(self, marker: IndexState) -> None:
        """Let everybody see what was added, with the marker, in one step."""
        self._resume()
        if self._bare:
            self._connection.execute(INDEX)
        with self._connection.cursor() as cursor:
            self._count_in(cursor)
            before = self._marker.applied if self._marker else {}
            changed = {space: one for space, one in marker.applied.items() if before.get(space) != one}
            cursor.executemany(_FOLLOW, [_followed(space, one) for space, one in changed.items()])
        self._generation = max(self._generation + 1, time.time_ns() // 1000)
        said = {**marker._asdict(), "dimensions": self._dimensions, "format": FORMAT, "generation": self._generation}
        self._connection.execute(_COMMIT, said)
        self._connection.execute("COMMIT")
        self._open = False
        self._marker = marker._replace(dimensions=self._dimensions)
        self._bare, self._empty, self._grown, self._added = False, False, {}, set()
        self._committed += self._written
        self._written = 0

    def _resume(self) -> None:
        """Go on after a commit, or begin anew where there is nothing whole to go on with."""
        if not self._open:
            self.begin()
        if self._marker is None and not self._empty:
            self.clear()

    def _withdraw(self, owners: frozenset[str]) -> None:
        if self._empty and owners.isdisjoint(self._added):
            return
        if self._bare:
            self._connection.execute(INDEX)
            self._bare = False
        given = {"owners": [signed(owner) for owner in owners]}
        gone = self._connection.execute(_WITHDRAW, given).fetchall()
        with self._connection.cursor() as cursor:
            # What this transaction has added itself is not counted yet.
            self._count_in(cursor)
            cursor.executemany(
                _SHRINK,
                [
                    {"space": space, "passages": size, "unembedded": bare, "version": self._version}
                    for space, size, bare in gone
                ],
            )

    def _count_in(self, cursor: psycopg.Cursor[tuple[Any, ...]]) -> None:
        grown = [
            {
                "space": signed(space),
                "name": space,
                "passages": size,
                "unembedded": unembedded,
                "version": self._version,
            }
            for space, (size, unembedded) in self._grown.items()
        ]
        cursor.executemany(_GROW, grown)
        self._grown = {}

    def _copy(self, target: str, data: bytes) -> None:
        with self._connection.cursor() as cursor, cursor.copy(f"COPY {target} FROM STDIN (FORMAT BINARY)") as copy:
            copy.write(data)

    def tidy(self) -> None:
        """Let the database know its new rows; until it does, each is looked up in its table as well."""
        if self._committed < _LARGE:
            return
        (all_,) = self._connection.execute("SELECT coalesce(sum(passages), 0) FROM recall_space").fetchone() or (0,)
        if self._committed < _SHARE * int(all_):
            return
        (before,) = self._connection.execute("SELECT current_setting('statement_timeout')").fetchone() or ("0",)
        try:
            self._connection.execute("SET statement_timeout TO 0")
            # What another cleans up at this moment is left to it.
            self._connection.execute("VACUUM (ANALYZE, SKIP_LOCKED) recall_passage, recall_posting, recall_space")
        finally:
            self._connection.execute("SELECT set_config('statement_timeout', %s, false)", (before,))


def _followed(space: str, one: SpacePosition) -> dict[str, object]:
    return {"space": signed(space), "name": space, **one._asdict()}


def _marker(connection: Connection) -> tuple[int, IndexState | None]:
    """Read the marker with everything that it says."""
    rows = connection.execute(_MARKER).fetchall()
    if not rows:
        return 0, None
    first, *_ = rows
    _, generation, home, rules, embedder, dimensions, *_, unembedded = first
    applied = {name: SpacePosition(number, seq, head) for *_, name, number, seq, head, _ in rows if name is not None}
    if home is None:
        return generation, None
    return generation, IndexState(home, rules, embedder, applied, dimensions, unembedded)


def _prepare(connection: Connection) -> None:
    """Make the tables if there are none, or not all, or only those of an older program."""
    for _ in range(_ATTEMPTS):
        # Of several who begin at the same moment, one makes them; the others look again.
        with suppress(
            pg.UniqueViolation, pg.DuplicateTable, pg.DuplicateObject, pg.UndefinedTable, pg.LockNotAvailable
        ):
            missing, lost = connection.execute(_MISSING, {"tables": list(TABLES)}).fetchone() or (0, 0)
            if missing == len(TABLES):
                with connection.transaction():
                    connection.execute(f"{MARKER}; {CREATE}; {INDEX}")
            elif not missing and not lost and not _is_older(connection, "SELECT format FROM recall_index"):
                return
            else:
                interrupt(connection)
                with connection.transaction():
                    if missing or lost or _is_older(connection, "SELECT format FROM recall_index FOR UPDATE"):
                        connection.execute(f"{DROP}; {MARKER}; {CREATE}; {INDEX}")
    raise _busy("others who make it anew")


def _is_older(connection: Connection, statement: str) -> bool:
    (found,) = connection.execute(statement).fetchone() or (0,)
    if found > FORMAT:
        raise HomeIsNewer(
            f"the index has format {found}, this program knows {FORMAT}",
            fix="update Commonbook and start it again; nothing was changed",
        )
    return bool(found < FORMAT)


def _moved() -> Busy:
    return Busy("the index was written between two looks at it", fix="ask again")


def _busy(holder: str) -> Busy:
    return Busy(f"the index is being written by {holder}", fix="try again in a moment")

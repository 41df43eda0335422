"""The Database port on SQLite in WAL mode: one file, one writer at a time, any number of readers and processes.

A fair file lock serializes the writers of all processes before SQLite's own lock. The files of a database: a new one,
and the copies that are made before its schema is migrated.

A new database is made beside its place, and renamed when it is complete and synced: SQLite makes it in place, and a
power cut can tear its first page. The copy of `state.db` before the migration to schema 4 is `state.db.before-4`, in
the same folder: with it, the former state can be put back.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import sqlite3
import stat
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from typing import TYPE_CHECKING, Final

from commonbook.engines import migration_steps
from commonbook.engines.disk.durable_files import sync_folder
from commonbook.engines.process import FairLock, ForkGate
from commonbook.errors import Busy, CommonbookError, DiskFull, HomeDamaged, HomeError, HomeReadOnly
from commonbook.ports.database import Result, Row, Transaction
from commonbook.values.reports import Change, SchemaMigration

if TYPE_CHECKING:
    from commonbook.ports.keys import Clock

_CLOSE_LOCK_SECONDS: Final = 2.0
_PAGE_BYTES: Final = 8192
"""The pages of a new database: a note of one kilobyte wastes a quarter of a page of 4 kB, and little of this one."""

_CACHE_KILOBYTES: Final = 1000
"""The pages that a connection caches: with half as much writes and recalls of 20,000 notes take 10 % longer, with
twice as much (SQLite's default) as long."""

_MAX_UNPADDED_LENGTH: Final = 4
_MAX_PADDED_LENGTH: Final = 16_384
"""SQLite takes 32,766 parameters: a longer list is not padded."""

_CACHED_STATEMENTS: Final = 64
"""The statements that a connection keeps compiled, some 8 KB each: recalls beside writes need no more to be fast."""


class SqliteDatabase:
    """The Database port on SQLite in WAL mode, with a lock file before the write transaction.

    SQLite's own lock is neither fair nor patient: of sixteen writers of 20 ms each, some get "database is locked".
    Behind `write.lock` there is only ever one writer, so SQLite never has to refuse one.
    """

    compresses_texts = True

    def __init__(
        self,
        path: str,
        *,
        migrations: Sequence[str],
        clock: Clock,
        busy_seconds: float,
        lock: str = "write.lock",
        copies_before_migration: bool = False,
    ) -> None:
        """Open or create the database and bring its schema up to date; `lock` names the lock file beside it."""
        self.migration: SchemaMigration | None = None
        self._copies_before_migration = copies_before_migration
        self._path = path
        self._migrations = tuple(migrations)
        self._clock = clock
        self.busy_seconds = busy_seconds
        self._lock = FairLock(os.path.join(os.path.dirname(path), lock))
        self._readers: list[sqlite3.Connection] = []
        self._writer: sqlite3.Connection | None = None
        self._log: _WalFile | None = None
        self._writer_thread: int | None = None
        self._begin_lock = threading.Lock()
        """Held to begin a write transaction, and to read from the writer's connection outside of one.

        A transaction that began beside such a reader would have its older snapshot, and could not write.
        """
        self._data_version: int | None = None
        """SQLite's number of the last commit of another connection that the writer has seen."""
        self._commits = 0
        """How many transactions this process has committed."""
        self._closed = False
        self._gate = ForkGate(self._close_all)
        with _translated_errors(path):
            self._open()

    @property
    def schema(self) -> int:
        """The version of the schema."""
        return len(self._migrations)

    def damage(self) -> list[str]:
        """Return the faults that SQLite's integrity check reports."""
        with self.reading() as tx:
            return [fault for (fault,) in tx.rows("PRAGMA integrity_check(20)") if fault != "ok"]

    def schema_copies(self) -> list[str]:
        """Return the copies that were made before migrations of the schema, oldest first."""
        return find_copies(self._path)

    def remove_schema_copies(self) -> None:
        """Remove the copies that were made before migrations of the schema."""
        remove_copies(self._path)

    # --- reading

    @contextmanager
    def reading(self) -> Iterator[SqliteReading]:
        """Open a consistent snapshot of the committed state."""
        with _translated_errors(self._path), self._gate:
            connection = self._checkout()
            try:
                connection.execute("BEGIN")
                self._check_schema(connection)
                yield SqliteReading(connection, self._clock.now())
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                self._readers.append(connection)

    def _checkout(self) -> sqlite3.Connection:
        try:
            return self._readers.pop()
        except IndexError:
            return self._connect()

    # --- writing

    def write(
        self,
        operation: Callable[[SqliteTransaction], Result],
        *,
        durable: bool = True,
        patient: bool = True,  # noqa: ARG002 - no row is ever locked
    ) -> Result:
        """Run an operation in the write transaction; there are no concurrent writers, so it is never repeated."""
        with self.writing(durable=durable) as tx:
            return operation(tx)

    @contextmanager
    def writing(self, *, durable: bool = True) -> Iterator[SqliteTransaction]:
        """Open the write transaction, exclusive among all processes; a durable one is synced after the lock.

        The next writer need not wait for the disk. What it reads may not be durable yet, but its own sync covers that.
        """
        if self._writer_thread == threading.get_ident():
            raise RuntimeError("a writing transaction was opened inside another")
        with _translated_errors(self._path):
            with self._lock.hold(self.busy_seconds), self._gate:
                self._writer_thread = threading.get_ident()
                try:
                    connection = self._open_writer()
                    with self._begin_lock:
                        connection.execute("BEGIN IMMEDIATE")
                    try:
                        self._note_commits_of_others(connection)
                        tx = SqliteTransaction(connection, self._clock.now())
                        yield tx
                        connection.execute("COMMIT")
                    except BaseException:
                        if connection.in_transaction:
                            connection.execute("ROLLBACK")
                        raise
                    self._commits += 1
                    tx.committed = (self._commits, self._data_version)
                    log = self._open_log() if durable else None
                finally:
                    self._writer_thread = None
            if log is not None:
                log.sync()

    def make_durable(self) -> None:
        """Sync SQLite's log: everything that any process has committed before is durable on return."""
        with self._gate:
            # Nothing is in a log that does not exist.
            log = self._open_log() if os.path.exists(f"{self._path}-wal") else None
        if log is not None:
            log.sync()

    def _note_commits_of_others(self, connection: sqlite3.Connection) -> None:
        """Note whether another connection has committed since; check the schema then."""
        ((version,),) = connection.execute("PRAGMA data_version").fetchall()
        if version != self._data_version:
            self._check_schema(connection)
            self._data_version = version

    def is_last_commit(self, tx: Transaction) -> bool:
        """Return whether nobody has committed since a transaction of this process was committed."""
        with _translated_errors(self._path), self._gate:
            writer = self._writer
            if writer is None or tx.committed is None:
                return False
            with self._begin_lock:
                ((version,),) = writer.execute("PRAGMA data_version").fetchall()
            return (self._commits, version) == tx.committed

    def _open_writer(self) -> sqlite3.Connection:
        if self._writer is None:
            self._writer = self._connect()
            # SQLite itself syncs only around checkpoints; `writing` syncs the log after a commit.
            self._writer.execute("PRAGMA journal_mode=WAL").fetchall()
            self._writer.execute("PRAGMA synchronous=NORMAL")
            # SQLite counts the commits for each connection by itself.
            self._data_version = None
        return self._writer

    def _open_log(self) -> _WalFile:
        if self._log is None:
            self._log = _WalFile(self._path)
        return self._log

    # --- opening and closing

    def _connect(self) -> sqlite3.Connection:
        if self._closed:
            raise HomeError("the book is closed", fix="open it again with commonbook.open()")
        connection = sqlite3.connect(
            self._path,
            timeout=self.busy_seconds,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=_CACHED_STATEMENTS,
        )
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA fullfsync=ON")
        connection.execute("PRAGMA checkpoint_fullfsync=ON")
        connection.execute(f"PRAGMA cache_size=-{_CACHE_KILOBYTES}")
        return connection

    def _open(self) -> None:
        if _is_empty(self._path):
            with self._lock.hold(self.busy_seconds):
                # Another process may have made it while this one waited.
                if _is_empty(self._path):
                    make_database(self._path, self._migrate)
        if self._remaining_migrations():
            with self._lock.hold(self.busy_seconds), closing(self._connect()) as connection:
                self._migrate(connection)
        self._readers.append(self._connect())

    def _remaining_migrations(self) -> Sequence[str]:
        """Check the schema without writing: even opening and closing would checkpoint the log after a crash."""
        address = self._read_only_address()
        with closing(sqlite3.connect(address, uri=True, timeout=self.busy_seconds)) as connection:
            # Number and fingerprint are of one snapshot.
            connection.execute("BEGIN")
            return self._migrations_for(connection)

    def _migrations_for(self, connection: sqlite3.Connection) -> Sequence[str]:
        """Return the migrations that the database still needs; raise HomeOfAnotherBuild if others have made it."""
        ((stored,),) = connection.execute("PRAGMA application_id").fetchall()
        return migration_steps.remaining(self._migrations, self._version(connection), stored, place="home")

    def _read_only_address(self) -> str:
        # Without a write-ahead log, `immutable` reads the file and creates none beside it. (Reading the file without
        # SQLite is not possible: closing it would drop the locks of every connection of this process.)
        path = self._path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
        return f"file:{path}?mode=ro" + ("&immutable=1" if _is_empty(self._path + "-wal") else "")

    def _migrate(self, connection: sqlite3.Connection) -> None:
        if self._version(connection) == 0:
            connection.execute(f"PRAGMA page_size={_PAGE_BYTES}")
            connection.execute("PRAGMA journal_mode=WAL").fetchall()
        connection.execute("BEGIN IMMEDIATE")
        try:
            migrations = self._migrations_for(connection)
            migration = self._prepare_migration(self._version(connection))
            for statement in migration_steps.statements(migrations):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version={len(self._migrations)}")
            connection.execute(f"PRAGMA application_id={migration_steps.fingerprint(self._migrations)}")
            connection.execute("COMMIT")
            self.migration = migration
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    def _prepare_migration(self, version: int) -> SchemaMigration | None:
        """Copy the database aside before the first statement of a migration; a new database has nothing to copy."""
        if version in {0, len(self._migrations)}:
            return None
        copy = None
        if self._copies_before_migration:
            copy = copy_before_migration(self._path, len(self._migrations), busy_seconds=self.busy_seconds)
        return SchemaMigration(before=version, after=len(self._migrations), copy=copy)

    @staticmethod
    def _version(connection: sqlite3.Connection) -> int:
        ((version,),) = connection.execute("PRAGMA user_version").fetchall()
        return int(version)

    def _check_schema(self, connection: sqlite3.Connection) -> None:
        version = self._version(connection)
        if version != len(self._migrations):
            raise migration_steps.another_build(version, len(self._migrations), place="home")

    def close(self) -> None:
        """Close for good, holding the lock: the last connection of any process writes SQLite's log back."""
        self._closed = True
        if self._readers or self._writer:
            with suppress(Busy), self._lock.hold(_CLOSE_LOCK_SECONDS):
                self._close_all()
            # Close them without the lock, if it could not be had.
            self._close_all()
        self._lock.close()

    def _close_all(self) -> None:
        connections = [*self._readers, *([self._writer] if self._writer else [])]
        self._readers, self._writer, self._log = [], None, None
        for connection in connections:
            connection.close()


class SqliteReading:
    """A consistent snapshot; every cursor is read to its end."""

    def __init__(self, connection: sqlite3.Connection, now: datetime) -> None:
        """Read through this connection; `now` is the one time of the whole transaction."""
        self._connection = connection
        self.now = now

    def rows(self, sql: str, /, **params: object) -> list[Row]:
        """Return all rows of a query."""
        return self._connection.execute(*_expand_lists(sql, params)).fetchall()

    def row(self, sql: str, /, **params: object) -> Row | None:
        """Return the first row of a query, or None."""
        return next(iter(self.rows(sql, **params)), None)

    def rows_many(self, sql: str, params: Sequence[Mapping[str, object]], /) -> list[list[Row]]:
        """Run one query for each set of parameters, and return the rows of each."""
        return [self.rows(sql, **values) for values in params]


class SqliteTransaction(SqliteReading):
    """The write transaction: there is only ever one, so no row needs a lock."""

    compresses_texts = True

    def __init__(self, connection: sqlite3.Connection, now: datetime) -> None:
        """Write through this connection; `now` is the one time of the whole transaction."""
        super().__init__(connection, now)
        self.recorded: list[Change] = []
        self.touched: dict[str, str | None] = {}
        self.commit_check: Callable[[Transaction], bool] | None = None
        self.committed: object | None = None

    def lock_rows(self, sql: str, /, *, if_free: bool = False, **params: object) -> list[Row]:  # noqa: ARG002 - all are free
        """Return the rows of a query."""
        return self.rows(sql, **params)

    def lock_table(self, table: str, /) -> None:
        """Do nothing: nobody else writes."""

    def run(self, sql: str, /, **params: object) -> int:
        """Run one statement and return how many rows it touched."""
        return self._connection.execute(*_expand_lists(sql, params)).rowcount

    def run_many(self, sql: str, params: Sequence[Mapping[str, object]], /) -> None:
        """Run one statement for each set of parameters."""
        self._connection.executemany(sql, params)

    def record(self, change: Change) -> None:
        """Record a change, to be numbered and logged when the transaction is finalized."""
        self.recorded.append(change)


def _expand_lists(sql: str, params: Mapping[str, object]) -> tuple[str, Mapping[str, object]]:
    """Give each value of a list a parameter of its own: `IN :ids` becomes `IN (:ids_0, :ids_1)`.

    Lists are filled up with their last value to a few lengths, since each connection keeps its statements compiled.
    """
    lists = {name: value for name, value in params.items() if isinstance(value, (list, tuple))}
    if not lists:
        return sql, params
    expanded = {name: value for name, value in params.items() if name not in lists}
    for name, values in lists.items():
        length = _padded_length(len(values))
        names = [f"{name}_{number}" for number in range(length)]
        expanded |= zip(names, [*values, *values[-1:] * (length - len(values))], strict=True)
        sql = re.sub(rf" IN :{name}\b", f" IN ({', '.join(f':{one}' for one in names)})", sql)
    return sql, expanded


def _padded_length(length: int) -> int:
    """Return the number of placeholders of a list: up to four its length, then the next of 6, 8, 12, 16, 24, ..."""
    if length <= _MAX_UNPADDED_LENGTH or length > _MAX_PADDED_LENGTH:
        return length
    power = 1 << (length - 1).bit_length()
    return power * 3 // 4 if power * 3 // 4 >= length else power


def _is_empty(path: str) -> bool:
    return not os.path.exists(path) or os.path.getsize(path) == 0


@contextmanager
def _translated_errors(path: str) -> Iterator[None]:
    """Translate SQLite's errors into ours, each with its fix."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        raise _translate(error, path) from error


def _translate(error: sqlite3.DatabaseError, path: str) -> CommonbookError:
    """Return our error for one of SQLite, with its fix."""
    name = getattr(error, "sqlite_errorname", "") or ""
    # A disk without room fails to extend the shared memory of the log, which SQLite calls an I/O error.
    if name.startswith("SQLITE_FULL") or (name.startswith("SQLITE_IOERR") and _free_bytes(path) < _LEAST_FREE_BYTES):
        return DiskFull("there is no room left for the database", fix="free some space and try again")
    if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
        return HomeReadOnly(f"{path} cannot be written: {error}", fix="give this user write access to the home")
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return Busy(f"the database is locked by another program: {error}", fix="close that program")
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return HomeDamaged(
            f"{path} is damaged: {error}",
            fix="restore a back-up, or move state.db away and open the home again: the Markdown is all there",
        )
    if name.startswith("SQLITE_IOERR"):
        return HomeError(f"{path} cannot be read or written: {error}", fix="check the disk, then try again")
    return HomeDamaged(f"the database refused a statement: {error}", fix="run `commonbook doctor` and report this")


# --- the write-ahead log


_FULL_SYNC: Final = getattr(fcntl, "F_FULLFSYNC", None)
"""macOS only: `fsync` there does not wait for the disk."""


class _WalFile:
    """The open write-ahead log of a database, which this program syncs itself.

    SQLite would sync it inside the commit, while all other writers wait for the lock. Its frames carry a running
    checksum, so a sync makes durable what was appended before it, by this process or by others.

    SQLite removes it only when the last connection of any process is closed, so it stays the same file while a
    connection of this process is open. SQLite has no lock on it, which closing it would drop.
    """

    __slots__ = ("_fd", "_path")

    def __init__(self, database: str) -> None:
        """Open the log of the database at this path; it exists as soon as a transaction has begun."""
        self._path = f"{database}-wal"
        try:
            self._fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise _typed_error(self._path, error) from error

    def sync(self) -> None:
        """Make durable what was committed before."""
        try:
            if _FULL_SYNC is None:
                os.fdatasync(self._fd)
            else:
                fcntl.fcntl(self._fd, _FULL_SYNC)
        except OSError as error:
            raise _typed_error(self._path, error) from error

    def __del__(self) -> None:
        """Close the file."""
        with suppress(AttributeError, OSError):
            os.close(self._fd)


def _typed_error(path: str, error: OSError) -> HomeError:
    """Return the error for a change that is committed, but may be lost when the power fails."""
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return DiskFull("there is no room left for the database", fix="free some space and try again")
    message = f"{path} cannot be synced: {error.strerror}"
    return HomeError(message, fix="check the disk, then look whether the change was stored")


_RESERVE_BYTES: Final = 2 * 1024 * 1024
_PART_SUFFIX: Final = ".part"
_SIDE_FILES: Final = ("-wal", "-shm", "-journal")


# --- new databases


def make_database(path: str, fill: Callable[[sqlite3.Connection], None]) -> None:
    """Make the database at `path`, where there is none or an empty file; `fill` writes what a new one has.

    The caller holds the write lock, and no connection to `path` is open: it would go on with the replaced file.
    """
    part = path + ".new"
    try:
        _remove(part, *(part + suffix for suffix in _SIDE_FILES))
        _create_file(part, like=path)
        with closing(sqlite3.connect(part, isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute("PRAGMA fullfsync=ON")
            connection.execute("PRAGMA checkpoint_fullfsync=ON")
            fill(connection)
        # They are of a database that was removed. SQLite would apply them to the new one.
        _remove(*(path + suffix for suffix in _SIDE_FILES))
        os.replace(part, path)
        sync_folder(os.path.dirname(path))
    except OSError as error:
        raise _not_made(path, error) from error


def _create_file(part: str, *, like: str) -> None:
    """Create an empty file with the permissions of the one that it will replace, if there is one."""
    fd = os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o666)
    try:
        with suppress(FileNotFoundError):
            os.fchmod(fd, stat.S_IMODE(os.stat(like).st_mode))
    finally:
        os.close(fd)


def _remove(*paths: str) -> None:
    for path in paths:
        with suppress(FileNotFoundError):
            os.unlink(path)


def _not_made(path: str, error: OSError) -> DiskFull | HomeReadOnly:
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return DiskFull("there is no room left for the database", fix="free some space and try again")
    return HomeReadOnly(f"{path} cannot be written: {error}", fix="give this user write access to the home")


# --- copies before migrations


def copy_before_migration(path: str, schema: int, *, busy_seconds: float) -> str:
    """Copy the committed state of a database beside it, synced, and return the path of the copy.

    The caller holds the write transaction, so nothing changes meanwhile. SQLite's backup reads the write-ahead log too.
    The copy gets its name when it is complete; one of the same name is from a migration that was not finished.
    """
    copy = f"{path}.before-{schema}"
    part = copy + _PART_SUFFIX
    _require_room(path)
    try:
        _back_up(path, part, busy_seconds)
        os.replace(part, copy)
        sync_folder(os.path.dirname(path))
    except OSError as error:
        raise _not_copied(error) from error
    finally:
        with suppress(OSError):
            os.unlink(part)
    return copy


def _not_copied(error: OSError) -> HomeError:
    message = f"the database cannot be copied before its schema is migrated: {error.strerror}"
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return DiskFull(message, fix="free some space and open the home again; nothing was changed")
    return HomeError(message, fix="check the disk and the rights of the home, then open it again; nothing was changed")


def find_copies(path: str) -> list[str]:
    """Return the copies that were made before migrations of this database, oldest first."""
    pattern = re.compile(re.escape(os.path.basename(path)) + r"\.before-([0-9]+)")
    numbers = sorted(int(match[1]) for match in map(pattern.fullmatch, os.listdir(os.path.dirname(path))) if match)
    return [f"{path}.before-{number}" for number in numbers]


def remove_copies(path: str) -> None:
    """Remove the copies; a copy that another process has removed meanwhile is fine."""
    for copy in find_copies(path):
        with suppress(FileNotFoundError):
            os.unlink(copy)


def _back_up(path: str, part: str, busy_seconds: float) -> None:
    with suppress(FileNotFoundError):
        os.unlink(part)
    # The copy has the texts of all memories: nobody else may read it.
    fd = os.open(part, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        with closing(sqlite3.connect(path, timeout=busy_seconds)) as source, closing(sqlite3.connect(part)) as target:
            source.backup(target)
        os.fsync(fd)
    finally:
        os.close(fd)


_LEAST_FREE_BYTES: Final = 65_536
"""Less than this is a full disk: the shared memory of the log grows by 32 KiB."""


def _free_bytes(path: str) -> int:
    disk = os.statvfs(os.path.dirname(path) or ".")
    return disk.f_bavail * disk.f_frsize


def _require_room(path: str) -> None:
    """Raise DiskFull unless there is room for a copy of the database and its write-ahead log."""
    size = sum(os.path.getsize(file) for file in (path, path + "-wal") if os.path.exists(file))
    needed = size + _RESERVE_BYTES
    if _free_bytes(path) < needed:
        raise DiskFull(
            "there is no room for the copy of the database that is made before its schema is migrated",
            fix=f"free at least {needed:,} bytes and open the home again; nothing was changed",
        )

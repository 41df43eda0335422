"""The composition root of a book: wires engines and services from settings, over a folder or on PostgreSQL.

Modules that are slow to import (cryptography, YAML, the watcher) are imported at first use.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from commonbook.core.settings.settings import DatabaseChoice, Settings
from commonbook.core.tables import home
from commonbook.core.text import user_times
from commonbook.engines.disk import git, machine_marker
from commonbook.engines.disk.durable_files import make_folders, network_file_system
from commonbook.engines.disk.home_folder import HIDDEN_FOLDER, HomeFolder, HomeWatcher, holds_files, is_home
from commonbook.engines.disk.import_export import ExternalFolder
from commonbook.engines.disk.signing_keys import KeyFiles
from commonbook.engines.disk.yaml_fields import PyYaml
from commonbook.engines.process import SystemClock
from commonbook.engines.sqlite.database import SqliteDatabase
from commonbook.engines.sqlite.migrations import MIGRATIONS
from commonbook.errors import DatabaseUnfit, HomeReadOnly, KeyMissing, Moved, NetworkFileSystem, NoHome
from commonbook.ports.engines import Engines, RecallService
from commonbook.runtime import loading, reset_in_child
from commonbook.service.book import Book
from commonbook.values.ids import format_time, new_id
from commonbook.values.reports import OutboxStatus, Progress, no_progress
from commonbook.values.request import OWNER_CONTEXT

if TYPE_CHECKING:
    from commonbook.core.write.context import WriteContext
    from commonbook.engines.postgres.database import PostgresDatabase
    from commonbook.ports.database import Database, Transaction
    from commonbook.ports.files import FilesToWrite, Folder
    from commonbook.ports.index import Index
    from commonbook.ports.keys import Clock, Keys
    from commonbook.subjects.maintenance.worker import IndexFollower

_KEYS_OF_HOME: Final = (
    "bring the folder of the keys back from a backup (`commonbook restore` makes a home of one); if the keys are lost,"
    " `commonbook export` here, and `commonbook import` into a new home"
)
_KEYS_OF_SERVER: Final = (
    "copy the folder of the keys from another server of this book (`commonbook migrate` said which), and set"
    " COMMONBOOK_KEYS to it"
)

_RECALLS_AT_ONCE: Final = 1
"""How many threads rank at once in an embedded book: more of them take the GIL from each other.

PostgreSQL does its part elsewhere, and is not waited for.
"""


def _write_files(engines: Engines, tx: Transaction, files: FilesToWrite, /) -> None:
    if files:
        from commonbook.core.files import journal

        journal.write_committed(engines, tx, files)


def _finish_write(recall: LazyRecall, engines: Engines, tx: Transaction, files: FilesToWrite, /) -> None:
    """Write the files of a committed change, and have the index follow when there are many changes."""
    try:
        _write_files(engines, tx, files)
    finally:
        recall.note_changes(engines, len(tx.recorded))


def open_book(
    settings: Settings,
    *,
    create: bool = False,
    clock: Clock | None = None,
    progress: Progress = no_progress,
) -> Book:
    """Open the book that the settings name, and apply changes made to its files; NoHome if there is none.

    With `create` a book that does not exist is made.
    """
    clock = clock or SystemClock()
    wire = wire_server if settings.database else wire_home
    engines, make_recall = wire(settings, clock, create=create)
    book = book_over(engines, settings, clock, make_recall)
    # A book that was migrated away, or has the keys of another one, can still be read, but applies no more changes.
    with suppress(Moved, KeyMissing):
        book.sync(progress=progress)
    return book


def book_over(engines: Engines, settings: Settings, clock: Clock, make_recall: Callable[[], RecallService]) -> Book:
    """Return the book of its owner over engines."""
    recall = LazyRecall(make_recall)
    engines = engines._replace(after_commit=partial(_finish_write, recall))
    return Book(
        engines,
        settings,
        caller=OWNER_CONTEXT,
        recall_service=cast("RecallService", recall),
        outbox_status=lambda: _outbox_status(settings, clock),
    )


def may_be_made(settings: Settings, *, anywhere: bool = False) -> bool:
    """Return whether the first write may make this book: a database that was named, or the default home.

    With `anywhere` it may be any home. One in whose folder files lie already is not made: they would become memories
    without a question.
    """
    if settings.database is not None:
        return True
    return (anywhere or settings.is_default_home) and not holds_files(settings.home)


def wire_home(settings: Settings, clock: Clock, *, create: bool = False) -> tuple[Engines, Callable[[], RecallService]]:
    """Wire a book over a folder of Markdown; the second value makes recall when it is first used."""
    if not create and not is_home(settings.home):
        raise no_home_error(settings)
    hidden = prepare_home(settings.home)
    engines = wire_folder(settings, clock, hidden, HomeFolder(settings.home))
    return engines, lambda: recall_service(settings, hidden)


def wire_folder(settings: Settings, clock: Clock, hidden: str, folder: Folder) -> Engines:
    """Wire the engines of a book over a folder, with its database and keys in the folder `hidden`."""
    database = sqlite_database(settings, clock, hidden)
    keys = KeyFiles(os.path.join(hidden, "keys"))
    facts = _facts(database, settings, keys, create=True)
    return Engines(
        db=database,
        folder=folder,
        watcher=HomeWatcher(settings.home),
        external_files=ExternalFolder(settings.home),
        keys=keys,
        yaml=PyYaml(),
        clock=clock,
        zone=user_times.require_zone(settings.zone or facts["zone"]),
        before_finalize=complete_changes,
        after_commit=_write_files,
    )


def sqlite_database(settings: Settings, clock: Clock, hidden: str) -> SqliteDatabase:
    """Open the database in the hidden folder of a home, without its keys and files."""
    return SqliteDatabase(
        os.path.join(hidden, "state.db"),
        migrations=MIGRATIONS,
        clock=clock,
        busy_seconds=settings.busy_seconds,
        copies_before_migration=True,
    )


def wire_server(
    settings: Settings, clock: Clock, *, create: bool = False
) -> tuple[Engines, Callable[[], RecallService]]:
    """Wire a book on PostgreSQL: without files, and with keys that every server is given."""
    from commonbook.engines.disk.no_files import NoFiles

    keys = _server_keys(settings, clock)
    try:
        database = postgres_database(settings, clock, create=create)
    except NoHome as error:
        raise no_home_error(settings) from error
    no_files = NoFiles(database.bytes_used)
    with ExitStack() as on_error:
        on_error.callback(database.close)
        facts = _facts(database, settings, keys, create=create)
        zone = user_times.require_zone(settings.zone or facts["zone"])
        on_error.pop_all()
    engines = Engines(
        db=database,
        folder=no_files,
        watcher=no_files,
        external_files=ExternalFolder(None),
        keys=keys,
        yaml=PyYaml(),
        clock=clock,
        zone=zone,
        before_finalize=complete_changes,
        after_commit=_write_files,
    )
    return engines, lambda: _recall_service(settings, lambda: _postgres_index(settings, database))


def postgres_database(settings: Settings, clock: Clock, *, create: bool) -> PostgresDatabase:
    """Open the database of a book on PostgreSQL, without its keys; NoHome if there is none, unless it is created."""
    with needing_driver():
        from commonbook.engines.postgres.database import PostgresDatabase
        from commonbook.engines.postgres.migrations import MIGRATIONS as POSTGRES_MIGRATIONS
    chosen = settings.database
    if chosen is None:
        raise ValueError("no server was chosen")
    return PostgresDatabase(
        chosen.address,
        migrations=POSTGRES_MIGRATIONS,
        clock=clock,
        busy_seconds=settings.busy_seconds,
        connections=chosen.connections,
        create=create,
    )


@contextmanager
def needing_driver() -> Iterator[None]:
    """Turn a missing PostgreSQL driver into an error that says what to install."""
    try:
        yield
    except ImportError as error:
        raise DatabaseUnfit(
            f"a book on PostgreSQL needs a package that is not installed: {error.name}",
            fix="pip install 'commonbook[postgres]'",
        ) from error


def _server_keys(settings: Settings, clock: Clock) -> Keys:
    """Read the keys of a server now; they are never created here, since every server must have the same."""
    folder = settings.database.keys if settings.database else None
    if folder is None:
        message = "COMMONBOOK_KEYS does not say where the keys of this book are"
        raise KeyMissing(message, fix=_keys_fix(settings, clock))
    keys = KeyFiles(folder)
    try:
        keys.load(create=False)
    except KeyMissing as error:
        raise KeyMissing(error.message, fix=_keys_fix(settings, clock)) from error
    return keys


def _keys_fix(settings: Settings, clock: Clock) -> str:
    """Return the next step for a server without keys: a book that exists has some already."""
    folder = (settings.database.keys if settings.database else None) or "FOLDER"
    if _exists_on_server(settings, clock):
        return (
            "this book has keys already: copy their folder from another server of the book (`commonbook migrate` said"
            f" which), then `export COMMONBOOK_KEYS={folder}`"
        )
    return (
        f"make them once, with `commonbook audit keys {folder}`; then `export COMMONBOOK_KEYS={folder}` on every"
        " server, which gets a copy of that folder"
    )


def _exists_on_server(settings: Settings, clock: Clock) -> bool:
    with (
        suppress(NoHome),
        closing(postgres_database(settings, clock, create=False)) as database,
        database.reading() as tx,
    ):
        return "id" in home.facts(tx)
    return False


def require_usable(settings: Settings) -> None:
    """Raise the reason why a home cannot be opened or made, as far as that is seen without changing anything.

    A home that is read-only passes: it can be read.
    """
    require_folder(settings.home)
    _refuse_network(settings.home)
    if is_home(settings.home):
        return
    existing = _nearest_existing(settings.home)
    if not os.access(existing, os.W_OK | os.X_OK):
        reason = "it is read-only" if existing == settings.home else f"{existing} is read-only"
        raise HomeReadOnly(
            f"{settings.home} cannot be made a home: {reason}",
            fix="choose another home (--home, COMMONBOOK_HOME), or give this user write access",
        )


def _refuse_network(folder: str) -> None:
    kind = network_file_system(_nearest_existing(folder))
    if kind is not None:
        raise NetworkFileSystem(
            f"{folder} is on a network file system ({kind}), whose locks cannot be trusted",
            fix="put the home on a local disk; to share a book between machines, use the server on PostgreSQL",
        )


def prepare_home(folder: str) -> str:
    """Create the missing folders of a home and return its hidden folder, or raise the reason why that is impossible."""
    require_folder(folder)
    hidden = os.path.join(folder, HIDDEN_FOLDER)
    is_new = not is_home(folder)
    _refuse_network(folder)
    try:
        make_folders(hidden, mode=0o700)
        make_folders(os.path.join(hidden, "out"), mode=0o700)
        if is_new:
            machine_marker.write_marker(hidden)
        if not os.path.lexists(os.path.join(hidden, ".gitignore")):
            git.ignore_folder(hidden)
    except OSError as error:
        raise HomeReadOnly(
            f"{folder} cannot be made or written: {error.strerror}",
            fix="choose another home (--home, COMMONBOOK_HOME), or give this user write access",
        ) from error
    if not os.access(folder, os.W_OK) or not os.access(hidden, os.W_OK):
        raise HomeReadOnly(f"{folder} is read-only", fix="give this user write access to the home")
    return hidden


def require_folder(path: str) -> None:
    """Raise NoHome if a home cannot be at a path, since that, or something above it, is a file."""
    existing = _nearest_existing(path)
    if not os.path.isdir(existing):
        raise _is_file_error(existing)


def _is_file_error(path: str) -> NoHome:
    return NoHome(
        f"{path} is a file, and a home is a folder",
        fix="name a folder; `commonbook import FILE` brings one note or an archive into a home",
    )


def no_home_error(settings: Settings) -> NoHome:
    """Return the error that says why there is no book, and how to make one."""
    if settings.database is not None:
        return NoHome(
            f"there is no book in {settings.database.place} yet",
            fix="`commonbook init` makes one, and so does the first write; `commonbook migrate` moves a book there",
        )
    path = settings.home
    if settings.is_default_home and not holds_files(path):
        fix = "the first `commonbook remember` makes it, and so does `commonbook init`"
        return NoHome(f"there is no home yet: {path} does not exist or is empty", fix=fix)
    import shlex  # Imported late: only this error needs it.

    name = shlex.quote(path)
    if not os.path.isdir(existing := _nearest_existing(path)):
        return _is_file_error(existing)
    if os.path.isdir(path):
        return NoHome(
            f"{path} is a folder but no home; nothing in it was changed",
            fix=f"`commonbook init {name}` shows what would become of its files, and asks",
        )
    return NoHome(
        f"there is no home at {path}",
        fix=f"check --home and COMMONBOOK_HOME; `commonbook init {name}` makes a home there (in Python: create=True)",
    )


def _nearest_existing(folder: str) -> str:
    while not os.path.exists(folder) and folder != os.path.dirname(folder):
        folder = os.path.dirname(folder)
    return folder


def _facts(database: Database, settings: Settings, keys: Keys, *, create: bool) -> dict[str, str]:
    """Return the facts about the book that were recorded when it was made; record a new book now."""
    with database.reading() as tx:
        facts = home.facts(tx)
    if "id" not in facts:
        if not create:
            raise no_home_error(settings)
        # The keys come first: only a home without a log may create keys, and from here on it may have a log.
        keys.load(create=settings.database is None)
        zone = settings.zone or user_times.local_zone(settings.system_zone)
        user_times.require_zone(zone)
        facts = database.write(partial(_record_book, zone=zone, keys=keys.fingerprints()))
    keys.expect(facts, fix=_KEYS_OF_HOME if settings.database is None else _KEYS_OF_SERVER)
    if settings.database is not None:
        keys.require_expected()
    return facts


def _record_book(tx: Transaction, zone: str, keys: dict[str, str]) -> dict[str, str]:
    home.record(tx, id=new_id(), created=format_time(tx.now), zone=zone, **keys)
    return home.facts(tx)


def _outbox_status(settings: Settings, clock: Clock) -> OutboxStatus:
    if not os.path.exists(settings.outbox):
        return OutboxStatus()
    from commonbook.compose.client import outbox_status

    return outbox_status(settings, clock)


def _mapped_index(hidden: str) -> Index:
    from commonbook.engines.index.mapped_index import MappedIndex
    from commonbook.subjects.recall import scoring

    return MappedIndex(os.path.join(hidden, "index"), pool_squares=scoring.squares_of_rows)


def _postgres_index(settings: Settings, database: PostgresDatabase) -> Index:
    from commonbook.engines.postgres.index import PostgresIndex

    chosen = settings.database or DatabaseChoice("")
    return PostgresIndex(database.connection, cache_bytes=chosen.recall_mb << 20)


def _recall_service(
    settings: Settings, index: Callable[[], Index], *, recalls_at_once: int | None = None
) -> RecallService:
    from commonbook.engines.embedders.registry import embedder_for
    from commonbook.engines.embedders.static_table import StaticTable
    from commonbook.subjects.recall.recaller import Recaller

    embedder = embedder_for(settings.embedder)
    table = embedder if isinstance(embedder, StaticTable) else StaticTable()
    return Recaller(index(), embedder, table, bars=settings.bars, recalls_at_once=recalls_at_once)


def recall_service(settings: Settings, hidden: str) -> RecallService:
    """Return recall on the index in a hidden folder."""
    return _recall_service(settings, lambda: _mapped_index(hidden), recalls_at_once=_RECALLS_AT_ONCE)


def complete_changes(ctx: WriteContext) -> None:
    """Complete the changes of an operation in its transaction, until no step has left anything for another.

    The order matters, since each step may add to what the later ones look at:
    1. Copies take over the changed texts of their sources. That may apply hand edits of the copies' files, which can
       change what other memories depend on.
    2. Notices are brought up to date with what depends on superseded or deleted memories. That may apply the hand edit
       of a dependent's file: its copies follow in the next round.
    3. Sharing rules look at every memory that the operation and the first two steps have written. A copy that a rule
       makes is new: no other copy takes its text over yet, and nothing depends on it.
    """
    while True:
        if ctx.pending.changed_texts:
            from commonbook.subjects.sharing import propagate

            propagate.propagate_to_copies(ctx)
        if ctx.pending.reasoning_changed:
            from commonbook.subjects.reasoning import notices

            notices.update_notices(ctx)
        if ctx.pending.changed_ids:
            from commonbook.subjects.sharing import rules

            rules.apply_rules(ctx)
        if not ctx.pending.is_incomplete:
            return


CHANGES_BEFORE_INDEXING: Final = 1_000
"""After this number of changes they are indexed in the background; a recall would index them in under a second."""


class LazyRecall:
    """A proxy that makes the recall service at its first use, once for all threads: it imports numpy.

    It also counts the changes that this process commits. After many of them they are indexed in the background.
    """

    def __init__(self, make: Callable[[], RecallService]) -> None:
        """Make nothing yet."""
        self._make = make
        self.reset_after_fork()
        reset_in_child(self)

    def reset_after_fork(self) -> None:
        """Forget the service and the lock: in a forked child, the thread that held the lock does not exist."""
        self._changes = 0
        self._follower: IndexFollower | None = None
        self._service: RecallService | None = None
        self._lock = threading.Lock()

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any attribute of recall
        with self._lock:
            if self._service is None:
                with loading():
                    self._service = self._make()
        return getattr(self._service, name)

    def note_changes(self, engines: Engines, count: int) -> None:
        """Count committed changes; index them in the background when they are many."""
        self._changes += count
        if self._changes < CHANGES_BEFORE_INDEXING:
            return
        from commonbook.subjects.maintenance.worker import IndexFollower

        self._changes = 0
        with self._lock:
            if self._follower is None:
                self._follower = IndexFollower(cast("RecallService", self))
        self._follower.follow(engines)

    def close(self) -> None:
        """Close the recall service, if it was made."""
        if self._follower is not None:
            self._follower.close()
        if self._service is not None:
            self._service.close()

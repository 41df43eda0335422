"""The composition root of a book: wires engines and services from settings, over a folder or on PostgreSQL.

Modules that are slow to import (cryptography, YAML, the watcher) are imported at first use.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from commonbook.book.book import Book
from commonbook.compose.lazy_engines import Lazy, LazyRecall
from commonbook.engines.disk.durable_files import make_folders, network_file_system
from commonbook.engines.disk.home_folder import HIDDEN_FOLDER, HomeFolder, holds_files, is_home
from commonbook.engines.process.clock import SystemClock
from commonbook.engines.sqlite.database import SqliteDatabase
from commonbook.engines.sqlite.migrations import MIGRATIONS
from commonbook.errors import DatabaseUnfit, HomeReadOnly, KeyMissing, Moved, NetworkFileSystem, NoHome
from commonbook.files import journal
from commonbook.model.ids import format_time, new_id
from commonbook.model.reports import OutboxStatus, Progress, no_progress
from commonbook.model.request import OWNER_CONTEXT
from commonbook.ports.engines import Engines, RecallService, TransferService
from commonbook.runtime.lazy_modules import LazyModule
from commonbook.settings.settings import DatabaseChoice, Settings
from commonbook.tables import home
from commonbook.text import user_times

if TYPE_CHECKING:
    from commonbook.compose import write_steps
    from commonbook.engines.disk import git, machine_marker
    from commonbook.engines.postgres.database import PostgresDatabase
    from commonbook.ports.database import Database, Transaction
    from commonbook.ports.files import ExternalFiles, FilesToWrite, Folder, Watcher, Yaml
    from commonbook.ports.index import Index
    from commonbook.ports.keys import Clock, Keys
    from commonbook.sessions.append import Appender
    from commonbook.write.context import WriteContext
else:
    # A home that is only read is opened without the modules that write.
    git = LazyModule("commonbook.engines.disk.git")
    write_steps = LazyModule("commonbook.compose.write_steps")
    machine_marker = LazyModule("commonbook.engines.disk.machine_marker")


KEYS_CHECK_TEXT: Final = "the keys of this book"
"""Its keyed hash is recorded when a book is made, to recognize the keys of the book. It must never change."""

_RECALLS_AT_ONCE: Final = 1
"""How many threads rank at once in an embedded book: more of them take the GIL from each other.

PostgreSQL does its part elsewhere, and is not waited for.
"""


def _complete_changes(context: WriteContext, /) -> None:
    write_steps.complete_changes(context)


def _finish_write(recall: LazyRecall, engines: Engines, tx: Transaction, files: FilesToWrite, /) -> None:
    """Write the files of a committed change, and have the index follow when there are many changes."""
    try:
        journal.write_committed(engines, tx, files)
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
    # A book that was migrated away can still be read, but applies no more changes.
    with suppress(Moved):
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
        transfer_service=cast("TransferService", Lazy(_transfer_service)),
        recall_service=cast("RecallService", recall),
        appender=_appender(engines),
        outbox_status=lambda: _outbox_status(settings, clock),
    )


def may_be_made(settings: Settings, *, anywhere: bool = False) -> bool:
    """Tell whether the first write may make this book: a database that was named, or the default home.

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
    keys = _lazy_keys(os.path.join(hidden, "keys"))
    facts = _facts(database, settings, keys, create=True)
    return Engines(
        db=database,
        folder=folder,
        watcher=cast("Watcher", Lazy(lambda: _watcher(settings.home))),
        external_files=cast("ExternalFiles", Lazy(lambda: _external_files(settings.home))),
        keys=keys,
        yaml=cast("Yaml", Lazy(_yaml)),
        clock=clock,
        zone=user_times.require_zone(settings.zone or facts["zone"]),
        before_finalize=_complete_changes,
        after_commit=journal.write_committed,
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
        external_files=cast("ExternalFiles", Lazy(lambda: _external_files(None))),
        keys=keys,
        yaml=cast("Yaml", Lazy(_yaml)),
        clock=clock,
        zone=zone,
        before_finalize=_complete_changes,
        after_commit=journal.write_committed,
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
    from commonbook.engines.disk.signing_keys import KeyFiles

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
        facts = database.write(partial(_record_book, zone=zone, keys=keys.keyed_hash(KEYS_CHECK_TEXT)))
    if settings.database is not None and facts.get("keys") != keys.keyed_hash(KEYS_CHECK_TEXT):
        raise KeyMissing(
            f"the keys in {settings.database.keys} are not those that this book was made with",
            fix="copy the folder of the keys from another server of this book (`commonbook migrate` said which), and"
            " set COMMONBOOK_KEYS to it",
        )
    return facts


def _record_book(tx: Transaction, zone: str, keys: str) -> dict[str, str]:
    made = {"id": new_id(), "created": format_time(tx.now), "zone": zone, "keys": keys}
    home.record(tx, **made)
    return home.facts(tx)


def _lazy_keys(folder: str) -> Keys:
    def make() -> Keys:
        from commonbook.engines.disk.signing_keys import KeyFiles

        return KeyFiles(folder)

    return cast("Keys", Lazy(make))


def _outbox_status(settings: Settings, clock: Clock) -> OutboxStatus:
    if not os.path.exists(settings.outbox):
        return OutboxStatus()
    from commonbook.compose.client import outbox_status

    return outbox_status(settings, clock)


def _appender(engines: Engines) -> Appender:
    def make() -> Appender:
        from commonbook.sessions.append import Appender

        return Appender(engines)

    return cast("Appender", Lazy(make))


def _transfer_service() -> object:
    from commonbook import transfer

    return transfer


def _mapped_index(hidden: str) -> Index:
    from commonbook.engines.index.mapped_index import MappedIndex
    from commonbook.recall import neighbours

    return MappedIndex(os.path.join(hidden, "index"), pool_squares=neighbours.squares_of_rows)


def _postgres_index(settings: Settings, database: PostgresDatabase) -> Index:
    from commonbook.engines.postgres.index import PostgresIndex

    chosen = settings.database or DatabaseChoice("")
    return PostgresIndex(database.connection, cache_bytes=chosen.recall_mb << 20)


def _recall_service(
    settings: Settings, index: Callable[[], Index], *, recalls_at_once: int | None = None
) -> RecallService:
    from commonbook.engines.embedders.registry import embedder_for
    from commonbook.engines.embedders.static_table import StaticTable
    from commonbook.recall.recaller import Recaller

    embedder = embedder_for(settings.embedder)
    table = embedder if isinstance(embedder, StaticTable) else StaticTable()
    return Recaller(index(), embedder, table, recalls_at_once=recalls_at_once)


def recall_service(settings: Settings, hidden: str) -> RecallService:
    """Return recall on the index in a hidden folder."""
    return _recall_service(settings, lambda: _mapped_index(hidden), recalls_at_once=_RECALLS_AT_ONCE)


def _yaml() -> Yaml:
    from commonbook.engines.disk.yaml_fields import PyYaml

    return PyYaml()


def _watcher(folder: str) -> Watcher:
    from commonbook.engines.disk.watcher import HomeWatcher

    return HomeWatcher(folder)


def _external_files(folder: str | None) -> ExternalFiles:
    from commonbook.engines.disk.import_export import ExternalFolder

    return ExternalFolder(folder)

"""The one place that knows every engine: it wires a book, or a remote client, from settings.

What is slow to import (cryptography, YAML, the watcher) is imported when it is first used.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from commonbook import dates, home
from commonbook.book import Book
from commonbook.engines.disk import HIDDEN, HomeFolder
from commonbook.engines.durable_files import make_folders
from commonbook.engines.migrations import MIGRATIONS
from commonbook.engines.mounts import network_file_system
from commonbook.engines.sqlite import SqliteDatabase
from commonbook.errors import (
    CommonbookError,
    DatabaseUnfit,
    HomeReadOnly,
    KeyMissing,
    Moved,
    NetworkFileSystem,
)
from commonbook.fork_safety import renewed_in_child
from commonbook.lazy_modules import LazyModule, loading
from commonbook.model import Finding, MoveReport, Progress, Unsent, new_id, quiet, stamp
from commonbook.ports import (
    Clock,
    Database,
    Index,
    Keys,
    Outside,
    Parts,
    Recalls,
    Transaction,
    Transfers,
    Watcher,
    Yaml,
)
from commonbook.principals import OWNER_ACTOR
from commonbook.settings import DatabaseChoice, Settings, checked_address

if TYPE_CHECKING:
    from commonbook import write_steps
    from commonbook.capture import Appender
    from commonbook.client import Client, Mask
    from commonbook.engines.outbox import OutboxFile
    from commonbook.engines.postgres import PostgresDatabase
    from commonbook.outbox import Transport
else:
    # A home that is only read is opened without the modules that write.
    write_steps = LazyModule("commonbook.write_steps")

_OURS: Final = "the keys of this book"


def _run_steps_before_seal(context: object, /) -> None:
    for step in write_steps.BEFORE_SEAL:
        step(context)


def _run_step_after_commit(parts: Parts, contents: Mapping[str, bytes | None], /) -> None:
    write_steps.AFTER_COMMIT(parts, contents)


class SystemClock:
    """The machine's own clock."""

    def now(self) -> datetime:
        """Return the present moment in UTC."""
        return datetime.now(UTC)


class Lazy:
    """Stands in for an engine until it is first used."""

    def __init__(self, make: Callable[[], object]) -> None:
        """Make nothing yet."""
        self._make = make

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the engine has under that name
        with loading():
            found = getattr(self._make(), name)
        setattr(self, name, found) if callable(found) else None
        return found


class LazyRecall:
    """Stands in for recall until it is first used; then there is one for all threads."""

    def __init__(self, make: Callable[[], Recalls]) -> None:
        """Make nothing yet."""
        self._make = make
        self.begin_anew()
        renewed_in_child(self)

    def begin_anew(self) -> None:
        """Begin anew: in a forked child, what another thread was about to do is never done."""
        self._made: Recalls | None = None
        self._making = threading.Lock()

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever recall has under that name
        with self._making:
            if self._made is None:
                with loading():
                    self._made = self._make()
        return getattr(self._made, name)

    def close(self) -> None:
        """Close recall, if it was ever used."""
        if self._made is not None:
            self._made.close()


_NAMED: Final = 20
"""So many refused messages are named; all are counted."""


def open_book(settings: Settings, *, clock: Clock | None = None, progress: Progress = quiet) -> Book:
    """Open the book that the settings name, making it if it is not there, and look at what changed in it."""
    clock = clock or SystemClock()
    parts, recalls = wire_server(settings, clock) if settings.database else wire_home(settings, clock)
    book = Book(
        parts,
        settings,
        actor=OWNER_ACTOR,
        transfers=cast("Transfers", Lazy(_transfers)),
        recalls=cast("Recalls", LazyRecall(recalls)),
        appender=_appender(parts),
        unsent=lambda: unsent_messages(settings, clock),
    )
    # What was moved away is still read; nothing is taken in any more.
    with suppress(Moved):
        book.sync(progress=progress)
    return book


def wire_home(settings: Settings, clock: Clock) -> tuple[Parts, Callable[[], Recalls]]:
    """Wire a book over a folder of Markdown."""
    hidden = prepare_home(settings.home)
    database = SqliteDatabase(
        os.path.join(hidden, "state.db"), migrations=MIGRATIONS, clock=clock, busy_seconds=settings.busy_seconds
    )
    keys = _later_keys(os.path.join(hidden, "keys"))
    parts = Parts(
        db=database,
        folder=HomeFolder(settings.home),
        watcher=cast("Watcher", Lazy(lambda: _watcher(settings.home))),
        outside=cast("Outside", Lazy(lambda: _outside(settings.home))),
        keys=keys,
        yaml=cast("Yaml", Lazy(_yaml)),
        clock=clock,
        zone=dates.zone_named(_zone(database, settings, keys)),
        before_seal=(_run_steps_before_seal,),
        after_commit=_run_step_after_commit,
    )
    return parts, lambda: _recalls(settings, lambda: _mapped_index(hidden))


def wire_server(settings: Settings, clock: Clock) -> tuple[Parts, Callable[[], Recalls]]:
    """Wire a book on PostgreSQL: no files, and keys that every server is given."""
    from commonbook.engines.no_files import NoFiles

    keys = _server_keys(settings)
    database = _postgres(settings, clock)
    nothing = NoFiles(database.bytes_used)
    with ExitStack() as undone:
        undone.callback(database.close)
        zone = dates.zone_named(_zone(database, settings, keys))
        undone.pop_all()
    parts = Parts(
        db=database,
        folder=nothing,
        watcher=nothing,
        outside=cast("Outside", Lazy(lambda: _outside(None))),
        keys=keys,
        yaml=cast("Yaml", Lazy(_yaml)),
        clock=clock,
        zone=zone,
        before_seal=(_run_steps_before_seal,),
        after_commit=_run_step_after_commit,
    )
    return parts, lambda: _recalls(settings, lambda: _postgres_index(settings, database))


def _postgres(settings: Settings, clock: Clock) -> PostgresDatabase:
    with needing_driver():
        from commonbook.engines.postgres import PostgresDatabase
        from commonbook.engines.postgres_migrations import MIGRATIONS as ON_POSTGRES
    chosen = settings.database
    if chosen is None:
        raise ValueError("no server was chosen")
    return PostgresDatabase(
        chosen.address,
        migrations=ON_POSTGRES,
        clock=clock,
        busy_seconds=settings.busy_seconds,
        connections=chosen.connections,
    )


@contextmanager
def needing_driver() -> Iterator[None]:
    """Say what to install, where it is not."""
    try:
        yield
    except ImportError as error:
        raise DatabaseUnfit(
            f"a book on PostgreSQL needs a package that is not installed: {error.name}",
            fix="pip install 'commonbook[postgres]'",
        ) from error


def _server_keys(settings: Settings) -> Keys:
    """Return the keys of a server: read now, and never made, since every server must have the same."""
    from commonbook.engines.signing import KeyFiles

    folder = settings.database.keys if settings.database else None
    fix = "make keys once with `commonbook audit keys FOLDER`, and give every server that folder as COMMONBOOK_KEYS"
    if folder is None:
        raise KeyMissing("COMMONBOOK_KEYS does not say where the keys of this book are", fix=fix)
    keys = KeyFiles(folder)
    try:
        keys.load(create=False)
    except KeyMissing as error:
        raise KeyMissing(error.message, fix=fix) from error
    return keys


def make_keys(folder: str) -> str:
    """Make the keys for a book on a server, if the folder has none; return the id of the signing key."""
    from commonbook.engines.signing import KeyFiles

    keys = KeyFiles(folder)
    keys.load(create=True)
    return keys.key_id


def move_book(settings: Settings, to: str, *, progress: Progress = quiet) -> MoveReport:
    """Move the book that the settings name to a database server or into a home, and leave it for good."""
    from commonbook import moving

    clock = SystemClock()
    with open_book(settings, progress=progress):
        # What people did to the files is taken in first.
        pass
    with ExitStack() as opened:
        old, _ = _wired(settings, clock, opened)
        goal = _goal(settings, to)
        new, _ = _wired(goal, clock, opened)
        return moving.move(old, new, to=goal.database.place if goal.database else goal.home, progress=progress)


def _wired(settings: Settings, clock: Clock, opened: ExitStack) -> tuple[Parts, Callable[[], Recalls]]:
    parts, recalls = wire_server(settings, clock) if settings.database else wire_home(settings, clock)
    opened.callback(parts.folder.close)
    opened.callback(parts.db.close)
    return parts, recalls


def _goal(settings: Settings, to: str) -> Settings:
    """Return the settings of the new book, which has the keys of the old one."""
    keys = settings.database.keys if settings.database else os.path.join(settings.home, HIDDEN, "keys")
    if "://" in to:
        # Whatever is no address of ours is none of a folder either, and may hold a password.
        return settings._replace(database=DatabaseChoice(checked_address(to, "the address to move to"), keys))
    home = os.path.realpath(os.path.join(settings.cwd, os.path.expanduser(to)))
    if keys:
        _copy_keys(keys, os.path.join(prepare_home(home), "keys"))
    return settings._replace(home=home, database=None)


def _copy_keys(old: str, new: str) -> None:
    """Give a home the keys of a book, all of them or none, unless it has keys already."""
    if os.path.exists(new):
        return
    part = f"{new}.part"
    make_folders(part, mode=0o700)
    for name in sorted(os.listdir(old)):
        with open(os.path.join(old, name), "rb") as file:
            data = file.read()
        with open(os.open(os.path.join(part, name), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    os.rename(part, new)


def open_client(
    settings: Settings,
    transport: Transport,
    *,
    clock: Clock | None = None,
    background: bool = True,
    senders: int = 4,
    answer_seconds: float = 15.0,
) -> Client:
    """Make a client that sends through this transport; what it appends is cleaned, and kept in the outbox first."""
    from commonbook.masking import cleaned

    return open_outbox(
        settings.outbox,
        transport,
        mask=cleaned,
        clock=clock,
        busy_seconds=settings.busy_seconds,
        background=background,
        senders=senders,
        answer_seconds=answer_seconds,
    )


def _outbox(settings: Settings, clock: Clock) -> OutboxFile:
    from commonbook.engines.outbox import OutboxFile

    return OutboxFile(settings.outbox, clock=clock, busy_seconds=settings.busy_seconds)


def unsent_messages(settings: Settings, clock: Clock) -> Unsent:
    """Look what clients of this machine have in their outbox, if there is one; its trouble is told, not raised."""
    if not os.path.exists(settings.outbox):
        return Unsent()
    from commonbook.outbox import REFUSED

    try:
        with closing(_outbox(settings, clock)) as outbox:
            counts, refused = outbox.counts(), outbox.held(REFUSED, limit=_NAMED)
    except CommonbookError as error:
        return Unsent(findings=(Finding("outbox", settings.outbox, error.message, error.fix),))
    findings = [
        Finding(
            what="refused message",
            where=f"message {one.id} of the outbox, session {one.session}",
            why=one.reason,
            fix="mend what it names, then let the client `retry` it, or `discard` it",
        )
        for one in refused
    ]
    return Unsent(*counts, tuple(findings))


def open_outbox(
    path: str,
    transport: Transport,
    *,
    mask: Mask,
    clock: Clock | None = None,
    busy_seconds: float = 5.0,
    background: bool = True,
    senders: int = 4,
    answer_seconds: float = 15.0,
) -> Client:
    """Make a client whose outbox is this file, which is made if it is not there, and send what it holds."""
    from commonbook.client import Client
    from commonbook.engines.outbox import OutboxFile

    clock = clock or SystemClock()
    return Client(
        transport,
        OutboxFile(path, clock=clock, busy_seconds=busy_seconds),
        mask=mask,
        clock=clock,
        background=background,
        senders=senders,
        answer_seconds=answer_seconds,
    )


def prepare_home(folder: str) -> str:
    """Make the folders of a home where they are not there, or say why that cannot be."""
    hidden = os.path.join(folder, HIDDEN)
    kind = network_file_system(_existing(folder))
    if kind is not None:
        raise NetworkFileSystem(
            f"{folder} is on a network file system ({kind}), whose locks cannot be trusted",
            fix="put the home on a local disk; to share a book between machines, use the server on PostgreSQL",
        )
    try:
        make_folders(hidden, mode=0o700)
        make_folders(os.path.join(hidden, "out"), mode=0o700)
    except OSError as error:
        raise HomeReadOnly(
            f"{folder} cannot be made or written: {error.strerror}",
            fix="choose another home (--home, COMMONBOOK_HOME), or give this user write access",
        ) from error
    if not os.access(folder, os.W_OK) or not os.access(hidden, os.W_OK):
        raise HomeReadOnly(f"{folder} is read-only", fix="give this user write access to the home")
    return hidden


def _existing(folder: str) -> str:
    while not os.path.exists(folder) and folder != os.path.dirname(folder):
        folder = os.path.dirname(folder)
    return folder


def _zone(database: Database, settings: Settings, keys: Keys) -> str:
    """Return the home's zone: as chosen, else as recorded when the home was made, which may be now."""
    with database.reading() as tx:
        known = home.facts(tx)
    if "id" not in known:
        # The keys come first: only a home without a log may make them, and from here on it may have one.
        keys.load(create=settings.database is None)
        zone = settings.zone or dates.local_zone(settings.system_zone)
        dates.zone_named(zone)
        known = database.write(partial(_record, zone=zone, keys=keys.keyed_hash(_OURS)))
    if settings.database is not None and known.get("keys") != keys.keyed_hash(_OURS):
        raise KeyMissing(
            f"the keys in {settings.database.keys} are not those that this book was made with",
            fix="set COMMONBOOK_KEYS to the folder that the other servers of this database have",
        )
    return settings.zone or known["zone"]


def _record(tx: Transaction, zone: str, keys: str) -> dict[str, str]:
    home.record(tx, id=new_id(), created=stamp(tx.now), zone=zone, keys=keys)
    return home.facts(tx)


def _later_keys(folder: str) -> Keys:
    made: list[Keys] = []

    def make() -> Keys:
        if not made:
            from commonbook.engines.signing import KeyFiles

            made.append(KeyFiles(folder))
        return made[0]

    return cast("Keys", Lazy(make))


def _appender(parts: Parts) -> Appender:
    made: list[Appender] = []

    def make() -> Appender:
        if not made:
            from commonbook.capture import Appender

            made.append(Appender(parts))
        return made[0]

    return cast("Appender", Lazy(make))


def _transfers() -> object:
    from commonbook import transfer

    return transfer


def _mapped_index(hidden: str) -> Index:
    from commonbook.engines.mapped_index import MappedIndex

    return MappedIndex(os.path.join(hidden, "index"))


def _postgres_index(settings: Settings, database: PostgresDatabase) -> Index:
    from commonbook.engines.postgres_index import PostgresIndex

    chosen = settings.database or DatabaseChoice("")
    return PostgresIndex(database.line, kept=chosen.recall_mb << 20, graph_above=chosen.graph_above)


def _recalls(settings: Settings, index: Callable[[], Index]) -> Recalls:
    from commonbook.engines.embedders import embedder_for
    from commonbook.engines.static_table import StaticTable
    from commonbook.recall import Recaller

    embedder = embedder_for(settings.embedder)
    table = embedder if isinstance(embedder, StaticTable) else StaticTable()
    return Recaller(index(), embedder, table)


def _yaml() -> Yaml:
    from commonbook.engines.yaml_fields import PyYaml

    return PyYaml()


def _watcher(folder: str) -> Watcher:
    from commonbook.engines.watching import HomeWatcher

    return HomeWatcher(folder)


def _outside(folder: str | None) -> Outside:
    from commonbook.engines.outside import OutsideHome

    return OutsideHome(folder)

"""The one place that knows every engine: it wires a book from settings.

What is slow to import (cryptography, YAML, the watcher) is imported when it is first used.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, cast
from weakref import WeakSet

from commonplace import dates, home
from commonplace.book import Commonplace
from commonplace.engines.disk import HIDDEN, HomeFolder, make_folders
from commonplace.engines.migrations import MIGRATIONS
from commonplace.engines.mounts import network_file_system
from commonplace.engines.sqlite import SqliteDatabase
from commonplace.errors import HomeReadOnly, NetworkFileSystem
from commonplace.model import LOCAL_OWNER, Progress, new_id, stamp
from commonplace.ports import Clock, Database, Keys, Outside, Parts, Recalls, Transfers, Watcher, Yaml
from commonplace.settings import Settings
from commonplace.sync import quiet

if TYPE_CHECKING:
    from commonplace.client import Client, Mask
    from commonplace.outbox import Transport


class SystemClock:
    """The machine's own clock."""

    def now(self) -> datetime:
        """Return the present moment in UTC."""
        return datetime.now(UTC)


class _Later:
    """Stands in for an engine until it is first used."""

    def __init__(self, make: Callable[[], object]) -> None:
        self._make = make

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the engine has under that name
        found = getattr(self._make(), name)
        setattr(self, name, found) if callable(found) else None
        return found


class _Recalls:
    """Stands in for recall until it is first used; then there is one for all threads."""

    def __init__(self, make: Callable[[], Recalls]) -> None:
        self._make = make
        self._forget()
        _RECALLS.add(self)

    def _forget(self) -> None:
        """Begin anew: in a forked child, what another thread was about to do is never done."""
        self._made: Recalls | None = None
        self._making = threading.Lock()

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever recall has under that name
        with self._making:
            if self._made is None:
                self._made = self._make()
        return getattr(self._made, name)

    def close(self) -> None:
        if self._made is not None:
            self._made.close()


_RECALLS: Final[WeakSet[_Recalls]] = WeakSet()


def _in_a_forked_child() -> None:
    for recalls in list(_RECALLS):
        recalls._forget()  # noqa: SLF001 - our own class


os.register_at_fork(after_in_child=_in_a_forked_child)


def open_book(settings: Settings, *, clock: Clock | None = None, progress: Progress = quiet) -> Commonplace:
    """Open the home that the settings name, making it if it is not there, and look at what changed in it."""
    hidden = _prepare(settings.home)
    clock = clock or SystemClock()
    database = SqliteDatabase(
        os.path.join(hidden, "state.db"), migrations=MIGRATIONS, clock=clock, busy_seconds=settings.busy_seconds
    )
    keys = _later_keys(os.path.join(hidden, "keys"))
    parts = Parts(
        db=database,
        folder=HomeFolder(settings.home),
        watcher=cast("Watcher", _Later(lambda: _watcher(settings.home))),
        outside=cast("Outside", _Later(lambda: _outside(settings.home))),
        keys=keys,
        yaml=cast("Yaml", _Later(_yaml)),
        clock=clock,
        zone=dates.zone_named(_zone(database, settings, keys)),
    )
    book = Commonplace(
        parts,
        settings,
        actor=LOCAL_OWNER,
        transfers=cast("Transfers", _Later(_transfers)),
        recalls=cast("Recalls", _Recalls(lambda: _recalls(hidden, settings))),
    )
    book.sync(progress=progress)
    return book


def open_outbox(path: str, transport: Transport, *, mask: Mask, answer_seconds: float = 15.0) -> Client:
    """Open a client whose outbox is this file, making it if it is not there, and send what it holds."""
    from commonplace.client import Client
    from commonplace.engines.outbox import OutboxFile

    clock = SystemClock()
    outbox = OutboxFile(path, clock=clock, busy_seconds=_OUTBOX_BUSY_SECONDS)
    return Client(transport, outbox, mask=mask, clock=clock, answer_seconds=answer_seconds)


_OUTBOX_BUSY_SECONDS: Final = 5.0
"""How long to wait for another process at an outbox, which nobody holds for more than a moment."""


def _prepare(folder: str) -> str:
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
            fix="choose another home (--home, COMMONPLACE_HOME), or give this user write access",
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
        keys.load(create=True)
        zone = settings.zone or dates.local_zone(settings.system_zone)
        dates.zone_named(zone)
        with database.writing() as tx:
            home.record(tx, id=new_id(), created=stamp(tx.now), zone=zone)
            known = home.facts(tx)
    return settings.zone or known["zone"]


def _later_keys(folder: str) -> Keys:
    made: list[Keys] = []

    def make() -> Keys:
        if not made:
            from commonplace.engines.signing import KeyFiles

            made.append(KeyFiles(folder))
        return made[0]

    return cast("Keys", _Later(make))


def _transfers() -> object:
    from commonplace import transfer

    return transfer


def _recalls(hidden: str, settings: Settings) -> Recalls:
    from commonplace.engines.embedders import embedder_for
    from commonplace.engines.mapped_index import MappedIndex
    from commonplace.engines.static_table import StaticTable
    from commonplace.recall import Recaller

    embedder = embedder_for(settings.embedder)
    table = embedder if isinstance(embedder, StaticTable) else StaticTable()
    index = MappedIndex(os.path.join(hidden, "index"))
    return Recaller(index, embedder, table)


def _yaml() -> Yaml:
    from commonplace.engines.yaml_fields import PyYaml

    return PyYaml()


def _watcher(folder: str) -> Watcher:
    from commonplace.engines.watching import HomeWatcher

    return HomeWatcher(folder)


def _outside(folder: str) -> Outside:
    from commonplace.engines.outside import OutsideHome

    return OutsideHome(folder)

"""A book in the hands of a principal: what its verbs act on, and in whose name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from commonbook.access import permissions
from commonbook.model.reports import OutboxStatus
from commonbook.model.spaces import Actor
from commonbook.ports.engines import Engines, RecallService, TransferService
from commonbook.recall import prefetch
from commonbook.settings import default_space as settings_default_space
from commonbook.settings.settings import Settings

if TYPE_CHECKING:
    from commonbook.sessions.append import Appender


class BookBase:
    """What all verbs of a book have in common."""

    def __init__(
        self,
        engines: Engines,
        chosen: Settings,
        *,
        actor: Actor,
        transfers: TransferService,
        recalls: RecallService,
        appender: Appender,
        unsent: Callable[[], OutboxStatus] = OutboxStatus,
    ) -> None:
        """Act on these parts in the name of the actor; `commonbook.open` makes one."""
        self._engines = engines
        self._transfers = transfers
        self._recalls = recalls
        self._appender = appender
        self._prefetcher = prefetch.Prefetcher()
        self._settings = chosen
        self._actor = actor
        self._lent = False
        self._unsent = unsent if permissions.is_owner(actor) else OutboxStatus

    @property
    def home(self) -> str:
        """The folder with the Markdown; for a book on a server, where that is."""
        return self._settings.database.place if self._settings.database else self._settings.home

    @property
    def actor(self) -> str:
        """The principal in whose name this book acts."""
        return self._actor.principal

    @property
    def default_space(self) -> str:
        """The space that is meant when none is named: asked for, of the project, or `personal`."""
        return settings_default_space.default_space(self._settings)

    def _similarity(self, before: Sequence[str], after: Sequence[str]) -> float:
        """Compare two runs of texts; whoever has nothing to compare need not wait until recall is loaded."""
        return self._recalls.similarity(before, after)

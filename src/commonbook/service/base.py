"""The state that all verbs of a book share: its engines, its services, and the actor that the verbs act for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from commonbook.core.access import permissions
from commonbook.runtime import LazyModule, loading
from commonbook.values.reports import OutboxStatus
from commonbook.values.spaces import PERSONAL
from commonbook.verbs import Verbs

if TYPE_CHECKING:
    from commonbook.core.settings import project_files
    from commonbook.core.settings.git_repository import Repository
    from commonbook.core.settings.settings import Settings
    from commonbook.errors import CommonbookError
    from commonbook.ports.engines import Engines, RecallService
    from commonbook.subjects.admin import default_space as default_spaces
    from commonbook.subjects.recall import prefetch
    from commonbook.subjects.sessions import append as session_append
    from commonbook.subjects.sessions.append import Appender
    from commonbook.values.request import RequestContext
    from commonbook.values.spaces import Actor
else:
    default_spaces = LazyModule("commonbook.subjects.admin.default_space")
    prefetch = LazyModule("commonbook.subjects.recall.prefetch")
    session_append = LazyModule("commonbook.subjects.sessions.append")
    project_files = LazyModule("commonbook.core.settings.project_files")


class BookBase(Verbs):
    """The base of all groups of verbs."""

    def __init__(
        self,
        engines: Engines,
        settings: Settings,
        *,
        caller: RequestContext,
        recall_service: RecallService,
        outbox_status: Callable[[], OutboxStatus] = OutboxStatus,
        lender: BookBase | None = None,
    ) -> None:
        """Use these engines and services for the caller. Call `commonbook.open` to get a book.

        A view has a `lender`, the book that owns the engines.
        """
        self._engines = engines
        self._recall_service = recall_service
        self._made_appender: Appender | None = None
        self._made_prefetcher: prefetch.Prefetcher | None = None
        self._settings = settings
        self._caller = caller
        self._lender = lender
        self._claimed_spaces: dict[Repository, str] = {}
        # Errors that have ended the watch of the files; all views of a book share them.
        self._watch_errors: list[CommonbookError] = [] if lender is None else lender._watch_errors  # noqa: SLF001 - a book of the same class
        # The outbox of this machine belongs to the owner alone.
        self._outbox_status = outbox_status if permissions.is_owner(caller.actor) else OutboxStatus

    @property
    def _actor(self) -> Actor:
        return self._caller.actor

    @property
    def _prefetcher(self) -> prefetch.Prefetcher:
        """The prefetcher of this book and all its views, made at first use.

        A view may live for one request only, and the next one fetches what it has prefetched.
        """
        if self._lender is not None:
            return self._lender._prefetcher  # noqa: SLF001 - a book of the same class
        with loading():
            if self._made_prefetcher is None:
                self._made_prefetcher = prefetch.Prefetcher()
            return self._made_prefetcher

    @property
    def _appender(self) -> Appender:
        """The appender of this book and all its views, made at the first append: they share its transactions."""
        if self._lender is not None:
            return self._lender._appender  # noqa: SLF001 - a book of the same class
        with loading():
            if self._made_appender is None:
                self._made_appender = session_append.Appender(self._engines)
            return self._made_appender

    @property
    def home(self) -> str:
        if not permissions.is_owner(self._actor):
            return ""
        return self._settings.database.place if self._settings.database else self._settings.home

    @property
    def actor(self) -> str:
        return self._actor.principal

    @property
    def default_space(self) -> str:
        if permissions.is_owner_without_key(self._actor):
            named, repository = project_files.chosen_space(self._settings)
            if named or repository is None:
                # The book is not asked, and nothing more is loaded.
                return named or PERSONAL
            return self._claimed_spaces.get(repository) or default_spaces.space_of_repository(self._engines, repository)
        return default_spaces.space_to_read(self._engines, self._settings, self._actor)

    def space_for_writing(self) -> str:
        if not permissions.is_owner_without_key(self._actor):
            return default_spaces.space_to_write(self._engines, self._settings, self._actor)
        named, repository = project_files.chosen_space(self._settings)
        if named or repository is None:
            return named or PERSONAL
        # A record never changes: while a repository has this origin and place, it has the same space.
        if repository not in self._claimed_spaces:
            self._claimed_spaces[repository] = default_spaces.claim_space_of_repository(self._engines, repository)
        return self._claimed_spaces[repository]

    def _require_owner(self, what: str) -> None:
        """Raise NotAllowed unless this book acts for the owner, by a key that is still valid if it came with one."""
        permissions.require_owner(self._actor, what)
        if not permissions.is_owner_without_key(self._actor):
            with self._engines.db.reading() as tx:
                permissions.require_valid_key(tx, self._actor)

    def _similarity(self, before: Sequence[str], after: Sequence[str]) -> float:
        """Compare two windows of texts; recall is loaded only when there is something to compare."""
        return self._recall_service.similarity(before, after)

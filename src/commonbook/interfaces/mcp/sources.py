"""The book of an agent: opened at its first use, on this machine or over HTTP, as the principal of the agent.

Nothing acts as the owner by default. A principal that is named on the command line reaches its grants, and of all
projects only the one in whose folder the process runs: text that an agent reads in one project, and obeys, opens no
other.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Protocol

from commonbook.core.settings.project_files import PROJECTS
from commonbook.errors import CommonbookError, KeyMissing, Moved, NotAllowed, SpaceExists
from commonbook.values.spaces import LOCAL_OWNER, PERSONAL, READER

if TYPE_CHECKING:
    from commonbook.core.settings.settings import Settings
    from commonbook.remote.remote_book import RemoteBook
    from commonbook.service.book import Book
    from commonbook.verbs import Verbs

DEFAULT_PRINCIPAL: Final = "agent:other"
"""The principal of an agent that was started without naming one."""

_WORK_SECONDS: Final = 0.2
_PATIENCE_SECONDS: Final = 5.0
"""How long a call tries to reach a server: an agent waits for the answer."""


class BookSource(Protocol):
    """A place that a call gets the book of the agent from."""

    def book(self, *, changes: bool) -> Verbs:
        """Return the book as the agent has it; `changes` tells whether the call may change it."""
        ...


class LocalBook:
    """The book of this machine; each call looks at the files, so that nothing has to watch them."""

    def __init__(self, settings: Settings, principal: str | None = None) -> None:
        """Open nothing yet; the principal of a key in the settings wins over the default one."""
        self._settings, self._principal = settings, principal
        self._opened: Book | None = None
        self._has_changed = False

    def book(self, *, changes: bool, space: str | None = None) -> Book:
        """Return the book as the agent has it now; `space` replaces the space of the working directory."""
        owner = self._owner()
        self._has_changed |= changes
        if self._settings.key is not None and self._principal is None:
            return owner.with_key(self._settings.key)
        principal = self._principal or DEFAULT_PRINCIPAL
        if principal == LOCAL_OWNER:
            return owner
        return confined_book(owner, principal, changes=changes, space=space)

    def work(self, *, seconds: float = _WORK_SECONDS, index: bool = False) -> None:
        """Run due jobs for a moment after a change was answered, so that no worker needs to run.

        With `index`, also without a change, and what waits for the index is written into it.
        """
        if self._opened is None or not (self._has_changed or index):
            return
        self._has_changed = False
        # The call is answered, so a failure here does not fail it: due jobs stay due.
        with suppress(CommonbookError):
            self._opened.work(seconds=seconds, index=index)

    def close(self) -> None:
        """Close the book, if it was opened."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def _owner(self) -> Book:
        if self._opened is None:
            from commonbook.compose.book import open_book

            self._opened = open_book(self._settings)
        else:
            # A book that was migrated away can still be read.
            with suppress(Moved, KeyMissing):
                self._opened.sync()
        return self._opened


class ServerBook:
    """The book of a server, with the outbox of this machine; the principal is the one of the key."""

    def __init__(self, url: str, space: str | None) -> None:
        """Connect to nothing yet."""
        self._url, self._space = url, space
        self._connected: RemoteBook | None = None

    def book(self, *, changes: bool, space: str | None = None) -> Verbs:  # noqa: ARG002 - the server decides
        """Return the remote book, which has the verbs of a book."""
        if self._connected is None:
            from commonbook.compose.client import connect
            from commonbook.core.settings.remote import RemoteSettings

            self._connected = connect(
                RemoteSettings.load(), self._url, space=self._space, patience_seconds=_PATIENCE_SECONDS
            )
        return self._connected

    def close(self) -> None:
        """Close the connections; messages in the outbox stay there."""
        if self._connected is not None:
            self._connected.close()

    def work(self, *, seconds: float = _WORK_SECONDS, index: bool = False) -> None:
        """Do nothing: a server has a worker, and the outbox sends by itself."""


# --- the spaces that an agent reaches from its working directory


def confined_book(owner: Book, principal: str, *, changes: bool, space: str | None) -> Book:
    """Return the book as a principal has it, within its spaces; `space` replaces the space of the working directory.

    Before a change, the space of the project is made, if the principal may write in projects.
    """
    space = space or (owner.space_for_writing() if changes else owner.default_space)
    grants = _valid_grants(owner, principal)
    if not grants:
        raise NotAllowed(
            f"{principal} reaches nothing in this book yet",
            fix=f"let a person run `commonbook install {principal.removeprefix('agent:')}`, or"
            f" `commonbook grant add {principal} {PERSONAL} writer`",
        )
    if changes and grants.get(PROJECTS, READER) != READER:
        _ensure_project(owner, space)
    within = (*(name for name in grants if name != PROJECTS), space, PERSONAL)
    return owner.acting_as(principal, space=space, within=dict.fromkeys(within))


def _valid_grants(owner: Book, principal: str) -> dict[str, str]:
    """Return the roles of a principal by the names of spaces, without grants that have expired."""
    now = datetime.now(UTC)
    return {
        grant.space.name: grant.role
        for grant in owner.grants()
        if grant.principal == principal and (grant.expires is None or grant.expires > now)
    }


def _ensure_project(owner: Book, space: str) -> None:
    """Make the space of a project at its first write: an agent that may write in projects may not make them."""
    if space.startswith(f"{PROJECTS}/") and space not in {known.name for known in owner.spaces()}:
        # Another process of the agent may be first.
        with suppress(SpaceExists):
            owner.create_space(space)

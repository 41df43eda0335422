"""The class `Book`: all groups of verbs in one, and the views of a book for other principals."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from commonbook.core.access import permissions
from commonbook.errors import BadInput
from commonbook.runtime import LazyModule
from commonbook.service.admin import AdminVerbs
from commonbook.service.maintenance import MaintenanceVerbs
from commonbook.service.memories import MemoryVerbs
from commonbook.service.reasoning import ReasoningVerbs
from commonbook.service.sessions import SessionVerbs
from commonbook.service.sharing import SharingVerbs
from commonbook.values.request import RequestContext
from commonbook.values.spaces import Actor

if TYPE_CHECKING:
    from commonbook.core.access import authentication
    from commonbook.core.text import space_names
else:
    # A verb loads the module that it needs, so that a command loads no more than its own subject.
    authentication = LazyModule("commonbook.core.access.authentication")
    space_names = LazyModule("commonbook.core.text.space_names")


class Book(MemoryVerbs, SessionVerbs, SharingVerbs, ReasoningVerbs, AdminVerbs, MaintenanceVerbs):
    """A book of memories: the long-term memory that agents and people share. `commonbook.open` opens one.

    Every method acts for one principal, with its permissions. A book is safe to use from any thread. Close it, or use
    it in a `with` statement. Every error is a `CommonbookError`, with a message and a proposed fix.
    """

    def acting_as(
        self,
        principal: str,
        *,
        space: str | None = None,
        within: Iterable[str] | None = None,
        proposing: bool = False,
    ) -> Book:
        """Return a view of this book that acts for another principal, such as `agent:helper`, with its grants only.

        `space` is the space of calls that name none. `within` confines the view to these spaces and those below them,
        also where the principal has further grants. With `proposing`, memories of an agent wait for approval in every
        space, as in one under review. Only the owner may do this. Closing the view does not close the book.
        """
        self._require_owner("act in another's name")
        actor = Actor(authentication.principal_name(principal), proposes=proposing)
        if proposing and not actor.is_agent:
            raise BadInput(f"{principal} is no agent, whose memories could be proposed", fix="name an agent:…")
        if within is not None:
            actor = permissions.confined(actor, map(space_names.require_space_name, within))
        named = None if space is None else space_names.require_space_name(space)
        return self._view(RequestContext(actor), space=named)

    def with_key(self, secret: str, *, space: str | None = None) -> Book:
        """Return a view of this book that acts for the principal of an API key, within the limits of the key.

        `space` is the space of calls that name none, in place of the default space of the key. Closing the view does
        not close the book.
        """
        named = None if space is None else space_names.require_space_name(space)
        return self._view(RequestContext(authentication.actor_of_key(self._engines, secret)), space=named)

    def _view(self, caller: RequestContext, *, space: str | None = None) -> Book:
        """Return a view for another caller; closing it does not close the engines, which the lender owns."""
        return Book(
            self._engines,
            self._settings if space is None else self._settings._replace(space=space),
            caller=caller,
            recall_service=self._recall_service,
            lender=self,
        )

    def close(self) -> None:
        """Close the database, the index and the files. Nothing is lost without it: all writes are durable already."""
        if self._lender is not None:
            return
        self._recall_service.close()
        self._engines.db.close()
        self._engines.folder.close()

    def __enter__(self) -> Self:
        """Use the book in a `with` statement."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the book."""
        self.close()

"""The facade: every public verb of a book, each one line into a flow."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Self

from commonbook.access import permissions
from commonbook.book.admin import AdminVerbs
from commonbook.book.maintenance import MaintenanceVerbs
from commonbook.book.memories import MemoryVerbs
from commonbook.book.reasoning import ReasoningVerbs
from commonbook.book.sessions import SessionVerbs
from commonbook.book.sharing import SharingVerbs
from commonbook.book.sharing_rules import SharingRuleVerbs
from commonbook.model.spaces import Actor
from commonbook.runtime.lazy_modules import LazyModule

if TYPE_CHECKING:
    from commonbook.access import authentication
    from commonbook.admin import grants
else:
    # A verb loads the module that it needs, so that a command loads no more than its own subject.
    authentication = LazyModule("commonbook.access.authentication")
    grants = LazyModule("commonbook.admin.grants")


class Book(MemoryVerbs, SessionVerbs, SharingVerbs, SharingRuleVerbs, ReasoningVerbs, AdminVerbs, MaintenanceVerbs):
    """A book of memories. Use it from any thread; close it, or use it in a `with` statement."""

    def acting_as(self, principal: str) -> Book:
        """Return this book in the hands of a principal, who may do what was granted to it. Only the owner lends it."""
        permissions.require_owner(self._actor, "act in another's name")
        return self._in_hands_of(Actor(authentication.principal_name(principal)))

    def with_key(self, secret: str) -> Book:
        """Return this book in the hands of whoever a key was made for, within the limits of the key."""
        return self._in_hands_of(authentication.with_key(self._engines, secret))

    def _in_hands_of(self, actor: Actor) -> Book:
        book = Book(
            self._engines,
            self._settings,
            actor=actor,
            transfers=self._transfers,
            recalls=self._recalls,
            appender=self._appender,
        )
        # Closing what was lent closes nothing of the book itself.
        book._lent = True
        return book

    def close(self) -> None:
        """Let go of everything; nothing is held that a crash could take."""
        if self._lent:
            return
        self._recalls.close()
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

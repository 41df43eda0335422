"""Sessions of signed-in browsers, for interfaces: a session acts for the principal of its API key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from commonbook.admin import sign_in
from commonbook.model.request import RequestContext
from commonbook.model.spaces import Actor
from commonbook.text import space_names

if TYPE_CHECKING:
    from commonbook.book.book import Book
    from commonbook.model.spaces import BrowserSession


def begin_session(book: Book, code: str) -> tuple[str, BrowserSession]:
    """Exchange the code of a sign-in link, once, for a session; return its secret, and the session."""
    return sign_in.exchange(book._engines, code)  # noqa: SLF001 - this module is a part of the facade


def find_session(book: Book, secret: str) -> BrowserSession:
    """Return a session by its secret; NotAllowed if it has ended."""
    return sign_in.find_session(book._engines, secret)  # noqa: SLF001 - this module is a part of the facade


def end_session(book: Book, secret: str) -> None:
    """Sign a browser out."""
    sign_in.end_session(book._engines, secret)  # noqa: SLF001 - this module is a part of the facade


def view_of_session(book: Book, session: BrowserSession, *, space: str | None = None) -> Book:
    """Return a view of the book for a session, as `Book.with_key` does for the secret of a key."""
    named = None if space is None else space_names.require_space_name(space)
    key = session.key
    caller = RequestContext(Actor(key.principal, key.id, has_limits=key.limits is not None))
    return book._view(caller, space=named)  # noqa: SLF001 - this module is a part of the facade

"""Authentication: a request acts for the principal of a key, in its header `Authorization` or by a browser's session.

Key and session are looked up for every request, so that what was revoked or signed out is refused at once, by every
server of the book. A browser sends the cookie of a session with every request, whichever page has made it. So a request
of a session that may change something has to prove that one of our own pages has made it.
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import unquote

from starlette.requests import HTTPConnection

from commonbook.book.serving import find_session, view_of_session
from commonbook.errors import NotAllowed
from commonbook.interfaces.http.error_answers import Unauthenticated
from commonbook.interfaces.http.guards.hosts import is_proven_own_page, public_port
from commonbook.wire.verbs import DEFAULT_SPACE_HEADER

if TYPE_CHECKING:
    from commonbook.book.book import Book
    from commonbook.model.spaces import BrowserSession

CSRF_HEADER: Final = "X-CSRF-Token"
_SAFE_METHODS: Final = frozenset({"GET", "HEAD"})


class Credentials(NamedTuple):
    """The secret of a key, or of a session with the token of its page; the token is None if none is needed."""

    secret: str
    is_session: bool = False
    csrf_token: str | None = None


def credentials_of(connection: HTTPConnection) -> Credentials:
    """Return what a request came with; Unauthenticated if that is nothing, NotAllowed if another page has made it."""
    headers = connection.headers.getlist("authorization")
    cookie = session_cookie(connection)
    if not headers and cookie:
        if connection.scope.get("method") in _SAFE_METHODS:
            return Credentials(cookie, is_session=True)
        require_own_page(connection)
        return Credentials(cookie, is_session=True, csrf_token=connection.headers.get(CSRF_HEADER, ""))
    scheme, _, secret = headers[0].strip().partition(" ") if len(headers) == 1 else ("", "", "")
    if scheme.lower() != "bearer" or not secret.strip():
        raise Unauthenticated(
            NotAllowed(
                "the request has no key",
                fix="send the header `Authorization: Bearer KEY`; `commonbook key create` makes a key",
            )
        )
    return Credentials(secret.strip())


def cookie_name(connection: HTTPConnection) -> str:
    """Return the name of the cookie of a session: browsers keep the cookies of all ports of a host together."""
    prefix = "__Host-" if connection.scope["scheme"] == "https" else ""
    return f"{prefix}commonbook-session-{public_port(connection)}"


def session_cookie(connection: HTTPConnection) -> str | None:
    """Return the secret of the session that a browser has sent, or None."""
    return connection.cookies.get(cookie_name(connection))


def require_own_page(connection: HTTPConnection) -> None:
    """Raise NotAllowed unless the browser says that a page of this server has made the request."""
    if not is_proven_own_page(connection):
        raise NotAllowed(
            "a request of a signed-in browser comes from a page of this server",
            fix="send the headers Origin or Sec-Fetch-Site of such a page, or a key in place of the cookie",
        )


def require_csrf_token(session: BrowserSession, token: str) -> None:
    """Raise NotAllowed unless this is the token of the session."""
    if not hmac.compare_digest(session.csrf_token.encode(), token.encode(errors="replace")):
        raise NotAllowed(
            "the request does not have the token of its page",
            fix=f"send it in the header {CSRF_HEADER}; or load the page again",
        )


def default_space_of(connection: HTTPConnection) -> str | None:
    """Return the space of a request whose arguments name none: the header `Commonbook-Space`, percent-encoded."""
    named = connection.headers.get(DEFAULT_SPACE_HEADER)
    return None if named is None else unquote(named)


def view_of(book: Book, connection: HTTPConnection, given: Credentials, space: str | None = None) -> Book:
    """Return a view of the book for the principal of a key or a session; Unauthenticated if it opens nothing.

    The access log gets the principal, and not the key.
    """
    try:
        session = find_session(book, given.secret) if given.is_session else None
        view = (
            book.with_key(given.secret, space=space) if session is None else view_of_session(book, session, space=space)
        )
    except NotAllowed as error:
        raise Unauthenticated(error) from None
    if session is not None and given.csrf_token is not None:
        require_csrf_token(session, given.csrf_token)
    connection.scope.setdefault("state", {})["principal"] = view.actor
    return view

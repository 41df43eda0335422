"""Authentication: each request acts for the principal of the key in its header `Authorization`.

The key is looked up for every request, so that a revoked key is refused at once, by every server of the book.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote

from starlette.requests import HTTPConnection

from commonbook.errors import NotAllowed
from commonbook.interfaces.http.error_answers import Unauthenticated
from commonbook.wire.verbs import DEFAULT_SPACE_HEADER

if TYPE_CHECKING:
    from commonbook.book.book import Book


def secret_of(connection: HTTPConnection) -> str:
    """Return the secret that a request came with; Unauthenticated if it has none."""
    headers = connection.headers.getlist("authorization")
    scheme, _, secret = headers[0].strip().partition(" ") if len(headers) == 1 else ("", "", "")
    if scheme.lower() != "bearer" or not secret.strip():
        raise Unauthenticated(
            NotAllowed(
                "the request has no key",
                fix="send the header `Authorization: Bearer KEY`; `commonbook key create` makes a key",
            )
        )
    return secret.strip()


def default_space_of(connection: HTTPConnection) -> str | None:
    """Return the space of a request whose arguments name none: the header `Commonbook-Space`, percent-encoded."""
    named = connection.headers.get(DEFAULT_SPACE_HEADER)
    return None if named is None else unquote(named)


def view_of(book: Book, connection: HTTPConnection, secret: str, space: str | None = None) -> Book:
    """Return a view of the book for the principal of a key; Unauthenticated if the key opens nothing.

    The access log gets the principal, and not the key.
    """
    try:
        view = book.with_key(secret, space=space)
    except NotAllowed as error:
        raise Unauthenticated(error) from None
    connection.scope.setdefault("state", {})["principal"] = view.actor
    return view

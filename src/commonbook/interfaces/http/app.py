"""The app: all routes of the book over HTTP."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from commonbook.interfaces.http.archives import ExportHandler, ImportHandler
from commonbook.interfaces.http.error_answers import http_error
from commonbook.interfaces.http.openapi import OpenApiHandler, make_document
from commonbook.interfaces.http.pages.sign_in import SignInPages
from commonbook.interfaces.http.routes import Handler, LoggedRoute, answering
from commonbook.interfaces.http.threads import ServerConfig, Threads
from commonbook.interfaces.http.verb_calls import Call, all_calls
from commonbook.verbs.declaration import Verb

if TYPE_CHECKING:
    from commonbook.service.book import Book


def make_app(
    book: Book, config: ServerConfig | None = None, *, document: Callable[[], dict[str, Any]] = make_document
) -> Starlette:
    """Return the app that serves a book of the owner; each request acts for the principal of its key.

    `document` makes the OpenAPI document, when somebody asks for it.
    """
    config = config or ServerConfig()
    threads = Threads(config)
    routes = [
        *(_verb_route(calls[0].verb, _handler(book, calls, threads, config)) for calls in all_calls()),
        LoggedRoute("/openapi.json", answering(OpenApiHandler(document, threads)), name="openapi"),
        *SignInPages(book, threads).routes(),
    ]
    app = Starlette(routes=routes, exception_handlers={HTTPException: http_error})
    app.router.redirect_slashes = False
    return app


def _handler(
    book: Book, calls: Sequence[Call], threads: Threads, config: ServerConfig
) -> Callable[[Request], Awaitable[Response]]:
    call = calls[0]
    if not call.verb.archive:
        return Handler(book, calls, threads)
    return ImportHandler(book, call, threads, config) if call.verb.changes else ExportHandler(book, call, threads)


def _verb_route(verb: Verb, handler: Callable[[Request], Awaitable[Response]]) -> LoggedRoute:
    route = LoggedRoute(verb.path, answering(handler), name=verb.name)
    # Starlette would add HEAD to GET, which the document does not have.
    route.methods = {verb.method}
    # The access log and the document name it so.
    route.path = verb.template
    return route

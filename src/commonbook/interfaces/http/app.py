"""The app: all routes of the book over HTTP, in one FastAPI object."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from commonbook.interfaces.http.archives import ExportHandler, ImportHandler
from commonbook.interfaces.http.batch import BatchHandler
from commonbook.interfaces.http.config import ServerConfig
from commonbook.interfaces.http.documentation import complete, make_batch_route, make_route
from commonbook.interfaces.http.error_answers import BadShape, error_answer, http_error
from commonbook.interfaces.http.models import Problem
from commonbook.interfaces.http.pages.sign_in import SignInPages
from commonbook.interfaces.http.routes import Handler
from commonbook.interfaces.http.threads import Threads
from commonbook.interfaces.http.verb_calls import call_of
from commonbook.version import __version__
from commonbook.wire.verbs import EXPORT, IMPORT, VERBS

if TYPE_CHECKING:
    from commonbook.book.book import Book

_DESCRIPTION: Final = """Long-term memory for people and their agents.

Every verb of the library is a path. Arguments and results have the names that they have there. Times are RFC 3339; an
argument may also be a text such as `yesterday`. Errors are problem details (RFC 9457), with a `fix`.
"""


def make_app(book: Book, config: ServerConfig | None = None) -> FastAPI:
    """Return the app that serves a book of the owner; each request acts for the principal of its key."""
    config = config or ServerConfig()
    app = FastAPI(
        title="Commonbook",
        version=__version__,
        description=_DESCRIPTION,
        redirect_slashes=False,
        docs_url=None,
        redoc_url=None,
    )
    threads = Threads(config)
    for name in VERBS:
        call = call_of(name)
        app.router.routes.append(make_route(call, Handler(book, call, threads)))
    importing, exporting = call_of(IMPORT.name), call_of(EXPORT.name)
    app.router.routes.append(make_route(importing, ImportHandler(book, importing, threads, config)))
    app.router.routes.append(make_route(exporting, ExportHandler(book, exporting, threads)))
    app.router.routes.append(make_batch_route(BatchHandler(book, threads, config)))
    app.router.routes.extend(SignInPages(book, threads).routes())
    app.openapi = _completed(app.openapi)  # type: ignore[method-assign]
    app.add_exception_handler(HTTPException, http_error)
    app.add_exception_handler(RequestValidationError, _bad_shape)
    return app


def _completed(make_document: Callable[[], dict[str, Any]]) -> Callable[[], dict[str, Any]]:
    """Return a function that completes the OpenAPI document, once: FastAPI keeps it."""

    def openapi() -> dict[str, Any]:
        document = make_document()
        if Problem.__name__ not in document["components"]["schemas"]:
            complete(document)
        return document

    return openapi


def _bad_shape(request: Request, _error: Exception) -> Response:
    return error_answer(BadShape("the request does not have the documented shape", fix="/openapi.json"), request)

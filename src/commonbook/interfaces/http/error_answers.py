"""Answers with an error: every error becomes problem details (RFC 9457) here, and nowhere else."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, HTTPConnection
from starlette.responses import Response
from starlette.routing import Route

from commonbook.errors import BadInput, CommonbookError
from commonbook.values import problems
from commonbook.values.encoding import dumps
from commonbook.values.ids import new_id

if TYPE_CHECKING:
    from starlette.types import Scope, Send

_LOG: Final = logging.getLogger("commonbook.http")
_PATHS: Final = "/openapi.json lists all paths"


class Unauthenticated(Exception):
    """A request without a key, or with one that opens nothing; it has the error of the book."""

    def __init__(self, error: CommonbookError) -> None:
        """Keep the error."""
        super().__init__(error.message)
        self.error = error


class BadShape(Exception):
    """A request whose arguments do not have the documented shape."""

    def __init__(self, message: str, *, fix: str, status: int = 422) -> None:
        """Keep the error and its status."""
        super().__init__(message)
        self.error, self.status = BadInput(message, fix=fix), status


def request_id(connection: HTTPConnection) -> str:
    """Return the id of a request, which its answers and the log have in common."""
    state = connection.scope.setdefault("state", {})
    if "request_id" not in state:
        state["request_id"] = new_id()
    return str(state["request_id"])


def error_details(error: Exception, connection: HTTPConnection) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the problem details of any exception, and the headers of the answer.

    An exception that is none of ours is a fault of the program: the log gets its place, and nobody its text, which may
    be that of a memory.
    """
    if isinstance(error, Unauthenticated):
        ours, status = error.error, HTTPStatus.UNAUTHORIZED.value
    elif isinstance(error, BadShape):
        ours, status = error.error, error.status
    elif isinstance(error, ClientDisconnect):
        # Nobody gets this answer, and nothing failed here.
        ours, status = BadInput("the connection ended before the request", fix="send it again"), 400
    elif isinstance(error, CommonbookError):
        ours, status = error, problems.status_of(error, with_if_match="if-match" in connection.headers)
    else:
        return _fault(error, connection), {}
    return problems.problem(ours, status, instance=request_id(connection)), problems.headers_of(ours, status)


def _fault(error: Exception, connection: HTTPConnection) -> dict[str, Any]:
    frames = traceback.extract_tb(error.__traceback__)
    places = " < ".join(f"{frame.filename}:{frame.lineno}" for frame in reversed(frames))
    _LOG.error("request %s: %s at %s", request_id(connection), type(error).__name__, places)
    fault = CommonbookError(
        "the server failed, by a fault of the program",
        fix="the log of the server has the place of the fault under the id of the request",
    )
    return {**problems.problem(fault, 500, instance=request_id(connection)), "type": "server_failed"}


def error_answer(error: Exception, connection: HTTPConnection) -> Response:
    """Return the answer to a request that failed with any exception."""
    details, headers = error_details(error, connection)
    return problem_answer(details, headers)


def http_error(connection: HTTPConnection, error: Exception, *, paths: str = _PATHS) -> Response:
    """Return the answer to a request that Starlette refused, such as an unknown path; `paths` tells the known ones."""
    assert isinstance(error, HTTPException)  # noqa: S101 - as registered
    headers = error.headers
    if error.status_code == 405:
        # A path has a route for each method, and Starlette names the method of the first.
        routes = [route for route in connection.app.routes if isinstance(route, Route)]
        found = [route for route in routes if route.path_regex.match(connection.scope["path"])]
        headers = {"Allow": ", ".join(sorted(method for route in found for method in route.methods or ()))}
    return status_answer(error.status_code, connection, headers, paths=paths)


def status_answer(
    status: int, connection: HTTPConnection, headers: Mapping[str, str] | None = None, *, paths: str = _PATHS
) -> Response:
    """Return the answer for a status of HTTP itself."""
    messages = {
        404: ("there is nothing at this path", paths),
        405: ("this path does not have this method", "the header Allow lists its methods"),
    }
    message, fix = messages.get(status, (HTTPStatus(status).phrase, ""))
    error = problems.error_of({"detail": message, "fix": fix}, status)
    return problem_answer(problems.problem(error, status, instance=request_id(connection)), headers or {})


def problem_answer(details: Mapping[str, Any], headers: Mapping[str, str]) -> Response:
    """Return problem details as an answer."""
    return Response(
        dumps(details), status_code=details["status"], media_type=problems.MEDIA_TYPE, headers=dict(headers)
    )


async def refuse(scope: Scope, send: Send, error: CommonbookError, status: int) -> None:
    """Answer a request with an error, and close its connection: the rest of the request is not read."""
    body = dumps(problems.problem(error, status, instance=scope.get("state", {}).get("request_id")))
    headers = {
        "Content-Type": problems.MEDIA_TYPE,
        "Content-Length": str(len(body)),
        "Connection": "close",
        **problems.headers_of(error, status),
    }
    encoded = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": encoded})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

"""The access log: one line a request, with an id that the answer has too, and without texts, queries and keys.

A path is logged as its route, since any text can be typed into a path. A fault of the program is logged as the type of
the exception and the places in the code: its message may quote a memory.
"""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from commonbook.errors import CommonbookError
from commonbook.interfaces.http.error_answers import BadShape, refuse
from commonbook.values.ids import new_id

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_LOG: Final = logging.getLogger("commonbook.core.access")
_CLIENT_CLOSED: Final = 499
"""The status of a request whose client went away before the answer, as some proxies log it."""


class Served(NamedTuple):
    """A request that was answered."""

    request: str
    method: str
    route: str
    status: int
    seconds: float
    sent_bytes: int
    principal: str | None


class AccessLog:
    """Gives each request an id, logs its answer, and answers faults that no other layer has answered."""

    def __init__(self, app: ASGIApp, noticed: Callable[[Served], None] | None = None) -> None:
        """Log the requests of this app; `noticed` is called after each."""
        self._app, self._noticed = app, noticed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and log it after its answer."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = time.perf_counter()
        request_id = scope.setdefault("state", {})["request_id"] = new_id()
        status, sent_bytes = _CLIENT_CLOSED, 0

        async def counting_send(message: Message) -> None:
            nonlocal status, sent_bytes
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], (b"x-request-id", request_id.encode())]
            await send(message)
            sent_bytes += len(message.get("body", b""))

        try:
            await self._app(scope, receive, counting_send)
        except Exception as error:  # noqa: BLE001 - a fault is logged without its text, and answered
            if status == _CLIENT_CLOSED:
                await _answer_fault(scope, counting_send, error)
            else:
                log_fault(request_id, error)
        finally:
            self._log(Served(
                request_id, _method(scope), _route(scope), status, time.perf_counter() - begun, sent_bytes,
                scope["state"].get("principal"),
            ))  # fmt: skip

    def _log(self, served: Served) -> None:
        if _LOG.isEnabledFor(logging.INFO):
            fields = {**served._asdict(), "seconds": round(served.seconds, 4)}
            _LOG.info("request", extra={"fields": {name: value for name, value in fields.items() if value is not None}})
        if self._noticed is not None:
            self._noticed(served)


def _method(scope: Scope) -> str:
    """Return the method of a request; any other text than a known one is not logged."""
    known = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
    return str(scope["method"]) if scope["method"] in known else "-"


def _route(scope: Scope) -> str:
    """Return the path of the route, such as `/v1/memories/{memory_id}`; `-` if there is none."""
    return str(getattr(scope.get("route"), "path", "-"))


async def _answer_fault(scope: Scope, send: Send, error: Exception) -> None:
    if isinstance(error, BadShape):
        await refuse(scope, send, error.error, error.status)
        return
    log_fault(scope["state"]["request_id"], error)
    fault = CommonbookError("the server failed, by a fault of the program", fix="its log has the place of the fault")
    await refuse(scope, send, fault, 500)


def log_fault(request_id: str, error: BaseException) -> None:
    """Log the type of an exception and the places in the code, without its message."""
    fields = {"request": request_id, "error": type(error).__name__, "places": places_of(error)}
    _LOG.error("fault", extra={"fields": fields})


def places_of(error: BaseException) -> list[str]:
    """Return the places in the code through which an exception came, the innermost first."""
    return [f"{frame.filename}:{frame.lineno}" for frame in reversed(traceback.extract_tb(error.__traceback__))]

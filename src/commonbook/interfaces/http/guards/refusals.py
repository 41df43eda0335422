"""Refusals of the guards: problem details, sent without the app."""

from __future__ import annotations

from typing import TYPE_CHECKING

from commonbook.wire import problems
from commonbook.wire.encoding import dumps

if TYPE_CHECKING:
    from starlette.types import Scope, Send

    from commonbook.errors import CommonbookError


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

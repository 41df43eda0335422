"""The OpenAPI document is made when somebody asks for it first.

It takes FastAPI and the models of all verbs: half of the time in which a server would start.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

if TYPE_CHECKING:
    from commonbook.interfaces.http.threads import Threads


def make_document() -> dict[str, Any]:
    """Return the OpenAPI document of all verbs."""
    from commonbook.interfaces.http.documentation import openapi_document

    return openapi_document()


class OpenApiHandler:
    """Answers with the OpenAPI document."""

    def __init__(self, document: Callable[[], dict[str, Any]], threads: Threads) -> None:
        """Make the document once, in a thread: the event loop does not wait for it."""
        self._document, self._threads = document, threads
        self._body: bytes | None = None

    async def __call__(self, _request: Request) -> Response:
        """Answer a request."""
        if self._body is None:
            self._body = await self._threads.run(self._encoded)
        return Response(self._body, media_type="application/json")

    def _encoded(self) -> bytes:
        return json.dumps(self._document(), ensure_ascii=False, separators=(",", ":")).encode()

"""Security headers of every answer: nothing is sniffed, framed, kept in caches, or sent to other sites."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_RAW: Final = tuple((name.lower().encode(), value.encode()) for name, value in HEADERS.items())
_STRICT_TRANSPORT: Final = (b"strict-transport-security", b"max-age=31536000")


class SecurityHeaders:
    """Adds the headers to each answer that does not have them already."""

    def __init__(self, app: ASGIApp) -> None:
        """Guard this app."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and add the headers to its answer."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                # The scheme is known for sure only here: a proxy may have named it after this request began.
                wanted = (*_RAW, _STRICT_TRANSPORT) if scope["scheme"] == "https" else _RAW
                given = {name for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *(field for field in wanted if field[0] not in given)]
            await send(message)

        await self._app(scope, receive, send_with_headers if scope["type"] == "http" else send)

"""The stack of guards around an app, from the outermost to the innermost.

The guard of bodies: limits of their size, of how long they take, and of how deep JSON in them is nested. A body is
read when the app asks for it. A body beyond a limit raises `BadShape` there, which the app answers.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from starlette.datastructures import Headers

from commonbook.errors import BadInput, NotAllowed, TooLarge
from commonbook.interfaces.http.error_answers import BadShape, refuse
from commonbook.interfaces.http.guards.access_log import AccessLog, Served
from commonbook.interfaces.http.guards.config import HEALTH_PATHS, OPEN_PATHS
from commonbook.interfaces.http.guards.hosts import HostGuard

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from commonbook.interfaces.http.guards.config import GuardConfig


def guarded(app: ASGIApp, config: GuardConfig, noticed: Callable[[Served], None] | None = None) -> ASGIApp:
    """Return an app with all guards; `noticed` is called after each request.

    Scheme and address, which a proxy may tell, are known before Host and Origin are compared with them. Every answer,
    also one of a guard, has an id and the security headers.
    """
    with_bodies = BodyGuard(app, config)
    with_hosts = HostGuard(with_bodies, config)
    return AccessLog(SecurityHeaders(ProxyGuard(with_hosts, config)), noticed)


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


_SCHEMES: Final = frozenset({"http", "https"})


class ProxyGuard:
    """Refuses strangers on a server behind proxies, and takes scheme and address of a request from a proxy."""

    def __init__(self, app: ASGIApp, config: GuardConfig) -> None:
        """Guard this app."""
        self._app, self._proxies = app, config.proxies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it; without proxies, headers about them are ignored."""
        if scope["type"] == "http" and self._proxies:
            peer = _address(scope["client"][0] if scope.get("client") else "")
            if peer is not None and any(peer in network for network in self._proxies):
                _apply_forwarded(scope)
            elif (peer is None or not peer.is_loopback) and scope["path"] not in HEALTH_PATHS:
                error = NotAllowed(
                    "this server answers its proxy only", fix="call the proxy; `--behind-proxy` names the proxies"
                )
                await refuse(scope, send, error, 403)
                return
        await self._app(scope, receive, send)


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    # A socket of both families names a peer of IPv4 by its mapped address.
    return getattr(address, "ipv4_mapped", None) or address


def _apply_forwarded(scope: Scope) -> None:
    """Set scheme and address to what the proxy, which is the last in each header, says of its own client."""
    headers = Headers(scope=scope)
    scheme = ",".join(headers.getlist("x-forwarded-proto")).rpartition(",")[2].strip().lower()
    if scheme in _SCHEMES:
        scope["scheme"] = scheme
    client = _address(",".join(headers.getlist("x-forwarded-for")).rpartition(",")[2].strip())
    if client is not None:
        scope["client"] = (str(client), 0)


_STREAMED: Final = frozenset({"application/zip", "application/octet-stream"})
"""The types of bodies that the app reads part by part, at the paths of archives."""

_TWO_LENGTHS: Final = BadInput(
    "the request tells its end twice, by Content-Length and by Transfer-Encoding", fix="send one of the two headers"
)
"""A proxy that believes the other one would take the rest of the body for a request of somebody else (smuggling)."""

_NESTING: Final = re.compile(rb'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|([\[{])|([\]}])', re.DOTALL)
"""A text, or a bracket. A text without an end reaches to the end of the body: to try each quote in it as a beginning
would take quadratic time, in which nothing else of the process runs, not even a signal."""

_SMALL_BODY_BYTES: Final = 64 << 10
"""The size up to which a body is looked through in the event loop; a larger one is in a thread, and others go on."""


class BodyGuard:
    """Limits the bodies of requests."""

    def __init__(self, app: ASGIApp, config: GuardConfig) -> None:
        """Guard this app."""
        self._app, self._config = app, config

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on with a limited body; one that announces too large a body is refused at once."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        if "content-length" in headers and "transfer-encoding" in headers:
            await refuse(scope, send, _TWO_LENGTHS, 400)
            return
        media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
        streamed = media_type in _STREAMED and scope["path"] in self._config.archive_paths
        limit = self._config.max_archive_bytes if streamed else self._limit(scope["path"])
        announced = headers.get("content-length", "0")
        if not announced.isdecimal() or len(announced) > 18 or int(announced) > limit:
            await refuse(scope, send, _too_large(limit).error, 413)
            return
        guarded = _parts(receive, limit, self._config) if streamed else _whole_body(receive, limit, self._config)
        await self._app(scope, guarded, send)

    def _limit(self, path: str) -> int:
        """Return how large a body that is kept in memory may be."""
        most = self._config.max_body_bytes
        return min(most, self._config.max_open_body_bytes) if path in OPEN_PATHS else most


def _parts(receive: Receive, limit: int, config: GuardConfig) -> Receive:
    """Return a function that receives a body part by part, within the limits."""
    size = 0

    async def next_part() -> Message:
        nonlocal size
        message = await _in_time(receive, config.body_seconds)
        size += len(message.get("body", b""))
        if size > limit:
            raise _too_large(limit)
        return message

    return _until_complete(next_part, receive)


def _whole_body(receive: Receive, limit: int, config: GuardConfig) -> Receive:
    """Return a function that receives a whole body at once, within the limits."""

    async def whole() -> Message:
        body = bytearray()
        deadline = asyncio.get_running_loop().time() + config.body_seconds
        while True:
            message = await _in_time(receive, deadline - asyncio.get_running_loop().time())
            if message["type"] != "http.request":
                return message
            body += message.get("body", b"")
            if len(body) > limit:
                raise _too_large(limit)
            if not message.get("more_body"):
                break
        whole_body = bytes(body)
        if config.max_depth is not None and len(whole_body) > _SMALL_BODY_BYTES:
            await asyncio.to_thread(require_depth, whole_body, config.max_depth)
        elif config.max_depth is not None:
            require_depth(whole_body, config.max_depth)
        return {"type": "http.request", "body": whole_body, "more_body": False}

    return _until_complete(whole, receive)


def _until_complete(receive_body: Receive, receive: Receive) -> Receive:
    """Return a function that receives the body, and after it waits without limit for the end of the connection."""
    is_complete = False

    async def guarded() -> Message:
        nonlocal is_complete
        if is_complete:
            return await receive()
        message = await receive_body()
        is_complete = not message.get("more_body")
        return message

    return guarded


async def _in_time(receive: Receive, seconds: float) -> Message:
    try:
        async with asyncio.timeout(seconds):
            return await receive()
    except TimeoutError:
        raise BadShape("the body of the request did not arrive in time", fix="send it again", status=408) from None


def _too_large(limit: int) -> BadShape:
    shape = BadShape("", fix="", status=413)
    shape.error = TooLarge(f"the body is larger than {limit >> 10} KiB", fix="send it in smaller parts, or as a batch")
    return shape


def require_depth(body: bytes, max_depth: int) -> None:
    """Raise BadShape if arrays and objects in a JSON text are nested deeper than allowed; it is not parsed."""
    if body.count(b"[") + body.count(b"{") <= max_depth:
        return
    depth = 0
    for found in _NESTING.finditer(body):
        depth += (found[1] is not None) - (found[2] is not None)
        if depth > max_depth:
            raise BadShape(f"the body is nested more than {max_depth} deep", fix="send flat objects", status=400)

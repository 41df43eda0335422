"""The stack of guards around an app, from the outermost to the innermost."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from starlette.datastructures import Headers

from commonbook.errors import NotAllowed
from commonbook.interfaces.http.error_answers import refuse
from commonbook.interfaces.http.guards.access_log import AccessLog, Served
from commonbook.interfaces.http.guards.bodies import BodyGuard
from commonbook.interfaces.http.guards.config import HEALTH_PATHS
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

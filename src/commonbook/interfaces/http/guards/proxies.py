"""The guard of proxies: behind one that ends TLS, plain HTTP is taken from that proxy and from this machine only."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Final

from starlette.datastructures import Headers

from commonbook.errors import NotAllowed
from commonbook.interfaces.http.guards.config import HEALTH_PATHS
from commonbook.interfaces.http.guards.refusals import refuse

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from commonbook.interfaces.http.guards.config import GuardConfig

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

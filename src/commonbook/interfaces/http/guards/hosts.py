"""The guard of Host and Origin: no page of another site makes a browser use this server.

DNS rebinding gives a page of an attacker an address of this machine under the attacker's own name, which is then in the
header Host. A page of another origin, also of another port of the same machine, is recognised by Origin and
Sec-Fetch-Site. There is no CORS: a preflight request is refused like any other of a foreign origin.
"""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

from starlette.datastructures import Headers

from commonbook.errors import BadInput, NotAllowed
from commonbook.interfaces.http.error_answers import refuse
from commonbook.interfaces.http.guards.config import HEALTH_PATHS

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection
    from starlette.types import ASGIApp, Receive, Scope, Send

    from commonbook.interfaces.http.guards.config import GuardConfig

_HOST: Final = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::([0-9]{1,5}))?")
_DEFAULT_PORTS: Final = {"http": "80", "https": "443"}
_SAME_ORIGIN: Final = "same-origin"
_OWN_SITES: Final = frozenset({_SAME_ORIGIN, "none"})
"""The values of Sec-Fetch-Site of our own pages, and of addresses that a person typed."""

_OTHER_HOST: Final = BadInput(
    "this server has another name",
    fix="call it by a name that it was started with; `commonbook serve --allowed-host NAME` adds one",
)
_OTHER_SITE: Final = NotAllowed("a page of another site may not use this server", fix="call it from no other page")


class HostGuard:
    """Refuses requests for another host, and those that a page of another origin makes."""

    def __init__(self, app: ASGIApp, config: GuardConfig) -> None:
        """Guard this app."""
        self._app, self._hosts, self._any_address = app, config.allowed_hosts, config.any_address

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http" or scope["path"] in HEALTH_PATHS:
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        host = _parse_host(headers.getlist("host"))
        if host is None or not (host[0] in self._hosts or (self._any_address and _is_address(host[0]))):
            await refuse(scope, send, _OTHER_HOST, 421)
        elif not _is_own_page(headers, _origin(scope["scheme"], *host)):
            await refuse(scope, send, _OTHER_SITE, 403)
        else:
            await self._app(scope, receive, send)


def _parse_host(values: list[str]) -> tuple[str, str | None] | None:
    """Return name and port in the header Host; None if there is not exactly one, or it is malformed."""
    found = _HOST.fullmatch(values[0].lower()) if len(values) == 1 else None
    return None if found is None else (found[1].removesuffix("."), found[2])


def _is_address(name: str) -> bool:
    try:
        return bool(ip_address(name.strip("[]")))
    except ValueError:
        return False


def _origin(scheme: str, name: str, port: str | None) -> str:
    shown = "" if port in (None, _DEFAULT_PORTS.get(scheme)) else f":{port}"
    return f"{scheme}://{name}{shown}"


def _is_own_page(headers: Headers, own_origin: str) -> bool:
    """Tell whether a request comes from a page of this server, or from no page at all."""
    sites, origins = headers.getlist("sec-fetch-site"), headers.getlist("origin")
    if any(site not in _OWN_SITES for site in sites):
        return False
    # A form of a page that tells no referrer has the origin `null`; the browser alone says where it is from.
    return (origins == ["null"] and sites == [_SAME_ORIGIN]) or all(one.lower() == own_origin for one in origins)


def public_port(connection: HTTPConnection) -> str:
    """Return the port by which a client calls this server, which a proxy may have in place of ours."""
    host = _parse_host(connection.headers.getlist("host"))
    scheme = connection.scope["scheme"]
    return (host[1] if host else None) or _DEFAULT_PORTS.get(scheme, "")


def is_proven_own_page(connection: HTTPConnection) -> bool:
    """Tell whether a browser says of a request that a page of this server, with its port, has made it."""
    headers = connection.headers
    host = _parse_host(headers.getlist("host"))
    if host is None:
        return False
    own_origin = _origin(connection.scope["scheme"], *host)
    is_told = headers.getlist("sec-fetch-site") == [_SAME_ORIGIN] or own_origin in headers.getlist("origin")
    return is_told and _is_own_page(headers, own_origin)

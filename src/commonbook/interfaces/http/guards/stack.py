"""The stack of guards around an app, from the outermost to the innermost."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from commonbook.interfaces.http.guards.access_log import AccessLog, Served
from commonbook.interfaces.http.guards.bodies import BodyGuard
from commonbook.interfaces.http.guards.hosts import HostGuard
from commonbook.interfaces.http.guards.proxies import ProxyGuard
from commonbook.interfaces.http.guards.security_headers import SecurityHeaders

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from commonbook.interfaces.http.guards.config import GuardConfig


def guarded(app: ASGIApp, config: GuardConfig, noticed: Callable[[Served], None] | None = None) -> ASGIApp:
    """Return an app with all guards; `noticed` is called after each request.

    Scheme and address, which a proxy may tell, are known before Host and Origin are compared with them. Every answer,
    also one of a guard, has an id and the security headers.
    """
    with_bodies = BodyGuard(app, config)
    with_hosts = HostGuard(with_bodies, config)
    return AccessLog(SecurityHeaders(ProxyGuard(with_hosts, config)), noticed)

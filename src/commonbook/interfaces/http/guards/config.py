"""The limits that guards apply to every request, before the app sees it."""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Network
from typing import Final, NamedTuple, TypeAlias

Network: TypeAlias = IPv4Network | IPv6Network

LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
"""The names by which a program on the same machine calls a server."""

HEALTH_PATHS: Final = frozenset({"/health/live", "/health/ready"})
"""The paths that a load balancer asks, by whatever name and from wherever: their answers tell nothing."""

OPEN_PATHS: Final = frozenset({"/v1/login", "/sign-in", "/sign-out"})
"""The paths whose bodies are read before anybody is authenticated: each is a code or a token."""

ARCHIVE_PATHS: Final = frozenset({"/v1/import"})
"""The paths whose bodies go to a file, part by part."""


class GuardConfig(NamedTuple):
    """The configuration of the guards.

    A server that has `proxies` takes requests from them and from its own machine only, and believes them which scheme
    and address a request came from.
    """

    allowed_hosts: frozenset[str] = LOOPBACK_NAMES
    """The names of this server in the header Host, without port."""
    any_address: bool = False
    """Whether it answers to every IP address too: a name can be bound to another address, an address cannot."""
    proxies: tuple[Network, ...] = ()
    max_body_bytes: int = 32 << 20
    max_open_body_bytes: int = 64 << 10
    """The limit of bodies that are read without a key."""
    max_archive_bytes: int = 1 << 30
    """The limit of archives to import, which are not kept in memory."""
    archive_paths: frozenset[str] = ARCHIVE_PATHS
    max_depth: int | None = 64
    """How deep arrays and objects may be nested in a JSON body."""
    body_seconds: float = 30.0
    """How long a JSON body may take to arrive, and any other one each of its parts."""

"""Addresses: what a server may listen on, under which names, and behind which proxies.

| address | needs |
| --- | --- |
| loopback | nothing: the owner's key is made at the first start |
| any other | an API key, and TLS or a proxy that ends it |
| all addresses of a machine (`0.0.0.0`, `::`) | also the names by which it is called |
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import socket
import ssl
from collections.abc import Sequence
from typing import Final, NamedTuple

from commonbook.errors import AddressTaken, BadInput, NotAllowed
from commonbook.interfaces.http.guards.config import LOOPBACK_NAMES, GuardConfig, Network

DEFAULT_PORT: Final = 7373

_MAX_PORT: Final = 65535
_BACKLOG: Final = 512


class ServeOptions(NamedTuple):
    """The options of a server."""

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    behind_proxy: tuple[str, ...] = ()
    """The addresses or networks of the proxies that end TLS."""
    tls_cert: str | None = None
    tls_key: str | None = None
    allowed_hosts: tuple[str, ...] = ()
    metrics_port: int | None = None
    worker: bool = True
    log_requests: bool = True

    @property
    def is_loopback(self) -> bool:
        """Whether only programs of this machine can connect."""
        return is_loopback(self.host)

    @property
    def scheme(self) -> str:
        """The scheme of the server's own address."""
        return "https" if self.tls_cert else "http"


def is_loopback(host: str) -> bool:
    """Tell whether a host is this machine alone."""
    address = _address(host)
    return host == "localhost" or (address is not None and address.is_loopback)


def require_safe(options: ServeOptions, *, has_keys: bool) -> None:
    """Raise BadInput or NotAllowed if a server with these options would be open to strangers."""
    for port in (options.port, options.metrics_port or 0):
        if not 0 <= port <= _MAX_PORT:
            raise BadInput(f"{port} is no port", fix=f"give a number from 0 to {_MAX_PORT}; 0 takes a free port")
    if (options.tls_cert is None) != (options.tls_key is None):
        raise BadInput("TLS needs a certificate and its key", fix="give both --tls-cert FILE and --tls-key FILE")
    if options.tls_cert and options.tls_key:
        _require_certificate(options.tls_cert, options.tls_key)
    # Names and proxies are checked before a port is taken.
    guard_config(options)
    if options.is_loopback:
        return
    if not has_keys:
        raise NotAllowed(
            f"a server on {options.host} needs an API key, and this book has none",
            fix="make one: `commonbook key create user:NAME`; or leave out --host, to serve this machine alone",
        )
    if not options.tls_cert and not options.behind_proxy:
        raise NotAllowed(
            f"a server on {options.host} needs TLS: without it, keys cross the network in the clear",
            fix="give --tls-cert and --tls-key; or --behind-proxy ADDRESS, if a proxy at that address ends TLS",
        )
    address = _address(options.host)
    if address is not None and address.is_unspecified and not options.allowed_hosts:
        raise BadInput(
            f"a server on {options.host} has to know the names by which it is called",
            fix="give each of them: --allowed-host book.example",
        )


def guard_config(options: ServeOptions) -> GuardConfig:
    """Return the configuration of the guards for a server with these options."""
    address = _address(options.host)
    is_name = bool(options.host) and (address is None or not address.is_unspecified)
    own = frozenset({shown_host(options.host).removesuffix(".")}) if is_name else frozenset()
    named = frozenset(map(_host_name, options.allowed_hosts))
    local = LOOPBACK_NAMES if options.is_loopback else frozenset()
    return GuardConfig(
        allowed_hosts=own | named | local,
        proxies=tuple(_proxy_network(text) for text in options.behind_proxy),
    )


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def shown_host(host: str) -> str:
    """Return a host as it stands in a URL and in the header Host."""
    return f"[{host.lower()}]" if ":" in host else host.lower()


def _host_name(text: str) -> str:
    name = text.lower().removesuffix(".")
    if not name or any(sign in name for sign in "/*@ \t") or (":" in name and not name.startswith("[")):
        raise BadInput(f"{text!r} is not the name of a host", fix="give a name without scheme, port and path")
    return name


def _proxy_network(text: str) -> Network:
    try:
        network = ipaddress.ip_network(text, strict=False)
    except ValueError:
        network = None
    if network is None or network.prefixlen == 0:
        raise BadInput(
            f"{text!r} is no address of a proxy",
            fix="give an address or a network, such as 10.0.0.7 or 10.0.0.0/24; everybody is no proxy",
        )
    return network


def _require_certificate(certificate: str, key: str) -> None:
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or "it is not PEM"
        raise BadInput(
            f"the certificate {certificate} with the key {key} cannot be used: {reason}",
            fix="give files in PEM that belong together and that this user can read",
        ) from error


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that listens on an address; AddressTaken if another program does."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio switches Nagle's algorithm off for sockets of this protocol only: else each answer waits for 40 ms.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(_BACKLOG)
        sock.setblocking(False)  # noqa: FBT003 - the name of the argument is private
    except (OSError, UnicodeError) as error:
        with contextlib.suppress(OSError):
            sock.close()
        raise _bind_error(host, port, error) from error
    return sock


def _bind_error(host: str, port: int, error: Exception) -> Exception:
    code = getattr(error, "errno", None)
    place = f"{shown_host(host)}:{port}"
    if code == errno.EADDRINUSE:
        return AddressTaken(
            f"another program listens on {place}",
            fix="stop it, or choose another port: --port 0 takes a free one",
        )
    if code == errno.EACCES:
        return AddressTaken(f"this user may not listen on {place}", fix="choose a port above 1023, such as --port 7373")
    why = os.strerror(code) if code and code > 0 else "there is no such address"
    return BadInput(f"{place} cannot be listened on: {why}", fix="give --host an address of this machine")


def urls_of(sockets: Sequence[socket.socket], options: ServeOptions) -> list[str]:
    """Return the URLs under which a server on these sockets is called on its own machine."""
    found = []
    for sock in sockets:
        host, port = sock.getsockname()[:2]
        address = _address(host)
        name = options.allowed_hosts[0] if address is not None and address.is_unspecified else host
        if _address(options.host) is None and not options.is_loopback:
            # The server answers to the name that it was given, not to the address behind it.
            name = options.host
        found.append(f"{options.scheme}://{shown_host(name)}:{port}")
    return found

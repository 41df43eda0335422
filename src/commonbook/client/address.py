"""The address of a server, parsed and checked."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Final, NamedTuple
from urllib.parse import SplitResult, urlsplit

from commonbook.errors import BadInput

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_ADDRESS_FIX: Final = "write it like https://memory.example.com, without user, query and fragment"


class Address(NamedTuple):
    """The address of a server: its origin, and the path below which it serves."""

    scheme: str
    host: str
    port: int
    path: str = ""

    @property
    def origin(self) -> str:
        """The origin, to which alone a key is sent."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether the server is on this machine."""
        if self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False

    def __str__(self) -> str:
        """Return the whole address."""
        return self.origin + self.path


def parse_address(text: str, *, allow_http: bool = False) -> Address:
    """Return the address of a server.

    Plain http is for this machine alone, unless it is allowed: others on the way could read the key.
    """
    if not text.strip():
        raise BadInput("there is no address of a server", fix="name one, or set COMMONBOOK_URL")
    address = _parse(text.strip())
    if address.scheme == "http" and not address.is_loopback and not allow_http:
        raise BadInput(
            f"{address} is not encrypted: others on the way could read the key",
            fix="use https, or say allow_http=True if the network between is your own",
        )
    return address


def _parse(text: str) -> Address:
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        parts, host, port = SplitResult("", "", "", "", ""), None, None
    if parts.scheme not in _DEFAULT_PORTS or not host or not text.isascii() or not text.isprintable():
        # The text is not repeated: it may hold a password.
        raise BadInput("the address of the server is not an http or https address", fix=_ADDRESS_FIX)
    if any(mark in text for mark in "@?#\\ ,"):
        raise BadInput("the address of the server has more than host, port and path", fix=_ADDRESS_FIX)
    return Address(parts.scheme, host, port or _DEFAULT_PORTS[parts.scheme], parts.path.rstrip("/"))

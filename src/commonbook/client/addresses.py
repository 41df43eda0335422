"""The addresses of a server: parsed once, and for each attempt the decision which one is asked next.

A client stays with the address that answered last. An address that did not answer rests, each time longer (exponential
back-off with jitter), and is asked meanwhile only if all others rest too.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from ipaddress import ip_address
from typing import Final, NamedTuple
from urllib.parse import SplitResult, urlsplit

from commonbook.errors import BadInput

_FIRST_REST_SECONDS: Final = 0.5
_MAX_REST_SECONDS: Final = 30.0
_FIRST_PAUSE_SECONDS: Final = 0.2
_MAX_PAUSE_SECONDS: Final = 5.0
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_RANDOM: Final = random.SystemRandom()  # A forked child does not repeat the numbers of its parent.
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


def parse_addresses(given: str | Iterable[str], *, allow_http: bool = False) -> tuple[Address, ...]:
    """Return one or several addresses; a text may have several, with commas between them.

    Plain http is for this machine alone, unless it is allowed: others on the way could read the key.
    """
    listed = given.split(",") if isinstance(given, str) else list(given)
    addresses = tuple(dict.fromkeys(_parse(text.strip()) for text in listed if text.strip()))
    if not addresses:
        raise BadInput("there is no address of a server", fix="name one, or set COMMONBOOK_URL")
    for address in addresses:
        if address.scheme == "http" and not address.is_loopback and not allow_http:
            raise BadInput(
                f"{address} is not encrypted: others on the way could read the key",
                fix="use https, or say allow_http=True if the network between is your own",
            )
    return addresses


def _parse(text: str) -> Address:
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        parts, host, port = SplitResult("", "", "", "", ""), None, None
    if parts.scheme not in _DEFAULT_PORTS or not host or not text.isascii() or not text.isprintable():
        # The text is not repeated: it may hold a password.
        raise BadInput("the address of the server is no http or https address", fix=_ADDRESS_FIX)
    if any(mark in text for mark in "@?#\\ "):
        raise BadInput("the address of the server has more than host, port and path", fix=_ADDRESS_FIX)
    return Address(parts.scheme, host, port or _DEFAULT_PORTS[parts.scheme], parts.path.rstrip("/"))


class Resting(NamedTuple):
    """The rest of an address that did not answer: how often in a row, and until when."""

    failures: int
    until: float


class AddressChoice:
    """Chooses the address of each attempt, for all threads of a client."""

    def __init__(
        self,
        addresses: Sequence[Address],
        *,
        now: Callable[[], float] = time.monotonic,
        share: Callable[[], float] = _RANDOM.random,
    ) -> None:
        """Begin with the first address; `share`, from 0 to 1, is the random part of a rest."""
        self.addresses: Final = tuple(addresses)
        self._now, self._share = now, share
        self._preferred = self.addresses[0]
        self._resting: dict[Address, Resting] = {}
        self.reset_after_fork()

    def reset_after_fork(self) -> None:
        """Make a new lock, at first and in a forked child."""
        self._guard = threading.Lock()

    def order(self) -> tuple[Address, ...]:
        """Return all addresses in the order in which to ask them now."""
        with self._guard:
            return order_of(self.addresses, self._preferred, self._resting, self._now())

    @property
    def all_rest(self) -> bool:
        """Whether no address is expected to answer now."""
        with self._guard:
            now = self._now()
            return all(self._rest_of(address).until > now for address in self.addresses)

    def answered(self, address: Address) -> None:
        """Stay with this address."""
        with self._guard:
            self._preferred = address
            self._resting.pop(address, None)

    def failed(self, address: Address) -> None:
        """Let this address rest."""
        with self._guard:
            rest = self._rest_of(address)
            seconds = rest_seconds(rest.failures, share=self._share())
            self._resting[address] = Resting(rest.failures + 1, self._now() + seconds)

    def _rest_of(self, address: Address) -> Resting:
        return self._resting.get(address, Resting(0, 0.0))


# --- decisions


def order_of(
    addresses: Sequence[Address], preferred: Address, resting: dict[Address, Resting], now: float
) -> tuple[Address, ...]:
    """Return the addresses that do not rest, the preferred one first, then the others by the end of their rest."""
    up = [address for address in addresses if address not in resting or resting[address].until <= now]
    down = sorted((address for address in addresses if address not in up), key=lambda at: resting[at].until)
    up.sort(key=lambda address: address != preferred)
    return (*up, *down)


def rest_seconds(failures: int, *, share: float) -> float:
    """Return how long an address rests after so many earlier failures in a row."""
    return min(_MAX_REST_SECONDS, _FIRST_REST_SECONDS * 2.0 ** min(failures, 20)) * (1 + share) / 2


def pause_seconds(passes: int, *, share: float, retry_after: float = 0.0) -> float:
    """Return the pause after so many passes over all addresses; at least as long as a server asked for."""
    pause = min(_MAX_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2.0 ** min(passes, 20)) * (1 + share) / 2
    return max(pause, retry_after)

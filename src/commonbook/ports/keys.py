"""The seams of the clock and of the signing keys."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    pass


class Clock(Protocol):
    """Tells the time; tests hand in their own."""

    def now(self) -> datetime:
        """Return the present moment, in UTC with its zone."""
        ...


class Keys(Protocol):
    """Signs the log and hashes what the log may not say."""

    @property
    def key_id(self) -> str:
        """The id of the signing key."""
        ...

    def sign(self, message: bytes) -> bytes:
        """Sign with Ed25519."""
        ...

    def verify(self, key_id: str, signature: bytes, message: bytes) -> bool:
        """Tell whether the signature is that key's; False for a key that is not known."""
        ...

    def keyed_hash(self, *parts: str) -> str:
        """Hash the parts under the home's hashing key: equal texts match, nothing can be guessed."""
        ...

    def load(self, *, create: bool) -> None:
        """Read the keys now; with `create`, make them if there are none: only right while the log is empty."""
        ...

    def loose(self) -> list[str]:
        """Return the paths of keys that others than the owner have rights on."""
        ...

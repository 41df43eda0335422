"""The ports of the clock, and of the keys that sign the log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    """The source of the present time; tests inject their own."""

    def now(self) -> datetime:
        """Return the present time as an aware datetime in UTC."""
        ...


class Keys(Protocol):
    """Signs the log, and hashes texts that the log must not reveal."""

    @property
    def key_id(self) -> str:
        """The id of the signing key."""
        ...

    def sign(self, message: bytes) -> bytes:
        """Sign with Ed25519."""
        ...

    def verify(self, key_id: str, signature: bytes, message: bytes) -> bool:
        """Tell whether that key made the signature; False for a key that is not known."""
        ...

    def keyed_hash(self, *parts: str) -> str:
        """Hash the parts with the secret key of the home: equal texts match, and no text can be guessed."""
        ...

    def encrypt(self, name: Sequence[str], data: bytes) -> str:
        """Encrypt with a key that is derived from the secret key of the home and a name; return a text."""
        ...

    def decrypt(self, name: Sequence[str], text: str) -> bytes:
        """Decrypt the text of `encrypt`; HomeDamaged if another name or another key encrypted it."""
        ...

    def load(self, *, create: bool) -> None:
        """Read the keys now; with `create`, make them if there are none, which is right only while the log is empty."""
        ...

    def expect(self, facts: Mapping[str, str], *, fix: str) -> None:
        """Remember which keys the book was made with, by the facts of `fingerprints`, and what mends others."""
        ...

    def fingerprints(self) -> dict[str, str]:
        """Return facts that tell these keys from others, and nothing else of them."""
        ...

    def require_expected(self) -> None:
        """Raise KeyMissing if these are not the keys that the book was made with."""
        ...

    def loose(self) -> list[str]:
        """Return the paths of keys that other users than the owner may read or write."""
        ...

"""Words of rights: who acts, what was granted to whom, and the keys by which principals prove who they are."""

from __future__ import annotations

from datetime import datetime
from typing import Final, NamedTuple

from commonbook.model import Space

READER: Final = "reader"
WRITER: Final = "writer"
ADMIN: Final = "admin"
ROLES: Final = (READER, WRITER, ADMIN)
"""What one may do in a space and below it, each including the ones before it."""


class Actor(str):
    """Who acts: the name of a principal, and the id of the key it came with, which may allow less than it may itself.

    A name like any other wherever something is written down; `rights` looks at the key.
    """

    key: str | None = None

    @classmethod
    def with_key(cls, principal: str, key: str) -> Actor:
        """Return a principal that came with a key."""
        actor = cls(principal)
        actor.key = key
        return actor


class Grant(NamedTuple):
    """A role of a principal on a space and everything below it, until it expires."""

    principal: str
    space: Space
    role: str
    granted_by: str
    granted_at: datetime
    expires: datetime | None = None


class ApiKey(NamedTuple):
    """What is known of a key; its secret is not. Limits are (space id, role): on no other spaces, and no more."""

    id: str
    principal: str
    label: str
    created: datetime
    created_by: str
    limits: tuple[tuple[str, str], ...] | None = None
    expires: datetime | None = None
    revoked: datetime | None = None


class NewKey(NamedTuple):
    """A key that was just made, and its secret, which is shown this once."""

    key: ApiKey
    secret: str

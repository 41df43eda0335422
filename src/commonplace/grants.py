"""Who may read and write which space. Until principals are granted spaces, the local owner may do everything."""

from __future__ import annotations

from collections.abc import Mapping

from commonplace.errors import NotAllowed
from commonplace.model import FILESYSTEM, LOCAL_OWNER, Space, Spaces

_OWNERS = frozenset({LOCAL_OWNER, FILESYSTEM})


def readable(actor: str, spaces: Mapping[str, Space]) -> Spaces:
    """Return the spaces that the actor may read."""
    return spaces if actor in _OWNERS else {}


def writable(actor: str, spaces: Mapping[str, Space]) -> Spaces:
    """Return the spaces that the actor may write to."""
    return spaces if actor in _OWNERS else {}


def require_create(actor: str, name: str) -> None:
    """Raise NotAllowed unless the actor may create a space of that name."""
    if actor not in _OWNERS:
        raise refusal(actor, name)


def refusal(actor: str, name: str) -> NotAllowed:
    """Return the one answer for a space that one may not use, whether it exists or not."""
    return NotAllowed(f"{actor} may not use the space {name!r}", fix="ask an admin of that space for a grant")

"""The identity of a caller: its principal, its API key, its default space, and its roles on spaces."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from commonbook.access import permissions
from commonbook.model.spaces import Actor, Identity, Role, SpaceRole, SpaceScope
from commonbook.ports.engines import Engines
from commonbook.tables import api_keys, spaces


def identity(engines: Engines, actor: Actor, *, default_space: str) -> Identity:
    """Return the identity of an actor; NotAllowed if its key was revoked or has expired."""
    with engines.db.reading() as tx:
        permissions.require_valid_key(tx, actor)
        known = spaces.get_all(tx)
        roles = permissions.PermissionSnapshot(tx, actor).roles(known)
        key = None if actor.key_id is None else api_keys.find(tx, actor.key_id)
    reached = {id_: space for id_, space in known.items() if id_ in roles}
    return Identity(
        principal=actor.principal,
        default_space=default_space,
        spaces=_named(roles.items(), reached),
        key_id=actor.key_id,
        # The name of a space that the caller does not reach stays hidden.
        limits=None if key is None or key.limits is None else _named(key.limits, reached),
        expires=None if key is None else key.expires,
    )


def _named(roles: Iterable[tuple[str, str]], reached: SpaceScope) -> tuple[SpaceRole, ...]:
    """Return the roles on those spaces that are in reach, by the names of the spaces."""
    named = (SpaceRole(reached[id_].name, cast("Role", role)) for id_, role in roles if id_ in reached)
    return tuple(sorted(named))

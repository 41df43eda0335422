"""Limits of an actor: an API key opens at most what its principal may reach, and an actor can be confined to spaces."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from commonbook.model.spaces import ROLES, Actor, SpaceScope
from commonbook.tables import api_keys, grants
from commonbook.text.space_names import is_within

if TYPE_CHECKING:
    from commonbook.model.spaces import ApiKey
    from commonbook.ports.database import Reading


def within_limits(
    tx: Reading, key: ApiKey | None, actor: Actor, roles: Mapping[str, str], spaces: SpaceScope
) -> Mapping[str, str]:
    """Return the roles of an actor within the limits of its key; none if the key is unknown, foreign or not valid."""
    if key is None or key.principal != actor.principal or not api_keys.is_valid(key, tx):
        return {}
    if key.limits is None:
        return roles
    limits = grants.effective_roles(key.limits, spaces)
    return {space: min(roles[space], limits[space], key=ROLES.index) for space in roles.keys() & limits.keys()}


def confined(within: Iterable[str], roles: Mapping[str, str], spaces: SpaceScope) -> Mapping[str, str]:
    """Return the roles on spaces that are among the named ones or below them."""
    return {id_: role for id_, role in roles.items() if any(is_within(spaces[id_].name, top) for top in within)}

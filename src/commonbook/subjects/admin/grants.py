"""Grants: give principals roles on spaces, take them away, list them, and return the identity of a caller.

Rate limits: set and list how often principals may use a class of verbs; the owner of the home has no limit.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Final, cast

from commonbook.core.access import authentication, permissions
from commonbook.core.access.authentication import principal_name
from commonbook.core.log import chain
from commonbook.core.tables import api_keys, grants, rate_counts, spaces
from commonbook.core.text import space_names, user_times
from commonbook.core.write import context
from commonbook.core.write.context import WriteContext, administered_space, readable_space
from commonbook.core.write.transaction import write
from commonbook.errors import BadInput, NotFound
from commonbook.ports.engines import Engines
from commonbook.values.request import RequestContext
from commonbook.values.sharing import EVERYBODY, LimitedAction, RateLimit
from commonbook.values.spaces import (
    FILESYSTEM,
    LOCAL_OWNER,
    ROLES,
    Actor,
    Grant,
    Identity,
    Role,
    Space,
    SpaceRole,
    SpaceScope,
)


def grant(
    engines: Engines,
    caller: RequestContext,
    principal: str,
    space: str,
    role: Role,
    *,
    expires: datetime | str | None = None,
) -> Grant:
    """Grant a principal a role on a space and all spaces below it, in place of an earlier grant on the space.

    The owner gives a grant back on a space that two principals share.
    """
    principal = _require_grantee(principal)
    is_shared_by_two = _is_shared_by_two(space)
    require_role(role)

    def operation(ctx: WriteContext) -> Grant:
        _lock_space(ctx, space)
        granted_space = _space_of_two(ctx, space, principal) if is_shared_by_two else administered_space(ctx, space)
        permissions.require_none_below(ctx.actor, space, ctx.spaces)
        until = require_future(engines, ctx.tx.now, expires)
        new_grant = Grant(principal, granted_space, role, caller.actor.principal, ctx.tx.now, until)
        grants.put(ctx.tx, new_grant)
        ctx.log(granted_space, "grant", (), principal=principal, role=role, expires=format_optional_time(until))
        return new_grant

    return write(engines, caller, operation)


def revoke(engines: Engines, caller: RequestContext, principal: str, space: str) -> None:
    """Revoke the grant of a principal on a space; grants on the spaces above it stay.

    The grants on a space that two principals share are made by the program, and revoked by the owner.
    """
    principal = _require_grantee(principal)
    is_shared_by_two = _is_shared_by_two(space)

    def operation(ctx: WriteContext) -> None:
        _lock_space(ctx, space)
        granted_space = _space_of_two(ctx, space) if is_shared_by_two else administered_space(ctx, space)
        permissions.require_none_below(ctx.actor, space, ctx.spaces)
        if not grants.remove(ctx.tx, granted_space.id, principal):
            raise NotFound(
                f"{principal} has no grant on the space {space!r}", fix="`commonbook grant list` shows the grants"
            )
        ctx.log(granted_space, "revoke", (), principal=principal)

    write(engines, caller, operation)


def list_grants(engines: Engines, actor: Actor, *, space: str | None = None) -> tuple[Grant, ...]:
    """Return the grants on the spaces that the actor administers, and its own."""
    with engines.db.reading() as tx:
        known = spaces.get_all(tx)
        if space is not None:
            return tuple(grants.on_spaces(tx, permissions.require_administered(tx, actor, known, space)))
        administered = permissions.administered(tx, actor, known)
        readable = permissions.readable(tx, actor, known)
        return tuple(
            grant
            for grant in grants.on_spaces(tx, readable)
            if grant.space.id in administered or grant.principal == actor.principal
        )


def _is_shared_by_two(space: str) -> bool:
    """Return whether a space is one that two principals share; any other must have a name that a caller may give."""
    is_shared = space_names.is_shared_by_two(space)
    if not is_shared:
        space_names.require_space_name(space)
    return is_shared


def _space_of_two(ctx: WriteContext, name: str, principal: str | None = None) -> Space:
    """Return a space that two principals share, or raise NotFound; NotAllowed for all but the owner.

    With `principal`, BadInput if that would be a third one. The owner of the home needs no grant.
    """
    permissions.require_owner(ctx.actor, "change the grants on a space that two share")
    space = readable_space(ctx, name)
    others = {grant.principal for grant in grants.on_spaces(ctx.tx, {space.id: space})} - {principal}
    if principal is not None and any(name != space_names.shared_between(principal, other) for other in others):
        raise BadInput(f"{principal} is none of the two who share {name!r}", fix="`share` the memory with it instead")
    return space


def _lock_space(ctx: WriteContext, name: str) -> None:
    """Lock a space and its grants before permissions are checked.

    Otherwise a principal could grant itself a role again while another revokes it.
    """
    chain.lock(ctx.tx, [space.id for space in ctx.spaces.values() if space.name == name])


def require_role(role: str) -> Role:
    """Return the role; BadInput if there is no such role."""
    if role not in ROLES:
        raise BadInput(f"{role!r} is not a role", fix=f"use one of {', '.join(ROLES)}")
    return role


def _require_grantee(principal: str) -> str:
    """Return a principal that can have grants; BadInput for the owner of the home, who may do everything."""
    if principal_name(principal) in (LOCAL_OWNER, FILESYSTEM):
        raise BadInput(f"{principal} may do everything without a grant", fix="grant spaces to other principals")
    return principal


def require_future(engines: Engines, now: datetime, value: datetime | str | None) -> datetime | None:
    """Return the time of expiry, or None; BadInput if it has passed."""
    if value is None:
        return None
    until = user_times.parse_user_time(value, zone=engines.zone, edge=user_times.field_edge("expires"), now=now)
    if until <= now:
        raise BadInput("the expiry is in the past", fix="give a later time, or none for ever")
    return until


def format_optional_time(time: datetime | None) -> str | None:
    """Return a time as text for the log, or None."""
    return time.isoformat() if time else None


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


MAX_PER_MINUTE: Final = 1_000_000


def set_limit(
    engines: Engines, caller: RequestContext, action: LimitedAction, per_minute: int | None, *, principal: str | None
) -> RateLimit:
    """Set a limit per minute of a principal, or the general one (no principal); None removes the limit."""
    if action not in rate_counts.DEFAULTS:
        raise BadInput(f"{action!r} is not an action with a limit", fix=f"use one of {', '.join(rate_counts.DEFAULTS)}")
    if per_minute is not None and not _is_possible(per_minute):
        raise BadInput(
            f"{per_minute!r} is no limit", fix=f"give a whole number of times a minute, 0 to {MAX_PER_MINUTE:,}"
        )
    limited = EVERYBODY if principal is None else authentication.principal_name(principal)

    def operation(ctx: WriteContext) -> RateLimit:
        permissions.require_owner(ctx.actor, "set limits")
        permissions.require_valid_key(ctx.tx, ctx.actor)
        if per_minute is None:
            rate_counts.drop_limit(ctx.tx, limited, action)
        else:
            rate_counts.put_limit(ctx.tx, RateLimit(limited, action, per_minute, caller.actor.principal))
        ctx.log(
            ctx.system_space(context.HOME_SPACE), "limit", (), principal=limited, what=action, per_minute=per_minute
        )
        return rate_counts.limit_for(ctx.tx, limited, action)

    return write(engines, caller, operation)


def _is_possible(per_minute: object) -> bool:
    is_whole = isinstance(per_minute, int) and not isinstance(per_minute, bool)
    return is_whole and per_minute in range(MAX_PER_MINUTE + 1)


def list_limits(engines: Engines, actor: Actor) -> tuple[RateLimit, ...]:
    """Return the limits that apply: the owner sees all of them, others their own."""
    with engines.db.reading() as tx:
        if not permissions.is_owner(actor):
            return tuple(rate_counts.limit_for(tx, actor.principal, action) for action in rate_counts.DEFAULTS)
        everybody = [rate_counts.limit_for(tx, EVERYBODY, action) for action in rate_counts.DEFAULTS]
        return (*everybody, *(limit for limit in rate_counts.get_limits(tx) if limit.principal != EVERYBODY))

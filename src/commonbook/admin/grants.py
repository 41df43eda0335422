"""Granting spaces to principals, and the keys by which they prove who they are."""

from __future__ import annotations

from datetime import datetime

from commonbook.access import permissions
from commonbook.access.authentication import principal_name
from commonbook.errors import BadInput, NotFound
from commonbook.log import chain
from commonbook.model.spaces import FILESYSTEM, LOCAL_OWNER, ROLES, Actor, Grant
from commonbook.ports.engines import Engines
from commonbook.tables import grants, spaces
from commonbook.text import dates, space_paths
from commonbook.write.context import WriteContext, administered_space
from commonbook.write.transaction import write

# --- grants


def grant(
    engines: Engines, actor: Actor, principal: str, space: str, role: str, *, expires: datetime | str | None = None
) -> Grant:
    """Let a principal have a role on a space and everything below it; the newest grant of the two counts."""
    principal = _somebody_else(principal)
    space_paths.require_space_name(space)
    require_role(role)

    def operation(ctx: WriteContext) -> Grant:
        _hold(ctx, space)
        place = administered_space(ctx, space)
        until = require_future(engines, ctx.tx.now, expires)
        given = Grant(principal, place, role, actor.principal, ctx.tx.now, until)
        grants.put(ctx.tx, given)
        ctx.log(place, "grant", (), principal=principal, role=role, expires=time_text(until))
        return given

    return write(engines, actor, operation)


def revoke(engines: Engines, actor: Actor, principal: str, space: str) -> None:
    """Take a grant away; what is granted above the space stays."""
    principal = _somebody_else(principal)
    space_paths.require_space_name(space)

    def operation(ctx: WriteContext) -> None:
        _hold(ctx, space)
        place = administered_space(ctx, space)
        if not grants.remove(ctx.tx, place.id, principal):
            raise NotFound(
                f"{principal} has no grant on the space {space!r}", fix="`commonbook grant list` shows what there is"
            )
        ctx.log(place, "revoke", (), principal=principal)

    write(engines, actor, operation)


def list_grants(engines: Engines, actor: Actor, *, space: str | None = None) -> tuple[Grant, ...]:
    """Return the grants on the spaces that the actor administers, and its own."""
    with engines.db.reading() as tx:
        known = spaces.get_all(tx)
        if space is not None:
            place = permissions.require_admin(tx, actor, known, space_paths.require_space_name(space))
            return tuple(grants.on_spaces(tx, {place.id: place}))
        decided = permissions.administered(tx, actor, known)
        readable = permissions.readable(tx, actor, known)
        return tuple(
            one for one in grants.on_spaces(tx, readable) if one.space.id in decided or one.principal == actor.principal
        )


def _hold(ctx: WriteContext, name: str) -> None:
    """Let nobody else change a space, and what is granted on it, before it is looked at who may.

    Otherwise somebody could grant itself again what another takes from it at this moment.
    """
    if ctx.tx.for_update:
        chain.lock(ctx.tx, [space.id for space in ctx.spaces.values() if space.name == name])


def require_role(role: str) -> str:
    """Return the role, or refuse a name that is none."""
    if role not in ROLES:
        raise BadInput(f"{role!r} is not a role", fix=f"use one of {', '.join(ROLES)}")
    return role


def _somebody_else(principal: str) -> str:
    """Return a principal that something can be granted to: the owner of the home has everything as it is."""
    if principal_name(principal) in (LOCAL_OWNER, FILESYSTEM):
        raise BadInput(f"{principal} may do everything as it is", fix="grant spaces to others")
    return principal


def require_future(engines: Engines, now: datetime, value: datetime | str | None) -> datetime | None:
    """Return a time of expiry, or refuse one that has passed."""
    if value is None:
        return None
    until = dates.read_time(value, zone=engines.zone, edge=dates.field_edge("expires"), now=now)
    if until <= now:
        raise BadInput("the expiry is in the past", fix="give a later time, or none for ever")
    return until


def time_text(time: datetime | None) -> str | None:
    """Return a time as text for the log, or None."""
    return time.isoformat() if time else None

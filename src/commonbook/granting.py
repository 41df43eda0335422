"""Granting spaces to principals, and the keys by which they prove who they are."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Iterable
from datetime import datetime
from typing import Final

from commonbook import audit, dates, grants, keys, paths, rights, spaces, wording
from commonbook.desk import Desk
from commonbook.errors import BadInput, NotAllowed, NotFound
from commonbook.model import FILESYSTEM, LOCAL_OWNER, Space, new_id
from commonbook.ports import Parts, Reading
from commonbook.principals import ROLES, Actor, ApiKey, Grant, NewKey
from commonbook.writing import write

KEY_PREFIX: Final = "cbk_"
"""How every secret begins, so that masking and scanners know one when they see it."""

HOME: Final = "_home"
"""The space in whose log stands what concerns no other: the keys."""

_PRINCIPAL: Final = re.compile(r"(?:user|agent):[a-z0-9][a-z0-9._@-]{0,99}")


def principal_name(name: str) -> str:
    """Return the name of a principal, or refuse it."""
    if not _PRINCIPAL.fullmatch(name):
        raise BadInput(
            f"{name!r} is not a principal",
            fix="write user:NAME or agent:NAME, the name of a-z, 0-9, '.', '_', '@' and '-'",
        )
    return name


# --- grants


def grant(
    parts: Parts, actor: Actor, principal: str, space: str, role: str, *, expires: datetime | str | None = None
) -> Grant:
    """Let a principal have a role on a space and everything below it; the newest grant of the two counts."""
    principal = _somebody_else(principal)
    paths.require_space_name(space)
    require_role(role)

    def story(desk: Desk) -> Grant:
        _hold(desk, space)
        place = administered_space(desk, space)
        until = require_future(parts, desk.tx.now, expires)
        given = Grant(principal, place, role, actor.principal, desk.tx.now, until)
        grants.give(desk.tx, given)
        desk.log(place, "grant", (), principal=principal, role=role, expires=time_text(until))
        return given

    return write(parts, actor, story)


def revoke(parts: Parts, actor: Actor, principal: str, space: str) -> None:
    """Take a grant away; what is granted above the space stays."""
    principal = _somebody_else(principal)
    paths.require_space_name(space)

    def story(desk: Desk) -> None:
        _hold(desk, space)
        place = administered_space(desk, space)
        if not grants.take(desk.tx, place.id, principal):
            raise NotFound(
                f"{principal} has no grant on the space {space!r}", fix="`commonbook grant list` shows what there is"
            )
        desk.log(place, "revoke", (), principal=principal)

    write(parts, actor, story)


def granted(parts: Parts, actor: Actor, *, space: str | None = None) -> tuple[Grant, ...]:
    """Return the grants on the spaces that the actor administers, and its own."""
    with parts.db.reading() as tx:
        known = spaces.everything(tx)
        if space is not None:
            place = rights.require_admin(tx, actor, known, paths.require_space_name(space))
            return tuple(grants.on(tx, {place.id: place}))
        decided = rights.administered(tx, actor, known)
        readable = rights.readable(tx, actor, known)
        return tuple(
            one for one in grants.on(tx, readable) if one.space.id in decided or one.principal == actor.principal
        )


def administered_space(desk: Desk, name: str) -> Space:
    """Return a space that the actor administers, made now if it may make it."""
    if all(space.name != name for space in desk.spaces.values()):
        return desk.space(name)
    return rights.require_admin(desk.tx, desk.actor, desk.spaces, name)


def _hold(desk: Desk, name: str) -> None:
    """Let nobody else change a space, and what is granted on it, before it is looked at who may.

    Otherwise somebody could grant itself again what another takes from it at this moment.
    """
    if desk.tx.locking:
        audit.hold(desk.tx, [space.id for space in desk.spaces.values() if space.name == name])


def readable_space(desk: Desk, name: str) -> Space:
    """Return a space that the actor may read, or the one answer for all others."""
    for space in desk.readable.values():
        if space.name == name:
            return space
    if rights.is_owner(desk.actor):
        raise NotFound(f"there is no space {name!r}", fix="`commonbook space list` shows the spaces")
    raise rights.refusal(desk.actor, name)


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


def require_future(parts: Parts, now: datetime, value: datetime | str | None) -> datetime | None:
    """Return a time of expiry, or refuse one that has passed."""
    if value is None:
        return None
    until = dates.read_time(value, zone=parts.zone, edge=dates.field_edge("expires"), now=now)
    if until <= now:
        raise BadInput("the expiry is in the past", fix="give a later time, or none for ever")
    return until


def time_text(time: datetime | None) -> str | None:
    """Return a time as text for the log, or None."""
    return time.isoformat() if time else None


# --- keys


def create_key(
    parts: Parts,
    actor: Actor,
    principal: str,
    *,
    label: str = "",
    limits: Iterable[tuple[str, str]] | None = None,
    expires: datetime | str | None = None,
) -> NewKey:
    """Make a key for a principal: the owner for anybody, others for themselves. Its secret is in the answer alone.

    `limits` are pairs of a space and a role: the key opens nothing else, whatever the principal may.
    """
    principal = principal_name(principal)
    label = wording.title(label) if label else ""
    wanted = None if limits is None else [(paths.require_space_name(name), require_role(role)) for name, role in limits]
    secret = KEY_PREFIX + base64.urlsafe_b64encode(os.urandom(32)).decode().rstrip("=")

    def story(desk: Desk) -> NewKey:
        _require_own(actor, principal)
        key = ApiKey(
            id=new_id(),
            principal=principal,
            label=label,
            created=desk.tx.now,
            created_by=actor.principal,
            limits=None if wanted is None else tuple((readable_space(desk, name).id, role) for name, role in wanted),
            expires=require_future(parts, desk.tx.now, expires),
        )
        keys.add(desk.tx, key, key_hash(parts, secret))
        limits_said = None if wanted is None else [list(one) for one in wanted]
        desk.log(
            desk.system_space(HOME),
            "key.create",
            (),
            key=key.id,
            principal=principal,
            limits=limits_said,
            expires=time_text(key.expires),
        )
        return NewKey(key, secret)

    return write(parts, actor, story)


def with_key(parts: Parts, secret: str) -> Actor:
    """Return who comes with this secret; one answer for all that open nothing."""
    refused = NotAllowed("the key opens nothing here", fix="check it, or ask for a new one: `commonbook key create`")
    if not secret.startswith(KEY_PREFIX) or not wording.is_unicode(secret):
        raise refused
    with parts.db.reading() as tx:
        key = keys.known_by(tx, key_hash(parts, secret))
        if key is None or not keys.opens(key, tx):
            raise refused
    return Actor(key.principal, key.id)


def listed_keys(parts: Parts, actor: Actor) -> tuple[ApiKey, ...]:
    """Return the keys that there are: the owner sees all, others their own."""
    with parts.db.reading() as tx:
        _require_good(tx, actor)
        return tuple(key for key in keys.every(tx) if rights.is_owner(actor) or key.principal == actor.principal)


def revoke_key(parts: Parts, actor: Actor, key_id: str) -> ApiKey:
    """Let a key open nothing from now on; revoking it again changes nothing."""

    def story(desk: Desk) -> ApiKey:
        _require_good(desk.tx, actor)
        key = keys.find(desk.tx, wording.memory_id(key_id))
        if key is None or not (rights.is_owner(actor) or key.principal == actor.principal):
            raise NotFound(f"there is no key {key_id}", fix="`commonbook key list` shows the keys by their ids")
        if key.revoked is not None:
            return key
        keys.revoke(desk.tx, key.id)
        desk.log(desk.system_space(HOME), "key.revoke", (), key=key.id, principal=key.principal)
        return keys.find(desk.tx, key.id) or key

    return write(parts, actor, story)


def _require_own(actor: Actor, principal: str) -> None:
    """Raise NotAllowed unless the actor may make keys for the principal; no key makes another one."""
    if not rights.is_owner(actor) and (actor.key_id is not None or actor.principal != principal):
        raise NotAllowed(f"{actor.principal} may not make a key for {principal}", fix="ask the owner of the home")


def _require_good(tx: Reading, actor: Actor) -> None:
    if actor.key_id is None:
        return
    key = keys.find(tx, actor.key_id)
    if key is None or not keys.opens(key, tx):
        raise NotAllowed("the key was revoked or has expired", fix="ask for a new one")


def key_hash(parts: Parts, secret: str) -> str:
    """Return the keyed hash under which a key's secret is stored."""
    return parts.keys.keyed_hash("api key", secret)

"""API keys: create, list and revoke the keys by which clients prove which principal they are.

A secret is random, shown once and stored as a keyed hash. A key can be limited to some spaces and roles.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterable
from datetime import datetime

from commonbook.core.access import permissions
from commonbook.core.access.authentication import KEY_PREFIX, key_hash, principal_name
from commonbook.core.tables import api_keys
from commonbook.core.text import space_names, validation
from commonbook.core.write.context import HOME_SPACE, ForeignWrite, WriteContext, readable_space
from commonbook.core.write.transaction import write
from commonbook.errors import BadInput, NotAllowed, NotFound
from commonbook.ports.database import Reading
from commonbook.ports.engines import Engines
from commonbook.subjects.admin.grants import format_optional_time, require_future, require_role
from commonbook.values.ids import new_id
from commonbook.values.request import RequestContext
from commonbook.values.spaces import READER, Actor, ApiKey, NewKey


def create_key(
    engines: Engines,
    caller: RequestContext,
    principal: str,
    *,
    label: str = "",
    limits: Iterable[tuple[str, str]] | None = None,
    expires: datetime | str | None = None,
    space: str | None = None,
) -> NewKey:
    """Create a key for a principal, and return it with its secret, which is not stored.

    The owner may create keys for all principals, others for themselves. `limits` are pairs of a space and a role: the
    key opens nothing else, even if the principal may do more. `space` is the default space of writes with the key.
    """
    principal = principal_name(principal)
    label = validation.validate_title(label) if label else ""
    allowed = (
        None
        if limits is None
        else [(space_names.require_space_name(name), require_role(role)) for name, role in limits]
    )
    if space is not None:
        _require_within_limits(space_names.require_space_name(space), allowed)
    secret = new_secret()

    def operation(ctx: WriteContext) -> NewKey:
        permissions.require_valid_key(ctx.tx, caller.actor)
        require_may_create(caller.actor, principal)
        key = ApiKey(
            id=new_id(),
            principal=principal,
            label=label,
            created=ctx.tx.now,
            created_by=caller.actor.principal,
            limits=None if allowed is None else tuple((readable_space(ctx, name).id, role) for name, role in allowed),
            expires=require_future(engines, ctx.tx.now, expires),
            default_space=None if space is None else readable_space(ctx, space).id,
        )
        api_keys.add(ctx.tx, key, key_hash(engines, secret))
        logged_limits = None if allowed is None else [list(limit) for limit in allowed]
        ctx.because(ForeignWrite.OWN_KEY).log(
            ctx.system_space(HOME_SPACE),
            "key.create",
            (),
            key=key.id,
            principal=principal,
            limits=logged_limits,
            expires=format_optional_time(key.expires),
            **({} if space is None else {"default_space": space}),
        )
        return NewKey(key, secret)

    return write(engines, caller, operation)


def new_secret() -> str:
    """Return a random secret."""
    return encode_secret(os.urandom(32))


def encode_secret(random: bytes) -> str:
    """Return random bytes as the secret of a key."""
    return KEY_PREFIX + base64.urlsafe_b64encode(random).decode().rstrip("=")


def _require_within_limits(space: str, limits: Iterable[tuple[str, str]] | None) -> None:
    """Raise BadInput if the limits of a key forbid it to write to its default space."""
    if limits is not None and not any(space_names.is_within(space, name) and role != READER for name, role in limits):
        raise BadInput(
            f"the limits of the key do not let it write to {space}", fix=f"add the limit ({space}, writer) to it"
        )


def list_keys(engines: Engines, actor: Actor) -> tuple[ApiKey, ...]:
    """Return the keys that the actor may see: the owner sees all, a key with limits itself, others their own."""
    with engines.db.reading() as tx:
        permissions.require_valid_key(tx, actor)
        keys = [key for key in api_keys.get_all(tx) if permissions.is_owner(actor) or key.principal == actor.principal]
        is_limited = actor.key_id is not None and actor.has_limits
        return tuple(key for key in keys if not is_limited or key.id == actor.key_id)


def revoke_key(engines: Engines, caller: RequestContext, key_id: str) -> ApiKey:
    """Revoke a key; to revoke it again changes nothing."""

    def operation(ctx: WriteContext) -> ApiKey:
        key = require_key(ctx.tx, caller.actor, key_id)
        if caller.actor.key_id not in (None, key.id) and not permissions.is_owner(caller.actor):
            raise NotAllowed(
                "a key may revoke no other key", fix="revoke it without a key, or ask the owner of the home"
            )
        if key.revoked is not None:
            return key
        api_keys.revoke(ctx.tx, key.id)
        logging = ctx.because(ForeignWrite.OWN_KEY)
        logging.log(ctx.system_space(HOME_SPACE), "key.revoke", (), key=key.id, principal=key.principal)
        return api_keys.find(ctx.tx, key.id) or key

    return write(engines, caller, operation)


def require_key(tx: Reading, actor: Actor, key_id: str) -> ApiKey:
    """Return a key that the actor may see; NotFound for any other."""
    permissions.require_valid_key(tx, actor)
    key = api_keys.find(tx, validation.validate_memory_id(key_id))
    if key is None or not (permissions.is_owner(actor) or key.principal == actor.principal):
        raise NotFound(f"there is no key {key_id}", fix="`commonbook key list` shows the keys by their ids")
    return key


def require_may_create(actor: Actor, principal: str) -> None:
    """Raise NotAllowed unless the actor may create keys for the principal; with a key or confined, it may not."""
    has_less = actor.key_id is not None or actor.within is not None
    if not permissions.is_owner(actor) and (has_less or actor.principal != principal):
        raise NotAllowed(f"{actor.principal} may not make a key for {principal}", fix="ask the owner of the home")

"""Rate limits: set and list how often principals may use a class of verbs; the owner of the home has no limit."""

from __future__ import annotations

from typing import Final

from commonbook.access import authentication, permissions
from commonbook.errors import BadInput
from commonbook.model.request import RequestContext
from commonbook.model.sharing import EVERYBODY, LimitedAction, RateLimit
from commonbook.model.spaces import Actor
from commonbook.ports.engines import Engines
from commonbook.tables import rate_counts
from commonbook.write import context
from commonbook.write.context import WriteContext
from commonbook.write.transaction import write

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

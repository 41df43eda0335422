"""How often principals may do what others have to put up with; the owner of the home may do it as often as it likes."""

from __future__ import annotations

import math
from typing import Final

from commonbook import granting, limits, rights
from commonbook.agreements import EVERYBODY, Limit
from commonbook.desk import Desk
from commonbook.errors import BadInput, TooMany
from commonbook.ports import Parts, Transaction
from commonbook.principals import Actor
from commonbook.writing import write

MOST: Final = 1_000_000


def count(tx: Transaction, actor: Actor, action: str) -> None:
    """Count what the actor does here, in the transaction in which it does it, or refuse it and say until when."""
    if rights.is_owner(actor):
        return
    holds = limits.holding(tx, actor.principal, action)
    wait = limits.count(tx, actor.principal, action, holds.per_minute)
    if wait:
        seconds = math.ceil(wait)
        raise TooMany(
            f"{actor.principal} may {action} {holds.per_minute} times a minute",
            retry_after=seconds,
            fix=f"try again in {seconds} seconds",
        )


def set_limit(parts: Parts, actor: Actor, action: str, per_minute: int | None, *, principal: str | None) -> Limit:
    """Set how often a minute somebody may do something, or everybody without a limit of its own; None: no own limit."""
    if action not in limits.DEFAULTS:
        raise BadInput(f"{action!r} is not limited", fix=f"use one of {', '.join(limits.DEFAULTS)}")
    if per_minute is not None and (isinstance(per_minute, bool) or not 0 <= per_minute <= MOST):
        raise BadInput(f"{per_minute} times a minute is out of range", fix=f"give 0 to {MOST:,}")
    whose = EVERYBODY if principal is None else granting.principal_name(principal)

    def story(desk: Desk) -> Limit:
        rights.require_owner(desk.actor, "set limits")
        if per_minute is None:
            limits.drop(desk.tx, whose, action)
        else:
            limits.put(desk.tx, Limit(whose, action, per_minute, actor.principal))
        desk.log(desk.system_space(granting.HOME), "limit", (), principal=whose, what=action, per_minute=per_minute)
        return limits.holding(desk.tx, whose, action)

    return write(parts, actor, story)


def listed(parts: Parts, actor: Actor) -> tuple[Limit, ...]:
    """Return the limits that hold: the owner sees all of them, others those for themselves."""
    with parts.db.reading() as tx:
        if not rights.is_owner(actor):
            return tuple(limits.holding(tx, actor.principal, action) for action in limits.DEFAULTS)
        everybody = [limits.holding(tx, EVERYBODY, action) for action in limits.DEFAULTS]
        return (*everybody, *(limit for limit in limits.every(tx) if limit.principal != EVERYBODY))

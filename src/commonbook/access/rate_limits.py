"""Rate limits: counts a use of an action, and refuses it above the limit of the principal."""

from __future__ import annotations

import math

from commonbook.access import permissions
from commonbook.errors import TooMany
from commonbook.model.spaces import Actor
from commonbook.ports.database import Transaction
from commonbook.tables import rate_limits


def count(tx: Transaction, actor: Actor, action: str) -> None:
    """Count what the actor does here, in the transaction in which it does it, or refuse it and say until when."""
    if permissions.is_owner(actor):
        return
    holds = rate_limits.limit_for(tx, actor.principal, action)
    wait = rate_limits.count(tx, actor.principal, action, holds.per_minute)
    if wait:
        seconds = math.ceil(wait)
        raise TooMany(
            f"{actor.principal} may {action} {holds.per_minute} times a minute",
            retry_after=seconds,
            fix=f"try again in {seconds} seconds",
        )

"""Rate limits: counts each use of an action, and refuses uses above the limit per minute of the principal."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from commonbook.access import permissions
from commonbook.errors import TooMany
from commonbook.tables import rate_limits

if TYPE_CHECKING:
    from commonbook.model.spaces import Actor
    from commonbook.ports.database import Transaction


def count_use(tx: Transaction, actor: Actor, action: str) -> None:
    """Count one use of the action in the transaction of the use itself; raise TooMany above the limit."""
    if permissions.is_owner(actor):
        return
    limit = rate_limits.limit_for(tx, actor.principal, action)
    wait = rate_limits.count(tx, actor.principal, action, limit.per_minute)
    if wait:
        seconds = math.ceil(wait)
        raise TooMany(
            f"{actor.principal} may {action} {limit.per_minute} times a minute",
            retry_after=seconds,
            fix=f"try again in {seconds} seconds",
        )

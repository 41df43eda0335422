"""Rate limits: counts each use of a class of verbs, and refuses uses above the limit per minute of the principal.

| class | counted by |
| --- | --- |
| `write` | the write transaction of every verb that changes something, and each append |
| `share` | each memory that is shared, besides the write |
| `request` | each request to share, besides the write |
| `recall` | each recall, prefetched ones too |
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from commonbook.access import permissions
from commonbook.errors import TooMany
from commonbook.tables import rate_counts

if TYPE_CHECKING:
    from commonbook.model.sharing import LimitedAction
    from commonbook.model.spaces import Actor
    from commonbook.ports.database import Reading, Transaction
    from commonbook.ports.engines import Engines


def count_use(tx: Transaction, actor: Actor, action: LimitedAction) -> None:
    """Count one use of the action in the transaction of the use itself; raise TooMany above the limit."""
    if permissions.is_owner(actor):
        return
    limit = rate_counts.limit_for(tx, actor.principal, action)
    if limit.per_minute is None:
        # Nothing is counted, so that the writes of one principal do not wait for each other.
        return
    wait = rate_counts.count(tx, actor.principal, action, limit.per_minute)
    if wait:
        seconds = math.ceil(wait)
        raise TooMany(
            f"{actor.principal} may {action} {limit.per_minute} times a minute",
            retry_after=seconds,
            fix=f"try again in {seconds} seconds",
        )


class NotCounted(Exception):
    """The recalls of this principal are limited, and this one is not counted yet."""


def require_counted(tx: Reading, actor: Actor) -> Callable[[], None]:
    """Send the query for the limit of an actor's recalls; the result raises NotCounted if there is one.

    So a recall without a limit, as most are, waits for nothing and writes nothing.
    """
    if permissions.is_owner(actor):
        return lambda: None
    limit = rate_counts.limit_for_deferred(tx, actor.principal, rate_counts.RECALL)

    def check() -> None:
        if limit().per_minute is not None:
            raise NotCounted

    return check


def count_recall(engines: Engines, actor: Actor) -> None:
    """Count one recall; raise TooMany above the limit. A count that is lost in a power cut does no harm."""
    engines.db.write(lambda tx: count_use(tx, actor, rate_counts.RECALL), durable=False)

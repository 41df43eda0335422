"""The audit of the signed log: verify its hash chains, and list the entries of a space that the actor may read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from commonbook.access import permissions
from commonbook.errors import BadInput, NotFound
from commonbook.log import chain, verify
from commonbook.tables import spaces
from commonbook.text import space_names

if TYPE_CHECKING:
    from commonbook.model.reports import LogEntry, LogReport, Progress
    from commonbook.model.spaces import Actor
    from commonbook.ports.database import Reading
    from commonbook.ports.engines import Engines

_MAX_SEQ: Final = 1 << 62


def verify_log(engines: Engines, actor: Actor, space: str | None, *, progress: Progress) -> LogReport:
    """Verify the signed log of one space or of all, and report the first bad entry of each."""
    with engines.db.reading() as tx:
        chosen = _require_spaces(tx, actor, space) if space else tuple(permissions.select(tx, actor))
        return verify.verify(tx, engines.keys, chosen, progress, every=frozenset(spaces.get_all(tx)))


def list_entries(engines: Engines, actor: Actor, space: str, *, after: int, limit: int) -> tuple[LogEntry, ...]:
    """Return entries of a space's log, in order."""
    if not 1 <= limit <= _MAX_SEQ or not 0 <= after <= _MAX_SEQ:
        raise BadInput("there is no such page of the log", fix="ask for one or more entries after a number from 0 on")
    with engines.db.reading() as tx:
        (chosen,) = _require_spaces(tx, actor, space_names.require_query_name(space))
        return tuple(chain.entries(tx, chosen, after=after, limit=limit))


def _require_spaces(tx: Reading, actor: Actor, name: str) -> tuple[str, ...]:
    chosen = tuple(permissions.select(tx, actor, name))
    if not chosen:
        raise NotFound(f"there is no space {name!r}", fix="`commonbook space list` shows the spaces")
    return chosen

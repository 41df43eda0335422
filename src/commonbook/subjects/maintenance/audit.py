"""The audit of the signed log: verify its hash chains, and list the entries of a space that the actor may read.

The change feed: the entries that were added to the logs of the readable spaces since a position. A position has a
number for each space, so that writers of two spaces need no common order. A space that the position does not name is
new to the reader, and read from its beginning.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final

from commonbook.core.access import permissions
from commonbook.core.log import chain, verify
from commonbook.core.tables import spaces
from commonbook.core.text import space_names
from commonbook.errors import BadInput, NotFound
from commonbook.values.ids import parse_time
from commonbook.values.reports import ChangeEvent, ChangePage, LogEntry

if TYPE_CHECKING:
    from commonbook.ports.database import Reading
    from commonbook.ports.engines import Engines
    from commonbook.values.reports import LogReport, Progress
    from commonbook.values.spaces import Actor, SpaceScope

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


_MAX_LIMIT: Final = 1000


def list_changes(engines: Engines, actor: Actor, *, after: str | None, space: str | None, limit: int) -> ChangePage:
    """Return the changes of the readable spaces after a position, and the position after them."""
    if not 1 <= limit <= _MAX_LIMIT:
        raise BadInput(f"a page has 1 to {_MAX_LIMIT} changes", fix="give such a `limit`")
    read = None if after is None else chain.parse_position(after)
    with engines.db.reading() as tx:
        permissions.require_valid_key(tx, actor)
        allowed = permissions.select(tx, actor, space)
        heads = {id_: seq for id_, (seq, _) in chain.heads(tx).items() if id_ in allowed}
        numbers = {id_: read.get(id_, 0) for id_ in allowed} if read is not None else dict.fromkeys(allowed, 0) | heads
        entries = list(islice(_entries_by_time(tx, numbers, heads, limit), limit))
    if entries or read is None:
        # The caller keeps the position: an entry that a power cut took away would hide the next one of its number.
        engines.db.make_durable()
    numbers |= {entry.space: entry.seq for entry in entries}
    return ChangePage(
        tuple(_event(entry, allowed) for entry in entries),
        chain.format_position(numbers),
        lost_spaces=len(read.keys() - allowed.keys()) if read is not None else 0,
    )


def _entries_by_time(tx: Reading, numbers: dict[str, int], heads: dict[str, int], limit: int) -> Iterator[LogEntry]:
    """Return the new entries of all spaces, merged by time; the entries of one space stay in their order."""
    changed = [id_ for id_, seq in sorted(heads.items()) if seq > numbers.get(id_, 0)]
    pages = (chain.entries(tx, id_, after=numbers[id_], limit=limit) for id_ in changed)
    return heapq.merge(*pages, key=lambda entry: (entry.time, entry.space))


def _event(entry: LogEntry, allowed: SpaceScope) -> ChangeEvent:
    return ChangeEvent(
        space=allowed[entry.space].name,
        number=entry.seq,
        time=parse_time(entry.time),
        actor=entry.actor,
        action=entry.action,
        subjects=tuple(json.loads(entry.subjects)),
    )


def log_size(engines: Engines) -> int:
    """Return the number of entries in the logs of all spaces together."""
    with engines.db.reading() as tx:
        return sum(seq for seq, _ in chain.heads(tx).values())

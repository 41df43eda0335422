"""The inbox: the open notices about memories that an actor may read, one page at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final

from commonbook.access import permissions
from commonbook.model.invalidation import CAUSES_WITHOUT_ID, ENDED, Invalidation, Notice
from commonbook.model.memory import Filter
from commonbook.model.reasoning import Inbox, InboxItem, MemoryReference
from commonbook.model.spaces import Actor, SpaceScope
from commonbook.model.stored_memory import StoredMemory
from commonbook.ports.database import Reading
from commonbook.ports.engines import Engines
from commonbook.reasoning import invalidations as graph
from commonbook.tables import memories, spaces
from commonbook.text import space_names, validation

_MIN_BATCH: Final = 100


def inbox(engines: Engines, actor: Actor, *, space: str | None, expired: bool, limit: int, after: str | None) -> Inbox:
    """Return the notices about memories that the actor may read, newest first.

    One about a proposed memory is for its author and for those who may decide about it, as the proposal itself is. Its
    space, named exactly, shows it to every reader.
    """
    validation.require_page_limit(limit)
    cursor = validation.parse_cursor(after) if after else None
    now = engines.clock.now()
    with engines.db.reading() as tx:
        all_spaces = spaces.get_all(tx)
        readable = permissions.readable(tx, actor, all_spaces)
        notice_spaces = _notice_spaces(readable, permissions.select(tx, actor, space))
        is_shown = _filter(actor, space, permissions.writable(tx, actor, all_spaces))
        found: list[tuple[StoredMemory, InboxItem]] = []
        size = max(limit + 1, _MIN_BATCH)
        # A page is filled with what matches, however many expired notices lie between.
        while len(found) <= limit:
            batch = memories.page(tx, notice_spaces, Filter(kinds=("notice",)), after=cursor, limit=size)
            current = [memory for memory in batch if expired or memory.expires is None or memory.expires > now]
            by_id = {memory.id: memory for memory in current if graph.is_open(memory)}
            found += [(by_id[item.id], item) for item in _items(tx, readable, is_shown, list(by_id.values()), now)]
            if len(batch) < size:
                break
            cursor = memories.cursor_position(batch[-1])
    following = memories.page_cursor(found[limit - 1][0]) if len(found) > limit else None
    return Inbox(tuple(item for _, item in found[:limit]), following)


def _notice_spaces(readable: SpaceScope, selected: SpaceScope) -> SpaceScope:
    """Return the readable spaces that hold the notices about memories of the selected spaces."""
    own = {space.name for space in selected.values()}
    names = own | {f"{space_names.reviewed_space(name)}/{space_names.INVALIDATIONS}" for name in own}
    return {
        id_: space
        for id_, space in readable.items()
        if space.name in names and space.name.rpartition("/")[2] == space_names.INVALIDATIONS
    }


def _filter(actor: Actor, name: str | None, writable: SpaceScope) -> Callable[[StoredMemory], bool]:
    """Return a function that tells whether notices about a memory are shown where that name is asked for."""
    named = (name or "").removesuffix("/")
    decided = {space.name for space in writable.values()}

    def is_shown(dependent: StoredMemory) -> bool:
        reviewed = space_names.reviewed_space(dependent.space.name)
        if named != space_names.reviewed_space(named):
            return dependent.space.name == named
        return not dependent.space.holds_proposals or dependent.author == actor.principal or reviewed in decided

    return is_shown


def _items(
    tx: Reading,
    readable: SpaceScope,
    is_shown: Callable[[StoredMemory], bool],
    open_notices: list[StoredMemory],
    now: datetime,
) -> list[InboxItem]:
    pairs = [(memory, memory.notice) for memory in open_notices if memory.notice is not None]
    dependents = memories.get_many(tx, readable, sorted({notice.dependent for _, notice in pairs}))
    live = {
        id_: dependent for id_, dependent in dependents.items() if dependent.deleted is None and is_shown(dependent)
    }
    all_spaces = spaces.get_all(tx)
    ancestors = graph.ancestors_of(tx, all_spaces, live.values())
    invalidations = {
        id_: {
            key: graph.visible_invalidation(invalidation, ancestors.known, readable)
            for key, invalidation in causes.items()
        }
        for id_, causes in graph.own_causes(tx, all_spaces, list(live.values()), ancestors, now).items()
    }
    mentioned = sorted({id_ for _, notice in pairs for id_ in notice.key} - CAUSES_WITHOUT_ID)
    headers = memories.get_headers(tx, all_spaces, mentioned)
    return [
        _item(
            memory,
            notice,
            live[notice.dependent],
            invalidations[notice.dependent].get(notice.key),
            headers,
            readable,
            now,
        )
        for memory, notice in pairs
        if notice.dependent in live
    ]


def _item(  # noqa: PLR0917 - one value from many
    memory: StoredMemory,
    notice: Notice,
    dependent: StoredMemory,
    invalidation: Invalidation | None,
    headers: Mapping[str, StoredMemory],
    readable: SpaceScope,
    now: datetime,
) -> InboxItem:
    superseding = headers.get(notice.invalidating)
    reasons = superseding.supersede_reasons if superseding else ()
    return InboxItem(
        id=memory.id,
        dependent=_reference(notice.dependent, {dependent.id: dependent}, readable),
        text=dependent.text,
        invalidated=_reference(notice.invalidated, headers, readable),
        invalidating=None
        if notice.invalidating in CAUSES_WITHOUT_ID
        else _reference(notice.invalidating, headers, readable),
        reason="".join(reason.why for reason in reasons if reason.superseded == notice.invalidated),
        by=memory.author,
        at=notice.at,
        expires=memory.expires,
        expired=memory.expires is not None and memory.expires <= now,
        depth=invalidation.depth if invalidation else 0,
        path=invalidation.path if invalidation else (),
        space=dependent.space.name,
        successor_ended=notice.invalidating == ENDED,
    )


def _reference(id_: str, headers: Mapping[str, StoredMemory], readable: SpaceScope) -> MemoryReference:
    """Return a reference to a memory, without title and space if it may not be read."""
    memory = headers.get(id_)
    if memory is None or memory.space.id not in readable:
        return MemoryReference(id_)
    return MemoryReference(id_, memory.title, memory.space.name, memory.deleted)

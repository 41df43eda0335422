"""Looking things up: nothing here changes anything."""

from __future__ import annotations

import posixpath
import re
from contextlib import suppress
from datetime import datetime

from commonbook.access.scope import readable
from commonbook.errors import BadInput, CommonbookError
from commonbook.memories.marks import live_ids, with_marks
from commonbook.model.memory import KINDS, LAZY, Filter, Link, Memory, Page, Revision
from commonbook.model.spaces import Actor
from commonbook.ports.engines import Engines
from commonbook.sharing import freshness, refresh
from commonbook.sharing.freshness import STALE
from commonbook.tables import links, memories, revisions, spaces
from commonbook.tables.memories import page_cursor, read_cursor
from commonbook.text import dates, space_paths, validation
from commonbook.text.validation import validate_kinds
from commonbook.write.context import no_memory

# --- reading


def get(engines: Engines, actor: Actor, memory_id: str) -> Memory:
    """Return one memory; a lazy copy that is stale takes over what its source says first, if it may."""
    memory = get_stored(engines, actor, memory_id)
    if memory.shared is None or memory.shared.mode != LAZY or memory.freshness != STALE:
        return memory
    with engines.db.reading() as tx:
        if not freshness.can_follow(tx, spaces.get_all(tx), [memory]):
            return memory
    # A home that is full or busy keeps nobody from reading: the copy is told as it is, and said to be stale.
    with suppress(CommonbookError):
        refresh.refresh_lazy(engines, memory.id)
    return get_stored(engines, actor, memory_id)


def get_stored(engines: Engines, actor: Actor, memory_id: str) -> Memory:
    """Return one memory with its links and marks."""
    memory_id = validation.validate_memory_id(memory_id)
    with engines.db.reading() as tx:
        allowed = readable(tx, actor)
        found = memories.find(tx, allowed, memory_id)
        if found is None or found.deleted is not None:
            raise no_memory(memory_id)
        return with_marks(engines, tx, allowed, [found], engines.clock.now())[0]


def find_id(engines: Engines, actor: Actor, part: str) -> str:
    """Return the id that begins or ends with these digits, or the one whose file this is."""
    name = part.strip().lower()
    tail = re.search(r"--([0-9a-f]{8,12})\.md\Z", name)
    digits = tail[1] if tail else name
    if not validation.is_unicode(part) or "\0" in part:
        return validation.validate_memory_id(part)
    with engines.db.reading() as tx:
        allowed = readable(tx, actor)
        whole = name if validation.is_memory_id(name) else memories.at_path(tx, posixpath.normpath(part.strip()))
        if whole is not None and memories.find(tx, allowed, whole) is not None:
            return whole
        if not re.fullmatch(r"[0-9a-f-]{4,36}", digits):
            return validation.validate_memory_id(part)
        found = memories.find_by_digits(tx, allowed, digits, limit=3)
    if not found:
        raise no_memory(part)
    if len(found) > 1:
        raise BadInput(f"{part!r} means several memories: {', '.join(found)} …", fix="give more digits of the id")
    return found[0]


def list_page(engines: Engines, actor: Actor, chosen: Filter, *, limit: int, after: str | None) -> Page:
    """Return the newest memories that the filter lets through, and the cursor of the next page."""
    validation.require_page_limit(limit)
    validate_kinds(chosen.kinds)
    behind = read_cursor(after) if after else None
    chosen = chosen._replace(tags=validation.validate_tags(chosen.tags), kinds=chosen.kinds or _usual(chosen.space))
    with engines.db.reading() as tx:
        allowed = readable(tx, actor, chosen.space)
        found = memories.page(
            tx,
            allowed,
            chosen,
            since=_time(engines, "since", chosen.since),
            until=_time(engines, "until", chosen.until),
            after=behind,
            limit=limit + 1,
        )
        items = with_marks(engines, tx, readable(tx, actor), found[:limit], engines.clock.now())
    following = page_cursor(items[-1]) if len(found) > limit else None
    return Page(tuple(items), following)


def _usual(space: str | None) -> tuple[str, ...]:
    """Return the kinds that are meant where none is named: notices only where nothing else is."""
    if space is not None and space.removesuffix("/").rpartition("/")[2] == space_paths.INVALIDATIONS:
        return ()
    return tuple(kind for kind in KINDS if kind != "notice")


def history(engines: Engines, actor: Actor, memory_id: str) -> tuple[Revision, ...]:
    """Return every title and text that a memory had, oldest first; a deleted memory has its history still."""
    memory_id = validation.validate_memory_id(memory_id)
    with engines.db.reading() as tx:
        memory = memories.find(tx, readable(tx, actor), memory_id)
        if memory is None:
            raise no_memory(memory_id)
        past = revisions.older(tx, memory)
    present = Revision(
        revision=memory.revision,
        title=memory.title,
        text=memory.text,
        author=memory.revised_by,
        at=memory.revised_at,
        how=memory.revised_how,
        current=memory.deleted is None,
    )
    return (*past, present)


def list_links(engines: Engines, actor: Actor, memory_id: str) -> tuple[Link, ...]:
    """Return the links of a memory in both directions, those that go out first."""
    memory = get_stored(engines, actor, memory_id)
    with engines.db.reading() as tx:
        incoming = links.incoming(tx, readable(tx, actor), [memory.id])
        live = live_ids(tx, readable(tx, actor), [link.source for link in incoming])
    return (*memory.links, *(link for link in incoming if link.source in live))


def _time(engines: Engines, name: str, value: datetime | str | None) -> datetime | None:
    if value is None:
        return None
    return dates.read_time(value, zone=engines.zone, edge=dates.field_edge(name), now=engines.clock.now())

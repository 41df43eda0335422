"""Reads memories: by id, by a part of the id, in pages, with their links.

The one write here is the refresh of a stale lazy copy before it is returned.
"""

from __future__ import annotations

import posixpath
import re
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Final

from commonbook.core.access import permissions
from commonbook.core.markdown import front_matter
from commonbook.core.tables import links, memories, spaces
from commonbook.core.text import space_names, user_times, validation
from commonbook.core.text.metadata import labels_of
from commonbook.core.text.validation import validate_kinds
from commonbook.errors import Ambiguous, BadInput, CommonbookError, NotFound
from commonbook.subjects.memories.marks import live_ids, with_invalidations, with_marks
from commonbook.subjects.sharing import freshness
from commonbook.subjects.sharing.freshness import REFRESHED_BY_READING
from commonbook.values.memory import KINDS, LAZY, MENTIONS, Filter, Kind, Link, Memory, Page
from commonbook.values.stored_memory import StoredMemory

if TYPE_CHECKING:
    from commonbook.ports.engines import Engines
    from commonbook.values.spaces import Actor

_MAX_NAMED: Final = 5
"""The number of memories that an error names at most."""

# --- reading


def get(engines: Engines, actor: Actor, memory_id: str) -> Memory:
    """Return one memory; a stale lazy copy is first refreshed from its source, if that is allowed."""
    memory = _get_stored(engines, actor, memory_id)
    if memory.shared is None or memory.shared.mode != LAZY or memory.freshness not in REFRESHED_BY_READING:
        return memory.public()
    with engines.db.reading() as tx:
        if not freshness.needing_refresh(tx, spaces.get_all(tx), [memory]):
            return memory.public()
    from commonbook.subjects.sharing import propagate  # Imported late: it brings the modules that write.

    # A full or busy home must not prevent reading: the copy is returned as it is, marked as stale.
    with suppress(CommonbookError):
        propagate.refresh_now(engines, memory.id)
    return _get_stored(engines, actor, memory_id).public()


def _get_stored(engines: Engines, actor: Actor, memory_id: str) -> StoredMemory:
    """Return one memory with its links and marks."""
    memory_id = validation.validate_memory_id(memory_id)
    with engines.db.reading() as tx:
        allowed = permissions.select(tx, actor)
        memory = memories.find(tx, allowed, memory_id)
        if memory is None or memory.deleted is not None:
            raise permissions.no_memory(memory_id)
        now = engines.clock.now()
        return with_invalidations(tx, allowed, with_marks(engines, tx, allowed, [memory], now), now)[0]


def find_id(engines: Engines, actor: Actor, part: str) -> str:
    """Return the id of the memory that is meant by digits of its id, by its file, its title or an alias.

    `Ambiguous` if several memories are.
    """
    name = part.strip().lower()
    file_suffix = re.search(r"--([0-9a-f]{8,12})\.md\Z", name)
    digits = file_suffix[1] if file_suffix else name
    if not name or not validation.is_unicode(part) or "\0" in part:
        return validation.validate_memory_id(part)
    with engines.db.reading() as tx:
        allowed = permissions.select(tx, actor)
        memory_id = name if validation.is_memory_id(name) else memories.at_path(tx, posixpath.normpath(part.strip()))
        if memory_id is not None and memories.find(tx, allowed, memory_id) is not None:
            return memory_id
        is_part_of_id = re.fullmatch(r"[0-9a-f-]{4,36}", digits) is not None
        ids = memories.find_by_digits(tx, allowed, digits, limit=_MAX_NAMED) if is_part_of_id else []
        named = {} if ids else links.named_in_spaces(tx, permissions.without_proposals(allowed), part)
    if len(ids) > 1:
        raise Ambiguous(f"{part!r} means several memories: {', '.join(ids)} …", fix="give more digits of the id")
    if len(named) > 1:
        paths = ", ".join(sorted(named)[:_MAX_NAMED]) + (" …" if len(named) > _MAX_NAMED else "")
        raise Ambiguous(f"several memories have that name: {paths}", fix="give the path of one, or its id")
    if ids or named:
        return (ids or list(named.values()))[0]
    if not is_part_of_id:
        raise NotFound(
            f"there is no memory with the id, file name or title {part!r}", fix="`commonbook list` shows what there is"
        )
    raise permissions.no_memory(part)


def list_page(engines: Engines, actor: Actor, chosen: Filter, *, limit: int, after: str | None) -> Page:
    """Return a page of the memories that match a filter, newest first, with the cursor of the next page."""
    validation.require_page_limit(limit)
    validate_kinds(chosen.kinds)
    metadata = front_matter.require_metadata(chosen.metadata)
    if metadata and chosen.deleted:
        raise BadInput("deleted memories are not found by their metadata", fix="list them by tags, kinds or times")
    cursor = validation.parse_cursor(after) if after else None
    chosen = chosen._replace(
        tags=(*validation.validate_tags(chosen.tags), *labels_of(metadata)),
        kinds=chosen.kinds or _default_kinds(chosen.space),
    )
    with engines.db.reading() as tx:
        allowed = permissions.without_proposals(permissions.select(tx, actor, chosen.space), chosen.space)
        rows = memories.page(
            tx,
            allowed,
            chosen,
            since=_parse_time(engines, "since", chosen.since),
            until=_parse_time(engines, "until", chosen.until),
            after=cursor,
            limit=limit + 1,
        )
        now, readable = engines.clock.now(), permissions.select(tx, actor)
        items = with_invalidations(tx, readable, with_marks(engines, tx, readable, rows[:limit], now), now)
    following = validation.format_cursor(*memories.cursor_position(items[-1])) if len(rows) > limit else None
    return Page(tuple(memory.public() for memory in items), following)


def _default_kinds(space: str | None) -> tuple[Kind, ...]:
    """Return the kinds of a filter that names none: all but notices, except in a space that holds only notices."""
    if space is not None and space.removesuffix("/").rpartition("/")[2] == space_names.INVALIDATIONS:
        return ()
    return tuple(kind for kind in KINDS if kind != "notice")


def list_links(engines: Engines, actor: Actor, memory_id: str) -> tuple[Link, ...]:
    """Return the links of a memory in both directions, outgoing links first; those in texts come last."""
    memory = _get_stored(engines, actor, memory_id)
    with engines.db.reading() as tx:
        incoming = links.incoming(
            tx, permissions.without_proposals(permissions.select(tx, actor), memory.space.name), memory.id
        )
        live = live_ids(tx, permissions.select(tx, actor), [link.source for link in incoming])
        mentioned = links.mentioned_by(tx, memory)
        mentioning = links.mentioning(tx, memory)
    return (
        *(link.public() for link in memory.links),
        *(Link(memory.id, MENTIONS, target) for target in mentioned),
        *(link.public() for link in incoming if link.source in live),
        *(Link(source, MENTIONS, memory.id) for source in mentioning),
    )


def _parse_time(engines: Engines, name: str, value: datetime | str | None) -> datetime | None:
    if value is None:
        return None
    return user_times.parse_user_time(
        value, zone=engines.zone, edge=user_times.field_edge(name), now=engines.clock.now()
    )

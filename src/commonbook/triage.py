"""Deciding about memories that are in doubt: the inbox of notices, and what becomes of each."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import partial

from commonbook import (
    memories,
    notices,
    paths,
    reading,
    reasoning,
    reflecting,
    rights,
    spaces,
    sync,
    takein,
    wording,
)
from commonbook.desk import Desk
from commonbook.doubt import Inbox, Mention, Triaged, Waiting
from commonbook.errors import BadInput, Conflict
from commonbook.judgement import DELETED, KEEP, REASONING, RETRACT, SUPERSEDE, VERDICTS, Cause, Notice
from commonbook.model import Filter, Link, Memory, Spaces
from commonbook.ports import Parts, Reading
from commonbook.principals import Actor

# --- what waits


def inbox(parts: Parts, actor: Actor, *, space: str | None, expired: bool, limit: int, after: str | None) -> Inbox:
    """Return the notices about memories that the actor may read, newest first."""
    wording.require_page_limit(limit)
    cursor = reading.read_cursor(after) if after else None
    now = parts.clock.now()
    with parts.db.reading() as tx:
        allowed = rights.readable(tx, actor, spaces.everything(tx))
        asked = reading.readable(tx, actor, space)
        places = _places(allowed, asked)
        found = memories.page(tx, places, Filter(kinds=("notice",)), after=cursor, limit=limit + 1)
        some = [one for one in found[:limit] if expired or one.expires is None or one.expires > now]
        items = _waiting(tx, allowed, [one for one in some if notices.is_open(one)], now)
    return Inbox(tuple(items), reading.page_cursor(found[limit - 1]) if len(found) > limit else None)


def _places(allowed: Spaces, asked: Spaces) -> Spaces:
    """Return the spaces with the notices about memories of the asked ones."""
    names = {f"{one.name}/{paths.INVALIDATIONS}" for one in asked.values()} | {one.name for one in asked.values()}
    return {
        id_: one
        for id_, one in allowed.items()
        if one.name in names and one.name.rpartition("/")[2] == paths.INVALIDATIONS
    }


def _waiting(tx: Reading, allowed: Spaces, found: list[Memory], now: datetime) -> list[Waiting]:
    told = [(notice, notice.notice) for notice in found if notice.notice is not None]
    there = memories.several(tx, allowed, sorted({said.dependent for _, said in told}))
    live = {id_: one for id_, one in there.items() if one.deleted is None}
    every = spaces.everything(tx)
    above = reasoning.above(tx, every, live.values())
    causes = {
        id_: {key: reasoning.shown(cause, above.known, allowed) for key, cause in found.items()}
        for id_, found in ((id_, reasoning.causes(one, above, own=True)) for id_, one in live.items())
    }
    named = memories.outlines(tx, every, sorted({id_ for _, said in told for id_ in said.key if id_ != DELETED}))
    return [
        _one(notice, said, live[said.dependent], causes[said.dependent].get(said.key), named, allowed, now)
        for notice, said in told
        if said.dependent in live
    ]


def _one(  # noqa: PLR0917 - one value from many
    notice: Memory,
    said: Notice,
    dependent: Memory,
    cause: Cause | None,
    named: Mapping[str, Memory],
    allowed: Spaces,
    now: datetime,
) -> Waiting:
    superseding = named.get(said.invalidating)
    reasons = [one.why for one in superseding.because if one.superseded == said.invalidated] if superseding else []
    return Waiting(
        id=notice.id,
        dependent=_mention(said.dependent, {dependent.id: dependent}, allowed),
        text=dependent.text,
        invalidated=_mention(said.invalidated, named, allowed),
        invalidating=None if said.invalidating == DELETED else _mention(said.invalidating, named, allowed),
        reason="".join(reasons),
        by=notice.author,
        at=said.at,
        expires=notice.expires,
        expired=notice.expires is not None and notice.expires <= now,
        depth=cause.depth if cause else 0,
        path=cause.path if cause else (),
        space=dependent.space.name,
    )


def _mention(id_: str, named: Mapping[str, Memory], allowed: Spaces) -> Mention:
    memory = named.get(id_)
    if memory is None or memory.space.id not in allowed:
        return Mention(id_)
    return Mention(id_, memory.title, memory.space.name, memory.deleted)


# --- deciding


def triage(
    parts: Parts, actor: Actor, memory_id: str, verdict: str, *, note: str = "", by: str | None = None
) -> Triaged:
    """Decide about a notice, or about all doubts of a memory at once."""
    memory_id = wording.memory_id(memory_id)
    if verdict not in VERDICTS:
        raise BadInput(f"{verdict!r} is no decision", fix=f"use one of {', '.join(VERDICTS)}")
    if (by is not None) != (verdict == SUPERSEDE):
        raise BadInput("what supersedes the memory goes with `supersede`, and only with it", fix="name it by its id")
    by = wording.memory_id(by) if by is not None else None
    line = reflecting.said_in_a_line(note, "note")
    return sync.write_with_a_look(
        parts, actor, partial(_triage, memory_id=memory_id, verdict=verdict, note=line, by=by)
    )


def _triage(desk: Desk, *, memory_id: str, verdict: str, note: str, by: str | None, looked: bool) -> Triaged:
    asked = desk.look_at(memory_id)
    said = asked.notice if notices.is_open(asked) else None
    memory = takein.fresh(desk, desk.require(said.dependent if said else asked.id), looked=looked)
    open_ = _doubts(desk, memory)
    settled = [one for one in open_ if said is None or one.key == said.key]
    above = reasoning.above(desk.tx, desk.spaces, [memory])
    outdated = said is None and verdict == KEEP and reading.is_outdated(memory, above.known)
    if not settled and not outdated:
        raise Conflict(f"memory {memory.id} is not in doubt", fix="`commonbook inbox` shows what waits for a decision")
    successor = takein.fresh(desk, desk.require(by), looked=looked) if by else None
    memory = notices.decide(desk, memory, settled, verdict, note, **_changed(desk, memory, verdict, above.known))
    keys = {one.key for one in settled}
    for notice in notices.about(desk.tx, desk.spaces, memory.id):
        if notice.notice is not None and notice.notice.key in keys:
            notices.take_away(desk, notice, how="triage", verdict=verdict)
    if successor is not None:
        reflecting.superseded(desk, memory, successor, note)
    return Triaged(memory.id, verdict, len(settled), memory.version, memory.space.name, memory.path)


def _doubts(desk: Desk, memory: Memory) -> tuple[Cause, ...]:
    """Return what a memory is in doubt for, while nobody changes what it rests on."""
    above = reasoning.above(desk.tx, desk.spaces, [memory], hold=desk.hold)
    return reasoning.doubts(memory, above)


def _changed(desk: Desk, memory: Memory, verdict: str, known: Mapping[str, Memory]) -> dict[str, object]:
    """Return which fields of a memory change with a verdict."""
    if verdict == KEEP:
        # It was looked at as things are now.
        return {"links": tuple(_looked_at(link, known) for link in memory.links)}
    if verdict == RETRACT:
        now = desk.tx.now
        ends = memory.valid_until if memory.valid_until and memory.valid_until < now else now
        holds = memory.valid_from is None or memory.valid_from < ends
        return {"expires": now, "valid_until": ends if holds else memory.valid_until}
    return {}


def _looked_at(link: Link, known: Mapping[str, Memory]) -> Link:
    target = known.get(link.target)
    if target is None or link.relation not in REASONING or link.revision is None:
        return link
    return link._replace(revision=target.revision)

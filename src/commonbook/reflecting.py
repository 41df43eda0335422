"""Reflecting on memories, superseding and reinstating them, and looking what rests on what."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from commonbook import (
    amend,
    foundations,
    links,
    memories,
    notices,
    paths,
    reading,
    reasoning,
    remember,
    rights,
    spaces,
    sync,
    takein,
    wording,
)
from commonbook.desk import Desk, no_memory
from commonbook.doubt import Dependent, Superseded
from commonbook.errors import BadInput, Conflict, NotFound
from commonbook.judgement import Because
from commonbook.model import Draft, Link, Memory, Receipt, Space
from commonbook.ports import Parts
from commonbook.principals import FILESYSTEM_ACTOR, Actor
from commonbook.writing import logging_refusal, write

MOST: Final = 10_000
"""So many dependents are shown."""

DEEPEST: Final = 10
_LONGEST_REASON: Final = 1000

# --- reflecting


def reflect(parts: Parts, actor: Actor, draft: Draft, *, on: Sequence[str]) -> Receipt:
    """Store a reflection on some memories."""
    if not on:
        raise BadInput("a reflection is on something", fix="name the memories that it was reasoned from")
    linked = tuple(("reflects_on", memory_id) for memory_id in on)
    return remember.remember(parts, actor, [draft._replace(kind="reflection", links=(*draft.links, *linked))])[0]


def set_depth(parts: Parts, actor: Actor, name: str, depth: int | None) -> Space:
    """Set how deep reflections may stand on each other in a space and below it; None: as above it."""
    if depth is not None and (isinstance(depth, bool) or not 1 <= depth <= DEEPEST):
        raise BadInput(f"a depth of {depth} is out of range", fix=f"give 1 to {DEEPEST}")
    paths.require_space_name(name)

    def story(desk: Desk) -> Space:
        if name not in {space.name for space in desk.spaces.values()}:
            rights.require_create(desk.tx, desk.actor, desk.spaces, name)
            raise NotFound(f"there is no space {name!r}", fix="`commonbook space list` shows the spaces")
        space = rights.require_admin(desk.tx, desk.actor, desk.spaces, name)
        if space.depth == depth:
            return space
        changed = desk.spaces[space.id] = spaces.set_depth(desk.tx, space, depth)
        desk.log(changed, "space.depth", (), depth=depth)
        return changed

    return write(parts, actor, story)


# --- superseding


def supersede(parts: Parts, actor: Actor, old_id: str, *, by: str, reason: str = "") -> Superseded:
    """Let a memory supersede another, and tell everybody who rests on that one; doing it again changes nothing."""
    old_id, by = wording.memory_id(old_id), wording.memory_id(by)
    why = said_in_a_line(reason, "reason")
    with logging_refusal(parts, actor, "supersede", [old_id]):
        return sync.write_with_a_look(parts, actor, partial(_supersede, old_id=old_id, by=by, why=why))


def said_in_a_line(said: str, what: str) -> str:
    """Return a reason or note on one line, or refuse it."""
    line = " ".join(wording.text(said).split())
    if len(line) > _LONGEST_REASON:
        raise BadInput(f"the {what} has {len(line)} characters", fix=f"say it in {_LONGEST_REASON}")
    if not line.isprintable():
        raise BadInput(f"the {what} has control characters", fix="take them out")
    return line


def _supersede(desk: Desk, *, old_id: str, by: str, why: str, looked: bool) -> Superseded:
    desk.hold([old_id])
    old = desk.require(old_id)
    new = takein.fresh(desk, desk.require(by), looked=looked)
    return superseded(desk, old, new, why)


def superseded(desk: Desk, old: Memory, new: Memory, why: str) -> Superseded:
    """Let one memory supersede another at a desk; the actor has the right to, and nobody changes them meanwhile."""
    if new.id == old.id:
        raise BadInput("a memory cannot supersede itself", fix="name another memory, or edit this one")
    if any((one.relation, one.target) == ("supersedes", old.id) for one in new.links):
        return Superseded(old.id, new.id, new=False, notified=0)
    link = Link(new.id, "supersedes", old.id, old.revision)
    foundations.require_sound(desk, new, [link])
    because = tuple(one for one in new.because if one.superseded != old.id)
    said = new._replace(links=(*new.links, link), because=(*because, Because(old.id, why)) if why else because)
    amend.amend(desk, new, said, ["links"], how="supersede", superseded=old.id)
    if old.space.id != new.space.id:
        desk.log(old.space, "superseded", (old.id,), by=new.id)
    told = notices.spread(desk)
    readable = desk.readable
    return Superseded(old.id, new.id, new=True, notified=sum(one.space.id in readable for one in told))


def reinstate(parts: Parts, actor: Actor, old_id: str, *, by: str | None = None) -> Superseded:
    """Take back that a memory was superseded, by one memory or by all: its dependents are no longer in doubt for it."""
    old_id = wording.memory_id(old_id)
    by = wording.memory_id(by) if by is not None else None
    return sync.write_with_a_look(parts, actor, partial(_reinstate, old_id=old_id, by=by))


def _reinstate(desk: Desk, *, old_id: str, by: str | None, looked: bool) -> Superseded:
    """The right to write to the old memory is enough: what superseded it only loses the claim to have done so."""
    desk.hold([old_id])
    old = desk.require(old_id)
    found = links.from_anywhere(desk.tx, [old.id], relations=("supersedes",))
    ids = sorted({link.source for link in found if by is None or link.source == by} - {old.id})
    desk.hold(ids)
    there = memories.several(desk.tx, desk.spaces, ids)
    live = [there[id_] for id_ in ids if id_ in there and there[id_].deleted is None]
    if not live:
        who = f" by {by}" if by else ""
        raise Conflict(f"memory {old.id} is not superseded{who}", fix="`commonbook show` says what supersedes it")
    for outline in live:
        new = takein.fresh(desk.acting_as(FILESYSTEM_ACTOR), outline, looked=looked)
        said = new._replace(
            links=tuple(one for one in new.links if (one.relation, one.target) != ("supersedes", old.id)),
            because=tuple(one for one in new.because if one.superseded != old.id),
        )
        amend.amend(desk, new, said, ["links"], how="reinstate", superseded=old.id)
    readable = desk.readable
    shown = [one.id for one in live if one.space.id in readable]
    return Superseded(old.id, shown[0] if shown else "", new=False, notified=0)


# --- looking


def dependents(parts: Parts, actor: Actor, memory_id: str) -> tuple[Dependent, ...]:
    """Return every memory that rests on one, or on a copy of it, the nearest first, as far as the actor may read."""
    memory_id = wording.memory_id(memory_id)
    with parts.db.reading() as tx:
        every = spaces.everything(tx)
        allowed = rights.readable(tx, actor, every)
        memory = memories.find(tx, allowed, memory_id)
        if memory is None:
            raise no_memory(memory_id)
        resting = reasoning.below(tx, every, [memory.id], most=MOST)
        shown = [one for one in resting.values() if one.own and one.memory.deleted is None]
        shown = [one for one in shown if one.memory.space.id in allowed and one.memory.id != memory.id][:MOST]
        above = reasoning.above(tx, every, [one.memory for one in shown])
        known = memories.outlines(tx, allowed, sorted({id_ for one in shown for id_ in one.path}))
        return tuple(
            Dependent(
                id=one.memory.id,
                title=one.memory.title,
                space=one.memory.space.name,
                kind=one.memory.kind,
                depth=one.depth,
                path=tuple(id_ if id_ in known else None for id_ in one.path),
                suspect=bool(reasoning.doubts(one.memory, above)),
                source_changed=reading.is_outdated(one.memory, above.known),
            )
            for one in shown
        )

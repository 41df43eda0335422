"""Sharing: copies of memories in other spaces, tied to their sources, and what can be done with them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from hashlib import blake2b
from typing import Final

from commonplace import (
    amend,
    copies,
    following,
    freshness,
    granting,
    grants,
    jobs,
    links,
    memories,
    paths,
    reading,
    rights,
    spaces,
    sync,
    takein,
    titles,
    wording,
)
from commonplace.desk import Desk, no_memory
from commonplace.errors import BadInput, CommonplaceError, Conflict, NotAllowed, NotFound, TooLarge
from commonplace.freshness import DIVERGED, REVOKED, SOURCE_DELETED, STALE
from commonplace.model import (
    DETACHED,
    LAZY,
    LIVE,
    LOCAL_OWNER,
    MODES,
    Link,
    Memory,
    Receipt,
    Shared,
    Space,
    Spaces,
    new_id,
)
from commonplace.ports import Parts, Reading, Transaction
from commonplace.principals import WRITER, Grant
from commonplace.provenance import Sharing
from commonplace.remember import receipt_of
from commonplace.writing import write

MOST_AT_ONCE: Final = 100

# --- sharing


def share(parts: Parts, actor: str, memory_id: str, to: str, *, refresh: str = LIVE) -> Sharing:
    """Copy a memory into a space, tied to its source; if the space has it already, return what is there, unchanged."""
    memory_id = wording.memory_id(memory_id)
    _mode(refresh)
    paths.require_space_name(to)
    return write(parts, actor, lambda desk: _share(desk, memory_id, desk.space(to), refresh))


def share_many(parts: Parts, actor: str, ids: Sequence[str], to: str, *, refresh: str = LIVE) -> tuple[Sharing, ...]:
    """Share several memories into a space, each for itself; what became of each is told."""
    if len(ids) > MOST_AT_ONCE:
        raise TooLarge(f"{len(ids)} memories are too many at once", fix=f"share at most {MOST_AT_ONCE} at a time")
    _mode(refresh)
    paths.require_space_name(to)
    return tuple(_one_of_many(parts, actor, memory_id, to, refresh) for memory_id in ids)


def _one_of_many(parts: Parts, actor: str, memory_id: str, to: str, refresh: str) -> Sharing:
    try:
        return share(parts, actor, memory_id, to, refresh=refresh)
    except CommonplaceError as error:
        return Sharing(id="", source=memory_id, space=to, new=False, error=f"{error.type}: {error.message}")


def share_with(parts: Parts, actor: str, memory_id: str, principal: str, *, refresh: str = LIVE) -> Sharing:
    """Share a memory with one principal alone: into a space that only the two can read."""
    memory_id = wording.memory_id(memory_id)
    _mode(refresh)
    principal = granting.principal_name(principal)
    if principal == actor:
        raise BadInput(
            "a memory is shared with somebody else", fix="name another principal, or `share` it into a space"
        )

    def story(desk: Desk) -> Sharing:
        desk.look_at(memory_id)
        return _share(desk, memory_id, _between(desk, principal), refresh)

    return write(parts, actor, story)


def _between(desk: Desk, principal: str) -> Space:
    """Return the space of the actor and a principal, made and granted to just these two if it is not there."""
    both = sorted({str(desk.actor), principal})
    name = f"{paths.BETWEEN}/{blake2b(' '.join(both).encode(), digest_size=8).hexdigest()}"
    there = any(space.name == name for space in desk.spaces.values())
    space = desk.system_space(name)
    if not there:
        for one in both:
            if one != LOCAL_OWNER:
                grants.give(desk.tx, Grant(one, space, WRITER, str(desk.actor), desk.tx.now))
                desk.log(space, "grant", (), principal=one, role=WRITER, expires=None)
    if space.id not in desk.writable:
        raise rights.refusal(desk.actor, name)
    return space


def _share(desk: Desk, memory_id: str, to: Space, refresh: str) -> Sharing:
    source = desk.look_at(memory_id)
    if source.kind == "notice":
        raise BadInput("a notice is not shared: it concerns one memory here", fix="share the memory that it names")
    there = _there_already(desk, source, to)
    if there is not None:
        return _sharing(there, source, new=False)
    copy = _copy(desk, source, to, refresh)
    if not copies.tie(desk.tx, copy):
        # Somebody else was quicker, on another machine: theirs is the copy.
        there = _there_already(desk, source, to)
        if there is not None:
            return _sharing(there, source, new=False)
        raise Conflict(f"{source.id} is being shared into {to.name!r} by somebody else", fix="try again")
    memories.add(desk.tx, [copy])
    links.add(desk.tx, to.id, copy.links)
    desk.log_memory(copy, "share", source.id, source_revision=source.revision, refresh=refresh)
    desk.issue([copy])
    return _sharing(copy, source, new=True)


def _there_already(desk: Desk, source: Memory, to: Space) -> Memory | None:
    """Return what a space has of a memory's root: the root itself, or the copy of it."""
    known = {to.id: to}
    root = memories.find(desk.tx, known, source.root)
    if root is not None and root.deleted is None:
        return root
    copy_id = copies.of_root(desk.tx, source.root, to.id)
    return memories.find(desk.tx, known, copy_id) if copy_id else None


def _copy(desk: Desk, source: Memory, to: Space, refresh: str) -> Memory:
    copy_id = new_id()
    slug = titles.slug(source.title)
    path = paths.path_for(to.name, desk.tx.now, slug, copy_id)
    if memories.at_path(desk.tx, path):
        path = paths.path_for(to.name, desk.tx.now, slug, copy_id, taken=True)
    return source._replace(
        id=copy_id,
        space=to,
        created=desk.tx.now,
        updated=desk.tx.now,
        revision=1,
        version=1,
        revised_by=str(desk.actor),
        revised_at=desk.tx.now,
        revised_how="share",
        path=path,
        layout="",
        links=(Link(copy_id, "shared_from", source.id, source.revision),),
        session=None,
        shared=Shared(refresh, source.root, str(desk.actor), desk.tx.now, own=1),
    )


def _sharing(memory: Memory, source: Memory, *, new: bool) -> Sharing:
    return Sharing(
        id=memory.id,
        source=source.id,
        space=memory.space.name,
        new=new,
        refresh=memory.shared.mode if memory.shared else None,
        revision=memory.revision,
    )


def _mode(refresh: str) -> str:
    if refresh not in MODES:
        raise BadInput(f"{refresh!r} is no way to refresh a copy", fix=f"use one of {', '.join(MODES)}")
    return refresh


# --- what becomes of a copy


def unshare(parts: Parts, actor: str, copy_id: str) -> Receipt:
    """Remove a copy; copies that were made from it stay, and say that their source is deleted."""

    def story(desk: Desk, copy: Memory) -> Memory:
        amend.remove(desk, copy, how="unshare")
        return copy

    return _with_copy(parts, actor, copy_id, story)


def refresh(parts: Parts, actor: str, copy_id: str) -> Receipt:
    """Let a copy take over what its source says now, in the name of the one who shared it."""

    def story(desk: Desk, copy: Memory) -> Memory:
        _require_source(desk, copy, unless=(DETACHED, REVOKED, SOURCE_DELETED, DIVERGED))
        if copies.require(copy)[0].claimed:
            raise Conflict(
                f"the copy {copy.id} came by import: nobody here saw it being shared",
                fix="`adopt` ties it to its source in your name, `detach` ends the tie",
            )
        return _brought_up(desk, copy)

    return _with_copy(parts, actor, copy_id, story)


def detach(parts: Parts, actor: str, copy_id: str) -> Receipt:
    """End the tie between a copy and its source; where it came from stays known."""

    def story(desk: Desk, copy: Memory) -> Memory:
        if copy.shared is None or copy.shared.mode == DETACHED:
            return copy
        said = copy._replace(shared=copy.shared._replace(mode=DETACHED))
        return amend.amend(desk, copy, said, ["shared"], how="detach")

    return _with_copy(parts, actor, copy_id, story)


def adopt(parts: Parts, actor: str, copy_id: str) -> Receipt:
    """Let a copy that was edited here say what its source says again; what it said stays in its history.

    One that came by import follows its source from then on, in the name of the one who adopts it.
    """

    def story(desk: Desk, found: Memory) -> Memory:
        copy = _vouched_for(desk, found)
        source = _require_source(desk, copy, unless=(DETACHED, REVOKED, SOURCE_DELETED))
        if copy == found and not freshness.has_diverged(copy) and not freshness.is_stale(copy, source):
            return copy
        return following.taken_over(desk, copy, source)

    return _with_copy(parts, actor, copy_id, story)


def _vouched_for(desk: Desk, copy: Memory) -> Memory:
    """Return a copy whose tie came by import as one that the actor shared, which must be able to read its source."""
    shared, _ = copies.require(copy)
    if not shared.claimed or shared.mode == DETACHED:
        return copy
    return copy._replace(shared=shared._replace(by=str(desk.actor), at=desk.tx.now, claimed=False))


def _with_copy(parts: Parts, actor: str, copy_id: str, story: following.Change) -> Receipt:
    copy_id = wording.memory_id(copy_id)

    def whole(desk: Desk, *, looked: bool) -> Receipt:
        copy = takein.fresh(desk, desk.require(copy_id), looked=looked)
        copies.require(copy)
        return receipt_of(story(desk, copy), new=False)

    return sync.write_with_a_look(parts, actor, whole)


def _require_source(desk: Desk, copy: Memory, *, unless: Sequence[str]) -> Memory:
    """Return the source of a copy, or raise why it cannot be taken over."""
    _, link = copies.require(copy)
    desk.hold([link.target])
    stands = freshness.of(desk.tx, desk.spaces, [copy])[copy.id].freshness
    if stands in unless:
        raise _WHY_NOT[stands](copy.id)
    source = memories.find(desk.tx, desk.spaces, link.target)
    if source is None:
        raise no_memory(link.target)
    return source


def _detached(copy_id: str) -> CommonplaceError:
    return Conflict(f"the copy {copy_id} was detached from its source", fix="share the source again for a new copy")


def _revoked(copy_id: str) -> CommonplaceError:
    return NotAllowed(
        f"whoever shared the copy {copy_id} may no longer read its source", fix="ask for a grant, or detach the copy"
    )


def _source_deleted(copy_id: str) -> CommonplaceError:
    return NotFound(f"the source of the copy {copy_id} is deleted", fix="detach the copy, or unshare it")


def _diverged(copy_id: str) -> CommonplaceError:
    return Conflict(
        f"the copy {copy_id} was edited here", fix="`adopt` takes the source's text, `detach` keeps this one"
    )


_WHY_NOT: Final = {
    DETACHED: _detached,
    REVOKED: _revoked,
    SOURCE_DELETED: _source_deleted,
    DIVERGED: _diverged,
}


def _brought_up(desk: Desk, copy: Memory, left: int = freshness.FURTHEST) -> Memory:
    """Let a copy and, before it, the copies that it came through take over what their sources say."""
    link = copy.source
    desk.hold([link.target] if link else [])
    source = memories.find(desk.tx, desk.spaces, link.target) if link else None
    if source is None:
        return copy
    if left and source.shared is not None and source.shared.mode in (LIVE, LAZY):
        source = _brought_up(desk, source, left - 1)
    return following.refreshed(desk, copy, source) or copy


# --- reading


def get(parts: Parts, actor: str, memory_id: str) -> Memory:
    """Return one memory; a lazy copy that is stale takes over what its source says first, if it may."""
    memory = reading.get(parts, actor, memory_id)
    if memory.shared is None or memory.shared.mode != LAZY or memory.freshness != STALE:
        return memory
    renew(parts, memory.id)
    return reading.get(parts, actor, memory_id)


def renew(parts: Parts, copy_id: str) -> None:
    """Let a lazy copy take over what its source says, in the name of the one who shared it."""

    def story(desk: Desk) -> None:
        desk.hold([copy_id])
        copy = memories.find(desk.tx, desk.spaces, copy_id)
        if copy is not None and copies.is_tied(copy):
            _brought_up(desk, copy)

    write(parts, LOCAL_OWNER, story)


# --- in the background

RENEW: Final = "renew"
"""A recall has served a lazy copy that was stale; the subject is the copy."""


def ask_to_renew(parts: Parts, stale: Sequence[Memory]) -> None:
    """Ask for lazy copies to be refreshed soon; a recall itself changes none."""

    def story(tx: Transaction) -> None:
        for copy in stale:
            jobs.ask(tx, space=copy.space.id, kind=RENEW, subject=copy.id, due=tx.now)

    parts.db.write(story, durable=False)


def work(parts: Parts, actor: str, *, until: datetime | None = None) -> int:
    """Let copies follow that had to wait; return how many jobs were done. One that fails is tried again, and shown."""
    kinds, count = (following.JOB, RENEW), 0
    with parts.db.reading() as tx:
        if not jobs.is_due(tx, _writable(tx, actor), kinds=kinds, now=parts.clock.now()):
            return count
    while until is None or parts.clock.now() < until:
        job = parts.db.write(lambda tx: jobs.take(tx, _writable(tx, actor), kinds=kinds), durable=False)
        if job is None:
            return count
        _do(parts, actor, job)
        count += 1
    return count


def _do(parts: Parts, actor: str, job: jobs.Job) -> None:
    try:
        if job.kind == RENEW:
            renew(parts, job.subject)
        after: str | None = "" if job.kind == following.JOB else None
        while after is not None:
            after = write(parts, actor, partial(following.some, source_id=job.subject, after=after))
    except Exception as error:  # noqa: BLE001 - whatever goes wrong is kept with the job, tried again, and shown
        why = f"{type(error).__name__}: {error}"
        parts.db.write(lambda tx: jobs.failed(tx, job, why), durable=False)
        return
    parts.db.write(lambda tx: jobs.done(tx, job), durable=False)


def _writable(tx: Reading, actor: str) -> Spaces:
    return rights.writable(tx, actor, spaces.everything(tx))

"""Sharing: copies of memories in other spaces, tied to their sources, and what can be done with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import Final

from commonbook import (
    amend,
    copies,
    copying,
    following,
    freshness,
    granting,
    grants,
    limiting,
    limits,
    memories,
    paths,
    reading,
    refreshing,
    rights,
    spaces,
    sync,
    takein,
    wording,
)
from commonbook.desk import Desk, no_memory
from commonbook.errors import BadInput, CommonbookError, Conflict, NotAllowed, NotFound, TooLarge
from commonbook.freshness import DIVERGED, REVOKED, SOURCE_DELETED, STALE
from commonbook.model import (
    DETACHED,
    LAZY,
    LIVE,
    LOCAL_OWNER,
    Memory,
    Receipt,
    Space,
)
from commonbook.ports import Parts
from commonbook.principals import WRITER, Actor, Grant
from commonbook.provenance import Sharing
from commonbook.remember import receipt_of
from commonbook.writing import write

MOST_AT_ONCE: Final = 100

# --- sharing


def share(parts: Parts, actor: Actor, memory_id: str, to: str, *, refresh: str = LIVE) -> Sharing:
    """Copy a memory into a space, tied to its source; if the space has it already, return what is there, unchanged."""
    memory_id = wording.memory_id(memory_id)
    copying.mode(refresh)
    paths.require_space_name(to)

    def story(desk: Desk) -> Sharing:
        space = desk.space(to)
        source = desk.look_at(memory_id)
        limiting.count(desk.tx, desk.actor, limits.SHARE)
        return copying.copied(desk, source, space, refresh)

    return write(parts, actor, story)


def share_many(parts: Parts, actor: Actor, ids: Sequence[str], to: str, *, refresh: str = LIVE) -> tuple[Sharing, ...]:
    """Share several memories into a space, each for itself; what became of each is told."""
    if len(ids) > MOST_AT_ONCE:
        raise TooLarge(f"{len(ids)} memories are too many at once", fix=f"share at most {MOST_AT_ONCE} at a time")
    copying.mode(refresh)
    paths.require_space_name(to)
    return tuple(_one_of_many(parts, actor, memory_id, to, refresh) for memory_id in ids)


def _one_of_many(parts: Parts, actor: Actor, memory_id: str, to: str, refresh: str) -> Sharing:
    try:
        return share(parts, actor, memory_id, to, refresh=refresh)
    except CommonbookError as error:
        return Sharing(id="", source=memory_id, space=to, new=False, error=f"{error.type}: {error.message}")


def share_with(parts: Parts, actor: Actor, memory_id: str, principal: str, *, refresh: str = LIVE) -> Sharing:
    """Share a memory with one principal alone: into a space that only the two can read."""
    memory_id = wording.memory_id(memory_id)
    copying.mode(refresh)
    principal = granting.principal_name(principal)
    if principal == actor.principal:
        raise BadInput(
            "a memory is shared with somebody else", fix="name another principal, or `share` it into a space"
        )

    def story(desk: Desk) -> Sharing:
        source = desk.look_at(memory_id)
        limiting.count(desk.tx, desk.actor, limits.SHARE)
        return copying.copied(desk, source, _between(desk, principal), refresh)

    return write(parts, actor, story)


def _between(desk: Desk, principal: str) -> Space:
    """Return the space of the actor and a principal, made and granted to just these two if it is not there."""
    both = sorted({desk.actor.principal, principal})
    name = f"{paths.BETWEEN}/{blake2b(' '.join(both).encode(), digest_size=8).hexdigest()}"
    there = any(space.name == name for space in desk.spaces.values())
    space = desk.system_space(name)
    if not there:
        for one in both:
            if one != LOCAL_OWNER:
                grants.give(desk.tx, Grant(one, space, WRITER, desk.actor.principal, desk.tx.now))
                desk.log(space, "grant", (), principal=one, role=WRITER, expires=None)
    if space.id not in desk.writable:
        raise rights.refusal(desk.actor, name)
    return space


# --- what becomes of a copy


def unshare(parts: Parts, actor: Actor, copy_id: str) -> Receipt:
    """Remove a copy; copies that were made from it stay, and say that their source is deleted."""

    def story(desk: Desk, copy: Memory) -> Memory:
        amend.remove(desk, copy, how="unshare")
        return copy

    return _with_copy(parts, actor, copy_id, story)


def refresh(parts: Parts, actor: Actor, copy_id: str) -> Receipt:
    """Let a copy take over what its source says now, in the name of the one who shared it."""

    def story(desk: Desk, copy: Memory) -> Memory:
        _require_source(desk, copy, unless=(DETACHED, REVOKED, SOURCE_DELETED, DIVERGED))
        if copies.require(copy)[0].claimed:
            raise Conflict(
                f"the copy {copy.id} came by import: nobody here saw it being shared",
                fix="`adopt` ties it to its source in your name, `detach` ends the tie",
            )
        refreshing.refresh_chain(desk, copy.id)
        return memories.find(desk.tx, desk.spaces, copy.id) or copy

    return _with_copy(parts, actor, copy_id, story, first=refreshing.lock_chain)


def detach(parts: Parts, actor: Actor, copy_id: str) -> Receipt:
    """End the tie between a copy and its source; where it came from stays known."""

    def story(desk: Desk, copy: Memory) -> Memory:
        if copy.shared is None or copy.shared.mode == DETACHED:
            return copy
        said = copy._replace(shared=copy.shared._replace(mode=DETACHED))
        return amend.amend(desk, copy, said, ["shared"], how="detach")

    return _with_copy(parts, actor, copy_id, story)


def adopt(parts: Parts, actor: Actor, copy_id: str) -> Receipt:
    """Let a copy that was edited here say what its source says again; what it said stays in its history.

    One that came by import follows its source from then on, in the name of the one who adopts it.
    """

    def story(desk: Desk, copy: Memory) -> Memory:
        source = _require_source(desk, copy, unless=(DETACHED, REVOKED, SOURCE_DELETED))
        claimed = copies.require(copy)[0].claimed
        if not claimed and not freshness.has_diverged(copy) and not freshness.is_stale(copy, source):
            return copy
        return following.taken_over(desk, copy, source)

    return _with_copy(parts, actor, copy_id, story, first=refreshing.lock_chain)


def _nothing(_desk: Desk, _copy_id: str) -> object:
    """Hold nothing but the copy itself."""


def _with_copy(
    parts: Parts,
    actor: Actor,
    copy_id: str,
    story: following.Change,
    *,
    first: Callable[[Desk, str], object] = _nothing,
) -> Receipt:
    copy_id = wording.memory_id(copy_id)

    def whole(desk: Desk, *, looked: bool) -> Receipt:
        first(desk, copy_id)
        copy = takein.fresh(desk, desk.require(copy_id), looked=looked)
        copies.require(copy)
        return receipt_of(story(desk, copy), new=False)

    return sync.write_with_a_look(parts, actor, whole)


def _require_source(desk: Desk, copy: Memory, *, unless: Sequence[str]) -> Memory:
    """Return the source of a copy, or raise why it cannot be taken over."""
    shared, link = copies.require(copy)
    stands = freshness.of(desk.tx, desk.spaces, [copy])[copy.id].freshness
    if stands in unless:
        raise _WHY_NOT[stands](copy.id)
    # Of what came by import nobody here knows who shared it: whoever lets it follow does, and has to have the right.
    source = memories.find(desk.tx, desk.readable if shared.claimed else desk.spaces, link.target)
    if source is None:
        raise no_memory(link.target)
    return source


def _detached(copy_id: str) -> CommonbookError:
    return Conflict(f"the copy {copy_id} was detached from its source", fix="share the source again for a new copy")


def _revoked(copy_id: str) -> CommonbookError:
    return NotAllowed(
        f"whoever shared the copy {copy_id} may no longer read its source", fix="ask for a grant, or detach the copy"
    )


def _source_deleted(copy_id: str) -> CommonbookError:
    return NotFound(f"the source of the copy {copy_id} is deleted", fix="detach the copy, or unshare it")


def _diverged(copy_id: str) -> CommonbookError:
    return Conflict(
        f"the copy {copy_id} was edited here", fix="`adopt` takes the source's text, `detach` keeps this one"
    )


_WHY_NOT: Final = {
    DETACHED: _detached,
    REVOKED: _revoked,
    SOURCE_DELETED: _source_deleted,
    DIVERGED: _diverged,
}


# --- reading


def get(parts: Parts, actor: Actor, memory_id: str) -> Memory:
    """Return one memory; a lazy copy that is stale takes over what its source says first, if it may."""
    memory = reading.get_stored(parts, actor, memory_id)
    if memory.shared is None or memory.shared.mode != LAZY or memory.freshness != STALE:
        return memory
    with parts.db.reading() as tx:
        if not freshness.can_follow(tx, spaces.everything(tx), [memory]):
            return memory
    # A home that is full or busy keeps nobody from reading: the copy is told as it is, and said to be stale.
    with suppress(CommonbookError):
        refreshing.renew(parts, memory.id)
    return reading.get_stored(parts, actor, memory_id)

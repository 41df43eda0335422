"""Logs that memories are superseded, in the space of each, and refuses it to those who may not write there.

Every way by which a memory comes to supersede others ends here: a new link, and a successor that had ended and holds
again.
"""

from __future__ import annotations

from collections.abc import Iterable

from commonbook.errors import NotAllowed
from commonbook.model.spaces import Actor
from commonbook.model.stored_memory import StoredMemory
from commonbook.tables import copies, memories, supersession
from commonbook.write.context import WriteContext


def record(ctx: WriteContext, old: StoredMemory | None, new: StoredMemory) -> None:
    """Record that a memory supersedes others from now on, in the log of each other space that these are in.

    `old` is the memory as it was, None if it is new or comes back. For files that a lost database reads again, the
    caller records nothing: their memories supersede what they superseded before.
    """
    targets = set(supersession.targets_of(new)) if new.deleted is None else set()
    if targets and old is not None and not _holds_again(ctx, old, new):
        targets -= set(supersession.targets_of(old))
    if not targets:
        return
    elsewhere = [memory for memory in _superseded_by(ctx, new, targets) if memory.space.id != new.space.id]
    if ctx.foreign is None and not all(ctx.may_write(memory.space) for memory in elsewhere):
        raise _refusal(ctx.actor, new, elsewhere)
    for memory in elsewhere:
        if memory.deleted is None:
            ctx.log(memory.space, "superseded", (memory.id,), by=new.id)


def _holds_again(ctx: WriteContext, old: StoredMemory, new: StoredMemory) -> bool:
    """Tell whether a memory had ended and is valid for longer now, by itself or, as a copy, by another source."""
    ends, ended = ((one.expires, one.shared, copies.copied_from(one)) for one in (new, old))
    if ends == ended:
        # Most changes: the sources of a copy, of which there may be many, need not be read.
        return False
    return _has_ended(ctx, old) and not _has_ended(ctx, new)


def _has_ended(ctx: WriteContext, memory: StoredMemory) -> bool:
    return supersession.has_ended(supersession.with_ends(ctx.tx, ctx.spaces, [memory])[memory.id], ctx.tx.now)


def _superseded_by(ctx: WriteContext, new: StoredMemory, targets: Iterable[str]) -> list[StoredMemory]:
    """Lock and return the memories that one supersedes: those of its links, and what ended ones of them superseded.

    A successor stands in the place of an ended memory that it supersedes, unless it has ended itself. A copy has ended
    with its source.
    """
    goes_on = not _has_ended(ctx, new)
    found: dict[str, StoredMemory] = {}
    level = set(targets)
    while level:
        ctx.lock(level)
        headers = memories.get_headers_any_space(ctx.tx, ctx.spaces, sorted(level))
        found |= headers
        until = supersession.with_ends(ctx.tx, ctx.spaces, headers.values()) if goes_on else {}
        ended = [memory for memory in until.values() if supersession.has_ended(memory, ctx.tx.now)]
        level = {id_ for memory in ended for id_ in supersession.targets_of(memory)} - found.keys() - {new.id}
    return list(found.values())


def _refusal(actor: Actor, new: StoredMemory, superseded: Iterable[StoredMemory]) -> NotAllowed:
    """Return the error for superseding memories in spaces that the actor may not write to, which are not named."""
    error = NotAllowed(
        f"{new.id} would supersede a memory in a space that {actor.principal} may not write to",
        fix="let somebody do it who may write to both, or first `reinstate` the superseded memory",
    )
    error.aimed_at = tuple(memory.id for memory in superseded)
    return error

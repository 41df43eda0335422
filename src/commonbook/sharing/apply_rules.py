"""Taking in by rules: whatever a story wrote is looked at before it ends, in the same transaction.

A rule takes a root in once, and a space has one copy of it: so rules that go both ways, or round, come to an end, and
what was unshared, detached or rejected does not come back by itself. A copy that arrives is written there: the rules of
other spaces look at it too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from commonbook.access import permissions
from commonbook.errors import Conflict
from commonbook.model.ids import new_id
from commonbook.model.memory import Memory
from commonbook.model.sharing import ShareRequest, SharingRule
from commonbook.model.spaces import READER, WRITER, Actor, SpaceScope
from commonbook.sharing import make_copy
from commonbook.tables import jobs, sharing_requests, sharing_rules
from commonbook.write.context import WriteContext

APPLY_RULES_JOB: Final = "rules"
"""Goes on where a story wrote more than rules look at at once; its subject is the space that was written to."""

RETRY_RULE_JOB: Final = "rule"
"""Tries again what could not be taken in; its subject is the memory."""

MAX_PER_WRITE: Final = 100
"""So many memories are taken in, or asked for, in the transaction that wrote them."""

_LOOKED_AT: Final = 1000
_BATCH: Final = 200


def apply_rules(ctx: WriteContext, *, trying: bool = False) -> None:
    """Let every rule take in what it means of what the story wrote, and of what thereby arrived elsewhere.

    Whoever wrote has nothing to do with what stands in a rule's way: that is tried again later, by a job, which is
    itself the one who is `trying` and fails.
    """
    room, left = MAX_PER_WRITE, _LOOKED_AT
    while there := _acting(ctx):
        if left <= 0:
            return _wait(ctx)
        some = ctx.pending.first_changed_ids(_BATCH)
        left -= len(some)
        for memory in make_copy.locked_memories(ctx, some):
            for rule in _meaning(ctx, there, memory):
                if room == 0:
                    return _wait(ctx)
                room -= _take_in(ctx, rule, memory, trying=trying)
        ctx.pending.forget_changed_ids(some)
    return None


def reason_idle(rule: SharingRule, maker: permissions.PermissionSnapshot, spaces: SpaceScope) -> str:
    """Return why a rule does nothing, if so: its maker may no longer do what it does."""
    if rule.source.id not in maker.with_role(READER, spaces):
        return "its maker may no longer read what it takes from"
    if rule.space.id not in maker.with_role(WRITER, spaces):
        return "its maker may no longer write to where it takes in"
    return ""


def _acting(ctx: WriteContext) -> list[SharingRule]:
    """Return the rules that may take something of what was written, and forget what none of them does."""
    found: list[SharingRule] = []
    if ctx.pending.changed_ids:
        from_there = sharing_rules.from_sources(ctx.tx, ctx.spaces, ctx.pending.spaces_of_changed_ids())
        found = [
            rule for rule in from_there if not reason_idle(rule, ctx.permissions_of(Actor(rule.maker)), ctx.spaces)
        ]
    ctx.pending.keep_changed_ids_in({rule.source.id for rule in found})
    return found


def _meaning(ctx: WriteContext, there: Sequence[SharingRule], memory: Memory) -> list[SharingRule]:
    """Return the rules that mean a memory and have not taken it in before."""
    meant = [rule for rule in there if sharing_rules.matches(rule, memory)]
    return [rule for rule in meant if not sharing_rules.has_applied(ctx.tx, rule, memory.root)]


def _take_in(ctx: WriteContext, rule: SharingRule, memory: Memory, *, trying: bool) -> int:
    """Let a rule take a memory in, or ask for it, in the name of its maker; return 1 if that changed anything."""
    acting = ctx.acting_as(Actor(rule.maker))
    new = make_copy.existing_copy(acting, memory, rule.space) is None
    if new and rule.approval:
        _ask(acting, rule, memory, ctx.pending.changed_ids[memory.id].principal)
    elif new:
        try:
            make_copy.make_copy(acting, memory, rule.space, rule.refresh, rule=rule.id)
        except Conflict:
            if trying:
                raise
            jobs.enqueue(ctx.tx, space=memory.space.id, kind=RETRY_RULE_JOB, subject=memory.id, due=ctx.tx.now)
            return 0
    sharing_rules.note_applied(ctx.tx, rule, memory.root)
    return int(new)


def _ask(acting: WriteContext, rule: SharingRule, memory: Memory, asked_by: str) -> None:
    asked = ShareRequest(
        id=new_id(),
        space=rule.space.name,
        space_id=rule.space.id,
        memory=memory.id,
        rule=rule.id,
        refresh=rule.refresh,
        name=rule.maker,
        asked_by=asked_by,
        asked_at=acting.tx.now,
    )
    if sharing_requests.add(acting.tx, asked, memory.root):
        # Whoever reads this log may not know who writes in the other space.
        who = acting.engines.keys.keyed_hash("principal", asked_by)
        acting.log(rule.space, "share.ask", (), request=asked.id, memory=memory.id, rule=rule.id, asked_by=who)


# --- in the background


def _wait(ctx: WriteContext) -> None:
    """Leave what was written and not looked at to a job."""
    by_space: dict[str, dict[str, str]] = {}
    for id_, (space, who) in ctx.pending.take_changed_ids().items():
        by_space.setdefault(space, {})[id_] = who
    for space, written in sorted(by_space.items()):
        sharing_rules.enqueue(ctx.tx, space, written)
        jobs.enqueue(ctx.tx, space=space, kind=APPLY_RULES_JOB, subject=space, due=ctx.tx.now)


def apply_some(ctx: WriteContext, *, space: str) -> bool:
    """Let rules look at some of what waits in a space; tell whether anything did."""
    waiting = sharing_rules.dequeue(ctx.tx, space, limit=MAX_PER_WRITE)
    for id_, who in waiting.items():
        ctx.pending.note_changed_id(id_, space=space, principal=who)
    return bool(waiting)


def apply_again(ctx: WriteContext, *, memory_id: str) -> None:
    """Let rules look at a memory again that one of them could not take in."""
    for memory in make_copy.locked_memories(ctx, [memory_id]):
        ctx.pending.note_changed_id(memory.id, space=memory.space.id, principal=memory.revised_by)
    apply_rules(ctx, trying=True)

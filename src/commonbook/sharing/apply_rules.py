"""Sharing rules copy written memories into other spaces, in the transaction that wrote them.

A rule takes over each root once, and a space holds one copy of a root. Therefore rules that form a cycle terminate,
and a copy that was unshared, detached or rejected is not made again. A new copy counts as a write to its space, so the
rules of other spaces apply to it too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from commonbook.access import permissions
from commonbook.errors import Conflict
from commonbook.model.ids import new_id
from commonbook.model.sharing import ShareRequest, SharingRule
from commonbook.model.spaces import READER, WRITER, Actor, SpaceScope
from commonbook.model.stored_memory import StoredMemory
from commonbook.sharing import make_copy
from commonbook.tables import jobs, sharing_requests, sharing_rules
from commonbook.write.context import ForeignWrite, WriteContext

MAX_PER_WRITE: Final = 100
"""Maximum number of copies and requests that rules make in the transaction of the write."""

_MAX_CHECKED: Final = 1000
"""Maximum number of memories that rules are checked against in one transaction, give or take a batch."""
_BATCH: Final = 200


def apply_rules(ctx: WriteContext, *, raise_conflicts: bool = False) -> None:
    """Apply every rule to the memories written in this transaction, and to the copies that result.

    A conflict must not fail the write that triggered the rule: a job tries again later. The job itself sets
    `raise_conflicts`, and fails.
    """
    copies_left, checks_left = MAX_PER_WRITE, _MAX_CHECKED
    while rules := _active_rules(ctx):
        if checks_left <= 0:
            return _defer_rest(ctx)
        ids = ctx.pending.first_changed_ids(_BATCH)
        checks_left -= len(ids)
        for memory in make_copy.locked_memories(ctx, ids):
            for rule in _matching_rules(ctx, rules, memory):
                if copies_left == 0:
                    return _defer_rest(ctx)
                copies_left -= _apply_rule(ctx, rule, memory, raise_conflicts=raise_conflicts)
        ctx.pending.forget_changed_ids(ids)
    return None


def reason_idle(rule: SharingRule, creator: permissions.PermissionSnapshot, spaces: SpaceScope) -> str:
    """Return why a rule is idle: its creator has lost a permission that the rule needs; empty if the rule is active."""
    if rule.source.id not in creator.with_role(READER, spaces):
        return "its creator may no longer read the source space"
    if rule.space.id not in creator.with_role(WRITER, spaces):
        return "its creator may no longer write to the target space"
    return ""


def _active_rules(ctx: WriteContext) -> list[SharingRule]:
    """Return the active rules whose source space was written to; forget changed memories of all other spaces."""
    active: list[SharingRule] = []
    if ctx.pending.changed_ids:
        rules = sharing_rules.from_sources(ctx.tx, ctx.spaces, ctx.pending.spaces_of_changed_ids())
        active = [
            rule for rule in rules if not reason_idle(rule, ctx.permissions_of(Actor(rule.created_by)), ctx.spaces)
        ]
    ctx.pending.keep_changed_ids_in({rule.source.id for rule in active})
    return active


def _matching_rules(ctx: WriteContext, rules: Sequence[SharingRule], memory: StoredMemory) -> list[SharingRule]:
    """Return the rules that match a memory and have not been applied to its root before."""
    matching = [rule for rule in rules if sharing_rules.matches(rule, memory)]
    matching = [rule for rule in matching if not sharing_rules.has_applied(ctx.tx, rule, memory.root)]
    # An episode all of whose messages were rewound has nothing to share.
    return matching if matching and make_copy.of_source(ctx, memory).source is not None else []


def _apply_rule(ctx: WriteContext, rule: SharingRule, memory: StoredMemory, *, raise_conflicts: bool) -> int:
    """Copy a memory, or request approval for it, on behalf of the rule's creator; return 1 if there was no copy yet."""
    as_creator = ctx.acting_as(Actor(rule.created_by), ForeignWrite.RULE_CREATOR)
    new = make_copy.existing_copy(as_creator, memory, rule.space) is None
    if new and rule.approval:
        _request_approval(as_creator, rule, memory, ctx.pending.changed_ids[memory.id].principal)
    elif new:
        try:
            make_copy.make_copy(as_creator, memory, rule.space, rule.refresh, rule=rule.id)
        except Conflict:
            if raise_conflicts:
                raise
            jobs.enqueue(ctx.tx, space=memory.space.id, kind=jobs.RETRY_RULE_JOB, subject=memory.id, due=ctx.tx.now)
            return 0
    sharing_rules.note_applied(ctx.tx, rule, memory.root)
    return int(new)


def _request_approval(as_creator: WriteContext, rule: SharingRule, memory: StoredMemory, requested_by: str) -> None:
    request = ShareRequest(
        id=new_id(),
        space=rule.space.name,
        space_id=rule.space.id,
        memory=memory.id,
        rule=rule.id,
        refresh=rule.refresh,
        on_behalf_of=rule.created_by,
        requested_by=requested_by,
        requested_at=as_creator.tx.now,
    )
    if sharing_requests.add(as_creator.tx, request, memory.root):
        # Readers of this log may not learn who writes in the other space, so it gets a keyed hash.
        writer = as_creator.engines.keys.keyed_hash("principal", requested_by)
        # "share.ask" and `asked_by` are stored in existing logs.
        as_creator.log(rule.space, "share.ask", (), request=request.id, memory=memory.id, rule=rule.id, asked_by=writer)


# --- in the background


def _defer_rest(ctx: WriteContext) -> None:
    """Leave the changed memories that were not checked to a job per space."""
    by_space: dict[str, dict[str, str]] = {}
    for id_, (space, principal) in ctx.pending.take_changed_ids().items():
        by_space.setdefault(space, {})[id_] = principal
    for space, written in sorted(by_space.items()):
        sharing_rules.enqueue(ctx.tx, space, written)
        jobs.enqueue(ctx.tx, space=space, kind=jobs.APPLY_RULES_JOB, subject=space, due=ctx.tx.now)


def apply_batch(ctx: WriteContext, *, space: str) -> bool:
    """Mark a batch of the deferred memories of a space as changed, so that rules apply; return whether any waited."""
    waiting = sharing_rules.dequeue(ctx.tx, space, limit=MAX_PER_WRITE)
    for id_, principal in waiting.items():
        ctx.pending.note_changed_id(id_, space=space, principal=principal)
    return bool(waiting)


def retry_rules(ctx: WriteContext, *, memory_id: str) -> None:
    """Apply rules again to a memory that one of them could not copy because of a conflict."""
    for memory in make_copy.locked_memories(ctx, [memory_id]):
        ctx.pending.note_changed_id(memory.id, space=memory.space.id, principal=memory.revised_by)
    apply_rules(ctx, raise_conflicts=True)

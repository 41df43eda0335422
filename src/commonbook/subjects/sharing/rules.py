"""Sharing rules: copy matching memories of one space into another; the admins of the target space manage them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from commonbook.core.access import permissions
from commonbook.core.tables import jobs, sharing_requests, sharing_rules, spaces
from commonbook.core.text import masking, space_names, validation
from commonbook.core.write import context
from commonbook.core.write.context import ForeignWrite, WriteContext
from commonbook.core.write.transaction import write
from commonbook.errors import BadInput, Conflict, NotFound, TooLarge
from commonbook.ports.engines import Engines
from commonbook.subjects.sharing import make_copy
from commonbook.values.ids import new_id
from commonbook.values.memory import Kind, Refresh
from commonbook.values.request import RequestContext
from commonbook.values.sharing import ShareRequest, SharingRule
from commonbook.values.spaces import READER, WRITER, Actor, Space, SpaceScope
from commonbook.values.stored_memory import StoredMemory

MAX_RULES: Final = 100
"""Maximum number of rules of a target space: every write is checked against the rules that read from its space."""


class RuleOptions(NamedTuple):
    """The memories that a rule matches, whether they need approval, and the refresh mode of the copies."""

    kinds: tuple[Kind, ...] = ()
    tags: tuple[str, ...] = ()
    importance: float | None = None
    approval: bool = False
    refresh: Refresh = "live"


def parse_options(
    kinds: Iterable[Kind], tags: Iterable[str], importance: float | None, refresh: Refresh, *, approval: bool
) -> RuleOptions:
    """Return validated options of a rule, or refuse them."""
    return RuleOptions(
        kinds=tuple(dict.fromkeys(validation.validate_kind(kind) for kind in validation.validate_list(kinds, "kinds"))),
        tags=tuple(masking.require_no_secret(tag, "tag of a rule") for tag in validation.validate_tags(tags)),
        importance=validation.validate_importance(importance),
        approval=bool(approval),
        refresh=make_copy.require_mode(refresh),
    )


def add(engines: Engines, caller: RequestContext, space: str, from_space: str, options: RuleOptions) -> SharingRule:
    """Add a rule by which a space copies memories written to another one from now on, on behalf of the actor."""
    space_names.require_space_name(space)
    space_names.require_space_name(from_space)
    if space == from_space:
        raise BadInput("a rule cannot share a space with itself", fix="name another source space")

    def operation(ctx: WriteContext) -> SharingRule:
        source = context.readable_space(ctx, from_space)
        target = context.administered_space(ctx, space)
        if sharing_rules.count(ctx.tx, target.id) >= MAX_RULES:
            raise TooLarge(
                f"the space {space!r} has {MAX_RULES} rules already", fix="remove some, or let one rule match more"
            )
        rule = SharingRule(
            id=new_id(),
            space=target,
            source=source,
            created_by=caller.actor.principal,
            kinds=options.kinds,
            tags=options.tags,
            importance=options.importance,
            approval=options.approval,
            refresh=options.refresh,
            created=ctx.tx.now,
        )
        sharing_rules.add(ctx.tx, rule)
        # Readers of this log may not read the source space, so it gets a keyed hash.
        hidden = ctx.engines.keys.keyed_hash("space", source.id)
        ctx.log(target, "rule.add", (), rule=rule.id, source=hidden, **options._asdict())
        return rule

    return write(engines, caller, operation)


def list_rules(engines: Engines, actor: Actor, *, space: str | None) -> tuple[SharingRule, ...]:
    """Return the rules into and out of the spaces that the actor administers.

    The name of a space at the other end is left out if the actor may not read it.
    """
    with engines.db.reading() as tx:
        all_spaces = spaces.get_all(tx)
        administered = permissions.administered(tx, actor, all_spaces)
        if space is not None:
            administered = permissions.require_administered(tx, actor, all_spaces, space)
        readable = permissions.readable(tx, actor, all_spaces)

        def redacted(end: Space) -> Space:
            return end if end.id in readable else Space("", "", end.created)

        return tuple(
            rule._replace(
                space=redacted(rule.space),
                source=redacted(rule.source),
                idle=reason_idle(rule, permissions.PermissionSnapshot(tx, Actor(rule.created_by)), all_spaces),
            )
            for rule in sharing_rules.between(tx, all_spaces)
            if rule.space.id in administered or rule.source.id in administered
        )


def remove(engines: Engines, caller: RequestContext, rule_id: str) -> SharingRule:
    """Remove a rule and withdraw its open requests; copies that it made stay."""
    rule_id = validation.validate_memory_id(rule_id)

    def operation(ctx: WriteContext) -> SharingRule:
        rule = sharing_rules.find(ctx.tx, ctx.spaces, rule_id)
        allowed = permissions.administered(ctx.tx, ctx.actor, ctx.spaces)
        if rule is None or rule.space.id not in allowed or not sharing_rules.remove(ctx.tx, rule):
            raise NotFound(f"there is no rule {rule_id}", fix="`commonbook rules list` shows the rules by their ids")
        withdrawn = sharing_requests.withdraw(ctx.tx, rule.space.id, rule.id, by=caller.actor.principal)
        ctx.log(rule.space, "rule.remove", (), rule=rule.id, withdrawn=withdrawn)
        return rule

    return write(engines, caller, operation)


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

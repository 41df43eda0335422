"""Sharing rules: copy matching memories of one space into another; the admins of the target space manage them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from commonbook.access import permissions
from commonbook.errors import BadInput, NotFound, TooLarge
from commonbook.model.ids import new_id
from commonbook.model.memory import Kind, Refresh
from commonbook.model.request import RequestContext
from commonbook.model.sharing import SharingRule
from commonbook.model.spaces import Actor, Space
from commonbook.ports.engines import Engines
from commonbook.sharing import apply_rules, make_copy
from commonbook.tables import sharing_requests, sharing_rules, spaces
from commonbook.text import masking, space_names, validation
from commonbook.write import context
from commonbook.write.context import WriteContext
from commonbook.write.transaction import write

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
                idle=apply_rules.reason_idle(
                    rule, permissions.PermissionSnapshot(tx, Actor(rule.created_by)), all_spaces
                ),
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

"""Rules by which a space takes in what another one writes: made, shown and removed by those who administer it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from commonbook.access import permissions
from commonbook.errors import BadInput, NotFound, TooLarge
from commonbook.model.ids import new_id
from commonbook.model.sharing import SharingRule
from commonbook.model.spaces import Actor, Space
from commonbook.ports.engines import Engines
from commonbook.sharing import apply_rules, make_copy
from commonbook.tables import sharing_requests, sharing_rules, spaces
from commonbook.text import space_paths, validation
from commonbook.write import context
from commonbook.write.context import WriteContext
from commonbook.write.transaction import write

MAX_RULES: Final = 100
"""So many rules a space may have: every write elsewhere looks at those that take from there."""


class RuleChoice(NamedTuple):
    """What a rule means, and what it does with it."""

    kinds: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    importance: float | None = None
    approval: bool = False
    refresh: str = "live"


def parse_choice(
    kinds: Iterable[str], tags: Iterable[str], importance: float | None, refresh: str, *, approval: bool
) -> RuleChoice:
    """Return what a rule is to mean, or refuse it."""
    return RuleChoice(
        kinds=tuple(dict.fromkeys(validation.validate_kind(kind) for kind in validation.validate_list(kinds, "kinds"))),
        tags=validation.validate_tags(tags),
        importance=validation.validate_importance(importance),
        approval=bool(approval),
        refresh=make_copy.require_mode(refresh),
    )


def add(engines: Engines, actor: Actor, space: str, from_space: str, what: RuleChoice) -> SharingRule:
    """Let a space take in from now on what another one writes, in the name of whoever says so."""
    space_paths.require_space_name(space)
    space_paths.require_space_name(from_space)
    if space == from_space:
        raise BadInput("a space takes nothing in from itself", fix="name another space to take from")

    def operation(ctx: WriteContext) -> SharingRule:
        source = context.readable_space(ctx, from_space)
        place = context.administered_space(ctx, space)
        if sharing_rules.count(ctx.tx, place.id) >= MAX_RULES:
            raise TooLarge(
                f"the space {space!r} has {MAX_RULES} rules already", fix="remove some, or let one mean more"
            )
        rule = SharingRule(new_id(), place, source, actor.principal, *what[:3], what.approval, what.refresh, ctx.tx.now)
        sharing_rules.add(ctx.tx, rule)
        ctx.log(place, "rule.add", (), rule=rule.id, source=source.id, **what._asdict())
        return rule

    return write(engines, actor, operation)


def list_rules(engines: Engines, actor: Actor, *, space: str | None) -> tuple[SharingRule, ...]:
    """Return the rules of the spaces that the actor administers, and those that take from them.

    The name of a space at the other end that it may not read is not told.
    """
    with engines.db.reading() as tx:
        known = spaces.get_all(tx)
        decided = permissions.administered(tx, actor, known)
        if space is not None:
            place = permissions.require_admin(tx, actor, known, space_paths.require_space_name(space))
            decided = {place.id: place}
        readable = permissions.readable(tx, actor, known)

        def shown(place: Space) -> Space:
            return place if place.id in readable else Space("", "", place.created)

        return tuple(
            rule._replace(
                space=shown(rule.space),
                source=shown(rule.source),
                idle=apply_rules.reason_idle(rule, permissions.PermissionSnapshot(tx, Actor(rule.maker)), known),
            )
            for rule in sharing_rules.between(tx, known)
            if rule.space.id in decided or rule.source.id in decided
        )


def remove(engines: Engines, actor: Actor, rule_id: str) -> SharingRule:
    """Remove a rule, and what waits because of it; what it took in stays."""
    rule_id = validation.validate_memory_id(rule_id)

    def operation(ctx: WriteContext) -> SharingRule:
        rule = sharing_rules.find(ctx.tx, ctx.spaces, rule_id)
        allowed = permissions.administered(ctx.tx, ctx.actor, ctx.spaces)
        if rule is None or rule.space.id not in allowed or not sharing_rules.remove(ctx.tx, rule):
            raise NotFound(f"there is no rule {rule_id}", fix="`commonbook rules list` shows the rules by their ids")
        withdrawn = sharing_requests.withdraw(ctx.tx, rule.space.id, rule.id, by=actor.principal)
        ctx.log(rule.space, "rule.remove", (), rule=rule.id, withdrawn=withdrawn)
        return rule

    return write(engines, actor, operation)

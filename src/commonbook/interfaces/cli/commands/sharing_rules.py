"""The commands of what is shared by rule and by agreement: rules, pending, approve, reject, request and limit."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from commonbook.errors import BadInput
from commonbook.interfaces import json_values
from commonbook.model.ids import format_time
from commonbook.model.sharing import RateLimit, ShareRequest, SharingRule

if TYPE_CHECKING:
    from commonbook.interfaces.cli.call import Call, Command
    from commonbook.interfaces.cli.output.plain import Output

    Add = Callable[[Any, str, str], argparse.ArgumentParser]
    """Adds a command, or an action of one, with the options that all have."""


# --- what is done


def _add_rule(call: Call) -> int:
    args = call.args
    # An empty tag is left in, for the book to refuse: a variable that was not set must not mean every memory.
    tags = [tag for value in args.tag for tag in value.split(",")]
    said = call.book.add_rule(
        args.space or call.book.default_space,
        args.source,
        kinds=args.kind,
        tags=tags,
        importance=args.importance,
        approval=args.approval,
        refresh=args.refresh,
    )
    return call.tell(_rule(said), lambda out: _show_rules(out, [said]))


def _list_rules(call: Call) -> int:
    said = call.book.rules(space=call.args.space)
    return call.tell({"rules": [_rule(one) for one in said]}, lambda out: _show_rules(out, said))


def _remove_rule(call: Call) -> int:
    rule_id = _meant(call.args.id, (one.id for one in call.book.rules()))
    said = call.book.remove_rule(rule_id)
    return call.tell(_rule(said), lambda out: out.line(f"Removed the rule {said.id}."))


def _pending(call: Call) -> int:
    said = call.book.pending(space=call.args.space, decided=call.args.decided)
    return call.tell({"requests": [_request(one) for one in said]}, lambda out: _show_requests(out, said))


def _approve(call: Call) -> int:
    return _decide(call, call.book.approve)


def _reject(call: Call) -> int:
    return _decide(call, call.book.reject)


def _decide(call: Call, verb: Callable[..., ShareRequest]) -> int:
    request_id = _meant(call.args.id, (one.id for one in call.book.pending(decided=True)))
    said = verb(request_id, note=call.args.note)
    into = f": {said.copy} in {said.space}" if said.copy else ""
    return call.tell(_request(said), lambda out: out.line(f"{said.state.capitalize()}{into}."))


def _ask(call: Call) -> int:
    args = call.args
    said = call.book.request_share(call.id(args.id), args.to, refresh=args.refresh)
    return call.tell(_request(said), lambda out: out.line(f"Asked {said.space} to take it in, as {said.id}."))


def _list_limits(call: Call) -> int:
    said = call.book.limits()
    return call.tell({"limits": [_limit(one) for one in said]}, lambda out: _show_limits(out, said))


def _set_limit(call: Call) -> int:
    args = call.args
    said = call.book.set_limit(args.what, _per_minute(args.per_minute), principal=args.principal)
    return call.tell(_limit(said), lambda out: _show_limits(out, [said]))


def _per_minute(typed: str) -> int | None:
    if typed.strip().lower() == "none":
        return None
    try:
        return int(typed)
    except ValueError:
        raise BadInput(f"{typed!r} is not a whole number", fix="say how often a minute, or `none`") from None


def _meant(part: str, ids: Iterable[str]) -> str:
    """Return the one id that begins or ends with these digits, or what was typed, for the book to say what it is."""
    digits = part.strip().lower()
    found = [one for one in ids if digits and (one.startswith(digits) or one.endswith(digits))]
    if len(found) > 1:
        raise BadInput(f"{part!r} means several: {', '.join(found)}", fix="give more digits of the id")
    return found[0] if found else part


COMMANDS: Final[Mapping[str, Command]] = {
    "rules list": _list_rules,
    "rules add": _add_rule,
    "rules remove": _remove_rule,
    "pending": _pending,
    "approve": _approve,
    "reject": _reject,
    "request": _ask,
    "limit list": _list_limits,
    "limit set": _set_limit,
}


# --- how it is told


def _rule(said: SharingRule) -> dict[str, Any]:
    return {
        "id": said.id,
        "space": said.space.name or None,
        "from": said.source.name or None,
        "maker": said.maker,
        "kinds": list(said.kinds),
        "tags": list(said.tags),
        "importance": said.importance,
        "approval": said.approval,
        "refresh": said.refresh,
        "created": format_time(said.created),
        "idle": said.idle or None,
    }


def _request(said: ShareRequest) -> dict[str, Any]:
    told = said._asdict()
    del told["space_id"]
    return {
        **told,
        "asked_at": json_values.time_or_none(said.asked_at),
        "decided_at": json_values.time_or_none(said.decided_at),
    }


def _limit(said: RateLimit) -> dict[str, Any]:
    return {**said._asdict(), "set_at": json_values.time_or_none(said.set_at)}


def _show_rules(out: Output, said: Sequence[SharingRule]) -> None:
    rows = [
        (one.id, one.space.name or "?", one.source.name or "?", _meaning(one), one.maker, one.idle or "acting")
        for one in said
    ]
    out.table(("id", "space", "takes from", "what", "maker", "state"), rows)


def _meaning(rule: SharingRule) -> str:
    parts = [*rule.kinds, *(f"#{tag}" for tag in rule.tags)]
    parts += [f"importance {rule.importance:g} or more"] if rule.importance is not None else []
    return ", ".join(parts or ["everything"]) + (", after approval" if rule.approval else "")


def _show_requests(out: Output, said: Sequence[ShareRequest]) -> None:
    rows = [
        (one.id, one.space, one.title or one.memory, one.asked_by, out.moment(one.asked_at), _state(one))
        for one in said
    ]
    out.table(("id", "space", "memory", "asked by", "asked", "state"), rows)


def _state(said: ShareRequest) -> str:
    by = f" by {said.decided_by}" if said.decided_by else ""
    return f"{said.state}{by}{': ' + said.note if said.note else ''}"


def _show_limits(out: Output, said: Sequence[RateLimit]) -> None:
    whose = [("everybody else" if one.principal == "*" else one.principal, one) for one in said]
    out.table(("action", "principal", "a minute"), [(one.action, who, str(one.per_minute)) for who, one in whose])

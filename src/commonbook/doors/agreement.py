"""The commands of what is shared by rule and by agreement: rules, pending, approve, reject, request and limit."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from commonbook.agreements import Limit, Pending, Rule
from commonbook.doors import jsons
from commonbook.errors import BadInput
from commonbook.model import MODES, stamp

if TYPE_CHECKING:
    from commonbook.doors.call import Call, Command
    from commonbook.doors.plain import Output

    Add = Callable[[Any, str, str], argparse.ArgumentParser]
    """Adds a command, or an action of one, with the options that all have."""

_REFRESH_HELP: Final = "live (follows its source), lazy (when it is read) or snapshot (never)"


# --- what can be typed


def rules_arguments(to: argparse.ArgumentParser, actions: Callable[[Any], Any], add: Add) -> None:
    """The options of `rules`."""
    of_rules = actions(to)
    add(of_rules, "list", "list the rules into and from your spaces, or those of --space")
    new = add(of_rules, "add", "let --space take in from now on what another space writes")
    new.add_argument("source", metavar="FROM", help="the space to take from")
    new.add_argument("--kind", action="append", default=[], metavar="KIND", help="of this kind (repeatable: of any)")
    new.add_argument("--tag", action="append", default=[], metavar="TAG", help="with this tag (repeatable: with all)")
    new.add_argument("--importance", type=float, metavar="0..1", help="at least so important")
    new.add_argument("--approval", action="store_true", help="only once an admin of the space agrees")
    new.add_argument("--refresh", choices=MODES, default=MODES[0], help=_REFRESH_HELP)
    add(of_rules, "remove", "remove a rule; what it took in stays").add_argument("id", metavar="ID")


def pending_arguments(to: argparse.ArgumentParser) -> None:
    """The options of `pending`."""
    to.add_argument("--decided", action="store_true", help="what was decided too")


def approve_arguments(to: argparse.ArgumentParser) -> None:
    """The options of `approve` and `reject`."""
    to.add_argument("id", metavar="ID", help="the id of a request, or its first or last digits")
    to.add_argument("--note", default="", help="why")


def request_arguments(to: argparse.ArgumentParser) -> None:
    """The options of `request`."""
    to.add_argument("id", metavar="ID", help="an id, its first or last digits, or its file's name")
    to.add_argument("to", metavar="SPACE", help="the space that is to take it in")
    to.add_argument("--refresh", choices=MODES, default=MODES[0], help=_REFRESH_HELP)


def limit_arguments(to: argparse.ArgumentParser, actions: Callable[[Any], Any], add: Add) -> None:
    """The options of `limit`."""
    of_limits = actions(to)
    add(of_limits, "list", "list how often principals may do something")
    new = add(of_limits, "set", "set how often a minute something may be done")
    new.add_argument("what", metavar="ACTION", help="share or request")
    new.add_argument("per_minute", metavar="N", help="how often a minute; `none` takes the limit away")
    new.add_argument("--principal", metavar="NAME", help="by whom; else by everybody without a limit of its own")


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


def _decide(call: Call, verb: Callable[..., Pending]) -> int:
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


def _rule(said: Rule) -> dict[str, Any]:
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
        "created": stamp(said.created),
        "idle": said.idle or None,
    }


def _request(said: Pending) -> dict[str, Any]:
    told = said._asdict()
    del told["space_id"]
    return {**told, "asked_at": jsons.time_or_none(said.asked_at), "decided_at": jsons.time_or_none(said.decided_at)}


def _limit(said: Limit) -> dict[str, Any]:
    return {**said._asdict(), "set_at": jsons.time_or_none(said.set_at)}


def _show_rules(out: Output, said: Sequence[Rule]) -> None:
    rows = [
        (one.id, one.space.name or "?", one.source.name or "?", _meaning(one), one.maker, one.idle or "acting")
        for one in said
    ]
    out.table(("id", "space", "takes from", "what", "maker", "state"), rows)


def _meaning(rule: Rule) -> str:
    parts = [*rule.kinds, *(f"#{tag}" for tag in rule.tags)]
    parts += [f"importance {rule.importance:g} or more"] if rule.importance is not None else []
    return ", ".join(parts or ["everything"]) + (", after approval" if rule.approval else "")


def _show_requests(out: Output, said: Sequence[Pending]) -> None:
    rows = [
        (one.id, one.space, one.title or one.memory, one.asked_by, out.moment(one.asked_at), _state(one))
        for one in said
    ]
    out.table(("id", "space", "memory", "asked by", "asked", "state"), rows)


def _state(said: Pending) -> str:
    by = f" by {said.decided_by}" if said.decided_by else ""
    return f"{said.state}{by}{': ' + said.note if said.note else ''}"


def _show_limits(out: Output, said: Sequence[Limit]) -> None:
    whose = [("everybody else" if one.principal == "*" else one.principal, one) for one in said]
    out.table(("action", "principal", "a minute"), [(one.action, who, str(one.per_minute)) for who, one in whose])

"""The commands for sharing rules, share requests and rate limits: rules, request, pending, approve, reject, limit."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from commonbook.errors import Ambiguous, BadInput, CommonbookError
from commonbook.interfaces import json_values
from commonbook.model.ids import UUID_PATTERN, format_time
from commonbook.model.sharing import WAITING

if TYPE_CHECKING:
    from commonbook.interfaces.cli.call import Call, Command
    from commonbook.interfaces.cli.output.plain import Output
    from commonbook.model.sharing import RateLimit, ShareRequest, SharingRule


# --- commands


def _add_rule(call: Call) -> int:
    args = call.args
    # An empty tag is passed on, so that the book refuses it: an unset variable must not mean every memory.
    tags = [tag for value in args.tag for tag in value.split(",")]
    rule = call.book.add_rule(
        args.space or call.book.default_space,
        args.source,
        kinds=args.kind,
        tags=tags,
        importance=args.importance,
        approval=args.approval,
        refresh=args.refresh,
    )
    return call.print_answer(_rule_json(rule), lambda out: _show_rules(out, [rule]))


def _list_rules(call: Call) -> int:
    rules = call.book.rules(space=call.args.space)
    return call.print_answer({"rules": [_rule_json(rule) for rule in rules]}, lambda out: _show_rules(out, rules))


def _remove_rule(call: Call) -> int:
    rule_id = _match_id(call.args.id, (rule.id for rule in call.book.rules()), "the id of a rule", "rules list")
    rule = call.book.remove_rule(rule_id)
    return call.print_answer(_rule_json(rule), lambda out: out.line(f"Removed the rule {rule.id}."))


def _pending(call: Call) -> int:
    requests = call.book.pending(space=call.args.space, decided=call.args.decided)
    return call.print_answer(
        {"requests": [request_json(request) for request in requests]}, lambda out: show_requests(out, requests)
    )


def _approve(call: Call) -> int:
    return _decide(call, partial(call.book.approve, expected_version=call.args.expected_version))


def _reject(call: Call) -> int:
    return _decide(call, call.book.reject)


def _decide(call: Call, decide: Callable[..., ShareRequest]) -> int:
    decided = decide(_find_request(call, call.args.id), note=call.args.note)
    copy = f": {decided.copy} in {decided.space}" if decided.copy else ""
    if decided.purpose == "proposal":
        copy = f": {decided.memory}{f' in {decided.space}' if decided.state == 'approved' else ''}"
    return call.print_answer(request_json(decided), lambda out: out.line(f"{decided.state.capitalize()}{copy}."))


def _request_share(call: Call) -> int:
    args = call.args
    request = call.book.request_share(call.resolve_id(args.id), args.to, refresh=args.refresh)
    return call.print_answer(
        request_json(request), lambda out: out.line(f"Requested to share it into {request.space}: {request.id}.")
    )


def _list_limits(call: Call) -> int:
    limits = call.book.limits()
    return call.print_answer(
        {"limits": [_limit_json(limit) for limit in limits]}, lambda out: _show_limits(out, limits)
    )


def _set_limit(call: Call) -> int:
    args = call.args
    limit = call.book.set_limit(args.what, _parse_per_minute(args.per_minute), principal=args.principal)
    return call.print_answer(_limit_json(limit), lambda out: _show_limits(out, [limit]))


def _parse_per_minute(argument: str) -> int | None:
    if argument.strip().lower() == "none":
        return None
    try:
        return int(argument)
    except ValueError:
        raise BadInput(f"{argument!r} is not a whole number", fix="give how many a minute, or `none`") from None


def _find_request(call: Call, part: str) -> str:
    """Return the id of a request by its digits, or by the title or anything else that names its memory."""
    known = call.book.pending(decided=True)
    ids = [request.id for request in known]
    if not any(_has_digits(id_, part) for id_ in ids):
        waiting = [request for request in known if request.state == WAITING]
        name = part.strip().casefold()
        named = [request.id for request in waiting if name and (request.title or "").casefold() == name]
        if not named:
            with suppress(CommonbookError):
                memory_id = call.resolve_id(part)
                named = [request.id for request in waiting if request.memory == memory_id]
        if len(named) > 1:
            raise Ambiguous(f"several requests are for {part!r}: {', '.join(named)}", fix="give the id of one")
        if named:
            return named[0]
    return _match_id(part, ids, "the id or title of a request", "pending")


def _has_digits(id_: str, part: str) -> bool:
    """Tell whether an id begins or ends with these digits."""
    digits = part.strip().lower()
    return bool(digits) and (id_.startswith(digits) or id_.endswith(digits))


def _match_id(part: str, ids: Iterable[str], meaning: str, command: str) -> str:
    """Return the id that begins or ends with these digits; `command` lists those that there are."""
    matches = [id_ for id_ in ids if _has_digits(id_, part)]
    if len(matches) > 1:
        raise BadInput(f"{part!r} matches several ids: {', '.join(matches)}", fix="give more digits of the id")
    if not matches and not re.fullmatch(UUID_PATTERN, part.strip().lower(), re.ASCII):
        raise BadInput(f"{part!r} is not {meaning}", fix=f"`commonbook {command}` shows them")
    # The book refuses a whole id that it does not know.
    return matches[0] if matches else part


COMMANDS: Final[Mapping[str, Command]] = {
    "rules list": _list_rules,
    "rules add": _add_rule,
    "rules remove": _remove_rule,
    "pending": _pending,
    "approve": _approve,
    "reject": _reject,
    "request": _request_share,
    "limit list": _list_limits,
    "limit set": _set_limit,
}


# --- output


def _rule_json(rule: SharingRule) -> dict[str, Any]:
    return {
        "id": rule.id,
        "space": rule.space.name or None,
        "from": rule.source.name or None,
        "created_by": rule.created_by,
        "kinds": list(rule.kinds),
        "tags": list(rule.tags),
        "importance": rule.importance,
        "approval": rule.approval,
        "refresh": rule.refresh,
        "created": format_time(rule.created),
        "idle": rule.idle or None,
    }


def request_json(request: ShareRequest) -> dict[str, Any]:
    """Return a request to share, or a proposed memory."""
    return {
        "id": request.id,
        "space": request.space,
        "memory": request.memory,
        "rule": request.rule,
        "refresh": request.refresh,
        "on_behalf_of": request.on_behalf_of,
        "requested_by": request.requested_by,
        "requested_at": json_values.time_or_none(request.requested_at),
        "state": request.state,
        "decided_by": request.decided_by,
        "decided_at": json_values.time_or_none(request.decided_at),
        "note": request.note,
        "copy": request.copy,
        "title": request.title,
        "text": request.text,
        "purpose": request.purpose,
        "version": request.version,
    }


def _limit_json(limit: RateLimit) -> dict[str, Any]:
    return {**limit._asdict(), "set_at": json_values.time_or_none(limit.set_at)}


def _show_rules(out: Output, rules: Sequence[SharingRule]) -> None:
    rows = [
        (
            out.name(rule.id),
            rule.space.name or "?",
            rule.source.name or "?",
            _filter_text(rule),
            rule.created_by,
            rule.idle or "active",
        )
        for rule in rules
    ]
    if rows:
        out.table(("id", "space", "takes from", "filter", "created by", "state"), rows)
    else:
        out.note("no rules")


def _filter_text(rule: SharingRule) -> str:
    parts = [*rule.kinds, *(f"#{tag}" for tag in rule.tags)]
    parts += [f"importance {rule.importance:g} or more"] if rule.importance is not None else []
    return ", ".join(parts or ["everything"]) + (", after approval" if rule.approval else "")


def show_requests(out: Output, requests: Sequence[ShareRequest]) -> None:
    """Show requests to share, and proposed memories."""
    rows = [
        (
            out.name(request.id),
            request.space,
            "a copy" if request.purpose == "share" else "approval",
            request.title or request.memory,
            request.requested_by,
            out.moment(request.requested_at),
            _state(request),
        )
        for request in requests
    ]
    if rows:
        out.table(("id", "space", "for", "memory", "requested by", "requested", "state"), rows)
    else:
        out.note("no requests")


def _state(request: ShareRequest) -> str:
    by = f" by {request.decided_by}" if request.decided_by else ""
    return f"{request.state}{by}{': ' + request.note if request.note else ''}"


def _per_minute(limit: RateLimit) -> str:
    return "no limit" if limit.per_minute is None else str(limit.per_minute)


def _show_limits(out: Output, limits: Sequence[RateLimit]) -> None:
    rows = [
        (limit.action, "everybody else" if limit.principal == "*" else limit.principal, _per_minute(limit))
        for limit in limits
    ]
    out.table(("action", "principal", "per minute"), rows)

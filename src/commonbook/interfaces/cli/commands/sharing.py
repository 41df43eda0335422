"""Commands of sharing: copies, the rules and requests that make them, and decisions about proposals."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from commonbook.errors import Ambiguous, BadInput, CommonbookError
from commonbook.interfaces.cli.arguments import (
    ID_HELP,
    add_expected_version,
    add_id,
    add_list,
    add_refresh,
    filter_tags,
)
from commonbook.interfaces.cli.commands import command
from commonbook.interfaces.cli.output import memories, sharing
from commonbook.values.ids import UUID_PATTERN
from commonbook.values.memory import MODES
from commonbook.values.sharing import WAITING

if TYPE_CHECKING:
    from commonbook.interfaces.cli.call import Call
    from commonbook.interfaces.cli.parser import Parser
    from commonbook.values.memory import Receipt
    from commonbook.values.sharing import ShareReceipt, ShareRequest

_SHARE_REFRESH: Final = (
    "when the copy follows its source: live (at once; default), lazy (when opened) or snapshot (by `refresh`)"
)
_RULE_REFRESH: Final = (
    "when the copy follows its source: live (at once), lazy (when it is opened) or snapshot (by `refresh`)"
)


# --- copies


def _share_arguments(to: Parser) -> None:
    to.add_argument("ids", metavar="ID", nargs="+", help=ID_HELP)
    target = to.add_mutually_exclusive_group(required=True)
    target.add_argument("--to", metavar="SPACE", help="the space that gets a copy of each")
    target.add_argument(
        "--with", metavar="PRINCIPAL", dest="principal", help="the only principal who may read the copy"
    )
    add_refresh(to, metavar="HOW", help=_SHARE_REFRESH)


@command("share", _share_arguments)
def _share(call: Call) -> int:
    args = call.args
    ids = [call.resolve_id(part) for part in args.ids]
    if args.principal is not None:
        if len(ids) > 1:
            raise BadInput("--with shares one memory at a time", fix="repeat the command for each of them")
        return _print_shared(call, [call.book.share_with(ids[0], args.principal, refresh=args.refresh)])
    if len(ids) == 1:
        # For a single memory, a failure is an error with its own exit code.
        return _print_shared(call, [call.book.share(ids[0], args.to, refresh=args.refresh)])
    return _print_shared(call, call.book.share_many(ids, args.to, refresh=args.refresh))


def _print_shared(call: Call, receipts: Iterable[ShareReceipt]) -> int:
    return call.print_answer(
        receipts,
        lambda out: sharing.show_share_receipts(out, "Shared", receipts),
        ok=not any(receipt.error for receipt in receipts),
    )


def _pull_arguments(to: Parser) -> None:
    add_id(to)
    to.add_argument("--to", metavar="SPACE", help="the space that gets the copy; default: the space of this project")
    add_refresh(to, metavar="HOW", help=_SHARE_REFRESH)


@command("pull", _pull_arguments)
def _pull(call: Call) -> int:
    args = call.args
    receipt = call.book.pull(call.resolve_id(args.id), args.to, refresh=args.refresh)
    return call.print_answer(receipt, lambda out: sharing.show_share_receipts(out, "Pulled", [receipt]))


@command("unshare", add_id)
def _unshare(call: Call) -> int:
    receipt = call.book.unshare(call.resolve_id(call.args.id))
    # The file of the copy is gone, so only programs get its path.
    row = (receipt.id, receipt.space, receipt.path, str(receipt.version))
    return call.print_answer(
        receipt, lambda out: out.report(f"Unshared {out.name(receipt.id)}: removed from {receipt.space}", [row])
    )


def _refresh_arguments(to: Parser) -> None:
    add_id(to)
    to.add_argument(
        "--mode",
        choices=MODES,
        metavar="HOW",
        help="change when the copy follows its source from now on: live (at once), lazy (when opened) or snapshot",
    )


@command("refresh", _refresh_arguments)
def _refresh(call: Call) -> int:
    copy_id, mode = call.resolve_id(call.args.id), call.args.mode
    if mode is not None:
        return _print_receipt(call, f"Set to {mode}", call.book.set_refresh(copy_id, mode))
    return _print_receipt(call, "Refreshed", call.book.refresh(copy_id))


@command("detach", add_id)
def _detach(call: Call) -> int:
    return _print_receipt(call, "Detached", call.book.detach(call.resolve_id(call.args.id)))


def _adopt_arguments(to: Parser) -> None:
    which = to.add_mutually_exclusive_group(required=True)
    which.add_argument("id", metavar="ID", nargs="?", help=ID_HELP)
    which.add_argument("--all", action="store_true", help="tie every copy again whose tie came from its file")


@command("adopt", _adopt_arguments)
def _adopt(call: Call) -> int:
    if call.args.all:
        receipts = call.book.adopt_all()
        rows = [(receipt.id, receipt.space, receipt.path, str(receipt.version)) for receipt in receipts]
        return call.print_answer(
            receipts,
            lambda out: out.report(f"Adopted {len(rows)} {'copy' if len(rows) == 1 else 'copies'}", rows),
        )
    return _print_receipt(call, "Adopted", call.book.adopt(call.resolve_id(call.args.id)))


def _print_receipt(call: Call, verb: str, receipt: Receipt) -> int:
    return call.print_answer(receipt, lambda out: memories.show_receipt(out, verb, receipt))


def _lineage_arguments(to: Parser) -> None:
    add_id(to)
    to.add_argument("--depth", type=int, metavar="N", help="at most N steps back and forth, up to 32 (32)")


@command("lineage", _lineage_arguments)
def _lineage(call: Call) -> int:
    args = call.args
    memory_id = call.resolve_id(args.id)
    tree = call.book.lineage(memory_id) if args.depth is None else call.book.lineage(memory_id, depth=args.depth)
    return call.print_answer(tree, lambda out: sharing.show_lineage(out, tree))


@command("copies", add_id)
def _copies(call: Call) -> int:
    copies = call.book.copies(call.resolve_id(call.args.id))
    return call.print_answer(copies, lambda out: sharing.show_copies(out, copies))


# --- rules


@command("rules list", summary="list the rules into and from your spaces, or those of --space")
def _list_rules(call: Call) -> int:
    rules = call.book.rules(space=call.args.space)
    return call.print_answer(rules, lambda out: sharing.show_rules(out, rules))


def _add_rule_arguments(to: Parser) -> None:
    to.add_argument("source", metavar="FROM", help="the space whose memories are shared")
    add_list(to, "--kind", "KIND", "of this kind (repeatable: of any)")
    add_list(to, "--tag", "TAG", "with this tag (repeatable: with all)")
    to.add_argument("--importance", type=float, metavar="0..1", help="with at least this importance")
    to.add_argument("--approval", action="store_true", help="only after an admin of the space approves")
    add_refresh(to, metavar=None, help=_RULE_REFRESH)


@command(
    "rules add",
    _add_rule_arguments,
    summary="let --space take in the memories that another space writes from now on",
    first_write=True,
)
def _add_rule(call: Call) -> int:
    args = call.args
    rule = call.book.add_rule(
        args.space or call.book.default_space,
        args.source,
        kinds=args.kind,
        tags=filter_tags(args),
        importance=args.importance,
        approval=args.approval,
        refresh=args.refresh,
    )
    return call.print_answer(rule, lambda out: sharing.show_rules(out, [rule]))


def _remove_rule_arguments(to: Parser) -> None:
    to.add_argument("id", metavar="ID", help="its id, or its first or last digits")


@command("rules remove", _remove_rule_arguments, summary="remove a rule; the copies that it made stay")
def _remove_rule(call: Call) -> int:
    rule_id = _match_id(call.args.id, (rule.id for rule in call.book.rules()), "the id of a rule", "rules list")
    rule = call.book.remove_rule(rule_id)
    return call.print_answer(rule, lambda out: out.line(f"Removed the rule {rule.id}."))


# --- requests and proposals


def _request_arguments(to: Parser) -> None:
    add_id(to)
    to.add_argument("to", metavar="SPACE", help="the space to share it into")
    add_refresh(to, metavar=None, help=_RULE_REFRESH)


@command("request", _request_arguments)
def _request_share(call: Call) -> int:
    args = call.args
    request = call.book.request_share(call.resolve_id(args.id), args.to, refresh=args.refresh)
    sentence = f"Requested to share it into {request.space}: {request.id}."
    return call.print_answer(request, lambda out: out.line(sentence))


def _pending_arguments(to: Parser) -> None:
    to.add_argument("--decided", action="store_true", help="also list decided requests")


@command("pending", _pending_arguments)
def _pending(call: Call) -> int:
    requests = call.book.pending(space=call.args.space, decided=call.args.decided)
    return call.print_answer(requests, lambda out: sharing.show_requests(out, requests))


def _reject_arguments(to: Parser) -> None:
    to.add_argument("id", metavar="ID", help="a request or a proposed memory: its id, first or last digits, or title")
    to.add_argument("--note", default="", help="the reason")


def _approve_arguments(to: Parser) -> None:
    _reject_arguments(to)
    add_expected_version(to)


@command("approve", _approve_arguments)
def _approve(call: Call) -> int:
    return _decide(call, partial(call.book.approve, expected_version=call.args.expected_version))


@command("reject", _reject_arguments)
def _reject(call: Call) -> int:
    return _decide(call, call.book.reject)


def _decide(call: Call, decide: Callable[..., ShareRequest]) -> int:
    decided = decide(_find_request(call, call.args.id), note=call.args.note)
    copy = f": {decided.copy} in {decided.space}" if decided.copy else ""
    if decided.purpose == "proposal":
        copy = f": {decided.memory}{f' in {decided.space}' if decided.state == 'approved' else ''}"
    return call.print_answer(decided, lambda out: out.line(f"{decided.state.capitalize()}{copy}."))


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
    """Return whether an id begins or ends with these digits."""
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

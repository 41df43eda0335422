"""The reasoning commands: reflect, supersede, reinstate, dependents, inbox and triage."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from commonbook.errors import BadInput
from commonbook.interfaces import json_values
from commonbook.interfaces.cli.commands import sharing_rules
from commonbook.interfaces.cli.commands.inbox import any_expired
from commonbook.interfaces.cli.input import text as input_text
from commonbook.interfaces.cli.output import memories, reasoning
from commonbook.interfaces.cli.output.plain import is_terminal
from commonbook.model.ids import format_time

if TYPE_CHECKING:
    from commonbook.interfaces.cli.call import Call, Command
    from commonbook.interfaces.cli.output.plain import Output
    from commonbook.model.reasoning import Dependent, Inbox, InboxItem, MemoryReference, SupersedeReport, TriageReport


_PAGE: Final = 100


def _reflect(call: Call) -> int:
    args = call.args
    text = input_text.text_of(args, piped=True)
    if text is None:
        raise BadInput("there is nothing to remember", fix="give a text, - for standard input, or --file")
    if not args.on:
        raise BadInput(
            "a reflection needs the memories that it was reasoned from",
            fix="name each with --on ID; `commonbook recall` finds them",
        )
    receipt = call.book.reflect(
        text,
        [call.resolve_id(part) for part in args.on],
        space=args.space,
        title=args.title,
        tags=input_text.tags(args.tag),
        importance=args.importance,
        occurred=args.occurred,
        key=args.key,
        mask=args.mask,
    )
    if not receipt.new:
        return call.print_answer(json_values.receipt_json(receipt), lambda out: memories.show_repeated(out, receipt))
    return call.print_answer(
        json_values.receipt_json(receipt), lambda out: memories.show_receipt(out, "Reflected", receipt)
    )


def _supersede(call: Call) -> int:
    args = call.args
    report = call.book.supersede(call.resolve_id(args.id), call.resolve_id(args.by), reason=args.reason)
    return call.print_answer(report._asdict(), lambda out: reasoning.show_superseded(out, report))


def _reinstate(call: Call) -> int:
    args = call.args
    report = call.book.reinstate(call.resolve_id(args.id), by=call.resolve_id(args.by) if args.by is not None else None)
    return call.print_answer(_reinstate_json(report), lambda out: reasoning.show_reinstated(out, report))


def _dependents(call: Call) -> int:
    memory_id = call.resolve_id(call.args.id)
    dependents = call.book.dependents(memory_id)
    return call.print_answer(
        {"id": memory_id, "dependents": [_dependent_json(item) for item in dependents]},
        lambda out: reasoning.show_dependents(out, call.book.lineage(memory_id, depth=0), dependents),
    )


def _inbox(call: Call) -> int:
    args = call.args
    if not args.json and is_terminal(sys.stdin) and is_terminal(sys.stdout):
        from commonbook.interfaces.cli.commands.inbox import triage_interactively

        return triage_interactively(call)
    limit = _PAGE if args.limit is None else args.limit
    page = call.book.inbox(space=args.space, expired=args.expired, limit=limit, after=args.after)
    return call.print_answer(_inbox_json(page), lambda out: _show_inbox(call, out, page))


def _show_inbox(call: Call, out: Output, page: Inbox) -> None:
    if page.proposals:
        sharing_rules.show_requests(out, page.proposals)
    if page.items or not page.proposals:
        reasoning.show_inbox(out, page, expired=not page.items and any_expired(call))


def _triage(call: Call) -> int:
    args = call.args
    by = call.resolve_id(args.by) if args.by is not None else None
    report = call.book.triage(call.resolve_id(args.id), args.verdict, note=args.note, by=by)
    return call.print_answer(_triage_json(report), lambda out: reasoning.show_triage_report(out, report))


COMMANDS: Final[Mapping[str, Command]] = {
    "reflect": _reflect,
    "supersede": _supersede,
    "reinstate": _reinstate,
    "dependents": _dependents,
    "inbox": _inbox,
    "triage": _triage,
}


# --- as JSON


def _reinstate_json(report: SupersedeReport) -> dict[str, Any]:
    return {**report._asdict(), "by": report.by or None}


def _triage_json(report: TriageReport) -> dict[str, Any]:
    return {
        "id": report.id,
        "verdict": report.verdict,
        "resolved": report.resolved,
        "version": report.version,
        "space": report.space,
        "path": report.path,
    }


def _dependent_json(dependent: Dependent) -> dict[str, Any]:
    return {**dependent._asdict(), "path": list(dependent.path)}


def _inbox_json(page: Inbox) -> dict[str, Any]:
    return {
        "notices": [_item_json(item) for item in page.items],
        "next": page.next,
        "proposals": [sharing_rules.request_json(proposal) for proposal in page.proposals],
    }


def _item_json(item: InboxItem) -> dict[str, Any]:
    return {
        **item._asdict(),
        "dependent": _reference_json(item.dependent),
        "invalidated": _reference_json(item.invalidated),
        "invalidating": _reference_json(item.invalidating) if item.invalidating else None,
        "at": format_time(item.at),
        "expires": json_values.time_or_none(item.expires),
        "path": list(item.path),
    }


def _reference_json(memory: MemoryReference) -> dict[str, Any]:
    return {**memory._asdict(), "deleted": json_values.time_or_none(memory.deleted)}

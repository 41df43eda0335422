"""The commands of sessions: append, switch, rewind, close, move, flush, show and list."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from commonbook.errors import BadInput, CommonbookError
from commonbook.interfaces import json_values
from commonbook.interfaces.cli.input import messages, text
from commonbook.interfaces.cli.output import sessions

if TYPE_CHECKING:
    from commonbook.interfaces.cli.call import Call, Command


_PAGE: Final = 100
_JSONL_PAGE: Final = 1000


def _append(call: Call) -> int:
    args = call.args
    batch = messages.read_messages(args)
    try:
        receipt = call.book.append(
            args.session, batch.messages, space=args.space, parent=args.parent, tags=text.tags(args.tag)
        )
    except CommonbookError as error:
        batch.name_line(error)
        raise
    code = call.print_answer(
        json_values.append_receipt_json(receipt), lambda out: sessions.show_append_receipt(out, receipt)
    )
    call.work_briefly()
    return code


def _switch(call: Call) -> int:
    args = call.args
    report = call.book.switch(
        args.old,
        args.new,
        reason=args.reason,
        space=args.space,
        to_space=args.to_space,
        tags=text.tags(args.tag),
    )
    data = {**json_values.settle_report_json(report), "to": args.new, "reason": args.reason}
    return call.print_answer(data, lambda out: sessions.show_settle_report(out, f"Switched to {args.new};", report))


def _rewind(call: Call) -> int:
    args = call.args
    rewound = call.book.rewind(args.session, _parse_place(args.after), space=args.space)
    return call.print_answer(
        json_values.rewind_json(args.session, rewound), lambda out: sessions.show_rewind(out, args.session, rewound)
    )


def _parse_place(argument: str) -> int | str:
    return int(argument) if re.fullmatch(r"-?\d{1,19}", argument, re.ASCII) else argument.lower()


def _close(call: Call) -> int:
    report = call.book.close_session(call.args.session, space=call.args.space)
    return call.print_answer(
        json_values.settle_report_json(report), lambda out: sessions.show_settle_report(out, "Closed;", report)
    )


def _move(call: Call) -> int:
    moved = call.book.move_session(call.args.session, call.args.to, space=call.args.space)
    return call.print_answer(json_values.session_json(moved), lambda out: sessions.show_moved(out, moved))


def _flush(call: Call) -> int:
    report = call.book.settle(call.args.session, space=call.args.space)
    return call.print_answer(
        json_values.settle_report_json(report), lambda out: sessions.show_settle_report(out, "", report)
    )


def _show(call: Call) -> int:
    args = call.args
    if args.jsonl:
        return _show_lines(call)
    limit = _PAGE if args.limit is None else args.limit
    page = call.book.messages(args.session, space=args.space, after=args.after, limit=limit)
    numbers = [message.seq for message in page.items]
    # What was put in at the start of the session stands before its first message.
    first = min(numbers, default=0) if args.after else 0
    last = max(numbers, default=0)
    used = call.book.session_uses(args.session, space=page.session.space.name, first=first, last=last)
    return call.print_answer(
        {**json_values.message_page_json(page), **json_values.uses_json(used)},
        lambda out: sessions.show_messages(out, page, used),
    )


def _show_lines(call: Call) -> int:
    args = call.args
    if args.json:
        raise BadInput("--json and --jsonl exclude each other", fix="give one of them")
    after: int | None = args.after
    while after is not None:
        limit = _JSONL_PAGE if args.limit is None else args.limit
        page = call.book.messages(args.session, space=args.space, after=after, limit=limit)
        for message in page.items:
            print(json_values.dumps(json_values.message_json(message), encoding=getattr(sys.stdout, "encoding", None)))
        after = page.next if args.limit is None else None
    return 0


def _list(call: Call) -> int:
    newest = call.book.sessions(space=call.args.space, limit=call.args.limit)
    return call.print_answer(json_values.sessions_json(newest), lambda out: sessions.show_sessions(out, newest))


COMMANDS: Final[Mapping[str, Command]] = {
    "session append": _append,
    "session switch": _switch,
    "session rewind": _rewind,
    "session close": _close,
    "session move": _move,
    "session flush": _flush,
    "session show": _show,
    "session list": _list,
}

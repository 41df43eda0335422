"""The commands of sessions: append, switch, rewind, close, flush, show and list."""

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
_WHOLE_PAGE: Final = 1000


def _append(call: Call) -> int:
    args = call.args
    given = messages.given(args)
    try:
        said = call.book.append(
            args.session, given.messages, space=args.space, parent=args.parent, tags=text.tags(args.tag)
        )
    except CommonbookError as error:
        given.name_line(error)
        raise
    code = call.tell(json_values.captured(said), lambda out: sessions.captured(out, said))
    call.turn()
    return code


def _switch(call: Call) -> int:
    args = call.args
    said = call.book.switch(args.old, args.new, reason=args.reason, space=args.space, tags=text.tags(args.tag))
    told = {**json_values.settled(said), "to": args.new, "reason": args.reason}
    return call.tell(told, lambda out: sessions.settled(out, f"Switched to {args.new};", said))


def _rewind(call: Call) -> int:
    args = call.args
    taken = call.book.rewind(args.session, _place(args.after))
    return call.tell(json_values.rewound(args.session, taken), lambda out: sessions.rewound(out, args.session, taken))


def _place(typed: str) -> int | str:
    return int(typed) if re.fullmatch(r"-?\d{1,19}", typed, re.ASCII) else typed.lower()


def _close(call: Call) -> int:
    said = call.book.close_session(call.args.session)
    return call.tell(json_values.settled(said), lambda out: sessions.settled(out, "Closed;", said))


def _flush(call: Call) -> int:
    said = call.book.settle(call.args.session)
    return call.tell(json_values.settled(said), lambda out: sessions.settled(out, "", said))


def _show(call: Call) -> int:
    args = call.args
    if args.jsonl:
        return _show_lines(call)
    page = call.book.messages(args.session, after=args.after, limit=_PAGE if args.limit is None else args.limit)
    return call.tell(json_values.messages(page), lambda out: sessions.messages(out, page))


def _show_lines(call: Call) -> int:
    args = call.args
    if args.json:
        raise BadInput("both --json and --jsonl say how to print", fix="give one of them")
    after: int | None = args.after
    while after is not None:
        limit = _WHOLE_PAGE if args.limit is None else args.limit
        page = call.book.messages(args.session, after=after, limit=limit)
        for one in page.items:
            print(json_values.dumps(json_values.message(one), encoding=getattr(sys.stdout, "encoding", None)))
        after = page.next if args.limit is None else None
    return 0


def _list(call: Call) -> int:
    said = call.book.sessions(space=call.args.space, limit=call.args.limit)
    return call.tell(json_values.sessions(said), lambda out: sessions.sessions(out, said))


COMMANDS: Final[Mapping[str, Command]] = {
    "session append": _append,
    "session switch": _switch,
    "session rewind": _rewind,
    "session close": _close,
    "session flush": _flush,
    "session show": _show,
    "session list": _list,
}

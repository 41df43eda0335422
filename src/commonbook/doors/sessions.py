"""The commands of sessions: append, switch, rewind, close, flush, show and list."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from commonbook.doors import intake, jsons, messages, transcript
from commonbook.errors import BadInput, CommonbookError

if TYPE_CHECKING:
    from commonbook.doors.call import Call, Command

_PAGE: Final = 100
_WHOLE_PAGE: Final = 1000


def _append(call: Call) -> int:
    args = call.args
    given = messages.given(args)
    try:
        said = call.book.append(
            args.session, given.messages, space=args.space, parent=args.parent, tags=intake.tags(args.tag)
        )
    except CommonbookError as error:
        given.name_line(error)
        raise
    code = call.tell(jsons.captured(said), lambda out: transcript.captured(out, said))
    call.turn()
    return code


def _switch(call: Call) -> int:
    args = call.args
    said = call.book.switch(args.old, args.new, reason=args.reason, space=args.space, tags=intake.tags(args.tag))
    told = {**jsons.settled(said), "to": args.new, "reason": args.reason}
    return call.tell(told, lambda out: transcript.settled(out, f"Switched to {args.new};", said))


def _rewind(call: Call) -> int:
    args = call.args
    taken = call.book.rewind(args.session, _place(args.after))
    return call.tell(jsons.rewound(args.session, taken), lambda out: transcript.rewound(out, args.session, taken))


def _place(typed: str) -> int | str:
    return int(typed) if re.fullmatch(r"-?\d{1,19}", typed, re.ASCII) else typed.lower()


def _close(call: Call) -> int:
    said = call.book.close_session(call.args.session)
    return call.tell(jsons.settled(said), lambda out: transcript.settled(out, "Closed;", said))


def _flush(call: Call) -> int:
    said = call.book.settle(call.args.session)
    return call.tell(jsons.settled(said), lambda out: transcript.settled(out, "", said))


def _show(call: Call) -> int:
    args = call.args
    if args.jsonl:
        return _show_lines(call)
    page = call.book.messages(args.session, after=args.after, limit=_PAGE if args.limit is None else args.limit)
    return call.tell(jsons.messages(page), lambda out: transcript.messages(out, page))


def _show_lines(call: Call) -> int:
    args = call.args
    if args.json:
        raise BadInput("both --json and --jsonl say how to print", fix="give one of them")
    after: int | None = args.after
    while after is not None:
        limit = _WHOLE_PAGE if args.limit is None else args.limit
        page = call.book.messages(args.session, after=after, limit=limit)
        for one in page.items:
            print(jsons.dumps(jsons.message(one), encoding=getattr(sys.stdout, "encoding", None)))
        after = page.next if args.limit is None else None
    return 0


def _list(call: Call) -> int:
    said = call.book.sessions(space=call.args.space, limit=call.args.limit)
    return call.tell(jsons.sessions(said), lambda out: transcript.sessions(out, said))


COMMANDS: Final[Mapping[str, Command]] = {
    "session append": _append,
    "session switch": _switch,
    "session rewind": _rewind,
    "session close": _close,
    "session flush": _flush,
    "session show": _show,
    "session list": _list,
}

"""The commands of sessions: append, switch, rewind, close, move, flush, show and list."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, BinaryIO, Final, NamedTuple

from commonbook.errors import BadInput, CommonbookError, TooLarge
from commonbook.interfaces.cli.arguments import (
    STDIN,
    add_list,
    json_object,
    number,
    read_text,
    standard_input,
    tags,
)
from commonbook.interfaces.cli.commands import SPACE_TO_WRITE_HELP, command
from commonbook.interfaces.cli.output import is_terminal, json_line, sessions
from commonbook.values.session import MAX_MESSAGE_BYTES, MAX_MESSAGES, NewMessage

if TYPE_CHECKING:
    from argparse import Namespace

    from commonbook.interfaces.cli.call import Call
    from commonbook.interfaces.cli.parser import Parser
    from commonbook.values.session import SettleReport

_PAGE: Final = 100
_JSONL_PAGE: Final = 1000
_REASONS: Final = ("new", "reset", "resume", "branch", "compress")
_NEW_TAG_HELP: Final = "of a new session (repeatable)"


def _add_session(to: Parser) -> None:
    to.add_argument(
        "session", metavar="SESSION", help="its id, chosen by you: 1 to 200 characters, no blanks; unique in its space"
    )


# --- append


def _append_arguments(to: Parser) -> None:
    _add_session(to)
    to.add_argument(
        "text",
        metavar="TEXT",
        nargs="?",
        help="the text; - reads it, or JSON lines with a text each, from standard input",
    )
    to.add_argument("--role", help="the role: user (default), assistant, system, tool or another word")
    to.add_argument("--author", metavar="NAME", help="the author; default: you, or agent:ROLE")
    to.add_argument("--time", metavar="TIME", help="the time of the message; default: now")
    to.add_argument(
        "--client-id", metavar="ID", help="your own id of the message: a repeat with it is not stored again"
    )
    to.add_argument(
        "--jsonl",
        action="store_true",
        help="read JSON lines, each an object with text, role, author, time and client_id",
    )
    to.add_argument("--parent", metavar="SESSION", help="the parent of a new session, in the same space")
    add_list(to, "--tag", "TAG", _NEW_TAG_HELP)


@command(
    "session append",
    _append_arguments,
    summary="add messages to a session; the first message creates it",
    first_write=True,
    space_help=SPACE_TO_WRITE_HELP,
)
def _append(call: Call) -> int:
    args = call.args
    batch = _read_messages(args)
    try:
        receipt = call.book.append(
            args.session, batch.messages, space=args.space, parent=args.parent, tags=tags(args.tag)
        )
    except CommonbookError as error:
        batch.name_line(error)
        raise
    code = call.print_answer(receipt, lambda out: sessions.show_append_receipt(out, receipt))
    call.work_briefly()
    return code


# --- messages of an append: one text, or JSON lines with one message each

_OPTIONS: Final = ("role", "author", "time", "client_id")
# JSON can make a text six times as long, if every character is escaped.
_MAX_LINE_BYTES: Final = 6 * MAX_MESSAGE_BYTES + 64 * 1024
_MAX_INPUT_BYTES: Final = 256 * 1024 * 1024


class _Batch(NamedTuple):
    """Messages, with their line numbers if they came as JSON lines."""

    messages: list[NewMessage]
    lines: list[int]

    def name_line(self, error: CommonbookError) -> None:
        """Add the line number to an error, if it is known."""
        if self.lines and error.item is not None:
            error.message = f"line {self.lines[error.item]}: {error.message}"
            error.fix = f"{error.fix}; nothing is stored"


def _read_messages(args: Namespace) -> _Batch:
    """Return the messages to append, from the arguments or from standard input."""
    if args.jsonl:
        _refuse_text_options(args)
        return _read_lines(standard_input())
    if args.text is not None and args.text != "-":
        return _single(args, args.text)
    if args.text is None and is_terminal(sys.stdin):
        raise _no_input()
    return _read_piped(args)


def _refuse_text_options(args: Namespace) -> None:
    if args.text not in (None, "-"):
        raise BadInput("the text is given twice", fix="give the text itself, or --jsonl and JSON lines, not both")
    if excluded := [name for name in _OPTIONS if getattr(args, name) is not None]:
        name = excluded[0].replace("_", "-")
        raise BadInput(f"--jsonl takes no --{name}", fix="write the fields of each message into its line")


def _single(args: Namespace, text: str) -> _Batch:
    options = {name: getattr(args, name) for name in _OPTIONS}
    return _Batch([NewMessage(text, **{name: value for name, value in options.items() if value is not None})], [])


def _read_piped(args: Namespace) -> _Batch:
    """Read one text; or JSON lines, if the first line is an object with a text and no option describes the message."""
    file = standard_input()
    first = b""
    while not first.strip() and len(first) <= _MAX_LINE_BYTES and (line := _read_line(file)):
        first += line
    if all(getattr(args, name) is None for name in _OPTIONS) and _is_message(first):
        return _read_lines(file, already_read=first)
    text = read_text(file, STDIN, already_read=first)
    if not text and args.text is None:
        # A program without a standard input of its own sends nothing.
        raise _no_input()
    return _single(args, text)


def _is_message(line: bytes) -> bool:
    try:
        fields = json_object(line) if line.lstrip().startswith(b"{") else {}
    except BadInput:
        return False
    return "text" in fields or {"role", "content"} <= fields.keys()


def _read_lines(file: BinaryIO, *, already_read: bytes = b"") -> _Batch:
    batch = _Batch([], [])
    for place, line in enumerate(_lines(file, already_read), start=1):
        if line.isspace():
            continue
        try:
            batch.messages.append(_message(line))
        except CommonbookError as error:
            error.message = f"line {place}: {error.message}"
            error.fix = f"{error.fix}; nothing is stored"
            raise
        batch.lines.append(place)
        if len(batch.lines) > MAX_MESSAGES:
            raise TooLarge(
                f"line {place}: these are more than {MAX_MESSAGES:,} messages",
                fix=f"send at most {MAX_MESSAGES:,} at a time; nothing is stored",
            )
    if not batch.messages:
        raise _no_input()
    return batch


def _lines(file: BinaryIO, already_read: bytes) -> Iterator[bytes]:
    size = 0
    for line in chain(io.BytesIO(already_read), _all_lines(file)):
        size += len(line)
        if size > _MAX_INPUT_BYTES:
            raise TooLarge("the lines have more than 256 MiB", fix="send them in several parts; nothing is stored")
        yield line


def _all_lines(file: BinaryIO) -> Iterable[bytes]:
    return iter(lambda: _read_line(file), b"")


def _read_line(file: BinaryIO) -> bytes:
    """Read a line, at most one byte more than the longest valid one."""
    try:
        return file.readline(_MAX_LINE_BYTES + 1)
    except OSError as error:
        raise BadInput(f"standard input cannot be read: {error.strerror}", fix="send it through a pipe") from error


def _message(line: bytes) -> NewMessage:
    """Return the message in a line of JSON, also in the shape of OpenAI's or Anthropic's interface.

    Only types are checked here, the book checks the values.
    """
    from commonbook.core.text.chat_messages import parse_message

    if len(line) > _MAX_LINE_BYTES:
        raise TooLarge("it is longer than any message in JSON", fix="send it in parts, or store it as a memory")
    fields = json_object(line)
    if "text" not in fields and "role" not in fields and "type" not in fields:
        raise BadInput("there is no text", fix='write at least {"text": "…"}')
    message = parse_message(fields)
    for name, value in message._asdict().items():
        if name != "masked" and not isinstance(value, str) and (value is not None or name == "text"):
            raise BadInput(f"{name} is not a string", fix=f"write {name} as a string")
    return message


def _no_input() -> BadInput:
    return BadInput("there is nothing to append", fix="give a text, - for standard input, or --jsonl and JSON lines")


# --- settling


def _switch_arguments(to: Parser) -> None:
    to.add_argument("old", metavar="OLD", help="the session to settle")
    to.add_argument("new", metavar="NEW", help="the session to create or resume")
    to.add_argument("--reason", choices=_REASONS, default="new", metavar="WHY", help=f"{', '.join(_REASONS)} (new)")
    to.add_argument("--to-space", metavar="SPACE", help="the space of NEW, if it is another one")
    add_list(to, "--tag", "TAG", _NEW_TAG_HELP)


@command(
    "session switch",
    _switch_arguments,
    summary="settle a session and continue in another",
    space_help=SPACE_TO_WRITE_HELP,
)
def _switch(call: Call) -> int:
    args = call.args
    report = call.book.switch(
        args.old, args.new, reason=args.reason, space=args.space, to_space=args.to_space, tags=tags(args.tag)
    )
    return _print_settled(call, f"Switched to {args.new};", report)


def _print_settled(call: Call, prefix: str, report: SettleReport) -> int:
    return call.print_answer(report, lambda out: sessions.show_settle_report(out, prefix, report))


def _rewind_arguments(to: Parser) -> None:
    _add_session(to)
    to.add_argument("after", metavar="AFTER", help="the last message to keep: its number (0 for none) or id")


@command("session rewind", _rewind_arguments, summary="rewind a session: remove all messages after one")
def _rewind(call: Call) -> int:
    args = call.args
    rewound = call.book.rewind(args.session, _parse_place(args.after), space=args.space)
    return call.print_answer(rewound, lambda out: sessions.show_rewind(out, args.session, rewound))


def _parse_place(argument: str) -> int | str:
    return int(argument) if re.fullmatch(r"-?\d{1,19}", argument, re.ASCII) else argument.lower()


@command(
    "session close", _add_session, summary="settle everything in a session and close it; a later message opens it again"
)
def _close(call: Call) -> int:
    return _print_settled(call, "Closed;", call.book.close_session(call.args.session, space=call.args.space))


def _move_arguments(to: Parser) -> None:
    _add_session(to)
    to.add_argument("to", metavar="TO", help="the new space; --space is the present one")


@command("session move", _move_arguments, summary="move a session with its messages and episodes into another space")
def _move(call: Call) -> int:
    moved = call.book.move_session(call.args.session, call.args.to, space=call.args.space)
    return call.print_answer(moved, lambda out: sessions.show_moved(out, moved))


@command("session flush", _add_session, summary="settle everything in a session now")
def _flush(call: Call) -> int:
    return _print_settled(call, "", call.book.settle(call.args.session, space=call.args.space))


# --- reading


def _show_arguments(to: Parser) -> None:
    _add_session(to)
    to.add_argument("--after", type=number, default=0, metavar="N", help="only messages after number N")
    to.add_argument("--limit", type=int, metavar="N", help="how many (100; with --jsonl, all)")
    to.add_argument("--jsonl", action="store_true", help="print JSON lines, one message each")


@command("session show", _show_arguments, summary="show the messages of a session")
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
        {**page._asdict(), "uses": used},
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
            print(json_line(message, sys.stdout))
        after = page.next if args.limit is None else None
    return 0


def _list_arguments(to: Parser) -> None:
    to.add_argument("--limit", type=int, default=50, metavar="N", help="how many (50)")


@command("session list", _list_arguments, summary="list the newest sessions, of all spaces or of --space")
def _list(call: Call) -> int:
    newest = call.book.sessions(space=call.args.space, limit=call.args.limit)
    return call.print_answer(newest, lambda out: sessions.show_sessions(out, newest))

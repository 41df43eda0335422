"""What `session append` is given: one text, or JSON lines with a message each."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, BinaryIO, Final, NamedTuple

from commonbook.errors import BadInput, CommonbookError, TooLarge
from commonbook.interfaces.cli.input import text as input_text
from commonbook.model.session import MAX_MESSAGE_BYTES, MAX_MESSAGES, NewMessage

if TYPE_CHECKING:
    from argparse import Namespace


_OWN: Final = ("role", "author", "time", "client_id")
_FIELDS: Final = ("text", *_OWN)
# A text in JSON can be six times as long as it is: every character an escape.
_LONGEST_LINE: Final = 6 * MAX_MESSAGE_BYTES + 64 * 1024
_MOST_BYTES: Final = 256 * 1024 * 1024


class Given(NamedTuple):
    """The messages, and on which lines they stood if they came as lines."""

    messages: list[NewMessage]
    lines: list[int]

    def name_line(self, error: CommonbookError) -> None:
        """Let an error say which line it is about, if that is known."""
        if self.lines and error.item is not None:
            error.message = f"line {self.lines[error.item]}: {error.message}"
            error.fix = f"{error.fix}; nothing is stored"


def given(args: Namespace) -> Given:
    """Return what is to be appended: what was typed, or what standard input has."""
    if args.jsonl:
        _refuse_more(args)
        return _many(input_text.standard_input())
    if args.text is not None and args.text != "-":
        return _one(args, args.text)
    if args.text is None and input_text.is_terminal(sys.stdin):
        raise _nothing()
    return _piped(args)


def _refuse_more(args: Namespace) -> None:
    if args.text not in (None, "-"):
        raise BadInput("the text is given twice", fix="give the text itself, or --jsonl and JSON lines, not both")
    if also := [name for name in _OWN if getattr(args, name) is not None]:
        name = also[0].replace("_", "-")
        raise BadInput(f"--jsonl takes no --{name}", fix="write the fields of each message into its line")


def _one(args: Namespace, text: str) -> Given:
    own = {name: getattr(args, name) for name in _OWN}
    return Given([NewMessage(text, **{name: value for name, value in own.items() if value is not None})], [])


def _piped(args: Namespace) -> Given:
    """Read one text; or JSON lines, if the first is an object with a text and no option says who speaks."""
    file = input_text.standard_input()
    first = b""
    while not first.strip() and len(first) <= _LONGEST_LINE and (line := _line(file)):
        first += line
    if all(getattr(args, name) is None for name in _OWN) and _is_message(first):
        return _many(file, begun=first)
    text = input_text.decoded(file, input_text.STDIN, begun=first)
    if not text and args.text is None:
        # Nothing at all is what a program without a standard input of its own sends.
        raise _nothing()
    return _one(args, text)


def _is_message(line: bytes) -> bool:
    try:
        return line.lstrip().startswith(b"{") and "text" in input_text.json_object(line)
    except BadInput:
        return False


def _many(file: BinaryIO, *, begun: bytes = b"") -> Given:
    said = Given([], [])
    for number, line in enumerate(_lines(file, begun), start=1):
        if line.isspace():
            continue
        try:
            said.messages.append(_message(line))
        except CommonbookError as error:
            error.message = f"line {number}: {error.message}"
            error.fix = f"{error.fix}; nothing is stored"
            raise
        said.lines.append(number)
        if len(said.lines) > MAX_MESSAGES:
            raise TooLarge(
                f"line {number}: these are more than {MAX_MESSAGES:,} messages",
                fix=f"send at most {MAX_MESSAGES:,} at a time; nothing is stored",
            )
    if not said.messages:
        raise _nothing()
    return said


def _lines(file: BinaryIO, begun: bytes) -> Iterator[bytes]:
    size = 0
    for line in chain(io.BytesIO(begun), _all_lines(file)):
        size += len(line)
        if size > _MOST_BYTES:
            raise TooLarge("the lines have more than 256 MiB", fix="send them in several parts; nothing is stored")
        yield line


def _all_lines(file: BinaryIO) -> Iterable[bytes]:
    return iter(lambda: _line(file), b"")


def _line(file: BinaryIO) -> bytes:
    """Read a line, but no more of it than a message can have, which then is no JSON."""
    try:
        return file.readline(_LONGEST_LINE + 1)
    except OSError as error:
        raise BadInput(f"standard input cannot be read: {error.strerror}", fix="send it through a pipe") from error


def _message(line: bytes) -> NewMessage:
    """Return the message of a line; what its values may be is for the book to say."""
    if len(line) > _LONGEST_LINE:
        raise TooLarge("it is longer than any message in JSON", fix="send it in parts, or store it as a memory")
    said = input_text.json_object(line)
    if unknown := [name for name in said if name not in _FIELDS]:
        raise BadInput(f"{unknown[0]!r} is not a field of a message", fix=f"the fields are {', '.join(_FIELDS)}")
    if "text" not in said:
        raise BadInput("there is no text", fix='write at least {"text": "…"}')
    told = {name: value for name, value in said.items() if value is not None or name == "text"}
    for name, value in told.items():
        if not isinstance(value, str):
            raise BadInput(f"{name} is not a string", fix=f"write {name} as a string")
    return NewMessage(**told)


def _nothing() -> BadInput:
    return BadInput("there is nothing to append", fix="give a text, - for standard input, or --jsonl and JSON lines")

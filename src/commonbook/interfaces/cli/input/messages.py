"""Input of `session append`: one text, or JSON lines with one message each."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, BinaryIO, Final, NamedTuple

from commonbook.errors import BadInput, CommonbookError, TooLarge
from commonbook.interfaces.cli.input import text as input_text
from commonbook.interfaces.cli.output.plain import is_terminal
from commonbook.model.session import MAX_MESSAGE_BYTES, MAX_MESSAGES, NewMessage
from commonbook.runtime.lazy_modules import LazyModule

if TYPE_CHECKING:
    from argparse import Namespace

    from commonbook.text import chat_messages
else:
    # Only JSON lines have other shapes.
    chat_messages = LazyModule("commonbook.text.chat_messages")


_OPTIONS: Final = ("role", "author", "time", "client_id")
# JSON can make a text six times as long, if every character is escaped.
_MAX_LINE_BYTES: Final = 6 * MAX_MESSAGE_BYTES + 64 * 1024
_MAX_INPUT_BYTES: Final = 256 * 1024 * 1024


class MessageBatch(NamedTuple):
    """Messages, with their line numbers if they came as JSON lines."""

    messages: list[NewMessage]
    lines: list[int]

    def name_line(self, error: CommonbookError) -> None:
        """Add the line number to an error, if it is known."""
        if self.lines and error.item is not None:
            error.message = f"line {self.lines[error.item]}: {error.message}"
            error.fix = f"{error.fix}; nothing is stored"


def read_messages(args: Namespace) -> MessageBatch:
    """Return the messages to append, from the arguments or from standard input."""
    if args.jsonl:
        _refuse_text_options(args)
        return _read_lines(input_text.standard_input())
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


def _single(args: Namespace, text: str) -> MessageBatch:
    options = {name: getattr(args, name) for name in _OPTIONS}
    return MessageBatch([NewMessage(text, **{name: value for name, value in options.items() if value is not None})], [])


def _read_piped(args: Namespace) -> MessageBatch:
    """Read one text; or JSON lines, if the first line is an object with a text and no option describes the message."""
    file = input_text.standard_input()
    first = b""
    while not first.strip() and len(first) <= _MAX_LINE_BYTES and (line := _read_line(file)):
        first += line
    if all(getattr(args, name) is None for name in _OPTIONS) and _is_message(first):
        return _read_lines(file, already_read=first)
    text = input_text.read_text(file, input_text.STDIN, already_read=first)
    if not text and args.text is None:
        # A program without a standard input of its own sends nothing.
        raise _no_input()
    return _single(args, text)


def _is_message(line: bytes) -> bool:
    try:
        fields = input_text.json_object(line) if line.lstrip().startswith(b"{") else {}
    except BadInput:
        return False
    return "text" in fields or {"role", "content"} <= fields.keys()


def _read_lines(file: BinaryIO, *, already_read: bytes = b"") -> MessageBatch:
    batch = MessageBatch([], [])
    for number, line in enumerate(_lines(file, already_read), start=1):
        if line.isspace():
            continue
        try:
            batch.messages.append(_message(line))
        except CommonbookError as error:
            error.message = f"line {number}: {error.message}"
            error.fix = f"{error.fix}; nothing is stored"
            raise
        batch.lines.append(number)
        if len(batch.lines) > MAX_MESSAGES:
            raise TooLarge(
                f"line {number}: these are more than {MAX_MESSAGES:,} messages",
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
    if len(line) > _MAX_LINE_BYTES:
        raise TooLarge("it is longer than any message in JSON", fix="send it in parts, or store it as a memory")
    fields = input_text.json_object(line)
    if "text" not in fields and "role" not in fields and "type" not in fields:
        raise BadInput("there is no text", fix='write at least {"text": "…"}')
    message = chat_messages.parse_message(fields)
    for name, value in message._asdict().items():
        if name != "masked" and not isinstance(value, str) and (value is not None or name == "text"):
            raise BadInput(f"{name} is not a string", fix=f"write {name} as a string")
    return message


def _no_input() -> BadInput:
    return BadInput("there is nothing to append", fix="give a text, - for standard input, or --jsonl and JSON lines")

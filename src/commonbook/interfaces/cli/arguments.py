"""Arguments that several commands share, and the values that they stand for: texts, tags, metadata, filters.

A text comes from an argument, a file or standard input, and is limited to the size of a memory.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable
from typing import Any, BinaryIO, Final

from commonbook.errors import BadInput, BadText, NotFound, TooLarge
from commonbook.interfaces.cli.output import is_terminal
from commonbook.interfaces.cli.parser import Parser
from commonbook.values.memory import MAX_TEXT_BYTES, MODES, Filter

_MAX_NUMBER: Final = 2**63 - 1
_MAX_AMOUNT: Final = 10_000

ID_HELP: Final = "an id, its first or last digits, the name of its file, or its title"
STDIN: Final = "standard input"


# --- arguments


def add_id(to: Parser) -> None:
    """Add the argument that names a memory."""
    to.add_argument("id", metavar="ID", help=ID_HELP)


def add_text(to: Parser) -> None:
    """Add the arguments of a text, which `text_of` reads."""
    to.add_argument("text", metavar="TEXT", nargs="?", help="the text; - reads it from standard input")
    to.add_argument("--file", metavar="FILE", help="read the text from a file")


def add_no_mask(to: Parser) -> None:
    """Add the option that stores secrets."""
    to.add_argument(
        "--no-mask", action="store_false", dest="mask", help="store passwords and other secrets as they are"
    )


def add_list(to: Parser, name: str, metavar: str, help: str) -> None:  # noqa: A002 - as in argparse
    """Add an option that may be repeated."""
    to.add_argument(name, action="append", default=[], metavar=metavar, help=help)


def add_filter(to: Parser) -> None:
    """Add the options of a filter, which `filter_of` reads."""
    add_list(to, "--tag", "TAG", "with this tag (repeatable: with all)")
    add_list(to, "--kind", "KIND", "of this kind (repeatable: of any)")
    add_list(to, "--meta", "NAME=VALUE", "with this metadata (repeatable)")
    to.add_argument("--since", metavar="TIME", help="that occurred (else were created) at this time or later")
    to.add_argument("--until", metavar="TIME", help="that occurred (else were created) before this time")


def add_expected_version(to: Parser) -> None:
    """Add the option for optimistic locking."""
    to.add_argument("--expected-version", type=number, metavar="N", help="only if the memory has this version")


def add_refresh(to: Parser, *, metavar: str | None, help: str) -> None:  # noqa: A002 - as in argparse
    """Add the option that says when a copy follows its source."""
    to.add_argument("--refresh", choices=MODES, default=MODES[0], metavar=metavar, help=help)


def add_confirmation(to: Parser, dry_run: str) -> None:
    """Add the options of a command that asks before it changes anything."""
    to.add_argument("--dry-run", action="store_true", help=dry_run)
    add_yes(to)


def add_yes(to: Parser) -> None:
    """Add the option that answers the question of a command."""
    to.add_argument("--yes", action="store_true", help="do not ask for confirmation")


def number(text: str) -> int:
    """Read a whole number that is not negative."""
    return _number_in(text, range(_MAX_NUMBER))


def amount(text: str) -> int:
    """Read a count from 1 to 10,000."""
    return _number_in(text, range(1, _MAX_AMOUNT + 1))


def _number_in(text: str, allowed: range) -> int:
    try:
        value = int(text)
    except ValueError:
        value = -1
    if value not in allowed:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {allowed[0]} to {allowed[-1]}")
    return value


def number_or(word: str, argument: str, *, fix: str) -> int | None:
    """Return the whole number of an argument, or None for a word such as `none`."""
    if argument.strip().lower() == word:
        return None
    try:
        return int(argument)
    except ValueError:
        raise BadInput(f"{argument!r} is not a whole number", fix=fix) from None


def filter_of(args: argparse.Namespace) -> Filter:
    """Return the filter options as a filter; without --space it covers every space."""
    return Filter(
        space=args.space,
        kinds=tuple(args.kind),
        tags=filter_tags(args),
        since=args.since,
        until=args.until,
        deleted=getattr(args, "deleted", False),
        metadata=metadata(args.meta),
    )


def filter_tags(args: argparse.Namespace) -> tuple[str, ...]:
    """Return the tags of a filter.

    An empty tag is passed on, so that the book refuses it: an unset variable must not mean every memory.
    """
    return tuple(tag for value in args.tag for tag in value.split(","))


# --- confirmation


def confirm(question: str) -> bool:
    """Ask on the terminal, on standard error, and return whether the answer is yes."""
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


# --- texts


def text_of(args: argparse.Namespace, *, piped: bool) -> str | None:
    """Return the text of the argument, of --file or, with `piped`, of standard input; None if there is none."""
    if args.text is not None and args.file is not None:
        raise BadInput("the text is given twice", fix="give the text itself or --file, not both")
    if args.file is not None:
        with open_file(args.file) as file:
            return without_final_break(read_text(file, args.file))
    if args.text == "-":
        return without_final_break(read_standard_input())
    if args.text is None and piped and not is_terminal(sys.stdin):
        # A program without a standard input of its own sends nothing.
        return without_final_break(read_text(standard_input(), STDIN)) or None
    return str(args.text) if args.text is not None else None


def without_final_break(text: str) -> str:
    """Return the text without one final line break, which ends a file or a pipe and is no part of the text."""
    return text.removesuffix("\r\n") if text.endswith("\r\n") else text.removesuffix("\n")


def read_standard_input() -> str:
    """Read standard input as text; on a terminal, say first that it is read."""
    file = standard_input()
    if is_terminal(sys.stdin):
        print("reading from standard input; Ctrl-D on a line of its own ends it", file=sys.stderr, flush=True)
    return read_text(file, STDIN)


def read_text(file: BinaryIO, name: str, *, already_read: bytes = b"") -> str:
    """Read UTF-8 text, after the bytes that are read already; a text that is too large is not read to the end."""
    try:
        data = already_read + file.read(max(0, MAX_TEXT_BYTES + 1 - len(already_read)))
    except OSError as error:
        raise BadInput(f"{name} cannot be read: {error.strerror}", fix="name a file with the text") from error
    if len(data) > MAX_TEXT_BYTES:
        raise TooLarge(
            f"{name} has more than the {MAX_TEXT_BYTES:,} bytes that one memory may hold",
            fix="split it into several memories, or keep it as a file of its own and remember where it is",
        )
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise BadText(
            f"{name} is not UTF-8: byte {data[error.start]:#04x} at position {error.start}",
            fix="convert it first, for instance with `iconv -f latin1 -t utf-8`",
        ) from None


def json_object(line: bytes) -> dict[str, Any]:
    """Parse a line of JSON that holds one object."""
    fix = 'write one object on each line, such as {"text": "Alice owns billing"}'
    try:
        value = json.loads(line.decode())
    except UnicodeDecodeError:
        raise BadText("it is not UTF-8", fix="convert the file to UTF-8 first") from None
    except (ValueError, RecursionError) as error:
        raise BadInput(f"it is not JSON: {error}", fix=fix) from None
    if not isinstance(value, dict):
        raise BadInput("it is not a JSON object", fix=fix)
    return value


def tags(values: Iterable[str]) -> list[str]:
    """Return the tags of all options: one option may hold several, separated by commas; empty ones are dropped."""
    parts = (tag.strip().lstrip("# ") for value in values for tag in value.split(","))
    return [" ".join(tag.split()) for tag in parts if tag]


def metadata(values: Iterable[str]) -> dict[str, Any]:
    """Return the fields of metadata in options such as `ticket=A-12`; a value in double quotes is always a text."""
    from commonbook.core.text.metadata import parse_word

    fields: dict[str, Any] = {}
    for value in values:
        name, equals, word = value.partition("=")
        if not equals:
            raise BadInput(f"{value!r} is no field of metadata", fix="write it as NAME=VALUE, such as ticket=A-12")
        is_quoted = len(word) > 1 and word[0] == word[-1] == '"'
        fields[name.strip()] = word[1:-1] if is_quoted else parse_word(word)
    return fields


def open_file(path: str) -> BinaryIO:
    """Open a file for reading, or raise why it cannot be read."""
    try:
        return open(path, "rb")
    except FileNotFoundError as error:
        raise NotFound(
            f"there is no file {path!r}", fix="name a file that is there, or - for standard input"
        ) from error
    except (OSError, ValueError) as error:
        reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
        raise BadInput(f"{path!r} cannot be read: {reason}", fix="name a file with the text, or - for it") from error


def standard_input() -> BinaryIO:
    """Return standard input as a binary stream; raise if it is closed."""
    if sys.stdin is None:
        raise BadInput("standard input is closed", fix="give the text as an argument or with --file")
    return sys.stdin.buffer

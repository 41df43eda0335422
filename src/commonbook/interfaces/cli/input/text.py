"""Text from outside: standard input and files, never more of it than a memory may hold."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, BinaryIO

from commonbook.errors import BadInput, BadText, NotFound, TooLarge
from commonbook.model.memory import MAX_TEXT_BYTES

if TYPE_CHECKING:
    from argparse import Namespace


STDIN = "standard input"


def text_of(args: Namespace, *, piped: bool) -> str | None:
    """Return the text that was typed, named or, with `piped`, sent without a word about it; else None."""
    if args.text is not None and args.file is not None:
        raise BadInput("the text is given twice", fix="give the text itself or --file, not both")
    if args.file is not None:
        with open_file(args.file) as file:
            return decoded(file, args.file)
    if args.text == "-":
        return decoded(standard_input(), STDIN)
    if args.text is None and piped and not is_terminal(sys.stdin):
        # Nothing at all is what a program without a standard input of its own sends.
        return decoded(standard_input(), STDIN) or None
    return str(args.text) if args.text is not None else None


def decoded(file: BinaryIO, name: str, *, begun: bytes = b"") -> str:
    """Read a text of UTF-8, of which some may be read already; what is too large is not read to the end."""
    try:
        data = begun + file.read(max(0, MAX_TEXT_BYTES + 1 - len(begun)))
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
    """Return the object that a line of JSON holds."""
    fix = 'write one object on each line, such as {"text": "Alice owns billing"}'
    try:
        said = json.loads(line.decode())
    except UnicodeDecodeError:
        raise BadText("it is not UTF-8", fix="convert the file to UTF-8 first") from None
    except (ValueError, RecursionError) as error:
        raise BadInput(f"it is not JSON: {error}", fix=fix) from None
    if not isinstance(said, dict):
        raise BadInput("it is not a JSON object", fix=fix)
    return said


def tags(values: Iterable[str]) -> list[str]:
    """Return the tags of all options; several may stand in one, with commas, and an empty one means none."""
    parted = (tag.strip().lstrip("# ") for value in values for tag in value.split(","))
    return [" ".join(tag.split()) for tag in parted if tag]


def open_file(path: str) -> BinaryIO:
    """Open a file to read from, or say why that cannot be."""
    try:
        return open(path, "rb")
    except FileNotFoundError as error:
        raise NotFound(
            f"there is no file {path!r}", fix="name a file that is there, or - for standard input"
        ) from error
    except (OSError, ValueError) as error:
        why = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
        raise BadInput(f"{path!r} cannot be read: {why}", fix="name a file with the text, or - for it") from error


def standard_input() -> BinaryIO:
    """Return standard input as bytes; where it is closed, there is nothing in it."""
    if sys.stdin is None:
        raise BadInput("standard input is closed", fix="give the text as an argument or with --file")
    return sys.stdin.buffer


def is_terminal(stream: object) -> bool:
    """Tell whether a person sits at the other end."""
    return bool(stream is not None and stream.isatty())  # type: ignore[attr-defined]

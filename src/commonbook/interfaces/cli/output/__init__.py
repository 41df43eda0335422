"""Output of the command line: JSON, and answers for people, laid out on a terminal or as plain lines elsewhere.

Plain output, for pipes and files, has tab-separated values, exact times, full ids and no colour.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final, NamedTuple, TypeAlias

from commonbook.model.ids import format_time

Cell: TypeAlias = str | tuple[str, str]
"""A value of a table or a tree: a text, or a text and its style."""

# A memory must not send control sequences to the terminal: control characters become visible symbols.
_VISIBLE_SYMBOLS = {
    **{code: 0x2400 + code for code in range(0x20) if chr(code) not in "\n\t"},
    0x7F: 0x2421,
    **dict.fromkeys(range(0x80, 0xA0), 0xFFFD),
}


def clean(text: str) -> str:
    """Return the text without control characters, except new lines and tabs."""
    return text.replace("\r\n", "\n").translate(_VISIBLE_SYMBOLS)


def one_line(text: str) -> str:
    """Return the text, clean, on one line and without tabs."""
    return clean(" ".join(text.split()))


def words(cell: Cell) -> str:
    """Return the text of a cell, without its style, on one line."""
    return one_line(cell if isinstance(cell, str) else cell[0])


def json_line(value: object, stream: object) -> str:
    """Return a value as a line of JSON that the encoding of a stream can represent and that a terminal can show."""
    from commonbook.wire.encoding import encode

    if (getattr(stream, "encoding", None) or "").lower().replace("-", "") != "utf8":
        return json.dumps(encode(value))
    line = json.dumps(encode(value), ensure_ascii=False)
    # JSON escapes the control characters below U+0020 itself; the others would reach a terminal as they are.
    return re.sub("[\x7f-\x9f\ud800-\udfff]", lambda match: f"\\u{ord(match[0]):04x}", line)


class Branch(NamedTuple):
    """A line of a tree: its depth and its cells. Each branch follows its parent."""

    depth: int
    cells: tuple[Cell, ...]


class Output:
    """The destination of answers: a pipe or a file, which gets plain lines; `Screen` lays them out for a terminal."""

    def line(self, text: str, style: str = "") -> None:
        """Print one line, without its style."""
        del style
        print(clean(text))

    def command(self, text: str) -> None:
        """Print a command to be copied."""
        self.line(f"  {text}")

    def note(self, text: str, *, command: str = "") -> None:
        """Print a note on standard error, apart from the answer; a command to be copied has a line of its own."""
        print(clean(text), file=sys.stderr)
        if command:
            print(f"  {clean(command)}", file=sys.stderr)

    def styled(self, phrases: Iterable[tuple[str, str]], *, indent: int = 0) -> None:
        """Print phrases as one indented text, without their styles."""
        lines = clean("".join(text for text, _ in phrases)).split("\n")
        print("\n".join(" " * indent + line if line else "" for line in lines))

    def body(self, text: str) -> None:
        """Print a text."""
        print(clean(text), end="" if text.endswith("\n") else "\n")

    def diff(self, text: str) -> None:
        """Print a unified diff."""
        self.body(text)

    def table(self, headers: Sequence[str], rows: Iterable[Sequence[Cell]]) -> None:
        """Print rows of tab-separated values, for programs such as `cut`, without the headers."""
        del headers
        for row in rows:
            print("\t".join(words(value) for value in row))

    def tree(self, branches: Iterable[Branch]) -> None:
        """Print the branches of a tree as rows that begin with the depth."""
        self.table((), [(str(branch.depth), *branch.cells) for branch in branches])

    def facts(self, pairs: Iterable[tuple[str, Cell]]) -> None:
        """Print names and their values, one pair on a line."""
        for name, value in pairs:
            print(f"{name}: {words(value)}")

    def moment(self, time: datetime) -> str:
        """Format a time exactly, in UTC."""
        return format_time(time)

    def name(self, memory_id: str) -> str:
        """Return an id in full."""
        return memory_id

    def report(self, sentence: str, rows: Iterable[Sequence[str]], *, style: str = "green") -> None:
        """Print the result of a command as rows."""
        del sentence, style
        self.table((), rows)

    def receipt(
        self, did: str, *, memory_id: str, space: str, path: str, version: int, preposition: str = "in"
    ) -> None:
        """Print id, space, path and version of a stored memory, separated by tabs."""
        del did, preposition
        self.table((), [(memory_id, space, path, str(version))])


_FRESHNESS_STYLES: Final = {
    "fresh": "green",
    "stale": "yellow",
    "diverged": "magenta",
    "source_superseded": "yellow",
    "source_deleted": "red",
    "revoked": "red",
    "detached": "dim",
}


def styled_freshness(freshness: str | None) -> tuple[str, str]:
    """Return the freshness of a copy with its colour; an empty text for a memory that is no copy."""
    return freshness or "", _FRESHNESS_STYLES.get(freshness or "", "")


def is_terminal(stream: object) -> bool:
    """Return whether a stream is a terminal."""
    return bool(stream is not None and stream.isatty())  # type: ignore[attr-defined]

"""Output for pipes and files: simple lines, values between tabs, exact times, whole ids, no colour."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol, TypeAlias

from commonbook.model.ids import format_time

Cell: TypeAlias = str | tuple[str, str]
"""A value of a table or a tree: a text, or a text and its style."""

# A memory must not steer the terminal that shows it: its control characters become pictures of themselves.
_PICTURES = {
    **{code: 0x2400 + code for code in range(0x20) if chr(code) not in "\n\t"},
    0x7F: 0x2421,
    **dict.fromkeys(range(0x80, 0xA0), 0xFFFD),
}


def clean(text: str) -> str:
    """Return the text without anything that a terminal would obey, but for new lines and tabs."""
    return text.replace("\r\n", "\n").translate(_PICTURES)


def one_line(text: str) -> str:
    """Return the text, clean, on one line and without tabs."""
    return clean(" ".join(text.split()))


def words(cell: Cell) -> str:
    """Return what a value says, whatever its style, on one line."""
    return one_line(cell if isinstance(cell, str) else cell[0])


class Branch(NamedTuple):
    """A line of a tree: how deep it stands, and its values. Each follows the one that it hangs on."""

    depth: int
    cells: tuple[Cell, ...]


class Output(Protocol):
    """Where answers go: a terminal, or something else."""

    def line(self, text: str, style: str = "") -> None:
        """Say one line."""
        ...

    def note(self, text: str) -> None:
        """Say something beside the answer, on standard error."""
        ...

    def styled(self, phrases: Iterable[tuple[str, str]], *, indent: int = 0) -> None:
        """Show a text of phrases, each in a style of its own, with all of its lines indented."""
        ...

    def body(self, text: str) -> None:
        """Show a text of any length."""
        ...

    def diff(self, text: str) -> None:
        """Show a unified diff."""
        ...

    def table(self, headers: Sequence[str], rows: Iterable[Sequence[Cell]]) -> None:
        """Show rows of values."""
        ...

    def tree(self, branches: Iterable[Branch]) -> None:
        """Show a tree, from the top down."""
        ...

    def facts(self, pairs: Iterable[tuple[str, Cell]]) -> None:
        """Show names and their values."""
        ...

    def moment(self, time: datetime) -> str:
        """Word a time."""
        ...

    def name(self, memory_id: str) -> str:
        """Word an id."""
        ...

    def report(self, sentence: str, rows: Iterable[Sequence[str]], *, style: str = "green") -> None:
        """Say what was done: a sentence for people, rows of values for programs."""
        ...

    def receipt(self, did: str, *, memory_id: str, space: str, path: str, version: int) -> None:
        """Say what was stored where."""
        ...


class Plain:
    """The Output for everything that is not a terminal."""

    def line(self, text: str, style: str = "") -> None:
        """Say one line; there are no styles here."""
        del style
        print(clean(text))

    def note(self, text: str) -> None:
        """Say something beside the answer, on standard error."""
        print(clean(text), file=sys.stderr)

    def styled(self, phrases: Iterable[tuple[str, str]], *, indent: int = 0) -> None:
        """Show a text of phrases, with all of its lines indented; there are no styles here."""
        lines = clean("".join(text for text, _ in phrases)).split("\n")
        print("\n".join(" " * indent + line if line else "" for line in lines))

    def body(self, text: str) -> None:
        """Show a text."""
        print(clean(text), end="" if text.endswith("\n") else "\n")

    def diff(self, text: str) -> None:
        """Show a unified diff."""
        self.body(text)

    def table(self, headers: Sequence[str], rows: Iterable[Sequence[Cell]]) -> None:
        """Show rows, a tab between two values, for programs such as `cut`; the headers are left out."""
        del headers
        for row in rows:
            print("\t".join(words(value) for value in row))

    def tree(self, branches: Iterable[Branch]) -> None:
        """Show the lines of a tree as rows, with how deep each stands before it."""
        self.table((), [(str(one.depth), *one.cells) for one in branches])

    def facts(self, pairs: Iterable[tuple[str, Cell]]) -> None:
        """Show names and their values, one pair on a line."""
        for name, value in pairs:
            print(f"{name}: {words(value)}")

    def moment(self, time: datetime) -> str:
        """Word a time exactly."""
        return format_time(time)

    def name(self, memory_id: str) -> str:
        """Word an id in full."""
        return memory_id

    def report(self, sentence: str, rows: Iterable[Sequence[str]], *, style: str = "green") -> None:
        """Say what was done, in rows."""
        del sentence, style
        self.table((), rows)

    def receipt(self, did: str, *, memory_id: str, space: str, path: str, version: int) -> None:
        """Say what was stored where: id, space, path and version between tabs."""
        del did
        self.table((), [(memory_id, space, path, str(version))])

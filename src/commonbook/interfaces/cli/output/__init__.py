"""Output of the command line: JSON, answers for people, laid out on a terminal or as plain lines, and progress.

Plain output, for pipes and files, has tab-separated values, exact times, full ids and no colour.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterable, Sequence
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Final, NamedTuple, Self, TypeAlias

from commonbook.values.ids import format_time

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

    from commonbook.values.memory import Receipt

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


def counted(count: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless it is 1."""
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{count} {noun if count == 1 else plural}"


def json_line(value: object, stream: object) -> str:
    """Return a value as a line of JSON that the encoding of a stream can represent and that a terminal can show."""
    from commonbook.values.encoding import encode

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

    def table_or_note(self, headers: Sequence[str], rows: Sequence[Sequence[Cell]], *, note: str) -> None:
        """Print a table, or a note if it would be empty."""
        if rows:
            self.table(headers, rows)
        else:
            self.note(note)

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

    def receipt(self, did: str, receipt: Receipt, *, preposition: str = "in") -> None:
        """Print id, space, path and version of a stored memory, separated by tabs."""
        del did, preposition
        self.table((), [(receipt.id, receipt.space, receipt.path, str(receipt.version))])


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
    """Return the freshness of a copy with its colour; an empty text for a memory that is not a copy."""
    return freshness or "", _FRESHNESS_STYLES.get(freshness or "", "")


def is_terminal(stream: object) -> bool:
    """Return whether a stream is a terminal."""
    return bool(stream is not None and stream.isatty())  # type: ignore[attr-defined]


# --- progress

_BAR_DELAY_SECONDS: Final = 0.7
_LINE_INTERVAL_SECONDS: Final = 1.0


class ProgressBar:
    """A progress callback that draws a bar on a terminal, or prints lines elsewhere, and nothing for short work.

    It draws on standard error. Use it as a context manager, so that the bar is removed.
    """

    def __init__(self, *, bar: bool) -> None:
        """Draw a bar, or print lines."""
        self._as_bar = bar
        self._began = time.monotonic()
        self._next = self._began + _LINE_INTERVAL_SECONDS
        self._bar: Bar | None = None
        self._task: TaskID | None = None
        self._what = ""

    def __call__(self, what: str, done: int, total: int) -> None:
        """Show how many items are done; `total` is 0 if it is not known."""
        now = time.monotonic()
        if self._as_bar:
            if now >= self._began + _BAR_DELAY_SECONDS:
                self._draw(what, done, total)
        elif now >= self._next:
            self._next = now + _LINE_INTERVAL_SECONDS
            print(f"{what}: {done:,} of {total:,}" if total else f"{what}: {done:,}", file=sys.stderr, flush=True)

    def _draw(self, what: str, done: int, total: int) -> None:
        if self._bar is None:
            self._bar = _make_bar()
            self._bar.start()
        if self._task is None or what != self._what:
            if self._task is not None:
                self._bar.remove_task(self._task)
            self._task = self._bar.add_task(what, total=total or None)
            self._what = what
        self._bar.update(self._task, completed=done, total=total or None)

    def pause(self) -> None:
        """Remove the bar, for instance before an answer is printed; the next call draws it again."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = self._task = None

    def __enter__(self) -> Self:
        """Return itself; the bar is removed at the end of the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove the bar."""
        self.pause()


def _make_bar() -> Bar:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(file=sys.stderr),
        transient=True,
    )

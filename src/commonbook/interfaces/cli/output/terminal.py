"""Output for a terminal: colour, tables, and times as people say them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from commonbook.interfaces.cli.output.plain import Branch, Cell, clean, one_line

_TAIL = 8
_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_LONG_AGO = 30 * _DAY


class Screen:
    """The Output for a terminal."""

    def __init__(self, *, colour: bool) -> None:
        """Write to standard output, in colour or not."""
        self._console = Console(
            file=sys.stdout, color_system="auto" if colour else None, markup=False, highlight=False, emoji=False
        )

    def line(self, text: str, style: str = "") -> None:
        """Say one line."""
        self._console.print(Text(clean(text), style))

    def note(self, text: str) -> None:
        """Say something beside the answer, on standard error."""
        print(clean(text), file=sys.stderr)

    def styled(self, phrases: Iterable[tuple[str, str]], *, indent: int = 0) -> None:
        """Show a text of phrases, each in a style of its own, wrapped and with all of its lines indented."""
        said = Text.assemble(*((clean(text), style) for text, style in phrases))
        for line in said.wrap(self._console, max(self._console.width - indent, indent + 1)):
            line.rstrip()
            self._console.print(Text(" " * indent if line else "") + line)

    def body(self, text: str) -> None:
        """Show a text, wrapped between words."""
        self._console.print(Text(clean(text.removesuffix("\n"))))

    def diff(self, text: str) -> None:
        """Show a unified diff in its usual colours."""
        for line in clean(text).splitlines():
            self._console.print(Text(line, _DIFF.get(line[:1], "")))

    def table(self, headers: Sequence[str], rows: Iterable[Sequence[Cell]]) -> None:
        """Show a table."""
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
        for header in headers:
            table.add_column(header, style="cyan" if header == "id" else "", overflow="fold")
        for row in rows:
            table.add_row(*(_text(value) for value in row))
        self._console.print(table)

    def tree(self, branches: Iterable[Branch]) -> None:
        """Draw a tree; what is empty is left out."""
        drawn: list[Branch] = list(branches)
        for at, one in enumerate(drawn):
            said = [cell for cell in map(_text, one.cells) if cell]
            self._console.print(Text.assemble((_trunk(drawn, at), "dim"), Text("  ").join(said)))

    def facts(self, pairs: Iterable[tuple[str, Cell]]) -> None:
        """Show names and their values in two columns."""
        table = Table.grid(padding=(0, 2))
        table.add_column(style="dim", no_wrap=True)
        table.add_column(overflow="fold")
        for name, value in pairs:
            table.add_row(Text(name), _text(value))
        self._console.print(table)

    def moment(self, time: datetime) -> str:
        """Word a time as it is here, and how long ago that was."""
        return ago(time, datetime.now(UTC))

    def name(self, memory_id: str) -> str:
        """Word an id by its last digits, which every command takes."""
        return memory_id[-_TAIL:]

    def report(self, sentence: str, rows: Iterable[Sequence[str]], *, style: str = "green") -> None:
        """Say what was done, in a sentence."""
        del rows
        self.line(one_line(sentence), style)

    def receipt(self, did: str, *, memory_id: str, space: str, path: str, version: int) -> None:
        """Say what was stored where."""
        said = Text.assemble((did, "green"), " ", (self.name(memory_id), "cyan"), f" in {one_line(space)}")
        said.append(f" (version {version})" if version > 1 else "")
        self._console.print(said)
        self.line(f"  {path}", "dim")


def _text(cell: Cell) -> Text:
    text, style = (cell, "") if isinstance(cell, str) else cell
    return Text(one_line(text), style)


def _trunk(drawn: Sequence[Branch], at: int) -> str:
    """Return what stands before a line of a tree: for each step above whether more hangs there, then its own twig."""
    top, depth = drawn[0].depth, drawn[at].depth
    if depth == top:
        return ""
    steps = ("│  " if _goes_on(drawn, at, step) else "   " for step in range(top + 1, depth))
    return "".join(steps) + ("├─ " if _goes_on(drawn, at, depth) else "└─ ")


def _goes_on(drawn: Sequence[Branch], at: int, depth: int) -> bool:
    """Tell whether another line of this depth follows below the same one."""
    for below in drawn[at + 1 :]:
        if below.depth <= depth:
            return below.depth == depth
    return False


_DIFF = {"+": "green", "-": "red", "@": "cyan"}


def ago(time: datetime, now: datetime) -> str:
    """Say how long ago a time was, or the local date of one that is far away or to come."""
    seconds = (now - time).total_seconds()
    if not 0 <= seconds < _LONG_AGO:
        return f"{_here(time):%Y-%m-%d %H:%M}"
    if seconds < _MINUTE:
        return "just now"
    for size, word in ((_DAY, "day"), (_HOUR, "hour"), (_MINUTE, "minute")):
        if seconds >= size:
            count = int(seconds // size)
            return f"{count} {word}{'s' if count > 1 else ''} ago"
    return "just now"


def _here(time: datetime) -> datetime:
    """Return a time in the local zone; one so near to an end of the calendar that it has none there, as it is."""
    try:
        return time.astimezone()
    except OverflowError:
        return time

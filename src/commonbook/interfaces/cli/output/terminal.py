"""Output for a terminal: colour, tables, short ids and relative times."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from commonbook.interfaces.cli.output import Branch, Cell, Output, clean, is_terminal, one_line

if TYPE_CHECKING:
    from commonbook.values.memory import Receipt

_ID_TAIL_CHARS = 8
_GAP_CHARS = 2
"""The space between two columns of a table."""
_TEXT_COLUMNS = frozenset({"title", "memory", "what", "suspect", "depends on", "reason", "filter", "label", "tags"})
_MAX_WORD_CHARS = 24
"""A longer word in a column of texts, such as an address in a title, is broken; it does not ask for a wider column.

Other columns have ids and names, which are copied into commands, so their words are whole.
"""
_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_MAX_RELATIVE_SECONDS = 30 * _DAY


class Screen(Output):
    """The output for a terminal."""

    def __init__(self, *, colour: bool, server: str | None = None) -> None:
        """Write to standard output, in colour or not; a receipt names the server that has the book."""
        self._server = server
        self._console = Console(
            file=sys.stdout, color_system="auto" if colour else None, markup=False, highlight=False, emoji=False
        )

    def line(self, text: str, style: str = "") -> None:
        """Print one line."""
        self._console.print(Text(clean(text), style))

    def command(self, text: str) -> None:
        """Print a command to be copied: the terminal wraps it, so that no line end gets into the copy."""
        self._console.print(Text(f"  {clean(text)}"), soft_wrap=True)

    def note(self, text: str, *, command: str = "") -> None:
        """Print a note on standard error, wrapped between words; a command to be copied has a line of its own."""
        for line in clean(text).split("\n"):
            print(self._wrapped(line) if is_terminal(sys.stderr) else line, file=sys.stderr)
        if command:
            print(f"  {clean(command)}", file=sys.stderr)

    def _wrapped(self, line: str) -> str:
        """Return a line broken between words alone, so that a path or an address can be copied whole."""
        return textwrap.fill(line, self._console.width, break_long_words=False, break_on_hyphens=False)

    def styled(self, phrases: Iterable[tuple[str, str]], *, indent: int = 0) -> None:
        """Print phrases, each in its own style, as one text that is wrapped and indented."""
        paragraph = Text.assemble(*((clean(text), style) for text, style in phrases))
        for line in paragraph.wrap(self._console, max(self._console.width - indent, indent + 1)):
            line.rstrip()
            self._console.print(Text(" " * indent if line else "") + line)

    def body(self, text: str) -> None:
        """Print a text, wrapped between words."""
        self._console.print(Text(clean(text.removesuffix("\n"))))

    def diff(self, text: str) -> None:
        """Print a unified diff in its usual colours."""
        for line in clean(text).splitlines():
            self._console.print(Text(line, _DIFF_STYLES.get(line[:1], "")))

    def table(self, headers: Sequence[str], rows: Iterable[Sequence[Cell]]) -> None:
        """Print a table without its empty columns, or its rows one below the other where a word would not fit."""
        cells = [[_text(value) for value in row] for row in rows]
        columns = [at for at in range(len(headers)) if any(row[at] for row in cells)]
        texts = [[headers[at], *(row[at].plain for row in cells)] for at in columns]
        if widths := _column_widths(texts, self._console.width - len(columns) * _GAP_CHARS):
            table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), header_style="bold")
            for at, width in zip(columns, widths, strict=True):
                style = "cyan" if headers[at] == "id" else ""
                # The width is given, since Rich shares too little room by other rules, and crops.
                table.add_column(headers[at], style=style, overflow="fold", width=width)
            for row in cells:
                table.add_row(*(row[at] for at in columns))
            self._console.print(table)
            return
        for row in cells:
            self._console.print()
            self._facts((headers[at], row[at]) for at in columns if row[at])

    def tree(self, branches: Iterable[Branch]) -> None:
        """Draw a tree; empty cells are left out."""
        rows: list[Branch] = list(branches)
        for index, branch in enumerate(rows):
            cells = [cell for cell in map(_text, branch.cells) if cell]
            self._console.print(Text.assemble((_tree_lines(rows, index), "dim"), Text("  ").join(cells)))

    def facts(self, pairs: Iterable[tuple[str, Cell]]) -> None:
        """Print names and their values in two columns."""
        self._facts((name, _text(value)) for name, value in pairs)

    def _facts(self, pairs: Iterable[tuple[str, Text]]) -> None:
        rows = list(pairs)
        label_width = max((cell_len(name) for name, _ in rows), default=0) + _GAP_CHARS
        room = max(self._console.width - label_width, 1)
        for name, value in rows:
            label = name
            # The terminal wraps a value of one word, so that a path or an id can be copied whole.
            for line in value.wrap(self._console, room) if " " in value.plain else [value]:
                line.rstrip()
                indent = " " * (label_width - cell_len(label))
                self._console.print(Text.assemble((label, "dim"), indent, line), soft_wrap=True)
                label = ""

    def moment(self, time: datetime) -> str:
        """Format a time as how long ago it was, or as a local date."""
        return ago(time, datetime.now(UTC))

    def name(self, memory_id: str) -> str:
        """Shorten an id to its last digits, which every command accepts."""
        return memory_id[-_ID_TAIL_CHARS:]

    def report(self, sentence: str, rows: Iterable[Sequence[str]], *, style: str = "green") -> None:
        """Print the result of a command as a sentence; the rows are for programs."""
        del rows
        self.line(one_line(sentence), style)

    def receipt(self, did: str, receipt: Receipt, *, preposition: str = "in") -> None:
        """Print which memory was stored, and where."""
        place = f" {preposition} {one_line(receipt.space)}" + (f" on {one_line(self._server)}" if self._server else "")
        version = f" (version {receipt.version})" if receipt.version > 1 else ""
        self._console.print(Text.assemble((did, "green"), " ", (self.name(receipt.id), "cyan"), place, version))
        # The terminal wraps it, so that it can be copied whole.
        self._console.print(Text(f"  {clean(receipt.path)}", "dim"), soft_wrap=True)


def _text(cell: Cell) -> Text:
    text, style = (cell, "") if isinstance(cell, str) else cell
    return Text(one_line(text), style)


def _column_widths(columns: Sequence[Sequence[str]], room: int) -> list[int] | None:
    """Return a width for each column of texts, whose first is its header, or None if a word would not fit.

    Each column gets what its words need. The rest goes one by one to the narrowest column that would still wrap
    (max-min fairness), so that short values stay on one line.
    """
    widths = [_widest_word(texts) for texts in columns]
    wanted = [max(map(cell_len, texts)) for texts in columns]
    rest = room - sum(widths)
    if rest < 0:
        return None
    while rest and (wrapped := [at for at, width in enumerate(widths) if width < wanted[at]]):
        widths[min(wrapped, key=widths.__getitem__)] += 1
        rest -= 1
    return widths


def _widest_word(texts: Sequence[str]) -> int:
    """Return the width that a column needs so that no id or name in it is broken, and no ordinary word."""
    width = max(cell_len(word) for text in texts for word in text.split() or [""])
    return min(width, _MAX_WORD_CHARS) if texts[0] in _TEXT_COLUMNS else width


def _tree_lines(branches: Sequence[Branch], index: int) -> str:
    """Return the lines drawn before a branch of a tree: one bar for each open level above it, then its own corner."""
    top, depth = branches[0].depth, branches[index].depth
    if depth == top:
        return ""
    steps = ("│  " if _has_sibling_below(branches, index, step) else "   " for step in range(top + 1, depth))
    return "".join(steps) + ("├─ " if _has_sibling_below(branches, index, depth) else "└─ ")


def _has_sibling_below(branches: Sequence[Branch], index: int, depth: int) -> bool:
    """Return whether another branch of this depth follows below the same parent."""
    for below in branches[index + 1 :]:
        if below.depth <= depth:
            return below.depth == depth
    return False


_DIFF_STYLES = {"+": "green", "-": "red", "@": "cyan"}


def ago(time: datetime, now: datetime) -> str:
    """Return how long ago a time was, or the local date if it is more than 30 days away or in the future."""
    seconds = (now - time).total_seconds()
    if not 0 <= seconds < _MAX_RELATIVE_SECONDS:
        return f"{_local(time):%Y-%m-%d %H:%M}"
    if seconds < _MINUTE:
        return "just now"
    for size, word in ((_DAY, "day"), (_HOUR, "hour"), (_MINUTE, "minute")):
        if seconds >= size:
            count = int(seconds // size)
            return f"{count} {word}{'s' if count > 1 else ''} ago"
    return "just now"


def _local(time: datetime) -> datetime:
    """Return a time in the local zone; a time that overflows the calendar there stays in UTC."""
    try:
        return time.astimezone()
    except OverflowError:
        return time

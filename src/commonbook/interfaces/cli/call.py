"""One call of a command: its arguments, the book, and where output goes."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Final, TypeAlias

from commonbook.errors import CommonbookError
from commonbook.interfaces import json_values
from commonbook.interfaces.cli.input import text
from commonbook.interfaces.cli.output import plain
from commonbook.interfaces.cli.output.progress import ProgressBar
from commonbook.model.ids import UUID_PATTERN
from commonbook.settings.settings import Settings

if TYPE_CHECKING:
    from argparse import Namespace

    from commonbook.book.book import Book
    from commonbook.interfaces.cli.output.plain import Output


_TURN: Final = 0.2
_MANY: Final = 100
"""So many new memories are worth to be indexed at once, rather than with the next recall."""


class Call:
    """One run of the program: what was typed, the book, and where answers go."""

    book: Book

    def __init__(self, args: Namespace) -> None:
        """Read the settings; the book is opened later, if it is needed."""
        self.args = args
        self.settings = Settings.load(args.home, space=args.space)
        self.progress = ProgressBar(bar=text.is_terminal(sys.stderr) and not args.json)

    @cached_property
    def out(self) -> Output:
        """Where people read the answer."""
        if not text.is_terminal(sys.stdout):
            return plain.Plain()
        from commonbook.interfaces.cli.output.terminal import Screen

        return Screen(colour=self.settings.colour and not self.args.no_color)

    def tell(self, data: object, show: Callable[[Output], None], *, ok: bool = True) -> int:
        """Print an answer, as JSON or for people, and return the exit code."""
        self.progress.pause()
        if self.args.json:
            print(json_values.dumps(data, encoding=getattr(sys.stdout, "encoding", None)))
        else:
            show(self.out)
        return 0 if ok else 1

    def flush(self) -> None:
        """Hand over what was told so far."""
        if sys.stdout is not None:
            sys.stdout.flush()

    def index(self, stored: int) -> None:
        """Bring the index up to date if much was stored, so that the next recall need not."""
        if stored > _MANY:
            self.flush()
            # Everything is stored and told, whatever becomes of this.
            with suppress(CommonbookError):
                self.book.reindex(progress=self.progress)

    def turn(self) -> None:
        """Do a little of the work that is due, now that the answer is told: no worker need be running."""
        self.flush()
        # What was asked for is done and told, whatever becomes of this.
        with suppress(CommonbookError):
            self.book.work(seconds=_TURN)

    def id(self, part: str) -> str:
        """Return the id that was meant by some of its digits or by a file's name."""
        return part if re.fullmatch(UUID_PATTERN, part, re.IGNORECASE | re.ASCII) else self.book.find_id(part)


Command: TypeAlias = Callable[[Call], int]

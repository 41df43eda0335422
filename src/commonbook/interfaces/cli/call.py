"""A call holds what one run of a command needs: its arguments, the book, and the output."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import TYPE_CHECKING, Final

from commonbook.core.settings.remote import choose_book
from commonbook.core.settings.settings import Settings
from commonbook.errors import BadInput, CommonbookError, NotAllowed
from commonbook.interfaces.cli.output import Output, ProgressBar, clean, is_terminal, json_line
from commonbook.values.ids import UUID_PATTERN

if TYPE_CHECKING:
    from argparse import Namespace

    from commonbook.service.book import Book
    from commonbook.values.reports import SchemaMigration


_WORK_SECONDS: Final = 0.2
_REINDEX_MIN_MEMORIES: Final = 100
"""With more new memories than this the index is updated at once, not with the next recall."""


class Call:
    """One run of a command: its parsed arguments, the book, and the output."""

    book: Book

    def __init__(self, args: Namespace, *, local: bool = False) -> None:
        """Choose the book, and read the settings; it is opened later, if it is needed. `local` allows no server."""
        self.args = args
        # An agent that was plugged into a home stays there: a login must not send what it hears to a server.
        is_agent_of_home = args.actor is not None and args.command in ("mcp", "hook")
        home, self.url = choose_book(args.home, args.url, local=local, default_server=not is_agent_of_home)
        if self.url is not None and args.actor is not None:
            raise BadInput(
                f"--as is for the owner of a home, and this is the book of {self.url}",
                fix="use an API key of that principal, or name a home by --home",
            )
        self.settings = Settings.load(home, space=args.space)
        self.progress = ProgressBar(bar=is_terminal(sys.stderr) and not args.json)

    @cached_property
    def out(self) -> Output:
        """The output for people: a terminal, or plain lines."""
        if not is_terminal(sys.stdout):
            return Output()
        from commonbook.interfaces.cli.output.terminal import Screen

        return Screen(colour=self.settings.colour and not self.args.no_color, server=self.url)

    @property
    def place(self) -> str:
        """The book as people know it: the URL of its server, the address of its database, or its home."""
        return self.url or (self.settings.database.place if self.settings.database else self.settings.home)

    @property
    def has_home(self) -> bool:
        """Whether there is a home with a book on this machine, also beside the book of a server."""
        return os.path.exists(os.path.join(self.settings.home, ".commonbook", "state.db"))

    def note_home(self, out: Output) -> None:
        """Say that there is a home on this machine too, if the book is on a server."""
        if self.url is not None and self.has_home:
            home = shlex.quote(self.settings.home)
            out.note(
                f"there is a home here too: `commonbook --home {home}` uses it, `commonbook use {home}` by default"
            )

    def print_answer(self, value: object, show: Callable[[Output], None], *, ok: bool = True) -> int:
        """Print an answer, as JSON or for people, and return the exit code.

        The JSON of a value of the book is the JSON that a server answers.
        """
        self.progress.pause()
        if self.args.json:
            print(json_line(value, sys.stdout))
        else:
            show(self.out)
        return 0 if ok else 1

    @contextmanager
    def open_home(self, *, create: bool, settings: Settings | None = None) -> Iterator[Book]:
        """Open the book of the home, or of other settings, with a bar of progress, and close it."""
        from commonbook.compose.book import open_book

        with self.progress, open_book(settings or self.settings, create=create, progress=self.progress) as book:
            self._report_migration(book.schema_migration)
            yield book

    def _report_migration(self, migration: SchemaMigration | None) -> None:
        """Say on standard error that the schema was migrated, and where the former database is."""
        if migration is None:
            return
        self.progress.pause()
        copy = f"; the former database is {migration.copy}" if migration.copy else ""
        print(
            f"commonbook: the schema was migrated from {migration.before} to {migration.after}{clean(copy)}",
            file=sys.stderr,
        )

    def report_move(self, moved_to: str | None) -> None:
        """Say on standard error that the book was moved, so that its answers are no longer up to date."""
        if moved_to is None:
            return
        self.progress.pause()
        print(f"commonbook: this book was moved to {clean(moved_to)}, and is read-only here", file=sys.stderr)

    def notes_on_spaces(self, names: Iterable[str]) -> list[str]:
        """Return a note for each of these spaces, where nothing was found, that is not there for this reader."""
        from commonbook.core.text import space_names
        from commonbook.interfaces.similar_names import did_you_mean

        known: list[str] = []
        # The command has its answer, so the command does not fail here.
        with suppress(CommonbookError):
            known = [space.name for space in self.book.spaces()]
        notes: list[str] = []
        for name in names if known else ():
            top = name.removesuffix("/")
            is_made_later = not top or top == space_names.PERSONAL or space_names.is_system(top)
            if not is_made_later and not any(space_names.is_within(each, top) for each in known):
                notes.append(f"there is no space {top!r} that you may read{did_you_mean(top, known)}")
        return notes

    def wider_searches(self, names: Sequence[str]) -> list[str]:
        """Return the options that search further than these spaces, or than the default ones, if there is more."""
        from commonbook.core.text import space_names

        known: list[str] = []
        # The command has its answer, so the command does not fail here.
        with suppress(CommonbookError):
            known = [space.name for space in self.book.spaces() if not space_names.is_system(space.name)]
        if not names:
            searched = {self.book.default_space, space_names.PERSONAL}
            return [] if searched.issuperset(known) else ["`--space /` searches all spaces that you may read"]
        return [
            f"`--space {name}/` searches the spaces below it too"
            for name in names
            if name[-1:] != "/" and any(space.startswith(f"{name}/") for space in known)
        ]

    def require_owner(self, why: str) -> None:
        """Raise NotAllowed unless the owner of the home calls."""
        if self.args.actor is not None or self.settings.key is not None:
            raise NotAllowed(why, fix="leave out --as and the key")

    def flush(self) -> None:
        """Flush standard output."""
        if sys.stdout is not None:
            sys.stdout.flush()

    def reindex_if_many(self, stored: int) -> None:
        """Update the index if many memories were stored, so that the next recall need not."""
        if stored > _REINDEX_MIN_MEMORIES and self.url is None:
            self.flush()
            # The command is done and its answer is printed, so the command does not fail here.
            with suppress(CommonbookError):
                self.book.reindex(progress=self.progress)

    def work_briefly(self) -> None:
        """Run due jobs for a moment after the answer is printed, so that no worker needs to run."""
        if self.url is not None:
            # A server has a worker of its own.
            return
        self.flush()
        # The command is done and its answer is printed, so the command does not fail here.
        with suppress(CommonbookError):
            self.book.work(seconds=_WORK_SECONDS)

    def resolve_id(self, part: str) -> str:
        """Return a full id for an id, some of its digits or a file name."""
        return part if re.fullmatch(UUID_PATTERN, part, re.IGNORECASE | re.ASCII) else self.book.find_id(part)

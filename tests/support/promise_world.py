"""A book for the test of the promises: its verbs, its files, its database that is lost or put back, and its clock.

Everything that depends on the form of the public verbs is here, so that the test itself speaks of promises only.
"""

from __future__ import annotations

import inspect
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

from commonbook.compose.book import open_book
from commonbook.core.files import scan
from commonbook.core.settings.settings import Settings
from commonbook.errors import CommonbookError
from commonbook.service.book import Book
from commonbook.values import ids
from commonbook.values.hit import Hit
from commonbook.values.memory import Filter
from commonbook.values.memory import Memory as Shown
from commonbook.values.session import AppendReceipt, Message, SettleReport, SwitchReason
from tests.support.promise_facts import OWNER, proposals_of

SPACES = ("personal", "team", "team/core", "vault")
DEFAULT_SPACE = "personal"
QUERY = "apples pears"
_SESSIONS_HAVE_SPACES = "space" in inspect.signature(Book.messages).parameters
COPY_VERBS = ("unshare", "refresh", "detach", "adopt", *(("set_refresh",) if hasattr(Book, "set_refresh") else ()))
_STATE = "state.db"
_ENDED_MARKS = frozenset({"expired", "ended", "superseded", "source_ended", "source_expired", "source_superseded"})
_ENDED_FRESHNESS = frozenset({"source_superseded", "source_ended", "source_expired", "source_retracted"})


def text(word: str) -> str:
    """Return a text that every query of the test finds; its title does not tell the word."""
    return f"Apples and pears\n\nof the kind {word}."


class Clock:
    """A clock that the test sets forward; it also goes a little at every look, as a real one does."""

    def __init__(self) -> None:
        self.time = datetime(2026, 3, 2, 9, tzinfo=UTC)

    def now(self) -> datetime:
        self.time += timedelta(milliseconds=1)
        return self.time

    def forward(self, **by: float) -> None:
        self.time += timedelta(**by)


class Ids:
    """The time and the random bytes of new ids, which depend on the history alone.

    Real ids of one millisecond are in any order, and so are these: but in the same one when a history is repeated.
    Hypothesis repeats histories, and stops if a verb that was offered before is not offered again.
    """

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Begin again, for a new history."""
        self._random, self._count = random.Random(1), 0

    def time_ns(self) -> int:
        self._count += 1
        return (1_772_000_000_000 + self._count // 4) * 1_000_000

    def urandom(self, count: int) -> bytes:
        return self._random.randbytes(count)


IDS = Ids()


class World:
    """A book over a folder or on a server, open for every principal."""

    def __init__(self, settings: Settings, principals: tuple[str, ...], scratch: Path) -> None:
        self.settings, self.principals, self.scratch = settings, principals, scratch
        self.clock = Clock()
        IDS.begin()
        self.kept: Path | None = None
        self.open()
        for space in SPACES:
            self._make_space(space)

    @property
    def has_files(self) -> bool:
        return self.settings.database is None

    @property
    def home(self) -> Path:
        return Path(self.settings.home)

    def open(self) -> None:
        self.book = open_book(self.settings, clock=self.clock, create=True)
        self.hands = {who: self.book if who == OWNER else self.book.acting_as(who) for who in self.principals}

    def close(self) -> None:
        self.book.close()

    def reopen(self, meanwhile: Callable[[], None] = lambda: None, *, make_spaces: bool = True) -> None:
        """Close the book, let something happen to its folder, and open it again, with all spaces."""
        self.close()
        meanwhile()
        self.open()
        if self.book.status().pending_deletions:
            # Many files vanished at once: a person agrees.
            self.book.accept_deletions()
        for space in SPACES if make_spaces else ():
            self._make_space(space)

    def _make_space(self, name: str) -> None:
        if name not in {space.name for space in self.book.spaces()}:
            self.book.create_space(name)

    # --- the database and the files

    def lose_database(self) -> None:
        for path in self.home.glob(f".commonbook/{_STATE}*"):
            path.unlink()

    def keep_database(self) -> None:
        """Copy the database aside, as a back-up does; the book is closed meanwhile, so that the copy is whole."""
        self.close()
        self.kept = self.scratch / "kept"
        shutil.rmtree(self.kept, ignore_errors=True)
        self.kept.mkdir(parents=True)
        for path in self.home.glob(f".commonbook/{_STATE}*"):
            shutil.copy2(path, self.kept)
        self.open()

    def put_back_database(self) -> None:
        assert self.kept is not None
        self.lose_database()
        for path in self.kept.iterdir():
            shutil.copy2(path, self.home / ".commonbook")

    def write_file(self, path: Path, data: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def sync(self) -> None:
        self.book.sync()

    # --- verbs of sessions, each in one space

    def append(self, who: str, name: str, words: list[str], space: str | None) -> AppendReceipt:
        return self.hands[who].append(name, [text(word) for word in words], space=space)

    def messages(self, who: str, name: str, space: str) -> tuple[Message, ...] | None:
        """Return the messages of a session of this space; None if the principal finds no such session."""
        book = self.hands[who]
        try:
            page = book.messages(name, limit=500, **_in_space(space))
        except CommonbookError:
            return None
        return page.items if page.session.space.name == space else None

    def answer_about(self, who: str, name: str) -> object:
        """Return what a principal is told of a session by its name alone, without the name."""
        try:
            return self.hands[who].messages(name, limit=500).items
        except CommonbookError as error:
            return type(error).__name__, str(error).replace(name, "NAME")

    def rewind(self, who: str, name: str, after: str | int, space: str) -> tuple[Message, ...]:
        return self.hands[who].rewind(name, after, **_in_space(space))

    def settle(self, who: str, name: str, space: str) -> SettleReport:
        return self.hands[who].settle(name, **_in_space(space))

    def close_session(self, who: str, name: str, space: str) -> SettleReport:
        return self.hands[who].close_session(name, **_in_space(space))

    def switch(self, who: str, old: str, new: str, reason: SwitchReason, space: str | None) -> SettleReport:
        return self.hands[who].switch(old, new, reason=reason, space=space)

    # --- verbs of copies

    def tend_copy(self, who: str, verb: str, copy_id: str, mode: str) -> object:
        arguments = (copy_id, mode) if verb == "set_refresh" else (copy_id,)
        return getattr(self.hands[who], verb)(*arguments)

    # --- reads

    def listed(self, who: str) -> dict[str, Shown]:
        """Return everything that a principal may list, with what is proposed."""
        return self.listed_widely(who) | self.proposed(who)

    def listed_widely(self, who: str) -> dict[str, Shown]:
        """Return what a principal lists without naming a space."""
        return {memory.id: memory for memory in self.hands[who].list(Filter(), limit=500).items}

    def proposed(self, who: str) -> dict[str, Shown]:
        """Return what a principal lists in the spaces of proposals, by their names."""
        every = {space.name for space in self.hands[who].spaces()}
        names = [proposals_of(space) for space in SPACES if proposals_of(space) in every]
        pages = [self.hands[who].list(Filter(space=name), limit=500) for name in names]
        return {memory.id: memory for page in pages for memory in page.items}

    def recalled(self, who: str, spaces: list[str]) -> tuple[Hit, ...]:
        if not spaces:
            return ()
        return self.hands[who].recall(QUERY, spaces=spaces, k=200, min_confidence=0.0).hits


def _in_space(space: str) -> dict[str, Any]:
    return {"space": space} if _SESSIONS_HAVE_SPACES else {}


def is_marked_ended(memory: Shown) -> bool:
    """Tell whether a reader is told that a memory, or the source of a copy, holds no longer."""
    return bool(_ENDED_MARKS & set(memory.marks)) or memory.freshness in _ENDED_FRESHNESS


def settled_causes(memory: Shown) -> set[tuple[str, str]]:
    """Return the causes that somebody has decided about; a retraction that was taken back settles nothing."""
    return {decision.key for decision in memory.decisions if getattr(decision, "settles", True)}


@contextmanager
def repeatable() -> Iterator[None]:
    """Let ids depend on the history alone, and let scans look twice for a missing file without a pause."""
    with patch.object(ids, "time", IDS), patch.object(ids, "os", IDS), patch.object(scan, "_RESCAN_SECONDS", 0.0):
        yield

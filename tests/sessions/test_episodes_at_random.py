"""Sessions and the files of their episodes, by random steps: recall serves what the log and the files say, no more.

EPISODE_ROUNDS        how many homes (2)
COMMONBOOK_SEED      what the steps follow from
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from commonbook.core.markdown import transcript
from commonbook.errors import CommonbookError
from commonbook.service.book import Book
from commonbook.values.memory import Filter, Memory
from commonbook.values.session import NewMessage

ROUNDS = int(os.environ.get("EPISODE_ROUNDS", "2"))
SEED = os.environ["COMMONBOOK_SEED"]
STEPS = 80
SESSIONS = ("s0", "s1", "s2")
SPACES = ("personal", "team", "zoo")

pytestmark = pytest.mark.usefixtures("home")


class World:
    """Two books on one home, and a person who edits, copies, moves and removes the files."""

    def __init__(self, books: list[Book], dice: random.Random) -> None:
        self.books, self.dice = books, dice
        self.saved: dict[str, str] = {}
        self.sent = 0

    @property
    def book(self) -> Book:
        return self.dice.choice(self.books)

    def step(self) -> None:
        """Do something; what cannot be done now is refused with an error of ours."""
        of_sessions: list[Callable[[], None]] = [self.speak, self.speak, self.settle, self.rewind, self.switch]
        typed: list[Callable[[Memory, Path], None]] = [self.stale, self.move, self.carry, self.cut, self.copy]
        typed += [self.stale, self.remove, self.rename]
        with suppress(CommonbookError):
            if self.dice.random() < 0.6:
                self.dice.choice(of_sessions)()
            else:
                self._on_an_episode(self.dice.choice(typed))
        for episode in self.episodes():
            if self.dice.random() < 0.5 and (path := self._path(episode)).exists():
                self.saved.setdefault(episode.id, path.read_text())

    def episodes(self) -> list[Memory]:
        return list(self.books[0].list(Filter(kinds=("episode",)), limit=500).items)

    def _path(self, episode: Memory) -> Path:
        return Path(self.books[0].home) / episode.path

    def _on_an_episode(self, do: Callable[[Memory, Path], None]) -> None:
        if found := self.episodes():
            episode = self.dice.choice(found)
            do(episode, self._path(episode))
            self.book.sync()

    def speak(self) -> None:
        self.sent += 3
        sent = [
            NewMessage(f"common word {number}", client_id=str(number)) for number in range(self.sent - 3, self.sent)
        ]
        self.book.append(self.dice.choice(SESSIONS), sent[: self.dice.randrange(1, 4)])

    def settle(self) -> None:
        self.book.settle(self.dice.choice(SESSIONS))

    def rewind(self) -> None:
        session = self.dice.choice(self.books[0].sessions() or [None])
        if session:
            self.book.rewind(session.id, max(0, session.last - self.dice.randrange(6)))

    def switch(self) -> None:
        old, new = self.dice.sample(SESSIONS, 2)
        self.book.switch(old, new, reason=self.dice.choice(("new", "branch", "resume")))

    def stale(self, episode: Memory, path: Path) -> None:
        if episode.id in self.saved:
            path.write_text(self.saved[episode.id])

    def move(self, episode: Memory, path: Path) -> None:
        self.book.move(episode.id, self.dice.choice(SPACES))

    def carry(self, episode: Memory, path: Path) -> None:
        there = Path(self.books[0].home) / self.dice.choice(SPACES) / path.name
        there.parent.mkdir(exist_ok=True)
        path.rename(there)

    def cut(self, episode: Memory, path: Path) -> None:
        messages = transcript.parse(episode.text).messages
        if len(messages) > 1:
            self.book.edit(episode.id, text=transcript.render(messages[1:]))

    def copy(self, episode: Memory, path: Path) -> None:
        if self.dice.random() < 0.3:
            path.with_name(f"copy-{self.sent}.md").write_text(
                path.read_text().replace("session_id: s", "session_id: x")
            )

    def remove(self, episode: Memory, path: Path) -> None:
        if self.dice.random() < 0.5:
            path.unlink()
        else:
            self.book.delete(episode.id)

    def rename(self, episode: Memory, path: Path) -> None:
        names = {space.name for space in self.books[0].spaces()}
        for old, new in (("team", "crew"), ("crew", "team")):
            if old in names and new not in names:
                self.book.rename_space(old, new)
                return

    def check(self) -> None:
        """Compare what both books recall with what the logs and the present episodes say."""
        messages = [one for session in self.books[0].sessions() for one in self.books[0].messages(session.id).items]
        lines = {one.id: {message.id for message in transcript.parse(one.text).messages} for one in self.episodes()}
        moved = {one.id for one in self.episodes() if one.session_space}
        live = {
            one.id
            for one in messages
            if not one.rewound_at
            and (not one.episode or (one.id in lines.get(one.episode, ()) and one.episode not in moved))
        }
        copies = {one.id for one in self.episodes() if str(one.session).startswith("x")}
        for query in ("common word", ""):
            one, other = (book.recall(query, spaces="/", k=200, min_confidence=0).hits for book in self.books)
            assert one == other
            ids = [hit.id for hit in one]
            assert len(ids) == len(set(ids))
            assert {id_ for id_ in ids if "#" not in id_} == live
            # Only a copy, which names another session, and an episode that was moved away have lines of their own.
            own = [hit for hit in one if "#" in hit.id]
            assert all(hit.session is None and hit.memory in copies | moved for hit in own)
            assert {memory for memory in moved if lines[memory]} <= {hit.memory for hit in own}


@pytest.mark.parametrize("round_", range(ROUNDS))
def test_whatever_people_do_to_episodes_recall_serves_what_log_and_files_say(open_book, round_):
    world = World([open_book(), open_book()], random.Random(f"{SEED}-{round_}"))
    print(f"COMMONBOOK_SEED={SEED}")
    for step in range(STEPS):
        world.step()
        if step % 5 == 4:
            world.check()
    world.check()
    fresh = open_book()
    before = fresh.recall("common word", spaces="/", k=200, min_confidence=0).hits
    fresh.rebuild()
    assert fresh.recall("common word", spaces="/", k=200, min_confidence=0).hits == before
    # A save of an older text is named until somebody has looked.
    assert [one for one in fresh.doctor() if one.what != "reverted save"] == []

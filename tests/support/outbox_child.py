"""A fake server that misbehaves on command, and the child processes that the outbox tests start, kill and stop.

The server is a folder with the calls it received, the messages it stored (once for each client id, like the real
server), and its mood.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from commonbook.compose.client import open_client
from commonbook.core.settings.settings import Settings
from commonbook.engines.process import ForkGate
from commonbook.engines.sqlite.outbox import OutboxFile
from commonbook.errors import Refused, ServerBusy, ServerFailed, Unreachable
from commonbook.ports.outbox import OutboxEntry, OutboxMessage, SessionContext
from commonbook.remote import sender
from commonbook.remote.outbox_client import Client

_SCHEMA = """
CREATE TABLE stored (seq INTEGER PRIMARY KEY, session TEXT, client_id TEXT, text TEXT, UNIQUE (session, client_id));
CREATE TABLE asked (number INTEGER PRIMARY KEY, session TEXT, texts TEXT, context TEXT);
"""


# The server is a SQLite file, which must not be open during a fork; a real transport has no such problem.
_NO_FORK = ForkGate(lambda: None)


class HandClock:
    """A clock that a test can move forward."""

    def __init__(self) -> None:
        self.ahead = timedelta()

    def now(self) -> datetime:
        return datetime.now(UTC) + self.ahead


class Server:
    """Stores messages; its mood decides how it behaves, in every process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if not (folder / "server.db").exists():
            folder.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(folder / "server.db")) as db:
                db.executescript("PRAGMA journal_mode=WAL;" + _SCHEMA)
            self.be()

    def be(self, **mood: Any) -> None:
        """Set the mood: down, lost (a share), refuse and fail (words), unnamed, busy and slow (seconds)."""
        place = self.folder / f"mood.{os.getpid()}"
        place.write_text(json.dumps(mood))
        place.rename(self.folder / "mood.json")

    def mood(self) -> dict[str, Any]:
        return dict(json.loads((self.folder / "mood.json").read_text()))

    def texts(self, session: str | None = None) -> list[str]:
        """Return the stored texts in the order of the server."""
        return [text for where, text in self.stored() if session in (None, where)]

    def stored(self) -> list[tuple[str, str]]:
        return self._rows("SELECT session, text FROM stored ORDER BY seq")

    def calls(self) -> list[list[str]]:
        """Return the texts of each call that reached the server."""
        return [json.loads(texts) for (texts,) in self._rows("SELECT texts FROM asked ORDER BY number")]

    def contexts(self) -> list[Any]:
        return [json.loads(one) for (one,) in self._rows("SELECT context FROM asked ORDER BY number")]

    def _rows(self, sql: str) -> list[Any]:
        with closing(sqlite3.connect(self.folder / "server.db")) as db:
            return db.execute(sql).fetchall()

    def take(self, session: str, messages: Sequence[OutboxEntry], context: SessionContext) -> dict[str, object]:
        """Store new messages in one transaction."""
        sent = json.dumps([one.text for one in messages])
        with self._writing() as db:
            db.execute("INSERT INTO asked VALUES (NULL, ?, ?, ?)", (session, sent, json.dumps(context)))
        self._misbehave(messages)
        with self._writing() as db:
            for one in messages:
                found = db.execute(
                    "SELECT text FROM stored WHERE session = ? AND client_id = ?", (session, one.client_id)
                ).fetchall()
                if found and found[0][0] != one.text:
                    raise Refused("a conflict", client_ids=[one.client_id])
                if not found:
                    db.execute("INSERT INTO stored VALUES (NULL, ?, ?, ?)", (session, one.client_id, one.text))
        return {one.client_id: {"new": True} for one in messages}

    def _misbehave(self, messages: Sequence[OutboxEntry]) -> None:
        mood = self.mood()
        if "busy" in mood:
            raise ServerBusy("come back later", retry_after=mood["busy"])
        for word in mood.get("fail", ()):
            if any(word in one.text for one in messages):
                raise ServerFailed("an error of the server's own")
        for word in mood.get("refuse", ()):
            if bad := [one.client_id for one in messages if word in one.text]:
                raise Refused(f"nobody may say {word}", client_ids=() if mood.get("unnamed") else bad)

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self.folder / "server.db", isolation_level=None, timeout=60)) as db:
            db.execute("PRAGMA synchronous=OFF")
            db.execute("BEGIN IMMEDIATE")
            yield db
            db.execute("COMMIT")


class Loopback:
    """The transport to such a server; a test can hook in before and after each call."""

    def __init__(
        self,
        server: Server,
        *,
        before: Callable[[str], object] = lambda _: None,
        after: Callable[[str], object] = lambda _: None,
    ) -> None:
        self._server = server
        self.before, self.after = before, after

    def append(
        self, session: str, messages: Sequence[OutboxEntry], *, context: SessionContext, timeout: float
    ) -> Mapping[str, object]:
        self.before(session)
        mood = self._server.mood()
        if mood.get("down"):
            raise Unreachable("nobody listens")
        time.sleep(mood.get("slow", 0))
        with _NO_FORK:
            answer = self._server.take(session, messages, context)
        self.after(session)
        if random.random() < mood.get("lost", 0):
            raise Unreachable("the answer was lost")
        return answer


def client(folder: Path, **options: Any) -> Client:
    """Create a client of the server in this folder, with its outbox beside it."""
    transport = options.pop("transport", None) or Loopback(Server(folder))
    clock = options.pop("clock", None) or HandClock()
    outbox = OutboxFile(str(folder / "box" / "outbox.db"), clock=clock, busy_seconds=30)
    return Client(
        transport,
        outbox,
        clock=clock,
        space=options.pop("space", "personal"),
        mask=options.pop("mask", lambda text: (text, 0)),
        **options,
    )


def tell(report: object) -> None:
    """Report to the test, in one write."""
    os.write(1, json.dumps(report).encode() + b"\n")


# --- the modes of a child


def work(folder: str, who: str, seed: str) -> None:
    """Append to three sessions until killed, and report what is begun and what is acknowledged."""
    dice = random.Random(seed)
    here = client(Path(folder), answer_seconds=0.5)
    number = 0
    while True:
        session, size = f"s{dice.randrange(3)}", dice.choice([1, 1, 2, 5])
        texts = [f"{who} {number + at}" for at in range(size)]
        number += size
        tell({"session": session, "begin": texts})
        here.append(session, [OutboxMessage(text) for text in texts])
        tell({"session": session, "done": texts})


def send(folder: str, point: str, signal_name: str) -> None:
    """Send the messages of the outbox; at the given point, send this process a signal, once."""
    wanted = [signal.Signals[signal_name]]

    def at(_session: str) -> None:
        if wanted:
            os.kill(os.getpid(), wanted.pop())

    transport = Loopback(Server(Path(folder)), **{point: at})
    with client(Path(folder), transport=transport, background=False, answer_seconds=0.2) as here:
        tell(here.flush(30))


def append_and_die(folder: str, home: str) -> None:
    """Append through the client of a home, in two calls; die before anything is sent."""
    here = open_client(Settings.load(home), Loopback(Server(Path(folder))), answer_seconds=0.5)
    here.append("s", [OutboxMessage("one"), OutboxMessage("two, by the way: password=hunter2x9")])
    here.append("s", [OutboxMessage("three")])
    os.kill(os.getpid(), signal.SIGKILL)


def send_home(folder: str, home: str) -> None:
    """Send the messages in the outbox of a home."""
    # A killed sender's lease lasts as long as two answers may take, and many lost answers make long pauses.
    sender._MAX_PAUSE_SECONDS = 0.1  # type: ignore[misc]
    with open_client(Settings.load(home), Loopback(Server(Path(folder))), answer_seconds=0.5) as here:
        tell(here.flush(60))


if __name__ == "__main__":
    {mode.__name__: mode for mode in (work, send, append_and_die, send_home)}[sys.argv[1]](*sys.argv[2:])

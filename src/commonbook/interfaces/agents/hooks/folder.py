"""The folder in which hooks keep what they must not lose: spooled messages, the state of sessions, a short report.

A message is spooled, and synced to the disk, before anything else is tried. It leaves the spool when the book has it,
under a client id, so that a message which is delivered twice is stored once. The next event of the same agent delivers
what an earlier one could not.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from typing import Any, Final, NamedTuple

from commonbook.interfaces.agents.hooks.events import Event
from commonbook.values.encoding import Malformed, decode, encode
from commonbook.values.ids import new_id
from commonbook.values.session import PromptPassage

FOLDER: Final = "hooks"
_KEPT_SECONDS: Final = 30 * 86400
"""How long the state of a session that nothing happens in is kept."""

_MAX_INJECTED: Final = 1000
_PART: Final = ".part"


class Spooled(NamedTuple):
    """A spooled message, with the folder that its agent worked in."""

    event: Event
    cwd: str
    time: str


class KeptUse(NamedTuple):
    """The passages that were put into a turn of a session, until the book has recorded them.

    `message` is the client id of the prompt, or the number of the message after which a conversation began again.
    """

    session: str
    cwd: str
    message: int | str
    passages: tuple[PromptPassage, ...]


class Span(NamedTuple):
    """Messages of another session that a conversation began with: those after one number, up to another."""

    session: str
    after: int
    last: int


class SessionState(NamedTuple):
    """The state of a session: its place, the memories that are in its prompt, and how far it was compacted."""

    cwd: str | None = None
    """The folder in which the agent was at the first event."""
    space: str | None = None
    injected: tuple[str, ...] = ()
    compacted: int = 0
    """The number of the last message that was compacted away."""
    tag: str = ""
    """The tag of the fences in this session. That of a recall depends on all candidates, also on those left out."""
    parent: str | None = None
    """The session that this one is a fork of, if its events tell."""
    inherited: tuple[Span, ...] = ()
    """The messages of its parent, and of the parents of that, which are in the prompt."""

    def has_in_prompt(self, session: str, seq: int) -> bool:
        """Return whether a message of another session is in the prompt, since this one is a fork of it."""
        return any(span.session == session and span.after < seq <= span.last for span in self.inherited)


class HookFolder:
    """The files of the hooks of one agent, below a folder of the book."""

    def __init__(self, base: str, client: str) -> None:
        """Make nothing yet."""
        self._spool = os.path.join(base, FOLDER, "spool", client)
        self._uses = os.path.join(base, FOLDER, "uses", client)
        self._sessions = os.path.join(base, FOLDER, "sessions", client)
        self._ends = os.path.join(base, FOLDER, "ends", client)
        self._report = os.path.join(base, FOLDER, f"{client}.json")

    def spool(self, message: Spooled) -> None:
        """Store a message; it is durable when this returns."""
        # Ids are in the order of time, and so are the names.
        path = os.path.join(self._spool, f"{new_id()}.json")
        _write(path, encode(message), sync=True)

    def spooled(self) -> Iterator[tuple[str, Spooled]]:
        """Yield the spooled messages in order, each with its path; one that cannot be read is set aside."""
        for name in sorted(_names(self._spool)):
            path = os.path.join(self._spool, name)
            fields = _read(path) if name.endswith(".json") else {}
            if not fields:
                continue
            try:
                yield path, decode(Spooled, fields)
            except Malformed:
                self.set_aside(path)

    def delivered(self, path: str) -> None:
        """Remove a message that the book has."""
        with suppress(FileNotFoundError):
            os.unlink(path)

    def set_aside(self, path: str) -> None:
        """Keep a message that the book refuses, and deliver it no more."""
        with suppress(FileNotFoundError):
            os.replace(path, f"{path}.refused")

    def keep_use(self, use: KeptUse) -> None:
        """Store what was put into a turn; it is durable when this returns."""
        _write(os.path.join(self._uses, f"{new_id()}.json"), encode(use), sync=True)

    def kept_uses(self) -> Iterator[tuple[str, KeptUse]]:
        """Yield what was put into turns and is not recorded yet, in order, each with its path."""
        for name in sorted(_names(self._uses)):
            path = os.path.join(self._uses, name)
            with suppress(Malformed):
                yield path, decode(KeptUse, _read(path) if name.endswith(".json") else {})

    def state(self, session: str) -> SessionState:
        """Return the state of a session."""
        try:
            return decode(SessionState, _read(self._state_path(session)))  # type: ignore[no-any-return]
        except Malformed:
            return SessionState()

    def keep_state(self, session: str, state: SessionState) -> None:
        """Store the state of a session."""
        kept = state._replace(injected=state.injected[-_MAX_INJECTED:])
        _write(self._state_path(session), encode(kept), sync=False)

    def keep_end(self, session: str, turn: str) -> None:
        """Store with which turn a session ended."""
        _write(self._path(self._ends, turn), {"session": session}, sync=False)

    def ended_with(self, turn: str) -> str | None:
        """Return the session that ended with a turn."""
        session = _read(self._path(self._ends, turn)).get("session")
        return session if isinstance(session, str) else None

    def remove_old_files(self) -> None:
        """Remove files about sessions that ended long ago, uses that no session of the book has taken, and parts.

        A part is what a process that was killed has left of a file.
        """
        for folder in (self._sessions, self._uses, self._ends, self._spool):
            for name in _names(folder):
                if folder == self._spool and not name.endswith(_PART):
                    continue
                path = os.path.join(folder, name)
                with suppress(FileNotFoundError):
                    if time.time() - os.stat(path).st_mtime > _KEPT_SECONDS:
                        os.unlink(path)

    def report(self, **fields: object) -> None:
        """Add to the counts of the report, and keep what happened last."""
        report = _read(self._report)
        for name in ("events", "stored", "injected", "failed", "cut"):
            added = fields.pop(name, 0)
            report[name] = int(report.get(name, 0)) + (added if isinstance(added, int) else 0)
        _write(self._report, {**report, **fields}, sync=False)

    def is_behind(self) -> bool:
        """Return whether the last recall of a hook was cut off by the deadline."""
        return bool(_read(self._report).get("behind"))

    def _state_path(self, session: str) -> str:
        return self._path(self._sessions, session)

    @staticmethod
    def _path(folder: str, name: str) -> str:
        return os.path.join(folder, f"{sha256(name.encode()).hexdigest()[:32]}.json")


def reports(base: str) -> dict[str, dict[str, Any]]:
    """Return the reports of all agents, each with the number of messages that wait or were refused."""
    found = {}
    for name in sorted(_names(os.path.join(base, FOLDER))):
        client, ending = os.path.splitext(name)
        if ending == ".json":
            spooled = _names(os.path.join(base, FOLDER, "spool", client))
            waiting = sum(each.endswith(".json") for each in spooled)
            found[client] = {**_read(os.path.join(base, FOLDER, name)), "waiting": waiting}
            found[client]["refused"] = sum(each.endswith(".refused") for each in spooled)
    return found


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _read(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            fields = json.load(file)
    except (OSError, ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}


def _write(path: str, fields: object, *, sync: bool) -> None:
    folder = os.path.dirname(path)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    # The deadline is reported while another thread may be at work.
    part = f"{path}.{os.getpid()}-{threading.get_ident()}{_PART}"
    data = json.dumps(fields).encode()
    try:
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(data)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        os.replace(part, path)
    except OSError:
        # On a full disk, half a file would take the room that the next one needs.
        with suppress(OSError):
            os.unlink(part)
        raise
    if sync:
        opened = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)

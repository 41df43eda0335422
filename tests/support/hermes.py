"""Plays the part of the Hermes agent and its memory manager, in the order and on the threads in which they call.

Written from what NousResearch/hermes-agent does (agent/memory_manager.py as read at commit 002b0646, and its callers):
`on_turn_start` before a turn, `sync_turn` and `queue_prefetch` after it on one worker thread; `/new` as the end of the
old session and the switch in one task of that worker; `/resume`, `/branch`, undo and compression on the agent's own
thread; `prefetch` on a thread of its own, for at most 8 seconds; whatever a provider raises is noted and swallowed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import commonbook
from commonbook.adapters.hermes.provider import CommonbookMemoryProvider
from commonbook.service.book import Book
from commonbook.values.memory import Filter
from commonbook.values.session import Message, Session

SUMMARY = "[CONTEXT COMPACTION - REFERENCE ONLY] Earlier turns were compacted into the summary below. They spoke."
TRUNCATED = "[System: Your previous response was truncated by the output length limit. Continue exactly there.]"
BOUND = 15.0
"""No call of Hermes takes longer, on a machine that is busy with other things."""


class Turn(NamedTuple):
    """A turn: the texts of user and assistant, and their session."""

    session: str
    user: str
    assistant: str


class Hermes:
    """One agent with one conversation, as the CLI has it."""

    def __init__(
        self,
        provider: CommonbookMemoryProvider,
        session: str = "s1",
        *,
        batches: bool = True,
        **arguments: Any,
    ) -> None:
        self.provider, self.session, self.batches = provider, session, batches
        self.messages: list[dict[str, Any]] = []
        self.recorded: list[Turn] = []
        self.errors: list[BaseException] = []
        self.slowest = 0.0
        self.turns = 0
        self.parked: dict[str, list[dict[str, Any]]] = {}
        self._worker = ThreadPoolExecutor(1)
        self._queued: list[Future[Any]] = []
        self.initialize_arguments = {"platform": "cli", "agent_context": "primary", **arguments}
        self._call(provider.initialize, session_id=session, **self.initialize_arguments)

    # --- how the manager calls

    def _call(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        begun = time.monotonic()
        try:
            return method(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - as Hermes does
            self.errors.append(error)
        finally:
            self.slowest = max(self.slowest, time.monotonic() - begun)

    def _later(self, *calls: tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]) -> None:
        def task() -> None:
            for method, args, kwargs in calls:
                self._call(method, *args, **kwargs)

        self._queued.append(self._worker.submit(task))

    def drain(self) -> None:
        """Wait until the worker has nothing left to do."""
        for one in self._queued:
            one.result(60)
        self._queued.clear()

    # --- turns

    def turn(self, user: str, assistant: str, *, shown: str | None = None, drain: bool = True, parts: int = 1) -> str:
        """Have a turn, and return what was recalled.

        `shown` is what the user said with a skill's text around it. The answer is cut off by its length into `parts`.
        """
        self._begin(user, shown or user)
        recalled = self._call(self.provider.prefetch, user, session_id=self.session) or ""
        self._tool_round()
        self._answer(assistant, parts)
        self.recorded.append(Turn(self.session, user, assistant))
        self.sync(user, assistant)
        if drain:
            self.drain()
        return str(recalled)

    def _begin(self, user: str, shown: str) -> None:
        """Announce a turn. Hermes joins its question to words that have no answer."""
        # Hermes counts the turns of a history that it has resumed.
        self.turns = (self.turns or sum(one["role"] == "user" for one in self.messages)) + 1
        self._call(self.provider.on_turn_start, self.turns, user)
        if self.messages and self.messages[-1]["role"] == "user" and self.messages[-1]["content"] != SUMMARY:
            before = self.messages.pop()["content"]
            shown = f"{before}\n\n{shown}"
        self.messages.append({"role": "user", "content": shown})

    def _answer(self, assistant: str, parts: int) -> None:
        size = -(-len(assistant) // parts)
        for at in range(0, len(assistant), size):
            is_last = at + size >= len(assistant)
            part, reason = assistant[at : at + size].strip(), "stop" if is_last else "length"
            self.messages.append({"role": "assistant", "content": part, "finish_reason": reason})
            if not is_last:
                self.messages.append({"role": "user", "content": TRUNCATED})

    def _tool_round(self) -> None:
        call = {"id": f"c{self.turns}", "type": "function", "function": {"name": "look", "arguments": "{}"}}
        self.messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        self.messages.append({"role": "tool", "tool_call_id": call["id"], "content": f"tool output {self.turns}"})

    def sync(self, user: str, assistant: str) -> None:
        """Hand a turn to the provider; it can be repeated."""
        arguments: dict[str, Any] = {"session_id": self.session}
        if self.batches:
            arguments["messages"] = [dict(one) for one in self.messages]
        self._later(
            (self.provider.sync_turn, (user, assistant), arguments),
            (self.provider.queue_prefetch, (user,), {"session_id": self.session}),
        )

    def interrupted(self, user: str) -> None:
        """Have a turn that the user interrupts: it is never handed over."""
        self._begin(user, user)
        self.recorded.append(Turn(self.session, user, ""))

    def retry(self, assistant: str) -> None:
        """/retry: the last turn leaves the transcript without a word to the provider, and is asked again."""
        last = max(at for at, one in enumerate(self.messages) if one["role"] == "user")
        question = self.messages[last]["content"]
        del self.messages[last:]
        gone = max(at for at, one in enumerate(self.recorded) if one.session == self.session)
        del self.recorded[gone]
        self.turn(question, assistant)

    # --- commands

    def new(self, session: str) -> None:
        """/new and /reset: one task on the worker, behind the turns that are queued there."""
        old, history = self.session, list(self.messages)
        self.session, self.messages, self.turns = session, [], 0
        switch = {"parent_session_id": old, "reset": True, "reason": "new_session"}
        self._later(
            (self.provider.on_session_end, (history,), {}), (self.provider.on_session_switch, (session,), switch)
        )
        self.parked[old] = history

    def resume(self, session: str) -> None:
        """/resume: on the agent's thread, whatever the worker has left to do."""
        self.parked[self.session] = self.messages
        old, self.session = self.session, session
        self.messages = list(self.parked.get(session, []))
        self._switch(session, parent_session_id=old, reset=False, reason="resume")

    def branch(self, session: str) -> None:
        """/branch: the new session begins with a copy of the old one's transcript."""
        self.parked[self.session] = list(self.messages)
        old, self.session = self.session, session
        self._switch(session, parent_session_id=old, reset=False, reason="branch")

    def undo(self) -> None:
        """/undo: the last turn leaves the transcript, in the same session."""
        last = max(at for at, one in enumerate(self.messages) if one["role"] == "user")
        del self.messages[last:]
        gone = max(at for at, one in enumerate(self.recorded) if one.session == self.session)
        del self.recorded[gone]
        self._switch(self.session, parent_session_id="", reset=False, rewound=True)

    def compress(self, session: str | None = None, *, tail: int = 4) -> None:
        """Compress: all but the tail becomes a summary, in the same session or in another."""
        self._call(self.provider.on_pre_compress, [dict(one) for one in self.messages])
        self.messages = [{"role": "user", "content": SUMMARY}, *self.messages[len(self.messages) - tail :]]
        old = self.session
        if session:
            self._call(self.provider.on_session_end, [dict(one) for one in self.messages])
            self.session = session
        self._switch(self.session, parent_session_id=old, reset=False, reason="compression")

    def _switch(self, session: str, **arguments: Any) -> None:
        self._call(self.provider.on_session_switch, session, **arguments)

    def exit(self) -> None:
        """End: the whole conversation once more, then the worker's rest, then the shutdown."""
        self._call(self.provider.on_session_end, [dict(one) for one in self.messages])
        self.drain()
        self._call(self.provider.shutdown)
        self._worker.shutdown()


# --- what must be true afterwards


@contextmanager
def reading(place: Path | str) -> Iterator[Book]:
    """Open the book as somebody else would."""
    with commonbook.open(place, create=True) as book:
        yield book


def everything(book: Book) -> dict[str, tuple[Session, list[Message]]]:
    """Return every session with its messages that were not rewound."""
    found = {}
    for session in book.sessions(limit=1000):
        page = book.messages(session.id, limit=1000)
        found[session.id] = (page.session, [one for one in page.items if one.rewound_at is None])
    return found


def turns_of(messages: list[Message]) -> list[tuple[str, str]]:
    """Return messages as pairs of what the user and the agent said."""
    texts = [one.text for one in messages]
    roles = [one.role for one in messages]
    assert roles == ["user", "assistant"] * (len(roles) // 2), roles
    return list(zip(texts[::2], texts[1::2], strict=True))


def check(
    place: Path | str, *hermes: Hermes, parents: dict[str, str | None] | None = None, tags: tuple[str, ...] = ()
) -> None:
    """Each turn is stored once, in order, under its session; each message is in one episode or none."""
    with reading(place) as book:
        stored = everything(book)
        expected: dict[str, list[tuple[str, str]]] = {}
        for agent in hermes:
            assert not agent.errors, agent.errors
            assert agent.slowest < BOUND, agent.slowest
            for turn in agent.recorded:
                pair = [("user", turn.user), ("assistant", turn.assistant)]
                expected.setdefault(turn.session, []).extend(pair if turn.assistant else pair[:1])
        found = {name: [(one.role, one.text) for one in messages] for name, (_, messages) in stored.items() if messages}
        for name in sorted({*found, *expected}):
            assert found.get(name) == expected.get(name), name
        for name, parent in (parents or {}).items():
            assert stored[name][0].parent == parent, name
        for session, _ in stored.values():
            assert session.tags == (tags or ("hermes", "cli"))
        _check_episodes(book, stored)
        assert book.verify_log().ok


def _check_episodes(book: Book, stored: dict[str, tuple[Session, list[Message]]]) -> None:
    episodes = {one.id: one for one in book.list(Filter(kinds=("episode",)), limit=500).items}
    for name, (_, messages) in stored.items():
        for message in messages:
            if message.episode is not None:
                assert episodes[message.episode].session == name
                assert episodes[message.episode].text.count(message.text) >= 1

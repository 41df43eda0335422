"""Verbs of a book for sessions: append messages, switch, rewind, and settle them into episodes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from commonbook.errors import CommonbookError, HomeOfAnotherBuild
from commonbook.ports.database import retry_read
from commonbook.runtime import LazyModule
from commonbook.service.base import BookBase
from commonbook.values.session import NewMessage

if TYPE_CHECKING:
    from commonbook.core.text import chat_messages, validation
    from commonbook.subjects.maintenance import worker
    from commonbook.subjects.sessions import append as sessions_append
    from commonbook.subjects.sessions import move as sessions_move
    from commonbook.subjects.sessions import prompt_uses, read
    from commonbook.subjects.sessions import rewind as sessions_rewind
    from commonbook.subjects.sessions import settle as settling
    from commonbook.subjects.sessions import switch as sessions_switch
    from commonbook.values.session import (
        AppendReceipt,
        ChatMessage,
        Message,
        MessagePage,
        PromptPassage,
        PromptUse,
        Session,
        SettleReport,
        SwitchReason,
        WorkReport,
    )
else:
    # A verb loads the module that it needs, so that a command loads no more than its own subject.
    chat_messages = LazyModule("commonbook.core.text.chat_messages")
    sessions_append = LazyModule("commonbook.subjects.sessions.append")
    prompt_uses = LazyModule("commonbook.subjects.sessions.prompt_uses")
    read = LazyModule("commonbook.subjects.sessions.read")
    sessions_move = LazyModule("commonbook.subjects.sessions.move")
    sessions_rewind = LazyModule("commonbook.subjects.sessions.rewind")
    sessions_switch = LazyModule("commonbook.subjects.sessions.switch")
    settling = LazyModule("commonbook.subjects.sessions.settle")
    validation = LazyModule("commonbook.core.text.validation")
    worker = LazyModule("commonbook.subjects.maintenance.worker")


class SessionVerbs(BookBase):
    """Append to sessions, switch, rewind, settle and close them."""

    def append(
        self,
        session: str,
        messages: Iterable[NewMessage | str | ChatMessage],
        *,
        space: str | None = None,
        parent: str | None = None,
        tags: Iterable[str] = (),
    ) -> AppendReceipt:
        validation.require_message_list(messages)
        sent = [_new_message(message, at) for at, message in enumerate(messages)]
        options = self._new_session_options(space, parent, tags)
        return self._appender.append(self._caller, session, sent, options)

    @retry_read
    def messages(self, session: str, *, space: str | None = None, after: int = 0, limit: int = 100) -> MessagePage:
        return read.list_messages(self._engines, self._actor, session, space=space, after=after, limit=limit)

    @retry_read
    def sessions(self, *, space: str | None = None, limit: int = 50) -> tuple[Session, ...]:
        return read.list_sessions(self._engines, self._actor, space=space, limit=limit)

    def switch(
        self,
        old: str,
        new: str,
        *,
        reason: SwitchReason = "new",
        space: str | None = None,
        to_space: str | None = None,
        tags: Iterable[str] = (),
    ) -> SettleReport:
        self._prefetcher.drop(old)
        return sessions_switch.switch(
            self._engines,
            self._caller,
            old,
            new,
            reason=reason,
            options=self._new_session_options(space, None, tags),
            to_space=to_space,
            similarity=self._similarity,
        )

    def rewind(self, session: str, after: int | str, *, space: str | None = None) -> tuple[Message, ...]:
        self._prefetcher.drop(session)
        return sessions_rewind.rewind(self._engines, self._caller, self._locate(session, space), after)

    def settle(self, session: str, *, space: str | None = None) -> SettleReport:
        key = self._locate(session, space)
        return settling.settle(self._engines, self._caller, key, flush=True, similarity=self._similarity)

    def close_session(self, session: str, *, space: str | None = None) -> SettleReport:
        key = self._locate(session, space)
        return sessions_switch.close(self._engines, self._caller, key, similarity=self._similarity)

    def move_session(self, session: str, to: str, *, space: str | None = None) -> Session:
        self._prefetcher.drop(session)
        return sessions_move.move(self._engines, self._caller, self._locate(session, space), to)

    def record_uses(
        self,
        session: str,
        passages: Iterable[PromptPassage],
        *,
        message: int | str = 0,
        space: str | None = None,
    ) -> int:
        key = self._locate(session, space)
        return prompt_uses.record(self._engines, self._caller, key, tuple(passages), message)

    @retry_read
    def uses(self, memory_id: str, *, limit: int = 100) -> tuple[PromptUse, ...]:
        return prompt_uses.of_memory(self._engines, self._actor, memory_id, limit=limit)

    @retry_read
    def session_uses(
        self, session: str, *, space: str | None = None, first: int = 0, last: int | None = None
    ) -> tuple[PromptUse, ...]:
        return prompt_uses.of_session(self._engines, self._actor, session, space=space, first=first, last=last)

    def _locate(self, session: str, space: str | None) -> tuple[str, str]:
        return read.locate_writable(self._engines, self._actor, session, space=space, default=self.default_space)

    def work(
        self,
        *,
        seconds: float | None = None,
        retry: bool = False,
        index: bool = False,
        noticed: Callable[[WorkReport], None] | None = None,
    ) -> int:
        if seconds is not None:
            validation.validate_seconds(seconds, "seconds")
        if retry:
            worker.retry(self._engines, self._actor)
        until = None if seconds is None else self._engines.clock.now() + timedelta(seconds=seconds)
        ran = worker.work(self._engines, self._actor, similarity=self._similarity, until=until, noticed=noticed)
        if not index:
            return ran
        return ran + self._recall_service.catch_up(
            self._engines, lambda: until is not None and self._engines.clock.now() >= until
        )

    @contextmanager
    def working(self, *, every: float = 1.0) -> Iterator[None]:
        """Run the jobs that become due in a background thread, while the `with` block runs.

        The thread looks for jobs every so many seconds, and then for changes that wait for the index.
        """
        stop = threading.Event()

        def work_until_stopped() -> None:
            while not stop.is_set():
                # A home that is busy or full for a while does not end the worker: due jobs stay due.
                try:
                    self.work(seconds=every)
                    self._recall_service.catch_up(self._engines, stop.is_set)
                except HomeOfAnotherBuild:
                    return
                except CommonbookError:
                    pass
                stop.wait(every)

        thread = threading.Thread(target=work_until_stopped, name="commonbook-worker", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def _new_session_options(
        self, space: str | None, parent: str | None, tags: Iterable[str]
    ) -> sessions_append.NewSessionOptions:
        return sessions_append.NewSessionOptions(
            space=space or self.space_for_writing(),
            parent=None if parent is None else validation.validate_session_id(parent),
            tags=validation.validate_tags(validation.validate_list(tags, "tags")),
        )


def _new_message(message: NewMessage | str | ChatMessage, at: int) -> NewMessage:
    """Return a message of any shape in our own."""
    if isinstance(message, NewMessage):
        return message
    if isinstance(message, str):
        return NewMessage(message)
    with validation.error_item(at):
        return chat_messages.parse_message(message)

"""Verbs of a book for sessions: append messages, switch, rewind, and settle them into episodes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from commonbook.book.base import BookBase
from commonbook.errors import CommonbookError, HomeOfAnotherBuild
from commonbook.model.session import (
    AppendReceipt,
    ChatMessage,
    Message,
    MessagePage,
    NewMessage,
    PromptPassage,
    PromptUse,
    Session,
    SettleReport,
    WorkReport,
)
from commonbook.ports.retry_read import retry_read
from commonbook.runtime.lazy_modules import LazyModule

if TYPE_CHECKING:
    from commonbook.maintenance import worker
    from commonbook.model.session import SwitchReason
    from commonbook.sessions import find_or_create, prompt_uses, read
    from commonbook.sessions import move as sessions_move
    from commonbook.sessions import rewind as sessions_rewind
    from commonbook.sessions import settle as settling
    from commonbook.sessions import switch as sessions_switch
    from commonbook.text import chat_messages, validation
else:
    # A verb loads the module that it needs, so that a command loads no more than its own subject.
    chat_messages = LazyModule("commonbook.text.chat_messages")
    find_or_create = LazyModule("commonbook.sessions.find_or_create")
    prompt_uses = LazyModule("commonbook.sessions.prompt_uses")
    read = LazyModule("commonbook.sessions.read")
    sessions_move = LazyModule("commonbook.sessions.move")
    sessions_rewind = LazyModule("commonbook.sessions.rewind")
    sessions_switch = LazyModule("commonbook.sessions.switch")
    settling = LazyModule("commonbook.sessions.settle")
    validation = LazyModule("commonbook.text.validation")
    worker = LazyModule("commonbook.maintenance.worker")


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
        """Append messages to a session in order, all or none; they are durable and searchable when this returns.

        A session belongs to its space: without `space` it is the one in the default space. It is created by its first
        message; `parent`, a session of the same space, and `tags` are for a new one. Secrets are masked before they are
        stored. A message whose `client_id` was sent before is a repeat, and not stored again.

        A message may also have the shape of OpenAI's or Anthropic's interface: a `role`, and as `content` a text or a
        list of parts. Of its parts, texts are kept; others, such as images and tool calls, become a short marker.
        """
        validation.require_message_list(messages)
        sent = [_new_message(message, at) for at, message in enumerate(messages)]
        options = self._new_session_options(space, parent, tags)
        return self._appender.append(self._caller, session, sent, options)

    @retry_read
    def messages(self, session: str, *, space: str | None = None, after: int = 0, limit: int = 100) -> MessagePage:
        """Return a page of the messages of a session after a number, in order; rewound messages are included.

        Without `space`, it is the only readable session of that name; `Ambiguous` if there are several. Give the `next`
        of a page as `after` to get the following one.
        """
        return read.list_messages(self._engines, self._actor, session, space=space, after=after, limit=limit)

    @retry_read
    def sessions(self, *, space: str | None = None, limit: int = 50) -> tuple[Session, ...]:
        """Return the newest sessions, of all readable spaces or of one."""
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
        """Settle the old session and begin or resume the new one, in one transaction.

        The `reason` is `new`, `reset`, `resume`, `branch` or `compress`. The old session is closed, except for
        `branch`, and is the parent of a new one, except for `resume`. Both are in `space`, or in the default space;
        `to_space` is for a new session elsewhere. A new session has the tags of the old one, unless others are given.
        """
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
        """Remove every message after one, given by its number or id, from recall and episodes; return the removed ones.

        The log of the session keeps them, marked as rewound. `after=0` rewinds all. Without `space`, it is the session
        in the default space, else the only one of that name that the actor may write to.
        """
        self._prefetcher.drop(session)
        return sessions_rewind.rewind(self._engines, self._caller, self._locate(session, space), after)

    def settle(self, session: str, *, space: str | None = None) -> SettleReport:
        """Make episodes of all unsettled messages of a session now; otherwise a worker does so in time.

        Without `space`, the session is found as for `rewind`.
        """
        key = self._locate(session, space)
        return settling.settle(self._engines, self._caller, key, flush=True, similarity=self._similarity)

    def close_session(self, session: str, *, space: str | None = None) -> SettleReport:
        """Settle all messages of a session and close it; a later append opens it again.

        Without `space`, the session is found as for `rewind`.
        """
        key = self._locate(session, space)
        return sessions_switch.close(self._engines, self._caller, key, similarity=self._similarity)

    def move_session(self, session: str, to: str, *, space: str | None = None) -> Session:
        """Move a session with its messages and episodes into another space, in one transaction; return it.

        Needs the right to write to both spaces; Conflict if the new one has a session of this name. Numbers and ids
        stay. An append that names the old space goes to the new one, and a client id that was sent before is a repeat
        there. Without `space`, the session is found as for `rewind`.
        """
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
        """Record that passages of memories or messages were put into a turn of a session; return how many are new.

        `message` is the number or the client id of the message that they went with, and 0 at the start of the session.
        Without `space`, the session is found as for `rewind`. `uses` and `session_uses` show what was recorded.
        """
        key = self._locate(session, space)
        return prompt_uses.record(self._engines, self._caller, key, tuple(passages), message)

    @retry_read
    def uses(self, memory_id: str, *, limit: int = 100) -> tuple[PromptUse, ...]:
        """Return the turns of readable sessions that a memory was put into, the newest first.

        It can be deleted by now. For an episode, these are also the turns that its messages were put into; the id of a
        message is taken too.
        """
        return prompt_uses.of_memory(self._engines, self._actor, memory_id, limit=limit)

    @retry_read
    def session_uses(
        self, session: str, *, space: str | None = None, first: int = 0, last: int | None = None
    ) -> tuple[PromptUse, ...]:
        """Return what was put into the turns of a session, in order; only passages of what the actor may read.

        `first` and `last` are numbers of messages. Without `space`, the session is found as for `messages`.
        """
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
        """Run the background jobs that are due, such as settling, for at most so many seconds; return how many ran.

        With `retry`, jobs that have failed for good are tried again too. With `index`, many changes that wait for the
        index are written into it afterwards, so that no recall has to; each slice counts as a job. `noticed` is called
        with a report of each session that was settled, or could not be.
        """
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
    ) -> find_or_create.NewSessionOptions:
        return find_or_create.NewSessionOptions(
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

"""Handles one event: the message is spooled first, then delivered; only then the book is asked for context."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from commonbook.errors import BadInput, CommonbookError, KeyConflict, NotAllowed, NotFound
from commonbook.interfaces.agents.hooks import context
from commonbook.interfaces.agents.hooks.context import Context
from commonbook.interfaces.agents.hooks.folder import KeptUse, Spooled
from commonbook.model.ids import format_time
from commonbook.model.session import NewMessage

if TYPE_CHECKING:
    from commonbook.book.book import Book
    from commonbook.interfaces.agents.hooks.events import Event
    from commonbook.interfaces.agents.hooks.folder import HookFolder

BookOf = Callable[..., "Book"]
"""Returns the book for a folder and a space: `book_of(cwd=..., space=..., changes=...)`."""


_ROLES: Final = {"prompt": "user", "answer": "assistant", "tool": "tool"}


class Handler:
    """Handles the events of one agent."""

    def __init__(self, client: str, folder: HookFolder, book_of: BookOf, *, cwd: str, person: str | None) -> None:
        """Use this folder and book; `person` is the author of prompts, None for the principal itself."""
        self._client, self._folder, self._book_of = client, folder, book_of
        self._cwd, self._person = cwd, person
        self._stored = 0
        self._spooled: Event | None = None
        """The event with its message as it is stored, if it has one."""

    def spool(self, event: Event) -> None:
        """Store the message of an event durably, without its secrets and without what was injected."""
        state = self._folder.state(event.session)
        if state.cwd is None:
            # A session stays where it began, also when its agent goes to another folder.
            self._folder.keep_state(event.session, state._replace(cwd=self._cwd))
        self._cwd = state.cwd or self._cwd
        if not event.has_message:
            return
        from commonbook.text.masking import mask
        from commonbook.text.recall_fence import unfence_any

        text = mask(unfence_any(event.text)).text.strip()
        if text:
            now = format_time(datetime.now(UTC))
            self._spooled = event._replace(text=text)
            self._folder.spool(Spooled(self._spooled, self._cwd, now))

    def handle(self, event: Event) -> str:
        """Deliver what is spooled, do what the event asks for, and return the context for the prompt."""
        self._deliver()
        found = self._act(event)
        if found.passages:
            state = self._folder.state(event.session)
            ids = [passage.id for passage in found.passages]
            message = self._spooled.client_id if self._spooled else state.compacted
            self._folder.keep_use(KeptUse(event.session, self._cwd, message, found.passages))
            injected = (*state.injected, *ids)
            self._folder.keep_state(event.session, state._replace(injected=injected, tag=found.tag))
        self._folder.report(
            events=1,
            stored=self._stored,
            injected=len(found.passages),
            last=event.name,
            at=format_time(datetime.now(UTC)),
        )
        return found.text

    def record_uses(self) -> None:
        """Record in the book what was put into turns; that of a session which the book does not have yet waits."""
        for path, use in self._folder.kept_uses():
            space = self._folder.state(use.session).space
            book = self._book_of(cwd=use.cwd, space=space, changes=True)
            try:
                book.record_uses(use.session, use.passages, message=use.message, space=space)
            except NotFound:
                continue
            except (BadInput, NotAllowed):
                self._folder.set_aside(path)
                raise
            self._folder.delivered(path)

    def fail(self, event: Event | None, error: Exception) -> None:
        """Report an event that could not be handled."""
        words = f"{error.type}: {error.message}" if isinstance(error, CommonbookError) else type(error).__name__
        name = event.name if event else "unknown"
        self._folder.report(failed=1, last=name, at=format_time(datetime.now(UTC)), error=words[:300])

    # --- messages

    def _deliver(self) -> None:
        for path, message in self._folder.spooled():
            try:
                self._append(message)
            except (BadInput, NotAllowed, KeyConflict) as error:
                self._folder.set_aside(path)
                self.fail(message.event, error)
            else:
                self._folder.delivered(path)

    def _append(self, message: Spooled) -> None:
        event = message.event
        state = self._folder.state(event.session)
        book = self._book_of(cwd=message.cwd, space=state.space, changes=True)
        author = self._person if event.kind == "prompt" else None
        stored = NewMessage(event.text, _ROLES[event.kind], author or book.actor, message.time, event.client_id)
        receipt = book.append(event.session, [stored], space=state.space, tags=[self._client])
        self._stored += sum(each.new for each in receipt.messages)
        if state.space is None and receipt.space:
            self._folder.keep_state(event.session, state._replace(space=receipt.space))

    # --- what each kind of event asks for

    def _act(self, event: Event) -> Context:
        state = self._folder.state(event.session)
        if event.kind == "start":
            return self._begin(event)
        if event.kind == "prompt":
            book = self._book_of(cwd=self._cwd, space=state.space, changes=False)
            text = self._spooled.text if self._spooled else ""
            return context.at_prompt(book, text, session=event.session, state=state)
        if event.kind == "compact" and state.space is not None:
            book = self._book_of(cwd=self._cwd, space=state.space, changes=True)
            last = book.messages(event.session, space=state.space, limit=1).session.last
            # The prompt loses what was injected and said: both may be recalled from now on.
            self._folder.keep_state(event.session, state._replace(injected=(), compacted=last))
            book.settle(event.session, space=state.space)
        if event.kind == "end" and state.space is not None:
            book = self._book_of(cwd=self._cwd, space=state.space, changes=True)
            book.close_session(event.session, space=state.space)
        return Context()

    def _begin(self, event: Event) -> Context:
        self._folder.remove_old_states()
        if event.source in ("resume", "fork"):
            # The conversation goes on, with what was injected into it.
            return Context()
        state = self._folder.state(event.session)
        if state.injected:
            self._folder.keep_state(event.session, state._replace(injected=()))
        return context.at_start(self._book_of(cwd=self._cwd, space=state.space, changes=False), state)

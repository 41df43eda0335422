"""Handles one event: the message is spooled first, then delivered; only then the book is asked for context."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from commonbook.errors import BadInput, CommonbookError, Conflict, NotAllowed, NotFound
from commonbook.interfaces.agents.hooks import context
from commonbook.interfaces.agents.hooks.context import Context
from commonbook.interfaces.agents.hooks.folder import KeptUse, Span, Spooled
from commonbook.values.ids import format_time
from commonbook.values.session import MAX_MESSAGE_BYTES, NewMessage

if TYPE_CHECKING:
    from commonbook.interfaces.agents.hooks.events import Event
    from commonbook.interfaces.agents.hooks.folder import HookFolder, SessionState
    from commonbook.verbs import Verbs

BookOf = Callable[..., "Verbs"]
"""Returns the book for a folder and a space: `book_of(cwd=..., space=..., changes=...)`."""


_ROLES: Final = {"prompt": "user", "answer": "assistant", "tool": "tool"}
_WITH_CONTEXT: Final = ("start", "prompt")
_MAX_PART_CHARS: Final = 250_000
"""A character has at most four bytes."""

_REFUSALS: Final = (BadInput, NotAllowed, NotFound, Conflict)
"""The errors that a message meets again however often it is sent."""


class Handler:
    """Handles the events of one agent."""

    def __init__(
        self,
        client: str,
        folder: HookFolder,
        book_of: BookOf,
        *,
        catch_up: Callable[[], None],
        cwd: str,
        person: str | None,
    ) -> None:
        """Use this folder and book; `person` is the author of prompts, None for the principal itself.

        `catch_up` writes changes into the index of the books that are open, for a moment.
        """
        self._client, self._folder, self._book_of, self._catch_up = client, folder, book_of, catch_up
        self._cwd, self._person = cwd, person
        self._stored = 0
        self._spooled: Event | None = None
        """The event with its message as it is stored, if it has one."""

    def spool(self, event: Event) -> None:
        """Store the message of an event durably, without its secrets and without what was injected."""
        state = self._folder.state(event.session)
        if state.cwd is None:
            # A session stays where it began, also when its agent goes to another folder.
            state = self._first_state(event)
            self._folder.keep_state(event.session, state)
        self._cwd = state.cwd or self._cwd
        if event.kind == "end" and event.turn:
            self._folder.keep_end(event.session, event.turn)
        if not event.has_message:
            return
        from commonbook.core.text.masking import mask
        from commonbook.core.text.recall_fence import unfence_any

        text = mask(unfence_any(event.text)).text.strip()
        if text:
            now = format_time(datetime.now(UTC))
            self._spooled = event._replace(text=text)
            self._folder.spool(Spooled(self._spooled, self._cwd, now))

    def _first_state(self, event: Event) -> SessionState:
        """Return the state of a session at its first event.

        A fork that the agent makes of its present conversation begins with the turn with which that one ended. What was
        said and added there is in its prompt.
        """
        parent = self._folder.ended_with(event.turn) if event.source == "fork" and event.turn else None
        if parent is None or parent == event.session:
            return self._folder.state(event.session)._replace(cwd=self._cwd)
        state = self._folder.state(parent)
        return state._replace(cwd=state.cwd or self._cwd, parent=parent, compacted=0)

    def handle(self, event: Event) -> str:
        """Deliver what is spooled, do what the event asks for, and return the context for the prompt."""
        try:
            self._deliver()
        finally:
            # At once, since the deadline may cut off what follows.
            if self._stored:
                self._folder.report(stored=self._stored)
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
            injected=len(found.passages),
            last=event.name,
            at=format_time(datetime.now(UTC)),
            **({"behind": False} if event.kind in _WITH_CONTEXT else {}),
        )
        return found.text

    def record_uses(self) -> None:
        """Record the uses of passages in the book; the uses of a session that the book does not have yet wait."""
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

    def cut_off(self, event: Event) -> None:
        """Report an event whose handling took longer than the deadline; its message is stored with the next one."""
        behind = {"behind": True} if event.kind in _WITH_CONTEXT else {}
        self._folder.report(events=1, cut=1, last=event.name, at=format_time(datetime.now(UTC)), **behind)

    # --- messages

    def _deliver(self) -> None:
        faulty: set[str] = set()
        for path, message in self._folder.spooled():
            session = message.event.session
            if session in faulty:
                continue
            try:
                self._append(message)
            except _REFUSALS as error:
                self._folder.set_aside(path)
                self.fail(message.event, error)
            except (CommonbookError, OSError):
                raise
            except Exception as error:  # noqa: BLE001 - a fault on one message must not keep back other sessions
                faulty.add(session)
                self.fail(message.event, error)
            else:
                self._folder.delivered(path)

    def _append(self, message: Spooled) -> None:
        event = message.event
        state = self._folder.state(event.session)
        book = self._book_of(cwd=message.cwd, space=state.space, changes=True)
        author = (self._person if event.kind == "prompt" else None) or book.actor
        role = _ROLES[event.kind]
        stored = [
            NewMessage(text, role, author, message.time, f"{event.client_id}:{number}" if number else event.client_id)
            for number, text in enumerate(_parts(event.text))
        ]
        receipt = book.append(event.session, stored, space=state.space, parent=state.parent, tags=[self._client])
        self._stored += sum(each.new for each in receipt.messages)
        if state.parent or (state.space is None and receipt.space):
            # The parent is for the first message, which makes the session.
            self._folder.keep_state(event.session, state._replace(space=state.space or receipt.space, parent=None))

    # --- what each kind of event asks for

    def _act(self, event: Event) -> Context:
        state = self._folder.state(event.session)
        if event.kind in _WITH_CONTEXT:
            # A recall that was cut off would be so each time: the index is brought up to date in small steps first.
            self._catch_up_if_behind(cwd=self._cwd, space=state.space)
        if event.kind == "start":
            return self._begin(event)
        if event.kind == "prompt":
            book = self._book_of(cwd=self._cwd, space=state.space, changes=False)
            text = self._spooled.text if self._spooled else ""
            last = self._last_message(event.session, state) if state.compacted else 0
            return context.at_prompt(book, text, session=event.session, state=state, last=last)
        if event.kind == "answer":
            self._catch_up_if_behind(cwd=self._cwd, space=state.space)
        if event.kind == "compact":
            self._compact(event, state)
        if event.kind == "end" and state.space is not None:
            book = self._book_of(cwd=self._cwd, space=state.space, changes=True)
            with suppress(NotFound):
                book.close_session(event.session, space=state.space)
        return Context()

    def _catch_up_if_behind(self, *, cwd: str, space: str | None) -> None:
        if self._folder.is_behind():
            self._book_of(cwd=cwd, space=space, changes=False)
            self._catch_up()

    def _compact(self, event: Event, state: SessionState) -> None:
        """Let everything be recalled from now on: the prompt loses what was said and added to it."""
        last = self._last_message(event.session, state)
        self._folder.keep_state(event.session, state._replace(injected=(), inherited=(), compacted=last))
        if last:
            book = self._book_of(cwd=self._cwd, space=state.space, changes=True)
            book.settle(event.session, space=state.space)

    def _begin(self, event: Event) -> Context:
        self._folder.remove_old_files()
        state = self._folder.state(event.session)
        if event.source in ("resume", "fork"):
            # The conversation continues, with what was injected into it.
            if state.parent:
                self._inherit(event.session, state, state.parent)
            return Context()
        if state.injected:
            self._folder.keep_state(event.session, state._replace(injected=()))
        return context.at_start(self._book_of(cwd=self._cwd, space=state.space, changes=False), state)

    def _inherit(self, session: str, state: SessionState, parent: str) -> None:
        """Keep which messages of its parent a fork has in its prompt."""
        span = Span(parent, self._folder.state(parent).compacted, self._last_message(parent, state))
        if span not in state.inherited:
            self._folder.keep_state(session, state._replace(inherited=(*state.inherited, span)))

    def _last_message(self, session: str, state: SessionState) -> int:
        """Return the number of the last message of a session, 0 if the book has none."""
        if state.space is None:
            return 0
        book = self._book_of(cwd=self._cwd, space=state.space, changes=False)
        try:
            return book.messages(session, space=state.space, limit=1).session.last
        except NotFound:
            return 0


def _parts(text: str) -> Iterator[str]:
    """Yield a text as the texts of messages: in parts, if it is too long for one."""
    size = len(text) if len(text.encode()) <= MAX_MESSAGE_BYTES else _MAX_PART_CHARS
    for start in range(0, len(text), size):
        yield text[start : start + size]

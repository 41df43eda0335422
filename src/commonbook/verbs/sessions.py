"""The verbs of a book: append to sessions, settle them into episodes, and record what went into prompts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from commonbook.verbs.declaration import Declarations, verb

if TYPE_CHECKING:
    from commonbook.values.session import (
        AppendReceipt,
        ChatMessage,
        Message,
        MessagePage,
        NewMessage,
        PromptPassage,
        PromptUse,
        Session,
        SettleReport,
        SwitchReason,
    )


class Sessions(Declarations):
    """Append to sessions, settle them into episodes, and record what went into prompts."""

    @verb("POST", "/v1/sessions/{session:path}/messages", changes=True)
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

    @verb("GET", "/v1/sessions/{session:path}/messages")
    def messages(self, session: str, *, space: str | None = None, after: int = 0, limit: int = 100) -> MessagePage:
        """Return a page of the messages of a session after a number, in order; rewound messages are included.

        Without `space`, it is the only readable session of that name; `Ambiguous` if there are several. Give the `next`
        of a page as `after` to get the following one.
        """

    @verb("GET", "/v1/sessions")
    def sessions(self, *, space: str | None = None, limit: int = 50) -> tuple[Session, ...]:
        """Return the newest sessions, of all readable spaces or of one."""

    @verb("POST", "/v1/sessions/{old:path}/switch", changes=True)
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

    @verb("POST", "/v1/sessions/{session:path}/rewind", changes=True)
    def rewind(self, session: str, after: int | str, *, space: str | None = None) -> tuple[Message, ...]:
        """Remove every message after one, given by its number or id, from recall and episodes; return the removed ones.

        The log of the session keeps them, marked as rewound. `after=0` rewinds all. Without `space`, it is the session
        in the default space, else the only one of that name that the actor may write to.
        """

    @verb("POST", "/v1/sessions/{session:path}/settle", changes=True)
    def settle(self, session: str, *, space: str | None = None) -> SettleReport:
        """Make episodes of all unsettled messages of a session now; otherwise a worker does so in time.

        Without `space`, the session is found as for `rewind`.
        """

    @verb("POST", "/v1/sessions/{session:path}/close", changes=True)
    def close_session(self, session: str, *, space: str | None = None) -> SettleReport:
        """Settle all messages of a session and close it; a later append opens it again.

        Without `space`, the session is found as for `rewind`.
        """

    @verb("POST", "/v1/sessions/{session:path}/move", changes=True)
    def move_session(self, session: str, to: str, *, space: str | None = None) -> Session:
        """Move a session with its messages and episodes into another space, in one transaction; return it.

        Needs the right to write to both spaces; Conflict if the new one has a session of this name. Numbers and ids
        stay. An append that names the old space goes to the new one, and a client id that was sent before is a repeat
        there. Without `space`, the session is found as for `rewind`.
        """

    @verb("POST", "/v1/sessions/{session:path}/uses", changes=True)
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

    @verb("GET", "/v1/memories/{memory_id}/uses")
    def uses(self, memory_id: str, *, limit: int = 100) -> tuple[PromptUse, ...]:
        """Return the turns of readable sessions that a memory was put into, the newest first.

        It can be deleted by now. For an episode, these are also the turns that its messages were put into; the id of a
        message is taken too.
        """

    @verb("GET", "/v1/sessions/{session:path}/uses")
    def session_uses(
        self, session: str, *, space: str | None = None, first: int = 0, last: int | None = None
    ) -> tuple[PromptUse, ...]:
        """Return what was put into the turns of a session, in order; only passages of what the actor may read.

        `first` and `last` are numbers of messages. Without `space`, the session is found as for `messages`.
        """

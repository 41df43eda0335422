"""Verbs of a remote book: sessions. Made by `tools/make_client.py`; a test compares it."""

from __future__ import annotations

from collections.abc import Iterable

from commonbook.client.verbs.base import VerbCaller
from commonbook.model.session import Message, MessagePage, PromptPassage, PromptUse, Session, SettleReport, SwitchReason


class SessionVerbs(VerbCaller):
    """Verbs of a remote book: sessions."""

    def messages(self, session: str, *, space: str | None = None, after: int = 0, limit: int = 100) -> MessagePage:
        """Return a page of the messages of a session after a number, in order; rewound messages are included.

        Without `space`, it is the only readable session of that name; `Ambiguous` if there are several. Give the `next`
        of a page as `after` to get the following one.
        """
        result: MessagePage = self._call(
            "messages", {"session": session, "space": space, "after": after, "limit": limit}
        )
        return result

    def sessions(self, *, space: str | None = None, limit: int = 50) -> tuple[Session, ...]:
        """Return the newest sessions, of all readable spaces or of one."""
        result: tuple[Session, ...] = self._call("sessions", {"space": space, "limit": limit})
        return result

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
        result: SettleReport = self._call(
            "switch", {"old": old, "new": new, "reason": reason, "space": space, "to_space": to_space, "tags": tags}
        )
        return result

    def rewind(self, session: str, after: int | str, *, space: str | None = None) -> tuple[Message, ...]:
        """Remove every message after one, given by its number or id, from recall and episodes; return the removed ones.

        The log of the session keeps them, marked as rewound. `after=0` rewinds all. Without `space`, it is the session
        in the default space, else the only one of that name that the actor may write to.
        """
        result: tuple[Message, ...] = self._call("rewind", {"session": session, "after": after, "space": space})
        return result

    def settle(self, session: str, *, space: str | None = None) -> SettleReport:
        """Make episodes of all unsettled messages of a session now; otherwise a worker does so in time.

        Without `space`, the session is found as for `rewind`.
        """
        result: SettleReport = self._call("settle", {"session": session, "space": space})
        return result

    def close_session(self, session: str, *, space: str | None = None) -> SettleReport:
        """Settle all messages of a session and close it; a later append opens it again.

        Without `space`, the session is found as for `rewind`.
        """
        result: SettleReport = self._call("close_session", {"session": session, "space": space})
        return result

    def move_session(self, session: str, to: str, *, space: str | None = None) -> Session:
        """Move a session with its messages and episodes into another space, in one transaction; return it.

        Needs the right to write to both spaces; Conflict if the new one has a session of this name. Numbers and ids
        stay. An append that names the old space goes to the new one, and a client id that was sent before is a repeat
        there. Without `space`, the session is found as for `rewind`.
        """
        result: Session = self._call("move_session", {"session": session, "to": to, "space": space})
        return result

    def record_uses(
        self, session: str, passages: Iterable[PromptPassage], *, message: int | str = 0, space: str | None = None
    ) -> int:
        """Record that passages of memories or messages were put into a turn of a session; return how many are new.

        `message` is the number or the client id of the message that they went with, and 0 at the start of the session.
        Without `space`, the session is found as for `rewind`. `uses` and `session_uses` show what was recorded.
        """
        result: int = self._call(
            "record_uses", {"session": session, "passages": passages, "message": message, "space": space}
        )
        return result

    def uses(self, memory_id: str, *, limit: int = 100) -> tuple[PromptUse, ...]:
        """Return the turns of readable sessions that a memory was put into, the newest first.

        It can be deleted by now. For an episode, these are also the turns that its messages were put into; the id of a
        message is taken too.
        """
        result: tuple[PromptUse, ...] = self._call("uses", {"memory_id": memory_id, "limit": limit})
        return result

    def session_uses(
        self, session: str, *, space: str | None = None, first: int = 0, last: int | None = None
    ) -> tuple[PromptUse, ...]:
        """Return what was put into the turns of a session, in order; only passages of what the actor may read.

        `first` and `last` are numbers of messages. Without `space`, the session is found as for `messages`.
        """
        result: tuple[PromptUse, ...] = self._call(
            "session_uses", {"session": session, "space": space, "first": first, "last": last}
        )
        return result

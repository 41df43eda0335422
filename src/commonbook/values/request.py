"""The context of a call: who makes it, and the idempotency key of its request, if it came with one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from commonbook.values.spaces import FILESYSTEM_ACTOR, OWNER_ACTOR, Actor


class RequestContext(NamedTuple):
    """The caller of a verb, handed from the book down to the write transaction.

    A request that came with a `key` may come again: the transaction that makes its change stores the answer with it.
    """

    actor: Actor
    key: str | None = None
    """The idempotency key of the request."""
    content: str = ""
    """A text that stands for everything that was requested; the same key with another content is a conflict."""
    encode: Callable[[object], str] = str
    """Turns the result of the write into the answer."""

    def recording(self) -> RequestContext:
        """Return the context of an actor that records a conversation, which no review holds back."""
        return self._replace(actor=self.actor.recording())


OWNER_CONTEXT: Final = RequestContext(OWNER_ACTOR)
FILESYSTEM_CONTEXT: Final = RequestContext(FILESYSTEM_ACTOR)

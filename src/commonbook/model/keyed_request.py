"""A request with an idempotency key, as it travels with a book from an interface to the write transaction."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from commonbook.model.spaces import Actor


class KeyedRequest:
    """A request that may come again: the write transaction that makes its change stores the answer with it.

    `content` stands for everything that was requested; the same key with another content is a conflict. `encode` turns
    the result of the write into the answer. `is_answered` tells that a transaction has stored the answer.
    """

    __slots__ = ("actor", "content", "encode", "is_answered", "key")

    def __init__(self, actor: Actor, key: str, content: str, encode: Callable[[object], str]) -> None:
        """Describe a request that has no answer yet."""
        self.actor, self.key, self.content, self.encode = actor, key, content, encode
        self.is_answered = False

"""Announces appends, for interfaces: a request that has been received shares a transaction with those before it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from commonbook.book.book import Book


def announce_append(book: Book) -> AbstractContextManager[None]:
    """Announce the append that this context, or a thread that runs in a copy of it, is going to make."""
    return book._appender.group_commit.announce()  # noqa: SLF001 - this module is a part of the facade

"""The same book for asyncio: every verb is a coroutine, which runs in a thread and keeps the event loop free.

    async with commonbook.aio.open() as book:
        await book.remember("Alice owns the billing service")

`commonbook.aio.connect` opens a book on a server in the same way.

A coroutine that is cancelled does not stop its thread: a write may still be made. Callbacks are called in a thread.
"""

from __future__ import annotations

from commonbook.aio.book import Book, Opening, RemoteBook, connect, open  # noqa: A004 - as in the package

__all__ = ["Book", "Opening", "RemoteBook", "connect", "open"]

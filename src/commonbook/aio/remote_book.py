"""The class `RemoteBook` for asyncio, made from the verbs of the remote book; `remote_book.pyi` has their types."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Generator
from functools import partial, wraps
from inspect import isfunction, unwrap
from typing import Any

import commonbook
from commonbook.aio.threads import BookThreads
from commonbook.client import remote_book as sync


class RemoteBook:
    """A book on a server for asyncio: the verbs of `commonbook.RemoteBook` as coroutines.

    `commonbook.aio.connect` opens one. What is a property there is awaited here: `await book.default_space`.
    """

    def __init__(self, book: sync.RemoteBook, threads: BookThreads) -> None:
        """Use the verbs of a remote book, in these threads."""
        self._book = book
        self._threads = threads

    async def close(self) -> None:
        """Close the book, after the verbs that run; messages that wait in the outbox stay there."""
        if not self._threads.closed:
            await self._threads.run(self._book.close)
            self._threads.close()

    async def __aenter__(self) -> RemoteBook:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()


class Connecting:
    """A remote book that is being opened: wait for it, or use it in an `async with` statement."""

    def __init__(self, connect: Callable[[], sync.RemoteBook]) -> None:
        """Open nothing yet."""
        self._connect = connect
        self._opened: RemoteBook | None = None

    async def _open(self) -> RemoteBook:
        threads = BookThreads()
        try:
            return RemoteBook(await threads.run(self._connect), threads)
        except BaseException:
            threads.close()
            raise

    def __await__(self) -> Generator[Any, None, RemoteBook]:
        return self._open().__await__()

    async def __aenter__(self) -> RemoteBook:
        self._opened = await self._open()
        return self._opened

    async def __aexit__(self, *_error: object) -> None:
        if self._opened is not None:
            await self._opened.close()


def connect(
    url: str | None = None,
    key: str | None = None,
    *,
    space: str | None = None,
    outbox: str | os.PathLike[str] | None = None,
    allow_http: bool = False,
    answer_seconds: float = 15.0,
    patience_seconds: float = 30.0,
) -> Connecting:
    """Return a remote book to wait for, or to use in an `async with` statement; see `commonbook.connect`."""
    return Connecting(
        partial(
            commonbook.connect,
            url,
            key,
            space=space,
            outbox=outbox,
            allow_http=allow_http,
            answer_seconds=answer_seconds,
            patience_seconds=patience_seconds,
        )
    )


def _coroutine(verb: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(verb)
    async def method(self: RemoteBook, *args: object, **options: object) -> object:
        return await self._threads.run(partial(verb, self._book, *args, **options))

    return method


def _property(verb: property) -> property:
    def read(self: RemoteBook) -> Coroutine[Any, Any, object]:
        return self._threads.run(partial(verb.fget, self._book))  # type: ignore[arg-type] # every property is read

    return property(read, doc=verb.__doc__)


def _add_verbs() -> None:
    """Give the class a method for each public verb, and an awaitable property for each property."""
    for name in dir(sync.RemoteBook):
        verb = getattr(sync.RemoteBook, name)
        if name.startswith("_") or name == "close":
            continue
        if isinstance(verb, property):
            setattr(RemoteBook, name, _property(verb))
        elif isfunction(unwrap(verb)):
            setattr(RemoteBook, name, _coroutine(verb))


_add_verbs()

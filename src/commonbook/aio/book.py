"""The class `Book` for asyncio, made from the verbs of `commonbook.Book`; `book.pyi` has the types of its methods."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from functools import partial, wraps
from inspect import isfunction, unwrap
from typing import Any

import commonbook
from commonbook.aio.threads import CONTEXT_MANAGERS, BookThreads
from commonbook.book import book as sync


class Book:
    """A book of memories for asyncio: the verbs of `commonbook.Book` as coroutines. `commonbook.aio.open` opens one.

    `watching` and `working` are asynchronous context managers. Properties are read without waiting.
    """

    def __init__(self, book: sync.Book, threads: BookThreads, *, is_view: bool = False) -> None:
        """Use the verbs of a book, in these threads; a view does not close them."""
        self._book = book
        self._threads = threads
        self._is_view = is_view

    async def close(self) -> None:
        """Close the book, after the verbs that run; a view of another principal closes nothing."""
        if not self._is_view and not self._threads.closed:
            await self._threads.run(self._book.close)
            self._threads.close()

    async def __aenter__(self) -> Book:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()


class Opening:
    """A book that is being opened: wait for it, or use it in an `async with` statement."""

    def __init__(self, home: str | os.PathLike[str] | None, space: str | None, *, create: bool) -> None:
        """Open nothing yet."""
        self._home = home
        self._space = space
        self._create = create
        self._opened: Book | None = None

    async def _open(self) -> Book:
        threads = BookThreads()
        try:
            return Book(await threads.run(self._open_book), threads)
        except BaseException:
            threads.close()
            raise

    def _open_book(self) -> sync.Book:
        return commonbook.open(self._home, space=self._space, create=self._create)

    def __await__(self) -> Generator[Any, None, Book]:
        return self._open().__await__()

    async def __aenter__(self) -> Book:
        self._opened = await self._open()
        return self._opened

    async def __aexit__(self, *_error: object) -> None:
        if self._opened is not None:
            await self._opened.close()


def open(  # noqa: A001 - as in the package
    home: str | os.PathLike[str] | None = None, *, space: str | None = None, create: bool = False
) -> Opening:
    """Return a book to wait for, or to use in an `async with` statement; it is opened as by `commonbook.open`."""
    return Opening(home, space, create=create)


def _coroutine(verb: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(verb)
    async def method(self: Book, *args: object, **options: object) -> object:
        result = await self._threads.run(partial(verb, self._book, *args, **options))
        return Book(result, self._threads, is_view=True) if isinstance(result, sync.Book) else result

    return method


def _context_manager(verb: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(verb)
    def method(self: Book, *args: object, **options: object) -> object:
        return self._threads.entered(verb(self._book, *args, **options))

    return method


def _property(verb: property) -> property:
    return property(lambda self: verb.fget(self._book), doc=verb.__doc__)


def _add_verbs() -> None:
    """Give the class a method for each public verb, and a property for each property."""
    for name in dir(sync.Book):
        verb = getattr(sync.Book, name)
        if name.startswith("_") or name == "close":
            continue
        if isinstance(verb, property):
            setattr(Book, name, _property(verb))
        elif isfunction(unwrap(verb)):
            setattr(Book, name, (_context_manager if name in CONTEXT_MANAGERS else _coroutine)(verb))


_add_verbs()

"""The books for asyncio, made from the verbs of `commonbook.Book` and `RemoteBook`; `book.pyi` has their types."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Generator
from functools import partial, wraps
from typing import Any, Generic, TypeVar

import commonbook
from commonbook.aio.threads import CONTEXT_MANAGERS, BookThreads
from commonbook.remote import remote_book
from commonbook.service import book as book_here


class AsyncBook:
    """A book that is used in threads: the common part of both books."""

    def __init__(self, book: Any, threads: BookThreads, *, is_view: bool = False) -> None:  # noqa: ANN401 - either book
        """Use the verbs of a book, in these threads; a view does not close them."""
        self._book = book
        self._threads = threads
        self._is_view = is_view

    async def close(self) -> None:
        """Close the book, after the verbs that run; a view of another principal closes nothing."""
        if not self._is_view and not self._threads.closed:
            await self._threads.run(self._book.close)
            self._threads.close()

    async def __aenter__(self) -> AsyncBook:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()


class Book(AsyncBook):
    """A book of memories for asyncio: the verbs of `commonbook.Book` as coroutines. `commonbook.aio.open` opens one.

    `watching` and `working` are asynchronous context managers. Properties are read without waiting.
    """


class RemoteBook(AsyncBook):
    """A book on a server for asyncio: the verbs of `commonbook.RemoteBook` as coroutines.

    `commonbook.aio.connect` opens one. What is a property there is awaited here: `await book.default_space`.
    """


_Opened = TypeVar("_Opened", bound=AsyncBook)


class Opening(Generic[_Opened]):
    """A book that is being opened: wait for it, or use it in an `async with` statement."""

    def __init__(self, open_book: Callable[[], object], kind: type[_Opened]) -> None:
        """Open nothing yet."""
        self._open_book, self._kind = open_book, kind
        self._opened: _Opened | None = None

    async def _open(self) -> _Opened:
        threads = BookThreads()
        try:
            return self._kind(await threads.run(self._open_book), threads)
        except BaseException:
            threads.close()
            raise

    def __await__(self) -> Generator[Any, None, _Opened]:
        return self._open().__await__()

    async def __aenter__(self) -> _Opened:
        self._opened = await self._open()
        return self._opened

    async def __aexit__(self, *_error: object) -> None:
        if self._opened is not None:
            await self._opened.close()


def open(  # noqa: A001 - as in the package
    home: str | os.PathLike[str] | None = None, *, space: str | None = None, create: bool = False
) -> Opening[Book]:
    """Return a book to wait for, or to use in an `async with` statement; it is opened as by `commonbook.open`."""
    return Opening(partial(commonbook.open, home, space=space, create=create), Book)


@wraps(commonbook.connect)
def connect(*args: Any, **options: Any) -> Opening[RemoteBook]:  # noqa: ANN401, D103 - as `commonbook.connect`
    return Opening(partial(commonbook.connect, *args, **options), RemoteBook)


def _coroutine(name: str, verb: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(verb)
    async def method(self: AsyncBook, *args: object, **options: object) -> object:
        result = await self._threads.run(partial(getattr(self._book, name), *args, **options))
        return Book(result, self._threads, is_view=True) if isinstance(result, book_here.Book) else result

    return method


def _context_manager(name: str, verb: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(verb)
    def method(self: AsyncBook, *args: object, **options: object) -> object:
        return self._threads.entered(getattr(self._book, name)(*args, **options))

    return method


def _property(name: str, *, is_awaited: bool) -> property:
    def read(self: AsyncBook) -> object:
        return self._threads.run(partial(getattr, self._book, name)) if is_awaited else getattr(self._book, name)

    return property(read)


def _add_verbs(kind: type[AsyncBook], book: type, *, awaits_properties: bool) -> None:
    """Give a class a method for each public verb of a book, and a property for each property."""
    for name in dir(book):
        if name.startswith("_") or name == "close":
            continue
        verb = getattr(book, name)
        if isinstance(verb, property):
            member: Any = _property(name, is_awaited=awaits_properties)
        else:
            member = (_context_manager if name in CONTEXT_MANAGERS else _coroutine)(name, verb)
        member.__doc__ = inspect.getdoc(verb)
        setattr(kind, name, member)


_add_verbs(Book, book_here.Book, awaits_properties=False)
_add_verbs(RemoteBook, remote_book.RemoteBook, awaits_properties=True)

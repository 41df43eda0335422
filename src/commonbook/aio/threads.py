"""Runs the verbs of a book in threads, for an event loop to wait for."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, asynccontextmanager
from functools import partial
from typing import Final, TypeVar

from commonbook.errors import HomeError

_MAX_THREADS: Final = 16
"""So many verbs of a book run at once; further ones wait in order. Concurrent appends share their transactions."""

CONTEXT_MANAGERS: Final = ("watching", "working")
"""The verbs that are asynchronous context managers; all others are coroutines."""

_Result = TypeVar("_Result")


class BookThreads:
    """The threads of one book and its views; they are started when they are needed."""

    def __init__(self) -> None:
        """Start no thread yet."""
        self._executor = ThreadPoolExecutor(_MAX_THREADS, thread_name_prefix="commonbook-aio")
        self.closed = False

    async def run(self, work: Callable[[], _Result]) -> _Result:
        """Run a function in a thread, with the context variables of the caller, and return its result."""
        if self.closed:
            raise HomeError("the book is closed", fix="open it again")
        context = contextvars.copy_context()
        return await asyncio.get_running_loop().run_in_executor(self._executor, partial(context.run, work))

    @asynccontextmanager
    async def entered(self, manager: AbstractContextManager[None]) -> AsyncIterator[None]:
        """Enter and leave a context manager in threads."""
        await self.run(manager.__enter__)
        try:
            yield
        except BaseException as error:
            if not await self.run(partial(manager.__exit__, type(error), error, error.__traceback__)):
                raise
        else:
            await self.run(partial(manager.__exit__, None, None, None))

    def close(self) -> None:
        """Take no further work; threads end when theirs is done."""
        self.closed = True
        self._executor.shutdown(wait=False)

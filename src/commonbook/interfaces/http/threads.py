"""The configuration of the HTTP server, and the threads in which requests use the book."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import NamedTuple, TypeVar


class ServerConfig(NamedTuple):
    """The configuration of an app.

    `threads` is how many requests use the book at the same time; further ones wait. `max_archive_bytes` is
    the size of an archive that is imported.
    """

    threads: int = 64
    max_archive_bytes: int = 1024 * 1024 * 1024


_Result = TypeVar("_Result")


class Threads:
    """A limited number of threads; further work waits until one of them is free."""

    def __init__(self, config: ServerConfig) -> None:
        """Start no thread yet."""
        self._executor = ThreadPoolExecutor(config.threads, thread_name_prefix="request")

    async def run(self, work: Callable[[], _Result]) -> _Result:
        """Run a function in a thread, with the context variables of the caller, and return its result.

        A caller that is cancelled waits for the end of the function: what it uses must not be closed under it.
        """
        future = asyncio.get_running_loop().run_in_executor(self._executor, partial(copy_context().run, work))
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            await asyncio.wait([future])
            raise

"""The threads of requests: results and exceptions come back, and few threads are used."""

from __future__ import annotations

import asyncio
import threading
import time
from contextvars import ContextVar
from functools import partial

import pytest

from commonbook.interfaces.http.threads import ServerConfig, Threads

DEADLINE = 60.0


def fail(error: BaseException) -> None:
    raise error


def test_results_and_exceptions_come_back_in_the_loop_of_the_caller():
    user = ContextVar("user", default="nobody")

    async def calls() -> list[object]:
        pool = Threads(ServerConfig())
        user.set("ana")
        found: list[object] = [await pool.run(lambda: 6 * 7), await pool.run(user.get)]
        for error in (KeyError("x"), SystemExit(3)):
            with pytest.raises(type(error)):
                await pool.run(partial(fail, error))
        return found

    assert asyncio.run(calls()) == [42, "ana"]


def test_many_calls_at_once_use_no_more_threads_than_allowed():
    async def calls() -> tuple[set[int], int]:
        pool, running, most, lock = Threads(ServerConfig(threads=3)), 0, 0, threading.Lock()

        def work() -> int:
            nonlocal running, most
            with lock:
                running += 1
                most = max(most, running)
            time.sleep(0.005)
            with lock:
                running -= 1
            return threading.get_ident()

        async with asyncio.timeout(DEADLINE):
            together = await asyncio.gather(*(pool.run(work) for _ in range(40)))
        return set(together), most

    together, most = asyncio.run(calls())
    assert len(together) == most == 3


def test_a_caller_that_is_cancelled_waits_for_the_end_of_its_function():
    async def calls() -> bool:
        pool, begun, may_end = Threads(ServerConfig()), threading.Event(), threading.Event()

        def work() -> None:
            begun.set()
            assert may_end.wait(DEADLINE)

        task = asyncio.create_task(pool.run(work))
        while not begun.is_set():
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.sleep(0.05)
        was_over = task.done()
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            async with asyncio.timeout(DEADLINE):
                await task
        return was_over

    assert asyncio.run(calls()) is False

"""Logs of the server: they have neither memory text nor keys, also where an exception has them."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

SECRET = "the billing password is swordfish"

FAULTS = """
import asyncio, gc, logging, sys, threading
from commonbook.errors import BadInput
from commonbook.interfaces.http.guards.access_log import log_fault
from commonbook.interfaces.http.serving import server

SECRET = sys.argv[1]
server.write_to_stderr(with_requests=True)

class Odd(Exception):
    pass

def fail():
    try:
        raise KeyError(SECRET)
    except KeyError as error:
        raise Odd(f"{SECRET} was not found") from error

def caught(log):
    try:
        fail()
    except Odd as error:
        error.add_note(SECRET)
        log(error)

class Dying:
    def __del__(self):
        fail()

async def forget_a_task():
    asyncio.get_running_loop().call_soon(fail)
    task = asyncio.create_task(failing(), name=SECRET)
    await asyncio.sleep(0)
    del task
    gc.collect()

async def failing():
    fail()

caught(lambda error: log_fault("request-1", error))
caught(lambda error: logging.getLogger("commonbook.server").error("by ours", exc_info=error))
caught(lambda error: logging.getLogger("uvicorn.error").error("by uvicorn", exc_info=True, stack_info=True))
caught(lambda error: logging.getLogger("mcp.server").warning(f"by another: {error}", exc_info=error))
caught(lambda error: logging.getLogger("mcp.server").error("by another: %s", SECRET))
thread = threading.Thread(target=fail, name=SECRET)
thread.start()
thread.join()
Dying()
asyncio.run(forget_a_task())
print("done")
"""


@pytest.mark.promise("logs.faults")
def test_no_text_of_an_exception_is_logged_wherever_it_ends():
    done = subprocess.run(
        [sys.executable, "-c", FAULTS, SECRET], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout == "done\n"
    assert SECRET not in done.stderr
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert [line["event"].partition(" at ")[0] for line in lines[:7]] == [
        "fault", "by ours", "by uvicorn", "a message of mcp.server", "a message of mcp.server",
        "a thread ended by a fault", "a fault was ignored",
    ]  # fmt: skip
    assert {line["event"].partition(" at ")[0] for line in lines[7:]} == {"a message of asyncio"}
    assert len(lines) == 9
    # Every one but the plain message says what failed, and where.
    assert [line.get("error") for line in lines] == ["Odd"] * 4 + [None] + ["Odd"] * 4
    assert all(line["places"] for line in lines if "error" in line)

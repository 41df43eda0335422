"""The lock between processes: it is fair, ends with its holder, has a time-out, and names its holder."""

from __future__ import annotations

import os
import re
import select
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from commonbook.engines.process import FairLock
from commonbook.errors import Busy

pytestmark = pytest.mark.promise("processes.waits")

HOLD = """
import sys, time
from commonbook.engines.process import FairLock
with FairLock(sys.argv[1]).hold(60):
    print("held", flush=True)
    sys.stdin.read()
"""
WAIT = HOLD.replace("    sys.stdin.read()\n", "")


def start(program: str, path: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def holder(path: Path) -> subprocess.Popen[str]:
    child = start(HOLD, path)
    assert child.stdout is not None
    assert child.stdout.readline() == "held\n"
    return child


def test_waiting_ends_in_busy_which_names_the_holder(tmp_path: Path):
    with holder(tmp_path / "lock") as child:
        lock = FairLock(str(tmp_path / "lock"))
        start = time.monotonic()
        with pytest.raises(Busy, match=f"process {child.pid}") as caught, lock.hold(0.3):
            pass
        assert 0.25 < time.monotonic() - start < 30
        assert caught.value.fix
        # One who gave up does not keep the lock from others, nor hold it when its turn comes at last.
        child.communicate()
    with lock.hold(60), pytest.raises(Busy), FairLock(str(tmp_path / "lock")).hold(0.1):
        pass
    with FairLock(str(tmp_path / "lock")).hold(60):
        pass
    lock.close()


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path):
    with holder(tmp_path / "lock") as child:
        child.kill()
        child.wait()
        with FairLock(str(tmp_path / "lock")).hold(60):
            pass


def test_threads_exclude_each_other_too(tmp_path: Path):
    lock = FairLock(str(tmp_path / "lock"))
    inside: list[int] = []

    def enter() -> None:
        for _ in range(50):
            with lock.hold(60):
                inside.append(1)
                assert len(inside) == 1
                inside.pop()

    threads = [threading.Thread(target=enter) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not inside


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells who waits for a lock")
def test_nobody_who_waits_is_passed_over_by_one_who_comes_again_and_again(tmp_path: Path):
    lock = FairLock(str(tmp_path / "lock"))
    for _ in range(3):
        with lock.hold(60):
            waiter = start(WAIT, tmp_path / "lock")
            _wait_until_queued(waiter.pid)
        with waiter, lock.hold(60):
            assert waiter.stdout
            assert select.select([waiter.stdout], [], [], 0)[0], "it was passed over"
    lock.close()


def _wait_until_queued(pid: int) -> None:
    """Wait until a process waits for a lock, as the kernel shows it."""
    until = time.monotonic() + 60
    waits = re.compile(rf"-> FLOCK +ADVISORY +WRITE +{pid} ")
    while not waits.search(Path("/proc/locks").read_text()):
        assert time.monotonic() < until, "it does not wait"
        time.sleep(0.001)


def test_a_forked_child_does_not_share_its_parents_lock(tmp_path: Path):
    lock = FairLock(str(tmp_path / "lock"))
    with lock.hold(60):
        child = os.fork()
        if child == 0:
            fresh = FairLock(str(tmp_path / "lock"))
            try:
                with fresh.hold(0.2):
                    os._exit(1)
            except Busy:
                os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

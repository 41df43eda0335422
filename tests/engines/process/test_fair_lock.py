"""The lock between processes: it is fair, ends with its holder, has a time-out, and names its holder."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from commonbook.engines.process.fair_lock import FairLock
from commonbook.errors import Busy

HOLD = """
import sys, time
from commonbook.engines.process.fair_lock import FairLock
with FairLock(sys.argv[1]).hold(5):
    print("held", flush=True)
    sys.stdin.read()
"""


def holder(path: Path) -> subprocess.Popen[str]:
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
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
    with lock.hold(5), pytest.raises(Busy), FairLock(str(tmp_path / "lock")).hold(0.1):
        pass
    with FairLock(str(tmp_path / "lock")).hold(5):
        pass
    lock.close()


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path):
    with holder(tmp_path / "lock") as child:
        child.kill()
        child.wait()
        with FairLock(str(tmp_path / "lock")).hold(5):
            pass


def test_threads_exclude_each_other_too(tmp_path: Path):
    lock = FairLock(str(tmp_path / "lock"))
    inside: list[int] = []

    def enter() -> None:
        for _ in range(50):
            with lock.hold(10):
                inside.append(1)
                assert len(inside) == 1
                inside.pop()

    threads = [threading.Thread(target=enter) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not inside


def _greedy(path: str, seconds: float, turns, together) -> None:
    together.wait(60)
    lock, end, count = FairLock(path), time.monotonic() + seconds, 0
    while time.monotonic() < end:
        with lock.hold(10):
            time.sleep(0.002)
        count += 1
    turns.put(count)


@pytest.mark.slow
def test_nobody_who_waits_is_passed_over_by_one_who_comes_again_and_again(tmp_path: Path):
    context = multiprocessing.get_context("spawn")
    turns, together = context.Queue(), context.Barrier(3)
    greedy = [context.Process(target=_greedy, args=(str(tmp_path / "lock"), 1.5, turns, together)) for _ in range(3)]
    for process in greedy:
        process.start()
    counts = [turns.get(timeout=60) for _ in greedy]
    for process in greedy:
        process.join()
    assert min(counts) > 0
    assert max(counts) < 4 * min(counts), counts


def test_a_forked_child_does_not_share_its_parents_lock(tmp_path: Path):
    lock = FairLock(str(tmp_path / "lock"))
    with lock.hold(5):
        child = os.fork()
        if child == 0:
            fresh = FairLock(str(tmp_path / "lock"))
            try:
                with fresh.hold(0.2):
                    os._exit(1)
            except Busy:
                os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

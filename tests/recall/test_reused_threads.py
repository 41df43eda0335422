"""Threads that run one job after the other."""

from __future__ import annotations

import gc
import os
import threading
import time
import weakref

import pytest

from commonbook.runtime import reused_threads as module
from commonbook.runtime.reused_threads import IDLE_NAME, ReusedThreads
from tests.support.running_threads import wait_for_threads

NAME = "a-job-of-this-test"


@pytest.fixture
def threads(monkeypatch):
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.5)
    return ReusedThreads()


def run(threads, job=lambda: None):
    """Run a job to its end, and return its thread."""
    ran = []

    def noted():
        ran.append(threading.current_thread())
        job()

    threads.start(noted, NAME)
    until(lambda: ran)
    wait_for_threads((NAME,))
    until(lambda: threads._idle or not ran[0].is_alive())
    return ran[0]


def until(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


def test_jobs_that_come_one_after_the_other_run_in_one_thread(threads):
    first = run(threads)
    assert all(run(threads) is first for _ in range(20))
    assert first.name == IDLE_NAME


def test_jobs_that_come_together_run_together(threads):
    together = threading.Barrier(5)
    for _ in range(4):
        threads.start(lambda: together.wait(60), NAME)
    together.wait(60)
    wait_for_threads((NAME,))


def test_a_thread_without_work_ends(threads):
    thread = run(threads)
    thread.join(60)
    assert not thread.is_alive()
    assert run(threads) is not thread


def test_a_job_that_fails_ends_its_thread_alone(threads, monkeypatch):
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    failed = run(threads, lambda: 1 / 0)
    failed.join(60)
    assert run(threads) is not failed


def test_an_idle_thread_keeps_nothing_of_its_last_job(threads):
    class Kept:
        pass

    kept = Kept()
    alive = weakref.ref(kept)
    threads.start(lambda kept=kept: None, NAME)
    del kept
    until(lambda: threads._idle)
    gc.collect()
    assert alive() is None


def test_a_forked_child_uses_no_thread_of_its_parent(threads):
    run(threads)
    child = os.fork()
    if child == 0:  # pragma: no cover - another process
        done = threading.Event()
        threads.start(done.set, NAME)
        os._exit(0 if done.wait(30) else 1)
    assert os.waitpid(child, 0)[1] == 0

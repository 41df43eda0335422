"""Turns of recalls: of many threads, one ranks at a time."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import commonbook
from commonbook.subjects.recall import phrases


def test_of_many_threads_one_ranks_at_a_time(home: Path, monkeypatch):
    search, counting, inside, most = phrases.search, threading.Lock(), 0, 0

    def counted(*arguments: Any) -> Any:
        nonlocal inside, most
        with counting:
            inside += 1
            most = max(most, inside)
        threading.Event().wait(0.01)
        try:
            return search(*arguments)
        finally:
            with counting:
                inside -= 1

    monkeypatch.setattr(phrases, "search", counted)
    with commonbook.open(home, create=True) as book, ThreadPoolExecutor(12) as pool:
        book.remember("The walrus is fed")
        answers = list(pool.map(lambda _: book.recall("walrus"), range(24)))
    assert all(len(answer.hits) == 1 for answer in answers)
    assert most == 1


def test_a_recall_that_fails_gives_its_turn_back(home: Path, monkeypatch):
    with commonbook.open(home, create=True) as book:
        book.remember("The walrus is fed")
        with monkeypatch.context() as failing:
            failing.setattr(phrases, "search", lambda *_: 1 / 0)
            for _ in range(4):
                try:
                    book.recall("walrus")
                except ZeroDivisionError:
                    continue
        assert book.recall("walrus").hits

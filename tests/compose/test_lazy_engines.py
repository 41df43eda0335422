"""Tests of the lazy proxies: when they make the object that they stand in for, and how often."""

from __future__ import annotations

import threading
import time

from commonbook.compose.lazy_engines import Lazy


class Engine:
    """An engine with two methods and a value, all of which give away the instance."""

    def __init__(self) -> None:
        time.sleep(0.01)
        self.value = self

    def first(self) -> Engine:
        return self

    def second(self) -> Engine:
        return self


def test_nothing_is_made_before_the_first_access():
    made: list[Engine] = []

    def make() -> Engine:
        made.append(Engine())
        return made[-1]

    engine = Lazy(make)
    assert made == []
    assert engine.first() is made[0]


def test_all_attributes_come_from_one_instance():
    engine = Lazy(Engine)
    assert engine.first() is engine.second() is engine.value


def test_threads_that_come_first_at_once_get_one_instance():
    engine = Lazy(Engine)
    instances: list[Engine] = []
    names = ["first", "second"] * 4
    threads = [threading.Thread(target=lambda name=name: instances.append(getattr(engine, name)())) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(instances) == len(names)
    assert len(set(map(id, instances))) == 1

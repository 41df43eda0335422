"""Tests of lazy modules: when they are imported, and whose attributes they have then."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

from commonbook.runtime.lazy_modules import LazyModule


@pytest.fixture
def name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module that nobody has imported."""
    monkeypatch.syspath_prepend(str(tmp_path))
    name = f"lazy_{tmp_path.name}".replace("-", "_")
    (tmp_path / f"{name}.py").write_text("value = 1\n\ndef double():\n    return 2 * value\n")
    return name


def test_nothing_is_imported_before_the_first_access(name: str):
    module = LazyModule(name)
    assert name not in sys.modules
    assert module.value == 1
    assert name in sys.modules


def test_an_attribute_that_is_set_later_is_seen(name: str, monkeypatch: pytest.MonkeyPatch):
    module = LazyModule(name)
    assert module.double() == 2
    monkeypatch.setattr(sys.modules[name], "value", 4)
    assert (module.value, module.double()) == (4, 8)


def test_an_attribute_that_the_module_has_not_is_its_error(name: str):
    module = LazyModule(name)
    for _ in range(2):
        with pytest.raises(AttributeError, match=f"module '{name}' has no attribute 'missing'"):
            _ = module.missing


def test_threads_that_come_first_at_once_get_one_module(name: str):
    module = LazyModule(name)
    start, functions = threading.Barrier(8), []

    def ask() -> None:
        start.wait()
        functions.append(module.double)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert functions == [sys.modules[name].double] * 8

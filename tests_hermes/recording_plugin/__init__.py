"""A plugin folder of Hermes: `register_memory_provider` with a provider that notes each call in a file.

COMMONBOOK_RECORD   the file: a JSON line for each call, and one when it returns
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from commonbook.adapters.hermes.provider import CommonbookMemoryProvider

CALLS = (
    "initialize",
    "on_turn_start",
    "prefetch",
    "queue_prefetch",
    "sync_turn",
    "on_session_end",
    "on_pre_compress",
    "on_session_switch",
    "on_delegation",
    "on_memory_write",
    "shutdown",
)
_lock = threading.Lock()


def _note(**entry: Any) -> None:
    with _lock, Path(os.environ["COMMONBOOK_RECORD"]).open("a", encoding="utf-8") as out:
        out.write(json.dumps(entry, ensure_ascii=False, default=str) + "\n")


_numbers = itertools.count(1)


class RecordingProvider(CommonbookMemoryProvider):
    """The provider, with notes."""

    def __init__(self) -> None:
        super().__init__()
        self.number = f"{os.getpid()}.{next(_numbers)}"


def _noted(name: str) -> Callable[..., Any]:
    plain = getattr(CommonbookMemoryProvider, name)

    @functools.wraps(plain)
    def call(self: RecordingProvider, *args: Any, **kwargs: Any) -> Any:
        given = {key: value for key, value in kwargs.items() if not callable(value)}
        _note(call=name, provider=self.number, args=args, kwargs=given)
        try:
            return plain(self, *args, **kwargs)
        except BaseException as error:
            _note(raised=name, provider=self.number, error=repr(error))
            raise
        finally:
            _note(returned=name, provider=self.number)

    return call


for _name in CALLS:
    setattr(RecordingProvider, _name, _noted(_name))


def register(ctx: Any) -> None:
    ctx.register_memory_provider(RecordingProvider())

"""`worker`: settles what is due, once or until it is interrupted."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Final, Self

from commonbook.errors import Busy, DiskFull
from commonbook.interfaces import json_values
from commonbook.interfaces.cli.output import sessions
from commonbook.model.session import WorkReport

if TYPE_CHECKING:
    from commonbook.interfaces.cli.call import Call, Command


_TURN: Final = 1.0
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


def work(call: Call) -> int:
    """Do what is due now, or go on doing so; say what became of each session."""
    if call.args.once:
        return _once(call)
    with _Ending() as ending:
        retry = call.args.retry
        while not ending.asked:
            if not _turn(call, retry=retry):
                ending.rest(call.args.every)
            retry = False
    return 0


def _once(call: Call) -> int:
    failed: list[str] = []

    def noticed(worked: WorkReport) -> None:
        _tell(call, worked)
        if worked.error:
            failed.append(worked.settled.session)

    if not call.book.work(retry=call.args.retry, noticed=noticed) and not call.args.json:
        call.out.note("nothing is due")
    return 1 if failed else 0


def _turn(call: Call, *, retry: bool) -> int:
    """Work for a moment; what cannot be done while the home is busy or full stays due."""
    try:
        return call.book.work(seconds=_TURN, retry=retry, noticed=lambda worked: _tell(call, worked))
    except (Busy, DiskFull) as error:
        call.out.note(f"{error.message}; {error.fix}" if error.fix else error.message)
        return 0


def _tell(call: Call, worked: WorkReport) -> None:
    call.tell(json_values.worked(worked), lambda out: sessions.worked(out, worked))
    call.flush()


class _Ending:
    """Ends a worker that is interrupted: at once while it rests or when asked twice, else after what it is doing."""

    def __init__(self) -> None:
        self.asked = False
        self._resting = False

    def rest(self, seconds: float) -> None:
        """Do nothing for a while, unless the worker is to end."""
        self._resting = True
        if not self.asked:
            time.sleep(seconds)
        self._resting = False

    def __enter__(self) -> Self:
        self._before = [signal.signal(number, self._interrupted) for number in _SIGNALS]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        for number, handler in zip(_SIGNALS, self._before, strict=True):
            signal.signal(number, handler)
        return kind is _Now

    def _interrupted(self, _number: int, _frame: FrameType | None) -> None:
        twice, self.asked = self.asked, True
        if twice:
            raise KeyboardInterrupt
        if self._resting:
            raise _Now


class _Now(Exception):
    """The rest is over."""


COMMANDS: Final[Mapping[str, Command]] = {"worker": work}

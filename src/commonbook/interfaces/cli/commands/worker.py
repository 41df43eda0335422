"""`worker`: run the jobs that are due, once or until it is interrupted."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Final, Self

from commonbook.errors import Busy, DiskFull
from commonbook.interfaces import json_values
from commonbook.interfaces.cli.output import sessions

if TYPE_CHECKING:
    from commonbook.interfaces.cli.call import Call, Command
    from commonbook.model.session import WorkReport


_TURN_SECONDS: Final = 1.0
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


def run_worker(call: Call) -> int:
    """Run the jobs that are due, once or repeatedly, and print the result of each."""
    if call.args.once:
        return _once(call)
    with _Shutdown() as shutdown:
        retry = call.args.retry
        while not shutdown.requested:
            if not _turn(call, retry=retry):
                shutdown.sleep(call.args.every)
            retry = False
    return 0


def _once(call: Call) -> int:
    failed: list[str] = []

    def noticed(report: WorkReport) -> None:
        _print_report(call, report)
        if report.error:
            failed.append(report.settled.session)

    if not call.book.work(retry=call.args.retry, noticed=noticed) and not call.args.json:
        call.out.note("nothing is due")
    return 1 if failed else 0


def _turn(call: Call, *, retry: bool) -> int:
    """Work for a second; jobs that fail because the home is busy or the disk is full stay due."""
    try:
        return call.book.work(
            seconds=_TURN_SECONDS, retry=retry, index=True, noticed=lambda report: _print_report(call, report)
        )
    except (Busy, DiskFull) as error:
        call.out.note(f"{error.message}; {error.fix}" if error.fix else error.message)
        return 0


def _print_report(call: Call, report: WorkReport) -> None:
    call.print_answer(json_values.work_report_json(report), lambda out: sessions.show_work_report(out, report))
    call.flush()


class _Shutdown:
    """Signal handler of the worker.

    The first signal ends it after the current turn of work, or at once while it sleeps. A second signal ends
    it at once.
    """

    def __init__(self) -> None:
        self.requested = False
        self._sleeping = False

    def sleep(self, seconds: float) -> None:
        """Sleep, unless the worker is to end."""
        self._sleeping = True
        if not self.requested:
            time.sleep(seconds)
        self._sleeping = False

    def __enter__(self) -> Self:
        self._before = [signal.signal(number, self._interrupted) for number in _SIGNALS]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        for number, handler in zip(_SIGNALS, self._before, strict=True):
            signal.signal(number, handler)
        return kind is _WakeUp

    def _interrupted(self, _number: int, _frame: FrameType | None) -> None:
        twice, self.requested = self.requested, True
        if twice:
            raise KeyboardInterrupt
        if self._sleeping:
            raise _WakeUp


class _WakeUp(Exception):
    """Ends the sleep of the worker."""


COMMANDS: Final[Mapping[str, Command]] = {"worker": run_worker}

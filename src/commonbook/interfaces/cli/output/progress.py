"""Progress of long work on standard error: a bar on a terminal, lines elsewhere, nothing for short work."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID


_BAR_DELAY_SECONDS = 0.7
_LINE_INTERVAL_SECONDS = 1.0


class ProgressBar:
    """A progress callback that draws on standard error. Use it as a context manager, so that the bar is removed."""

    def __init__(self, *, bar: bool) -> None:
        """Draw a bar, or print lines."""
        self._as_bar = bar
        self._began = time.monotonic()
        self._next = self._began + _LINE_INTERVAL_SECONDS
        self._bar: Bar | None = None
        self._task: TaskID | None = None
        self._what = ""

    def __call__(self, what: str, done: int, total: int) -> None:
        """Show how many items are done; `total` is 0 if it is not known."""
        now = time.monotonic()
        if self._as_bar:
            if now >= self._began + _BAR_DELAY_SECONDS:
                self._draw(what, done, total)
        elif now >= self._next:
            self._next = now + _LINE_INTERVAL_SECONDS
            print(f"{what}: {done:,} of {total:,}" if total else f"{what}: {done:,}", file=sys.stderr, flush=True)

    def _draw(self, what: str, done: int, total: int) -> None:
        if self._bar is None:
            self._bar = _make_bar()
            self._bar.start()
        if self._task is None or what != self._what:
            if self._task is not None:
                self._bar.remove_task(self._task)
            self._task = self._bar.add_task(what, total=total or None)
            self._what = what
        self._bar.update(self._task, completed=done, total=total or None)

    def pause(self) -> None:
        """Remove the bar, for instance before an answer is printed; the next call draws it again."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = self._task = None

    def __enter__(self) -> Self:
        """Return itself; the bar is removed at the end of the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove the bar."""
        self.pause()


def _make_bar() -> Bar:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(file=sys.stderr),
        transient=True,
    )

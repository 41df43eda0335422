"""Watching a home for changes by other programs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from threading import Event

from watchfiles import Change, watch


class HomeWatcher:
    """The Watcher port on watchfiles."""

    def __init__(self, home: str) -> None:
        """Watch this folder and everything below it."""
        self._home = home

    def changes(self, stop: Event) -> Iterator[set[str]]:
        """Yield sets of paths that changed, and an empty set now and then, until stop is set."""
        changed = watch(
            self._home,
            watch_filter=self._counts,
            debounce=400,
            step=50,
            stop_event=stop,
            rust_timeout=300,
            yield_on_timeout=True,
            raise_interrupt=False,
            ignore_permission_denied=True,
        )
        for batch in changed:
            yield {os.path.relpath(path, self._home).replace(os.sep, "/") for _, path in batch}

    def _counts(self, change: Change, path: str) -> bool:
        """Leave out what is hidden, and folders that only had something put into them."""
        inside = os.path.relpath(path, self._home)
        if any(part.startswith(".") for part in inside.split(os.sep)):
            return False
        return not (change is Change.modified and os.path.isdir(path))

"""Watches a home for changes by other programs, by the file events of the operating system (watchfiles)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from threading import Event

from watchfiles import Change, watch

from commonbook.model.spaces import SPACE_FILE


class HomeWatcher:
    """The Watcher port on the package watchfiles."""

    def __init__(self, home: str) -> None:
        """Watch this folder and everything below it."""
        self._home = home

    def changes(self, stop: Event) -> Iterator[set[str]]:
        """Yield sets of changed paths, and an empty set after each time-out, until `stop` is set."""
        changed = watch(
            self._home,
            watch_filter=self._is_relevant,
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

    def _is_relevant(self, change: Change, path: str) -> bool:
        """Exclude hidden paths other than space files, and folders of which only the entries changed."""
        parts = os.path.relpath(path, self._home).split(os.sep)
        if any(part.startswith(".") for part in (parts[:-1] if parts[-1] == SPACE_FILE else parts)):
            return False
        return not (change is Change.modified and os.path.isdir(path))

"""Engines and subjects that are loaded at first use."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from commonbook.ports.engines import RecallService
from commonbook.runtime.fork_safety import renewed_in_child
from commonbook.runtime.lazy_modules import loading


class Lazy:
    """Stands in for an engine until it is first used."""

    def __init__(self, make: Callable[[], object]) -> None:
        """Make nothing yet."""
        self._make = make

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the engine has under that name
        with loading():
            found = getattr(self._make(), name)
        setattr(self, name, found) if callable(found) else None
        return found


class LazyRecall:
    """Stands in for recall until it is first used; then there is one for all threads."""

    def __init__(self, make: Callable[[], RecallService]) -> None:
        """Make nothing yet."""
        self._make = make
        self.begin_anew()
        renewed_in_child(self)

    def begin_anew(self) -> None:
        """Begin anew: in a forked child, what another thread was about to do is never done."""
        self._made: RecallService | None = None
        self._making = threading.Lock()

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever recall has under that name
        with self._making:
            if self._made is None:
                with loading():
                    self._made = self._make()
        return getattr(self._made, name)

    def close(self) -> None:
        """Close recall, if it was ever used."""
        if self._made is not None:
            self._made.close()

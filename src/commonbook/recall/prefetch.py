"""Prefetch: a recall begun before its question is asked, for one session, one generation of it, and one query.

What comes too late, or for another question, is dropped; what was handed out is not handed out again. Nothing waits
for a recall that is under way: neither a switch nor a shutdown.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from commonbook.access import permissions
from commonbook.access.scope import readable
from commonbook.errors import CommonbookError
from commonbook.model.recall import Hit, RecallResult
from commonbook.model.spaces import Actor
from commonbook.ports.database import retry_read
from commonbook.ports.engines import Engines
from commonbook.runtime.fork_safety import renewed_in_child
from commonbook.tables import memories, sessions

_AT_ONCE: Final = 8
_KEPT: Final = 256


class _Fetch(NamedTuple):
    generation: int
    query: str
    done: threading.Event
    found: list[RecallResult]


class Prefetcher:
    """Holds at most one recall for each session: the one that was asked for last."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.begin_anew()
        renewed_in_child(self)

    def begin_anew(self) -> None:
        """Have nothing under way, at first and in a forked child: the threads of the parent are not here."""
        self._guard = threading.Lock()
        self._fetches: dict[str, _Fetch] = {}
        self._room = threading.BoundedSemaphore(_AT_ONCE)

    def begin(self, session: str, generation: int, query: str, recall: Callable[[], RecallResult]) -> bool:
        """Begin a recall in the background; False if too many are under way, and this one is left out."""
        if not self._room.acquire(blocking=False):
            return False
        fetch = _Fetch(generation, query, threading.Event(), [])
        with self._guard:
            self._fetches.pop(session, None)
            while len(self._fetches) >= _KEPT:
                self._fetches.pop(next(iter(self._fetches)))
            self._fetches[session] = fetch
        try:
            threading.Thread(target=self._run, args=(fetch, recall), name="commonbook-prefetch", daemon=True).start()
        except RuntimeError:
            self._room.release()
            return False
        return True

    def _run(self, fetch: _Fetch, recall: Callable[[], RecallResult]) -> None:
        try:
            fetch.found.append(recall())
        except CommonbookError:
            # Whoever asks in time gets the error from a recall of its own.
            pass
        finally:
            self._room.release()
            fetch.done.set()

    def take(self, session: str, generation: int, query: str, *, wait: float) -> RecallResult | None:
        """Return what was fetched for just this, once, waiting at most so many seconds; None if there is nothing."""
        with self._guard:
            fetch = self._fetches.get(session)
        if fetch is None or (fetch.generation, fetch.query) != (generation, query):
            return None
        fetch.done.wait(max(0.0, wait))
        with self._guard:
            if not fetch.done.is_set() or self._fetches.get(session) is not fetch:
                return None
            del self._fetches[session]
        return fetch.found[0] if fetch.found else None

    def drop(self, session: str) -> None:
        """Forget what was fetched for a session."""
        with self._guard:
            self._fetches.pop(session, None)


@retry_read
def may_read_hits(engines: Engines, actor: Actor, hits: Sequence[Hit]) -> bool:
    """Tell whether an actor may read now where these hits come from, which it could when they were found."""
    if permissions.is_owner(actor):
        return True
    with engines.db.reading() as tx:
        allowed = readable(tx, actor)
        found = memories.spaces_of(tx, sorted({hit.memory for hit in hits if hit.memory}))
        said = {sessions.space_of(tx, id_) for id_ in {hit.session for hit in hits if hit.session and not hit.memory}}
    return allowed.keys() >= {*found.values(), *said}

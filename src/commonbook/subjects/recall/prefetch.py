"""Prefetch: a recall that runs in a background thread before its query is asked.

A prefetched result belongs to one session, one generation of that session and one query. It is handed out at most
once. A result that comes too late, or for another query, is dropped. Nothing waits for a running recall: neither a
session switch nor a shutdown.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, NamedTuple

from commonbook.core.access import permissions
from commonbook.core.tables import memories, sessions
from commonbook.errors import CommonbookError
from commonbook.ports.database import retry_read
from commonbook.ports.engines import Engines
from commonbook.runtime import reset_in_child
from commonbook.values.recall import RecallResult
from commonbook.values.spaces import Actor

_MAX_RUNNING: Final = 8
_MAX_SESSIONS: Final = 256
"""Results are kept for at most this many sessions; the oldest is dropped first."""


class _Fetch(NamedTuple):
    """A background recall; `result` is empty until it succeeds, and stays empty when it fails."""

    generation: int
    query: str
    done: threading.Event
    result: list[RecallResult]


class Prefetcher:
    """Holds at most one recall for each session: the latest one that was requested."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.reset_after_fork()
        reset_in_child(self)

    def reset_after_fork(self) -> None:
        """Reset the state, at first and in a forked child, where the threads of the parent do not run."""
        self._guard = threading.Lock()
        self._fetches: dict[tuple[Actor, str, str], _Fetch] = {}
        self._room = threading.BoundedSemaphore(_MAX_RUNNING)

    def begin(
        self, session: tuple[Actor, str, str], generation: int, query: str, recall: Callable[[], RecallResult]
    ) -> bool:
        """Start a recall in the background; return False, without starting it, if too many are running.

        A session is given by the actor that asks, the name of its space and its own id.
        """
        if not self._room.acquire(blocking=False):
            return False
        fetch = _Fetch(generation, query, threading.Event(), [])
        with self._guard:
            self._fetches.pop(session, None)
            while len(self._fetches) >= _MAX_SESSIONS:
                self._fetches.pop(next(iter(self._fetches)))
            self._fetches[session] = fetch
        try:
            # A daemon: a recall that nobody waits for does not keep the process from ending.
            threading.Thread(target=self._run, args=(fetch, recall), name="commonbook-prefetch", daemon=True).start()
        except RuntimeError:
            self._room.release()
            return False
        return True

    def _run(self, fetch: _Fetch, recall: Callable[[], RecallResult]) -> None:
        try:
            fetch.result.append(recall())
        except CommonbookError:
            # A caller that takes this fetch finds no result, recalls by itself, and gets the error from that recall.
            pass
        finally:
            self._room.release()
            fetch.done.set()

    def take(self, session: tuple[Actor, str, str], generation: int, query: str, *, wait: float) -> RecallResult | None:
        """Return the result for exactly these arguments, once, after at most `wait` seconds; None if there is none."""
        with self._guard:
            fetch = self._fetches.get(session)
        if fetch is None or (fetch.generation, fetch.query) != (generation, query):
            return None
        fetch.done.wait(max(0.0, wait))
        with self._guard:
            if not fetch.done.is_set() or self._fetches.get(session) is not fetch:
                return None
            del self._fetches[session]
        return fetch.result[0] if fetch.result else None

    def drop(self, session_id: str) -> None:
        """Discard the fetches of the sessions of this id, of every actor and in whichever space."""
        with self._guard:
            for key in [key for key in self._fetches if key[-1] == session_id]:
                del self._fetches[key]


@retry_read
def may_read_result(engines: Engines, actor: Actor, result: RecallResult) -> bool:
    """Return whether an actor may still read all that a result tells; its grants may have changed since the recall."""
    if permissions.is_owner_without_key(actor):
        return True
    hits = result.hits if result.nearest is None else (*result.hits, result.nearest)
    with engines.db.reading() as tx:
        allowed = permissions.select(tx, actor)
        copies = {place.id for hit in hits for place in hit.also_in}
        memory_spaces = memories.spaces_of(tx, sorted({hit.memory for hit in hits if hit.memory} | copies))
        messages = sessions.get_many(tx, allowed, sorted({hit.id for hit in hits if not hit.memory}))
    all_messages = all(hit.memory or hit.id in messages for hit in hits)
    of_wishes = {wish.space for wish in result.wishes} <= {space.name for space in allowed.values()}
    return all_messages and of_wishes and allowed.keys() >= set(memory_spaces.values())

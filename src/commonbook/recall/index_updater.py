"""What the index is told: memories cut into passages, and how far it has followed the book.

The index is a projection: it can be thrown away at any time. What has changed since it was last written is searched
directly (the *tail*), so that a recall need not wait for the index; when that becomes too much, whoever recalls next
writes it down for all.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from commonbook.errors import CommonbookError
from commonbook.log import chain
from commonbook.model.reports import Progress, no_progress
from commonbook.model.spaces import SpaceScope
from commonbook.ports.database import Reading, RetryTransaction
from commonbook.ports.embedding import Embedder
from commonbook.ports.engines import Engines
from commonbook.ports.index import (
    FOREVER,
    Delta,
    Index,
    IndexedPassage,
    IndexState,
    IndexView,
    IndexWriter,
    PendingDeltas,
    SpacePosition,
)
from commonbook.recall.indexed_passages import embedded_texts, indexed_message, indexed_passages, micros, valid_since
from commonbook.runtime.batches import in_batches
from commonbook.tables import changes, home, memories, sessions, spaces, supersession, vectors

INDEX_RULES: Final = "2"
"""Changes whenever the same memory gives other passages or terms than before: an index by other rules is made anew."""

NO_LIMIT: Final = sys.maxsize
"""However many have changed."""

FEW_CHANGES: Final = 128
"""So many changed memories are searched directly; more are written down first."""

_BATCH: Final = 500
_PATIENCE: Final = 60.0
_IMPATIENCE: Final = 0.5
"""So many seconds a recall waits for another process that is writing the index, before it searches without it."""

_REST: Final = 30.0


# --- following the book


class _Made(NamedTuple):
    """The passages of a memory, and of which version: its own, since when it is superseded, and what it holds."""

    version: tuple[int, int, Mapping[str, int | None]]
    entries: list[IndexedPassage]


class IndexUpdater:
    """Knows what has changed since the index was written, and writes it down when it is too much to search directly."""

    def __init__(self, index: Index, embedder: Embedder) -> None:
        """Follow with this index."""
        self._index = index
        self._embedder = embedder
        self._guard = threading.Lock()
        self._trusted: IndexState | None = None
        self._not_before = 0.0
        self._tail: PendingDeltas = ()
        self._total = -1
        self._state: tuple[IndexState | None, Mapping[str, int]] | None = None
        self._made: dict[str, _Made] = {}

    def known(self) -> IndexView | None:
        """Return the index as it was last seen, if it was believed then."""
        view = self._index.known()
        return view if view.marker is not None and view.marker == self._trusted else None

    def view(self, engines: Engines, progress: Progress = no_progress) -> IndexView:
        """Return the index as it is, with what has changed written down if that is too much to search directly."""
        view, changed = self._look(engines)
        if changed > FEW_CHANGES and self._may_write():
            try:
                self.write(engines, wait=_IMPATIENCE, progress=progress)
            except CommonbookError:
                # Where the index cannot be written, everything is searched directly: slower, and as right.
                self._not_before = time.monotonic() + _REST
            view, _ = self._look(engines)
        return view

    def _look(self, engines: Engines) -> tuple[IndexView, int]:
        """Return the index, or none if it is not to be believed, and how much has changed since."""
        view = self._index.view()
        with engines.db.reading() as tx:
            seen = self._seen(tx, view.marker)
            changed = len(changes.since(tx, seen, changes.last_numbers(tx)))
        return (view if seen or view.marker is None else self._index.nothing()), changed

    def tail(self, tx: Reading, view: IndexView, total: int, *, most: int = NO_LIMIT) -> PendingDeltas:
        """Return what has changed since this view of the index, as the book tells it, which is looked at later.

        `total` is how many changes there were in all. Overtaken if more than `most` are not written down, and could be.
        """
        with self._guard:
            known = self._state is not None and self._state[0] == view.marker
            if known and total == self._total:
                return self._kept(self._tail, (), most)
            counts = changes.last_numbers(tx)
            if self._state is not None and known:
                before, seen = self._tail, self._state[1]
            else:
                before, seen = (), self._seen(tx, view.marker)
            fresh = changes.since(tx, seen, counts)
            self._kept(before, fresh, most)
            if fresh:
                made = self._made_for(tx, fresh)
                self._made = {**self._made, **made} if before else made
                before = (*before, _layer(made, fresh))
            self._state, self._tail, self._total = (view.marker, counts), before, total
            return before

    def _kept(self, before: PendingDeltas, fresh: Sequence[str], most: int) -> PendingDeltas:
        """Return a tail that is not too long, with what is new in it; Overtaken if it is, and could be written down."""
        if len(frozenset(fresh).union(*(layer.gone for layer in before))) > most and self._may_write():
            raise RetryTransaction
        return before

    def _may_write(self) -> bool:
        return time.monotonic() > self._not_before

    def compares(self, view: IndexView) -> bool:
        """Tell whether the index's vectors are this embedder's: those of another are never compared with them."""
        return view.marker is None or view.marker.embedder == self._embedder.fingerprint

    def write(
        self,
        engines: Engines,
        *,
        anew: bool = False,
        also: Sequence[str] = (),
        wait: float = _PATIENCE,
        progress: Progress = no_progress,
    ) -> int:
        """Bring the index up to the book, under its lock; `anew`, from nothing. `also` names what else is new.

        Return how many memories were written down.
        """
        with self._index.writing(wait=wait) as writer, engines.db.reading() as tx:
            seen = {} if anew else self._seen(tx, writer.marker)
            if not seen:
                writer.clear()
            counts = changes.last_numbers(tx)
            changed = dict.fromkeys((*changes.since(tx, seen, counts), *also))
            self._write(tx, writer, tuple(changed), counts, progress)
            return len(changed)

    def _write(
        self,
        tx: Reading,
        writer: IndexWriter,
        changed: Sequence[str],
        counts: Mapping[str, int],
        progress: Progress,
    ) -> None:
        before = writer.marker
        ours = before is None or before.embedder == self._embedder.fingerprint
        for at in range(0, len(changed), _BATCH):
            progress("indexing", at, len(changed))
            some = changed[at : at + _BATCH]
            layer = _layer(self._made_for(tx, some), some)
            # Beside vectors of another embedder ours have no place: whoever re-embeds makes the index anew.
            writer.add(layer if ours else _without_vectors(layer))
        heads = chain.heads(tx)
        applied = {space: SpacePosition(number, *heads.get(space, (0, ""))) for space, number in counts.items()}
        embedder = self._embedder.fingerprint if before is None or ours else before.embedder
        marker = IndexState(home.facts(tx)["id"], INDEX_RULES, embedder, applied)
        writer.commit(marker)
        progress("indexing", len(changed), len(changed))

    def _seen(self, tx: Reading, marker: IndexState | None) -> Mapping[str, int]:
        """Return how far an index has followed each space; nowhere if it is not this book's, or of another past."""
        if marker is None:
            return {}
        if marker != self._trusted:
            if (marker.rules, marker.home) != (INDEX_RULES, home.facts(tx)["id"]):
                return {}
            if not chain.has(tx, {space: (one.seq, one.hash) for space, one in marker.applied.items() if one.seq}):
                return {}
            self._trusted = marker
        return {space: one.number for space, one in marker.applied.items()}

    def _made_for(self, tx: Reading, ids: Sequence[str]) -> dict[str, _Made]:
        """Return the passages of those of these memories that there are; what was made before is not made again."""
        made: dict[str, _Made] = {}
        every = spaces.get_all(tx)
        for some in in_batches(ids, _BATCH):
            there = memories.get_many(tx, every, some)
            live = [one for one in there.values() if one.deleted is None]
            ended = superseded_since(tx, [memory.id for memory in live])
            known = self._known(tx, (text for memory in live for text in embedded_texts(memory)))
            held = sessions.messages_of_episodes(tx, [memory.id for memory in live if memory.session])
            made |= self._messages(tx, every, [one for one in some if one not in there])
            for memory in live:
                own = held.get(memory.id, {}) if memory.session else None
                version = (memory.version, ended.get(memory.id, FOREVER), own or {})
                before = self._made.get(memory.id)
                if before is not None and before.version == version and not self._embedder.slow:
                    made[memory.id] = before
                else:
                    found = indexed_passages(
                        memory, superseded=version[1], embedder=self._embedder, known=known, held=own
                    )
                    made[memory.id] = _Made(version, found)
        return made

    def _messages(self, tx: Reading, every: SpaceScope, ids: Sequence[str]) -> dict[str, _Made]:
        """Return the passages of those of these messages that no episode holds and nobody took back."""
        found = sessions.get_many(tx, every, ids)
        open_ = [one for one in found.values() if one[0].episode is None and one[0].rewound_at is None]
        tags = sessions.tags_of(tx, sorted({message.session for message, _ in open_}))
        known = self._known(tx, (message.text for message, _ in open_))
        return {
            message.id: _Made(
                (0, 0, {}),
                [
                    indexed_message(
                        message,
                        space=space,
                        tags=tags.get(message.session, ()),
                        embedder=self._embedder,
                        known=known,
                    )
                ],
            )
            for message, space in open_
        }

    def _known(self, tx: Reading, texts: Iterable[str]) -> Mapping[str, bytes]:
        if not self._embedder.slow:
            return {}
        hashes = {vectors.hash_of(text) for text in texts}
        return vectors.get_many(tx, self._embedder.fingerprint, sorted(hashes))


def _layer(made: Mapping[str, _Made], changed: Iterable[str]) -> Delta:
    return Delta(tuple(entry for one in made.values() for entry in one.entries), frozenset(changed))


def _without_vectors(layer: Delta) -> Delta:
    return layer._replace(entries=tuple(entry._replace(vector=None) for entry in layer.entries))


def superseded_since(tx: Reading, ids: Sequence[str]) -> dict[str, int]:
    """Return since when each of these memories is superseded: since the first of what follows it holds.

    All spaces count, since the index keeps one time for a passage, whoever recalls it.
    """
    found = supersession.superseding(tx, spaces.get_all(tx), ids)
    return {id_: min(micros(valid_since(one)) for one in sources) for id_, sources in found.items()}

"""The index updater keeps the recall index, a projection of the book, up to date with the log of changes.

The index can be deleted and rebuilt at any time. Its state records the position in each space up to which it has
applied the changes. Later changes form *pending deltas*, which a recall searches directly, so that it need not wait for
the index. When they become too many, the next recall writes them into the index for all processes, unless a worker did
so before, in slices.

Decides whether an index belongs to the present state of the book; any other index is rebuilt, not searched.

Embed the passages that a slow embedder has not embedded yet, in batches and outside of transactions.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Final, NamedTuple

from commonbook.core.log import chain
from commonbook.core.tables import changes, home, memories, sessions, spaces, vectors
from commonbook.errors import CommonbookError
from commonbook.ports.database import Reading
from commonbook.ports.embedding import Embedder
from commonbook.ports.engines import Engines
from commonbook.ports.index import (
    Delta,
    Index,
    IndexedPassage,
    IndexState,
    IndexView,
    IndexWriter,
    PendingDeltas,
    SpacePosition,
)
from commonbook.runtime import in_batches
from commonbook.subjects.memories import marks
from commonbook.subjects.recall import scoring
from commonbook.subjects.recall.indexed_passages import (
    Vector,
    cut,
    embedded_texts,
    embedding_input,
    indexed_message,
    indexed_passages,
    vectors_of,
)
from commonbook.values.reports import Progress, no_progress
from commonbook.values.session import Message
from commonbook.values.spaces import SpaceScope
from commonbook.values.stored_memory import StoredMemory

INDEX_RULES: Final = "12"
"""The version of the rules by which an index is written: an index with another version is rebuilt.

It grows with the rules of passages and terms, and when indexes may lack changes, as those of version 10 may.
"""

NO_LIMIT: Final = sys.maxsize
"""Any number of changes."""

MAX_PENDING: Final = 128
"""Up to this many changed memories and messages are searched directly; more are written into the index first."""

_MAX_PENDING_CHARS: Final = 200_000
"""The changed text that is analysed for a recall alone; more is written into the index first.

Every process would analyse it again: a message of a megabyte takes half a second.
"""

_BATCH: Final = 500
_LOCK_SECONDS: Final = 60.0
_RECALL_LOCK_SECONDS: Final = 0.5
"""A recall waits this long for another process that is writing the index, and then searches without writing."""

_SLICE: Final = 500
"""The maximum of changes written at once in the background: nobody waits long for the lock of the index."""

_RETRY_SECONDS: Final = 30.0
"""After a failed write of the index, recalls do not try again for this long."""


class ViewOutdated(Exception):
    """The index was replaced since this view of it was taken, or has too many changes pending."""


class _OwnerPassages(NamedTuple):
    """The passages of one owner (a memory or a message), and the version that they were made from.

    The version is the memory's version, when it ends and is superseded, and the messages that it holds.
    """

    version: tuple[int, marks.Validity | None, Mapping[str, int | None]]
    passages: list[IndexedPassage]


class IndexUpdater:
    """Collects the changes since the last write of the index, and writes them when they are too many to search."""

    def __init__(self, index: Index, embedder: Embedder) -> None:
        """Keep this index up to date, with vectors of this embedder."""
        self._index = index
        self._embedder = embedder
        self._guard = threading.Lock()
        self._trusted: IndexState | None = None
        self._no_write_before = 0.0
        self._has_long_texts = False
        # The pending deltas, the total of changes when they were read, and the index state and positions behind them.
        self._pending: PendingDeltas = ()
        self._total = -1
        self._pending_from: tuple[IndexState | None, Mapping[str, int]] | None = None
        self._cache: dict[str, _OwnerPassages] = {}

    def last_view(self) -> IndexView | None:
        """Return the index as it was last seen, if its state was verified then."""
        view = self._index.last_view()
        return view if view.state is not None and view.state == self._trusted else None

    def view(self, engines: Engines, progress: Progress = no_progress) -> IndexView:
        """Return the current index, after writing the pending changes if they are too many to search directly.

        So are those that `pending` has refused as too long.
        """
        view, changed = self._inspect(engines)
        if (changed > MAX_PENDING or self._has_long_texts) and self._may_write():
            self._has_long_texts = False
            try:
                self.write(engines, wait=_RECALL_LOCK_SECONDS, hurried=True, progress=progress)
            except CommonbookError:
                # Without a write all pending changes are searched directly: slower, with the same result.
                self._no_write_before = time.monotonic() + _RETRY_SECONDS
            view, _ = self._inspect(engines)
        return view

    def count_pending(self, engines: Engines) -> int:
        """Return how many memories and messages changed since the index was written."""
        return self._inspect(engines)[1]

    def _inspect(self, engines: Engines) -> tuple[IndexView, int]:
        """Return the index, or an empty view if it cannot be trusted, and the number of changes since."""
        view = self._index.view()
        with engines.db.reading() as tx:
            positions = self._positions(tx, view.state)
            changed = len(changes.since(tx, positions, changes.last_numbers(tx)))
        return (view if positions or view.state is None else self._index.empty_view()), changed

    def pending(self, tx: Reading, view: IndexView, total: int, *, limit: int = NO_LIMIT) -> PendingDeltas:
        """Return the changes that this transaction sees and this view of the index does not have.

        `total` is the number of all changes in the book: while it stays the same, the last answer is still right.
        With a `limit`, raises ViewOutdated if more changes are pending or their texts are too long, and the index may
        be written.
        """
        with self._guard:
            is_same_index = self._pending_from is not None and self._pending_from[0] == view.state
            if is_same_index and total == self._total:
                return self._within_limit(self._pending, (), limit)
            last_numbers = changes.last_numbers(tx)
            if self._pending_from is not None and is_same_index:
                pending, positions = self._pending, self._pending_from[1]
            else:
                pending, positions = (), self._positions(tx, view.state)
            changed = changes.since(tx, positions, last_numbers)
            self._within_limit(pending, changed, limit)
            if changed:
                is_limited = limit != NO_LIMIT and self._may_write()
                passages = self._passages_of(tx, changed, max_chars=_MAX_PENDING_CHARS if is_limited else NO_LIMIT)
                self._cache = {**self._cache, **passages} if pending else passages
                pending = (*pending, _delta(passages, changed))
            self._pending_from, self._pending, self._total = (view.state, last_numbers), pending, total
            return pending

    def _within_limit(self, pending: PendingDeltas, changed: Sequence[str], limit: int) -> PendingDeltas:
        """Return the pending deltas; ViewOutdated if they are too many with these changes, and may be written."""
        if len(frozenset(changed).union(*(delta.replaced_owners for delta in pending))) > limit and self._may_write():
            raise ViewOutdated
        return pending

    def _may_write(self) -> bool:
        return time.monotonic() > self._no_write_before

    def has_own_vectors(self, view: IndexView) -> bool:
        """Return whether the index's vectors are this embedder's: vectors of two embedders are never compared."""
        return view.state is None or view.state.embedder == self._embedder.fingerprint

    def write(
        self,
        engines: Engines,
        *,
        anew: bool = False,
        also: Sequence[str] = (),
        wait: float = _LOCK_SECONDS,
        hurried: bool = False,
        thorough: bool = False,
        progress: Progress = no_progress,
    ) -> int:
        """Apply all changes to the index, under its lock; return the number of memories written.

        `anew` rebuilds the index from nothing. `also` names memories to write besides the changed ones. `hurried` puts
        long merges off, since a recall waits; `thorough` merges more than is due, since nobody does.
        """
        writing = self._index.writing(wait=wait, hurried=hurried, thorough=thorough)
        with writing as writer, engines.db.reading() as tx:
            positions = {} if anew else self._positions(tx, writer.state)
            if not positions:
                writer.clear()
            last_numbers = changes.last_numbers(tx)
            changed = dict.fromkeys((*changes.since(tx, positions, last_numbers), *also))
            self._write(tx, writer, tuple(changed), last_numbers, progress)
            return len(changed)

    def write_slice(self, engines: Engines) -> bool:
        """Write the oldest pending changes, if they are too many or too long to search directly.

        Returns whether any were written; the next slice continues behind them. Busy if another process writes the
        index.
        """
        if self._can_search_pending(engines):
            return False
        with self._index.writing(wait=_RECALL_LOCK_SECONDS) as writer, engines.db.reading() as tx:
            positions = self._positions(tx, writer.state)
            if not positions:
                writer.clear()
            changed, reached = changes.first_since(tx, positions, changes.last_numbers(tx), limit=_SLICE)
            if changed:
                self._write(tx, writer, changed, reached, no_progress)
            return bool(changed)

    def _can_search_pending(self, engines: Engines) -> bool:
        """Return whether the next recall can search the pending changes without writing them first."""
        view, changed = self._inspect(engines)
        if changed > MAX_PENDING or self._has_long_texts:
            self._has_long_texts = False
            return False
        with engines.db.reading() as tx, suppress(ViewOutdated):
            self.pending(tx, view, changes.total(tx), limit=MAX_PENDING)
            return True
        return False

    def _write(
        self,
        tx: Reading,
        writer: IndexWriter,
        changed: Sequence[str],
        last_numbers: Mapping[str, int],
        progress: Progress,
    ) -> None:
        state = writer.state
        has_own_vectors = state is None or state.embedder == self._embedder.fingerprint
        for start in range(0, len(changed), _BATCH):
            progress("indexing", start, len(changed))
            batch = changed[start : start + _BATCH]
            delta = _delta(self._passages_of(tx, batch), batch)
            # Vectors of two embedders must not be mixed: re-embedding rebuilds the index.
            writer.add(delta if has_own_vectors else _without_vectors(delta))
        heads = chain.heads(tx)
        applied = {space: SpacePosition(number, *heads.get(space, (0, ""))) for space, number in last_numbers.items()}
        embedder = self._embedder.fingerprint if state is None or has_own_vectors else state.embedder
        new_state = IndexState(home.facts(tx)["id"], INDEX_RULES, embedder, applied)
        writer.commit(new_state)
        progress("indexing", len(changed), len(changed))

    def _positions(self, tx: Reading, state: IndexState | None) -> Mapping[str, int]:
        """Return the number of the last change applied in each space; nothing if the index is not to be trusted."""
        if state is None:
            return {}
        if state != self._trusted:
            if not is_of_this_book(tx, state, rules=INDEX_RULES):
                return {}
            self._trusted = state
        return {space: position.number for space, position in state.applied.items()}

    def _passages_of(self, tx: Reading, ids: Sequence[str], *, max_chars: int = NO_LIMIT) -> dict[str, _OwnerPassages]:
        """Return the passages of these memories and messages, without the deleted; unchanged ones from the cache.

        Raises ViewOutdated before it analyses more than `max_chars` of text.
        """
        by_owner: dict[str, _OwnerPassages] = {}
        all_spaces = spaces.get_all(tx)
        for batch in in_batches(ids, _BATCH):
            stored = memories.get_many(tx, all_spaces, batch)
            live = [memory for memory in stored.values() if memory.deleted is None]
            validities = marks.validities_of(tx, all_spaces, live)
            messages = sessions.messages_of_episodes(
                tx, {memory.id: memory.space.id for memory in live if memory.session}
            )
            unsettled = _unsettled(tx, all_spaces, [id_ for id_ in batch if id_ not in stored])
            max_chars -= sum(len(memory.text) for memory in live) + sum(len(message.text) for message, _ in unsettled)
            if max_chars < 0:
                self._has_long_texts = True
                raise ViewOutdated
            by_owner |= self._message_passages(tx, unsettled)
            parts = []
            for memory in live:
                seq_by_message = messages.get(memory.id, {}) if memory.session else None
                version = (memory.version, validities[memory.id], seq_by_message or {})
                cached = self._cache.get(memory.id)
                if cached is not None and cached.version == version and not self._embedder.slow:
                    by_owner[memory.id] = cached
                else:
                    by_owner[memory.id] = _OwnerPassages(version, [])
                    parts.append(cut(memory, seq_by_message))
            made = iter(self._vectors(tx, [text for part in parts for text in part.texts]))
            for part in parts:
                of_part, validity_ = list(islice(made, len(part.texts))), validities[part.memory.id]
                by_owner[part.memory.id].passages.extend(indexed_passages(part, validity=validity_, vectors=of_part))
        return by_owner

    def _message_passages(self, tx: Reading, unsettled: Sequence[tuple[Message, str]]) -> dict[str, _OwnerPassages]:
        """Return the passages of these messages, each with the id of its space."""
        tags = sessions.tags_of(tx, {(space, message.session) for message, space in unsettled})
        made = self._vectors(tx, [message.text for message, _ in unsettled])
        return {
            message.id: _OwnerPassages(
                (0, None, {}),
                [indexed_message(message, space=space, tags=tags.get((space, message.session), ()), vector=vector)],
            )
            for (message, space), vector in zip(unsettled, made, strict=True)
        }

    def _vectors(self, tx: Reading, texts: Sequence[str]) -> Sequence[Vector | None]:
        """Return the vector of each text: a slow embedder's are looked up among those that are stored."""
        if not self._embedder.slow:
            return vectors_of(texts, self._embedder, {})
        hashes = {vectors.hash_of(text) for text in texts}
        known = vectors.get_many(tx, self._embedder.fingerprint, sorted(hashes))
        return vectors_of(texts, self._embedder, known)


def _unsettled(tx: Reading, scope: SpaceScope, ids: Sequence[str]) -> list[tuple[Message, str]]:
    """Return the messages that are in no episode and were not rewound, with the ids of their spaces."""
    stored = sessions.get_many(tx, scope, ids)
    return [pair for pair in stored.values() if pair[0].episode is None and pair[0].rewound_at is None]


def _delta(by_owner: Mapping[str, _OwnerPassages], changed: Iterable[str]) -> Delta:
    return Delta(tuple(passage for owner in by_owner.values() for passage in owner.passages), frozenset(changed))


def _without_vectors(delta: Delta) -> Delta:
    return delta._replace(entries=tuple(passage._replace(vector=None) for passage in delta.entries))


def is_of_this_book(tx: Reading, state: IndexState, *, rules: str) -> bool:
    """Return whether an index was made from this book, by these rules, and from no other past of it.

    An index of another past has applied log entries that the hash chains of this book do not contain: it was left over
    from before a restored backup, for example.
    """
    if (state.rules, state.home) != (rules, home.facts(tx)["id"]):
        return False
    heads = {space: (position.seq, position.hash) for space, position in state.applied.items() if position.seq}
    return chain.has(tx, heads)


_EMBED_BATCH: Final = 64


def embed_missing(engines: Engines, embedder: Embedder, *, progress: Progress) -> tuple[str, ...]:
    """Make and store the missing vectors; return the ids of the memories that got new ones.

    Each batch is stored when it is made, so an interrupted run continues where it stopped. When no vector is missing,
    the vectors of other embedders are dropped.
    """
    fingerprint = embedder.fingerprint
    with engines.db.reading() as tx:
        kinds, _, _ = memories.counts(tx, spaces.get_all(tx))
    total, done = sum(kinds.values()), 0
    changed: list[str] = []
    for batch in _batches(engines):
        progress("embedding", done, max(done, total))
        changed += _embed(engines, embedder, fingerprint, batch)
        done += len(batch)
    progress("embedding", done, done)
    engines.db.write(partial(vectors.drop_others, embedder=fingerprint), durable=False)
    return tuple(changed)


def _batches(engines: Engines) -> Iterator[list[StoredMemory]]:
    """Yield the live memories of all spaces, each batch read in a transaction of its own."""
    with engines.db.reading() as tx:
        all_spaces = spaces.get_all(tx)
    for space in all_spaces:
        after = ""
        while True:
            with engines.db.reading() as tx:
                batch = memories.in_space(tx, spaces.get_all(tx), space, after=after, limit=_EMBED_BATCH)
            if not batch:
                break
            after = batch[-1].id
            yield [memory for memory in batch if memory.deleted is None]


def _embed(engines: Engines, embedder: Embedder, fingerprint: str, batch: list[StoredMemory]) -> list[str]:
    """Make and store the vectors that these memories lack; return the ids of the memories that lacked any."""
    texts_by_memory = {memory.id: {vectors.hash_of(text): text for text in embedded_texts(memory)} for memory in batch}
    text_by_hash = {hash_: text for texts in texts_by_memory.values() for hash_, text in texts.items()}
    with engines.db.reading() as tx:
        known = vectors.get_many(tx, fingerprint, tuple(text_by_hash))
    missing = [(hash_, text) for hash_, text in text_by_hash.items() if hash_ not in known]
    for start in range(0, len(missing), _EMBED_BATCH):
        part = missing[start : start + _EMBED_BATCH]
        rows = embedder.embed([embedding_input(text) for _, text in part], patient=True)
        vector_by_hash = {hash_: scoring.to_bytes(row) for (hash_, _), row in zip(part, rows, strict=True)}
        engines.db.write(partial(vectors.put, embedder=fingerprint, made=vector_by_hash), durable=False)
    return [memory_id for memory_id, texts in texts_by_memory.items() if texts.keys() - known.keys()]

"""Embed the passages that a slow embedder has not embedded yet, in batches and outside of transactions."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from commonbook.model.memory import Memory
from commonbook.model.reports import Progress
from commonbook.ports.embedding import Embedder
from commonbook.ports.engines import Engines
from commonbook.recall import indexed_passages, scoring
from commonbook.tables import memories, spaces, vectors

_BATCH: Final = 64


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


def _batches(engines: Engines) -> Iterator[list[Memory]]:
    """Yield the live memories of all spaces, each batch read in a transaction of its own."""
    with engines.db.reading() as tx:
        all_spaces = spaces.get_all(tx)
    for space in all_spaces:
        after = ""
        while True:
            with engines.db.reading() as tx:
                batch = memories.in_space(tx, spaces.get_all(tx), space, after=after, limit=_BATCH)
            if not batch:
                break
            after = batch[-1].id
            yield [memory for memory in batch if memory.deleted is None]


def _embed(engines: Engines, embedder: Embedder, fingerprint: str, batch: list[Memory]) -> list[str]:
    """Make and store the vectors that these memories lack; return the ids of the memories that lacked any."""
    texts_by_memory = {
        memory.id: {vectors.hash_of(text): text for text in indexed_passages.embedded_texts(memory)} for memory in batch
    }
    text_by_hash = {hash_: text for texts in texts_by_memory.values() for hash_, text in texts.items()}
    with engines.db.reading() as tx:
        known = vectors.get_many(tx, fingerprint, tuple(text_by_hash))
    missing = [(hash_, text) for hash_, text in text_by_hash.items() if hash_ not in known]
    for start in range(0, len(missing), _BATCH):
        part = missing[start : start + _BATCH]
        rows = embedder.embed([indexed_passages.embedding_input(text) for _, text in part], patient=True)
        vector_by_hash = {hash_: scoring.to_bytes(row) for (hash_, _), row in zip(part, rows, strict=True)}
        engines.db.write(partial(vectors.put, embedder=fingerprint, made=vector_by_hash), durable=False)
    return [memory_id for memory_id, texts in texts_by_memory.items() if texts.keys() - known.keys()]

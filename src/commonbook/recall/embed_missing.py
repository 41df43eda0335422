"""Embedding what a slow embedder has not seen yet: some passages at a time, outside every transaction."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from commonbook.model.memory import Memory
from commonbook.model.reports import Progress
from commonbook.ports.embedding import Embedder
from commonbook.ports.engines import Engines
from commonbook.recall import indexed_passages, ranking
from commonbook.tables import memories, spaces, vectors

_BATCH: Final = 64


def embed_missing(engines: Engines, embedder: Embedder, *, progress: Progress) -> tuple[str, ...]:
    """Make and keep the vectors that are missing; return the memories that have new ones.

    What was made stays when this is interrupted: the next run goes on where it stopped. When all are there, the
    vectors of other embedders are dropped.
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
    with engines.db.reading() as tx:
        every = spaces.get_all(tx)
    for space in every:
        after = ""
        while True:
            with engines.db.reading() as tx:
                found = memories.in_space(tx, spaces.get_all(tx), space, after=after, limit=_BATCH)
            if not found:
                break
            after = found[-1].id
            yield [memory for memory in found if memory.deleted is None]


def _embed(engines: Engines, embedder: Embedder, fingerprint: str, batch: list[Memory]) -> list[str]:
    """Make what is missing of some memories; return those that it is of."""
    said = {
        memory.id: {vectors.hash_of(text): text for text in indexed_passages.embedded_texts(memory)} for memory in batch
    }
    texts = {name: text for one in said.values() for name, text in one.items()}
    with engines.db.reading() as tx:
        known = vectors.get_many(tx, fingerprint, tuple(texts))
    missing = [(name, text) for name, text in texts.items() if name not in known]
    for at in range(0, len(missing), _BATCH):
        some = missing[at : at + _BATCH]
        made = embedder.embed([indexed_passages.embedding_input(text) for _, text in some], patient=True)
        kept = {name: ranking.to_bytes(row) for (name, _), row in zip(some, made, strict=True)}
        engines.db.write(partial(vectors.put, embedder=fingerprint, made=kept), durable=False)
    return [memory_id for memory_id, one in said.items() if one.keys() - known.keys()]

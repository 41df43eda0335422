"""The table `kept_vector`: an embedding cache, so that no text is embedded twice by one slow embedder.

A row is the vector of a text by an embedder, keyed by the hash of the text. A vector is bytes here: 32-bit floats,
little-endian. Every row can be computed again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Final

from commonbook.ports.database import Reading, Transaction

# Well below the number of parameters that a statement may have in either database.
_HASHES_PER_QUERY: Final = 500


def hash_of(text: str) -> str:
    """Return the hash under which the vector of a text is stored."""
    return hashlib.sha256(text.encode()).hexdigest()


def get_many(tx: Reading, embedder: str, hashes: Sequence[str]) -> dict[str, bytes]:
    """Return the cached vectors of this embedder, by hash; vectors of other embedders are never among them."""
    wanted = list(dict.fromkeys(hashes))
    cached: dict[str, bytes] = {}
    for start in range(0, len(wanted), _HASHES_PER_QUERY):
        rows = tx.rows(
            "SELECT hash, vector FROM kept_vector WHERE embedder = :embedder AND hash IN :hashes",
            embedder=embedder,
            hashes=wanted[start : start + _HASHES_PER_QUERY],
        )
        cached.update((hash_, bytes(vector)) for hash_, vector in rows)
    return cached


def put(tx: Transaction, embedder: str, made: Mapping[str, bytes]) -> None:
    """Store vectors by hash; a later vector of a text replaces an earlier one."""
    tx.run_many(
        "INSERT INTO kept_vector (embedder, hash, vector) VALUES (:embedder, :hash, :vector)"
        " ON CONFLICT (embedder, hash) DO UPDATE SET vector = :vector",
        [{"embedder": embedder, "hash": hash_, "vector": vector} for hash_, vector in sorted(made.items())],
    )


def drop_others(tx: Transaction, embedder: str) -> int:
    """Delete the vectors of all other embedders; return how many."""
    return tx.run("DELETE FROM kept_vector WHERE embedder <> :embedder", embedder=embedder)


def count(tx: Reading) -> int:
    """Return how many vectors are cached, of all embedders."""
    (count,) = tx.row("SELECT count(*) FROM kept_vector") or (0,)
    return int(count)

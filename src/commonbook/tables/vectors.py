"""Vectors that were slow to make, kept by the text that they are of: no text is embedded twice by one embedder.

A vector is bytes here: 32-bit floats, little-endian. The table is a cache: whatever is in it can be made again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Final

from commonbook.ports.database import Reading, Transaction

# Well below the number of parameters that a statement may have, whichever the database.
_AT_ONCE: Final = 500


def hash_of(text: str) -> str:
    """Return the name under which the vector of a text is kept."""
    return hashlib.sha256(text.encode()).hexdigest()


def get_many(tx: Reading, embedder: str, hashes: Sequence[str]) -> dict[str, bytes]:
    """Return the vectors that this embedder has made before, by hash; those of another are never among them."""
    wanted = list(dict.fromkeys(hashes))
    found: dict[str, bytes] = {}
    for start in range(0, len(wanted), _AT_ONCE):
        rows = tx.rows(
            "SELECT hash, vector FROM kept_vector WHERE embedder = :embedder AND hash IN :hashes",
            embedder=embedder,
            hashes=wanted[start : start + _AT_ONCE],
        )
        found.update((name, bytes(vector)) for name, vector in rows)
    return found


def put(tx: Transaction, embedder: str, made: Mapping[str, bytes]) -> None:
    """Keep vectors by hash; of two for one text, the later stands."""
    tx.run_many(
        "INSERT INTO kept_vector (embedder, hash, vector) VALUES (:embedder, :hash, :vector)"
        " ON CONFLICT (embedder, hash) DO UPDATE SET vector = :vector",
        [{"embedder": embedder, "hash": name, "vector": vector} for name, vector in sorted(made.items())],
    )


def drop_others(tx: Transaction, embedder: str) -> int:
    """Drop the vectors of every other embedder; return how many there were."""
    return tx.run("DELETE FROM kept_vector WHERE embedder <> :embedder", embedder=embedder)


def count(tx: Reading) -> int:
    """Return how many vectors are kept, of all embedders."""
    (count,) = tx.row("SELECT count(*) FROM kept_vector") or (0,)
    return int(count)

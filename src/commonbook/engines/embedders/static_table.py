"""The default embedder: a table of word-piece vectors, mapped into memory, and nothing to download.

How the table is made and laid out: tools/distil/README.md. A word's vector is the mean of the vectors of its pieces,
each weighted by how rare it is; a passage's vector is the weighted sum of its words', so vectors of neighbours can be
added.
"""

from __future__ import annotations

import mmap
import struct
import unicodedata
from collections.abc import Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from commonbook.errors import CommonbookError
from commonbook.ports.embedding import EmbeddingInput

Floats: TypeAlias = npt.NDArray[np.float32]
Bytes: TypeAlias = npt.NDArray[np.int8]

TABLE: Final = Path(__file__).parents[2] / "data" / "static-table.bin"
NEAR_WORDS: Final = TABLE.with_name("near-words.bin")
NEAR: Final = 0.4
"""The cosine from which on two words are taken for near."""

MOST_NEAR: Final = 16
"""So many near words a word has at most."""

NEAR_MAGIC: Final = b"CPNEAR01"
NEAR_STEP: Final = 1e-5
"""Lists of near words hold cosines in steps of so much above NEAR."""

_MAGIC: Final = b"CPTABLE1"
_FIX: Final = "install the package again"
_HEADER: Final = struct.Struct("<8s5I")
_NEAR_HEADER: Final = struct.Struct("<8s3I")
_ALIGN: Final = 64
_RARE: Final = 1e-4
_LONGEST_WORD: Final = 64
_KEPT: Final = 50_000
"""So many words are remembered with what was found for them, before all are forgotten and found again."""

_FAR: Final = 0.43
"""Words of which more signs differ are not compared any further: hardly any of them is near."""


class StaticTable:
    """Vectors of words and of bags of words. The mapped file is shared by all processes that use it."""

    def __init__(self, path: Path = TABLE) -> None:
        """Map the file; only the vocabulary is read."""
        data = _mapped(path, _MAGIC)
        _, count, self.dimensions, size, *_ = _HEADER.unpack_from(data)
        scales_at = _aligned(_HEADER.size + size)
        rows_at = _aligned(scales_at + 4 * count)
        if len(data) < rows_at + count * self.dimensions:
            raise CommonbookError(f"the table of word vectors {path} is cut short", fix=_FIX)
        vocabulary = data[_HEADER.size : _HEADER.size + size].decode().split("\n")
        self.vocabulary: Final = vocabulary
        self._path: Final = path
        self._pieces: Final = dict(zip(vocabulary, range(count), strict=True))
        self._scales: Final[Floats] = np.frombuffer(data, np.float32, count, scales_at)
        rows = np.frombuffer(data, np.int8, count * self.dimensions, rows_at)
        self._rows: Final[Bytes] = rows.reshape(count, self.dimensions)
        # Pieces stand in the vocabulary in the order of their frequency, so Zipf's law tells the frequency of each.
        rank = np.arange(1, count + 1, dtype=np.float32)
        self._weights: Final = (_RARE / (_RARE + 1 / (rank * np.log(count)))).astype(np.float32) * self._scales
        self._known: dict[str, tuple[int, ...]] = {}
        self._near: dict[str, tuple[tuple[str, float], ...]] = {}

    @property
    def fingerprint(self) -> str:
        """The name under which vectors of this table are kept: those of another are never compared with them."""
        return f"static-table-1/{self.dimensions}"

    def pieces(self, word: str) -> tuple[int, ...]:
        """Return the rows of a word: itself if it is in the vocabulary, else its longest pieces from left to right."""
        found = self._known.get(word)
        if found is None:
            if len(self._known) >= _KEPT:
                self._known.clear()
            found = self._known[word] = self._cut(_plain(word))
        return found

    def vectors(self, words: Sequence[str]) -> Floats:
        """Return one vector for each word; zeros for what has no pieces."""
        cut = [self.pieces(word) for word in words]
        out = np.zeros((len(words), self.dimensions), np.float32)
        if ids := [piece for pieces in cut for piece in pieces]:
            rows: Floats = self._rows[ids].astype(np.float32) * self._weights[ids, None]
            if all(len(pieces) == 1 for pieces in cut):
                return rows
            owners = np.repeat(np.arange(len(words)), [len(pieces) for pieces in cut])
            starts = np.flatnonzero(np.diff(owners, prepend=-1))
            out[owners[starts]] = np.add.reduceat(rows, starts, axis=0) / np.bincount(owners)[owners[starts], None]
        return out

    @property
    def slow(self) -> bool:
        """Not at all: a vector is made faster than it is looked up."""
        return False

    def embed(self, texts: Sequence[EmbeddingInput], *, patient: bool = False) -> Floats:  # noqa: ARG002 - it never waits
        """Return the sum of each text's word vectors, times their weights; its length says how much the text holds."""
        words = list(dict.fromkeys(word for text in texts for word in text.word_weights))
        place = {word: at for at, word in enumerate(words)}
        known = self.vectors(words)
        out = np.zeros((len(texts), self.dimensions), np.float32)
        for row, text in zip(out, texts, strict=True):
            if text.word_weights:
                weights = np.fromiter(text.word_weights.values(), np.float32, len(text.word_weights))
                row[:] = np.einsum("i,ij->j", weights, known[[place[word] for word in text.word_weights]])
        return out

    def near(self, word: str) -> tuple[tuple[str, float], ...]:
        """Return the words of the vocabulary that mean nearly the same, and how nearly, the nearest ones first."""
        found = self._near.get(word)
        if found is None:
            if len(self._near) >= _KEPT:
                self._near.clear()
            pieces = self.pieces(word)
            listed = len(pieces) == 1 and self.vocabulary[pieces[0]] == word and is_word(word)
            found = self._near[word] = self._lists.of(pieces[0]) if listed else self._look_around(word)
        return found

    def _look_around(self, word: str) -> tuple[tuple[str, float], ...]:
        """Compare a word without a list with all that have one: it is of several pieces, or not in the vocabulary."""
        (asked,) = self.vectors([word])
        if not asked.any():
            return ()
        apart = np.zeros(len(self._rows), np.uint8)
        for plane, bits in zip(self._planes, _signs(asked[None, :])[0], strict=True):
            apart += np.bitwise_count(plane ^ bits)
        rows = np.flatnonzero(apart <= int(_FAR * self.dimensions))
        vectors = self._rows[rows].astype(np.float32)
        lengths = np.maximum(np.sqrt(np.einsum("ij,ij->i", vectors, vectors)), 1e-9)
        cosines = np.einsum("ij,j->i", vectors, asked) / lengths / np.linalg.norm(asked)
        near = np.flatnonzero(cosines >= NEAR)
        nearest = near[np.argsort(-cosines[near], kind="stable")]
        pairs = (
            (other, round(cosine, 5))
            for row, cosine in zip(rows[nearest].tolist(), cosines[nearest].tolist(), strict=True)
            if (other := self.vocabulary[row]) != word and is_word(other)
        )
        return tuple(islice(pairs, MOST_NEAR))

    @cached_property
    def _lists(self) -> _NearLists:
        return _NearLists(self._path.with_name(NEAR_WORDS.name), self.vocabulary)

    @cached_property
    def _planes(self) -> npt.NDArray[np.uint64]:
        """The signs of all rows, 64 dimensions after the other: a comparison goes through one at a time."""
        return np.ascontiguousarray(_signs(self._rows).T)

    def _cut(self, word: str) -> tuple[int, ...]:
        if word in self._pieces:
            return (self._pieces[word],)
        found: list[int] = []
        at = 0
        while at < len(word):
            prefix = "##" if at else ""
            for end in range(len(word), at, -1):
                piece = self._pieces.get(prefix + word[at:end])
                if piece is not None:
                    found.append(piece)
                    at = end
                    break
            else:
                return ()
        # A word that falls into single letters says nothing by them: all such words would be alike.
        return tuple(found) if len(word) >= 2 * len(found) else ()


class _NearLists:
    """The nearest words of every word in the vocabulary, as they were found when the table was made."""

    def __init__(self, path: Path, vocabulary: Sequence[str]) -> None:
        data = _mapped(path, NEAR_MAGIC)
        _, _, count, size = _NEAR_HEADER.unpack_from(data)
        if count != len(vocabulary) or len(data) != _NEAR_HEADER.size + 4 * count + 4 * size:
            raise CommonbookError(f"the lists of near words {path} are cut short, or of another table", fix=_FIX)
        self._vocabulary = vocabulary
        self._ends = np.frombuffer(data, "<u4", count, _NEAR_HEADER.size)
        self._others = np.frombuffer(data, "<u2", size, _NEAR_HEADER.size + 4 * count)
        self._steps = np.frombuffer(data, "<u2", size, _NEAR_HEADER.size + 4 * count + 2 * size)

    def of(self, piece: int) -> tuple[tuple[str, float], ...]:
        """Return the words near one, the nearest first."""
        first, end = int(self._ends[piece - 1]) if piece else 0, int(self._ends[piece])
        words = [self._vocabulary[other] for other in self._others[first:end].tolist()]
        cosines = [NEAR + NEAR_STEP * step for step in self._steps[first:end].tolist()]
        return tuple(zip(words, cosines, strict=True))


def is_word(piece: str) -> bool:
    """Tell whether a piece of the vocabulary is a word that may be near to others."""
    return piece.isalpha() and len(piece) > 1


def _mapped(path: Path, magic: bytes) -> mmap.mmap:
    with path.open("rb") as file:
        if file.read(len(magic)) != magic:
            raise CommonbookError(f"{path} is not a table of words that this program made", fix=_FIX)
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _aligned(offset: int) -> int:
    return offset + -offset % _ALIGN


def _plain(word: str) -> str:
    """Return a word as the vocabulary has it: lower-cased, without accents."""
    if word.isascii():
        return word.lower()[:_LONGEST_WORD]
    marked = unicodedata.normalize("NFD", word[:_LONGEST_WORD].lower())
    return "".join(letter for letter in marked if unicodedata.category(letter) != "Mn")


def _signs(vectors: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    """Return one bit for each dimension: whether it is positive."""
    return np.packbits(vectors > 0, axis=1).view(np.uint64)

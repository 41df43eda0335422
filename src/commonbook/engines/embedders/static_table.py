"""The default embedder: a memory-mapped table of word-piece vectors, which comes with the package.

tools/distil/README.md describes how the table is made, and its format. The vector of a word is the mean of the vectors
of its pieces, weighted by rarity. The vector of a passage is the weighted sum of the vectors of its words, so that the
vectors of neighbours can be added.
"""

from __future__ import annotations

import mmap
import struct
import unicodedata
from collections.abc import Sequence
from functools import cached_property, lru_cache
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
MIN_NEAR_COSINE: Final = 0.4
"""The lowest cosine of two near words."""

MAX_NEAR_WORDS: Final = 16
"""The maximum of near words of one word."""

NEAR_MAGIC: Final = b"CPNEAR01"
NEAR_STEP: Final = 1e-5
"""Lists of near words store cosines as steps of this size above NEAR."""

_MAGIC: Final = b"CPTABLE1"
_FIX: Final = "install the package again"
_HEADER: Final = struct.Struct("<8s5I")
_NEAR_HEADER: Final = struct.Struct("<8s3I")
_ALIGNMENT_BYTES: Final = 64
_RARITY: Final = 1e-4
_MAX_WORD_CHARS: Final = 64
_MAX_CACHED_WORDS: Final = 20_000
"""The words in each cache, which is cleared when it is full."""

_MAX_SIGN_DISTANCE: Final = 0.44
"""The largest fraction of differing signs with which a word is compared exactly: hardly any other is near."""

_BLOCK_ROWS: Final = 1024
"""The number of rows that are converted at a time, where all of them are."""


class StaticTable:
    """Vectors of words and of weighted bags of words. Processes share the pages of the mapped file."""

    def __init__(self, path: Path = TABLE) -> None:
        """Map the file; only the vocabulary is read."""
        data = _map_file(path, _MAGIC)
        _, count, self.dimensions, size, *_ = _HEADER.unpack_from(data)
        scales_at = _align(_HEADER.size + size)
        rows_at = _align(scales_at + 4 * count)
        if len(data) < rows_at + count * self.dimensions:
            raise CommonbookError(f"the table of word vectors {path} is cut short", fix=_FIX)
        vocabulary = data[_HEADER.size : _HEADER.size + size].decode().split("\n")
        self.vocabulary: Final = vocabulary
        self._path: Final = path
        self._pieces: Final = dict(zip(vocabulary, range(count), strict=True))
        self._scales: Final[Floats] = np.frombuffer(data, np.float32, count, scales_at)
        rows = np.frombuffer(data, np.int8, count * self.dimensions, rows_at)
        self._rows: Final[Bytes] = rows.reshape(count, self.dimensions)
        # The vocabulary is sorted by frequency, so Zipf's law gives the frequency of each piece.
        rank = np.arange(1, count + 1, dtype=np.float32)
        self._weights: Final = (_RARITY / (_RARITY + 1 / (rank * np.log(count)))).astype(np.float32) * self._scales
        self.pieces: Final = lru_cache(maxsize=_MAX_CACHED_WORDS)(self._find_pieces)
        """Returns the rows of a word: its own if it is in the vocabulary, else those of its longest pieces."""

    @property
    def fingerprint(self) -> str:
        """The name under which vectors of this table are stored; vectors of different names are never compared."""
        return f"static-table-1/{self.dimensions}"

    def _find_pieces(self, word: str) -> tuple[int, ...]:
        return self._cut_into_pieces(_normalise(word))

    def vectors(self, words: Sequence[str]) -> Floats:
        """Return one vector for each word; zeros for a word without pieces."""
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
        """False: a vector is computed faster than it is looked up."""
        return False

    def embed(self, texts: Sequence[EmbeddingInput], *, patient: bool = False) -> Floats:  # noqa: ARG002 - it never waits
        """Return the weighted sum of each text's word vectors; its norm grows with the content of the text."""
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
        """Return the words of the vocabulary with a similar meaning and their cosines, the nearest first.

        Of words with one stem only the commonest is among them, and no stop word: see tools/distil/README.md.
        """
        return self._near_lists.of(self.pieces(word)[0]) if self.knows(word) else self._search_near(word)

    def knows(self, word: str) -> bool:
        """Return whether a word is one of the vocabulary."""
        pieces = self.pieces(word)
        return len(pieces) == 1 and self.vocabulary[pieces[0]] == word and is_word(word)

    def nearness(self, words: Sequence[str], others: Sequence[str]) -> list[float]:
        """Return for each word its highest cosine with any of the others; 1 for a word that has no vector."""
        vectors, other_vectors = self.vectors(words), self.vectors(others)
        lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
        other_lengths = np.sqrt(np.einsum("ij,ij->i", other_vectors, other_vectors))
        products = np.einsum("ij,kj->ik", vectors, other_vectors / np.maximum(other_lengths, 1e-9)[:, None])
        best = products.max(axis=1, initial=-1e9 if len(others) else 0.0) / np.maximum(lengths, 1e-9)
        cosines: list[float] = np.where(lengths > 0, np.round(best.astype(np.float64), 5), 1.0).tolist()
        return cosines

    def _search_near(self, word: str) -> tuple[tuple[str, float], ...]:
        """Search the near words of a word without a list: one of several pieces, or not in the vocabulary."""
        (query,) = self.vectors([word])
        if not query.any():
            return ()
        distance = np.zeros(len(self._rows), np.uint8)
        for plane, bits in zip(self._planes, _signs(query[None, :])[0], strict=True):
            distance += np.bitwise_count(plane ^ bits)
        rows = np.flatnonzero((distance <= int(_MAX_SIGN_DISTANCE * self.dimensions)) & self._near_lists.listed)
        vectors = self._rows[rows].astype(np.float32)
        lengths = np.maximum(np.sqrt(np.einsum("ij,ij->i", vectors, vectors)), 1e-9)
        cosines = np.einsum("ij,j->i", vectors, query) / lengths / np.linalg.norm(query)
        near_rows = np.flatnonzero(cosines >= MIN_NEAR_COSINE)
        nearest = near_rows[np.argsort(-cosines[near_rows], kind="stable")]
        pairs = (
            (other, round(cosine, 5))
            for row, cosine in zip(rows[nearest].tolist(), cosines[nearest].tolist(), strict=True)
            if (other := self.vocabulary[row]) != word
        )
        return tuple(islice(pairs, MAX_NEAR_WORDS))

    @cached_property
    def _near_lists(self) -> _NearLists:
        return _NearLists(self._path.with_name(NEAR_WORDS.name), self.vocabulary)

    @cached_property
    def _planes(self) -> npt.NDArray[np.uint64]:
        """The signs of all rows as bits, in planes of 64 dimensions, which are compared one at a time."""
        planes = np.empty((self.dimensions // 64, len(self._rows)), np.uint64)
        # The comparison needs a byte for each number: of all rows at once, seven megabytes that malloc then keeps.
        for start in range(0, len(self._rows), _BLOCK_ROWS):
            rows = self._rows[start : start + _BLOCK_ROWS]
            planes[:, start : start + len(rows)] = _signs(rows).T
        return planes

    def _cut_into_pieces(self, word: str) -> tuple[int, ...]:
        if word in self._pieces:
            return (self._pieces[word],)
        pieces: list[int] = []
        at = 0
        while at < len(word):
            prefix = "##" if at else ""
            for end in range(len(word), at, -1):
                piece = self._pieces.get(prefix + word[at:end])
                if piece is not None:
                    pieces.append(piece)
                    at = end
                    break
            else:
                return ()
        # Single letters carry no meaning: all words cut into them would be similar.
        return tuple(pieces) if len(word) >= 2 * len(pieces) else ()


class _NearLists:
    """The nearest words of every word in the vocabulary, computed when the table was made."""

    def __init__(self, path: Path, vocabulary: Sequence[str]) -> None:
        data = _map_file(path, NEAR_MAGIC)
        _, _, count, size = _NEAR_HEADER.unpack_from(data)
        if count != len(vocabulary) or len(data) != _NEAR_HEADER.size + 4 * count + 4 * size:
            raise CommonbookError(f"the lists of near words {path} are cut short, or of another table", fix=_FIX)
        self._vocabulary = vocabulary
        self._ends = np.frombuffer(data, "<u4", count, _NEAR_HEADER.size)
        self._others = np.frombuffer(data, "<u2", size, _NEAR_HEADER.size + 4 * count)
        self._steps = np.frombuffer(data, "<u2", size, _NEAR_HEADER.size + 4 * count + 2 * size)

    @cached_property
    def listed(self) -> npt.NDArray[np.bool_]:
        """Whether each word of the vocabulary is in any list: the others are no near words of anything."""
        listed = np.zeros(len(self._vocabulary), np.bool_)
        listed[self._others] = True
        return listed

    def of(self, piece: int) -> tuple[tuple[str, float], ...]:
        """Return the near words of a word and their cosines, the nearest first."""
        first, end = int(self._ends[piece - 1]) if piece else 0, int(self._ends[piece])
        words = [self._vocabulary[other] for other in self._others[first:end].tolist()]
        cosines = [MIN_NEAR_COSINE + NEAR_STEP * step for step in self._steps[first:end].tolist()]
        return tuple(zip(words, cosines, strict=True))


def is_word(piece: str) -> bool:
    """Return whether a piece of the vocabulary is a word that can have near words."""
    return piece.isalpha() and len(piece) > 1


def _map_file(path: Path, magic: bytes) -> mmap.mmap:
    with path.open("rb") as file:
        if file.read(len(magic)) != magic:
            raise CommonbookError(f"{path} is not a table of words that this program made", fix=_FIX)
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _align(offset: int) -> int:
    return offset + -offset % _ALIGNMENT_BYTES


def _normalise(word: str) -> str:
    """Return a word in the form of the vocabulary: lower-cased, without accents."""
    if word.isascii():
        return word.lower()[:_MAX_WORD_CHARS]
    marked = unicodedata.normalize("NFD", word[:_MAX_WORD_CHARS].lower())
    return "".join(letter for letter in marked if unicodedata.category(letter) != "Mn")


def _signs(vectors: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    """Return the signs of vectors as bits, 1 for positive."""
    return np.packbits(vectors > 0, axis=1).view(np.uint64)

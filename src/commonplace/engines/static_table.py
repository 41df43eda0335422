"""The default embedder: a table of word-piece vectors, mapped into memory, and nothing to download.

How the table is made and laid out: tools/distil/README.md. A word's vector is the mean of the vectors of its pieces,
each weighted by how rare it is; a passage's vector is the weighted sum of its words', so vectors of neighbours can be
added.
"""

from __future__ import annotations

import mmap
import struct
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from commonplace.errors import CommonplaceError

Floats: TypeAlias = npt.NDArray[np.float32]
Bytes: TypeAlias = npt.NDArray[np.int8]

TABLE: Final = Path(__file__).parent.parent / "data" / "static-table.bin"
NEAR: Final = 0.4
"""The cosine from which on two words are taken for near."""

_MAGIC: Final = b"CPTABLE1"
_FIX: Final = "install the package again"
_HEADER: Final = struct.Struct("<8s5I")
_ALIGN: Final = 64
_RARE: Final = 1e-4
_LONGEST_WORD: Final = 64
# What Snowball cuts off, by how often it does: a stem is looked up as the word that it most likely was.
_ENDINGS: Final = ("e", "y", "ing", "es", "ion", "ed", "er", "al", "ation", "ive", "ly", "able", "ment", "ity", "s")


class Near(NamedTuple):
    """Two terms that mean nearly the same, and how nearly."""

    asked: str
    term: str
    cosine: float


class StaticTable:
    """Vectors of words and of bags of words. The mapped file is shared by all processes that use it."""

    def __init__(self, path: Path = TABLE) -> None:
        """Map the file; only the vocabulary is read."""
        data = _mapped(path)
        _, count, self.dimensions, size, *_ = _HEADER.unpack_from(data)
        scales_at = _aligned(_HEADER.size + size)
        rows_at = _aligned(scales_at + 4 * count)
        if len(data) < rows_at + count * self.dimensions:
            raise CommonplaceError(f"the table of word vectors {path} is cut short", fix=_FIX)
        vocabulary = data[_HEADER.size : _HEADER.size + size].decode().split("\n")
        self._pieces: Final = dict(zip(vocabulary, range(count), strict=True))
        self._scales: Final[Floats] = np.frombuffer(data, np.float32, count, scales_at)
        rows = np.frombuffer(data, np.int8, count * self.dimensions, rows_at)
        self._rows: Final[Bytes] = rows.reshape(count, self.dimensions)
        # Pieces stand in the vocabulary in the order of their frequency, so Zipf's law tells the frequency of each.
        rank = np.arange(1, count + 1, dtype=np.float32)
        self._weights: Final = (_RARE / (_RARE + 1 / (rank * np.log(count)))).astype(np.float32) * self._scales
        self._known: dict[str, tuple[int, ...]] = {}

    @property
    def fingerprint(self) -> str:
        """The name under which vectors of this table are kept: those of another are never compared with them."""
        return f"static-table-1/{self.dimensions}"

    def pieces(self, word: str) -> tuple[int, ...]:
        """Return the rows of a word: itself if it is in the vocabulary, else its longest pieces from left to right."""
        found = self._known.get(word)
        if found is None:
            found = self._known[word] = self._cut(_plain(word))
        return found

    def vectors(self, words: Sequence[str]) -> Floats:
        """Return one vector for each word; zeros for what has no pieces."""
        cut = [self.pieces(word) for word in words]
        out = np.zeros((len(words), self.dimensions), np.float32)
        if ids := [piece for pieces in cut for piece in pieces]:
            rows = self._rows[ids].astype(np.float32) * self._weights[ids, None]
            owners = np.repeat(np.arange(len(words)), [len(pieces) for pieces in cut])
            starts = np.flatnonzero(np.diff(owners, prepend=-1))
            out[owners[starts]] = np.add.reduceat(rows, starts, axis=0) / np.bincount(owners)[owners[starts], None]
        return out

    def embed(self, bags: Sequence[Mapping[str, float]]) -> Floats:
        """Return the sum of each bag's word vectors, times their weights; its length says how much the bag holds."""
        words = list(dict.fromkeys(word for bag in bags for word in bag))
        place = {word: at for at, word in enumerate(words)}
        known = self.vectors(words)
        out = np.zeros((len(bags), self.dimensions), np.float32)
        for row, bag in zip(out, bags, strict=True):
            if bag:
                row[:] = np.fromiter(bag.values(), np.float32, len(bag)) @ known[[place[word] for word in bag]]
        return out

    def near(self, asked: Sequence[str], terms: Sequence[str], *, least: float = NEAR) -> list[Near]:
        """Return the pairs of an asked term and another one that are near, nearest first for each asked term."""
        if not asked or not terms:
            return []
        likely = [[self._likely_word(term) for term in side] for side in (asked, terms)]
        cosines = _unit(self.vectors(likely[0])) @ _unit(self.vectors(likely[1])).T
        out = [
            Near(asked=asked[row], term=terms[column], cosine=float(cosines[row, column]))
            for row, column in np.argwhere(cosines >= least).tolist()
            if asked[row] != terms[column]
        ]
        return sorted(out, key=lambda pair: (pair.asked, -pair.cosine, pair.term))

    def _likely_word(self, stem: str) -> str:
        """Return a word of the vocabulary that a stem may come from; the stem itself if it is one, or none is."""
        if stem not in self._pieces:
            for word in (*(stem + ending for ending in _ENDINGS), stem.removesuffix("i") + "y"):
                if word in self._pieces:
                    return word
        return stem

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
        return tuple(found)


def quantise(vectors: Floats) -> tuple[Bytes, Floats]:
    """Return vectors as signed bytes, and what each row is to be multiplied with to have it back."""
    largest = np.abs(vectors).max(axis=1, initial=0)
    scales = np.where(largest > 0, largest / 127, 1).astype(np.float32)
    return np.rint(vectors / scales[:, None]).astype(np.int8), scales


def _mapped(path: Path) -> mmap.mmap:
    with path.open("rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            raise CommonplaceError(f"{path} is not a table of word vectors", fix=_FIX)
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _aligned(offset: int) -> int:
    return offset + -offset % _ALIGN


def _plain(word: str) -> str:
    """Return a word as the vocabulary has it: lower-cased, without accents."""
    if word.isascii():
        return word.lower()[:_LONGEST_WORD]
    marked = unicodedata.normalize("NFD", word[:_LONGEST_WORD].lower())
    return "".join(letter for letter in marked if unicodedata.category(letter) != "Mn")


def _unit(vectors: Floats) -> Floats:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True).astype(np.float32)
    lengths[lengths == 0] = 1
    unit: Floats = vectors / lengths
    return unit

"""The ports of embedders, which turn texts into vectors, and of the thesaurus, which expands queries."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    # The numeric arrays that embedders and indexes exchange.
    Floats = npt.NDArray[np.float32]
    Ints = npt.NDArray[np.int64]
    Flags = npt.NDArray[np.bool_]


class EmbeddingInput(NamedTuple):
    """A text to embed: in full, and its significant words with the weight of each."""

    text: str
    word_weights: Mapping[str, float]


class Embedder(Protocol):
    """Turns texts into vectors: texts of similar meaning get vectors of similar direction."""

    @property
    def fingerprint(self) -> str:
        """The name under which its vectors are stored; vectors of different fingerprints are never compared."""
        ...

    @property
    def dimensions(self) -> int:
        """The length of a vector."""
        ...

    @property
    def slow(self) -> bool:
        """Whether vectors are stored, and made in the background rather than during a write or a recall."""
        ...

    def embed(self, texts: Sequence[EmbeddingInput], *, patient: bool = False) -> Floats:
        """Return one row for each text, or raise EmbedderFailed; with `patient`, retry for a while first."""
        ...


class Thesaurus(Protocol):
    """Knows words of nearly the same meaning, for query expansion."""

    def near(self, word: str) -> Sequence[tuple[str, float]]:
        """Return other words with their cosine similarity to this one, most similar first."""
        ...

    def knows(self, word: str) -> bool:
        """Return whether a word is one of the vocabulary, and so hardly misspelt."""
        ...

    def nearness(self, words: Sequence[str], others: Sequence[str]) -> Sequence[float]:
        """Return for each word its highest cosine with any of the others; 1 for a word that has no vector."""
        ...

    def embed(self, texts: Sequence[EmbeddingInput]) -> Floats:
        """Return a vector for each text that is not normalised, so that vectors of texts can be added."""
        ...


Similarity: TypeAlias = Callable[[Sequence[str], Sequence[str]], float]
"""The similarity in meaning of two sequences of texts: 1 for the same."""


class EmbedderChoice(NamedTuple):
    """The chosen embedder, and the settings to create it with."""

    name: str = "static"
    model: str | None = None
    url: str | None = None
    key: str | None = None

    def __repr__(self) -> str:
        """Show everything but the key."""
        key = None if self.key is None else "..."
        return f"EmbedderChoice(name={self.name!r}, model={self.model!r}, url={self.url!r}, key={key!r})"

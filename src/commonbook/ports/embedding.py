"""The seams of embedders and of the thesaurus."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    from commonbook.ports.arrays import Floats


class EmbeddingInput(NamedTuple):
    """A text to be embedded: as it stands, and the words of it that say something, each with its share."""

    text: str
    word_weights: Mapping[str, float]


class Embedder(Protocol):
    """Turns texts into vectors: what is near in meaning is near in direction."""

    @property
    def fingerprint(self) -> str:
        """The name under which its vectors are kept: those of another are never compared with them."""
        ...

    @property
    def dimensions(self) -> int:
        """How many numbers a vector has."""
        ...

    @property
    def slow(self) -> bool:
        """Whether its vectors are worth keeping, and never made while somebody waits for a write or a recall."""
        ...

    def embed(self, texts: Sequence[EmbeddingInput], *, patient: bool = False) -> Floats:
        """Return one row for each text; raises EmbedderFailed when it cannot, at once unless it shall be `patient`."""
        ...


class Thesaurus(Protocol):
    """Knows which words mean nearly the same."""

    def near(self, word: str) -> Sequence[tuple[str, float]]:
        """Return other words and how near each is (a cosine), nearest first."""
        ...

    def embed(self, texts: Sequence[EmbeddingInput]) -> Floats:
        """Return a vector for each text that grows with what it holds, so that vectors can be added up."""
        ...


Similarity: TypeAlias = Callable[[Sequence[str], Sequence[str]], float]
"""How alike two runs of texts are in meaning: 1 for the same."""


class EmbedderChoice(NamedTuple):
    """Which embedder was chosen, and what it is to be made with."""

    name: str = "static"
    model: str | None = None
    url: str | None = None
    key: str | None = None

    def __repr__(self) -> str:
        """Show everything but the key."""
        key = None if self.key is None else "..."
        return f"EmbedderChoice(name={self.name!r}, model={self.model!r}, url={self.url!r}, key={key!r})"

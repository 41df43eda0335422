"""Finds the embedder that was chosen: one of ours, or one that another package brings by entry point.

A factory takes the choice and returns an Embedder. Packages offer theirs in the group `commonbook.embedders`, by the
name that COMMONBOOK_EMBEDDER is then set to; ours cannot be replaced.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from commonbook.errors import BadInput, EmbedderFailed
from commonbook.ports.embedding import Embedder, EmbedderChoice

GROUP: Final = "commonbook.embedders"

_OPENAI: Final = "https://api.openai.com/v1"

Factory = Callable[[EmbedderChoice], Embedder]


def embedder_for(choice: EmbedderChoice) -> Embedder:
    """Return the embedder that was chosen; nothing is loaded or asked before it is used."""
    return (_OURS.get(choice.name) or _brought(choice.name))(choice)


def static(choice: EmbedderChoice) -> Embedder:
    """Return the table of word vectors that comes with the package."""
    from commonbook.engines.embedders.static_table import StaticTable

    if choice.model:
        raise BadInput("the static embedder has no models to choose from", fix="set COMMONBOOK_EMBEDDER to static")
    return StaticTable()


def sentence_transformers(choice: EmbedderChoice) -> Embedder:
    """Return a model that runs on this machine."""
    from commonbook.engines.embedders.sentence_model import SentenceModel

    return SentenceModel(_model_of(choice, such_as="all-MiniLM-L6-v2"))


def openai(choice: EmbedderChoice) -> Embedder:
    """Return a model behind an OpenAI-compatible address; OpenAI's own if none is named."""
    from commonbook.engines.embedders.http import HttpEmbedder

    model = _model_of(choice, such_as="text-embedding-3-small")
    if choice.url is None and choice.key is None:
        raise BadInput(
            "the openai embedder has neither a key nor an address of its own",
            fix="set COMMONBOOK_EMBEDDER_KEY, or COMMONBOOK_EMBEDDER_URL to a service that needs no key",
        )
    return HttpEmbedder(choice.url or _OPENAI, model, key=choice.key)


# Known without a look at the installed packages, which takes longer than all else.
_OURS: Final[dict[str, Factory]] = {
    "static": static,
    "sentence-transformers": sentence_transformers,
    "openai": openai,
}


def _brought(name: str) -> Factory:
    """Return a factory that another package brings."""
    from importlib.metadata import entry_points

    offered = {entry.name: entry for entry in entry_points(group=GROUP)}
    if name not in offered:
        raise BadInput(
            f"there is no embedder named {name!r}",
            fix=f"set COMMONBOOK_EMBEDDER to one of: {', '.join(sorted({*_OURS, *offered}))}",
        )
    try:
        factory: Factory = offered[name].load()
    except (ImportError, AttributeError) as error:
        raise EmbedderFailed(
            f"the embedder {name} cannot be loaded: {error}",
            fix="install again the package that brings it, or set COMMONBOOK_EMBEDDER to static",
        ) from error
    return factory


def _model_of(choice: EmbedderChoice, *, such_as: str) -> str:
    if choice.model is None:
        raise BadInput(
            f"the embedder {choice.name} needs a model", fix=f"set COMMONBOOK_EMBEDDER to {choice.name}:{such_as}"
        )
    return choice.model

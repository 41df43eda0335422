"""Creates the chosen embedder: a built-in one, or one of another package, found by its entry point.

A factory takes the choice and returns an Embedder. Packages register factories in the entry point group
`commonbook.embedders`, under the name to which COMMONBOOK_EMBEDDER is then set. Built-in names cannot be replaced.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from commonbook.errors import BadInput, EmbedderFailed
from commonbook.ports.embedding import Embedder, EmbedderChoice

GROUP: Final = "commonbook.embedders"

_OPENAI_URL: Final = "https://api.openai.com/v1"

Factory = Callable[[EmbedderChoice], Embedder]


def embedder_for(choice: EmbedderChoice) -> Embedder:
    """Return the chosen embedder; models are loaded and services called only when it is used."""
    return (_BUILT_IN.get(choice.name) or _load_plugin(choice.name))(choice)


def static(choice: EmbedderChoice) -> Embedder:
    """Create the embedder on the table of word vectors that comes with the package."""
    from commonbook.engines.embedders.static_table import StaticTable

    if choice.model:
        raise BadInput("the static embedder has no models to choose from", fix="set COMMONBOOK_EMBEDDER to static")
    return StaticTable()


def sentence_transformers(choice: EmbedderChoice) -> Embedder:
    """Create the embedder on a sentence-transformers model on this machine."""
    from commonbook.engines.embedders.sentence_model import SentenceModel

    return SentenceModel(_required_model(choice, example="all-MiniLM-L6-v2"))


def openai(choice: EmbedderChoice) -> Embedder:
    """Create the embedder on an OpenAI-compatible service; OpenAI's own if no address is given."""
    from commonbook.engines.embedders.http import HttpEmbedder

    model = _required_model(choice, example="text-embedding-3-small")
    if choice.url is None and choice.key is None:
        raise BadInput(
            "the openai embedder has neither a key nor an address of its own",
            fix="set COMMONBOOK_EMBEDDER_KEY, or COMMONBOOK_EMBEDDER_URL to a service that needs no key",
        )
    return HttpEmbedder(choice.url or _OPENAI_URL, model, key=choice.key)


# Built-in names are resolved without scanning installed packages, which takes longer than all else.
_BUILT_IN: Final[dict[str, Factory]] = {
    "static": static,
    "sentence-transformers": sentence_transformers,
    "openai": openai,
}


def _load_plugin(name: str) -> Factory:
    """Return the factory that another package registered under this name."""
    from importlib.metadata import entry_points

    plugins = {entry.name: entry for entry in entry_points(group=GROUP)}
    if name not in plugins:
        raise BadInput(
            f"there is no embedder named {name!r}",
            fix=f"set COMMONBOOK_EMBEDDER to one of: {', '.join(sorted({*_BUILT_IN, *plugins}))}",
        )
    try:
        factory: Factory = plugins[name].load()
    except (ImportError, AttributeError) as error:
        raise EmbedderFailed(
            f"the embedder {name} cannot be loaded: {error}",
            fix="reinstall the package that provides it, or set COMMONBOOK_EMBEDDER to static",
        ) from error
    return factory


def _required_model(choice: EmbedderChoice, *, example: str) -> str:
    if choice.model is None:
        raise BadInput(
            f"the embedder {choice.name} needs a model", fix=f"set COMMONBOOK_EMBEDDER to {choice.name}:{example}"
        )
    return choice.model

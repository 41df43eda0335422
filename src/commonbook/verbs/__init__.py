"""The verbs of a book, declared once, by subject: their signatures, their docstrings, and their requests over HTTP.

`Book` implements them, `RemoteBook` sends them, and the routes, the OpenAPI document and `aio` are made from them.
"""

from __future__ import annotations

from collections.abc import Iterator

from commonbook.verbs.access import Access
from commonbook.verbs.declaration import Verb
from commonbook.verbs.memories import Memories
from commonbook.verbs.reasoning import Reasoning
from commonbook.verbs.recall import Recall
from commonbook.verbs.sessions import Sessions
from commonbook.verbs.sharing import Sharing
from commonbook.verbs.upkeep import Upkeep


class Verbs(Memories, Recall, Sessions, Sharing, Reasoning, Access, Upkeep):
    """All verbs that a book has in this process and on a server."""


def declared_verbs() -> Iterator[Verb]:
    """Yield every declared verb, in the order of the declarations."""
    for subject in Verbs.__bases__:
        for member in vars(subject).values():
            function = member.fget if isinstance(member, property) else member
            if isinstance(verb := getattr(function, "verb", None), Verb):
                yield verb

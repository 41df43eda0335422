"""Standing wishes of the user who asks: the labels by which they are found, and the short list of the newest.

A passage with a wish has a label for each principal whose wish it may be. What else makes a passage a hit or not, as
supersession, expiry and permissions, is decided as for every recall.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from commonbook.core.tables import grants
from commonbook.core.text.wishes import MAX_WISH_CHARS, wishes_in
from commonbook.ports.database import Reading
from commonbook.ports.index import IS_MESSAGE, IS_WISH
from commonbook.values import prompts
from commonbook.values.hit import Hit
from commonbook.values.recall import Wish
from commonbook.values.spaces import FILESYSTEM, LOCAL_OWNER, Actor

LABEL: Final = "\x01wish "
CANDIDATES: Final = 48
"""The number of passages that are read for the list: a wish is often said again and again."""

_MAX_WISHES: Final = 12
_MAX_TOKENS: Final = 300


def labels_of(author: str, flags: int) -> tuple[str, ...]:
    """Return the labels of a passage with a wish; files, and messages that agents record, may be the owner's."""
    if not flags & IS_WISH:
        return ()
    others = (LOCAL_OWNER,) if flags & IS_MESSAGE or author == FILESYSTEM else ()
    return tuple(LABEL + name for name in dict.fromkeys((author, *others)))


def asker(actor: Actor, *, in_home: bool) -> str:
    """Return the principal whose wishes an actor is given: in a home, agents act for the owner."""
    return LOCAL_OWNER if actor.principal == FILESYSTEM or (actor.is_agent and in_home) else actor.principal


def list_wishes(tx: Reading, asker: str, hits: Iterable[Hit]) -> tuple[Wish, ...]:
    """Return the wishes in these hits, which come newest first, each once, as far as they fit into the list."""
    # Users who were given rights speak for themselves, and not for the owner.
    others = {name for name in grants.principals(tx) if name.startswith("user:")} - {asker}
    by_words: dict[str, Wish] = {}
    for hit in hits:
        whole = " ".join(hit.passage.split())[:MAX_WISH_CHARS]
        for text in [whole] if hit.kind == "preference" else wishes_in(hit.passage):
            wish = Wish(text, hit.author, hit.occurred or hit.created, hit.space, hit.id)
            if hit.author not in others:
                by_words.setdefault(" ".join(text.casefold().split()).rstrip(".!"), wish)
    wishes = list(by_words.values())[:_MAX_WISHES]
    while prompts.tokens("\n".join(wish.line for wish in wishes)) > _MAX_TOKENS:
        wishes.pop()
    return tuple(wishes)

"""Standing wishes of the user who asks: which passages have any, who gets them, and the short list of them.

A passage with a wish has a flag in the index, for ranking, and a label for each principal whose wish it may be, by
which the newest are found. What else makes a passage a hit or not, as supersession, expiry and permissions, is decided
as for every recall.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from commonbook.core.tables import grants
from commonbook.core.text.wishes import MAX_WISH_CHARS, wishes_in
from commonbook.ports.database import Reading
from commonbook.values import prompts
from commonbook.values.recall import Hit, Wish
from commonbook.values.spaces import FILESYSTEM, LOCAL_OWNER, Actor

CANDIDATES: Final = 48
"""The number of passages that are read for the list: a wish is often said again and again."""

_MAX_WISHES: Final = 12
_MAX_TOKENS: Final = 300
_OTHER_KINDS: Final = frozenset({"notice", "episode", "reflection"})


def is_wish_of_user(text: str, *, author: str, kind: str) -> bool:
    """Return whether the first passage of a memory is a wish: a preference of a user, or one that states a wish."""
    if not author.startswith("user:") or kind in _OTHER_KINDS:
        return False
    return kind == "preference" or bool(wishes_in(text))


def labels_of_wish(author: str, *, is_message: bool) -> tuple[str, ...]:
    """Return the labels of a passage with a wish, one for each principal whose wish it may be.

    On the machine of one person, files and the messages that agents record are the words of the owner.
    """
    by_owner = (LOCAL_OWNER,) if is_message or author == FILESYSTEM else ()
    return tuple(map(_label, dict.fromkeys((author, *by_owner))))


def label_of_asker(actor: Actor, *, in_home: bool) -> str:
    """Return the label of the wishes of the user who asks: in a home, agents act for the owner."""
    is_for_owner = actor.principal == FILESYSTEM or (actor.is_agent and in_home)
    return _label(LOCAL_OWNER if is_for_owner else actor.principal)


def _label(principal: str) -> str:
    return f"\x01wish {principal}"


def list_wishes(tx: Reading, label: str, hits: Iterable[Hit]) -> tuple[Wish, ...]:
    """Return the wishes in these hits, which come newest first, each once, as far as they fit into the list."""
    # Who was given rights speaks for himself, and not for the owner.
    others = grants.principals(tx) if label == _label(LOCAL_OWNER) else ()
    wishes: dict[str, Wish] = {}
    room = _MAX_TOKENS
    for wish in _wishes(hits, others):
        words = " ".join(wish.text.casefold().split()).rstrip(".!")
        if words in wishes:
            continue
        room -= prompts.tokens(prompts.wish_line(wish.text, wish.author, wish.time)) + 1
        if room < 0 or len(wishes) == _MAX_WISHES:
            break
        wishes[words] = wish
    return tuple(wishes.values())


def _wishes(hits: Iterable[Hit], others: Collection[str]) -> Iterable[Wish]:
    for hit in hits:
        if hit.author not in others:
            whole = " ".join(hit.passage.split())
            texts = [whole[:MAX_WISH_CHARS]] if hit.kind == "preference" else wishes_in(hit.passage)
            for text in texts:
                yield Wish(text, hit.author, hit.occurred or hit.created, hit.space, hit.id)

"""Decides whether a person's save takes back what a verb has changed, and sets and removes the mark `reverted`.

An old buffer of an editor does that. The save becomes the present text, and is marked until somebody has looked at it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from commonbook.files.save_order import MIN_SIMILARITY
from commonbook.tables import file_journal, revisions
from commonbook.text.nearness import nearest

if TYPE_CHECKING:
    from commonbook.model.memory import Revision
    from commonbook.model.stored_memory import StoredMemory
    from commonbook.write.context import WriteContext


_BY_HAND: Final = "file"
_MAX_REVISIONS: Final = 20


def takes_back(ctx: WriteContext, old: StoredMemory, new: StoredMemory) -> bool:
    """Tell whether a person's save takes back what a verb has changed, as an old buffer of an editor does.

    People may take back what people wrote, so there must be a text of a verb behind the one that came back.
    """
    if (old.title, old.text) == (new.title, new.text):
        return False
    past = revisions.last_revisions(ctx.tx, old, limit=_MAX_REVISIONS)
    back = _revision_brought_back(new.text, past, old.text)
    if back is None:
        return False
    later = [revision.how for revision in past if revision.revision > back.revision]
    return any(not how.startswith(_BY_HAND) for how in (*later, old.revised_how))


def mark(ctx: WriteContext, memory: StoredMemory) -> None:
    """Mark the present revision of a memory as a save that takes back what a verb had changed."""
    file_journal.set_reverted(ctx.tx, memory.id, memory.revision)


def accept(ctx: WriteContext, memory: StoredMemory) -> None:
    """Remove the mark: somebody has looked at the save that brought older words back, and keeps them."""
    file_journal.clear_reverted(ctx.tx, memory.id)


def _revision_brought_back(text: str, past: Sequence[Revision], present: str) -> Revision | None:
    """Return the past revision that a save brings back: equal to it, or nearer to it than to the present text."""
    if text == present:
        return None
    by_text = {revision.text: revision for revision in past if revision.text != present}
    texts = list(by_text)
    at = texts.index(text) if text in by_text else nearest(text, [*texts, present], at_least=MIN_SIMILARITY)
    return by_text[texts[at]] if at is not None and at < len(texts) else None

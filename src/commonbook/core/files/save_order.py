"""The place of a person's save in the history of its memory: the newest revision, or an earlier one.

A save that was made before the present text and arrives after it goes into the history. One that takes back what a verb
has changed, as an old buffer of an editor does, becomes the present text, and is marked `reverted` until somebody has
looked at it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from commonbook.core.markdown.front_matter import Document
from commonbook.core.markdown.memory_conversion import title_of_note
from commonbook.core.tables import file_journal, memories, revisions
from commonbook.core.tables.file_journal import JournalEntry, SyncedFile
from commonbook.core.text.nearness import nearest
from commonbook.core.write.context import WriteContext
from commonbook.values.memory import Revision
from commonbook.values.spaces import FILESYSTEM
from commonbook.values.stored_memory import StoredMemory

_MIN_SIMILARITY: Final = 0.5
"""A save that has less in common with a text is not based on it."""
_BY_HAND: Final = "file"
_MAX_REVISIONS: Final = 20


def is_newest(*, row_version: int, journal: JournalEntry | None) -> bool:
    """Return whether a person's save is newer than the row of its memory.

    It is if no write was pending, or if we were only writing back an earlier save of a person. Otherwise it belongs
    before what we wrote meanwhile.
    """
    return journal is None or (journal.is_write_back and journal.version == row_version)


def _is_based_on_present(text: str, *, present: str, before: str) -> bool:
    """Return whether a save was made over the text of a pending write: it has clearly more in common with it."""
    return nearest(text, [before, present], at_least=_MIN_SIMILARITY) == 1


def is_earlier(
    ctx: WriteContext,
    memory: StoredMemory,
    document: Document,
    *,
    journal: JournalEntry | None,
    synced: SyncedFile | None,
) -> bool:
    """Return whether a save was made before the present text: there is a pending write, and it was not made over it."""
    newest = is_newest(row_version=memory.version, journal=journal)
    return not newest and not _is_over_pending(ctx, memory, synced, document)


def _is_over_pending(ctx: WriteContext, memory: StoredMemory, synced: SyncedFile | None, document: Document) -> bool:
    """Return whether a save at the path of a pending write was made over the content of that write."""
    if synced is None:
        return document.id == memory.id
    before = revisions.find(ctx.tx, memory, memory.revision - 1)
    return before is not None and _is_based_on_present(document.text, present=memory.text, before=before.text)


def is_known(ctx: WriteContext, memory: StoredMemory, document: Document) -> bool:
    """Return whether the title and text of a file are the present ones of the memory or of an older revision."""
    content = (title_in_file(memory, document), document.text)
    older = ((revision.title, revision.text) for revision in revisions.past_revisions(ctx.tx, memory))
    return content == (memory.title, memory.text) or content in older


def title_in_file(memory: StoredMemory, document: Document) -> str:
    """Return the title that a file of a memory has."""
    if document.title or not document.has_front:
        return document.title or memory.title
    return title_of_note(memory, document.text)


def record_earlier(ctx: WriteContext, memory: StoredMemory, document: Document) -> bool:
    """Record a save that was made before the present text and arrived after it; return whether its text is new.

    It becomes a revision in the history, and the present text follows it as a revision of its own. A text that the
    history has already was written out late by another process, or a person went back to it.
    """
    title = title_in_file(memory, document)
    if is_known(ctx, memory, document):
        if memory.deleted is None:
            ctx.enqueue_files([memory])
        return False
    revisions.archive(ctx.tx, memory)
    earlier = Revision(
        revision=memory.revision + 1,
        title=title,
        text=document.text,
        author=FILESYSTEM,
        at=ctx.tx.now,
        # This text, and the payload keys below, are stored in the histories and signed logs of existing books.
        how="file, overtaken",
    )
    revisions.add(ctx.tx, memory, earlier)
    overtaken = memory._replace(title=title, text=document.text, revision=earlier.revision, version=memory.version + 1)
    ctx.log_memory(overtaken, "edit", overtaken=True)
    present = memory._replace(
        revision=memory.revision + 2, version=memory.version + 2, updated=ctx.tx.now, revised_at=ctx.tx.now
    )
    memories.replace(ctx.tx, ctx.engines.keys, memory, present)
    ctx.pending.note_changed_text(present)
    ctx.log_memory(present, "edit", stands=True)
    ctx.enqueue_files([present])
    return True


# --- saves that take a change back


def takes_back(ctx: WriteContext, old: StoredMemory, new: StoredMemory) -> bool:
    """Return whether a person's save takes back what a verb has changed, as an old buffer of an editor does.

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


def mark_reverted(ctx: WriteContext, memory: StoredMemory) -> None:
    """Mark the present revision of a memory as a save that takes back what a verb had changed."""
    file_journal.set_reverted(ctx.tx, memory.id, memory.revision)


def accept_reverted(ctx: WriteContext, memory: StoredMemory) -> None:
    """Remove the mark: somebody has looked at the save that brought older words back, and keeps them."""
    file_journal.clear_reverted(ctx.tx, memory.id)


def _revision_brought_back(text: str, past: Sequence[Revision], present: str) -> Revision | None:
    """Return the past revision that a save brings back: equal to it, or nearer to it than to the present text."""
    if text == present:
        return None
    by_text = {revision.text: revision for revision in past if revision.text != present}
    texts = list(by_text)
    at = texts.index(text) if text in by_text else nearest(text, [*texts, present], at_least=_MIN_SIMILARITY)
    return by_text[texts[at]] if at is not None and at < len(texts) else None

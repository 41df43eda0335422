"""Saves that a person made before the present text of a memory, and that arrive after it: they go into its history."""

from __future__ import annotations

from typing import TYPE_CHECKING

from commonbook.files.save_order import SaveOrder, is_based_on_present, place_in_history
from commonbook.markdown.memory_conversion import title_of_note
from commonbook.model.memory import Revision
from commonbook.model.spaces import FILESYSTEM
from commonbook.model.stored_memory import StoredMemory
from commonbook.tables import memories, revisions

if TYPE_CHECKING:
    from commonbook.markdown.front_matter import Document
    from commonbook.tables.file_journal import JournalEntry, SyncedFile
    from commonbook.write.context import WriteContext


def is_earlier(
    ctx: WriteContext,
    memory: StoredMemory,
    document: Document,
    *,
    journal: JournalEntry | None,
    synced: SyncedFile | None,
) -> bool:
    """Tell whether a save was made before the present text: there is a pending write, and it was not made over it."""
    order = place_in_history(row_version=memory.version, journal=journal)
    return order is SaveOrder.EARLIER and not _is_over_pending(ctx, memory, synced, document)


def _is_over_pending(ctx: WriteContext, memory: StoredMemory, synced: SyncedFile | None, document: Document) -> bool:
    """Tell whether a save at the path of a pending write was made over the content of that write."""
    if synced is None:
        return document.id == memory.id
    before = revisions.find(ctx.tx, memory, memory.revision - 1)
    return before is not None and is_based_on_present(document.text, present=memory.text, before=before.text)


def is_known(ctx: WriteContext, memory: StoredMemory, document: Document) -> bool:
    """Tell whether the title and text of a file are those of the memory or of one of its older revisions."""
    content = (title_in_file(memory, document), document.text)
    older = ((revision.title, revision.text) for revision in revisions.past_revisions(ctx.tx, memory))
    return content == (memory.title, memory.text) or content in older


def title_in_file(memory: StoredMemory, document: Document) -> str:
    """Return the title that a file of a memory has."""
    if document.title or not document.has_front:
        return document.title or memory.title
    return title_of_note(memory, document.text)


def record_earlier(ctx: WriteContext, memory: StoredMemory, document: Document) -> bool:
    """Record a save that was made before the present text and arrived after it; tell whether its text is new.

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

"""Saves that a person made before the present text of a memory, and that arrive after it: they go into its history."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from commonbook.files.save_order import is_based_on_present, revision_brought_back
from commonbook.markdown.memory_conversion import title_of_note
from commonbook.model.memory import Memory, Revision
from commonbook.model.spaces import FILESYSTEM
from commonbook.tables import memories, revisions

if TYPE_CHECKING:
    from commonbook.markdown.front_matter import Document
    from commonbook.tables import file_journal
    from commonbook.write.context import WriteContext


BY_HAND: Final = "file"
_MAX_REVISIONS: Final = 20


def is_over_pending(
    ctx: WriteContext, memory: Memory, synced: file_journal.SyncedFile | None, document: Document
) -> bool:
    """Tell whether a save at the path of a pending write was made over the content of that write."""
    if synced is None:
        return document.id == memory.id
    before = revisions.find(ctx.tx, memory, memory.revision - 1)
    return before is not None and is_based_on_present(document.text, present=memory.text, before=before.text)


def brings_back(ctx: WriteContext, old: Memory, new: Memory) -> bool:
    """Tell whether a person's save takes back what a verb has changed, as an old buffer of an editor does.

    People may take back what people wrote, so there must be a text of a verb behind the one that came back.
    """
    if (old.title, old.text) == (new.title, new.text):
        return False
    past = revisions.last_revisions(ctx.tx, old, limit=_MAX_REVISIONS)
    back = revision_brought_back(new.text, past, old.text)
    if back is None:
        return False
    later = [revision.how for revision in past if revision.revision > back.revision]
    return any(not how.startswith(BY_HAND) for how in (*later, old.revised_how))


def is_known(ctx: WriteContext, memory: Memory, document: Document) -> bool:
    """Tell whether the title and text of a file are those of the memory or of one of its older revisions."""
    content = (title_in_file(memory, document), document.text)
    older = ((revision.title, revision.text) for revision in revisions.past_revisions(ctx.tx, memory))
    return content == (memory.title, memory.text) or content in older


def title_in_file(memory: Memory, document: Document) -> str:
    """Return the title that a file of a memory has."""
    if document.title or not document.has_front:
        return document.title or memory.title
    return title_of_note(memory, document.text)


def record_earlier(ctx: WriteContext, memory: Memory, document: Document) -> bool:
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

"""Decides what an import does with a file of a memory that is here: by its words, and by what an export wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING

from commonbook.markdown.memory_conversion import render_memory, title_of_note
from commonbook.tables import file_journal, revisions
from commonbook.text import nearness, user_times

if TYPE_CHECKING:
    from commonbook.markdown.front_matter import Document
    from commonbook.model.stored_memory import StoredMemory
    from commonbook.ports.files import SourceFile
    from commonbook.write.context import WriteContext


def compare_with_history(ctx: WriteContext, file: SourceFile, document: Document, present: StoredMemory) -> str:
    """Return the outcome for a file that differs from its memory, and was not imported before.

    `updated` takes the file over, `older` leaves the memory as it is, `both` names the file to the person.
    """
    words = (document.title or title_of_note(present, document.text), document.text)
    past = [(revision.title, revision.text) for revision in revisions.past_revisions(ctx.tx, present)]
    is_edited_export = bool(file.exported) and file_journal.content_hash(file.data) not in file.exported
    if is_edited_export and file_journal.content_hash(render_memory(present, ctx.engines)) in file.exported:
        return "updated"
    if words == (present.title, present.text):
        is_newer = not file.exported and user_times.time_of_file(file.mtime_ns, now=ctx.tx.now) > present.updated
        return "updated" if is_newer else "older"
    if words in past:
        return "older"
    texts = [text for _, text in (*past, (present.title, present.text))]
    is_based_on_present = not past or nearness.nearest(document.text, texts) == len(past)
    return "updated" if is_based_on_present and not is_edited_export else "both"

"""Applies saves that were displaced while their files were written: as the newest revision, or into the history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from commonbook.errors import BadFile
from commonbook.files import earlier_saves, hand_edits
from commonbook.files.save_order import SaveOrder, place_in_history
from commonbook.markdown.front_matter import Document
from commonbook.markdown.memory_conversion import parse_file
from commonbook.tables import file_journal, memories

if TYPE_CHECKING:
    from commonbook.files.write_out import ConcurrentSave
    from commonbook.model.stored_memory import StoredMemory
    from commonbook.write.context import WriteContext


def apply_concurrent_saves(ctx: WriteContext, saves: Sequence[ConcurrentSave]) -> None:
    """Apply saves that were displaced while their files were written: as the newest revision, or into the history."""
    for save in saves:
        if save.memory in ctx.spaces:
            # A space file that somebody changed while we wrote it: the database decides about spaces.
            continue
        data = ctx.engines.folder.read_displaced(save.name)
        memory = memories.find(ctx.tx, ctx.spaces, save.memory)
        if data is None:
            continue
        if memory is None:
            # The database that had the memory is lost, but its text is here.
            ctx.engines.folder.restore_displaced(save.name, f"recovered-{save.name}.md")
            continue
        document = _parse_or_plain(ctx, data)
        if document.id != memory.id and document.id and memories.find(ctx.tx, ctx.spaces, document.id):
            # The file of another memory was at our path: it is put beside it, where the next scan finds it.
            ctx.engines.folder.restore_displaced(save.name, save.path or memory.path)
            continue
        if file_journal.content_hash(data) in file_journal.known_hashes(ctx.tx, memory.id):
            continue
        if _is_newer(save, memory):
            hand_edits.revise(ctx, memory, hand_edits.apply_document(ctx, memory, document))
        else:
            earlier_saves.record_earlier(ctx, memory, document)


def _is_newer(save: ConcurrentSave, memory: StoredMemory) -> bool:
    """Tell whether a displaced save is newer than its memory: what was written meanwhile is a person's save, or older.

    After a crash nothing is known about it, and it goes into the history.
    """
    if save.journal is None or memory.deleted is not None:
        return False
    journal = None if save.is_later and save.journal.version == memory.version else save.journal
    return place_in_history(row_version=memory.version, journal=journal) is SaveOrder.NEWER


def _parse_or_plain(ctx: WriteContext, data: bytes) -> Document:
    """Parse a file; if it does not parse, return all of it as plain text."""
    try:
        return parse_file(data, ctx.engines)
    except BadFile:
        text = data.decode("utf-8", "replace").replace("\0", "\ufffd")
        return Document(text=text)

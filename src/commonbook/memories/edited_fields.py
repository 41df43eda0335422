"""The fields of a memory after an edit: validated, without secrets, and with the line ends and tags of the text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from commonbook.errors import BadInput
from commonbook.markdown import file_format, obsidian
from commonbook.memories.remember import require_ordered_times
from commonbook.model.memory import UNSET, Changes
from commonbook.model.stored_memory import StoredMemory
from commonbook.text import masking, titles, validation
from commonbook.write.new_memory import title_with_text

if TYPE_CHECKING:
    from commonbook.write.context import WriteContext


def mask(changes: Changes) -> tuple[Changes, int]:
    """Return the changes without secrets, and the number of secrets."""
    total = 0
    if isinstance(changes.text, str):
        text, count = masking.mask(validation.validate_text(changes.text))
        changes, total = changes._replace(text=text), total + count
    if isinstance(changes.title, str):
        title, count = masking.mask_title(validation.validate_title(changes.title) if changes.title else "")
        changes, total = changes._replace(title=title), total + count
    if changes.tags is not UNSET:
        tags, count = masking.mask_tags(validation.validate_tags(changes.tags))
        changes, total = changes._replace(tags=tags), total + count
    if isinstance(changes.metadata, Mapping):
        fields, count = masking.mask_metadata(validation.validate_metadata(changes.metadata))
        changes, total = changes._replace(metadata=fields), total + count
    return changes, total


def apply(ctx: WriteContext, memory: StoredMemory, changes: Changes) -> StoredMemory:
    """Return the memory with its new fields, or refuse them."""
    edited = memory
    if changes.text is not UNSET:
        text = _with_line_ends_of(memory, validation.validate_text(changes.text))
        edited = edited._replace(text=validation.validate_text(text))
        edited = edited._replace(title=title_with_text(memory, edited.text))
    if changes.title is not UNSET:
        title = validation.validate_title(changes.title) if changes.title else ""
        edited = edited._replace(title=title or titles.derive_title(edited.text))
    if changes.kind is not UNSET:
        if memory.notice is not None:
            raise BadInput("a notice stays one", fix="`triage` it, or `delete` it to dismiss it")
        edited = edited._replace(kind=validation.validate_kind(changes.kind))
    if changes.tags is not UNSET:
        edited = edited._replace(tags=validation.validate_tags(changes.tags))
    if changes.importance is not UNSET:
        edited = edited._replace(importance=validation.validate_importance(changes.importance))
    if changes.metadata is not UNSET:
        edited = edited._replace(metadata=validation.validate_metadata(changes.metadata or {}))
    return require_ordered_times(_apply_times(ctx, edited, changes))


def _with_line_ends_of(memory: StoredMemory, text: str) -> str:
    """Return a new text, with CRLF if all lines of the present one end so: an edit changes no line but its own.

    Of a text of one line, the file tells how it ends.
    """
    breaks = memory.text.count("\n")
    has_crlf = memory.text.count("\r\n") == breaks if breaks else file_format.line_end(memory.layout) == "\r\n"
    return re.sub(r"\r?\n", "\r\n", text) if has_crlf else text


def without_tags_of_text(edited: StoredMemory, before: Sequence[str]) -> tuple[StoredMemory, tuple[str, ...]]:
    """Return a memory whose tags were set, and the tags of its text that are not among them.

    Readers get the tags of the text with the others. One that comes back from them is not written a second time.
    """
    own = {tag.casefold() for tag in before}
    in_text = {tag.casefold(): tag for tag in obsidian.tags_of(edited._replace(tags=()))}
    given = {tag.casefold() for tag in edited.tags}
    tags = tuple(tag for tag in edited.tags if tag.casefold() in own or tag.casefold() not in in_text)
    return edited._replace(tags=tags), tuple(tag for folded, tag in in_text.items() if folded not in given)


def _apply_times(ctx: WriteContext, edited: StoredMemory, changes: Changes) -> StoredMemory:
    if changes.occurred is not UNSET:
        edited = edited._replace(occurred=ctx.parse_time("occurred", changes.occurred))
    if changes.valid_from is not UNSET:
        edited = edited._replace(valid_from=ctx.parse_time("valid_from", changes.valid_from))
    if changes.valid_until is not UNSET:
        edited = edited._replace(valid_until=ctx.parse_time("valid_until", changes.valid_until))
    if changes.expires is not UNSET:
        edited = edited._replace(expires=ctx.parse_time("expires", changes.expires))
    return edited

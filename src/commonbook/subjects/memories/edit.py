"""Edits, links and unlinks memories, each in one transaction.

A caller may give the version that it expects (optimistic locking). A change that a person made to the file is applied
first, so that no write overwrites it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from commonbook.core.files import hand_edits, save_order, scan
from commonbook.core.markdown import file_format, front_matter, obsidian, okf
from commonbook.core.markdown.memory_conversion import dialect
from commonbook.core.text import masking, titles, validation
from commonbook.core.write import rewound_messages, store_version
from commonbook.core.write.context import WriteContext
from commonbook.core.write.store_version import title_with_text
from commonbook.core.write.transaction import logging_refusal
from commonbook.errors import BadInput, Conflict, NotAllowed, NotFound, VersionConflict
from commonbook.ports.engines import Engines
from commonbook.subjects.memories import history
from commonbook.subjects.memories.remember import checked_fields, parsed_times, require_ordered_times, resolve_links
from commonbook.subjects.reasoning import link_checks
from commonbook.subjects.sharing import freshness, propagate
from commonbook.values.memory import LAZY, LIVE, UNSET, Changes, Metadata, Receipt
from commonbook.values.request import RequestContext
from commonbook.values.stored_memory import StoredMemory, is_retracted, receipt_of

# --- change


def edit(
    engines: Engines,
    caller: RequestContext,
    memory_id: str,
    changes: Changes,
    *,
    expected_version: int | None,
    to_revision: int | None = None,
    mask: bool = True,
) -> Receipt:
    """Change fields of a memory; an edit that changes nothing keeps the version.

    `to_revision` brings the title and text of an older revision back, as a new revision, without messages that were
    rewound. With the present one, nothing changes but the mark `reverted`, which is removed.
    """
    if to_revision is not None and (changes.text is not UNSET or changes.title is not UNSET):
        raise BadInput("both an older revision and a new text or title are given", fix="give one or the other")
    given, in_words = _mask(changes) if mask else (changes, 0)
    in_text: tuple[str, ...] = ()
    masked = 0
    unfollowed: str | None = None

    def operation(ctx: WriteContext, memory: StoredMemory) -> StoredMemory:
        nonlocal in_text, masked, unfollowed
        if memory.notice is not None:
            raise BadInput("a notice is written by the book", fix="`commonbook triage` decides about it")
        changes, in_metadata = _with_metadata(engines, memory, given, mask=mask)
        masked = in_words + in_metadata
        edited = _apply(ctx, memory, changes)
        if to_revision == memory.revision:
            save_order.accept_reverted(ctx, memory)
        if to_revision is not None:
            title, text = _older_text(ctx, memory, to_revision)
            edited = edited._replace(title=title, text=text)
        if changes.tags is not UNSET:
            edited, in_text = _without_tags_of_text(edited, memory.tags)
        changed = [name for name in Changes._fields if getattr(edited, name) != getattr(memory, name)]
        if {"expires", "valid_until"} & set(changed) and is_retracted(memory, ctx.tx.now):
            raise Conflict(
                f"memory {memory.id} was retracted, which set its times",
                fix="`reinstate` takes the retraction back; then edit the times",
            )
        stored = store_version.store_version(ctx, memory, edited, changed, how="edit") if changed else memory
        # A later edit says it again: nobody may have seen the first receipt.
        is_cut_off = stored.revision > memory.revision and freshness.was_edited(stored)
        unfollowed = _followed_source(memory) if is_cut_off else None
        return stored

    def complete(receipt: Receipt) -> Receipt:
        return receipt._replace(masked=masked, tags_in_text=in_text, unfollowed=unfollowed)

    # An expired memory that is valid for longer supersedes again, which may be refused.
    with logging_refusal(engines, caller.actor, "supersede", ()):
        return change(engines, caller, memory_id, operation, expected_version=expected_version, complete=complete)


def _followed_source(memory: StoredMemory) -> str | None:
    """Return the source that a copy follows, unless it is edited; None for a snapshot, and for no copy."""
    follows = memory.shared is not None and memory.shared.mode in (LIVE, LAZY)
    return memory.source.target if follows and memory.source else None


def _older_text(ctx: WriteContext, memory: StoredMemory, number: int) -> tuple[str, str]:
    """Return the title and text of a revision, which the actor must be allowed to read; without rewound messages."""
    if number == memory.revision:
        return memory.title, memory.text
    for revision in history.readable_past(ctx.tx, memory, ctx.readable):
        if revision.revision == number:
            if revision.readable:
                return revision.title, rewound_messages.text_without_rewound(ctx.tx, ctx.spaces, memory, revision.text)
            raise NotAllowed(
                f"revision {number} of {memory.id} is of a space that {ctx.actor.principal} may not read",
                fix="ask somebody who may read that space",
            )
    raise NotFound(f"memory {memory.id} has no revision {number}", fix="`commonbook history` lists its revisions")


def link(engines: Engines, caller: RequestContext, source: str, relation: str, target: str) -> Receipt:
    """Link a memory to another; a link that exists already is kept as it is."""
    relation = validation.validate_new_relation(relation)
    target = validation.validate_memory_id(target)

    def operation(ctx: WriteContext, memory: StoredMemory) -> StoredMemory:
        if target == memory.id:
            raise BadInput("a memory cannot be linked to itself", fix="name another memory")
        if any((link_.relation, link_.target) == (relation, target) for link_ in memory.links):
            return memory
        _require_own_link(memory, relation)
        added = resolve_links(ctx, memory.id, [(relation, target)])
        link_checks.require_new_links(ctx, memory, added)
        linked = memory._replace(links=(*memory.links, *added))
        return store_version.store_version(ctx, memory, linked, ["links"], how="link")

    with logging_refusal(engines, caller.actor, "supersede", [target] if relation == "supersedes" else []):
        return change(engines, caller, source, operation, also=target)


def unlink(engines: Engines, caller: RequestContext, source: str, relation: str, target: str) -> Receipt:
    """Remove a link."""
    relation = validation.validate_relation(relation)
    target = validation.validate_memory_id(target)

    def operation(ctx: WriteContext, memory: StoredMemory) -> StoredMemory:
        _require_own_link(memory, relation)
        remaining = tuple(link_ for link_ in memory.links if (link_.relation, link_.target) != (relation, target))
        if len(remaining) == len(memory.links):
            raise NotFound(
                f"memory {memory.id} has no link {relation} to {target}", fix="`commonbook show` lists its links"
            )
        return store_version.store_version(ctx, memory, memory._replace(links=remaining), ["links"], how="unlink")

    return change(engines, caller, source, operation)


def _require_own_link(memory: StoredMemory, relation: str) -> None:
    """Refuse to change the link from a copy to its source, or from a notice to its subject."""
    if memory.notice is not None:
        raise BadInput("a notice has the one link to what it is about", fix="link that memory, or `triage` the notice")
    if relation == "shared_from" and memory.shared is not None:
        raise BadInput(
            f"memory {memory.id} is a copy, and has one source",
            fix="`detach` ends the tie to it, `unshare` removes the copy",
        )


def change(
    engines: Engines,
    caller: RequestContext,
    memory_id: str,
    operation: Callable[[WriteContext, StoredMemory], StoredMemory],
    *,
    expected_version: int | None = None,
    also: str | None = None,
    complete: Callable[[Receipt], Receipt] = lambda receipt: receipt,
) -> Receipt:
    """Run an operation on a locked memory, checked for its version; `also` is another memory to lock.

    `complete` adds to the receipt what only the operation knows.
    """
    memory_id = validation.validate_memory_id(memory_id)

    def locked_change(ctx: WriteContext, *, scanned: bool) -> Receipt:
        ctx.lock(id_ for id_ in (memory_id, also) if id_)
        memory = hand_edits.with_file_changes(ctx, ctx.require_writable(memory_id), scanned=scanned)
        require_version(memory, expected_version)
        receipt = receipt_of(operation(ctx, memory), new=False)
        updated = propagate.propagate_to_copies(ctx)
        readable = ctx.readable if updated else {}
        return complete(receipt._replace(copies=sum(copy.space.id in readable for copy in updated)))

    return scan.write_with_scan(engines, caller, locked_change)


def require_version(memory: StoredMemory, expected: int | None) -> None:
    """Raise VersionConflict unless a memory has the version that the caller expects, if it expects one."""
    if expected is not None and memory.version != expected:
        raise VersionConflict(memory=memory.id, expected=expected, found=memory.version)


# --- the changed fields


def _mask(changes: Changes) -> tuple[Changes, int]:
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
    return changes, total


def _with_metadata(engines: Engines, memory: StoredMemory, changes: Changes, *, mask: bool) -> tuple[Changes, int]:
    """Return the changes without secrets in new metadata, and their number; what the memory has stays as it is.

    A field of the file that cannot be metadata, such as a mapping, is not written over.
    """
    if not isinstance(changes.metadata, Mapping):
        return changes, 0
    before, given = memory.metadata, front_matter.require_metadata(changes.metadata)
    new = {name: value for name, value in given.items() if Metadata({name: value}) != {name: before.get(name)}}
    in_file = okf.front_fields(memory.layout, dialect(engines))
    taken = {name for name, value in in_file.items() if value is not None} - front_matter.read_metadata(in_file).keys()
    if taken & new.keys():
        raise Conflict(
            f"the file has a field {min(taken & new.keys())!r} that is no metadata, such as a mapping or a long text",
            fix=f"choose another name, or change the field in {memory.path}",
        )
    masked, count = masking.mask_metadata(new) if mask else (new, 0)
    return changes._replace(metadata={**given, **masked}), count


def _apply(ctx: WriteContext, memory: StoredMemory, changes: Changes) -> StoredMemory:
    """Return the memory with its new fields, or refuse them."""
    edited = memory
    if changes.text is not UNSET:
        text = _with_line_ends_of(memory, validation.validate_text(changes.text))
        edited = edited._replace(text=validation.validate_text(text))
        edited = edited._replace(title=title_with_text(memory, edited.text))
    if changes.title is not UNSET:
        title = validation.validate_title(changes.title) if changes.title else ""
        edited = edited._replace(title=title or titles.derive_title(edited.text))
    return require_ordered_times(edited._replace(**checked_fields(changes), **parsed_times(ctx, changes)))


def _with_line_ends_of(memory: StoredMemory, text: str) -> str:
    """Return a new text, with CRLF if all lines of the present one end so: an edit changes no line but its own.

    Of a text of one line, the file tells how it ends.
    """
    breaks = memory.text.count("\n")
    has_crlf = memory.text.count("\r\n") == breaks if breaks else file_format.line_end(memory.layout) == "\r\n"
    return re.sub(r"\r?\n", "\r\n", text) if has_crlf else text


def _without_tags_of_text(edited: StoredMemory, before: Sequence[str]) -> tuple[StoredMemory, tuple[str, ...]]:
    """Return a memory whose tags were set, and the tags of its text that are not among them.

    Readers get the tags of the text with the others. One that comes back from them is not written a second time.
    """
    own = {tag.casefold() for tag in before}
    in_text = {tag.casefold(): tag for tag in obsidian.tags_of(edited._replace(tags=()))}
    given = {tag.casefold() for tag in edited.tags}
    tags = tuple(tag for tag in edited.tags if tag.casefold() in own or tag.casefold() not in in_text)
    return edited._replace(tags=tags), tuple(tag for folded, tag in in_text.items() if folded not in given)

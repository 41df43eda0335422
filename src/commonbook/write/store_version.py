"""Stores a new version of a memory: rows, links, history, copy binding, log entry and file.

Every change of a memory ends here, whether it came through the API or from an edited file.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from commonbook.markdown import keyed_hashes, memory_conversion
from commonbook.markdown.front_matter import Document
from commonbook.model.invalidation import REASONING, RETRACT
from commonbook.model.memory import DETACHED, SNAPSHOT
from commonbook.model.spaces import SpaceScope
from commonbook.model.stored_memory import StoredMemory, is_retracted
from commonbook.tables import copies, file_journal, links, memories, revisions
from commonbook.write import episode_sessions, link_hashes, proposals, rewound_messages, superseded_log
from commonbook.write.context import WriteContext

_REASONING_RELATIONS: Final = frozenset((*REASONING, "supersedes", "shared_from"))
"""Relations whose change may need a notice to dependents."""

_FROM_FILES: Final = frozenset({"file", "import"})
"""The verbs of changes that came as files, in which a line may say more than a caller may."""


def store_version(
    ctx: WriteContext,
    old: StoredMemory,
    new: StoredMemory,
    changed_fields: Sequence[str],
    *,
    how: str,
    document: Document | None = None,
    version: int | None = None,
    **logged: object,
) -> StoredMemory:
    """Store a changed memory as a new version; if title or text changed, archive the old revision and start a new one.

    `how` is the verb for the history, or "file"; `logged` is added to the payload of the log. `document` is the file
    that a person saved, if it is at the path of the memory. `version` is the new version, if it is not the next one.
    """
    if new.space.id != old.space.id:
        new = proposals.after_move(old, episode_sessions.after_move(ctx, old, new))
        text = rewound_messages.text_after_move(ctx.tx, old, new, by_hand=how == "file")
        if text != new.text:
            new, changed_fields = new._replace(text=text), sorted({*changed_fields, "text"})
    if how in _FROM_FILES:
        new = proposals.in_effect(new)
    new = _without_stale_reasons(new._replace(version=version or old.version + 1, updated=ctx.tx.now))
    new = link_hashes.with_known_hashes(ctx.tx, ctx.engines.keys, ctx.spaces, _rebind(ctx, old, new))
    new = with_hashes(ctx, new)
    if "title" in changed_fields or "text" in changed_fields:
        revisions.archive(ctx.tx, old)
        new = new._replace(
            revision=old.revision + 1, revised_by=ctx.actor.principal, revised_at=ctx.tx.now, revised_how=how
        )
    if new.space.id != old.space.id:
        revisions.move(ctx.tx, old, new.space.id)
        memories.move(ctx.tx, ctx.engines.keys, old, new)
        # The entry does not name the new space, which the readers of this log may not read.
        ctx.log_memory(new._replace(space=old.space), "move.out")
    else:
        memories.replace(ctx.tx, ctx.engines.keys, old, new)
    if new.links != old.links or new.space.id != old.space.id:
        links.replace(ctx.tx, old.space.id, new)
    if new.revision != old.revision or _is_restored(old, new):
        ctx.pending.note_changed_text(new)
    if _validity(old) != _validity(new):
        ctx.note_validity_change(old, new)
    if _reasoning_differs(old, new):
        ctx.note_reasoning_change(old, new)
    ctx.log_memory(new, _action(old, new, how), fields=sorted(changed_fields), **logged)
    superseded_log.record(ctx, old if old.deleted is None else None, new)
    _write_file(ctx, new, document, how=how)
    return new


def without_rewound(ctx: WriteContext, present: StoredMemory, restored: StoredMemory) -> StoredMemory:
    """Return a memory that a verb brings back, or changes by an import, without messages that were rewound.

    It is an episode or a copy of one. A copy that was not edited has taken over what is left. Conflict if nothing is.
    """
    text = rewound_messages.text_without_rewound(ctx.tx, ctx.spaces, present, restored.text)
    link, is_claimed = restored.source, restored.shared is not None and restored.shared.claimed
    if text == restored.text:
        return restored
    remaining = with_hashes(ctx, restored._replace(text=text))
    if link is None or (not is_claimed and link.target_hash not in {None, restored.copy_hash}):
        return remaining
    taken = link._replace(target_hash=remaining.copy_hash)
    return remaining._replace(links=tuple(taken if one == link else one for one in restored.links))


def _write_file(ctx: WriteContext, memory: StoredMemory, document: Document | None, *, how: str) -> None:
    if memory.deleted is not None:
        return
    if how == "file":
        write_back(ctx, memory, document)
    else:
        ctx.enqueue_files([memory])


def write_back(ctx: WriteContext, memory: StoredMemory, document: Document | None, *, is_new: bool = False) -> None:
    """Have the file of a memory written that a person's save changed; not if the file there says all of it already.

    Only the file of a new memory needs its id at once: by its path, a file that has none is known, such as one from a
    commit that is older than the id. A pending write is replaced in any case: it would put an older text over the file.
    """
    if document is not None and not is_new:
        document = memory_conversion.with_absent_filled(document, memory)
    is_complete = document is not None and memory_conversion.says_the_same(document, memory, ctx.engines)
    if not is_complete or file_journal.journal_entries(ctx.tx, [memory.id]):
        ctx.enqueue_files([memory], is_write_back=True)


def with_hashes(ctx: WriteContext, memory: StoredMemory) -> StoredMemory:
    """Return a memory with the hashes of what it says now; every row is stored with these."""
    return keyed_hashes.with_hashes(ctx.engines.keys, memory)


def version_from_file(ctx: WriteContext, *, above: int = 0) -> int:
    """Return the version of a memory that a file has made or changed: milliseconds since 1970.

    The database may have been lost, or be older than its files. No version that somebody saw before can be equal to
    this one by accident, so that no `expected_version` from then matches.
    """
    return max(int(ctx.tx.now.timestamp() * 1000), above + 1)


def delete(ctx: WriteContext, memory: StoredMemory, *, how: str) -> StoredMemory:
    """Delete a memory and return its tombstone; its history stays. With `how` "file" the file is gone already."""
    copies.unbind(ctx.tx, memory)
    tombstone = memory._replace(deleted=ctx.tx.now, version=memory.version + 1, updated=ctx.tx.now)
    memories.replace(ctx.tx, ctx.engines.keys, memory, tombstone)
    ctx.note_validity_change(memory)
    ctx.note_reasoning_change(memory, tombstone)
    if how != "file" or copies.end_of(tombstone) is not None:
        # Its copies note when it ended; if only a file is gone, the database may be too old to know.
        ctx.pending.note_changed_text(tombstone)
    ctx.log_memory(tombstone, "delete", how=how)
    if how != "file":
        ctx.enqueue_files([tombstone])
    return tombstone


def _without_stale_reasons(memory: StoredMemory) -> StoredMemory:
    """Drop the reasons for superseding memories that it no longer supersedes."""
    superseded = {link.target for link in memory.links if link.relation == "supersedes"}
    return memory._replace(
        supersede_reasons=tuple(reason for reason in memory.supersede_reasons if reason.superseded in superseded)
    )


def _rebind(ctx: WriteContext, old: StoredMemory, new: StoredMemory) -> StoredMemory:
    """Bind a copy to its root in its present space; if the space has another copy of that root, detach this one."""
    if new.shared is None or _binding_key(old) == _binding_key(new):
        return new
    copies.unbind(ctx.tx, old)
    if not copies.is_bound(new) or bind_copy(ctx, new):
        return new
    return detach(ctx, new)


def _reasoning_differs(old: StoredMemory, new: StoredMemory) -> bool:
    """Tell whether a change may need or end a notice: other dependencies, another space, another end."""
    if (old.deleted, old.expires, old.space.id) != (new.deleted, new.expires, new.space.id):
        return True
    return _dependencies(old) != _dependencies(new)


def _validity(memory: StoredMemory) -> tuple[object, ...]:
    """Return the fields that decide when a memory ends and what it supersedes, for itself and for its copies."""
    superseded = {link.target for link in memory.links if link.relation == "supersedes"}
    times = (memory.deleted, memory.expires, memory.valid_until, memory.valid_from, memory.occurred, memory.created)
    return superseded, times, copies.copied_from(memory)


def _dependencies(memory: StoredMemory) -> tuple[object, ...]:
    is_copy = memory.shared is not None and memory.shared.mode != DETACHED
    return is_copy, {(link.relation, link.target) for link in memory.links if link.relation in _REASONING_RELATIONS}


def _binding_key(memory: StoredMemory) -> tuple[object, ...]:
    """Return the fields that decide whether and where a copy is bound; the words that it took over do not."""
    tie = (memory.shared.mode, memory.shared.root, memory.source and memory.source.target) if memory.shared else None
    return memory.space.id, memory.deleted, tie


def add_from_file(ctx: WriteContext, memory: StoredMemory, *, readable: SpaceScope) -> StoredMemory:
    """Add a memory that came as a file, with the hashes of what it says, and compare it with what is here already.

    The links that it has are translated if their targets are in the spaces `readable`.
    """
    keys, memory = ctx.engines.keys, proposals.in_effect(memory)
    memory = link_hashes.with_known_hashes(ctx.tx, keys, readable, _bind_copy_from_file(ctx, memory))
    (memory,) = memories.add(ctx.tx, keys, [memory])
    links.add(ctx.tx, memory.space.id, memory.links)
    _note_new_target(ctx, memory)
    return memory


def add_many_from_files(ctx: WriteContext, new: Sequence[StoredMemory], *, readable: SpaceScope) -> list[StoredMemory]:
    """Add memories that came as files, as `add_from_file` adds one; return them in the same order.

    The rows of those without links, as most are, are written together.
    """
    linked = {memory.id: memory for memory in new if memory.links or memory.shared}
    rows = memories.add(ctx.tx, ctx.engines.keys, [memory for memory in new if memory.id not in linked])
    added = {memory.id: memory for memory in rows}
    incoming = links.incoming_any_space(ctx.tx, tuple(added), relations=None)
    for target in dict.fromkeys(link.target for link in incoming):
        _note_new_target(ctx, added[target])
    added |= {id_: add_from_file(ctx, memory, readable=readable) for id_, memory in linked.items()}
    return [added[memory.id] for memory in new]


def _note_new_target(ctx: WriteContext, memory: StoredMemory) -> None:
    """Note a new memory to which others may have links already: dependents, copies, and what supersedes it."""
    link_hashes.confirm_incoming(ctx, memory)
    ctx.pending.note_changed_text(memory)
    ctx.note_validity_change(memory)
    ctx.note_reasoning_change(None, memory)


def _bind_copy_from_file(ctx: WriteContext, memory: StoredMemory) -> StoredMemory:
    """Bind a memory that came as a file, if it is a copy; detach it if its space has another copy of that root."""
    if memory.shared is None or not copies.is_bound(memory):
        return memory
    return memory if bind_copy(ctx, memory) else detach(ctx, memory)


def detached(memory: StoredMemory) -> StoredMemory:
    """Return the memory as no longer a copy; its origin stays recorded."""
    return memory._replace(shared=memory.shared._replace(mode=DETACHED)) if memory.shared else memory


def detach(ctx: WriteContext, copy: StoredMemory) -> StoredMemory:
    """Return a copy as detached: what had ended, or was retracted, by its sources, stays so without the tie.

    A decision is kept without its note, which the readers of the copy may not be meant to read. It takes the place of
    what was decided about the copy itself for the same reason: `reinstate` can take it back.
    """
    now = ctx.tx.now
    sources = copies.chain_of(copy, copies.sources_of(ctx.tx, ctx.spaces, [copy]))[1:]
    retractions = {
        decision.key: decision._replace(note="")
        for source in reversed(sources)
        if is_retracted(source, now)
        for decision in source.decisions
        if decision.verdict == RETRACT
    }
    own = [one for one in copy.decisions if one.verdict == RETRACT or one.key not in retractions]
    decided = {decision.key for decision in own}
    return detached(copy)._replace(
        expires=_ended(copy.expires, (source.expires for source in sources), now),
        valid_until=_ended(copy.valid_until, (source.valid_until for source in sources), now),
        decisions=(*own, *(one for key, one in retractions.items() if key not in decided)),
    )


def following_no_more(ctx: WriteContext, copy: StoredMemory) -> StoredMemory:
    """Return a live or lazy copy as a snapshot: it gets no new words, and still ends with its source."""
    if copy.shared is None or copy.shared.mode in {SNAPSHOT, DETACHED}:
        return copy
    return copy._replace(shared=copy.shared._replace(mode=SNAPSHOT, mode_set=ctx.tx.now))


def _ended(own: datetime | None, others: Iterable[datetime | None], now: datetime) -> datetime | None:
    """Return the first of some times that have passed; else the own one."""
    return min((time for time in (own, *others) if time is not None and time <= now), default=own)


def bind_copy(ctx: WriteContext, copy: StoredMemory) -> bool:
    """Bind a copy to its root in its space; return False if the space has the root itself or another copy of it."""
    root = memories.find(ctx.tx, {copy.space.id: copy.space}, copy.root)
    return (root is None or root.deleted is not None) and copies.bind(ctx.tx, copy)


def _is_restored(old: StoredMemory, new: StoredMemory) -> bool:
    return old.deleted is not None and new.deleted is None


def _action(old: StoredMemory, new: StoredMemory, how: str) -> str:
    if _is_restored(old, new):
        return "undelete" if how == "undelete" else "restore"
    if new.space.id != old.space.id:
        return "move.in"
    return "edit" if how == "file" else how

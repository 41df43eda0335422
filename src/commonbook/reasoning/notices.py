"""Notices: a memory gets one when an ancestor is superseded or deleted, in the transaction of that change.

After every write, each dependent of a changed memory has exactly one notice for each of its invalidations that has no
decision. The id of a notice is a hash of the dependent and the invalidation, so that no notice is created twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from hashlib import sha256
from typing import Final

from commonbook.access import permissions
from commonbook.errors import FileInTheWay, TooLarge
from commonbook.files import hand_edits
from commonbook.markdown.memory_conversion import render_memory
from commonbook.model.invalidation import DELETED, DISMISS, Decision, Invalidation, Notice
from commonbook.model.memory import Link, Memory
from commonbook.model.spaces import FILESYSTEM, Space, SpaceScope
from commonbook.ports.database import Reading
from commonbook.reasoning import invalidations as graph
from commonbook.reasoning.dependents import dependents_of
from commonbook.tables import file_journal, links, memories
from commonbook.text import file_paths, space_names
from commonbook.write import store_version
from commonbook.write.context import WriteContext
from commonbook.write.foreign_writes import ForeignWrite
from commonbook.write.new_memory import new_memory

NOTICE_TAG: Final = "_invalidation"
NOTICE_LIFETIME: Final = timedelta(days=7)
_NOTICE_RELATION: Final = "related_to"
_MAX_PATH_IDS: Final = 20


def update_notices(ctx: WriteContext) -> list[Memory]:
    """Bring the notices of all dependents of changed memories up to date; return those that are new."""
    created: list[Memory] = []
    while batch := ctx.pending.take_reasoning_changes():
        _dismiss(ctx, [after for before, after in batch.values() if before is not None and _is_removal(before, after)])
        _lock_dependencies(ctx, [memory for states in batch.values() for memory in states if memory is not None])
        changed = _affected(ctx, {id_: states for id_, states in batch.items() if states[0] is not None})
        added = _affected(ctx, {id_: states for id_, states in batch.items() if states[0] is None})
        notifying = ctx.because(ForeignWrite.NOTICE)
        created += _sync_notices(notifying, sorted(changed), withdraw=True)
        # Files arrive one by one, so the cause of a notice may arrive after it: until then nothing is withdrawn.
        created += _sync_notices(notifying, sorted(added - changed), withdraw=False)
    return created


def _is_removal(before: Memory, after: Memory) -> bool:
    """Tell whether a change deleted a notice."""
    return before.notice is not None and before.deleted is None and after.deleted is not None


def _lock_dependencies(ctx: WriteContext, changed: Sequence[Memory]) -> None:
    """Lock the ancestors of changed memories, and the memories that they supersede, until the transaction ends.

    So no concurrent transaction invalidates those ancestors, or adds dependents of the superseded memories.
    """
    if ctx.tx.has_concurrent_writers:
        ctx.lock({target for memory in changed for target in _superseded(memory)})
        graph.ancestors_of(ctx.tx, ctx.spaces, changed, lock=ctx.lock)


def _superseded(memory: Memory) -> list[str]:
    return [link.target for link in memory.links if link.relation == "supersedes"]


def _affected(ctx: WriteContext, changes: Mapping[str, tuple[Memory | None, Memory]]) -> set[str]:
    """Return the memories whose notices may change: the changed ones, their dependents, and those of superseded ones.

    Each change is a pair of states, before and after.
    """
    roots = set(changes)
    for states in changes.values():
        roots.update(target for memory in states if memory is not None for target in _superseded(memory))
    if not roots:
        return roots
    dependents = dependents_of(ctx.tx, ctx.spaces, sorted(roots))
    reasoned = {
        id_
        for id_, states in changes.items()
        if any(memory is not None and graph.direct_sources(memory) for memory in states)
    }
    # The file of a notice may have been moved or restored by hand: its dependent is checked too.
    about = {
        memory.notice.dependent
        for states in changes.values()
        for memory in states
        if memory is not None and memory.notice
    }
    return reasoned | about | {id_ for id_, node in dependents.items() if node.own}


def notify(ctx: WriteContext, *, memory_id: str) -> None:
    """Create the notices of a memory's dependents, as if it had been invalidated just now."""
    ctx.lock([memory_id])
    dependents = dependents_of(ctx.tx, ctx.spaces, [memory_id])
    _sync_notices(ctx, sorted(id_ for id_, node in dependents.items() if node.own), withdraw=False)


# --- comparing notices with invalidations


def _sync_notices(ctx: WriteContext, ids: Sequence[str], *, withdraw: bool) -> list[Memory]:
    """Create missing notices of some memories; with `withdraw`, also remove obsolete ones and move misplaced ones."""
    # Existing notices are read first: the cause of a notice that is seen here is then read below, unless it is gone.
    existing = _open_notices(ctx.tx, ctx.spaces, ids) if withdraw else {}
    dependents = memories.get_headers_any_space(ctx.tx, ctx.spaces, ids)
    live = [memory for memory in dependents.values() if memory.deleted is None and memory.notice is None]
    ancestors = graph.ancestors_of(ctx.tx, ctx.spaces, live)
    invalidations = {memory.id: graph.invalidations_of(memory, ancestors, own=True) for memory in live}
    decided = {memory.id: {decision.key for decision in memory.decisions} for memory in live}
    for memory, notice in existing.values():
        if notice.key not in invalidations.get(notice.dependent, {}) or notice.key in decided[notice.dependent]:
            remove_notice(ctx, memory, how="withdraw")
        elif memory.space.name != _notice_space_name(dependents[notice.dependent].space):
            _move_notice(ctx, memory, dependents[notice.dependent].space)
    wanted = {
        # Readers of the dependent can read its notice, but perhaps no other memory on the path.
        notice_id(memory.id, invalidation): (
            memory,
            graph.visible_invalidation(invalidation, ancestors.known, {memory.space.id}),
        )
        for memory in live
        for key, invalidation in invalidations[memory.id].items()
        if key not in decided[memory.id]
    }
    return _create_missing(ctx, wanted)


def _open_notices(tx: Reading, spaces: SpaceScope, dependents: Sequence[str]) -> dict[str, tuple[Memory, Notice]]:
    """Return the open notices about some memories by id, each with its content."""
    incoming = links.incoming_any_space(tx, dependents, relations=(_NOTICE_RELATION,))
    headers = memories.get_headers_any_space(tx, spaces, sorted({link.source for link in incoming}))
    return {
        id_: (memory, memory.notice) for id_, memory in headers.items() if memory.notice is not None and is_open(memory)
    }


def notices_about(tx: Reading, spaces: SpaceScope, dependent: str) -> list[Memory]:
    """Return the open notices about a memory."""
    return [
        memory for memory, notice in _open_notices(tx, spaces, [dependent]).values() if notice.dependent == dependent
    ]


def is_open(memory: Memory) -> bool:
    """Tell whether a memory is a notice that is not settled; its id must be the hash that we would give it."""
    notice = memory.notice
    if notice is None or memory.deleted is not None:
        return False
    return memory.id == notice_id(notice.dependent, Invalidation(*notice.key))


def notice_id(dependent: str, cause: Invalidation) -> str:
    """Return the id of the notice about a dependent and an invalidation: a hash, the same on every machine."""
    digits = sha256(f"{dependent} {cause.invalidated} {cause.invalidating}".encode()).hexdigest()
    return f"{digits[:8]}-{digits[8:12]}-8{digits[13:16]}-a{digits[17:20]}-{digits[20:32]}"


# --- creating and moving


def _create_missing(ctx: WriteContext, wanted: Mapping[str, tuple[Memory, Invalidation]]) -> list[Memory]:
    """Create the notices that do not exist, and reopen those that were withdrawn."""
    existing = memories.get_headers_any_space(ctx.tx, ctx.spaces, sorted(wanted))
    missing = {
        id_: pair for id_, pair in sorted(wanted.items()) if id_ not in existing or existing[id_].deleted is not None
    }
    reasons = _reasons(ctx, [invalidation for _, invalidation in missing.values()])
    created: list[Memory] = []
    for id_, (dependent, invalidation) in missing.items():
        notice = _new_notice(ctx, id_, dependent, invalidation, reasons.get(invalidation.key, ""))
        if id_ in existing:
            notice = _reopen(ctx, existing[id_], notice)
        created.append(notice)
    new = [notice for notice in created if notice.id not in existing]
    memories.add(ctx.tx, new)
    for space in {notice.space.id for notice in new}:
        links.add(ctx.tx, space, [link for notice in new if notice.space.id == space for link in notice.links])
    for notice in created:
        dependent, invalidation = missing[notice.id]
        ctx.log_memory(
            notice,
            "notify",
            dependent.id,
            dependent=dependent.id,
            invalidated=invalidation.invalidated,
            invalidating=invalidation.invalidating,
            depth=invalidation.depth,
            path=list(invalidation.path),
        )
    ctx.enqueue_files(created)
    return created


def _reasons(ctx: WriteContext, invalidations: Iterable[Invalidation]) -> dict[tuple[str, str], str]:
    """Return the reasons that were given for these supersessions, by the key of the invalidation."""
    successors = memories.get_headers_any_space(
        ctx.tx, ctx.spaces, sorted({invalidation.invalidating for invalidation in invalidations} - {DELETED})
    )
    return {
        (reason.superseded, memory.id): reason.why
        for memory in successors.values()
        for reason in memory.supersede_reasons
    }


def _new_notice(ctx: WriteContext, id_: str, dependent: Memory, invalidation: Invalidation, why: str) -> Memory:
    space = ctx.system_space(_notice_space_name(dependent.space))
    now = ctx.tx.now
    return new_memory(
        ctx,
        memory_id=id_,
        space=space,
        path=file_paths.memory_path(space.name, now, "invalidation", id_, taken=True),
        how="notify",
        kind="notice",
        title=f"invalidation: {invalidation.invalidated} -> {dependent.id}",
        text=_notice_text(id_, dependent, invalidation, why),
        tags=(NOTICE_TAG,),
        expires=now + NOTICE_LIFETIME,
        links=(Link(id_, _NOTICE_RELATION, dependent.id, dependent.revision),),
        notice=Notice(dependent.id, invalidation.invalidated, invalidation.invalidating, now),
    )


def _notice_text(id_: str, dependent: Memory, invalidation: Invalidation, why: str) -> str:
    """Return the text of a notice: ids only, since its reader may not be able to read the memories."""
    invalidating = invalidation.invalidating
    change = "was deleted" if invalidating == DELETED else f"was superseded by {invalidating}"
    steps = "directly" if invalidation.depth == 1 else f"in {invalidation.depth} steps"
    path = " <- ".join(ancestor_id or "…" for ancestor_id in _shorten(invalidation.path))
    return (
        f"{invalidation.invalidated} {change}{f': {why}' if why else '.'}\n\n"
        f"{dependent.id} depends on it {steps}: {path}\n\n"
        f"Decide with `commonbook triage {id_} keep`, or `retract`, `supersede` or `dismiss`."
    )


def _shorten(path: Sequence[str | None]) -> Sequence[str | None]:
    """Return both ends of a long path; the inbox shows all of it."""
    return path if len(path) <= _MAX_PATH_IDS else (*path[: _MAX_PATH_IDS // 2], None, *path[-_MAX_PATH_IDS // 2 :])


def _notice_space_name(space: Space) -> str:
    return f"{space.name}/{space_names.INVALIDATIONS}"


def _reopen(ctx: WriteContext, withdrawn: Memory, notice: Memory) -> Memory:
    """Store a notice in place of the withdrawn one with the same id, as the next version of its history."""
    reopened = notice._replace(
        created=withdrawn.created,
        version=withdrawn.version + 1,
        revision=withdrawn.revision,
        path=_free_path(ctx, notice),
    )
    _store(ctx, withdrawn, reopened)
    return reopened


def _move_notice(ctx: WriteContext, header: Memory, to: Space) -> None:
    """Move a notice after its dependent was moved to another space."""
    notice = memories.get_many(ctx.tx, ctx.spaces, [header.id])[header.id]
    space = ctx.system_space(_notice_space_name(to))
    path = file_paths.memory_path(space.name, notice.created, "invalidation", notice.id, taken=True)
    moved = notice._replace(space=space, path=_free_path(ctx, notice._replace(path=path)), version=notice.version + 1)
    ctx.record_move(notice, moved.path)
    _store(ctx, notice, moved)
    ctx.log_memory(notice, "move.out", to=space.id)
    ctx.log_memory(moved, "move.in")
    ctx.enqueue_files([moved])


def _free_path(ctx: WriteContext, notice: Memory) -> str:
    """Return the path of a notice or, if another memory has it, one with the notice's id."""
    owner = memories.at_path(ctx.tx, notice.path)
    path = notice.path if owner in {None, notice.id} else notice.path.replace("--", f"--{notice.id}--")
    if ctx.engines.folder.keeps_files:
        file_journal.clear_former_path(ctx.tx, path)
    return path


def _store(ctx: WriteContext, old: Memory, new: Memory) -> None:
    if old.space.id == new.space.id:
        memories.replace(ctx.tx, new)
    else:
        memories.move(ctx.tx, old, new)
    links.replace(ctx.tx, old.space.id, new)


# --- removing and deciding


def remove_notice(ctx: WriteContext, outline: Memory, *, how: str, **logged: object) -> None:
    """Delete a notice that is withdrawn or decided; its content stays in the log."""
    notice = memories.get_many(ctx.tx, ctx.spaces, [outline.id])[outline.id]
    deleted = notice._replace(deleted=ctx.tx.now, version=notice.version + 1, updated=ctx.tx.now)
    memories.replace(ctx.tx, deleted)
    ctx.log_memory(deleted, how, **logged)
    ctx.enqueue_files([deleted])


def _dismiss(ctx: WriteContext, removed: Sequence[Memory]) -> None:
    """Record the decision `dismiss` for notices that were removed by hand."""
    for removed_notice in removed:
        notice = removed_notice.notice
        if notice is None:
            continue
        ctx.lock([notice.dependent])
        memory = memories.find(ctx.tx, ctx.spaces, notice.dependent)
        if memory is None or memory.deleted is not None:
            continue
        if notice.key in {decision.key for decision in memory.decisions}:
            continue
        if memory.space.id not in ctx.writable:
            raise permissions.refusal(ctx.actor, memory.space.name)
        with suppress(
            FileInTheWay, hand_edits.FileNotInPlace, *([TooLarge] if ctx.actor.principal == FILESYSTEM else [])
        ):
            # If the dependent's file cannot be written, it stays suspect and the notice is created again.
            memory = hand_edits.with_file_changes(ctx.as_filesystem(), memory, scanned=False)
            record_decision(ctx, memory, [Invalidation(*notice.key)], DISMISS, "its notice was removed")


def record_decision(
    ctx: WriteContext, memory: Memory, settled: Sequence[Invalidation], verdict: str, note: str, **also: object
) -> Memory:
    """Store a decision about invalidations in the memory; `also` has other fields that change with it."""
    by, at = ctx.actor.principal, ctx.tx.now
    settled_keys = {invalidation.key for invalidation in settled}
    kept = [decision for decision in memory.decisions if decision.key not in settled_keys]
    added = [Decision(verdict, cause.invalidated, cause.invalidating, by, at, note) for cause in settled]
    decided = memory._replace(decisions=(*kept, *added), **also)  # type: ignore[arg-type]
    changed = ["decisions", *also]
    # A front matter without room for the decision is refused before anything is changed.
    render_memory(decided, ctx.engines)
    return store_version.store_version(ctx, memory, decided, changed, how="triage")

"""Notices: a memory gets one when an ancestor is superseded or deleted, or when its own successor has ended.

That happens in the transaction of the change; for a successor that expires, a job does it at that time.

After every write, each dependent of a changed memory has exactly one notice for each of its invalidations that has no
decision. The id of a notice is a hash of the dependent and the invalidation, so that no notice is created twice.
`withdraw_notices` decides which ones are withdrawn; `open_notices` reads those that are open.

The inbox: the open notices about memories that an actor may read, one page at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from commonbook.core.access import permissions
from commonbook.core.tables import copies, file_journal, jobs, links, memories, spaces, supersession
from commonbook.core.text import space_names, titles, validation
from commonbook.core.write.context import ForeignWrite, WriteContext
from commonbook.core.write.store_version import new_memory
from commonbook.core.write.transaction import affected_by
from commonbook.ports.database import Reading
from commonbook.ports.engines import Engines
from commonbook.subjects.reasoning import invalidations as graph
from commonbook.subjects.reasoning.dependents import dependents_of, with_notices
from commonbook.subjects.reasoning.invalidations import NOTICE_RELATION, notice_id
from commonbook.values.invalidation import CAUSES_WITHOUT_ID, DELETED, ENDED, Invalidation, Notice
from commonbook.values.memory import Filter
from commonbook.values.reasoning import Inbox, InboxItem, MemoryReference
from commonbook.values.spaces import Actor, Space, SpaceScope
from commonbook.values.stored_memory import StoredLink, StoredMemory, is_missing

_MAX_JOB_WAIT: Final = jobs.MAX_WAIT / 2
"""A job for a later time is due after this long, and then waits again."""

NOTICE_TAG: Final = "_invalidation"
NOTICE_LIFETIME: Final = timedelta(days=7)
_MAX_PATH_IDS: Final = 20


def update_notices(ctx: WriteContext) -> list[StoredMemory]:
    """Bring the notices of all dependents of changed memories up to date; return those that are new."""
    created: list[StoredMemory] = []
    while batch := ctx.pending.take_reasoning_changes():
        _lock_dependencies(ctx, [memory for states in batch.values() for memory in states if memory is not None])
        changed = _affected(ctx, {id_: states for id_, states in batch.items() if states[0] is not None})
        added = _affected(ctx, {id_: states for id_, states in batch.items() if states[0] is None})
        affected = sorted(changed | added)
        created += _sync_notices(ctx, affected, withdraw_from=affected, arriving=added - changed)
        for _, after in batch.values():
            _enqueue_ending(ctx, after)
    return created


def _lock_dependencies(ctx: WriteContext, changed: Sequence[StoredMemory]) -> None:
    """Lock the ancestors of changed memories, and the memories that they supersede, until the transaction ends.

    So no concurrent transaction invalidates those ancestors, or adds dependents of the superseded memories.
    """
    ctx.lock(supersession.predecessors_of(ctx.tx, ctx.spaces, changed))
    graph.lock_ancestors(ctx.tx, changed, ctx.lock)


def _affected(ctx: WriteContext, changes: Mapping[str, tuple[StoredMemory | None, StoredMemory]]) -> set[str]:
    """Return the memories whose notices may change: the changed and the superseded ones, and the dependents of both.

    Each change is a pair of states, before and after.
    """
    if not changes:
        return set()
    states = [memory for pair in changes.values() for memory in pair if memory is not None]
    superseded = supersession.predecessors_of(ctx.tx, ctx.spaces, states)
    dependents = dependents_of(ctx.tx, ctx.spaces, sorted({*changes, *superseded}))
    # The file of a notice may have been moved or restored by hand: its dependent is checked too.
    about = {memory.notice.dependent for memory in states if memory.notice}
    return {*changes, *about, *with_notices(dependents), *affected_by(ctx.tx, ctx.spaces, states)}


def notify(ctx: WriteContext, *, memory_id: str) -> None:
    """Create the notices of a memory's dependents, as if it had been invalidated just now."""
    ctx.lock([memory_id])
    dependents = dependents_of(ctx.tx, ctx.spaces, [memory_id])
    _sync_notices(ctx, sorted(with_notices(dependents)), withdraw_from=())


# --- successors that end


def _enqueue_ending(ctx: WriteContext, memory: StoredMemory) -> None:
    """Enqueue a job for the time at which a memory expires, if others wait for that: those that it supersedes."""
    if memory.deleted is not None or memory.expires is None or memory.expires <= ctx.tx.now:
        return
    if affected_by(ctx.tx, ctx.spaces, [memory]):
        due = min(memory.expires, ctx.tx.now + _MAX_JOB_WAIT)
        jobs.enqueue(ctx.tx, space=memory.space.id, kind=jobs.ENDING_JOB, subject=memory.id, due=due)


def notify_ended(ctx: WriteContext, *, memory_id: str) -> timedelta | None:
    """Create the notices that are due since a memory has ended; return how long to wait if it has not yet."""
    ctx.lock([memory_id])
    memory = memories.find(ctx.tx, ctx.spaces, memory_id)
    if memory is None:
        return None
    if memory.deleted is None and memory.expires is not None and memory.expires > ctx.tx.now:
        return min(memory.expires - ctx.tx.now, _MAX_JOB_WAIT)
    affected = affected_by(ctx.tx, ctx.spaces, [memory])
    ctx.lock(affected)
    _sync_notices(ctx, sorted(affected), withdraw_from=sorted(affected))
    return None


# --- comparing notices with invalidations


def _sync_notices(
    ctx: WriteContext, ids: Sequence[str], *, withdraw_from: Sequence[str], arriving: Container[str] = ()
) -> list[StoredMemory]:
    """Create missing notices of some memories; remove obsolete and move misplaced ones of those in `withdraw_from`.

    All memories whose notices are not up to date are given at once, since the notices of others tell about theirs.
    Around those in `arriving`, something was added: perhaps by files, which arrive one by one.
    """
    ctx = ctx.because(ForeignWrite.NOTICE)
    # Existing notices are read first: the cause of a notice that is seen here is then read below, unless it is gone.
    existing = graph.about(ctx.tx, ctx.spaces, withdraw_from)
    dependents = memories.get_headers_any_space(ctx.tx, ctx.spaces, ids)
    live = [memory for memory in dependents.values() if memory.deleted is None and memory.notice is None]
    # Most memories have no invalid ancestor: those that they directly depend on tell so, and nothing has to be walked.
    invalid = bool(existing) or graph.may_be_invalidated(ctx.tx, ctx.spaces, live)
    ancestors = graph.ancestors_of(ctx.tx, ctx.spaces, live) if invalid else graph.Ancestors({}, {})
    invalidations = graph.own_causes(ctx.tx, ctx.spaces, live, ancestors, ctx.tx.now)
    decided = {memory.id: memory.settled_causes for memory in live}
    known = KnownCauses(dependents, invalidations, decided, ancestors, arriving)
    for memory, notice in (one for found in existing.values() for one in found):
        dependent = dependents.get(notice.dependent)
        if is_obsolete(ctx, notice, known):
            remove_notice(ctx, memory, how="withdraw")
        elif dependent is not None and memory.space.name != _notice_space_name(dependent.space):
            _move_notice(ctx, memory, dependent.space)
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


# --- creating and moving


def _create_missing(ctx: WriteContext, wanted: Mapping[str, tuple[StoredMemory, Invalidation]]) -> list[StoredMemory]:
    """Create the notices that do not exist, reopen those that were withdrawn, and put back those that were edited.

    After a lost database, a file that somebody has edited may have the id of a notice and tell of something else.
    """
    existing = memories.get_headers_any_space(ctx.tx, ctx.spaces, sorted(wanted))
    missing = {
        id_: pair for id_, pair in sorted(wanted.items()) if id_ not in existing or not graph.is_open(existing[id_])
    }
    reasons = _reasons(ctx, [invalidation for _, invalidation in missing.values()])
    created: list[StoredMemory] = []
    for id_, (dependent, invalidation) in missing.items():
        notice = _new_notice(ctx, id_, dependent, invalidation, reasons.get(invalidation.key, ""))
        if id_ in existing:
            notice = _reopen(ctx, existing[id_], notice)
        created.append(notice)
    new = [notice for notice in created if notice.id not in existing]
    added = {notice.id: notice for notice in memories.add(ctx.tx, ctx.engines.keys, new)}
    created = [added.get(notice.id, notice) for notice in created]
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
        ctx.tx, ctx.spaces, sorted({invalidation.invalidating for invalidation in invalidations} - CAUSES_WITHOUT_ID)
    )
    return {
        (reason.superseded, memory.id): reason.why
        for memory in successors.values()
        for reason in memory.supersede_reasons
    }


def _new_notice(
    ctx: WriteContext, id_: str, dependent: StoredMemory, invalidation: Invalidation, why: str
) -> StoredMemory:
    space = ctx.system_space(_notice_space_name(dependent.space))
    now = ctx.tx.now
    return new_memory(
        ctx,
        memory_id=id_,
        space=space,
        path=titles.memory_path(space.base, now, "invalidation", id_, taken=True),
        how="notify",
        kind="notice",
        title=f"invalidation: {invalidation.invalidated} -> {dependent.id}",
        text=_notice_text(id_, dependent, invalidation, why),
        tags=(NOTICE_TAG,),
        expires=now + NOTICE_LIFETIME,
        links=(StoredLink(id_, NOTICE_RELATION, dependent.id, dependent.content_hash),),
        notice=Notice(dependent.id, invalidation.invalidated, invalidation.invalidating, now),
    )


def _notice_text(id_: str, dependent: StoredMemory, invalidation: Invalidation, why: str) -> str:
    """Return the text of a notice: ids only, since its reader may not be able to read the memories."""
    decide = f"Decide with `commonbook triage {id_} keep`, or `retract`, `supersede` or `dismiss`."
    invalidating = invalidation.invalidating
    if invalidating == ENDED:
        # A copy gets the notice of a source that was deleted: the path then leads through that one.
        old = f"{'a source of ' if len(invalidation.path) > len(invalidation.key) else ''}{dependent.id}"
        superseded = f"{invalidation.invalidated}, which superseded {old}, has expired or was deleted."
        return f"{superseded}\n\n{dependent.id} is recalled again.\n\n{decide}"
    change = "was deleted" if invalidating == DELETED else f"was superseded by {invalidating}"
    steps = "directly" if invalidation.depth == 1 else f"in {invalidation.depth} steps"
    path = " <- ".join(ancestor_id or "…" for ancestor_id in _shorten(invalidation.path))
    return (
        f"{invalidation.invalidated} {change}{f': {why}' if why else '.'}\n\n"
        f"{dependent.id} depends on it {steps}: {path}\n\n"
        f"{decide}"
    )


def _shorten(path: Sequence[str | None]) -> Sequence[str | None]:
    """Return both ends of a long path; the inbox shows all of it."""
    return path if len(path) <= _MAX_PATH_IDS else (*path[: _MAX_PATH_IDS // 2], None, *path[-_MAX_PATH_IDS // 2 :])


def _notice_space_name(space: Space) -> str:
    """Return the name of the space with the notices about memories of a space, and about those proposed to it."""
    return f"{space_names.reviewed_space(space.name)}/{space_names.INVALIDATIONS}"


def _reopen(ctx: WriteContext, withdrawn: StoredMemory, notice: StoredMemory) -> StoredMemory:
    """Store a notice in place of the withdrawn one with the same id, as the next version of its history."""
    reopened = notice._replace(
        created=withdrawn.created,
        version=withdrawn.version + 1,
        revision=withdrawn.revision,
        path=_free_path(ctx, notice),
    )
    _store(ctx, withdrawn, reopened)
    return reopened


def _move_notice(ctx: WriteContext, header: StoredMemory, to: Space) -> None:
    """Move a notice after its dependent was moved to another space."""
    notice = memories.get_many(ctx.tx, ctx.spaces, [header.id])[header.id]
    space = ctx.system_space(_notice_space_name(to))
    path = titles.memory_path(space.base, notice.created, "invalidation", notice.id, taken=True)
    moved = notice._replace(space=space, path=_free_path(ctx, notice._replace(path=path)), version=notice.version + 1)
    ctx.record_move(notice, moved.path)
    _store(ctx, notice, moved)
    ctx.log_memory(notice, "move.out")
    ctx.log_memory(moved, "move.in")
    ctx.enqueue_files([moved])


def _free_path(ctx: WriteContext, notice: StoredMemory) -> str:
    """Return the path of a notice or, if another memory has it, one with the notice's id."""
    owner = memories.at_path(ctx.tx, notice.path)
    path = notice.path if owner in {None, notice.id} else notice.path.replace("--", f"--{notice.id}--")
    if ctx.engines.folder.keeps_files:
        file_journal.clear_former_path(ctx.tx, path)
    return path


def _store(ctx: WriteContext, old: StoredMemory, new: StoredMemory) -> None:
    if old.space.id == new.space.id:
        memories.replace(ctx.tx, ctx.engines.keys, old, new)
    else:
        memories.move(ctx.tx, ctx.engines.keys, old, new)
    links.replace(ctx.tx, old.space.id, new)


# --- removing


def remove_decided(ctx: WriteContext, outline: StoredMemory, verdict: str) -> None:
    """Delete a notice about a memory that the actor may write to, and has decided about.

    The right on the memory is enough: an agent may not write beside its own proposal, where the notice is.
    """
    remove_notice(ctx.because(ForeignWrite.NOTICE), outline, how="triage", verdict=verdict)


def remove_notice(ctx: WriteContext, outline: StoredMemory, *, how: str, **logged: object) -> None:
    """Delete a notice that is withdrawn or decided; its content stays in the log."""
    notice = memories.get_many(ctx.tx, ctx.spaces, [outline.id])[outline.id]
    deleted = notice._replace(deleted=ctx.tx.now, version=notice.version + 1, updated=ctx.tx.now)
    memories.replace(ctx.tx, ctx.engines.keys, notice, deleted)
    ctx.log_memory(deleted, how, **logged)
    ctx.enqueue_files([deleted])


class KnownCauses(NamedTuple):
    """The knowledge of the book about the memories that some notices are about, by their ids."""

    dependents: Mapping[str, StoredMemory]
    """These memories, also deleted ones; without their texts."""
    invalidations: Mapping[str, graph.Causes]
    """The invalidations for which each live one gets notices."""
    decided: Mapping[str, Collection[tuple[str, str]]]
    """The keys of the invalidations that were decided at each live one."""
    ancestors: graph.Ancestors
    arriving: Container[str]
    """The ids of memories around which something was added: perhaps by files, which arrive one by one."""


def is_obsolete(ctx: WriteContext, notice: Notice, known: KnownCauses) -> bool:
    """Tell whether a notice must be withdrawn: its invalidation was decided, or has no cause and can get none."""
    if notice.key in known.decided.get(notice.dependent, ()):
        return True
    if notice.key in known.invalidations.get(notice.dependent, {}):
        return False
    dependent = known.dependents.get(notice.dependent)
    if _is_last_trace(ctx, notice, dependent):
        return False
    return notice.dependent not in known.arriving or not _may_be_caused_yet(ctx, notice, dependent, known.ancestors)


def _is_last_trace(ctx: WriteContext, notice: Notice, dependent: StoredMemory | None) -> bool:
    """Tell whether a notice is all that is left of its cause, since the database that knew the rest was lost.

    That is a successor that has ended, or whatever invalidated the source of a copy.
    """
    if dependent is None or dependent.deleted is not None:
        return False
    if notice.invalidating == ENDED:
        is_unknown = not memories.exists(ctx.tx, notice.invalidated)
        return is_unknown and not supersession.has_ended(dependent, ctx.tx.now)
    source = copies.chain_of(dependent, copies.sources_of(ctx.tx, ctx.spaces, [dependent]))[-1]
    return is_missing(source) and _may_stand(ctx, notice)


def _may_be_caused_yet(
    ctx: WriteContext, notice: Notice, dependent: StoredMemory | None, ancestors: graph.Ancestors
) -> bool:
    """Tell whether a memory that the book does not have may be the cause of a notice, or lead to the cause.

    Its file may arrive after that of the notice, or it was deleted before the database was lost.
    """
    if dependent is None or dependent.deleted is not None:
        return dependent is None
    return _may_stand(ctx, notice) and graph.has_unknown_ancestor(dependent, ancestors)


def _may_stand(ctx: WriteContext, notice: Notice) -> bool:
    """Tell whether a memory is deleted or superseded as a notice says, or the book does not know."""
    if notice.invalidating == DELETED:
        invalidated = memories.find(ctx.tx, ctx.spaces, notice.invalidated)
        return invalidated is None or invalidated.deleted is not None
    superseding = supersession.superseding(ctx.tx, ctx.spaces, [notice.invalidated]).get(notice.invalidated, ())
    is_known = memories.exists(ctx.tx, notice.invalidating)
    return not is_known or notice.invalidating in {successor.id for successor in superseding}


_MIN_BATCH: Final = 100


def inbox(engines: Engines, actor: Actor, *, space: str | None, expired: bool, limit: int, after: str | None) -> Inbox:
    """Return the notices about memories that the actor may read, newest first.

    One about a proposed memory is for its author and for those who may decide about it, as the proposal itself is. Its
    space, named exactly, shows it to every reader.
    """
    validation.require_page_limit(limit)
    cursor = validation.parse_cursor(after) if after else None
    now = engines.clock.now()
    with engines.db.reading() as tx:
        all_spaces = spaces.get_all(tx)
        readable = permissions.readable(tx, actor, all_spaces)
        notice_spaces = _notice_spaces(readable, permissions.select(tx, actor, space))
        is_shown = _filter(actor, space, permissions.writable(tx, actor, all_spaces))
        found: list[tuple[StoredMemory, InboxItem]] = []
        size = max(limit + 1, _MIN_BATCH)
        # A page is filled with what matches, however many expired notices lie between.
        while len(found) <= limit:
            batch = memories.page(tx, notice_spaces, Filter(kinds=("notice",)), after=cursor, limit=size)
            current = [memory for memory in batch if expired or memory.expires is None or memory.expires > now]
            by_id = {memory.id: memory for memory in current if graph.is_open(memory)}
            found += [(by_id[item.id], item) for item in _items(tx, readable, is_shown, list(by_id.values()), now)]
            if len(batch) < size:
                break
            cursor = memories.cursor_position(batch[-1])
    following = validation.format_cursor(*memories.cursor_position(found[limit - 1][0])) if len(found) > limit else None
    return Inbox(tuple(item for _, item in found[:limit]), following)


def _notice_spaces(readable: SpaceScope, selected: SpaceScope) -> SpaceScope:
    """Return the readable spaces that hold the notices about memories of the selected spaces."""
    own = {space.name for space in selected.values()}
    names = own | {f"{space_names.reviewed_space(name)}/{space_names.INVALIDATIONS}" for name in own}
    return {
        id_: space
        for id_, space in readable.items()
        if space.name in names and space.name.rpartition("/")[2] == space_names.INVALIDATIONS
    }


def _filter(actor: Actor, name: str | None, writable: SpaceScope) -> Callable[[StoredMemory], bool]:
    """Return a function that tells whether notices about a memory are shown where that name is asked for."""
    named = (name or "").removesuffix("/")
    decided = {space.name for space in writable.values()}

    def is_shown(dependent: StoredMemory) -> bool:
        reviewed = space_names.reviewed_space(dependent.space.name)
        if named != space_names.reviewed_space(named):
            return dependent.space.name == named
        return not dependent.space.holds_proposals or dependent.author == actor.principal or reviewed in decided

    return is_shown


def _items(
    tx: Reading,
    readable: SpaceScope,
    is_shown: Callable[[StoredMemory], bool],
    open_notices: list[StoredMemory],
    now: datetime,
) -> list[InboxItem]:
    pairs = [(memory, memory.notice) for memory in open_notices if memory.notice is not None]
    dependents = memories.get_many(tx, readable, sorted({notice.dependent for _, notice in pairs}))
    live = {
        id_: dependent for id_, dependent in dependents.items() if dependent.deleted is None and is_shown(dependent)
    }
    all_spaces = spaces.get_all(tx)
    ancestors = graph.ancestors_of(tx, all_spaces, live.values())
    invalidations = {
        id_: {
            key: graph.visible_invalidation(invalidation, ancestors.known, readable)
            for key, invalidation in causes.items()
        }
        for id_, causes in graph.own_causes(tx, all_spaces, list(live.values()), ancestors, now).items()
    }
    mentioned = sorted({id_ for _, notice in pairs for id_ in notice.key} - CAUSES_WITHOUT_ID)
    headers = memories.get_headers(tx, all_spaces, mentioned)
    return [
        _item(
            memory,
            notice,
            live[notice.dependent],
            invalidations[notice.dependent].get(notice.key),
            headers,
            readable,
            now,
        )
        for memory, notice in pairs
        if notice.dependent in live
    ]


def _item(  # noqa: PLR0917 - one value from many
    memory: StoredMemory,
    notice: Notice,
    dependent: StoredMemory,
    invalidation: Invalidation | None,
    headers: Mapping[str, StoredMemory],
    readable: SpaceScope,
    now: datetime,
) -> InboxItem:
    superseding = headers.get(notice.invalidating)
    reasons = superseding.supersede_reasons if superseding else ()
    return InboxItem(
        id=memory.id,
        dependent=_reference(notice.dependent, {dependent.id: dependent}, readable),
        text=dependent.text,
        invalidated=_reference(notice.invalidated, headers, readable),
        invalidating=None
        if notice.invalidating in CAUSES_WITHOUT_ID
        else _reference(notice.invalidating, headers, readable),
        reason="".join(reason.why for reason in reasons if reason.superseded == notice.invalidated),
        by=memory.author,
        at=notice.at,
        expires=memory.expires,
        expired=memory.expires is not None and memory.expires <= now,
        depth=invalidation.depth if invalidation else 0,
        path=invalidation.path if invalidation else (),
        space=dependent.space.name,
        successor_ended=notice.invalidating == ENDED,
    )


def _reference(id_: str, headers: Mapping[str, StoredMemory], readable: SpaceScope) -> MemoryReference:
    """Return a reference to a memory, without title and space if it may not be read."""
    memory = headers.get(id_)
    if memory is None or memory.space.id not in readable:
        return MemoryReference(id_)
    return MemoryReference(id_, memory.title, memory.space.name, memory.deleted)

"""Notices: whoever rests on what was superseded or deleted is told, in the transaction in which that happens.

After every story, whatever rests on something that the story changed has exactly the notices that its causes ask for,
but for those that somebody has decided about. A notice's id comes from what it tells, so that nothing is told twice.
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
from commonbook.markdown.memory_file import render_memory
from commonbook.model.invalidation import DELETED, DISMISS, Decision, Invalidation, Notice
from commonbook.model.memory import Link, Memory
from commonbook.model.spaces import FILESYSTEM, FILESYSTEM_ACTOR, Space, SpaceScope
from commonbook.ports.database import Reading
from commonbook.reasoning import graph
from commonbook.tables import files, links, memories
from commonbook.text import space_paths
from commonbook.write import revise
from commonbook.write.context import WriteContext
from commonbook.write.new_memory import new_memory

NOTIFY_JOB: Final = "notify"
"""Tells those who rest on what was superseded before there were notices; its subject is what was superseded."""

TAG: Final = "_invalidation"
NOTICE_LIFETIME: Final = timedelta(days=7)
_ABOUT: Final = ("related_to",)
_LONGEST_PATH: Final = 20


def update_notices(ctx: WriteContext) -> list[Memory]:
    """Let everything that rests on what the story changed have its notices; return those that are new."""
    made: list[Memory] = []
    while batch := ctx.pending.take_reasoning_changes():
        _dismiss(ctx, [after for before, after in batch.values() if before is not None and _is_gone(before, after)])
        _hold(ctx, [one for pair in batch.values() for one in pair if one is not None])
        changed = _concerned(ctx, {id_: pair for id_, pair in batch.items() if pair[0] is not None})
        added = _concerned(ctx, {id_: pair for id_, pair in batch.items() if pair[0] is None})
        made += _settle(ctx, sorted(changed), withdraw=True)
        # What comes in file by file may be all there only later: until then nothing is taken back.
        made += _settle(ctx, sorted(added - changed), withdraw=False)
    return made


def _is_gone(before: Memory, after: Memory) -> bool:
    return before.notice is not None and before.deleted is None and after.deleted is not None


def _hold(ctx: WriteContext, changed: Sequence[Memory]) -> None:
    """Let nobody invalidate what these memories rest on, or rest on what they supersede, until the story is over."""
    if ctx.tx.for_update:
        ctx.lock({target for memory in changed for target in _superseded(memory)})
        graph.ancestors_of(ctx.tx, ctx.spaces, changed, hold=ctx.lock)


def _superseded(memory: Memory) -> list[str]:
    return [link.target for link in memory.links if link.relation == "supersedes"]


def _concerned(ctx: WriteContext, shaken: Mapping[str, tuple[Memory | None, Memory]]) -> set[str]:
    """Return what may have other notices to get now: what changed, and what rests on it or on what it supersedes."""
    roots = set(shaken)
    for pair in shaken.values():
        roots.update(target for memory in pair if memory is not None for target in _superseded(memory))
    if not roots:
        return roots
    resting = graph.dependents_of(ctx.tx, ctx.spaces, sorted(roots))
    own = {id_ for id_, pair in shaken.items() if any(one is not None and graph.direct_sources(one) for one in pair)}
    # Somebody may have moved the file of a notice, or brought it back.
    own |= {one.notice.dependent for pair in shaken.values() for one in pair if one is not None and one.notice}
    return own | {id_ for id_, one in resting.items() if one.own}


def notify(ctx: WriteContext, *, memory_id: str) -> None:
    """Tell those who rest on a memory, as if it had been invalidated just now."""
    ctx.lock([memory_id])
    resting = graph.dependents_of(ctx.tx, ctx.spaces, [memory_id])
    _settle(ctx, sorted(id_ for id_, one in resting.items() if one.own), withdraw=False)


# --- what there should be, and what there is


def _settle(ctx: WriteContext, ids: Sequence[str], *, withdraw: bool) -> list[Memory]:
    """Let some memories have the notices that their causes ask for; `withdraw` those that nothing asks for any more."""
    # First what there is: a notice that is seen here has its cause in sight below, or has it no longer.
    told = _of(ctx.tx, ctx.spaces, ids) if withdraw else {}
    there = memories.get_headers_any_space(ctx.tx, ctx.spaces, ids)
    live = [one for one in there.values() if one.deleted is None and one.notice is None]
    above = graph.ancestors_of(ctx.tx, ctx.spaces, live)
    causes = {memory.id: graph.invalidations_of(memory, above, own=True) for memory in live}
    decided = {memory.id: {one.key for one in memory.decisions} for memory in live}
    for notice, said in told.values():
        if said.key not in causes.get(said.dependent, {}) or said.key in decided[said.dependent]:
            remove_notice(ctx, notice, how="withdraw")
        elif notice.space.name != _place(there[said.dependent].space):
            _bring(ctx, notice, there[said.dependent].space)
    wanted = {
        # Who may read the memory may read what is beside it, and perhaps nothing else on the path.
        notice_id(memory.id, cause): (memory, graph.visible_invalidation(cause, above.known, {memory.space.id}))
        for memory in live
        for key, cause in causes[memory.id].items()
        if key not in decided[memory.id]
    }
    return _tell(ctx, wanted)


def _of(tx: Reading, spaces: SpaceScope, dependents: Sequence[str]) -> dict[str, tuple[Memory, Notice]]:
    """Return the notices about some memories that are there, each with what it tells."""
    found = links.incoming_any_space(tx, dependents, relations=_ABOUT)
    ids = sorted({link.source for link in found})
    there = memories.get_headers_any_space(tx, spaces, ids)
    return {id_: (one, one.notice) for id_, one in there.items() if one.notice is not None and is_open(one)}


def notices_about(tx: Reading, spaces: SpaceScope, dependent: str) -> list[Memory]:
    """Return the notices about a memory that are there."""
    return [notice for notice, said in _of(tx, spaces, [dependent]).values() if said.dependent == dependent]


def is_open(memory: Memory) -> bool:
    """Tell whether a memory is a notice that we made, and that nobody has settled."""
    said = memory.notice
    return (
        said is not None and memory.deleted is None and memory.id == notice_id(said.dependent, Invalidation(*said.key))
    )


def notice_id(dependent: str, cause: Invalidation) -> str:
    """Return the id of the notice that tells a memory of a cause: the same whoever tells it, and however often."""
    digits = sha256(f"{dependent} {cause.invalidated} {cause.invalidating}".encode()).hexdigest()
    return f"{digits[:8]}-{digits[8:12]}-8{digits[13:16]}-a{digits[17:20]}-{digits[20:32]}"


# --- telling


def _tell(ctx: WriteContext, wanted: Mapping[str, tuple[Memory, Invalidation]]) -> list[Memory]:
    """Make the notices that are not there, and open those again that were withdrawn."""
    there = memories.get_headers_any_space(ctx.tx, ctx.spaces, sorted(wanted))
    missing = {id_: pair for id_, pair in sorted(wanted.items()) if id_ not in there or there[id_].deleted is not None}
    reasons = _reasons(ctx, [cause for _, cause in missing.values()])
    made: list[Memory] = []
    for id_, (memory, cause) in missing.items():
        notice = _notice(ctx, id_, memory, cause, reasons.get(cause.key, ""))
        if id_ in there:
            notice = _revived(ctx, there[id_], notice)
        made.append(notice)
    new = [notice for notice in made if notice.id not in there]
    memories.add(ctx.tx, new)
    for space in {notice.space.id for notice in new}:
        links.add(ctx.tx, space, [link for one in new if one.space.id == space for link in one.links])
    for notice in made:
        memory, cause = missing[notice.id]
        told = {"dependent": memory.id, "invalidated": cause.invalidated, "invalidating": cause.invalidating}
        ctx.log_memory(notice, "notify", memory.id, **told, depth=cause.depth, path=list(cause.path))
    ctx.enqueue_files(made)
    return made


def _reasons(ctx: WriteContext, causes: Iterable[Invalidation]) -> dict[tuple[str, str], str]:
    """Return why each of these supersessions happened, where somebody said so."""
    superseding = memories.get_headers_any_space(
        ctx.tx, ctx.spaces, sorted({cause.invalidating for cause in causes} - {DELETED})
    )
    return {(one.superseded, memory.id): one.why for memory in superseding.values() for one in memory.supersede_reasons}


def _notice(ctx: WriteContext, id_: str, memory: Memory, cause: Invalidation, why: str) -> Memory:
    space = ctx.system_space(_place(memory.space))
    now = ctx.tx.now
    return new_memory(
        ctx,
        memory_id=id_,
        space=space,
        path=space_paths.path_for(space.name, now, "invalidation", id_, taken=True),
        how="notify",
        kind="notice",
        title=f"invalidation: {cause.invalidated} -> {memory.id}",
        text=_words(id_, memory, cause, why),
        tags=(TAG,),
        expires=now + NOTICE_LIFETIME,
        links=(Link(id_, _ABOUT[0], memory.id, memory.revision),),
        notice=Notice(memory.id, cause.invalidated, cause.invalidating, now),
    )


def _words(id_: str, memory: Memory, cause: Invalidation, why: str) -> str:
    """Return what a notice says: ids, and no words of memories that its reader may not read."""
    became = "was deleted" if cause.invalidating == DELETED else f"was superseded by {cause.invalidating}"
    steps = "directly" if cause.depth == 1 else f"in {cause.depth} steps"
    return (
        f"{cause.invalidated} {became}{f': {why}' if why else '.'}\n\n"
        f"{memory.id} rests on it {steps}: {' <- '.join(id_ or '…' for id_ in _ends(cause.path))}\n\n"
        f"Decide with `commonbook triage {id_} keep`, or `retract`, `supersede` or `dismiss`."
    )


def _ends(path: Sequence[str | None]) -> Sequence[str | None]:
    """Return as much of a path as anybody would read; the inbox tells all of it."""
    return path if len(path) <= _LONGEST_PATH else (*path[: _LONGEST_PATH // 2], None, *path[-_LONGEST_PATH // 2 :])


def _place(space: Space) -> str:
    return f"{space.name}/{space_paths.INVALIDATIONS}"


def _revived(ctx: WriteContext, gone: Memory, notice: Memory) -> Memory:
    """Open a withdrawn notice again: it tells of a new supersession, and its history goes on."""
    revived = notice._replace(
        created=gone.created, version=gone.version + 1, revision=gone.revision, path=_free(ctx, notice)
    )
    _put(ctx, gone, revived)
    return revived


def _bring(ctx: WriteContext, outline: Memory, to: Space) -> None:
    """Let a notice go where the memory went that it is about."""
    notice = memories.get_many(ctx.tx, ctx.spaces, [outline.id])[outline.id]
    space = ctx.system_space(_place(to))
    path = space_paths.path_for(space.name, notice.created, "invalidation", notice.id, taken=True)
    moved = notice._replace(space=space, path=_free(ctx, notice._replace(path=path)), version=notice.version + 1)
    ctx.record_move(notice, moved.path)
    _put(ctx, notice, moved)
    ctx.log_memory(notice, "move.out", to=space.id)
    ctx.log_memory(moved, "move.in")
    ctx.enqueue_files([moved])


def _free(ctx: WriteContext, notice: Memory) -> str:
    """Return the path of a notice, or if something else has it, one that nothing else can have."""
    owner = memories.at_path(ctx.tx, notice.path)
    path = notice.path if owner in {None, notice.id} else notice.path.replace("--", f"--{notice.id}--")
    if ctx.engines.folder.keeps_files:
        files.clear_former_path(ctx.tx, path)
    return path


def _put(ctx: WriteContext, old: Memory, new: Memory) -> None:
    if old.space.id == new.space.id:
        memories.replace(ctx.tx, new)
    else:
        memories.move(ctx.tx, old, new)
    links.replace(ctx.tx, old.space.id, new)


# --- settled


def remove_notice(ctx: WriteContext, outline: Memory, *, how: str, **logged: object) -> None:
    """Take a notice away, because it is withdrawn or somebody decided; what it told stays in the log."""
    notice = memories.get_many(ctx.tx, ctx.spaces, [outline.id])[outline.id]
    gone = notice._replace(deleted=ctx.tx.now, version=notice.version + 1, updated=ctx.tx.now)
    memories.replace(ctx.tx, gone)
    ctx.log_memory(gone, how, **logged)
    ctx.enqueue_files([gone])


def _dismiss(ctx: WriteContext, gone: Sequence[Memory]) -> None:
    """Take it for a decision that somebody removed notices by hand."""
    for notice in gone:
        said = notice.notice
        if said is None:
            continue
        ctx.lock([said.dependent])
        memory = memories.find(ctx.tx, ctx.spaces, said.dependent)
        if memory is None or memory.deleted is not None or said.key in {one.key for one in memory.decisions}:
            continue
        if memory.space.id not in ctx.writable:
            raise permissions.refusal(ctx.actor, memory.space.name)
        with suppress(FileInTheWay, hand_edits.FileGone, *([TooLarge] if ctx.actor.principal == FILESYSTEM else [])):
            # Where its file cannot be written, the memory stays in doubt, and its notice comes back.
            memory = hand_edits.with_file_changes(ctx.acting_as(FILESYSTEM_ACTOR), memory, looked=False)
            record_decision(ctx, memory, [Invalidation(*said.key)], DISMISS, "its notice was removed")


def record_decision(
    ctx: WriteContext, memory: Memory, settled: Sequence[Invalidation], verdict: str, note: str, **also: object
) -> Memory:
    """Write into a memory what was decided about it; `also` names fields that change with that."""
    by, at = ctx.actor.principal, ctx.tx.now
    kept = [one for one in memory.decisions if one.key not in {cause.key for cause in settled}]
    made = [Decision(verdict, cause.invalidated, cause.invalidating, by, at, note) for cause in settled]
    said = memory._replace(decisions=(*kept, *made), **also)  # type: ignore[arg-type]
    changed = ["decisions", *also]
    # A front matter that has no room left is found out before anything is changed.
    render_memory(said, ctx.engines)
    return revise.store_revision(ctx, memory, said, changed, how="triage")

"""Stores new memories and new versions of memories: rows, links, history, copy binding, log entry and file.

Every new version of a memory ends here, whether it came through the API or from an edited file; `remember` adds its
rows itself. Here is decided, too, where a new memory goes if it is only proposed, and what links from files remember
of their targets.
"""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from commonbook.core.access import permissions
from commonbook.core.markdown import file_format, memory_conversion, transcript
from commonbook.core.markdown.front_matter import Document
from commonbook.core.markdown.memory_conversion import title_of_note
from commonbook.core.tables import copies, file_journal, links, memories, revisions, sessions, supersession
from commonbook.core.text import content_hashes, space_names, titles
from commonbook.core.write import rewound_messages
from commonbook.core.write.context import ForeignWrite, WriteContext
from commonbook.errors import Conflict, NotAllowed
from commonbook.values.ids import new_id
from commonbook.values.invalidation import REASONING, RETRACT
from commonbook.values.memory import DETACHED, SNAPSHOT, WOULD_SUPERSEDE, Kind
from commonbook.values.spaces import Actor, Space, SpaceScope
from commonbook.values.stored_memory import StoredLink, StoredMemory, is_retracted

if TYPE_CHECKING:
    from commonbook.ports.database import Reading
    from commonbook.ports.keys import Keys


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
        new = _with_links_in_effect(old, with_session_space(ctx, old, new))
        text = rewound_messages.text_after_move(ctx.tx, old, new, by_hand=how == "file")
        if text != new.text:
            new, changed_fields = new._replace(text=text), sorted({*changed_fields, "text"})
    if how in _FROM_FILES:
        new = in_effect(new)
    new = _without_stale_reasons(new._replace(version=version or old.version + 1, updated=ctx.tx.now))
    new = with_known_hashes(ctx.tx, ctx.engines.keys, ctx.spaces, _rebind(ctx, old, new))
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
    _log_superseded(ctx, old if old.deleted is None else None, new)
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
    return content_hashes.with_hashes(ctx.engines.keys, memory)


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
    keys, memory = ctx.engines.keys, in_effect(memory)
    memory = with_known_hashes(ctx.tx, keys, readable, _bind_copy_from_file(ctx, memory))
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
    confirm_incoming(ctx, memory)
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


def with_known_hashes(tx: Reading, keys: Keys, spaces: SpaceScope, memory: StoredMemory) -> StoredMemory:
    """Return a memory whose links have hashes of this home, as far as these spaces have the targets.

    It is not known which words another home meant, so that a link is taken as confirmed. Not so that of a copy, which
    has to prove what it took over: else anybody could have a guess about an unreadable memory imported as a copy of
    it, and learn from its freshness whether the guess is right.
    """
    to_translate = [link for link in memory.links if _is_foreign(keys, link) and link != memory.source]
    if not to_translate:
        return memory
    targets = memories.get_headers(tx, spaces, sorted({link.target for link in to_translate}))
    translated = [
        link._replace(target_hash=targets[link.target].content_hash)
        if link in to_translate and link.target in targets
        else link
        for link in memory.links
    ]
    return memory._replace(links=tuple(translated))


def confirm_incoming(ctx: WriteContext, target: StoredMemory) -> None:
    """Translate what links to a memory remember of it, now that it is here; they came from files before it.

    Their files are left alone: they may belong to a clone, which would write its own hashes again.
    """
    keys = ctx.engines.keys
    incoming = links.incoming_any_space(ctx.tx, [target.id], relations=None)
    unknown = {link.source for link in incoming if _is_foreign(keys, link)}
    for memory in memories.get_many(ctx.tx, ctx.spaces, sorted(unknown)).values():
        confirmed = with_known_hashes(ctx.tx, keys, {target.space.id: target.space}, memory)
        if confirmed != memory:
            memories.replace_hashes(ctx.tx, keys, [confirmed])
            links.replace(ctx.tx, confirmed.space.id, confirmed)


def _is_foreign(keys: Keys, link: StoredLink) -> bool:
    return link.target_hash is not None and content_hashes.is_foreign(keys, link.target_hash)


def with_session_space(ctx: WriteContext, old: StoredMemory, new: StoredMemory) -> StoredMemory:
    """Return an episode with the space of its session, after one of both was moved; none if it is beside the session.

    The session may have been moved while the episode was elsewhere: its messages tell where it is.
    """
    if new.session is None:
        return new
    former = old.session_space or old.space.name
    present = ctx.spaces.get(sessions.space_of_episode(ctx.tx, new.id) or "")
    name = former if present is None else present.name
    source = next((space for space in ctx.spaces.values() if space.name == former), None)
    if present is not None and source is not None and present.id != source.id:
        new = new._replace(message_lines=_signed_again(ctx, new, source, present))
    return new._replace(session_space=None if name == new.space.name else name)


def _signed_again(ctx: WriteContext, memory: StoredMemory, source: Space, target: Space) -> tuple[str, ...]:
    """Return the lines that prove the messages of an episode whose session was moved, with MACs for its new space."""
    keys = ctx.engines.keys
    proven = memory_conversion.proven_messages(keys, memory._replace(space=source))
    return tuple(
        memory_conversion.message_line(keys, target.id, memory.session or "", message, proven[message.id])
        for message in transcript.parse(memory.text).messages
        if message.id in proven
    )


def _log_superseded(ctx: WriteContext, old: StoredMemory | None, new: StoredMemory) -> None:
    """Record that a memory supersedes others from now on, in the log of each other space that these are in.

    `old` is the memory as it was, None if it is new or comes back. For files that a lost database reads again, the
    caller records nothing: their memories supersede what they superseded before.
    """
    targets = set(supersession.targets_of(new)) if new.deleted is None else set()
    if targets and old is not None and not _holds_again(ctx, old, new):
        targets -= set(supersession.targets_of(old))
    if not targets:
        return
    elsewhere = [memory for memory in _superseded_by(ctx, new, targets) if memory.space.id != new.space.id]
    if ctx.foreign is None and not all(ctx.may_write(memory.space) for memory in elsewhere):
        raise _refusal(ctx.actor, new, elsewhere)
    for memory in elsewhere:
        if memory.deleted is None:
            ctx.log(memory.space, "superseded", (memory.id,), by=new.id)


def _holds_again(ctx: WriteContext, old: StoredMemory, new: StoredMemory) -> bool:
    """Tell whether a memory had ended and is valid for longer now, by itself or, as a copy, by another source."""
    ends, ended = ((one.expires, one.shared, copies.copied_from(one)) for one in (new, old))
    if ends == ended:
        # Most changes: the sources of a copy, of which there may be many, need not be read.
        return False
    return _has_ended(ctx, old) and not _has_ended(ctx, new)


def _has_ended(ctx: WriteContext, memory: StoredMemory) -> bool:
    return supersession.has_ended(supersession.with_ends(ctx.tx, ctx.spaces, [memory])[memory.id], ctx.tx.now)


def _superseded_by(ctx: WriteContext, new: StoredMemory, targets: Iterable[str]) -> list[StoredMemory]:
    """Lock and return the memories that one supersedes: those of its links, and what ended ones of them superseded.

    A successor stands in the place of an ended memory that it supersedes, unless it has ended itself. A copy has ended
    with its source.
    """
    goes_on = not _has_ended(ctx, new)
    found: dict[str, StoredMemory] = {}
    level = set(targets)
    while level:
        ctx.lock(level)
        headers = memories.get_headers_any_space(ctx.tx, ctx.spaces, sorted(level))
        found |= headers
        until = supersession.with_ends(ctx.tx, ctx.spaces, headers.values()) if goes_on else {}
        ended = [memory for memory in until.values() if supersession.has_ended(memory, ctx.tx.now)]
        level = {id_ for memory in ended for id_ in supersession.targets_of(memory)} - found.keys() - {new.id}
    return list(found.values())


def _refusal(actor: Actor, new: StoredMemory, superseded: Iterable[StoredMemory]) -> NotAllowed:
    """Return the error for superseding memories in spaces that the actor may not write to, which are not named."""
    error = NotAllowed(
        f"{new.id} would supersede a memory in a space that {actor.principal} may not write to",
        fix="let somebody do it who may write to both, or first `reinstate` the superseded memory",
    )
    error.aimed_at = tuple(memory.id for memory in superseded)
    return error


def new_memory(
    ctx: WriteContext,
    *,
    space: Space,
    title: str,
    text: str,
    how: str,
    memory_id: str | None = None,
    path: str | None = None,
    kind: Kind = "note",
    tags: tuple[str, ...] = (),
    **fields: Any,  # noqa: ANN401 - further fields of a stored memory
) -> StoredMemory:
    """Return the first version of a memory, written now by the actor; `how` is the verb that its history shows.

    Without `memory_id` it gets a new id; without `path` it gets the default path for its title. It gets its hashes when
    it is added.
    """
    identity = identity_fields(ctx, memory_id=memory_id or new_id(), space=space, title=title, how=how, path=path)
    return StoredMemory(
        **identity,
        kind=kind,
        title=title,
        text=text,
        tags=tags,
        author=ctx.actor.principal,
        **fields,
    )


def log_new_memory(ctx: WriteContext, memory: StoredMemory, action: str, **payload: object) -> None:
    """Record that a memory was added, and what it supersedes."""
    ctx.log_memory(memory, action, **payload)
    _log_superseded(ctx, None, memory)


def identity_fields(
    ctx: WriteContext, *, memory_id: str, space: Space, title: str, how: str, path: str | None = None
) -> dict[str, Any]:
    """Return the fields that a new memory never takes from another, even if it is a copy: identity, place, history."""
    now = ctx.tx.now
    return {
        "id": memory_id,
        "space": space,
        "created": now,
        "updated": now,
        "revision": 1,
        "version": 1,
        "revised_by": ctx.actor.principal,
        "revised_at": now,
        "revised_how": how,
        "path": path or _path_for(ctx, space, title, memory_id),
        "layout": "",
    }


def title_with_text(memory: StoredMemory, text: str) -> str:
    """Return the title of a memory that gets another text: a title that was derived follows it."""
    if "title" in file_format.absent_fields(memory.layout) and memory.title == title_of_note(memory, memory.text):
        return title_of_note(memory, text)
    return titles.derive_title(text) if memory.title == titles.derive_title(memory.text) else memory.title


def _path_for(ctx: WriteContext, space: Space, title: str, memory_id: str) -> str:
    """Return the default path of a new file; if it is taken, one with more digits of the id."""
    slug = titles.slug(title)
    path = titles.memory_path(space.base, ctx.tx.now, slug, memory_id)
    if memories.at_path(ctx.tx, path):
        path = titles.memory_path(space.base, ctx.tx.now, slug, memory_id, taken=True)
    return path


def path_of_restored(ctx: WriteContext, tombstone: StoredMemory) -> str:
    """Return the path for the file of a deleted memory that comes back: its former one, or a free one beside it."""
    lies_in = titles.space_at(tombstone.path, ctx.spaces.values())
    if lies_in is not None and lies_in.id == tombstone.space.id:
        return free_path(ctx, tombstone.path)
    # Its space was renamed since.
    former = tombstone.space._replace(own_folder=titles.name_by_folders(tombstone.path))
    return free_path(ctx, titles.moved_path(tombstone.path, former, tombstone.space, ctx.spaces.values()))


def moved_path(ctx: WriteContext, memory: StoredMemory, space: Space) -> str:
    """Return a free path for a memory that is moved into a space."""
    moved = titles.moved_path(memory.path, memory.space, space, ctx.spaces.values())
    # The slug may be of an earlier title, which is not for the readers of the new space.
    return free_path(ctx, titles.with_slug(moved, titles.slug(memory.title), memory.id))


def free_path(ctx: WriteContext, path: str, *, taken: Collection[str] = ()) -> str:
    """Return the path, or a numbered one beside it if a memory or a file has it, or if it is one of `taken`."""
    stem, ending = posixpath.splitext(path)
    for number in range(1, 1000):
        candidate = path if number == 1 else f"{stem}-{number}{ending}"
        is_taken = candidate in taken or memories.at_path(ctx.tx, candidate) is not None
        if not is_taken and not ctx.engines.folder.exists(candidate):
            return candidate
    raise Conflict(f"there is no free name beside {path}", fix="move some of those files away")


_SUPERSEDES: Final = "supersedes"


def space_for_new_memory(ctx: WriteContext, name: str) -> tuple[Space, Space]:
    """Return the space of that name, and the one that a new memory of the actor goes into: it may have to be proposed.

    Spaces are created if needed; the actor must be allowed to write to them or create them.
    """
    if not permissions.holds_back(ctx.actor, name, ctx.spaces):
        space = ctx.require_writable_space(name)
        return space, space
    named = ctx.space_named(name) or _new_space(ctx, name)
    proposals = ctx.system_space(space_names.proposals_of(name))
    if proposals.id not in ctx.writable:
        raise permissions.refusal(ctx.actor, name)
    return named, proposals


def _new_space(ctx: WriteContext, name: str) -> Space:
    """Create a space below one that is under review, by the right that the actor has without the review."""
    permissions.require_create(ctx.tx, ctx.actor.recording(), ctx.spaces, name)
    proposing = ctx.because(ForeignWrite.PROPOSAL)
    return proposing.add_space(space_names.require_new_name(name), ctx.choose_folder(name), origin="new")


def proposed_relation(relation: str) -> str:
    """Return the relation that a proposed memory has in place of one that would take effect at once."""
    return WOULD_SUPERSEDE if relation == _SUPERSEDES else relation


def to_be_superseded(memory: StoredMemory) -> list[str]:
    """Return the ids of the memories that a proposed one supersedes once it is approved."""
    return [link.target for link in memory.links if link.relation == WOULD_SUPERSEDE]


def _proposed_links(memory: StoredMemory) -> tuple[StoredLink, ...]:
    links = (link._replace(relation=proposed_relation(link.relation)) for link in memory.links)
    return tuple({(link.relation, link.target): link for link in links}.values())


def require_approved(memory: StoredMemory) -> None:
    """Raise Conflict if a memory is proposed: it supersedes nothing, and is not copied, before a person approves it."""
    if memory.space.holds_proposals:
        raise Conflict(
            f"memory {memory.id} is only proposed",
            fix="let a person approve it first; `remember` with `replaces` proposes a successor",
        )


def approved_links(memory: StoredMemory) -> tuple[StoredLink, ...]:
    """Return the links of a proposed memory as they are after its approval."""
    links = (link._replace(relation=_SUPERSEDES) if link.relation == WOULD_SUPERSEDE else link for link in memory.links)
    # An older file of an approved memory may have the one link, and the memory the other.
    return tuple({(link.relation, link.target): link for link in links}.values())


def _with_links_in_effect(old: StoredMemory, new: StoredMemory) -> StoredMemory:
    """Return a moved memory, whose links take effect if it was proposed before and is no longer."""
    return in_effect(new) if old.space.holds_proposals else new


def in_effect(memory: StoredMemory) -> StoredMemory:
    """Return the memory of a file with its links as they are where it is: they take effect outside of the proposals.

    A file may have been moved out of the proposals while no database knew it. Only agents propose, so the links of a
    memory of a person take no effect by that.
    """
    if memory.space.holds_proposals:
        return memory._replace(links=_proposed_links(memory))
    return memory._replace(links=approved_links(memory)) if Actor(memory.author).is_agent else memory

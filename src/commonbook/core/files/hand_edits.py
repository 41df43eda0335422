"""Applies edits by hand: each saved, moved, copied or removed file becomes a change of its memory.

A three-way comparison decides what a file means: its content, the last synchronised state of its path (`SyncedFile`),
and the memory as it is now. Every save becomes a revision; a save that was made before a newer change goes into the
history and does not overwrite it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Final, Literal

from commonbook.core.files import episode_files, refused_files, save_order
from commonbook.core.files.write_out import ConcurrentSave
from commonbook.core.markdown.front_matter import VERBATIM_FIELDS, Document
from commonbook.core.markdown.memory_conversion import (
    claim_of,
    memory_from_document,
    new_memory_from_document,
    parse_file,
    render_document,
    require_understood,
    says_the_same,
    title_of_note,
)
from commonbook.core.tables import copies, file_journal, memories
from commonbook.core.text import content_hashes, titles, user_times
from commonbook.core.write import store_version
from commonbook.core.write.context import WriteContext
from commonbook.core.write.store_version import new_memory
from commonbook.errors import BadFile, FileInTheWay, TooLarge
from commonbook.ports.files import FileStat
from commonbook.values.ids import new_id
from commonbook.values.memory import DETACHED
from commonbook.values.spaces import Space
from commonbook.values.stored_memory import StoredMemory

Outcome = Literal["new", "edited", "moved", "restored", "malformed", "unchanged", "copied", "no file", "waiting"]
"""How a file was applied: "unchanged" if it changed nothing, "copied" if it became a memory with an id of its own,
"waiting" if it was not applied, since the files of others come first.
"""

NONE_GONE: Final[Mapping[str, str]] = MappingProxyType({})

_FIELDS: Final = (
    "title",
    "text",
    "kind",
    "tags",
    "author",
    "created",
    *VERBATIM_FIELDS,
    "links",
    "layout",
    "supersede_reasons",
)


def apply_file(ctx: WriteContext, path: str, *, gone: Mapping[str, str] = NONE_GONE, may_wait: bool = False) -> Outcome:
    """Apply the file at a path to the book, and return how it was applied.

    `gone` has the memories whose files are not in their places, by the hashes of their contents. With `may_wait`, the
    caller applies a file again that waits, after it has applied all others.
    """
    synced = file_journal.synced_file(ctx.tx, path)
    stat = ctx.engines.folder.stat(path)
    if stat is None:
        return "no file"
    try:
        data = _read(ctx, path, stat)
    except BadFile as error:
        return _mark_malformed(ctx, path, stat, "", synced, str(error))
    if data is None:
        return "no file"
    hash_ = file_journal.content_hash(data)
    # A file that did not parse is parsed again, though it is the same: another program may have found it malformed.
    if synced is not None and synced.hash == hash_ and synced.trouble in {None, file_journal.MISSING}:
        file_journal.set_synced(ctx.tx, path, stat, hash_, memory=synced.memory, version=synced.version)
        _check_copy_after_trouble(ctx, synced)
        return "unchanged"
    if (synced is None or synced.memory is None) and _is_left_alone(ctx, path, stat, hash_, data):
        return "unchanged"
    try:
        document = parse_file(data, ctx.engines)
        _require_room(ctx, document)
        memory, is_copied_file = match_memory(ctx, path, synced, document)
        if memory is None and document.id is None:
            memory = known_without_id(ctx, path, document, gone.get(hash_))
        require_understood(document, memory)
        refused_files.require_merged(document, memory)
    except BadFile as error:
        return _mark_malformed(ctx, path, stat, hash_, synced, refused_files.merge_reason(error, data))
    if may_wait and not is_copied_file and is_place_taken(ctx, path, memory, document):
        return _wait(ctx, memory)
    _check_copy_after_trouble(ctx, synced)
    if memory is None and synced is not None:
        handle_missing_file(ctx, path, synced.memory)
    return (
        _add(ctx, path, stat, hash_, document, fresh_id=is_copied_file)
        if memory is None
        else _update(ctx, memory, path, stat, hash_, document)
    )


def _read(ctx: WriteContext, path: str, stat: FileStat) -> bytes | None:
    """Return the content of a file, None if it is gone; raises BadFile if it cannot be read."""
    if stat.size > refused_files.MAX_FILE_BYTES:
        raise BadFile(refused_files.TOO_LARGE)
    try:
        return ctx.engines.folder.read(path)
    except OSError as error:
        raise BadFile(f"cannot be read: {error.strerror}") from error


def _is_left_alone(ctx: WriteContext, path: str, stat: FileStat, hash_: str, data: bytes) -> bool:
    """Note a new file that becomes no memory: an empty note, or a second version that a sync program left."""
    conflict = refused_files.conflict_reason(ctx.engines, path, data)
    is_new_note = refused_files.is_blank(data) and memories.at_path(ctx.tx, path) is None
    if conflict is None and not is_new_note:
        return False
    file_journal.set_synced(ctx.tx, path, stat, hash_, memory=None, version=0, trouble=conflict)
    return True


def _require_room(ctx: WriteContext, document: Document) -> None:
    """Raise BadFile unless the front matter has room for the id that this program adds."""
    filled = document._replace(id=document.id or new_id(), has_front=True)
    try:
        render_document(filled, ctx.engines)
    except TooLarge as error:
        raise BadFile("the front matter is too long: no room is left for our fields") from error


def _wait(ctx: WriteContext, memory: StoredMemory | None) -> Outcome:
    """Let the file of a copy wait for the files of others, by which it may have a place, or else have ended.

    A memory whose file was moved is not one whose file is missing. Its row stays, so that no refresh writes the file
    to its former place meanwhile: the file that waits would then be a copy of it.
    """
    if memory is not None and memory.deleted is None:
        file_journal.set_trouble(ctx.tx, memory.path, file_journal.ABSENT)
    return "waiting"


class FileNotInPlace(Exception):
    """The file of a memory is not at its path: the folder must be scanned for it before the memory is changed."""


def with_file_changes(ctx: WriteContext, memory: StoredMemory, *, scanned: bool) -> StoredMemory:
    """Apply what a person did to the file of a memory that is about to be changed; return the memory with it.

    Raise FileNotInPlace if there is no file and the folder was not scanned for it yet (`scanned`).
    """
    if not ctx.engines.folder.keeps_files:
        return memory
    synced = file_journal.synced_file(ctx.tx, memory.path)
    try:
        stat = ctx.engines.folder.stat(memory.path)
    except OSError as error:
        raise FileInTheWay(
            f"{memory.path} cannot be accessed: {error.strerror}", fix="give this user the right to read it"
        ) from error
    if stat is None:
        if synced is not None and not scanned and not file_journal.journal_entries(ctx.tx, [memory.id]):
            raise FileNotInPlace
        return memory
    if synced is not None and synced.matches(stat) and synced.trouble is None:
        return memory
    if apply_file(ctx.as_filesystem(), memory.path) == "malformed" or _in_trouble(ctx, memory.path):
        raise FileInTheWay(
            f"{memory.path} does not parse, and this program does not overwrite a file that a person is correcting",
            fix=f"correct the front matter of {memory.path}; `commonbook doctor` says what is wrong with it",
        )
    return ctx.require_writable(memory.id)


def _in_trouble(ctx: WriteContext, path: str) -> bool:
    synced = file_journal.synced_file(ctx.tx, path)
    return synced is not None and synced.trouble is not None


def _mark_malformed(
    ctx: WriteContext, path: str, stat: FileStat, hash_: str, synced: file_journal.SyncedFile | None, reason: str
) -> Outcome:
    """Leave a file that does not parse as it is, and record what is wrong with it."""
    memory = synced.memory if synced else memories.at_path(ctx.tx, path)
    version = synced.version if synced else 0
    file_journal.set_synced(ctx.tx, path, stat, hash_, memory=memory, version=version, trouble=reason)
    return "unchanged" if synced and (synced.hash, synced.trouble) == (hash_, reason) else "malformed"


# --- a file that is new


def _add(ctx: WriteContext, path: str, stat: FileStat, hash_: str, document: Document, *, fresh_id: bool) -> Outcome:
    """Store a file that belongs to no memory as a new one, with the id that the file names unless `fresh_id` is set."""
    memory = new_memory_of(ctx, path, stat, document, fresh_id=fresh_id)
    if (episode := episode_files.without_repeats(ctx, memory)) is None:
        synced = file_journal.synced_file(ctx.tx, path)
        return _mark_malformed(ctx, path, stat, hash_, synced, refused_files.NOTHING_NEW)
    memory = store_version.add_from_file(ctx, episode, readable=ctx.spaces)
    episode_files.restore_messages(ctx, memory)
    file_journal.set_synced(ctx.tx, path, stat, hash_, memory=memory.id, version=memory.version)
    file_journal.clear_former_path(ctx.tx, path)
    ctx.log_memory(memory, "remember", how="file")
    check_copy(ctx, memory.id)
    store_version.write_back(ctx, memory, document, is_new=True)
    return "copied" if fresh_id else "new"


# --- a file of a memory that we know


def _update(
    ctx: WriteContext, memory: StoredMemory, path: str, stat: FileStat, hash_: str, document: Document
) -> Outcome:
    """Apply the file of a known memory, by comparing the file, the journal and the memory as it is now.

    A file at another path moves the memory, or restores a deleted one. A content that the journal issued, or an older
    text that another process wrote out late, is no edit. Any other content is an edit: it becomes the newest
    revision, or goes into the history if it was saved before a newer change.
    """
    unchanged = says_the_same(document, memory, ctx.engines)
    if path != memory.path or memory.deleted is not None:
        if file_journal.moved_from(ctx.tx, path) == memory.id and memory.deleted is None and is_in_place(ctx, memory):
            return _apply_at_former_path(ctx, memory, path, stat, hash_, document)
        _claim_path(ctx, path, stat, hash_, memory)
        file_journal.drop_absent(ctx.tx, memory.path, memory.id)
        return _move_or_restore(ctx, memory, path, document, unchanged=unchanged)
    journal = file_journal.journal_entries(ctx.tx, [memory.id]).get(memory.id)
    if journal is not None and hash_ in journal.hashes:
        return "unchanged"
    synced = file_journal.synced_file(ctx.tx, path)
    _claim_path(ctx, path, stat, hash_, memory)
    if unchanged:
        return "unchanged"
    if save_order.is_earlier(ctx, memory, document, journal=journal, synced=synced):
        return "edited" if save_order.record_earlier(ctx, memory, document) else "unchanged"
    revise(ctx, memory, apply_document(ctx, memory, document), document)
    return "edited"


def _move_or_restore(
    ctx: WriteContext, memory: StoredMemory, path: str, document: Document, *, unchanged: bool
) -> Outcome:
    """Move or restore a memory to the path of its file, and apply the content of the file unless it is unchanged."""
    if path != memory.path:
        file_journal.drop_synced(ctx.tx, memory.path, memory.id)
    file_journal.clear_former_path(ctx.tx, path)
    there = memory._replace(path=path, deleted=None)
    if not unchanged:
        there = apply_document(ctx, there, document)
    elif document.title is None:
        # The title is the name of the file.
        there = there._replace(title=title_of_note(there, there.text))
    space = ctx.space_of_file(path)
    revise(ctx, memory, there, document, to=space)
    if memory.deleted is not None:
        return "restored"
    check_copy(ctx, memory.id)
    return "moved"


def restore(
    ctx: WriteContext,
    tombstone: StoredMemory,
    restored: StoredMemory,
    changed: Sequence[str],
    *,
    how: str,
    document: Document | None = None,
    version: int | None = None,
) -> StoredMemory:
    """Bring a deleted memory back, with its history, links, tags and session, and with the fields that changed.

    Notices about its deletion are withdrawn. A copy is tied to its source as far as that is possible now, and takes
    over what the source says now.
    """
    file_journal.clear_former_path(ctx.tx, restored.path)
    memory = store_version.store_version(
        ctx,
        tombstone,
        restored._replace(deleted=None),
        [*changed, "deleted"],
        how=how,
        document=document,
        version=version,
    )
    check_copy(ctx, memory.id)
    return memory


def apply_document(ctx: WriteContext, memory: StoredMemory, document: Document) -> StoredMemory:
    """Return a memory with the changes of its file; the lines of ours stay as the database has them.

    The file of an older commit takes nothing back. Only a reason for superseding is read where the memory has none: it
    lost that together with the link, when a file without the link was checked out.
    """
    edited = _with_own_hashes(ctx, memory, memory_from_document(memory, document))
    superseded = {link.target for link in edited.links if link.relation == "supersedes"}
    reasons = {reason.superseded: reason for reason in document.superseded_because if reason.superseded in superseded}
    reasons |= {reason.superseded: reason for reason in memory.supersede_reasons}
    return with_words_taken(ctx, edited._replace(supersede_reasons=tuple(reasons.values())), document)


def _with_own_hashes(ctx: WriteContext, memory: StoredMemory, edited: StoredMemory) -> StoredMemory:
    """Return an edited memory whose links keep the hashes that they have, where the file has hashes of another home."""
    own = {(link.relation, link.target): link for link in memory.links}
    keys = ctx.engines.keys
    links = tuple(
        own.get((link.relation, link.target), link)
        if link.target_hash and content_hashes.is_foreign(keys, link.target_hash)
        else link
        for link in edited.links
    )
    return edited._replace(links=links) if links != edited.links else edited


def with_words_taken(ctx: WriteContext, copy: StoredMemory, document: Document) -> StoredMemory:
    """Return a copy with the words of its file as ones that it took over, if the file proves that.

    The hash of its link to the source is keyed: only this home can have written one that fits these words. So an older
    file of the copy is not an edit of it.
    """
    link, hash_ = copy.source, store_version.with_hashes(ctx, copy).copy_hash
    if link is None or hash_ is None or (link.relation, link.target, hash_) not in document.links:
        return copy
    links = tuple(one._replace(target_hash=hash_) if one == link else one for one in copy.links)
    return copy._replace(links=links)


def _check_copy_after_trouble(ctx: WriteContext, synced: file_journal.SyncedFile | None) -> None:
    """Have a copy follow its source again when its file was malformed or missing before."""
    if synced is not None and synced.trouble is not None:
        check_copy(ctx, synced.memory)


def check_copy(ctx: WriteContext, memory_id: str | None) -> None:
    """Have a copy take over changes that its source got while the file of the copy was away.

    The step that updates copies works by source: this marks the source, and all of its copies are checked. What a
    person did to the file of the source comes first: else the copy would get an older text.
    """
    memory = memories.find(ctx.tx, ctx.spaces, memory_id) if memory_id else None
    link = memory.source if memory else None
    source = memories.find(ctx.tx, ctx.spaces, link.target) if link else None
    if source is None or source.deleted is not None:
        return
    with suppress(FileInTheWay, FileNotInPlace):
        source = with_file_changes(ctx.as_filesystem(), source, scanned=False)
        ctx.pending.note_source_to_check(source)


def _claim_path(ctx: WriteContext, path: str, stat: FileStat, hash_: str, memory: StoredMemory) -> None:
    """Record that the path belongs to this memory; another memory whose file was there has lost its file."""
    before = file_journal.synced_file(ctx.tx, path)
    file_journal.set_synced(ctx.tx, path, stat, hash_, memory=memory.id, version=memory.version)
    if before is not None and before.memory not in {None, memory.id}:
        handle_missing_file(ctx, path, before.memory)


def handle_missing_file(ctx: WriteContext, path: str, memory_id: str | None) -> bool:
    """Delete the memory whose file is missing at this path, unless it is to be elsewhere; return whether it was."""
    memory = memories.find(ctx.tx, ctx.spaces, memory_id) if memory_id else None
    if memory is None or memory.deleted is not None or memory.path != path:
        return False
    pending = file_journal.journal_entries(ctx.tx, [memory.id]).get(memory.id)
    if pending is not None and not pending.is_write_back:
        return False
    if memory.notice is not None:
        # A missing file decides nothing, and the notice may be all that is left of its cause: it is written again,
        # unless it is obsolete.
        ctx.enqueue_files([memory])
        ctx.note_reasoning_change(memory, memory)
        return False
    file_journal.drop_entry(ctx.tx, memory.id)
    store_version.delete(ctx, memory, how="file")
    return True


def _apply_at_former_path(
    ctx: WriteContext, memory: StoredMemory, path: str, stat: FileStat, hash_: str, document: Document
) -> Outcome:
    """Apply a save at a former path as an edit of the moved memory; the file there is then removed by the journal.

    If the memory has left the space of that path, its new readers were not meant: the save becomes a memory of its own.
    """
    known = hash_ in file_journal.known_hashes(ctx.tx, memory.id)
    if not known and file_journal.space_left(ctx.tx, path) != memory.space.id:
        return _add(ctx, path, stat, hash_, document, fresh_id=True)
    file_journal.set_synced(ctx.tx, path, stat, hash_, memory=memory.id, version=memory.version)
    if known:
        ctx.enqueue_files([memory])
    else:
        revise(ctx, memory, apply_document(ctx, memory, document))
    return "edited"


def changed_fields(old: StoredMemory, new: StoredMemory) -> list[str]:
    """Return the names of the fields that a file can change and that differ."""
    return [name for name in _FIELDS if getattr(old, name) != getattr(new, name)]


def revise(
    ctx: WriteContext,
    old: StoredMemory,
    new: StoredMemory,
    document: Document | None = None,
    *,
    to: Space | None = None,
) -> None:
    """Store the fields that a file changed as a new version; if none did, only note a new path.

    `document` is the file, if it is where the memory is: it is then completed where something of ours is missing.
    """
    changed = changed_fields(old, new)
    version = store_version.version_from_file(ctx, above=old.version)
    space = to or old.space
    if space.id != old.space.id:
        changed.append("space")
    if old.deleted is not None:
        restore(ctx, old, new._replace(space=space), changed, how="file", document=document, version=version)
        return
    if changed:
        is_reverted = save_order.takes_back(ctx, old, new)
        new = store_version.store_version(
            ctx, old, new._replace(space=space), changed, how="file", document=document, version=version
        )
        if is_reverted:
            save_order.mark_reverted(ctx, new)
        if new.source != old.source:
            check_copy(ctx, new.id)
        return
    if new.path != old.path:
        memories.relocate(ctx.tx, old, new.path)
    store_version.write_back(ctx, new, document)


# --- the memory that a file belongs to


def match_memory(
    ctx: WriteContext, path: str, synced: file_journal.SyncedFile | None, document: Document
) -> tuple[StoredMemory | None, bool]:
    """Decide which memory a file belongs to: a known path keeps its memory, a moved file the one that its id names.

    The second value tells that the file is a copy of the file of another memory, whose id it must not keep.
    """
    at_path = memories.find(ctx.tx, ctx.spaces, synced.memory) if synced and synced.memory else None
    if at_path is not None and at_path.deleted is not None:
        at_path = None
    named = memories.find(ctx.tx, ctx.spaces, document.id) if document.id else None
    if named is not None and at_path is not None and named.id != at_path.id:
        # An id edited by hand is put back, unless the file that it belongs to was really moved over this one.
        moved_over = named.deleted is not None or not is_in_place(ctx, named)
        return (named if moved_over else at_path), False
    if named is None and at_path is not None and document.id and _waits_for_its_id(ctx, at_path):
        # The database was lost while the commit was checked out that has no ids; now the file brings its own.
        return None, False
    if at_path is not None:
        return at_path, False
    if named is None or named.deleted is not None:
        return named, False
    pending = file_journal.journal_entries(ctx.tx, [named.id]).get(named.id)
    if named.path == path or (pending and path in pending.paths) or file_journal.moved_from(ctx.tx, path) == named.id:
        return named, False
    if pending or is_in_place(ctx, named):
        return None, True
    return named, False


def known_without_id(ctx: WriteContext, path: str, document: Document, gone_id: str | None) -> StoredMemory | None:
    """Return the memory that a file without an id belongs to at a path that is new, or None.

    Either the file of a memory had this very content at a path where it is no longer, or a memory with this text was
    deleted here.
    """
    moved = memories.find(ctx.tx, ctx.spaces, gone_id) if gone_id else None
    if moved is not None and moved.deleted is None and not ctx.engines.folder.exists(moved.path):
        return moved
    deleted_id = memories.at_path(ctx.tx, path, is_deleted=True)
    deleted = memories.find(ctx.tx, ctx.spaces, deleted_id) if deleted_id else None
    return deleted if deleted is not None and deleted.text == document.text else None


def _waits_for_its_id(ctx: WriteContext, memory: StoredMemory) -> bool:
    """Return whether the file of a memory was still to be completed, so that its id may never have been in it."""
    pending = file_journal.journal_entries(ctx.tx, [memory.id]).get(memory.id)
    return pending is not None and pending.is_write_back


def is_in_place(ctx: WriteContext, memory: StoredMemory) -> bool:
    """Return whether the file of a memory is still at its path; a file that names another memory does not count."""
    try:
        data = ctx.engines.folder.read(memory.path)
        named_id = None if data is None else parse_file(data, ctx.engines).id
    except (BadFile, OSError):
        return True
    return ctx.engines.folder.exists(memory.path) if data is None else named_id in {None, memory.id}


def is_place_taken(ctx: WriteContext, path: str, memory: StoredMemory | None, document: Document) -> bool:
    """Return whether a copy that is new in this space cannot be tied here: its root, or another copy of it, is there.

    In an older database, that may be a memory whose file is gone, since it was moved or deleted since.
    """
    ties = (claim_of(document), memory.shared if memory else None)
    roots = {tie.root for tie in ties if tie is not None and tie.mode != DETACHED}
    space = titles.space_at(path, ctx.spaces.values())
    if not roots or space is None or (memory is not None and not _is_new_in(ctx, memory, space)):
        return False
    bound = {copies.of_root(ctx.tx, root, space.id) or root for root in roots}
    own = {document.id, memory.id if memory else None}
    in_space = memories.get_headers(ctx.tx, {space.id: space}, sorted((roots | bound) - own)).values()
    return any(other.deleted is None for other in in_space)


def _is_new_in(ctx: WriteContext, memory: StoredMemory, space: Space) -> bool:
    """Return whether a memory whose file is in this space was deleted, or was elsewhere before."""
    return memory.deleted is not None or (memory.space.id != space.id and not is_in_place(ctx, memory))


def new_memory_of(ctx: WriteContext, path: str, stat: FileStat, document: Document, *, fresh_id: bool) -> StoredMemory:
    """Return the new memory of a file that belongs to none, with the id in the file unless `fresh_id` is set."""
    memory_id = document.id if document.id and not fresh_id else new_id()
    space = ctx.space_of_file(path)
    same_id = document.id == memory_id
    memory = new_memory(
        ctx,
        memory_id=memory_id,
        space=space,
        path=path,
        how="file",
        title=titles.title_of_note(path, memory_id, document.text),
        text=document.text,
    )
    saved = user_times.time_of_file(stat.mtime_ns, now=ctx.tx.now)
    memory = new_memory_from_document(memory, document, same_id=same_id)
    memory = memory._replace(
        created=document.created or saved,
        updated=document.updated or saved,
        version=store_version.version_from_file(ctx) if same_id else 1,
    )
    # A file that somebody copied was not shared: it does not follow the source of the copied file.
    return memory if same_id else store_version.detached(memory._replace(shared=claim_of(document)))


# --- saves that were displaced while we wrote


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
            revise(ctx, memory, apply_document(ctx, memory, document))
        else:
            save_order.record_earlier(ctx, memory, document)


def _is_newer(save: ConcurrentSave, memory: StoredMemory) -> bool:
    """Return whether a displaced save is newer than its memory: what we wrote meanwhile is a person's save, or older.

    After a crash nothing is known about it, and it goes into the history.
    """
    if save.journal is None or memory.deleted is not None:
        return False
    journal = None if save.is_later and save.journal.version == memory.version else save.journal
    return save_order.is_newest(row_version=memory.version, journal=journal)


def _parse_or_plain(ctx: WriteContext, data: bytes) -> Document:
    """Parse a file; if it does not parse, return all of it as plain text."""
    try:
        return parse_file(data, ctx.engines)
    except BadFile:
        text = data.decode("utf-8", "replace").replace("\0", "\ufffd")
        return Document(text=text)

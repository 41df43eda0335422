"""Taking in what people did to files: every save becomes a revision, and none overwrites what it did not see."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from commonbook.errors import BadFile, FileInTheWay, TooLarge
from commonbook.files import episode_files
from commonbook.files.write_out import Typed
from commonbook.markdown.front_matter import VERBATIM, Document
from commonbook.markdown.memory_file import filled_from_file, parsed, rendered, rendered_document, said_by, tie_of
from commonbook.model.ids import new_id
from commonbook.model.memory import Memory, Revision
from commonbook.model.spaces import FILESYSTEM, FILESYSTEM_ACTOR, Space
from commonbook.ports.files import FileStat
from commonbook.tables import files, links, memories, revisions
from commonbook.tables.files import Verdict
from commonbook.text import space_paths, titles
from commonbook.write import revise
from commonbook.write.context import Desk
from commonbook.write.new_memory import new_memory

Outcome = Literal["new", "edited", "moved", "restored", "malformed", "known", "copied", "none"]

_MANY: Final = 10**12
_FIELDS: Final = (
    "title",
    "text",
    "kind",
    "tags",
    "author",
    "created",
    *VERBATIM,
    "links",
    "layout",
)


def take_in(desk: Desk, path: str) -> Outcome:
    """Look at the file at a path and let the book say what it says; tell what it was."""
    base = files.base(desk.tx, path)
    stat = desk.parts.folder.stat(path)
    if stat is None:
        return "none"
    try:
        data = desk.parts.folder.read(path)
    except OSError as error:
        return _refuse(desk, path, stat, "", base, f"cannot be read: {error.strerror}")
    if data is None:
        return "none"
    hash_ = files.content_hash(data)
    if base is not None and base.hash == hash_:
        trouble = None if base.trouble == files.MISSING else base.trouble
        files.set_base(desk.tx, path, stat, hash_, memory=base.memory, version=base.version, trouble=trouble)
        if trouble is None:
            _follow_again(desk, base)
        return "known"
    try:
        document = parsed(data, desk.parts)
    except BadFile as error:
        return _refuse(desk, path, stat, hash_, base, str(error))
    if not _has_room(desk, document):
        return _refuse(desk, path, stat, hash_, base, "the front matter is too long: no room is left for our fields")
    _follow_again(desk, base)
    memory, how = _whose(desk, path, base, document)
    if memory is None:
        return _add(desk, path, stat, hash_, document, fresh_id=how == "copied")
    return _update(desk, memory, path, stat, hash_, document)


def _has_room(desk: Desk, document: Document) -> bool:
    """Tell whether the front matter can take the fields that we add."""
    whole = document._replace(
        id=document.id or new_id(),
        title=document.title or titles.title_from(document.text),
        created=document.created or desk.tx.now,
        updated=desk.tx.now,
        author=document.author or FILESYSTEM,
        revision=_MANY,
        version=_MANY,
        has_front=True,
    )
    try:
        rendered_document(whole, desk.parts)
    except TooLarge:
        return False
    return True


class FileGone(Exception):
    """A file is not where its memory says: before it is changed, somebody has to look where it went."""


def fresh(desk: Desk, memory: Memory, *, looked: bool) -> Memory:
    """Take in what a person did to the file of a memory that is about to be changed; return it as it is then."""
    if not desk.parts.folder.keeps_files:
        return memory
    base = files.base(desk.tx, memory.path)
    try:
        stat = desk.parts.folder.stat(memory.path)
    except OSError as error:
        raise FileInTheWay(
            f"{memory.path} cannot be looked at: {error.strerror}", fix="give this user the right to read it"
        ) from error
    if stat is None:
        if base is not None and not looked and not files.journal(desk.tx, [memory.id]):
            raise FileGone
        return memory
    if base is not None and base.matches(stat) and base.trouble is None:
        return memory
    if take_in(desk.acting_as(FILESYSTEM_ACTOR), memory.path) == "malformed" or _in_trouble(desk, memory.path):
        raise FileInTheWay(
            f"{memory.path} does not parse, and we do not write over what a person is mending",
            fix=f"mend the front matter of {memory.path}; `commonbook doctor` says what is wrong with it",
        )
    return desk.require(memory.id)


def _in_trouble(desk: Desk, path: str) -> bool:
    base = files.base(desk.tx, path)
    return base is not None and base.trouble is not None


def typed(desk: Desk, found: Sequence[Typed]) -> None:
    """Take in what came out of an exchange: on top of what the memory says, or into its history."""
    for one in found:
        data = desk.parts.folder.read_out(one.name)
        memory = memories.find(desk.tx, desk.spaces, one.memory)
        if data is None:
            continue
        if memory is None:
            # The database that knew the memory is lost: its text is not.
            desk.parts.folder.put_back(one.name, f"recovered-{one.name}.md")
            continue
        document = _legible(desk, data)
        if document.id not in (None, memory.id):
            # Another memory's file lay at our path: it goes beside it, where the next look finds it.
            desk.parts.folder.put_back(one.name, one.path or memory.path)
            continue
        if files.content_hash(data) in files.known_hashes(desk.tx, memory.id):
            continue
        if document.version != memory.version and _is_known(desk, memory, document):
            # A text of ours that another process wrote out late, or one that a person went back to: it is kept already.
            continue
        verdict = files.judge(version=document.version, row_version=memory.version, journal=one.journal)
        if one.journal is not None and verdict is Verdict.NEWER and memory.deleted is None:
            _revise(desk, memory, said_by(memory, document), seen=document.version)
        else:
            _record_earlier(desk, memory, document)


def _refuse(desk: Desk, path: str, stat: FileStat, hash_: str, base: files.Base | None, reason: str) -> Outcome:
    """Leave a file that does not parse alone, and remember what is wrong with it."""
    memory = base.memory if base else memories.at_path(desk.tx, path)
    version = base.version if base else 0
    files.set_base(desk.tx, path, stat, hash_, memory=memory, version=version, trouble=reason)
    return "malformed"


def _whose(desk: Desk, path: str, base: files.Base | None, document: Document) -> tuple[Memory | None, str]:
    """Decide which memory a file means: the known path keeps its id, a moved file takes its own along."""
    here = memories.find(desk.tx, desk.spaces, base.memory) if base and base.memory else None
    if here is not None and here.deleted is not None:
        here = None
    named = memories.find(desk.tx, desk.spaces, document.id) if document.id else None
    if named is not None and here is not None and named.id != here.id:
        # An id edited by hand is put back, unless the file that it belongs to was really moved over this one.
        moved_over = named.deleted is not None or not _is_at_home(desk, named)
        return (named, "moved") if moved_over else (here, "known")
    if here is not None:
        return here, "known"
    if named is None:
        return None, "new"
    if named.deleted is not None:
        return named, "restored"
    pending = files.journal(desk.tx, [named.id]).get(named.id)
    if named.path == path or (pending and path in pending.paths) or files.left(desk.tx, path) == named.id:
        return named, "known"
    if pending or _is_at_home(desk, named):
        return None, "copied"
    return named, "moved"


def _is_at_home(desk: Desk, memory: Memory) -> bool:
    """Tell whether a memory's own file is still where it was: a file that names another memory is not it."""
    try:
        data = desk.parts.folder.read(memory.path)
        there = None if data is None else parsed(data, desk.parts).id
    except (BadFile, OSError):
        return True
    return desk.parts.folder.exists(memory.path) if data is None else there in {None, memory.id}


def _legible(desk: Desk, data: bytes) -> Document:
    """Read what a person typed; what does not parse is kept as plain text."""
    try:
        return parsed(data, desk.parts)
    except BadFile:
        text = data.decode("utf-8", "replace").replace("\0", "\ufffd")
        return Document(text=text)


# --- a file that is new


def _add(desk: Desk, path: str, stat: FileStat, hash_: str, document: Document, *, fresh_id: bool) -> Outcome:
    memory_id = document.id if document.id and not fresh_id else new_id()
    space = desk.space(space_paths.space_of(path), origin="folder")
    own = document.id == memory_id
    memory = new_memory(
        desk,
        memory_id=memory_id,
        space=space,
        path=path,
        how="file",
        title=titles.title_from(document.text),
        text=document.text,
    )
    memory = filled_from_file(memory, document, same_id=own)._replace(
        updated=document.updated or desk.tx.now,
        shared=tie_of(document),
    )
    # A file that somebody copied was shared by nobody: it does not follow what the copied one follows.
    memory = revise.arrived(desk, memory) if own else revise.detached(memory)
    memories.add(desk.tx, [memory])
    links.add(desk.tx, space.id, memory.links)
    episode_files.adopt(desk, memory)
    files.set_base(desk.tx, path, stat, hash_, memory=memory.id, version=memory.version)
    files.arrive(desk.tx, path)
    desk.shake(None, memory)
    desk.log_memory(memory, "remember", how="file")
    if files.content_hash(rendered(memory, desk.parts)) != hash_:
        desk.issue([memory])
    return "copied" if fresh_id else "new"


# --- a file of a memory that we know


def _update(desk: Desk, memory: Memory, path: str, stat: FileStat, hash_: str, document: Document) -> Outcome:
    unchanged = hash_ == files.content_hash(rendered(memory, desk.parts))
    if path != memory.path or memory.deleted is not None:
        if files.left(desk.tx, path) == memory.id and memory.deleted is None and _is_at_home(desk, memory):
            return _save_at_left_path(desk, memory, path, stat, hash_, document)
        _replace_base(desk, path, stat, hash_, memory)
        return _arrive(desk, memory, path, None if unchanged else document)
    journal = files.journal(desk.tx, [memory.id]).get(memory.id)
    if journal is not None and hash_ in journal.hashes:
        return "known"
    _replace_base(desk, path, stat, hash_, memory)
    if unchanged:
        return "known"
    if journal is not None and _is_written_late(desk, memory, document):
        desk.issue([memory], seen=journal.seen)
        return "known"
    if files.judge(version=document.version, row_version=memory.version, journal=journal) is Verdict.EARLIER:
        _record_earlier(desk, memory, document)
    else:
        _revise(desk, memory, said_by(memory, document), seen=document.version)
    return "edited"


def _arrive(desk: Desk, memory: Memory, path: str, document: Document | None) -> Outcome:
    """Let a memory be where its file was found, moved or brought back, and say what the file says if that is new."""
    if path != memory.path:
        files.drop_base(desk.tx, memory.path, memory.id)
    files.arrive(desk.tx, path)
    said = memory if document is None else said_by(memory, document)
    space = desk.space(space_paths.space_of(path), origin="folder")
    seen = memory.version if document is None else document.version
    _revise(desk, memory, said._replace(path=path, deleted=None), to=space, seen=seen)
    _follow(desk, memory.id)
    return "moved" if memory.deleted is None else "restored"


def _follow_again(desk: Desk, base: files.Base | None) -> None:
    """Let a copy follow whose file was in trouble and is no longer."""
    if base is not None and base.trouble is not None:
        _follow(desk, base.memory)


def _follow(desk: Desk, memory_id: str | None) -> None:
    """Let a copy take over what its source said while its file was away.

    It is the source's copies that are looked at when the story ends, this one among them.
    """
    memory = memories.find(desk.tx, desk.spaces, memory_id) if memory_id else None
    link = memory.source if memory else None
    source = memories.find(desk.tx, desk.spaces, link.target) if link else None
    if source is not None and source.deleted is None:
        desk.pending.check_copies(source)


def _replace_base(desk: Desk, path: str, stat: FileStat, hash_: str, memory: Memory) -> None:
    """Let the path be this memory's; one whose file lay there before has none any more."""
    base = files.base(desk.tx, path)
    files.set_base(desk.tx, path, stat, hash_, memory=memory.id, version=memory.version)
    if base is not None and base.memory not in {None, memory.id}:
        vanish(desk, path, base.memory)


def vanish(desk: Desk, path: str, memory_id: str | None) -> bool:
    """Delete the memory whose file was at this path and is gone, unless its file is meant to be elsewhere now."""
    memory = memories.find(desk.tx, desk.spaces, memory_id) if memory_id else None
    if memory is None or memory.deleted is not None or memory.path != path or files.journal(desk.tx, [memory.id]):
        return False
    revise.remove(desk, memory, how="file")
    return True


def _save_at_left_path(
    desk: Desk, memory: Memory, path: str, stat: FileStat, hash_: str, document: Document
) -> Outcome:
    """Take a save at a path that we left for an edit of the moved memory; the stray file is then taken away."""
    known = hash_ in files.known_hashes(desk.tx, memory.id)
    files.set_base(desk.tx, path, stat, hash_, memory=memory.id, version=memory.version)
    if known:
        desk.issue([memory])
    else:
        _revise(desk, memory, said_by(memory, document), seen=document.version)
    return "edited"


def changed_fields(old: Memory, new: Memory) -> list[str]:
    """Return the names of the fields that a file can change and that differ."""
    return [name for name in _FIELDS if getattr(old, name) != getattr(new, name)]


def _revise(desk: Desk, old: Memory, said: Memory, *, seen: int | None, to: Space | None = None) -> None:
    """Let the memory say this from now on, in the name of the file system."""
    changed = changed_fields(old, said)
    space = to or old.space
    if space.id != old.space.id:
        changed.append("space")
    if old.deleted is not None:
        changed.append("deleted")
    if changed:
        revise.amend(desk, old, said._replace(space=space), changed, how="file", seen=seen)
        return
    if said.path != old.path:
        memories.relocate(desk.tx, old, said.path)
    if said.path == old.path or files.journal(desk.tx, [old.id]):
        desk.issue([said])


def _is_written_late(desk: Desk, memory: Memory, document: Document) -> bool:
    """Tell whether a file that we are about to write over has a text of ours that another process wrote out late."""
    return memory.deleted is None and document.version != memory.version and _is_known(desk, memory, document)


def _is_known(desk: Desk, memory: Memory, document: Document) -> bool:
    """Tell whether the memory says or ever said what a file says."""
    said = (document.title or memory.title, document.text)
    past = ((one.title, one.text) for one in revisions.past(desk.tx, memory))
    return said == (memory.title, memory.text) or said in past


def _record_earlier(desk: Desk, memory: Memory, document: Document) -> None:
    """Keep a text that was typed before the present one and came in after it, then let the present one stand."""
    title = document.title or memory.title
    if _is_known(desk, memory, document):
        if memory.deleted is None:
            desk.issue([memory])
        return
    revisions.archive(desk.tx, memory)
    earlier = Revision(
        revision=memory.revision + 1,
        title=title,
        text=document.text,
        author=FILESYSTEM,
        at=desk.tx.now,
        how="file, overtaken",
    )
    revisions.keep(desk.tx, memory, earlier)
    said = memory._replace(title=title, text=document.text, revision=earlier.revision, version=memory.version + 1)
    desk.log_memory(said, "edit", overtaken=True)
    stands = memory._replace(
        revision=memory.revision + 2, version=memory.version + 2, updated=desk.tx.now, revised_at=desk.tx.now
    )
    if stands.shared is not None and stands.shared.own == memory.revision:
        # It says what its source says, as before.
        stands = stands._replace(shared=stands.shared._replace(own=stands.revision))
    memories.replace(desk.tx, stands)
    desk.pending.note_changed_text(stands)
    desk.log_memory(stands, "edit", stands=True)
    desk.issue([stands])

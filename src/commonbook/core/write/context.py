"""The write context of an operation: its transaction, its actor, the spaces in reach, and the pending work.

`Pending` has the notes that the operation leaves for the later steps of the same write, and `ForeignWrite` lists all
reasons to write to a space that the principal of a call may not write to.

An operation is a function of a `WriteContext`. It reads and writes rows through `ctx.tx`, records each change with
`ctx.log`, requests files with `ctx.enqueue_files`, and leaves work for later steps in `ctx.pending`.
`commonbook.core.write.transaction` runs it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, MutableMapping, Sequence
from datetime import datetime
from enum import Enum
from typing import Final, NamedTuple

from commonbook.core.access import permissions
from commonbook.core.markdown import space_file
from commonbook.core.markdown.memory_conversion import render_memory
from commonbook.core.tables import file_journal, memories, sessions, spaces
from commonbook.core.text import space_names, titles, user_times
from commonbook.core.write import space_folders
from commonbook.errors import DiskFull, FileInTheWay, NotAllowed, NotFound
from commonbook.ports.database import RetryTransaction, Transaction
from commonbook.ports.engines import Engines
from commonbook.ports.files import FilesToWrite
from commonbook.values.ids import new_id
from commonbook.values.reports import Change
from commonbook.values.spaces import FILESYSTEM_ACTOR, READER, WRITER, Actor, Review, Space, SpaceScope
from commonbook.values.stored_memory import StoredMemory


class ForeignWrite(Enum):
    """A reason to write by other rights than those of the principal that made the call; the value says why."""

    SHARER = (
        "A copy follows its source in the name of the principal that shared it, or that approved the share, no matter"
        " who edits the source. The rights to read the source and to write to the space of the copy are checked each"
        " time."
    )
    RULE_CREATOR = (
        "A sharing rule copies, or asks for approval, in the name of the principal that created it, no matter who"
        " writes the memory or approves it. Both rights of the creator are checked each time."
    )
    HAND_EDIT = (
        "A person has saved the file of a memory that this call is about to change. The save comes first, in the name"
        " of the file system, whose right is that of the user who can write to the folder."
    )
    NOTICE = (
        "A notice is made beside a memory that depends on something superseded or deleted, wherever that memory is. The"
        " notice names the principal that caused it, which learns nothing of spaces that it may not read. Who decides"
        " about the memory removes it."
    )
    REINSTATE = (
        "Reinstating a memory removes the links by which others supersede it. The right to write to the reinstated one"
        " is enough, since the others lose nothing but that link."
    )
    REQUEST = (
        "A principal that may read a space asks its administrators to share a memory into it, or withdraws that. The"
        " log of the space has the request; no memory of it changes."
    )
    PROPOSAL = (
        "An agent proposes a memory in a new space below one that is under review. The space is made by the right that"
        " the agent has without the review; only the space of the proposals gets a memory."
    )
    REFUSAL = "An attempt on a memory that was refused is in the log of its space, in the name of the one who tried."
    OWN_KEY = (
        "A principal makes and revokes API keys of its own. That belongs to no space, and is in the log of the home,"
        " which its owner alone reads."
    )
    SYSTEM_SPACE = (
        "The program creates a space for its own use, such as the one that two principals share, or that of notices."
        " No caller chooses its name. Its log begins with its creation and its first grants."
    )


class ChangedIn(NamedTuple):
    """The space of a changed memory, and the principal who changed it."""

    space: str
    principal: str


class Pending:
    """The work that an operation leaves for the steps before `finalize`, for `finalize`, and for after the commit.

    Each actor of a transaction has its own `changed_texts`, `changed_ids` and `reasoning_changed`, because the steps
    before `finalize` run once for each actor. All actors share `validity_changed` and `files_to_write`, because there
    is one `finalize` and one commit.
    """

    __slots__ = ("changed_ids", "changed_texts", "files_to_write", "reasoning_changed", "validity_changed")

    def __init__(self) -> None:
        """Start a transaction with nothing pending."""
        self.changed_texts: dict[str, StoredMemory] = {}
        """Memories by id whose title or text changed: their copies must take the change over."""
        self.changed_ids: dict[str, ChangedIn] = {}
        """Memories by id that were written in any way: sharing rules must check them."""
        self.reasoning_changed: dict[str, tuple[StoredMemory | None, StoredMemory]] = {}
        """Memories by id, as (before, after), whose dependencies or whose own validity changed: notices to dependents
        must be updated.
        """
        self.validity_changed: list[StoredMemory] = []
        """Memories, before and after a change, that may end at another time, or supersede others: recall returns those
        and all copies of them differently.
        """
        self.files_to_write = FilesToWrite()

    def of_another_actor(self) -> Pending:
        """Return the pending work of another actor of the same transaction: files are shared."""
        other = Pending()
        other.validity_changed = self.validity_changed
        other.files_to_write = self.files_to_write
        return other

    @property
    def is_incomplete(self) -> bool:
        """Whether a text or a dependency has changed that copies or notices do not show yet."""
        return bool(self.changed_texts or self.reasoning_changed)

    # --- changed texts, for copies

    def note_changed_text(self, memory: StoredMemory) -> None:
        """Note that the copies of a memory must take over its present text."""
        self.changed_texts[memory.id] = memory

    def note_source_to_check(self, source: StoredMemory) -> None:
        """Note a source whose copies must be checked, although its text did not change in this operation."""
        self.changed_texts.setdefault(source.id, source)

    def take_changed_texts(self) -> dict[str, StoredMemory]:
        """Return the memories whose text changed, and clear the note."""
        memories, self.changed_texts = self.changed_texts, {}
        return memories

    def take_latest(self, memory: StoredMemory) -> StoredMemory:
        """Return a memory with its latest text, and clear its note: its text may have changed after the last take."""
        return self.changed_texts.pop(memory.id, memory)

    # --- changed dependencies, for notices

    def note_reasoning_change(self, before: StoredMemory | None, after: StoredMemory) -> None:
        """Note a change that may need notices; several changes of one memory merge to its first and its last state."""
        first = self.reasoning_changed[after.id][0] if after.id in self.reasoning_changed else before
        self.reasoning_changed[after.id] = (first, after)

    def take_reasoning_changes(self) -> dict[str, tuple[StoredMemory | None, StoredMemory]]:
        """Return the noted changes as (before, after) by memory id, and clear the note."""
        changes, self.reasoning_changed = self.reasoning_changed, {}
        return changes

    # --- changed ids, for sharing rules

    def note_changed_id(self, memory_id: str, *, space: str, principal: str) -> None:
        """Have sharing rules check a memory that a principal changed in a space."""
        self.changed_ids[memory_id] = ChangedIn(space, principal)

    def spaces_of_changed_ids(self) -> set[str]:
        """Return the spaces of the memories that rules have not checked yet."""
        return {changed.space for changed in self.changed_ids.values()}

    def keep_changed_ids_in(self, spaces_: Collection[str]) -> None:
        """Drop the changed memories of all other spaces, from which no rule shares."""
        for id_ in [id_ for id_, changed in self.changed_ids.items() if changed.space not in spaces_]:
            del self.changed_ids[id_]

    def first_changed_ids(self, limit: int) -> list[str]:
        """Return at most `limit` memories that rules have not checked yet, in the order of their ids."""
        return sorted(self.changed_ids)[:limit]

    def forget_changed_ids(self, ids: Iterable[str]) -> None:
        """Drop memories that rules have checked."""
        for id_ in ids:
            self.changed_ids.pop(id_, None)

    def take_changed_ids(self) -> dict[str, ChangedIn]:
        """Return the memories that rules have not checked yet, and clear the note."""
        unchecked, self.changed_ids = self.changed_ids, {}
        return unchecked

    # --- files

    def bytes_to_write(self) -> int:
        """Return the size of all files to write."""
        return sum(len(data) for data in self.files_to_write.values() if data)


_DISK_RESERVE_BYTES: Final = 2 * 1024 * 1024

HOME_SPACE: Final = "_home"
"""The space whose log holds the entries that belong to no other space: those of API keys and rate limits."""


class WriteContext:
    """The transaction, the engines, the actor, the spaces and the pending work of an operation.

    Each actor of a transaction has its own context (`beside`). All contexts share `tx`, `engines`, `permissions` and
    `spaces`, so that a space that one actor creates is known to the others. Which parts of `pending` they share is
    documented at `Pending`. An operation may run more than once: its contexts, and everything in them, are created
    again for each run.
    """

    __slots__ = ("actor", "engines", "foreign", "pending", "permissions", "spaces", "tx")

    def __init__(
        self,
        *,
        tx: Transaction,
        engines: Engines,
        actor: Actor,
        permissions: dict[Actor, permissions.PermissionSnapshot],
        spaces: MutableMapping[str, Space],
        pending: Pending,
        foreign: ForeignWrite | None = None,
    ) -> None:
        """Keep the parts; nothing is read yet."""
        self.tx: Final = tx
        self.engines: Final = engines
        self.actor: Final = actor
        self.permissions: Final = permissions
        """Permissions of every actor as first read in this transaction; `finalize` checks that they still hold."""
        self.spaces: Final = spaces
        """All spaces of the book by id, readable or not."""
        self.pending: Final = pending
        self.foreign: Final = foreign
        """The reason why this context may write to spaces that its actor may not write to; mostly there is none."""

    @property
    def readable(self) -> SpaceScope:
        """The spaces that the actor may read."""
        return self.permissions_of(self.actor).with_role(READER, self.spaces)

    @property
    def writable(self) -> SpaceScope:
        """The spaces that the actor may write to."""
        return self.permissions_of(self.actor).with_role(WRITER, self.spaces)

    def permissions_of(self, actor: Actor) -> permissions.PermissionSnapshot:
        """Return the permissions of an actor, read once: if they shrink before the commit, the operation runs again."""
        if actor not in self.permissions:
            self.permissions[actor] = permissions.PermissionSnapshot(self.tx, actor)
        return self.permissions[actor]

    def acting_as(self, actor: Actor, reason: ForeignWrite) -> WriteContext:
        """Return a context for work that this actor causes, done with the permissions and in the name of another.

        Everything else is shared: its changes are pending as changes of this actor.
        """
        return self._of(actor, self.pending, reason)

    def as_filesystem(self) -> WriteContext:
        """Return a context for what a person did to a file, before this actor changes its memory."""
        return self.acting_as(FILESYSTEM_ACTOR, ForeignWrite.HAND_EDIT)

    def because(self, reason: ForeignWrite) -> WriteContext:
        """Return a context of the same actor for work in spaces that it may not write to."""
        return self._of(self.actor, self.pending, reason)

    def beside(self, actor: Actor) -> WriteContext:
        """Return the context of another actor of the same transaction, with pending changes of its own."""
        return self._of(actor, self.pending.of_another_actor(), None)

    def _of(self, actor: Actor, pending: Pending, foreign: ForeignWrite | None) -> WriteContext:
        return WriteContext(
            tx=self.tx,
            engines=self.engines,
            actor=actor,
            permissions=self.permissions,
            spaces=self.spaces,
            pending=pending,
            foreign=foreign,
        )

    def require_writable(self, memory_id: str) -> StoredMemory:
        """Lock a live memory that the actor may write to, and return it.

        A memory that the actor may not even read is reported as not found.
        """
        memory = self.require_readable(memory_id)
        permissions.require_writable(self.actor, memory, self.writable, self.spaces)
        return memory

    def require_readable(self, memory_id: str) -> StoredMemory:
        """Lock a live memory that the actor may read, and return it."""
        self.lock([memory_id])
        return permissions.require_found(memories.find(self.tx, self.readable, memory_id), memory_id)

    def lock(self, ids: Iterable[str]) -> None:
        """Lock the rows of these memories until the transaction ends."""
        self._require_known_spaces(memories.lock(self.tx, ids))

    def lock_sessions(self, *keys: sessions.SessionKey) -> None:
        """Lock the rows of these sessions until the transaction ends: nobody else changes them or appends to them."""
        sessions.lock(self.tx, keys)

    def _require_known_spaces(self, space_ids: Collection[str]) -> None:
        """Retry the transaction if a locked row is in a space that was created after the spaces were read."""
        if not self.spaces.keys() >= set(space_ids):
            raise RetryTransaction

    def require_writable_space(self, name: str, *, origin: str = "new") -> Space:
        """Return the space of that name, created if needed; the actor must be allowed to write to it or create it."""
        if space := self.space_named(name):
            if space.id not in self.writable:
                raise self._refusal_to_write(space)
            return space
        if origin in {"folder", "import"} and space_names.is_system(name):
            # A file that this program wrote, in a home whose database was lost or in an exported folder.
            return self._add_space(name, origin)
        return self._create(space_names.require_space_name(name), origin)

    def _refusal_to_write(self, space: Space) -> NotAllowed:
        """Return the error for a space that is not writable; an unreadable one is refused like an unknown one."""
        if space.id not in self.readable:
            return permissions.refusal(self.actor, space.name)
        return permissions.refusal_to_write(self.actor, space.name, self.spaces)

    def system_space(self, name: str) -> Space:
        """Return a space of the system, created if needed, without a check of permissions: no caller asked for it."""
        return self.space_named(name) or self._add_space(name, "system")

    def space_named(self, name: str) -> Space | None:
        """Return the space of that name, readable or not, or None."""
        return next((space for space in self.spaces.values() if space.name == name), None)

    def space_of_file(self, path: str) -> Space:
        """Return the space that a file of the home lies in.

        Those of notices and proposals, and `personal`, are created if needed.
        """
        space = titles.space_at(path, self.spaces.values())
        if space is None:
            space = self.require_writable_space(space_names.PERSONAL, origin="folder")
        if space_names.is_beside_space(space.name):
            return space
        for beside in space_names.BESIDE_SPACE:
            if path.startswith(f"{space.base}/{beside}/"):
                return self.require_writable_space(f"{space.name}/{beside}", origin="folder")
        return space

    def _create(self, name: str, origin: str) -> Space:
        permissions.require_create(self.tx, self.actor, self.spaces, name)
        return self._add_space(space_names.require_new_name(name), origin)

    def _add_space(self, name: str, origin: str) -> Space:
        return self.add_space(name, self.choose_folder(name), origin=origin)

    def choose_folder(self, name: str, *, with_its_notes: bool = False) -> str:
        """Return the folder for a space of that name that does not exist yet."""
        others = self.spaces.values()
        return space_folders.choose_folder(self.tx, self.engines, others, name, with_its_notes=with_its_notes)

    def add_space(
        self, name: str, folder: str, *, origin: str, space_id: str | None = None, review: Review | None = None
    ) -> Space:
        """Create a space with this folder; the caller has checked that the actor may."""
        own_folder = spaces.own_folder(name, folder)
        space = Space(space_id or new_id(), name, self.tx.now, own_folder=own_folder, review=review)
        spaces.add(self.tx, space)
        self.spaces[space.id] = space
        ctx = self.because(ForeignWrite.SYSTEM_SPACE) if origin == "system" else self
        ctx.log(space, "space.create", (), name=name, origin=origin)
        if self.engines.folder.keeps_files:
            self.enqueue_space_files([space])
        return space

    def parse_time(self, name: str, value: datetime | str | None) -> datetime | None:
        """Parse the time that a caller gave for a field; without a zone it is in the zone of the home."""
        if value is None:
            return None
        return user_times.parse_user_time(
            value, zone=self.engines.zone, edge=user_times.field_edge(name), now=self.tx.now
        )

    def log(self, space: Space, action: str, subjects: Sequence[str], **payload: object) -> None:
        """Record a change, which `finalize` numbers and appends to the log of the space.

        Every change of a row is recorded here, so the right to write to the space that the row is in now is required
        here. A payload that names a principal changes the permissions of that principal, so they are read again.
        """
        if self.foreign is None and not self.may_write(space):
            raise _foreign_write(self.actor)
        for actor, snapshot in self.permissions.items():
            if actor.principal == payload.get("principal"):
                snapshot.reload(space.id)
        self.tx.record(
            Change(space=space.id, actor=self.actor.principal, action=action, subjects=tuple(subjects), payload=payload)
        )

    def log_memory(self, memory: StoredMemory, action: str, *others: str, **payload: object) -> None:
        """Record a change of a memory; the log holds its title and text only as a keyed hash."""
        content = self.engines.keys.keyed_hash(memory.title, memory.text)
        if any(link.relation == "supersedes" for link in memory.links):
            self.note_validity_change(memory)
        self.pending.note_changed_id(memory.id, space=memory.space.id, principal=self.actor.principal)
        # The payload key "said", a keyed hash of the content, is part of the signed logs of existing books.
        versions = {"revision": memory.revision, "version": memory.version, "said": content}
        self.log(memory.space, action, (memory.id, *others), **versions, **payload)

    def may_write(self, space: Space) -> bool:
        """Tell whether the actor may write to a space."""
        return self.permissions_of(self.actor).may_write(space, self.spaces)

    def note_validity_change(self, *states: StoredMemory) -> None:
        """Note a memory, as it was and as it is, that may end at another time or supersede others than before.

        The memories that it supersedes and the copies of both are numbered as changed too, since recall returns them
        differently.
        """
        self.pending.validity_changed += states

    def touch(self, space: Space, subjects: Iterable[str]) -> None:
        """Have subjects of a space, such as messages, numbered as changed without a log entry of their own.

        Readers that follow the numbers of the space, such as the recall index, then see them.
        """
        self.tx.touched.update(dict.fromkeys(subjects, space.id))

    def note_reasoning_change(self, before: StoredMemory | None, after: StoredMemory) -> None:
        """Note that dependents of a memory may need a notice: what it depends on or supersedes, or itself, changed."""
        self.pending.note_reasoning_change(before, after)

    def record_move(self, memory: StoredMemory, path: str) -> None:
        """Note that the file of a memory moves from its present path to another one."""
        if self.engines.folder.keeps_files:
            file_journal.record_move(self.tx, memory.path, memory.id, space=memory.space.id)
            file_journal.clear_former_path(self.tx, path)

    def enqueue_files(
        self, changed: Iterable[StoredMemory], *, is_write_back: bool = False, are_new: bool = False
    ) -> None:
        """Add journal entries that write the files of memories as they are now, or remove those of deleted ones.

        With `is_write_back`, a person's save was just applied, and its file is only completed. Memories that
        `are_new` were added by this transaction, with ids of its own: none has a file or an entry yet.
        """
        if not self.engines.folder.keeps_files:
            return
        entries: list[tuple[str, int, str | None, str | None]] = []
        in_spaces: dict[str, Space] = {}
        checked_folders: set[str] = set()
        for memory in changed:
            if memory.deleted is None:
                in_spaces[memory.space.id] = memory.space
            data = None if memory.deleted else render_memory(memory, self.engines)
            path = None if memory.deleted else memory.path
            if path is not None:
                self.engines.folder.require_place(path, checked_folders=checked_folders)
            self.pending.files_to_write[memory.id] = data
            hash_ = None if data is None else file_journal.content_hash(data)
            entries.append((memory.id, memory.version, path, hash_))
            if are_new and path is not None and hash_ is not None:
                self.pending.files_to_write.note_new(memory.id, version=memory.version, path=path, hash_=hash_)
            else:
                self.pending.files_to_write.new.pop(memory.id, None)
        file_journal.enqueue(self.tx, entries, is_write_back=is_write_back, are_new=are_new)
        if not is_write_back and (absent := file_journal.without_file(self.tx, tuple(in_spaces))):
            self.enqueue_space_files([space for id_, space in in_spaces.items() if id_ in absent])
        self.require_disk_space()

    def enqueue_space_files(self, changed: Iterable[Space]) -> None:
        """Add journal entries that write the space files of spaces; those of the system have none.

        Files that a scan wants wait while git is on no branch: a commit that was checked out stays as it is.
        """
        folder = self.engines.folder
        if not folder.keeps_files or (self.actor == FILESYSTEM_ACTOR and folder.is_between_branches()):
            return
        entries: list[tuple[str, int, str | None, str | None]] = []
        for space in changed:
            if not space_names.has_space_file(space.name):
                continue
            path, data = titles.space_file(space.folder), space_file.render(space)
            try:
                self.engines.folder.require_place(path)
            except FileInTheWay:
                # A space can be used without its file; the next scan tries again.
                continue
            self.pending.files_to_write[space.id] = data
            entries.append((space.id, file_journal.SPACE_FILE_VERSION, path, file_journal.content_hash(data)))
        file_journal.enqueue(self.tx, entries)

    def require_disk_space(self) -> None:
        """Raise DiskFull before anything is committed that the disk has no room to write out."""
        needed = _DISK_RESERVE_BYTES + 3 * self.pending.bytes_to_write()
        if self.engines.folder.free_bytes() < needed:
            raise DiskFull("the disk of the home is full", fix=f"free at least {needed:,} bytes and try again")


def _foreign_write(actor: Actor) -> NotAllowed:
    """Return the error for a change in a space that the actor may not write to; it does not name the space."""
    return NotAllowed(
        f"{actor.principal} may not write to a space that this would change",
        fix="ask the owner of the home for a grant",
    )


def administered_space(ctx: WriteContext, name: str) -> Space:
    """Return the space of that name, which the actor must administer or be allowed to create."""
    if all(space.name != name for space in ctx.spaces.values()):
        return ctx.require_writable_space(name)
    return permissions.require_admin(ctx.tx, ctx.actor, ctx.spaces, name)


def readable_space(ctx: WriteContext, name: str) -> Space:
    """Return the space of that name, which the actor must be allowed to read."""
    for space in ctx.readable.values():
        if space.name == name:
            return space
    if permissions.is_owner(ctx.actor):
        raise NotFound(f"there is no space {name!r}", fix="`commonbook space list` shows the spaces")
    raise permissions.refusal(ctx.actor, name)

"""The write context of an operation: its transaction, who acts, on which spaces, and the work that is pending."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, MutableMapping, Sequence
from datetime import datetime
from typing import Final

from commonbook.access import permissions
from commonbook.errors import DiskFull, NotFound
from commonbook.markdown.memory_file import render_memory
from commonbook.model.ids import new_id
from commonbook.model.memory import Memory
from commonbook.model.reports import Change
from commonbook.model.session import Session
from commonbook.model.spaces import READER, WRITER, Actor, Space, SpaceScope
from commonbook.ports.database import RetryTransaction, Transaction
from commonbook.ports.engines import BeforeFinalize, Engines
from commonbook.tables import files, memories, sessions, spaces
from commonbook.text import dates, space_paths
from commonbook.write.pending import Pending

_ROOM: Final = 2 * 1024 * 1024


class WriteContext:
    """What an operation works with: the transaction, the engines, who acts, the spaces, and the pending work.

    Each actor of a transaction has a context of its own (`beside`). All of them share `tx`, `parts`, `permissions` and
    `spaces`, so that a space that one makes is known to the others; of `pending` they share what `Pending` says. An
    operation may run more than once: its contexts, with everything in them, are made anew each time.
    """

    __slots__ = ("actor", "engines", "pending", "permissions", "spaces", "tx")

    def __init__(
        self,
        *,
        tx: Transaction,
        engines: Engines,
        actor: Actor,
        permissions: dict[Actor, permissions.PermissionSnapshot],
        spaces: MutableMapping[str, Space],
        pending: Pending,
    ) -> None:
        """Work in this transaction in the name of the actor."""
        self.tx: Final = tx
        self.engines: Final = engines
        self.actor: Final = actor
        self.permissions: Final = permissions
        """Permissions as first read in this transaction, of everybody in whose name it acts; the seal checks them."""
        self.spaces: Final = spaces
        self.pending: Final = pending

    @property
    def readable(self) -> SpaceScope:
        """The spaces that the actor may read."""
        return self.permissions_of(self.actor).with_role(READER, self.spaces)

    @property
    def writable(self) -> SpaceScope:
        """The spaces that the actor may write to."""
        return self.permissions_of(self.actor).with_role(WRITER, self.spaces)

    def permissions_of(self, actor: Actor) -> permissions.PermissionSnapshot:
        """Return what somebody may do, asked for once: if it is taken away before the story ends, that begins anew."""
        if actor not in self.permissions:
            self.permissions[actor] = permissions.PermissionSnapshot(self.tx, actor)
        return self.permissions[actor]

    def acting_as(self, actor: Actor) -> WriteContext:
        """Return a context for what this actor has another do, by the rights of that one: all else is shared.

        Its changes are pending as those of this actor.
        """
        return self._of(actor, self.pending)

    def beside(self, actor: Actor) -> WriteContext:
        """Return the context of another actor of the same transaction, whose changes are pending as its own."""
        return self._of(actor, self.pending.of_another_actor())

    def _of(self, actor: Actor, pending: Pending) -> WriteContext:
        return WriteContext(
            tx=self.tx,
            engines=self.engines,
            actor=actor,
            permissions=self.permissions,
            spaces=self.spaces,
            pending=pending,
        )

    def require(self, memory_id: str) -> Memory:
        """Return a live memory that the actor may write to, and that nobody else changes meanwhile.

        One that it may not even read is not found.
        """
        self.lock([memory_id])
        found = memories.find(self.tx, self.readable, memory_id)
        if found is None or found.deleted is not None:
            raise no_memory(memory_id)
        if found.space.id not in self.writable:
            raise permissions.refusal(self.actor, found.space.name)
        return found

    def lock(self, ids: Iterable[str]) -> None:
        """Let nobody else change these memories while the story is told."""
        self._require_known_spaces(memories.lock(self.tx, ids))

    def lock_sessions(self, *ids: str) -> None:
        """Let nobody else change these sessions while the story is told, or append to them."""
        self._require_known_spaces(sessions.lock(self.tx, ids))

    def locked_session(self, taking: sessions.LockedSession) -> Session | None:
        """Return a session that is held, if there is one that the actor may read."""
        found = taking.session(self.spaces)
        return found if found is not None and found.space.id in self.readable else None

    def _require_known_spaces(self, found: Collection[str]) -> None:
        """Begin anew when something is in a space that was made after the story began."""
        if not self.spaces.keys() >= set(found):
            raise RetryTransaction

    def space(self, name: str, *, origin: str = "new") -> Space:
        """Return the space of that name, made now if the actor may make it."""
        for space in self.spaces.values():
            if space.name == name:
                if space.id not in self.writable:
                    raise permissions.refusal(self.actor, name)
                return space
        if origin in {"folder", "import"} and space_paths.is_system(name):
            # A file of ours in a home whose database is lost, or in a folder that was exported.
            return self._add_space(name, origin)
        return self._create(space_paths.require_space_name(name), origin)

    def require_readable(self, memory_id: str) -> Memory:
        """Return a live memory that the actor may read, and that nobody changes meanwhile."""
        self.lock([memory_id])
        found = memories.find(self.tx, self.readable, memory_id)
        if found is None or found.deleted is not None:
            raise no_memory(memory_id)
        return found

    def system_space(self, name: str) -> Space:
        """Return a space of the system's own, made now if need be: nobody asks for it, so nobody needs a right to."""
        for space in self.spaces.values():
            if space.name == name:
                return space
        return self._add_space(name, "system")

    def _create(self, name: str, origin: str) -> Space:
        permissions.require_create(self.tx, self.actor, self.spaces, name)
        return self._add_space(name, origin)

    def _add_space(self, name: str, origin: str) -> Space:
        space = Space(new_id(), name, self.tx.now)
        spaces.add(self.tx, space)
        self.spaces[space.id] = space
        self.log(space, "space.create", (), name=name, origin=origin)
        return space

    def parse_time(self, name: str, value: datetime | str | None) -> datetime | None:
        """Read a time that a caller gave for this field, in the home's zone where it has none."""
        if value is None:
            return None
        return dates.read_time(value, zone=self.engines.zone, edge=dates.field_edge(name), now=self.tx.now)

    def log(self, space: Space, action: str, subjects: Sequence[str], **payload: object) -> None:
        """Note a change for the seal."""
        for actor, held in self.permissions.items():
            if actor.principal == payload.get("principal"):
                held.ask_again(space.id)
        self.tx.record(
            Change(space=space.id, actor=self.actor.principal, action=action, subjects=tuple(subjects), payload=payload)
        )

    def log_memory(self, memory: Memory, action: str, *others: str, **payload: object) -> None:
        """Note a change of a memory: what it says now goes in as a keyed hash."""
        said = self.engines.keys.keyed_hash(memory.title, memory.text)
        self.touch_superseded(memory)
        self.pending.note_changed_id(memory.id, space=memory.space.id, principal=self.actor.principal)
        versions = {"revision": memory.revision, "version": memory.version, "said": said}
        self.log(memory.space, action, (memory.id, *others), **versions, **payload)

    def touch_superseded(self, memory: Memory) -> None:
        """Note that what a memory supersedes is served otherwise: it is now, or no longer, or from another time on."""
        for link in memory.links:
            if link.relation == "supersedes":
                self.tx.touched.setdefault(link.target, None)

    def touch(self, space: Space, subjects: Iterable[str]) -> None:
        """Note things of a space that are no memories and have changed, so that whoever follows it sees them."""
        self.tx.touched.update(dict.fromkeys(subjects, space.id))

    def note_reasoning_change(self, before: Memory | None, after: Memory) -> None:
        """Note that others may have to be told: of what a memory rests on, supersedes, or is."""
        self.pending.note_reasoning_change(before, after)

    def record_move(self, memory: Memory, path: str) -> None:
        """Note that the file of a memory goes from its path to another one."""
        if self.engines.folder.keeps_files:
            files.record_move(self.tx, memory.path, memory.id)
            files.clear_former_path(self.tx, path)

    def enqueue_files(self, changed: Iterable[Memory], *, seen: int | None = None) -> None:
        """Ask for the files of memories as they are now, or for their removal if they are deleted.

        `seen` is the version that a file named whose save was just taken in, and is only written back.
        """
        if not self.engines.folder.keeps_files:
            return
        wanted: list[tuple[str, int, str | None, str | None]] = []
        for memory in changed:
            data = None if memory.deleted else render_memory(memory, self.engines)
            path = None if memory.deleted else memory.path
            if path is not None:
                self.engines.folder.require_place(path)
            self.pending.files_to_write[memory.id] = data
            hash_ = None if data is None else files.content_hash(data)
            wanted.append((memory.id, memory.version, path, hash_))
        files.enqueue(self.tx, wanted, seen=seen)
        self.require_disk_space()

    def require_disk_space(self) -> None:
        """Refuse while nothing is changed yet, rather than commit what the disk has no room to write out."""
        needed = _ROOM + 3 * self.pending.bytes_to_write()
        if self.engines.folder.free_bytes() < needed:
            raise DiskFull("the disk of the home is full", fix=f"free at least {needed:,} bytes and try again")


def step(run: Callable[[WriteContext], object]) -> BeforeFinalize:
    """Return a function of the write context as a step for `Parts.before_seal`, which does not name that type."""

    def checked(context: object, /) -> None:
        if not isinstance(context, WriteContext):
            raise TypeError(f"a step before the seal was given a {type(context).__name__}")
        run(context)

    return checked


def no_memory(memory_id: str) -> NotFound:
    """Return the one answer for an id that is not there, is deleted, or may not be seen."""
    return NotFound(f"there is no memory {memory_id}", fix="`commonbook list` shows what there is")


HOME: Final = "_home"
"""The space in whose log stands what concerns no other: the keys."""


def administered_space(ctx: WriteContext, name: str) -> Space:
    """Return a space that the actor administers, made now if it may make it."""
    if all(space.name != name for space in ctx.spaces.values()):
        return ctx.space(name)
    return permissions.require_admin(ctx.tx, ctx.actor, ctx.spaces, name)


def readable_space(ctx: WriteContext, name: str) -> Space:
    """Return a space that the actor may read, or the one answer for all others."""
    for space in ctx.readable.values():
        if space.name == name:
            return space
    if permissions.is_owner(ctx.actor):
        raise NotFound(f"there is no space {name!r}", fix="`commonbook space list` shows the spaces")
    raise permissions.refusal(ctx.actor, name)

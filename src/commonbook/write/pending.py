"""Pending work of a transaction: notes that the operation leaves for the later steps of the same write.

The steps before `finalize` read them (copies, notices, sharing rules), then `finalize` itself (early locks), then the
step after the commit (files). `commonbook.write.transaction` lists the steps in order.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from commonbook.model.stored_memory import StoredMemory
from commonbook.ports.database import Row
from commonbook.ports.files import FilesToWrite


class LogLocks(NamedTuple):
    """Deferred answers to a request to lock the logs of some spaces."""

    last_entries: Callable[[], dict[str, tuple[int, str]]]
    """Waits for the locks; returns the last entry (number, hash) of each locked log."""
    migration_facts: Callable[[], list[Row]]
    """Returns the facts of the home that say whether the book was moved elsewhere, or is still being moved here."""


class ChangedIn(NamedTuple):
    """The space of a changed memory, and the principal who changed it."""

    space: str
    principal: str


class Pending:
    """The work that an operation leaves for the steps before `finalize`, for `finalize`, and for after the commit.

    Each actor of a transaction has its own `changed_texts`, `changed_ids` and `reasoning_changed`, because the steps
    before `finalize` run once for each actor. All actors share `validity_changed`, `files_to_write` and `early_locks`,
    because there is one `finalize` and one commit.
    """

    __slots__ = (
        "changed_ids", "changed_texts", "early_locks", "files_to_write", "reasoning_changed", "validity_changed",
    )  # fmt: skip

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
        self.early_locks: list[LogLocks] = []
        """Locks of spaces that were requested before `finalize`."""

    def of_another_actor(self) -> Pending:
        """Return the pending work of another actor of the same transaction: files and locks are shared."""
        other = Pending()
        other.validity_changed = self.validity_changed
        other.files_to_write = self.files_to_write
        other.early_locks = self.early_locks
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

    # --- files and locks

    def bytes_to_write(self) -> int:
        """Return the size of all files to write."""
        return sum(len(data) for data in self.files_to_write.values() if data)

    def early_locks_on(self, spaces_: Iterable[str]) -> LogLocks | None:
        """Return an early request that locked all of these spaces, if there is one."""
        wanted = set(spaces_)
        return next((lock for lock in self.early_locks if lock.last_entries().keys() >= wanted), None)

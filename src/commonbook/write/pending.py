"""Work that an operation leaves to later steps of its transaction: copies, notices, rules, files and locks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from commonbook.model.memory import Memory
from commonbook.ports.database import Row


class EarlyLocks(NamedTuple):
    """What the seal needs to know of spaces that are held for it, asked for and not yet waited for."""

    ends: Callable[[], dict[str, tuple[int, str]]]
    whereabouts: Callable[[], list[Row]]


class ChangedIn(NamedTuple):
    """The space of a memory that was written, and the principal who wrote it."""

    space: str
    principal: str


class Pending:
    """The work that an operation leaves to the steps before the seal, to the seal, and to the step behind the commit.

    Each actor of a transaction has `changed_texts`, `changed_ids` and `reasoning_changed` of its own, since the steps
    before the seal run for each actor. All of them share `files_to_write` and `early_locks`, since there is one seal
    and one commit.
    """

    __slots__ = ("changed_ids", "changed_texts", "early_locks", "files_to_write", "reasoning_changed")

    def __init__(self) -> None:
        """Begin a transaction, with nothing pending."""
        self.changed_texts: dict[str, Memory] = {}
        """Memories whose title or text changed: their copies are to take it over."""
        self.changed_ids: dict[str, ChangedIn] = {}
        """Memories that were written: sharing rules are to look at them."""
        self.reasoning_changed: dict[str, tuple[Memory | None, Memory]] = {}
        """Memories, as they were and are, whose dependencies changed, or that dependents have to judge anew: notices
        are to be brought up to date.
        """
        self.files_to_write: dict[str, bytes | None] = {}
        """Contents of files by the ids of their memories, None for a file to remove."""
        self.early_locks: list[EarlyLocks] = []
        """Locks of spaces that were requested before the seal."""

    def of_another_actor(self) -> Pending:
        """Return the pending work of another actor in the same transaction."""
        other = Pending()
        other.files_to_write = self.files_to_write
        other.early_locks = self.early_locks
        return other

    # --- changed texts, for copies

    def note_changed_text(self, memory: Memory) -> None:
        """Let the copies of a memory take over its text as it is now."""
        self.changed_texts[memory.id] = memory

    def check_copies(self, source: Memory) -> None:
        """Let the copies of a source be checked, although its text did not change in this operation."""
        self.changed_texts.setdefault(source.id, source)

    def take_changed_texts(self) -> dict[str, Memory]:
        """Return the memories whose text changed, and forget them."""
        taken, self.changed_texts = self.changed_texts, {}
        return taken

    def take_latest(self, memory: Memory) -> Memory:
        """Return a memory with its latest text, and forget it: its text may have changed again since it was taken."""
        return self.changed_texts.pop(memory.id, memory)

    # --- changed dependencies, for notices

    def note_reasoning_change(self, before: Memory | None, after: Memory) -> None:
        """Let notices be brought up to date with a change; of several of one memory, the first state and the last."""
        first = self.reasoning_changed[after.id][0] if after.id in self.reasoning_changed else before
        self.reasoning_changed[after.id] = (first, after)

    def take_reasoning_changes(self) -> dict[str, tuple[Memory | None, Memory]]:
        """Return the memories whose dependencies changed, as they were and are, and forget them."""
        taken, self.reasoning_changed = self.reasoning_changed, {}
        return taken

    # --- changed ids, for sharing rules

    def note_changed_id(self, memory_id: str, *, space: str, principal: str) -> None:
        """Let sharing rules look at a memory that a principal wrote in a space."""
        self.changed_ids[memory_id] = ChangedIn(space, principal)

    def spaces_of_changed_ids(self) -> set[str]:
        """Return the spaces of the memories that rules have not looked at yet."""
        return {changed.space for changed in self.changed_ids.values()}

    def keep_changed_ids_in(self, spaces_: Collection[str]) -> None:
        """Forget the written memories of other spaces: no rule takes from there."""
        for id_ in [id_ for id_, changed in self.changed_ids.items() if changed.space not in spaces_]:
            del self.changed_ids[id_]

    def first_changed_ids(self, limit: int) -> list[str]:
        """Return some memories that rules have not looked at yet, in the order of their ids."""
        return sorted(self.changed_ids)[:limit]

    def forget_changed_ids(self, ids: Iterable[str]) -> None:
        """Forget memories that rules have looked at."""
        for id_ in ids:
            self.changed_ids.pop(id_, None)

    def take_changed_ids(self) -> dict[str, ChangedIn]:
        """Return the memories that rules have not looked at yet, and forget them."""
        taken, self.changed_ids = self.changed_ids, {}
        return taken

    # --- files and locks

    def bytes_to_write(self) -> int:
        """Return the size of all files to write."""
        return sum(len(data) for data in self.files_to_write.values() if data)

    def early_locks_on(self, spaces_: Iterable[str]) -> EarlyLocks | None:
        """Return the early locks that hold all of these spaces, if there are such."""
        wanted = set(spaces_)
        return next((lock for lock in self.early_locks if lock.ends().keys() >= wanted), None)

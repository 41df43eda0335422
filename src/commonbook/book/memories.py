"""Verbs of a book on memories: remember, get, edit, move, delete, list, history, link."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from commonbook.book.base import BookBase
from commonbook.model.memory import UNSET, Changes, Deleted, Draft, Filter, Link, Memory, Page, Receipt, Revision, Unset
from commonbook.ports.database import retry_read
from commonbook.runtime.lazy_modules import LazyModule

if TYPE_CHECKING:
    from commonbook.memories import edit as memories_edit
    from commonbook.memories import read
    from commonbook.memories import remember as memories_remember
    from commonbook.sharing import share
    from commonbook.text import validation
else:
    # A verb loads the module that it needs, so that a command loads no more than its own subject.
    memories_edit = LazyModule("commonbook.memories.edit")
    memories_remember = LazyModule("commonbook.memories.remember")
    read = LazyModule("commonbook.memories.read")
    share = LazyModule("commonbook.sharing.share")
    validation = LazyModule("commonbook.text.validation")


class MemoryVerbs(BookBase):
    """Remember, read and change memories."""

    def remember(
        self,
        text: str,
        *,
        space: str | None = None,
        kind: str = "note",
        title: str | None = None,
        tags: Iterable[str] = (),
        importance: float | None = None,
        occurred: datetime | str | None = None,
        valid_from: datetime | str | None = None,
        valid_until: datetime | str | None = None,
        expires: datetime | str | None = None,
        links: Iterable[tuple[str, str]] = (),
        replaces: str | None = None,
        key: str | None = None,
    ) -> Receipt:
        """Store a new memory; with a `key` used before, return the first receipt and store nothing."""
        draft = Draft(
            text=text,
            space=space,
            kind=kind,
            title=title,
            tags=validation.validate_list(tags, "tags"),
            importance=importance,
            occurred=occurred,
            valid_from=valid_from,
            valid_until=valid_until,
            expires=expires,
            links=tuple(links),
            replaces=replaces,
            key=key,
        )
        return self.remember_many([draft])[0]

    def remember_many(self, drafts: Sequence[Draft]) -> list[Receipt]:
        """Store many memories in one transaction, all or none."""
        space = "" if all(draft.space for draft in drafts) else self.default_space
        asked = [draft if draft.space else draft._replace(space=space) for draft in drafts]
        return memories_remember.remember(self._engines, self._actor, asked)

    @retry_read
    def get(self, memory_id: str) -> Memory:
        """Return one memory; a lazy copy that is stale takes over what its source says before."""
        return read.get(self._engines, self._actor, memory_id)

    @retry_read
    def find_id(self, part: str) -> str:
        """Return the id that begins or ends with these digits, or of the memory whose file this is."""
        return read.find_id(self._engines, self._actor, part)

    def edit(
        self,
        memory_id: str,
        *,
        text: str | Unset = UNSET,
        title: str | None | Unset = UNSET,
        kind: str | Unset = UNSET,
        tags: Iterable[str] | Unset = UNSET,
        importance: float | None | Unset = UNSET,
        occurred: datetime | str | None | Unset = UNSET,
        valid_from: datetime | str | None | Unset = UNSET,
        valid_until: datetime | str | None | Unset = UNSET,
        expires: datetime | str | None | Unset = UNSET,
        expected_version: int | None = None,
    ) -> Receipt:
        """Change what is given; None takes a value away. With `expected_version`, only that version."""
        changes = Changes(
            text=text,
            title=title,
            kind=kind,
            tags=tags if isinstance(tags, Unset) else validation.validate_list(tags, "tags"),
            importance=importance,
            occurred=occurred,
            valid_from=valid_from,
            valid_until=valid_until,
            expires=expires,
        )
        return memories_edit.edit(self._engines, self._actor, memory_id, changes, expected_version=expected_version)

    def move(self, memory_id: str, space: str, *, expected_version: int | None = None) -> Receipt:
        """Move a memory into another space, with its file and its history."""
        return memories_edit.move(self._engines, self._actor, memory_id, space, expected_version=expected_version)

    def delete(self, *ids: str, expected_version: int | None = None, dry_run: bool = False) -> Deleted:
        """Delete memories, all or none; tombstones and history stay."""
        return memories_edit.delete(self._engines, self._actor, ids, expected_version=expected_version, dry_run=dry_run)

    def delete_where(self, chosen: Filter, *, dry_run: bool = False) -> Deleted:
        """Delete every memory that the filter lets through, all or none."""
        return memories_edit.delete_where(self._engines, self._actor, chosen, dry_run=dry_run)

    @retry_read
    def list(self, chosen: Filter | None = None, *, limit: int = 50, after: str | None = None) -> Page:
        """Return memories, newest first, of all spaces or as the filter says."""
        return read.list_page(self._engines, self._actor, chosen or Filter(), limit=limit, after=after)

    @retry_read
    def history(self, memory_id: str) -> tuple[Revision, ...]:
        """Return every title and text that a memory had, oldest first, also of a deleted one."""
        return read.history(self._engines, self._actor, memory_id)

    def link(self, source: str, relation: str, target: str) -> Receipt:
        """Link a memory to another."""
        return memories_edit.link(self._engines, self._actor, source, relation, target)

    def unlink(self, source: str, relation: str, target: str) -> Receipt:
        """Take a link away."""
        return memories_edit.unlink(self._engines, self._actor, source, relation, target)

    @retry_read
    def links(self, memory_id: str) -> tuple[Link, ...]:
        """Return the links of a memory in both directions, those that go out first."""
        return read.list_links(self._engines, self._actor, memory_id)

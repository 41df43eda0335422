"""Verbs of a book for memories: remember, get, edit, move, delete, undelete, list, history, link."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from commonbook.book.base import BookBase
from commonbook.model.memory import (
    NO_METADATA,
    UNSET,
    Changes,
    Deleted,
    Draft,
    Filter,
    Link,
    Memory,
    Page,
    Receipt,
    Revision,
    Scalar,
    Unset,
)
from commonbook.ports.retry_read import retry_read
from commonbook.runtime.lazy_modules import LazyModule

if TYPE_CHECKING:
    from commonbook.memories import delete as memories_delete
    from commonbook.memories import edit as memories_edit
    from commonbook.memories import history, read
    from commonbook.memories import move as memories_move
    from commonbook.memories import remember as memories_remember
    from commonbook.memories import undelete as memories_undelete
    from commonbook.model.memory import Kind, Relation
    from commonbook.text import validation
else:
    # A verb loads the module that it needs, so that a command loads no more than its own subject.
    memories_delete = LazyModule("commonbook.memories.delete")
    memories_edit = LazyModule("commonbook.memories.edit")
    memories_move = LazyModule("commonbook.memories.move")
    memories_remember = LazyModule("commonbook.memories.remember")
    memories_undelete = LazyModule("commonbook.memories.undelete")
    history = LazyModule("commonbook.memories.history")
    read = LazyModule("commonbook.memories.read")
    validation = LazyModule("commonbook.text.validation")


class MemoryVerbs(BookBase):
    """Remember, read and change memories."""

    def remember(
        self,
        text: str,
        *,
        space: str | None = None,
        kind: Kind = "note",
        title: str | None = None,
        tags: Iterable[str] = (),
        importance: float | None = None,
        occurred: datetime | str | None = None,
        valid_from: datetime | str | None = None,
        valid_until: datetime | str | None = None,
        expires: datetime | str | None = None,
        links: Iterable[tuple[Relation | str, str]] = (),
        replaces: str | None = None,
        key: str | None = None,
        metadata: Mapping[str, Scalar] = NO_METADATA,
        mask: bool = True,
    ) -> Receipt:
        """Store a new memory and return its receipt; it is durable and searchable when this returns.

        - `kind`: `note`, `fact`, `preference`, `decision`, `procedure`, `episode` or `reflection`.
        - `title`: by default the first line of the text.
        - `importance`: a number from 0 to 1.
        - `occurred`, `valid_from`, `valid_until`, `expires`: a datetime, or a text such as `2026-03-01` or `yesterday`.
        - `links`: pairs of a relation, as for `link`, and the id of another memory.
        - `replaces`: the id of a memory that this one supersedes.
        - `key`: an idempotency key. If you have used it before, the first receipt is returned and nothing is stored.
        - `metadata`: fields of your own, by which `list` and `recall` can filter: at most 32 names, each with a text, a
          number or a truth value.
        - `mask`: whether secrets in title and text are masked before anything is stored; the receipt counts them.

        The receipt names a memory with the same text (`duplicate_of`).
        """
        tags = validation.validate_list(tags, "tags")
        draft = Draft(
            text=text,
            space=space or self.space_for_writing(),
            kind=kind,
            title=title,
            tags=tags,
            importance=importance,
            occurred=occurred,
            valid_from=valid_from,
            valid_until=valid_until,
            expires=expires,
            links=tuple(links),
            replaces=replaces,
            key=key,
            metadata=metadata,
            mask=mask,
        )
        return memories_remember.remember_one(self._engines, self._caller, draft)

    def remember_many(self, drafts: Sequence[Draft]) -> list[Receipt]:
        """Store many memories in one transaction, all or none; return their receipts in the same order."""
        # A generator, which untyped callers pass, would be used up by the first look at it, and nothing stored.
        drafts = tuple(drafts)
        space = "" if all(draft.space for draft in drafts) else self.space_for_writing()
        with_spaces = [draft if draft.space else draft._replace(space=space) for draft in drafts]
        return memories_remember.remember(self._engines, self._caller, with_spaces)

    @retry_read
    def get(self, memory_id: str) -> Memory:
        """Return a memory with its links and marks; a stale lazy copy is refreshed from its source first."""
        return read.get(self._engines, self._actor, memory_id)

    @retry_read
    def find_id(self, part: str) -> str:
        """Return the full id of a memory, from its first or last digits (at least 4), its file, its title or an alias.

        A file is named by its path or its name. `Ambiguous` names the memories if there are several.
        """
        return read.find_id(self._engines, self._actor, part)

    def edit(
        self,
        memory_id: str,
        *,
        text: str | Unset = UNSET,
        title: str | None | Unset = UNSET,
        kind: Kind | Unset = UNSET,
        tags: Iterable[str] | Unset = UNSET,
        importance: float | None | Unset = UNSET,
        occurred: datetime | str | None | Unset = UNSET,
        valid_from: datetime | str | None | Unset = UNSET,
        valid_until: datetime | str | None | Unset = UNSET,
        expires: datetime | str | None | Unset = UNSET,
        metadata: Mapping[str, Scalar] | None | Unset = UNSET,
        to_revision: int | None = None,
        expected_version: int | None = None,
        mask: bool = True,
    ) -> Receipt:
        """Change the fields that are given; None clears a field. The old title and text stay in the history.

        `to_revision` brings the title and text of an older revision back, as a new revision. Secrets in new words are
        masked, unless `mask` is false. A `#tag` in the text stays one until the text changes: the receipt names those
        that are not among the new `tags`.

        With `expected_version` (optimistic locking), raise `VersionConflict` if the memory is at another version.
        """
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
            metadata=metadata,
        )
        return memories_edit.edit(
            self._engines,
            self._caller,
            memory_id,
            changes,
            expected_version=expected_version,
            to_revision=to_revision,
            mask=mask,
        )

    def move(self, memory_id: str, space: str, *, expected_version: int | None = None) -> Receipt:
        """Move a memory to another space, with its file and its history; its id stays."""
        return memories_move.move(self._engines, self._caller, memory_id, space, expected_version=expected_version)

    def delete(self, *ids: str, expected_version: int | None = None, dry_run: bool = False) -> Deleted:
        """Delete memories, all or none; a tombstone and the history of each are kept. With `dry_run`, only report."""
        return memories_delete.delete(
            self._engines, self._caller, ids, expected_version=expected_version, dry_run=dry_run
        )

    def undelete(self, memory_id: str) -> Receipt:
        """Bring a deleted memory back, with its text, history, links, tags and session, in the space where it was.

        A copy follows its source again, if that is still allowed. A memory that is not deleted stays as it is.
        """
        return memories_undelete.undelete(self._engines, self._caller, memory_id)

    def delete_where(self, chosen: Filter, *, dry_run: bool = False) -> Deleted:
        """Delete every memory that matches a filter, all or none; an empty filter is refused."""
        return memories_delete.delete_where(self._engines, self._caller, chosen, dry_run=dry_run)

    @retry_read
    def list(self, chosen: Filter | None = None, *, limit: int = 50, after: str | None = None) -> Page:
        """Return a page of memories, newest first, of all readable spaces or by a filter.

        Give the `next` of a page as `after` to get the following one.
        """
        return read.list_page(self._engines, self._actor, chosen or Filter(), limit=limit, after=after)

    @retry_read
    def history(self, memory_id: str) -> tuple[Revision, ...]:
        """Return every title and text that a memory has had, oldest first; also of a deleted memory.

        Each names the deletions of its time, and how the memory came back.
        """
        return history.history(self._engines, self._actor, memory_id)

    def link(self, source: str, relation: Relation | str, target: str) -> Receipt:
        """Link a memory to another, such as `related_to`, `derived_from`, `contradicts` or `supersedes`.

        A relation of your own is a word of at most 40 small letters of any script, digits, `-` and `_`; it means
        nothing to the book.
        """
        return memories_edit.link(self._engines, self._caller, source, relation, target)

    def unlink(self, source: str, relation: Relation | str, target: str) -> Receipt:
        """Remove a link; raise `NotFound` if the memory does not have it."""
        return memories_edit.unlink(self._engines, self._caller, source, relation, target)

    @retry_read
    def links(self, memory_id: str) -> tuple[Link, ...]:
        """Return the links of a memory in both directions, outgoing links first."""
        return read.list_links(self._engines, self._actor, memory_id)

"""Verbs of a book for memories: remember, get, edit, move, delete, undelete, list, history, link."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from commonbook.ports.database import retry_read
from commonbook.runtime import LazyModule
from commonbook.service.base import BookBase
from commonbook.values.memory import UNSET, Changes, Draft, Filter, Unset
from commonbook.verbs.declaration import implements
from commonbook.verbs.memories import Memories

if TYPE_CHECKING:
    from commonbook.core.text import validation
    from commonbook.subjects.memories import delete as memories_delete
    from commonbook.subjects.memories import edit as memories_edit
    from commonbook.subjects.memories import history, read
    from commonbook.subjects.memories import move as memories_move
    from commonbook.subjects.memories import remember as memories_remember
    from commonbook.values.memory import Deleted, Link, Memory, Page, Receipt, Relation, Revision
else:
    # A verb loads the module that it needs, so that a command loads no more than its own subject.
    memories_delete = LazyModule("commonbook.subjects.memories.delete")
    memories_edit = LazyModule("commonbook.subjects.memories.edit")
    memories_move = LazyModule("commonbook.subjects.memories.move")
    memories_remember = LazyModule("commonbook.subjects.memories.remember")
    history = LazyModule("commonbook.subjects.memories.history")
    read = LazyModule("commonbook.subjects.memories.read")
    validation = LazyModule("commonbook.core.text.validation")


class MemoryVerbs(BookBase):
    """Remember, read and change memories."""

    @implements(Memories.remember)
    def remember(
        self,
        text: str,
        *,
        space: str | None = None,
        tags: Iterable[str] = (),
        links: Iterable[tuple[str, str]] = (),
        **fields: Any,  # noqa: ANN401 - fields of the draft
    ) -> Receipt:
        draft = Draft(
            text, space or self.space_for_writing(), tags=validation.validate_list(tags, "tags"), links=tuple(links),
            **fields,
        )  # fmt: skip
        return memories_remember.remember_one(self._engines, self._caller, draft)

    def remember_many(self, drafts: Sequence[Draft]) -> list[Receipt]:
        # A generator, which untyped callers pass, would be used up by the first look at it, and nothing stored.
        drafts = tuple(drafts)
        space = "" if all(draft.space for draft in drafts) else self.space_for_writing()
        with_spaces = [draft if draft.space else draft._replace(space=space) for draft in drafts]
        return memories_remember.remember(self._engines, self._caller, with_spaces)

    @retry_read
    def get(self, memory_id: str) -> Memory:
        return read.get(self._engines, self._actor, memory_id)

    @retry_read
    def find_id(self, part: str) -> str:
        return read.find_id(self._engines, self._actor, part)

    @implements(Memories.edit)
    def edit(
        self,
        memory_id: str,
        *,
        tags: Iterable[str] | Unset = UNSET,
        to_revision: int | None = None,
        expected_version: int | None = None,
        mask: bool = True,
        **fields: Any,  # noqa: ANN401 - fields of the changes
    ) -> Receipt:
        tags = tags if isinstance(tags, Unset) else validation.validate_list(tags, "tags")
        return memories_edit.edit(
            self._engines,
            self._caller,
            memory_id,
            Changes(tags=tags, **fields),
            expected_version=expected_version,
            to_revision=to_revision,
            mask=mask,
        )

    def move(self, memory_id: str, space: str, *, expected_version: int | None = None) -> Receipt:
        return memories_move.move(self._engines, self._caller, memory_id, space, expected_version=expected_version)

    def delete(self, *ids: str, expected_version: int | None = None, dry_run: bool = False) -> Deleted:
        return memories_delete.delete(
            self._engines, self._caller, ids, expected_version=expected_version, dry_run=dry_run
        )

    def undelete(self, memory_id: str) -> Receipt:
        return memories_delete.undelete(self._engines, self._caller, memory_id)

    def delete_where(self, chosen: Filter, *, dry_run: bool = False) -> Deleted:
        return memories_delete.delete_where(self._engines, self._caller, chosen, dry_run=dry_run)

    @retry_read
    def list(self, chosen: Filter | None = None, *, limit: int = 50, after: str | None = None) -> Page:
        return read.list_page(self._engines, self._actor, chosen or Filter(), limit=limit, after=after)

    @retry_read
    def history(self, memory_id: str) -> tuple[Revision, ...]:
        return history.history(self._engines, self._actor, memory_id)

    def link(self, source: str, relation: Relation | str, target: str) -> Receipt:
        return memories_edit.link(self._engines, self._caller, source, relation, target)

    def unlink(self, source: str, relation: Relation | str, target: str) -> Receipt:
        return memories_edit.unlink(self._engines, self._caller, source, relation, target)

    @retry_read
    def links(self, memory_id: str) -> tuple[Link, ...]:
        return read.list_links(self._engines, self._actor, memory_id)

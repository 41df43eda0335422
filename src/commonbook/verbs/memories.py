"""The verbs of a book: remember, read and change memories."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from commonbook.values.memory import NO_METADATA, UNSET
from commonbook.verbs.declaration import Declarations, verb

if TYPE_CHECKING:
    from commonbook.values.memory import (
        Deleted,
        Draft,
        Filter,
        Kind,
        Link,
        Memory,
        MetadataValue,
        Page,
        Receipt,
        Relation,
        Revision,
        Unset,
    )


class Memories(Declarations):
    """Remember, read and change memories."""

    @verb("POST", "/v1/memories", changes=True, versioned=True)
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
        metadata: Mapping[str, MetadataValue] = NO_METADATA,
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
          number, a truth value, or a list of these.
        - `mask`: whether secrets in title, text, tags and metadata are masked before they are stored; the receipt
          counts them.

        The receipt names a memory with the same text (`duplicate_of`).
        """

    @verb("POST", "/v1/memories/batch", changes=True, slow=True)
    def remember_many(self, drafts: Sequence[Draft]) -> list[Receipt]:
        """Store many memories in one transaction, all or none; return their receipts in the same order."""

    @verb("GET", "/v1/memories/{memory_id}", versioned=True)
    def get(self, memory_id: str) -> Memory:
        """Return a memory with its links and marks; a stale lazy copy is refreshed from its source first."""

    @verb("GET", "/v1/find_id")
    def find_id(self, part: str) -> str:
        """Return the full id of a memory, from its first or last digits (at least 4), its file, its title or an alias.

        A file is named by its path or its name. `Ambiguous` names the memories if there are several.
        """

    @verb("PATCH", "/v1/memories/{memory_id}", changes=True, versioned=True)
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
        metadata: Mapping[str, MetadataValue] | None | Unset = UNSET,
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

    @verb("POST", "/v1/memories/{memory_id}/move", changes=True, versioned=True)
    def move(self, memory_id: str, space: str, *, expected_version: int | None = None) -> Receipt:
        """Move a memory to another space, with its file and its history; its id stays."""

    @verb("DELETE", "/v1/memories/{memory_id}", several="/v1/memories/delete", changes=True)
    def delete(self, *ids: str, expected_version: int | None = None, dry_run: bool = False) -> Deleted:
        """Delete memories, all or none; a tombstone and the history of each are kept. With `dry_run`, only report."""

    @verb("DELETE", "/v1/memories", changes=True, expanded="chosen")
    def delete_where(self, chosen: Filter, *, dry_run: bool = False) -> Deleted:
        """Delete every memory that matches a filter, all or none; an empty filter is refused."""

    @verb("POST", "/v1/memories/{memory_id}/undelete", changes=True, versioned=True)
    def undelete(self, memory_id: str) -> Receipt:
        """Bring a deleted memory back, with its text, history, links, tags and session, in the space where it was.

        A copy follows its source again, if that is still allowed. A memory that is not deleted stays as it is.
        """

    @verb("GET", "/v1/memories/{memory_id}/history")
    def history(self, memory_id: str) -> tuple[Revision, ...]:
        """Return every title and text that a memory has had, oldest first; also of a deleted memory.

        Each names the deletions of its time, and how the memory came back.
        """

    @verb("POST", "/v1/links", changes=True, versioned=True)
    def link(self, source: str, relation: Relation | str, target: str) -> Receipt:
        """Link a memory to another, such as `related_to`, `derived_from`, `contradicts` or `supersedes`.

        A relation of your own is a word of at most 40 small letters of any script, digits, `-` and `_`; it means
        nothing to the book.
        """

    @verb("DELETE", "/v1/links", changes=True, versioned=True)
    def unlink(self, source: str, relation: Relation | str, target: str) -> Receipt:
        """Remove a link; raise `NotFound` if the memory does not have it."""

    @verb("GET", "/v1/memories/{memory_id}/links")
    def links(self, memory_id: str) -> tuple[Link, ...]:
        """Return the links of a memory in both directions, outgoing links first."""

    @verb("GET", "/v1/memories", expanded="chosen")
    def list(self, chosen: Filter | None = None, *, limit: int = 50, after: str | None = None) -> Page:
        """Return a page of memories, newest first, of all readable spaces or by a filter.

        Give the `next` of a page as `after` to get the following one.
        """

"""Verbs of a book for sharing: copies of memories in other spaces, and their lineage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from commonbook.book.base import BookBase
from commonbook.ports.retry_read import retry_read
from commonbook.runtime.lazy_modules import LazyModule

if TYPE_CHECKING:
    from commonbook.model.memory import Receipt, Refresh
    from commonbook.model.sharing import CopyNode, Lineage, ShareReceipt
    from commonbook.sharing import lineage as lineages
    from commonbook.sharing import manage_copy
    from commonbook.sharing import share as sharing_share
else:
    # A verb loads the module that it needs, so that a command loads no more than its own subject.
    lineages = LazyModule("commonbook.sharing.lineage")
    manage_copy = LazyModule("commonbook.sharing.manage_copy")
    sharing_share = LazyModule("commonbook.sharing.share")


class SharingVerbs(BookBase):
    """Share memories and manage the copies."""

    def share(self, memory_id: str, to: str, *, refresh: Refresh = "live") -> ShareReceipt:
        """Copy a memory into a space; the copy stays bound to its source.

        With `refresh="live"` it follows the source at once, with `lazy` when it is read, and a `snapshot` never by
        itself. If the space has a copy already, that one is returned, unchanged. But a copy that no longer follows
        anything, since its source is gone or its sharer may not read it any more, is tied again in your name: the
        receipt says `retied`.
        """
        return sharing_share.share(self._engines, self._caller, memory_id, to, refresh=refresh)

    def pull(self, memory_id: str, to: str | None = None, *, refresh: Refresh = "live") -> ShareReceipt:
        """Copy a memory that you may read into a space of yours (by default the default space); see `share`."""
        return sharing_share.share(
            self._engines, self._caller, memory_id, to or self.space_for_writing(), refresh=refresh
        )

    def share_many(self, ids: Sequence[str], to: str, *, refresh: Refresh = "live") -> tuple[ShareReceipt, ...]:
        """Share several memories into a space, each in a transaction of its own; a failed one has an `error`."""
        return sharing_share.share_many(self._engines, self._actor, ids, to, refresh=refresh)

    def share_with(self, memory_id: str, principal: str, *, refresh: Refresh = "live") -> ShareReceipt:
        """Share a memory with one principal: into a space that only the two of you can read."""
        return sharing_share.share_with(self._engines, self._caller, memory_id, principal, refresh=refresh)

    def unshare(self, copy_id: str) -> Receipt:
        """Delete a copy; copies that were made from it stay."""
        return manage_copy.unshare(self._engines, self._caller, copy_id)

    def refresh(self, copy_id: str) -> Receipt:
        """Update a copy from its source now."""
        return manage_copy.refresh(self._engines, self._caller, copy_id)

    def set_refresh(self, copy_id: str, mode: Refresh) -> Receipt:
        """Change when a copy follows its source: `live`, `lazy` or `snapshot`; see `share`."""
        return manage_copy.set_refresh(self._engines, self._caller, copy_id, mode)

    def detach(self, copy_id: str) -> Receipt:
        """Unbind a copy from its source, which it no longer follows; its origin stays known."""
        return manage_copy.detach(self._engines, self._caller, copy_id)

    def adopt(self, copy_id: str) -> Receipt:
        """Overwrite a copy that was edited here with its source; the edited text stays in its history.

        An imported copy, and one whose sharer may no longer share it, follow their source from then on, by
        your permissions.
        """
        return manage_copy.adopt(self._engines, self._caller, copy_id)

    @retry_read
    def lineage(self, memory_id: str, *, depth: int = 32) -> Lineage:
        """Return the sources of a memory and the copies made from it, at most `depth` steps each way."""
        return lineages.lineage(self._engines, self._actor, memory_id, depth=depth)

    @retry_read
    def copies(self, memory_id: str) -> tuple[CopyNode, ...]:
        """Return every copy of a memory, direct or not and however deep, as a flat list in depth-first order.

        `lineage` returns the tree, to a depth.
        """
        return lineages.all_copies(self._engines, self._actor, memory_id)

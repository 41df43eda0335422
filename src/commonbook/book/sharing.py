"""Verbs of a book for sharing: copies in other spaces, and where they come from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from commonbook.book.base import BookBase
from commonbook.model.memory import Receipt
from commonbook.ports.database import retry_read
from commonbook.runtime.lazy_modules import LazyModule

if TYPE_CHECKING:
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
    """Share memories, and look after the copies."""

    def share(self, memory_id: str, to: str, *, refresh: str = "live") -> ShareReceipt:
        """Copy a memory into a space, tied to its source: `live`, `lazy` or a `snapshot`."""
        return sharing_share.share(self._engines, self._actor, memory_id, to, refresh=refresh)

    def pull(self, memory_id: str, to: str | None = None, *, refresh: str = "live") -> ShareReceipt:
        """Copy a memory that one may read into a space of one's own, tied to its source."""
        return sharing_share.share(self._engines, self._actor, memory_id, to or self.default_space, refresh=refresh)

    def share_many(self, ids: Sequence[str], to: str, *, refresh: str = "live") -> tuple[ShareReceipt, ...]:
        """Share several memories into a space, each for itself, and tell what became of each."""
        return sharing_share.share_many(self._engines, self._actor, ids, to, refresh=refresh)

    def share_with(self, memory_id: str, principal: str, *, refresh: str = "live") -> ShareReceipt:
        """Share a memory with one principal alone."""
        return sharing_share.share_with(self._engines, self._actor, memory_id, principal, refresh=refresh)

    def unshare(self, copy_id: str) -> Receipt:
        """Remove a copy."""
        return manage_copy.unshare(self._engines, self._actor, copy_id)

    def refresh(self, copy_id: str) -> Receipt:
        """Let a copy take over what its source says now."""
        return manage_copy.refresh(self._engines, self._actor, copy_id)

    def detach(self, copy_id: str) -> Receipt:
        """End the tie between a copy and its source."""
        return manage_copy.detach(self._engines, self._actor, copy_id)

    def adopt(self, copy_id: str) -> Receipt:
        """Let a copy that was edited here say what its source says again."""
        return manage_copy.adopt(self._engines, self._actor, copy_id)

    @retry_read
    def lineage(self, memory_id: str, *, depth: int = 32) -> Lineage:
        """Return where a memory came from and what was copied from it, at most so deep each way."""
        return lineages.lineage(self._engines, self._actor, memory_id, depth=depth)

    @retry_read
    def copies(self, memory_id: str) -> tuple[CopyNode, ...]:
        """Return every copy of a memory, and theirs."""
        return lineages.all_copies(self._engines, self._actor, memory_id)

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
        return sharing_share.share(self._engines, self._caller, memory_id, to, refresh=refresh)

    def pull(self, memory_id: str, to: str | None = None, *, refresh: Refresh = "live") -> ShareReceipt:
        return sharing_share.share(
            self._engines, self._caller, memory_id, to or self.space_for_writing(), refresh=refresh
        )

    def share_many(self, ids: Sequence[str], to: str, *, refresh: Refresh = "live") -> tuple[ShareReceipt, ...]:
        return sharing_share.share_many(self._engines, self._actor, ids, to, refresh=refresh)

    def share_with(self, memory_id: str, principal: str, *, refresh: Refresh = "live") -> ShareReceipt:
        return sharing_share.share_with(self._engines, self._caller, memory_id, principal, refresh=refresh)

    def unshare(self, copy_id: str) -> Receipt:
        return manage_copy.unshare(self._engines, self._caller, copy_id)

    def refresh(self, copy_id: str) -> Receipt:
        return manage_copy.refresh(self._engines, self._caller, copy_id)

    def set_refresh(self, copy_id: str, mode: Refresh) -> Receipt:
        return manage_copy.set_refresh(self._engines, self._caller, copy_id, mode)

    def detach(self, copy_id: str) -> Receipt:
        return manage_copy.detach(self._engines, self._caller, copy_id)

    def adopt(self, copy_id: str) -> Receipt:
        return manage_copy.adopt(self._engines, self._caller, copy_id)

    def adopt_all(self) -> tuple[Receipt, ...]:
        return manage_copy.adopt_all(self._engines, self._actor)

    @retry_read
    def lineage(self, memory_id: str, *, depth: int = 32) -> Lineage:
        return lineages.lineage(self._engines, self._actor, memory_id, depth=depth)

    @retry_read
    def copies(self, memory_id: str) -> tuple[CopyNode, ...]:
        return lineages.all_copies(self._engines, self._actor, memory_id)

"""Verbs of a book for sharing: copies and their lineage, sharing rules, share requests and rate limits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from commonbook.ports.database import retry_read
from commonbook.runtime import LazyModule
from commonbook.service.base import BookBase

if TYPE_CHECKING:
    from commonbook.subjects.admin import grants
    from commonbook.subjects.memories import proposals
    from commonbook.subjects.sharing import lineage as lineages
    from commonbook.subjects.sharing import manage_copy, requests
    from commonbook.subjects.sharing import rules as sharing_rules
    from commonbook.subjects.sharing import share as sharing_share
    from commonbook.values.memory import Kind, Receipt, Refresh
    from commonbook.values.sharing import (
        CopyNode,
        LimitedAction,
        Lineage,
        RateLimit,
        ShareReceipt,
        ShareRequest,
        SharingRule,
    )
else:
    # A verb loads the module that it needs, so that a command loads no more than its own subject.
    lineages = LazyModule("commonbook.subjects.sharing.lineage")
    manage_copy = LazyModule("commonbook.subjects.sharing.manage_copy")
    sharing_share = LazyModule("commonbook.subjects.sharing.share")
    proposals = LazyModule("commonbook.subjects.memories.proposals")
    grants = LazyModule("commonbook.subjects.admin.grants")
    requests = LazyModule("commonbook.subjects.sharing.requests")
    sharing_rules = LazyModule("commonbook.subjects.sharing.rules")


class SharingVerbs(BookBase):
    """Share memories, manage the copies, and decide about rules and requests."""

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

    def add_rule(
        self,
        space: str,
        from_space: str,
        *,
        kinds: Iterable[Kind] = (),
        tags: Iterable[str] = (),
        importance: float | None = None,
        approval: bool = False,
        refresh: Refresh = "live",
    ) -> SharingRule:
        choice = sharing_rules.parse_options(kinds, tags, importance, refresh, approval=approval)
        return sharing_rules.add(self._engines, self._caller, space, from_space, choice)

    @retry_read
    def rules(self, *, space: str | None = None) -> tuple[SharingRule, ...]:
        return sharing_rules.list_rules(self._engines, self._actor, space=space)

    def remove_rule(self, rule_id: str) -> SharingRule:
        return sharing_rules.remove(self._engines, self._caller, rule_id)

    def request_share(self, memory_id: str, to: str, *, refresh: Refresh = "live") -> ShareRequest:
        return requests.create_request(self._engines, self._caller, memory_id, to, refresh=refresh)

    @retry_read
    def pending(self, *, space: str | None = None, decided: bool = False) -> tuple[ShareRequest, ...]:
        return proposals.pending(self._engines, self._actor, space=space, decided=decided)

    def approve(self, request_id: str, *, note: str = "", expected_version: int | None = None) -> ShareRequest:
        return proposals.approve(self._engines, self._caller, request_id, note=note, expected_version=expected_version)

    def reject(self, request_id: str, *, note: str = "") -> ShareRequest:
        return proposals.reject(self._engines, self._caller, request_id, note=note)

    def set_limit(self, action: LimitedAction, per_minute: int | None, *, principal: str | None = None) -> RateLimit:
        return grants.set_limit(self._engines, self._caller, action, per_minute, principal=principal)

    @retry_read
    def limits(self) -> tuple[RateLimit, ...]:
        return grants.list_limits(self._engines, self._actor)

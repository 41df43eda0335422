"""Verbs of a book for governed sharing: sharing rules, share requests with approval, and rate limits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from commonbook.book.base import BookBase
from commonbook.ports.retry_read import retry_read
from commonbook.runtime.lazy_modules import LazyModule

if TYPE_CHECKING:
    from commonbook.admin import rate_limits
    from commonbook.memories import proposals
    from commonbook.model.memory import Kind, Refresh
    from commonbook.model.sharing import LimitedAction, RateLimit, ShareRequest, SharingRule
    from commonbook.sharing import requests
    from commonbook.sharing import rules as sharing_rules
else:
    # A verb loads the module that it needs, so that a command loads no more than its own subject.
    proposals = LazyModule("commonbook.memories.proposals")
    rate_limits = LazyModule("commonbook.admin.rate_limits")
    requests = LazyModule("commonbook.sharing.requests")
    sharing_rules = LazyModule("commonbook.sharing.rules")


class SharingRuleVerbs(BookBase):
    """Manage sharing rules, decide about share requests, and set rate limits."""

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
        return rate_limits.set_limit(self._engines, self._caller, action, per_minute, principal=principal)

    @retry_read
    def limits(self) -> tuple[RateLimit, ...]:
        return rate_limits.list_limits(self._engines, self._actor)

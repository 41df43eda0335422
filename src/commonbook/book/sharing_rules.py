"""Verbs of a book for governed sharing: sharing rules, share requests with approval, and rate limits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from commonbook.book.base import BookBase
from commonbook.ports.retry_read import retry_read
from commonbook.runtime.lazy_modules import LazyModule

if TYPE_CHECKING:
    from commonbook.admin import rate_limits
    from commonbook.memories import approve as memories_approve
    from commonbook.memories import proposals
    from commonbook.model.memory import Kind, Refresh
    from commonbook.model.sharing import LimitedAction, RateLimit, ShareRequest, SharingRule
    from commonbook.sharing import requests
    from commonbook.sharing import rules as sharing_rules
else:
    # A verb loads the module that it needs, so that a command loads no more than its own subject.
    memories_approve = LazyModule("commonbook.memories.approve")
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
        """Add a rule that shares memories from one space into another as they are written from now on.

        It matches memories of one of the `kinds`, with all `tags`, and at least this `importance`. With `approval`, a
        match waits as a request until an admin of the space approves it. The rule acts with your permissions.
        """
        choice = sharing_rules.parse_options(kinds, tags, importance, refresh, approval=approval)
        return sharing_rules.add(self._engines, self._caller, space, from_space, choice)

    @retry_read
    def rules(self, *, space: str | None = None) -> tuple[SharingRule, ...]:
        """Return the sharing rules into and from the spaces that you administer; or those of one space."""
        return sharing_rules.list_rules(self._engines, self._actor, space=space)

    def remove_rule(self, rule_id: str) -> SharingRule:
        """Remove a sharing rule and its waiting requests; the copies that it made stay."""
        return sharing_rules.remove(self._engines, self._caller, rule_id)

    def request_share(self, memory_id: str, to: str, *, refresh: Refresh = "live") -> ShareRequest:
        """Ask the admins of a space, which you can read but need not be able to write to, to accept a memory.

        Asking again while the request waits returns the same request.
        """
        return requests.create_request(self._engines, self._caller, memory_id, to, refresh=refresh)

    @retry_read
    def pending(self, *, space: str | None = None, decided: bool = False) -> tuple[ShareRequest, ...]:
        """Return the requests and proposed memories that wait for your decision, and your own.

        With `decided`, also the decided ones.
        """
        return proposals.pending(self._engines, self._actor, space=space, decided=decided)

    def approve(self, request_id: str, *, note: str = "", expected_version: int | None = None) -> ShareRequest:
        """Approve a request: the memory is shared now. You cannot approve your own request.

        For a proposed memory, whose id is that of the request: it is accepted into its space now, and supersedes what
        it was to replace. Agents cannot approve one. With `expected_version`, the memory must be the one that you saw.
        """
        return memories_approve.approve(
            self._engines, self._caller, request_id, note=note, expected_version=expected_version
        )

    def reject(self, request_id: str, *, note: str = "") -> ShareRequest:
        """Reject a request, or withdraw your own. A proposed memory is deleted; `undelete` proposes it again."""
        return memories_approve.reject(self._engines, self._caller, request_id, note=note)

    def set_limit(self, action: LimitedAction, per_minute: int | None, *, principal: str | None = None) -> RateLimit:
        """Limit how often in a minute a principal may `share` or `request`.

        Without `principal`, the limit is for everybody who has none of their own. None as `per_minute` removes a limit.
        Only the owner may call it.
        """
        return rate_limits.set_limit(self._engines, self._caller, action, per_minute, principal=principal)

    @retry_read
    def limits(self) -> tuple[RateLimit, ...]:
        """Return all rate limits if you own the book; otherwise your own."""
        return rate_limits.list_limits(self._engines, self._actor)

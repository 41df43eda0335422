"""The verbs of a book by which spaces take in from each other: rules, requests and their decisions, limits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from commonbook.book.base import BookBase
from commonbook.ports.database import retry_read
from commonbook.runtime.lazy_modules import LazyModule

if TYPE_CHECKING:
    from commonbook.admin import rate_limits
    from commonbook.model.sharing import RateLimit, ShareRequest, SharingRule
    from commonbook.sharing import requests
    from commonbook.sharing import rules as sharing_rules
else:
    # A verb loads the module that it needs, so that a command loads no more than its own subject.
    rate_limits = LazyModule("commonbook.admin.rate_limits")
    requests = LazyModule("commonbook.sharing.requests")
    sharing_rules = LazyModule("commonbook.sharing.rules")


class SharingRuleVerbs(BookBase):
    """Make rules, ask, decide and limit."""

    def add_rule(
        self,
        space: str,
        from_space: str,
        *,
        kinds: Iterable[str] = (),
        tags: Iterable[str] = (),
        importance: float | None = None,
        approval: bool = False,
        refresh: str = "live",
    ) -> SharingRule:
        """Let a space take in from now on what another writes of these kinds, with all tags, at least so important.

        With `approval`, what is meant waits until somebody who administers the space agrees.
        """
        what = sharing_rules.parse_choice(kinds, tags, importance, refresh, approval=approval)
        return sharing_rules.add(self._engines, self._actor, space, from_space, what)

    @retry_read
    def rules(self, *, space: str | None = None) -> tuple[SharingRule, ...]:
        """Return the rules that take into and from the spaces that one administers."""
        return sharing_rules.list_rules(self._engines, self._actor, space=space)

    def remove_rule(self, rule_id: str) -> SharingRule:
        """Remove a rule, and what waits because of it; what it took in stays."""
        return sharing_rules.remove(self._engines, self._actor, rule_id)

    def request_share(self, memory_id: str, to: str, *, refresh: str = "live") -> ShareRequest:
        """Ask those who administer a space that one may read, and perhaps not write to, to take a memory in."""
        return requests.request(self._engines, self._actor, memory_id, to, refresh=refresh)

    @retry_read
    def pending(self, *, space: str | None = None, decided: bool = False) -> tuple[ShareRequest, ...]:
        """Return what waits for one's decision and what one asked for oneself, or with it what was decided."""
        return requests.list_requests(self._engines, self._actor, space=space, decided=decided)

    def approve(self, request_id: str, *, note: str = "") -> ShareRequest:
        """Agree to a request: the memory is shared. Whoever asked cannot."""
        return requests.approve(self._engines, self._actor, request_id, note=note)

    def reject(self, request_id: str, *, note: str = "") -> ShareRequest:
        """Refuse a request, or take one's own back."""
        return requests.reject(self._engines, self._actor, request_id, note=note)

    def set_limit(self, action: str, per_minute: int | None, *, principal: str | None = None) -> RateLimit:
        """Set how often a minute a principal may `share` or `request`, or everybody without a limit of its own."""
        return rate_limits.set_limit(self._engines, self._actor, action, per_minute, principal=principal)

    @retry_read
    def limits(self) -> tuple[RateLimit, ...]:
        """Return the limits that there are, or one's own."""
        return rate_limits.list_limits(self._engines, self._actor)

"""The verbs of a book that let others in: copies in their spaces, grants of one's own, and keys."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from commonbook.hands import Hands
from commonbook.lazy_modules import LazyModule
from commonbook.model import Receipt
from commonbook.ports import asking

if TYPE_CHECKING:
    from commonbook import granting, share
    from commonbook import lineage as lineages
    from commonbook.principals import ApiKey, Grant, NewKey
    from commonbook.provenance import CopyOf, Lineage, Sharing
else:
    # A verb loads the module that it needs, so that a command loads no more than its own subject.
    granting = LazyModule("commonbook.granting")
    lineages = LazyModule("commonbook.lineage")
    share = LazyModule("commonbook.share")


class SharingVerbs(Hands):
    """Share, grant and make keys."""

    def share(self, memory_id: str, to: str, *, refresh: str = "live") -> Sharing:
        """Copy a memory into a space, tied to its source: `live`, `lazy` or a `snapshot`."""
        return share.share(self._parts, self._actor, memory_id, to, refresh=refresh)

    def pull(self, memory_id: str, to: str | None = None, *, refresh: str = "live") -> Sharing:
        """Copy a memory that one may read into a space of one's own, tied to its source."""
        return share.share(self._parts, self._actor, memory_id, to or self.default_space, refresh=refresh)

    def share_many(self, ids: Sequence[str], to: str, *, refresh: str = "live") -> tuple[Sharing, ...]:
        """Share several memories into a space, each for itself, and tell what became of each."""
        return share.share_many(self._parts, self._actor, ids, to, refresh=refresh)

    def share_with(self, memory_id: str, principal: str, *, refresh: str = "live") -> Sharing:
        """Share a memory with one principal alone."""
        return share.share_with(self._parts, self._actor, memory_id, principal, refresh=refresh)

    def unshare(self, copy_id: str) -> Receipt:
        """Remove a copy."""
        return share.unshare(self._parts, self._actor, copy_id)

    def refresh(self, copy_id: str) -> Receipt:
        """Let a copy take over what its source says now."""
        return share.refresh(self._parts, self._actor, copy_id)

    def detach(self, copy_id: str) -> Receipt:
        """End the tie between a copy and its source."""
        return share.detach(self._parts, self._actor, copy_id)

    def adopt(self, copy_id: str) -> Receipt:
        """Let a copy that was edited here say what its source says again."""
        return share.adopt(self._parts, self._actor, copy_id)

    @asking
    def lineage(self, memory_id: str, *, depth: int = 32) -> Lineage:
        """Return where a memory came from and what was copied from it, at most so deep each way."""
        return lineages.lineage(self._parts, self._actor, memory_id, depth=depth)

    @asking
    def copies(self, memory_id: str) -> tuple[CopyOf, ...]:
        """Return every copy of a memory, and theirs."""
        return lineages.listed(self._parts, self._actor, memory_id)

    # --- rights

    def grant(self, principal: str, space: str, role: str, *, expires: datetime | str | None = None) -> Grant:
        """Let a principal be reader, writer or admin of a space and everything below it, until it expires."""
        return granting.grant(self._parts, self._actor, principal, space, role, expires=expires)

    def revoke(self, principal: str, space: str) -> None:
        """Take a grant away."""
        granting.revoke(self._parts, self._actor, principal, space)

    @asking
    def grants(self, *, space: str | None = None) -> tuple[Grant, ...]:
        """Return the grants on the spaces that one administers, and one's own."""
        return granting.granted(self._parts, self._actor, space=space)

    def create_key(
        self,
        principal: str,
        *,
        label: str = "",
        limits: Iterable[tuple[str, str]] | None = None,
        expires: datetime | str | None = None,
    ) -> NewKey:
        """Make an API key; its secret is in the answer, and nowhere else. `limits`: pairs of a space and a role."""
        return granting.create_key(self._parts, self._actor, principal, label=label, limits=limits, expires=expires)

    @asking
    def keys(self) -> tuple[ApiKey, ...]:
        """Return the keys that there are, or one's own."""
        return granting.listed_keys(self._parts, self._actor)

    def revoke_key(self, key_id: str) -> ApiKey:
        """Let a key open nothing from now on."""
        return granting.revoke_key(self._parts, self._actor, key_id)

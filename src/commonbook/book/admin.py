"""Verbs of a book for administration: spaces, grants, API keys."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING

from commonbook.book.base import BookBase
from commonbook.model.spaces import ApiKey, Grant, NewKey, Space
from commonbook.ports.database import retry_read
from commonbook.runtime.lazy_modules import LazyModule

if TYPE_CHECKING:
    from commonbook.admin import api_keys
    from commonbook.admin import grants as admin_grants
    from commonbook.admin import spaces as admin_spaces
    from commonbook.memories import read
else:
    # A verb loads the module that it needs, so that a command loads no more than its own subject.
    admin_grants = LazyModule("commonbook.admin.grants")
    admin_spaces = LazyModule("commonbook.admin.spaces")
    api_keys = LazyModule("commonbook.admin.api_keys")
    read = LazyModule("commonbook.memories.read")


class AdminVerbs(BookBase):
    """Manage spaces, grants and API keys."""

    @retry_read
    def spaces(self) -> tuple[Space, ...]:
        """Return the spaces, by name."""
        return admin_spaces.list_spaces(self._engines, self._actor)

    def create_space(self, name: str) -> Space:
        """Make a space."""
        return admin_spaces.create(self._engines, self._actor, name)

    def rename_space(self, old: str, new: str) -> Space:
        """Give a space, and everything below it, another name; ids stay."""
        return admin_spaces.rename(self._engines, self._actor, old, new)

    def grant(self, principal: str, space: str, role: str, *, expires: datetime | str | None = None) -> Grant:
        """Let a principal be reader, writer or admin of a space and everything below it, until it expires."""
        return admin_grants.grant(self._engines, self._actor, principal, space, role, expires=expires)

    def revoke(self, principal: str, space: str) -> None:
        """Take a grant away."""
        admin_grants.revoke(self._engines, self._actor, principal, space)

    @retry_read
    def grants(self, *, space: str | None = None) -> tuple[Grant, ...]:
        """Return the grants on the spaces that one administers, and one's own."""
        return admin_grants.list_grants(self._engines, self._actor, space=space)

    def create_key(
        self,
        principal: str,
        *,
        label: str = "",
        limits: Iterable[tuple[str, str]] | None = None,
        expires: datetime | str | None = None,
    ) -> NewKey:
        """Make an API key; its secret is in the answer, and nowhere else. `limits`: pairs of a space and a role."""
        return api_keys.create_key(self._engines, self._actor, principal, label=label, limits=limits, expires=expires)

    @retry_read
    def keys(self) -> tuple[ApiKey, ...]:
        """Return the keys that there are, or one's own."""
        return api_keys.list_keys(self._engines, self._actor)

    def revoke_key(self, key_id: str) -> ApiKey:
        """Let a key open nothing from now on."""
        return api_keys.revoke_key(self._engines, self._actor, key_id)

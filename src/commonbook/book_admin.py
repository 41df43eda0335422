"""Verbs of a book for administration: spaces, grants, API keys."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING

from commonbook.hands import Hands
from commonbook.lazy_modules import LazyModule
from commonbook.model import (
    Space,
)
from commonbook.ports import asking
from commonbook.principals import ApiKey, Grant, NewKey

if TYPE_CHECKING:
    from commonbook import arrange, granting, reading
else:
    # A verb loads the module that it needs, so that a command loads no more than its own subject.
    arrange = LazyModule("commonbook.arrange")
    granting = LazyModule("commonbook.granting")
    reading = LazyModule("commonbook.reading")


class AdminVerbs(Hands):
    """Manage spaces, grants and API keys."""

    @asking
    def spaces(self) -> tuple[Space, ...]:
        """Return the spaces, by name."""
        return reading.all_spaces(self._parts, self._actor)

    def create_space(self, name: str) -> Space:
        """Make a space."""
        return arrange.create(self._parts, self._actor, name)

    def rename_space(self, old: str, new: str) -> Space:
        """Give a space, and everything below it, another name; ids stay."""
        return arrange.rename(self._parts, self._actor, old, new)

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

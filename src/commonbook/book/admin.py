"""Verbs of a book for administration: spaces, grants and API keys."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING

from commonbook.book.base import BookBase
from commonbook.ports.retry_read import retry_read
from commonbook.runtime.lazy_modules import LazyModule

if TYPE_CHECKING:
    from commonbook.admin import api_keys, browser_sign_in, login_codes
    from commonbook.admin import grants as admin_grants
    from commonbook.admin import identity as admin_identity
    from commonbook.admin import spaces as admin_spaces
    from commonbook.model.spaces import ApiKey, Grant, Identity, LoginCode, NewKey, Review, Role, SignInCode, Space
else:
    # A verb loads the module that it needs, so that a command loads no more than its own subject.
    admin_grants = LazyModule("commonbook.admin.grants")
    admin_identity = LazyModule("commonbook.admin.identity")
    admin_spaces = LazyModule("commonbook.admin.spaces")
    api_keys = LazyModule("commonbook.admin.api_keys")
    browser_sign_in = LazyModule("commonbook.admin.browser_sign_in")
    login_codes = LazyModule("commonbook.admin.login_codes")


class AdminVerbs(BookBase):
    """Manage spaces, grants and API keys."""

    @retry_read
    def whoami(self) -> Identity:
        """Return whom this book acts for: the principal, its API key, its default space, and its role on each space."""
        return admin_identity.identity(self._engines, self._actor, default_space=self.default_space)

    @retry_read
    def spaces(self) -> tuple[Space, ...]:
        """Return the spaces that you may read, ordered by name."""
        return admin_spaces.list_spaces(self._engines, self._actor)

    def create_space(self, name: str) -> Space:
        """Create a space, such as `team/backend`; an existing one is a conflict (`SpaceExists`).

        Verbs that write to a space create it on their own, if you may.
        """
        return admin_spaces.create(self._engines, self._caller, name)

    def rename_space(self, old: str, new: str) -> Space:
        """Rename a space and everything below it, with the files; ids stay."""
        return admin_spaces.rename(self._engines, self._caller, old, new)

    def set_review(self, space: str, review: Review | None) -> Space:
        """Have the memories of agents (`"agents"`) reviewed in a space and below it; None ends it.

        What an agent remembers there is proposed: it waits in `inbox` and `pending` until a person approves it, and is
        recalled only in the space of the proposals, `SPACE/_proposed`. An agent can change nothing else there, but
        append to sessions. Admins of the space may call it, agents never.
        """
        return admin_spaces.set_review(self._engines, self._caller, space, review)

    def grant(self, principal: str, space: str, role: Role, *, expires: datetime | str | None = None) -> Grant:
        """Grant a principal the role `reader`, `writer` or `admin` on a space and everything below it.

        A new grant replaces the one that the principal has on the same space. Without `expires` it does not end.
        """
        return admin_grants.grant(self._engines, self._caller, principal, space, role, expires=expires)

    def revoke(self, principal: str, space: str) -> None:
        """Revoke the grant of a principal on a space; a grant on a space above it stays."""
        admin_grants.revoke(self._engines, self._caller, principal, space)

    @retry_read
    def grants(self, *, space: str | None = None) -> tuple[Grant, ...]:
        """Return the grants on the spaces that you administer, and your own; or those on one space."""
        return admin_grants.list_grants(self._engines, self._actor, space=space)

    def create_key(
        self,
        principal: str,
        *,
        label: str = "",
        limits: Iterable[tuple[str, Role]] | None = None,
        expires: datetime | str | None = None,
        space: str | None = None,
    ) -> NewKey:
        """Create an API key for a principal: the owner for anybody, others for themselves.

        The secret is in the result and stored nowhere. `limits` are pairs of a space and a role: the key opens these
        spaces only, with at most these roles. Without `limits` it has all permissions of the principal. `space` is the
        default space of the key: without one, each write with it has to name a space.
        """
        return api_keys.create_key(
            self._engines, self._caller, principal, label=label, limits=limits, expires=expires, space=space
        )

    @retry_read
    def keys(self) -> tuple[ApiKey, ...]:
        """Return all API keys, without their secrets, if you own the book; otherwise your own."""
        return api_keys.list_keys(self._engines, self._actor)

    def revoke_key(self, key_id: str) -> ApiKey:
        """Revoke an API key; it opens nothing from now on."""
        return api_keys.revoke_key(self._engines, self._caller, key_id)

    def create_login(self, key_id: str) -> LoginCode:
        """Make a login code of an API key, which carries the key to another machine: `commonbook login URL CODE`.

        It works once, within ten minutes. Those may make one who may create the key.
        """
        return login_codes.create_login(self._engines, self._caller, key_id)

    def create_sign_in(self) -> SignInCode:
        """Make a code that signs a browser in by the API key that this book was opened with.

        A server exchanges it for a session at `/sign-in#CODE`, once, within a minute.
        """
        return browser_sign_in.create_sign_in(self._engines, self._caller)

    def exchange_login(self, code: str, *, nonce: str | None = None) -> NewKey:
        """Exchange a login code for a secret of its API key; the code is the only proof that this needs.

        The secret replaces the one of an earlier login with this key; the one that the key was created with stays.
        `nonce` is a random text of the caller: until the code expires, the same nonce gets the same secret again.
        """
        return login_codes.exchange_login(self._engines, code, nonce=nonce)

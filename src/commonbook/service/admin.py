"""Verbs of a book for administration: spaces, grants and API keys."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from commonbook.ports.database import retry_read
from commonbook.runtime import LazyModule
from commonbook.service.base import BookBase
from commonbook.verbs.access import Access
from commonbook.verbs.declaration import implements

if TYPE_CHECKING:
    from commonbook.subjects.admin import api_keys, sign_in
    from commonbook.subjects.admin import grants as admin_grants
    from commonbook.subjects.admin import spaces as admin_spaces
    from commonbook.values.spaces import ApiKey, Grant, Identity, LoginCode, NewKey, Review, Role, SignInCode, Space
else:
    # A verb loads the module that it needs, so that a command loads no more than its own subject.
    admin_grants = LazyModule("commonbook.subjects.admin.grants")
    admin_spaces = LazyModule("commonbook.subjects.admin.spaces")
    api_keys = LazyModule("commonbook.subjects.admin.api_keys")
    sign_in = LazyModule("commonbook.subjects.admin.sign_in")


class AdminVerbs(BookBase):
    """Manage spaces, grants and API keys."""

    @retry_read
    def whoami(self) -> Identity:
        return admin_grants.identity(self._engines, self._actor, default_space=self.default_space)

    @retry_read
    def spaces(self) -> tuple[Space, ...]:
        return admin_spaces.list_spaces(self._engines, self._actor)

    def create_space(self, name: str) -> Space:
        return admin_spaces.create(self._engines, self._caller, name)

    def rename_space(self, space: str, name: str) -> Space:
        return admin_spaces.rename(self._engines, self._caller, space, name)

    def set_review(self, space: str, review: Review | None) -> Space:
        return admin_spaces.set_review(self._engines, self._caller, space, review)

    def grant(self, principal: str, space: str, role: Role, *, expires: datetime | str | None = None) -> Grant:
        return admin_grants.grant(self._engines, self._caller, principal, space, role, expires=expires)

    def revoke(self, principal: str, space: str) -> None:
        admin_grants.revoke(self._engines, self._caller, principal, space)

    @retry_read
    def grants(self, *, space: str | None = None) -> tuple[Grant, ...]:
        return admin_grants.list_grants(self._engines, self._actor, space=space)

    @implements(Access.create_key)
    def create_key(self, principal: str, **options: Any) -> NewKey:  # noqa: ANN401 - as declared
        return api_keys.create_key(self._engines, self._caller, principal, **options)

    @retry_read
    def keys(self) -> tuple[ApiKey, ...]:
        return api_keys.list_keys(self._engines, self._actor)

    def revoke_key(self, key_id: str) -> ApiKey:
        return api_keys.revoke_key(self._engines, self._caller, key_id)

    def create_login(self, key_id: str) -> LoginCode:
        return sign_in.create_login(self._engines, self._caller, key_id)

    def create_sign_in(self) -> SignInCode:
        return sign_in.create_sign_in(self._engines, self._caller)

    def exchange_login(self, code: str, *, nonce: str | None = None) -> NewKey:
        return sign_in.exchange_login(self._engines, code, nonce=nonce)

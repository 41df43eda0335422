"""The verbs of a book: manage spaces, grants, API keys and rate limits."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING

from commonbook.verbs.declaration import Declarations, verb

if TYPE_CHECKING:
    from commonbook.values.sharing import LimitedAction, RateLimit
    from commonbook.values.spaces import ApiKey, Grant, Identity, LoginCode, NewKey, Review, Role, SignInCode, Space


class Access(Declarations):
    """Manage spaces, grants, API keys and rate limits."""

    @property
    @verb("GET", "/v1/actor")
    def actor(self) -> str:
        """The principal that this book acts for, such as `user:ana` or `agent:helper`."""

    @verb("GET", "/v1/whoami")
    def whoami(self) -> Identity:
        """Return whom this book acts for: the principal, its API key, its default space, and its role on each space."""

    @property
    @verb("GET", "/v1/default_space")
    def default_space(self) -> str:
        """The space of calls that name none: as configured, as the project or the API key says, or `personal`."""

    @verb("POST", "/v1/space_for_writing")
    def space_for_writing(self) -> str:
        """Return the space of a write that names none, and record it as that of this git repository, if it is one.

        NotAllowed if the caller is not the owner and its API key has no default space.
        """

    @verb("GET", "/v1/spaces")
    def spaces(self) -> tuple[Space, ...]:
        """Return the spaces that you may read, ordered by name."""

    @verb("POST", "/v1/spaces", changes=True)
    def create_space(self, name: str) -> Space:
        """Create a space, such as `team/backend`; an existing one is a conflict (`SpaceExists`).

        Verbs that write to a space create it on their own, if you may.
        """

    @verb("PATCH", "/v1/spaces/{space:path}", changes=True, slow=True)
    def rename_space(self, space: str, name: str) -> Space:
        """Rename a space and everything below it, with the files; ids stay."""

    @verb("PATCH", "/v1/spaces/{space:path}", changes=True)
    def set_review(self, space: str, review: Review | None) -> Space:
        """Have the memories of agents (`"agents"`) reviewed in a space and below it; None ends it.

        What an agent remembers there is proposed: it waits in `inbox` and `pending` until a person approves it, and is
        recalled only in the space of the proposals, `SPACE/_proposed`. An agent can change nothing else there, but
        append to sessions. Admins of the space may call it, agents never.
        """

    @verb("PATCH", "/v1/spaces/{space:path}", changes=True)
    def set_depth(self, space: str, depth: int | None) -> Space:
        """Limit how many reflections may build on each other in a space and below it (1 to 10).

        None removes the limit of this space, so that the one of the space above applies.
        """

    @verb("POST", "/v1/grants", changes=True)
    def grant(self, principal: str, space: str, role: Role, *, expires: datetime | str | None = None) -> Grant:
        """Grant a principal the role `reader`, `writer` or `admin` on a space and everything below it.

        A new grant replaces the one that the principal has on the same space. Without `expires` it does not end.
        """

    @verb("DELETE", "/v1/grants", changes=True)
    def revoke(self, principal: str, space: str) -> None:
        """Revoke the grant of a principal on a space; a grant on a space above it stays."""

    @verb("GET", "/v1/grants")
    def grants(self, *, space: str | None = None) -> tuple[Grant, ...]:
        """Return the grants on the spaces that you administer, and your own; or those on one space."""

    @verb("POST", "/v1/keys", changes=True)
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

    @verb("GET", "/v1/keys")
    def keys(self) -> tuple[ApiKey, ...]:
        """Return all API keys, without their secrets, if you own the book; otherwise your own.

        A key with limits sees itself only.
        """

    @verb("DELETE", "/v1/keys/{key_id}", changes=True)
    def revoke_key(self, key_id: str) -> ApiKey:
        """Revoke an API key; it opens nothing from now on."""

    @verb("POST", "/v1/keys/{key_id}/login", changes=True)
    def create_login(self, key_id: str) -> LoginCode:
        """Make a login code of an API key, which carries the key to another machine: `commonbook login URL CODE`.

        It works once, within ten minutes. Those may make one who may create the key.
        """

    @verb("POST", "/v1/sign_in", changes=True)
    def create_sign_in(self) -> SignInCode:
        """Make a code that signs a browser in by the API key that this book was opened with.

        A server exchanges it for a session at `/sign-in#CODE`, once, within a minute.
        """

    @verb("POST", "/v1/login", without_key=True)
    def exchange_login(self, code: str, *, nonce: str | None = None) -> NewKey:
        """Exchange a login code for a secret of its API key; the code is the only proof that this needs.

        The secret replaces the one of an earlier login with this key; the one that the key was created with stays.
        `nonce` is a random text of the caller: until the code expires, the same nonce gets the same secret again.
        """

    @verb("PUT", "/v1/limits", changes=True)
    def set_limit(self, action: LimitedAction, per_minute: int | None, *, principal: str | None = None) -> RateLimit:
        """Limit how often in a minute a principal may `share` or `request`.

        Without `principal`, the limit is for everybody who has none of their own. None as `per_minute` removes a limit.
        Only the owner may call it.
        """

    @verb("GET", "/v1/limits")
    def limits(self) -> tuple[RateLimit, ...]:
        """Return all rate limits if you own the book; otherwise your own."""

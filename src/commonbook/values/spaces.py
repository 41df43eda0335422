"""Spaces, principals and the actor of an operation, with grants and API keys."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final, Literal, NamedTuple, TypeAlias, get_args

LOCAL_OWNER: Final = "user:local"
FILESYSTEM: Final = "user:filesystem"


SPACE_FILE: Final = ".space.toml"
"""The name of the file that makes its folder a space."""

PERSONAL: Final = "personal"
"""The space of every file that lies in no folder of another space."""


PROPOSED: Final = "_proposed"
"""The last part of the name of a space that holds what is proposed to the space above it."""

_PROPOSED_ENDING: Final = f"/{PROPOSED}"


def is_space_file(path: str) -> bool:
    """Return whether a path names a space file."""
    return path.rpartition("/")[2] == SPACE_FILE


Review: TypeAlias = Literal["agents"]
"""Whose new memories a space has reviewed: they are proposed first, and wait for the approval of a person."""

AGENTS: Final[Review] = "agents"


class Space(NamedTuple):
    """A named part of the book; the id stays when the name changes. `depth` is its own limit of reflections, if any.

    `own_folder` is the folder of its files, if that is not the default one. `review` tells whose memories are proposed
    first, here and in the spaces below.
    """

    id: str
    name: str
    created: datetime
    depth: int | None = None
    own_folder: str | None = None
    review: Review | None = None

    @property
    def folder(self) -> str:
        """The folder that is the space, with everything below it that is not another space; "" is the whole home."""
        return default_folder(self.name) if self.own_folder is None else self.own_folder

    @property
    def holds_proposals(self) -> bool:
        """Whether its memories are proposed to the space above it, and wait for approval."""
        return self.name.endswith(_PROPOSED_ENDING)

    @property
    def base(self) -> str:
        """The folder into which new files are written; the files of `personal` do not lie at the top of the home."""
        return self.folder or self.name


def default_folder(name: str) -> str:
    """Return the folder of a space that has none of its own: its name, and for `personal` the whole home."""
    return "" if name == PERSONAL else name


SpaceScope: TypeAlias = Mapping[str, Space]
"""Spaces in reach, by id; every query of memories takes one, and returns nothing outside of it."""


def is_reviewed(name: str, spaces: SpaceScope) -> bool:
    """Return whether the memories of agents are proposed first in a space: it says so itself, or a space above it."""
    if name.endswith(_PROPOSED_ENDING):
        return False
    reviewed = {space.name for space in spaces.values() if space.review is not None}
    parts = name.split("/")
    return any("/".join(parts[:end]) in reviewed for end in range(1, len(parts) + 1))


Role: TypeAlias = Literal["reader", "writer", "admin"]
"""A role on a space and the spaces below it; each includes the roles before it."""

READER: Final = "reader"
WRITER: Final = "writer"
ADMIN: Final = "admin"
ROLES: Final[tuple[Role, ...]] = get_args(Role)
"""The roles on a space and the spaces below it; each includes the roles before it."""


class Actor(NamedTuple):
    """The identity of a caller: a principal, and the id of the API key that authenticated it, if one did.

    A key may be limited to fewer permissions than its principal has, so permissions belong to the actor and not to the
    principal. Stored, logged and shown values name the principal only. `Actor(name)` has no key: an operation that runs
    on behalf of a stored principal never inherits the key of the caller.
    """

    principal: str
    key_id: str | None = None
    has_limits: bool = True
    """Whether the key may give fewer permissions than its principal has."""
    within: tuple[str, ...] | None = None
    """The names of the spaces that it is confined to, with those below them; None: all that its principal reaches."""
    records: bool = False
    """Whether it records a conversation: messages and episodes are no memories that a review could hold back."""
    proposes: bool = False
    """Whether its memories are proposed in every space, as in one under review. It must be an agent."""

    @property
    def is_agent(self) -> bool:
        """Whether its memories are reviewed where memories of agents are."""
        return self.principal.startswith("agent:")

    def recording(self) -> Actor:
        """Return the actor as one that records a conversation, which no review holds back."""
        return self._replace(records=True) if self.is_agent else self

    def __str__(self) -> str:
        """Return the name of the principal."""
        return self.principal


OWNER_ACTOR: Final = Actor(LOCAL_OWNER)
"""The owner of the home, who needs no grant."""

FILESYSTEM_ACTOR: Final = Actor(FILESYSTEM)
"""Edits of the files themselves, with the permissions of the owner."""


class Grant(NamedTuple):
    """A role of a principal on a space and everything below it, until it expires."""

    principal: str
    space: Space
    role: Role
    granted_by: str
    granted_at: datetime
    expires: datetime | None = None


class ApiKey(NamedTuple):
    """An API key without its secret. Limits are (space id, role): other spaces and higher roles are excluded.

    `default_space` is the id of the space for writes that name none.
    """

    id: str
    principal: str
    label: str
    created: datetime
    created_by: str
    limits: tuple[tuple[str, Role], ...] | None = None
    expires: datetime | None = None
    revoked: datetime | None = None
    default_space: str | None = None


class SpaceRole(NamedTuple):
    """A space by its name, and a role on it."""

    space: str
    role: Role


class Identity(NamedTuple):
    """The identity of a caller: its principal, its default space, and its roles on the spaces that it reaches.

    `key_id`, `limits` and `expires` describe its API key. A key without limits has None; of the limits on spaces
    that the caller does not reach there is nothing to see.
    """

    principal: str
    default_space: str
    spaces: tuple[SpaceRole, ...]
    key_id: str | None = None
    limits: tuple[SpaceRole, ...] | None = None
    expires: datetime | None = None


class NewKey(NamedTuple):
    """A new API key with its secret, which is shown only this once."""

    key: ApiKey
    secret: str


class SignInCode(NamedTuple):
    """A code that signs a browser in, once, until it expires."""

    code: str
    expires: datetime


class BrowserSession(NamedTuple):
    """The session of a browser that was signed in by an API key.

    Requests of its pages that change something have the `csrf_token`, which pages of other sites cannot know.
    """

    key: ApiKey
    csrf_token: str
    expires: datetime


class LoginCode(NamedTuple):
    """A code that is exchanged once, until it expires, for a secret of an API key."""

    key: ApiKey
    code: str
    expires: datetime

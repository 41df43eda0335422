"""Permissions: the owner of the home may do everything, others what grants allow, and an API key limits both.

Every read and write asks here which spaces the actor may reach, in the same transaction in which it uses them. Limits
of an actor: an API key opens at most what its principal may reach, an actor can be confined to spaces, and an agent
proposes in spaces under review. Names of spaces are resolved here to those that an actor may read (`select`). Rate
limits: counts each use of a class of verbs, and refuses uses above the limit per minute of the principal.

| class | counted by |
| --- | --- |
| `write` | the write transaction of every verb that changes something, and each append |
| `share` | each memory that is shared, besides the write |
| `request` | each request to share, besides the write |
| `recall` | each recall, prefetched ones too |
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from commonbook.core.tables import api_keys, grants, rate_counts, spaces
from commonbook.core.text import space_names
from commonbook.core.text.space_names import is_within
from commonbook.errors import BadInput, NotAllowed, NotFound, TooMany
from commonbook.values.spaces import (
    ADMIN,
    FILESYSTEM,
    LOCAL_OWNER,
    READER,
    ROLES,
    WRITER,
    Actor,
    Space,
    SpaceScope,
    is_reviewed,
)

if TYPE_CHECKING:
    from commonbook.ports.database import Reading, Transaction
    from commonbook.ports.engines import Engines
    from commonbook.values.sharing import LimitedAction
    from commonbook.values.spaces import ApiKey
    from commonbook.values.stored_memory import StoredMemory

_OWNERS: Final = frozenset({LOCAL_OWNER, FILESYSTEM})


def is_owner(actor: Actor) -> bool:
    """Tell whether the actor may do everything: it is the owner of the home, or a file edit.

    A key of the owner counts if it has no limits; whether it was revoked meanwhile is asked in each transaction.
    """
    return is_owner_without_key(actor) or (actor.principal == LOCAL_OWNER and not actor.has_limits)


def is_owner_without_key(actor: Actor) -> bool:
    """Tell whether the actor is the owner of the home, or a file edit, and came without a key that could be revoked."""
    return actor.principal in _OWNERS and actor.key_id is None


def require_valid_key(tx: Reading, actor: Actor) -> None:
    """Raise NotAllowed if the actor came with a key that was revoked or has expired since."""
    if actor.key_id is None:
        return
    key = api_keys.find(tx, actor.key_id)
    if key is None or not api_keys.is_valid(key, tx):
        raise NotAllowed("the key was revoked or has expired", fix="ask for a new one")


def require_owner(actor: Actor, what: str) -> None:
    """Raise NotAllowed unless the actor is the owner; `what` names the action in the message."""
    if not is_owner(actor):
        raise NotAllowed(f"{actor.principal} may not {what}", fix="only the owner of the home may")


def confined(actor: Actor, within: Iterable[str]) -> Actor:
    """Return the actor confined to these spaces; BadInput for the owner, who is asked for no permission."""
    if is_owner(actor):
        raise BadInput(f"{actor.principal} cannot be confined to spaces", fix="name another principal")
    return actor._replace(within=tuple(within))


class PermissionSnapshot:
    """The permissions of an actor as read in one transaction: its grants, and the limits of its key.

    The owner of the home needs no grant.
    """

    def __init__(self, tx: Reading, actor: Actor) -> None:
        """Read the permissions."""
        self._tx, self._actor = tx, actor
        self._changed_here: set[str] = set()
        """The spaces on which this transaction itself changed the permissions of the actor."""
        self._read()
        self._granted_at_first = self._granted

    def _read(self) -> None:
        principal, key_id = self._actor.principal, self._actor.key_id
        self._granted = None if principal in _OWNERS else grants.roles(self._tx, principal)
        self._key = None if key_id is None else api_keys.find(self._tx, key_id)

    def reload(self, space: str) -> None:
        """Read again, because this transaction itself changed the permissions of the actor on a space."""
        self._changed_here.add(space)
        self._read()

    def read_again(self) -> PermissionSnapshot:
        """Return a new snapshot of the same actor."""
        return PermissionSnapshot(self._tx, self._actor)

    def roles(self, spaces: SpaceScope) -> Mapping[str, str]:
        """Return the role of the actor on each space where it has one."""
        roles: Mapping[str, str] = (
            dict.fromkeys(spaces, ADMIN) if self._granted is None else grants.effective_roles(self._granted, spaces)
        )
        if self._actor.key_id is not None:
            roles = within_limits(self._tx, self._key, self._actor, roles, spaces)
        if self._granted is not None and self._actor.is_agent and not self._actor.records:
            roles = within_review(self._actor, roles, spaces)
        return roles if self._actor.within is None else _confined_roles(self._actor.within, roles, spaces)

    def with_role(self, role: str, spaces: SpaceScope) -> SpaceScope:
        """Return those of the spaces on which the actor has this role or a higher one."""
        if is_owner_without_key(self._actor):
            return spaces
        allowed = grants.spaces_with_role(role, self.roles(spaces))
        return {id_: space for id_, space in spaces.items() if id_ in allowed}

    def may_read(self, space: Space, spaces: SpaceScope) -> bool:
        """Tell whether the actor may read a space."""
        return space.id in self.with_role(READER, with_ancestors(spaces, [space]))

    def may_write(self, space: Space, spaces: SpaceScope) -> bool:
        """Tell whether the actor may write to a space."""
        if is_owner_without_key(self._actor):
            return True
        # A rename in this transaction has changed the name by which the spaces above it are found.
        return space.id in self.with_role(WRITER, with_ancestors(spaces, [spaces.get(space.id, space)]))

    def lost_permissions_since(self, earlier: PermissionSnapshot) -> bool:
        """Tell whether another transaction revoked something since `earlier` was read, or changed the key."""
        before = {role for role in earlier._granted_at_first or () if role[0] not in earlier._changed_here}
        return not before <= {*(self._granted or ())} or self._key != earlier._key


def with_role(role: str, tx: Reading, actor: Actor, spaces: SpaceScope) -> SpaceScope:
    """Return those of the spaces on which the actor has this role or a higher one."""
    return spaces if is_owner_without_key(actor) else PermissionSnapshot(tx, actor).with_role(role, spaces)


def readable(tx: Reading, actor: Actor, spaces: SpaceScope) -> SpaceScope:
    """Return those of the spaces that the actor may read."""
    return with_role(READER, tx, actor, spaces)


def with_ancestors(spaces: SpaceScope, wanted: Iterable[Space]) -> SpaceScope:
    """Return these spaces and the spaces above them: no others decide about a permission on them."""
    names: set[str] = set()
    for space in wanted:
        parts = space.name.split("/")
        names.update("/".join(parts[:end]) for end in range(1, len(parts) + 1))
    return {id_: space for id_, space in spaces.items() if space.name in names}


def writable(tx: Reading, actor: Actor, spaces: SpaceScope) -> SpaceScope:
    """Return those of the spaces that the actor may write to."""
    return with_role(WRITER, tx, actor, spaces)


def administered(tx: Reading, actor: Actor, spaces: SpaceScope) -> SpaceScope:
    """Return those of the spaces whose grants the actor may change."""
    return with_role(ADMIN, tx, actor, spaces)


def require_admin(tx: Reading, actor: Actor, spaces: SpaceScope, name: str) -> Space:
    """Return the space of that name, or raise NotAllowed unless the actor administers it."""
    for space in administered(tx, actor, spaces).values():
        if space.name == name:
            return space
    raise refusal(actor, name)


def require_administered(tx: Reading, actor: Actor, spaces: SpaceScope, name: str) -> SpaceScope:
    """Return the spaces that a name selects and the actor administers, with a final `/` those below it too.

    Raise NotAllowed if there is none.
    """
    top = name.removesuffix("/")
    if top:
        space_names.require_space_name(top)
    selected = {
        id_: space
        for id_, space in administered(tx, actor, spaces).items()
        if space.name == top or (name.endswith("/") and (not top or space_names.is_within(space.name, top)))
    }
    if not selected:
        raise refusal(actor, name)
    return selected


def require_create(tx: Reading, actor: Actor, spaces: SpaceScope, name: str) -> None:
    """Raise NotAllowed unless the actor may create a space of that name: the owner, or an admin of a space above it."""
    if is_owner(actor):
        require_valid_key(tx, actor)
        return
    administered_names = {space.name for space in administered(tx, actor, spaces).values()}
    parts = name.split("/")
    if not any("/".join(parts[:end]) in administered_names for end in range(1, len(parts))):
        raise refusal(actor, name)


def refusal(actor: Actor, name: str) -> NotAllowed:
    """Return one and the same error for a space that the actor may not use, whether it exists or not."""
    return NotAllowed(f"{actor.principal} may not use the space {name!r}", fix="ask an admin of that space for a grant")


# --- memories


def require_found(memory: StoredMemory | None, memory_id: str) -> StoredMemory:
    """Return a live memory that was looked for among the readable ones, or raise NotFound.

    A memory that may be read but not written to is found: `require_writable` refuses it with NotAllowed.
    """
    if memory is None or memory.deleted is not None:
        raise no_memory(memory_id)
    return memory


def require_writable(actor: Actor, memory: StoredMemory, writable: SpaceScope, spaces: SpaceScope) -> None:
    """Raise NotAllowed unless a memory that the actor may read is in a space that it may write to."""
    if memory.space.id not in writable:
        raise refusal_to_write(actor, memory.space.name, spaces)
    if actor.is_agent:
        require_own_proposal(actor, memory)


def refusal_to_write(actor: Actor, name: str, spaces: SpaceScope) -> NotAllowed:
    """Return the error for a space that the actor may read, but not write to."""
    if actor.is_agent and holds_back(actor, name, spaces):
        return _refusal_under_review(actor, name)
    return NotAllowed(
        f"{actor.principal} may read the space {name!r}, but not write to it",
        fix="ask an admin of that space for the role `writer`",
    )


def no_memory(memory_id: str) -> NotFound:
    """Return one and the same error for an id that does not exist, is deleted, or may not be read."""
    return NotFound(f"there is no memory {memory_id}", fix="`commonbook list` shows what there is")


def within_limits(
    tx: Reading, key: ApiKey | None, actor: Actor, roles: Mapping[str, str], spaces: SpaceScope
) -> Mapping[str, str]:
    """Return the roles of an actor within the limits of its key; none if the key is unknown, foreign or not valid."""
    if key is None or key.principal != actor.principal or not api_keys.is_valid(key, tx):
        return {}
    if key.limits is None:
        return roles
    limits = grants.effective_roles(key.limits, spaces)
    return {space: min(roles[space], limits[space], key=ROLES.index) for space in roles.keys() & limits.keys()}


def _confined_roles(within: Iterable[str], roles: Mapping[str, str], spaces: SpaceScope) -> Mapping[str, str]:
    """Return the roles on spaces that are among the named ones or below them."""
    return {id_: role for id_, role in roles.items() if any(is_within(spaces[id_].name, top) for top in within)}


# --- under review
#
# An agent reads, talks and proposes there, and no more. Its role is limited, whatever it was granted, so that every
# verb that would change a memory of the space, or its grants, refuses it.


def holds_back(actor: Actor, name: str, spaces: SpaceScope) -> bool:
    """Tell whether a review keeps an actor from changing the memories of a space."""
    return actor.is_agent and (actor.proposes or is_reviewed(name, spaces))


def within_review(actor: Actor, roles: Mapping[str, str], spaces: SpaceScope) -> Mapping[str, str]:
    """Return the roles of an agent: it reads the spaces under review, and writes to those of their proposals."""
    if not actor.proposes and all(space.review is None for space in spaces.values()):
        return roles
    return {id_: _role(actor, role, spaces[id_], spaces) for id_, role in roles.items()}


def _role(actor: Actor, role: str, space: Space, spaces: SpaceScope) -> str:
    if role == READER:
        return role
    if space.holds_proposals:
        return WRITER if holds_back(actor, space_names.reviewed_space(space.name), spaces) else role
    return READER if holds_back(actor, space.name, spaces) else role


def require_own_proposal(actor: Actor, memory: StoredMemory) -> None:
    """Raise NotAllowed if an agent would change a memory that somebody else has proposed."""
    if memory.space.holds_proposals and memory.author != actor.principal:
        raise NotAllowed(
            f"memory {memory.id} was proposed by {memory.author}", fix="let that agent, or a person, change it"
        )


def require_none_below(actor: Actor, name: str, spaces: SpaceScope) -> None:
    """Raise NotAllowed if an agent would change the grants or the name of spaces under review from a space above."""
    below = (space for space in spaces.values() if space_names.is_within(space.name, name))
    if actor.is_agent and any(space.review is not None for space in below):
        raise NotAllowed(
            f"{actor.principal} is an agent, and a space in {name!r} is under review", fix="let a person do it"
        )


def _refusal_under_review(actor: Actor, name: str) -> NotAllowed:
    """Return the error for a change by an agent in a space that it may read, and where it may only propose."""
    return NotAllowed(
        f"{actor.principal} may only propose in the space {name!r}",
        fix="remember a new memory there, with `replaces` in place of an edit: a person approves it",
    )


# --- names of spaces, resolved to those in reach

_MAX_NAMED_SPACES: Final = 5


def select(tx: Reading, actor: Actor, name: str | None = None) -> SpaceScope:
    """Return the spaces that a name selects and the actor may read; refuse a name that selects none.

    A name selects the space of that name, with a final '/' all below it too; '/' and None select all spaces. A name of
    a space that the actor may create is not refused: it selects nothing yet.
    """
    return scope_of(tx, actor, ["/" if name is None else name])


def without_proposals(spaces_: SpaceScope, *names: str | None) -> SpaceScope:
    """Return the spaces without those that hold proposals, unless one of the names is that of such a space itself."""
    named = {name.removesuffix("/") for name in names if name is not None}
    return {id_: space for id_, space in spaces_.items() if not space.holds_proposals or space.name in named}


def scope_of(tx: Reading, actor: Actor, names: Sequence[str], *, refuse: bool = True) -> SpaceScope:
    """Return the spaces that these names select together, each once.

    A name that selects nothing is refused, unless the actor may create that space; without `refuse` it is left out.
    """
    tops = {name: name if name == "/" else space_names.require_query_name(name.removesuffix("/")) for name in names}
    exact = is_owner(actor) and not any(name.endswith("/") for name in names)
    known = spaces.find_by_names(tx, tuple(tops.values())) if exact else spaces.get_all(tx)
    allowed = readable(tx, actor, known)
    scope: dict[str, Space] = {}
    for name, top in tops.items():
        selected = {id_: space for id_, space in allowed.items() if _selects(name, top, space)}
        if refuse and not selected and name != "/":
            require_create(tx, actor, known, top)
        scope |= selected
    return scope


def note_other_spaces(tx: Reading, actor: Actor) -> list[str]:
    """Return a note for somebody who may read none of the spaces that are searched by default, but others."""
    readable = without_proposals(select(tx, actor))
    names = sorted(space.name for space in readable.values() if not space_names.is_system(space.name))
    if is_owner(actor) or not names:
        return []
    listed = ", ".join(names[:_MAX_NAMED_SPACES]) + (", ..." if len(names) > _MAX_NAMED_SPACES else "")
    return [f"no space that is searched by default may be read by {actor.principal}; name one: {listed}, or / for all"]


class LazyScope(Mapping[str, Space]):
    """A scope that is looked up at first use."""

    def __init__(self, look_up: Callable[[], SpaceScope]) -> None:
        """Keep the function that looks the spaces up."""
        self._look_up = look_up
        self._scope: SpaceScope | None = None

    def _spaces(self) -> SpaceScope:
        if self._scope is None:
            self._scope = self._look_up()
        return self._scope

    def __getitem__(self, id_: str) -> Space:
        return self._spaces()[id_]

    def __iter__(self) -> Iterator[str]:
        return iter(self._spaces())

    def __len__(self) -> int:
        return len(self._spaces())


def _selects(name: str, top: str, space: Space) -> bool:
    if name == "/":
        return True
    return space_names.is_within(space.name, top) if name.endswith("/") else space.name == top


def count_use(tx: Transaction, actor: Actor, action: LimitedAction) -> None:
    """Count one use of the action in the transaction of the use itself; raise TooMany above the limit."""
    if is_owner(actor):
        return
    limit = rate_counts.limit_for(tx, actor.principal, action)
    if limit.per_minute is None:
        # Nothing is counted, so that the writes of one principal do not wait for each other.
        return
    wait = rate_counts.count(tx, actor.principal, action, limit.per_minute)
    if wait:
        seconds = math.ceil(wait)
        raise TooMany(
            f"{actor.principal} may {action} {limit.per_minute} times a minute",
            retry_after=seconds,
            fix=f"try again in {seconds} seconds",
        )


class NotCounted(Exception):
    """The recalls of this principal are limited, and this one is not counted yet."""


def require_counted(tx: Reading, actor: Actor) -> None:
    """Raise NotCounted if the recalls of an actor are limited: others writes nothing."""
    if not is_owner(actor) and rate_counts.limit_for(tx, actor.principal, rate_counts.RECALL).per_minute is not None:
        raise NotCounted


def count_recall(engines: Engines, actor: Actor) -> None:
    """Count one recall; raise TooMany above the limit. A count that is lost in a power cut does no harm."""
    engines.db.write(lambda tx: count_use(tx, actor, rate_counts.RECALL), durable=False)

"""Who may do what where: the owner of the home everything, others what was granted, by a key at most its limits.

Every read and write of every flow asks here which spaces it may reach, in the same transaction in which it uses them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from commonbook.errors import NotAllowed
from commonbook.model.spaces import ADMIN, FILESYSTEM, LOCAL_OWNER, READER, ROLES, WRITER, Actor, Space, SpaceScope
from commonbook.ports.database import Reading
from commonbook.tables import api_keys, grants

_OWNERS: Final = frozenset({LOCAL_OWNER, FILESYSTEM})


def is_owner(actor: Actor) -> bool:
    """Tell whether the actor may do everything here: whoever has the home, as long as no key limits it."""
    return actor.principal in _OWNERS and actor.key_id is None


def require_owner(actor: Actor, what: str) -> None:
    """Raise NotAllowed unless the actor may do what concerns the home as a whole."""
    if not is_owner(actor):
        raise NotAllowed(f"{actor.principal} may not {what}", fix="only the owner of the home may, on its own machine")


class PermissionSnapshot:
    """What an actor may do: what is granted to it and what its key allows, asked for at once, and waited for later.

    The owner of the home needs nothing granted.
    """

    def __init__(self, tx: Reading, actor: Actor) -> None:
        """Ask."""
        self._tx, self._actor = tx, actor
        self._own: set[str] = set()
        """The spaces on which the story itself has changed what the actor may do."""
        self._ask()
        self._at_first = self._granted

    def _ask(self) -> None:
        principal, key_id = self._actor
        self._granted = None if principal in _OWNERS else grants.roles_deferred(self._tx, principal)
        self._key = None if key_id is None else api_keys.find_deferred(self._tx, key_id)

    def ask_again(self, space: str) -> None:
        """Ask anew, since the story itself has changed what the actor may do on a space."""
        self._own.add(space)
        self._ask()

    def now(self) -> PermissionSnapshot:
        """Ask what the same actor may do now."""
        return PermissionSnapshot(self._tx, self._actor)

    def roles(self, spaces: SpaceScope) -> Mapping[str, str]:
        """Return the role of the actor on each space where it has one."""
        held = (
            dict.fromkeys(spaces, ADMIN) if self._granted is None else grants.effective_roles(self._granted(), spaces)
        )
        if self._key is None:
            return held
        key = self._key()
        if key is None or key.principal != self._actor.principal or not api_keys.is_valid(key, self._tx):
            return {}
        if key.limits is None:
            return held
        limits = grants.effective_roles(key.limits, spaces)
        return {space: min(held[space], limits[space], key=ROLES.index) for space in held.keys() & limits.keys()}

    def with_role(self, role: str, spaces: SpaceScope) -> SpaceScope:
        """Return those of the spaces on which the actor has this role or a higher one."""
        if self._granted is None and self._key is None:
            return spaces
        allowed = grants.spaces_with_role(role, self.roles(spaces))
        return {id_: space for id_, space in spaces.items() if id_ in allowed}

    def may_read(self, space: Space, spaces: SpaceScope) -> bool:
        """Tell whether the actor may read a space."""
        return space.id in self.with_role(READER, with_ancestors(spaces, [space]))

    def is_less_than(self, before: PermissionSnapshot) -> bool:
        """Tell whether somebody else has taken something away since."""
        granted = self._granted() if self._granted else ()
        was = before._at_first() if before._at_first else ()
        was = [(space, role) for space, role in was if space not in before._own]
        key, key_was = (held._key() if held._key else None for held in (self, before))  # noqa: SLF001 - of its own
        return not set(was) <= set(granted) or key != key_was


def with_role(role: str, tx: Reading, actor: Actor, spaces: SpaceScope) -> SpaceScope:
    """Return those of the spaces on which the actor has this role or a higher one."""
    return spaces if is_owner(actor) else PermissionSnapshot(tx, actor).with_role(role, spaces)


def readable(tx: Reading, actor: Actor, spaces: SpaceScope) -> SpaceScope:
    """Return those of the spaces that the actor may read."""
    return with_role(READER, tx, actor, spaces)


def with_ancestors(spaces: SpaceScope, wanted: Iterable[Space]) -> SpaceScope:
    """Return some of the spaces and those that they lie in: no others decide about a right on them."""
    names: set[str] = set()
    for space in wanted:
        parts = space.name.split("/")
        names.update("/".join(parts[:end]) for end in range(1, len(parts) + 1))
    return {id_: space for id_, space in spaces.items() if space.name in names}


def writable(tx: Reading, actor: Actor, spaces: SpaceScope) -> SpaceScope:
    """Return those of the spaces that the actor may write to."""
    return with_role(WRITER, tx, actor, spaces)


def administered(tx: Reading, actor: Actor, spaces: SpaceScope) -> SpaceScope:
    """Return those of the spaces whose grants the actor decides about."""
    return with_role(ADMIN, tx, actor, spaces)


def require_admin(tx: Reading, actor: Actor, spaces: SpaceScope, name: str) -> Space:
    """Return the space of that name, or raise the one answer for a space that one may not administer."""
    for space in administered(tx, actor, spaces).values():
        if space.name == name:
            return space
    raise refusal(actor, name)


def require_create(tx: Reading, actor: Actor, spaces: SpaceScope, name: str) -> None:
    """Raise NotAllowed unless the actor may make a space of that name: its owner, or an admin of one above it."""
    if is_owner(actor):
        return
    above = {space.name for space in administered(tx, actor, spaces).values()}
    parts = name.split("/")
    if not any("/".join(parts[:end]) in above for end in range(1, len(parts))):
        raise refusal(actor, name)


def refusal(actor: Actor, name: str) -> NotAllowed:
    """Return the one answer for a space that one may not use, whether it exists or not."""
    return NotAllowed(f"{actor.principal} may not use the space {name!r}", fix="ask an admin of that space for a grant")

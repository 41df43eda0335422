"""The default space of an actor: of the owner by its project, of others by their API key. Reading records nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from commonbook.access import permissions
from commonbook.admin import project_spaces
from commonbook.errors import NotAllowed
from commonbook.model.spaces import PERSONAL
from commonbook.runtime.lazy_modules import LazyModule
from commonbook.settings import default_space as settings_space
from commonbook.tables import spaces

if TYPE_CHECKING:
    from commonbook.model.spaces import Actor
    from commonbook.ports.engines import Engines
    from commonbook.settings.settings import Settings
    from commonbook.tables import api_keys
    from commonbook.text import space_names
else:
    # The owner needs no key.
    api_keys = LazyModule("commonbook.tables.api_keys")
    space_names = LazyModule("commonbook.text.space_names")

_MAX_NAMES: Final = 20


def space_to_read(engines: Engines, settings: Settings, actor: Actor) -> str:
    """Return the space of a reading call that names none."""
    if permissions.is_owner(actor) and actor.key_id is not None:
        return settings.space or _space_of_key(engines, actor) or PERSONAL
    if not permissions.is_owner(actor):
        return settings.space or _space_of_key(engines, actor) or settings_space.default_space(settings)
    named, repository = settings_space.chosen_space(settings)
    return named or (project_spaces.find(engines, repository) if repository else PERSONAL)


def space_to_write(engines: Engines, settings: Settings, actor: Actor) -> str:
    """Return the space of a writing call that names none; the space of a repository is recorded as its own.

    Where this process runs says nothing about a caller with a key. If the key has no default space, the owner writes to
    `personal`, and for others it is NotAllowed.
    """
    if permissions.is_owner(actor) and actor.key_id is not None:
        return settings.space or _space_of_key(engines, actor) or PERSONAL
    if not permissions.is_owner(actor):
        space = settings.space or _space_of_key(engines, actor)
        if space is None:
            raise _no_space(engines, actor)
        return space
    named, repository = settings_space.chosen_space(settings)
    return named or (project_spaces.find_or_claim(engines, repository) if repository else PERSONAL)


def _space_of_key(engines: Engines, actor: Actor) -> str | None:
    if actor.key_id is None:
        return None
    with engines.db.reading() as tx:
        key = api_keys.find(tx, actor.key_id)
        space = spaces.get_all(tx).get(key.default_space) if key and key.default_space else None
    return space.name if space else None


def _no_space(engines: Engines, actor: Actor) -> NotAllowed:
    with engines.db.reading() as tx:
        writable = permissions.writable(tx, actor, spaces.get_all(tx))
    names = sorted(space.name for space in writable.values() if not space_names.is_system(space.name))
    listed = ", ".join(names[:_MAX_NAMES]) + (", ..." if len(names) > _MAX_NAMES else "")
    return NotAllowed(
        f"{actor.principal} has no default space, so that it may not write without naming a space",
        fix=f"name one of those that it may write to: {listed}" if names else "ask the owner of the home for a grant",
    )

"""The default space of an actor: of the owner by its project, of others by their API key. Reading records nothing.

A git repository has the space `projects/<name>`. Several repositories can have one name: the first that writes to
`projects/<name>` has it, which the book records, and another one gets a longer name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from commonbook.core.access import permissions
from commonbook.core.settings import project_files
from commonbook.core.settings.project_files import PROJECTS
from commonbook.core.tables import api_keys, home, spaces
from commonbook.core.text import space_names
from commonbook.errors import NotAllowed
from commonbook.values.spaces import PERSONAL

if TYPE_CHECKING:
    from collections.abc import Mapping

    from commonbook.core.settings.git_repository import Repository
    from commonbook.core.settings.settings import Settings
    from commonbook.ports.database import Transaction
    from commonbook.ports.engines import Engines
    from commonbook.values.spaces import Actor

_MAX_NAMES: Final = 20


def space_to_read(engines: Engines, settings: Settings, actor: Actor) -> str:
    """Return the space of a reading call that names none."""
    if permissions.is_owner(actor) and actor.key_id is not None:
        return settings.space or _space_of_key(engines, actor) or PERSONAL
    if not permissions.is_owner(actor):
        return settings.space or _space_of_key(engines, actor) or project_files.default_space(settings)
    named, repository = project_files.chosen_space(settings)
    return named or (space_of_repository(engines, repository) if repository else PERSONAL)


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
    named, repository = project_files.chosen_space(settings)
    return named or (claim_space_of_repository(engines, repository) if repository else PERSONAL)


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


def space_of_repository(engines: Engines, repository: Repository) -> str:
    """Return the space of a repository, or the one that it would get by a write."""
    with engines.db.reading() as tx:
        claims = home.project_spaces(tx)
        if not claims:
            return _candidate(repository.name)
        taken = {space.name for space in spaces.get_all(tx).values()}
    return _own(claims, repository) or _free(claims, taken, repository)


def claim_space_of_repository(engines: Engines, repository: Repository) -> str:
    """Return the space of a repository, which is recorded as its own."""
    with engines.db.reading() as tx:
        name = _own(home.project_spaces(tx), repository, identity=repository.identities[0])
    return name or engines.db.write(lambda tx: _claim(tx, repository))


def _claim(tx: Transaction, repository: Repository) -> str:
    """Record the space of a repository, and return its name; by its origin, once it has one."""
    claims, identity = home.project_spaces(tx), repository.identities[0]
    name = _own(claims, repository)
    if name is not None:
        home.claim_project_space(tx, name, identity, instead_of=claims[name])
        return name
    spaces.lock(tx)
    name = _free(home.project_spaces(tx), {space.name for space in spaces.get_all(tx).values()}, repository)
    home.claim_project_space(tx, name, identity)
    return name


def _candidates(repository: Repository) -> list[str]:
    return [_candidate(name) for name in (repository.name, *repository.longer_names)]


def _candidate(name: str) -> str:
    return f"{PROJECTS}/{name}"


def _own(claims: Mapping[str, str], repository: Repository, *, identity: str | None = None) -> str | None:
    """Return the space that was recorded for a repository, by its origin or, before it had one, by its place."""
    identities = repository.identities if identity is None else (identity,)
    return next((name for name in _candidates(repository) if claims.get(name) in identities), None)


def _free(claims: Mapping[str, str], taken: set[str], repository: Repository) -> str:
    """Return the first name that no other repository has; a longer name is not one of a space that is there already.

    The shortest may be: it is the space that the repository had before there were records.
    """
    first, *longer, last = _candidates(repository)
    if first not in claims:
        return first
    return next((name for name in longer if name not in claims and name not in taken), last)

"""The spaces of git repositories: which repository has `projects/<name>`.

Several repositories can have one name. The first that writes to `projects/<name>` has it, which the book records;
another one gets a longer name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from commonbook.settings.default_space import PROJECTS
from commonbook.tables import home, spaces

if TYPE_CHECKING:
    from collections.abc import Mapping

    from commonbook.ports.database import Transaction
    from commonbook.ports.engines import Engines
    from commonbook.settings.git_repository import Repository


def find(engines: Engines, repository: Repository) -> str:
    """Return the space of a repository, or the one that it would get by a write."""
    with engines.db.reading() as tx:
        claims = home.project_spaces(tx)
        if not claims:
            return _candidate(repository.name)
        taken = {space.name for space in spaces.get_all(tx).values()}
    return _own(claims, repository) or _free(claims, taken, repository)


def find_or_claim(engines: Engines, repository: Repository) -> str:
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
    """Return the first name that no other repository has; a longer name is not that of a space that is there already.

    The shortest may be: it is the space that the repository had before there were records.
    """
    first, *longer, last = _candidates(repository)
    if first not in claims:
        return first
    return next((name for name in longer if name not in claims and name not in taken), last)

"""Decides which spaces an agent on this machine reaches when it runs in a working directory.

A principal that is named on the command line reaches its grants, and of all projects only the one in whose folder the
process runs: text that an agent reads in one project, and obeys, opens no other.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from commonbook.errors import NotAllowed, SpaceExists
from commonbook.model.spaces import PERSONAL, READER
from commonbook.settings.default_space import PROJECTS

if TYPE_CHECKING:
    from commonbook.book.book import Book


def confined_book(owner: Book, principal: str, *, changes: bool, space: str | None) -> Book:
    """Return the book as a principal has it, within its spaces; `space` stands for that of the working directory.

    Before a change, the space of the project is made, if the principal may write in projects.
    """
    space = space or (owner.space_for_writing() if changes else owner.default_space)
    grants = _valid_grants(owner, principal)
    if not grants:
        raise NotAllowed(
            f"{principal} reaches nothing in this book yet",
            fix=f"let a person run `commonbook install {principal.removeprefix('agent:')}`, or"
            f" `commonbook grant add {principal} {PERSONAL} writer`",
        )
    if changes and grants.get(PROJECTS, READER) != READER:
        _ensure_project(owner, space)
    within = (*(name for name in grants if name != PROJECTS), space, PERSONAL)
    return owner.acting_as(principal, space=space, within=dict.fromkeys(within))


def _valid_grants(owner: Book, principal: str) -> dict[str, str]:
    """Return the roles of a principal by the names of spaces, without grants that have expired."""
    now = datetime.now(UTC)
    return {
        grant.space.name: grant.role
        for grant in owner.grants()
        if grant.principal == principal and (grant.expires is None or grant.expires > now)
    }


def _ensure_project(owner: Book, space: str) -> None:
    """Make the space of a project at its first write: an agent that may write in projects may not make them."""
    if space.startswith(f"{PROJECTS}/") and space not in {known.name for known in owner.spaces()}:
        # Another process of the agent may be first.
        with suppress(SpaceExists):
            owner.create_space(space)

"""Grants: which principal may read, write or administer a space and everything below it, and until when."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from commonbook.model.ids import format_time, parse_time
from commonbook.model.spaces import ROLES, Grant, SpaceScope
from commonbook.ports.database import Reading, Transaction


class _GrantRow(NamedTuple):
    """A row of the table `space_grant`: the fields are the columns, in the order of every SELECT."""

    space: str
    principal: str
    role: str
    expires: str | None
    granted_by: str
    granted_at: str


_COLUMNS: Final = ", ".join(_GrantRow._fields)


def put(tx: Transaction, grant: Grant) -> None:
    """Let a principal have a role on a space; the newest grant counts."""
    tx.run(
        f"INSERT INTO space_grant ({_COLUMNS})"
        " VALUES (:space, :principal, :role, :expires, :granted_by, :granted_at)"
        " ON CONFLICT (space, principal) DO UPDATE SET role = excluded.role, expires = excluded.expires,"
        " granted_by = excluded.granted_by, granted_at = excluded.granted_at",
        space=grant.space.id,
        principal=grant.principal,
        role=grant.role,
        expires=format_time(grant.expires) if grant.expires else None,
        granted_by=grant.granted_by,
        granted_at=format_time(grant.granted_at),
    )


def remove(tx: Transaction, space: str, principal: str) -> bool:
    """Take a principal's grant on a space away; tell whether there was one."""
    return bool(
        tx.run(
            "DELETE FROM space_grant WHERE space = :space AND principal = :principal", space=space, principal=principal
        )
    )


def on_spaces(tx: Reading, spaces: SpaceScope) -> list[Grant]:
    """Return the grants on these spaces, expired ones too, by the names of space and principal."""
    if not spaces:
        return []
    rows = tx.rows(f"SELECT {_COLUMNS} FROM space_grant WHERE space IN :spaces", spaces=tuple(spaces))
    found = [_grant(row, spaces) for row in map(_GrantRow._make, rows)]
    return sorted(found, key=lambda one: (one.space.name, one.principal))


def roles_deferred(tx: Reading, principal: str) -> Callable[[], list[tuple[str, str]]]:
    """Ask which roles were granted to a principal on which spaces, and return what waits for them."""
    rows = tx.defer(
        "SELECT space, role FROM space_grant WHERE principal = :principal AND (expires IS NULL OR expires > :now)",
        principal=principal,
        now=format_time(tx.now),
    )
    return lambda: [(space, role) for space, role in rows()]


def effective_roles(given: Sequence[tuple[str, str]], spaces: SpaceScope) -> dict[str, str]:
    """Return the highest role on each space of those given on it (by its id) and on the spaces above it."""
    by_name = {spaces[space].name: role for space, role in given if space in spaces}
    found = {}
    for space in spaces.values() if by_name else ():
        parts = space.name.split("/")
        above = ("/".join(parts[:end]) for end in range(1, len(parts) + 1))
        held = [by_name[name] for name in above if name in by_name]
        if held:
            found[space.id] = max(held, key=ROLES.index)
    return found


def spaces_with_role(role: str, held: Mapping[str, str]) -> frozenset[str]:
    """Return the spaces on which the role held is this one or a higher one."""
    return frozenset(space for space, own in held.items() if ROLES.index(own) >= ROLES.index(role))


def _grant(row: _GrantRow, spaces: SpaceScope) -> Grant:
    return Grant(
        space=spaces[row.space],
        principal=row.principal,
        role=row.role,
        expires=parse_time(row.expires) if row.expires else None,
        granted_by=row.granted_by,
        granted_at=parse_time(row.granted_at),
    )

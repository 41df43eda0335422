"""The table `space_grant`: a row gives a principal a role on a space and all spaces below it, with an optional expiry.

There is one row for a space and principal. The role on a space is the highest of those granted on it and above it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from commonbook.ports.database import Reading, Transaction
from commonbook.values.ids import format_time, parse_time
from commonbook.values.spaces import ROLES, Grant, Role, SpaceScope


class _GrantRow(NamedTuple):
    """A row of the table `space_grant`: the fields are the columns, in the order of every SELECT."""

    space: str
    principal: str
    role: Role
    expires: str | None
    granted_by: str
    granted_at: str


_COLUMNS: Final = ", ".join(_GrantRow._fields)


def put(tx: Transaction, grant: Grant) -> None:
    """Store a grant, in place of an earlier one of the principal on the space."""
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
    """Delete a principal's grant on a space; tell whether there was one."""
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
    grants = [_grant(row, spaces) for row in map(_GrantRow._make, rows)]
    return sorted(grants, key=lambda grant: (grant.space.name, grant.principal))


def principals(tx: Reading) -> frozenset[str]:
    """Return all principals that have a grant on some space."""
    return frozenset(principal for (principal,) in tx.rows("SELECT DISTINCT principal FROM space_grant"))


def roles(tx: Reading, principal: str) -> list[tuple[str, str]]:
    """Return a principal's roles (space id, role) that have not expired."""
    rows = tx.rows(
        "SELECT space, role FROM space_grant WHERE principal = :principal AND (expires IS NULL OR expires > :now)",
        principal=principal,
        now=format_time(tx.now),
    )
    return [(space, role) for space, role in rows]


def effective_roles(given: Sequence[tuple[str, str]], spaces: SpaceScope) -> dict[str, str]:
    """Return the highest role on each space, by its id, of those given on it and on the spaces above it."""
    by_name = {spaces[space].name: role for space, role in given if space in spaces}
    effective = {}
    for space in spaces.values() if by_name else ():
        parts = space.name.split("/")
        above = ("/".join(parts[:end]) for end in range(1, len(parts) + 1))
        roles = [by_name[name] for name in above if name in by_name]
        if roles:
            effective[space.id] = max(roles, key=ROLES.index)
    return effective


def spaces_with_role(role: str, roles: Mapping[str, str]) -> frozenset[str]:
    """Return the spaces on which the given roles, by space id, are this one or a higher one."""
    return frozenset(space for space, own in roles.items() if ROLES.index(own) >= ROLES.index(role))


def _grant(row: _GrantRow, spaces: SpaceScope) -> Grant:
    return Grant(
        space=spaces[row.space],
        principal=row.principal,
        role=row.role,
        expires=parse_time(row.expires) if row.expires else None,
        granted_by=row.granted_by,
        granted_at=parse_time(row.granted_at),
    )

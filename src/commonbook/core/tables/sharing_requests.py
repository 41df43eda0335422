"""The table `request`: a row asks to share a memory into a space, which a person there approves or rejects.

A request has one of the states in `STATES` and is decided once. At most one request for a root in the name of a
principal waits in a space. A proposed memory has a row once it is decided: until then its space tells that it waits.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from commonbook.ports.database import Reading, Transaction
from commonbook.values.ids import format_time, parse_time
from commonbook.values.memory import Refresh
from commonbook.values.sharing import APPROVED, REJECTED, WAITING, WITHDRAWN, RequestPurpose, RequestState, ShareRequest
from commonbook.values.spaces import SpaceScope

STATES: Final = (WAITING, APPROVED, REJECTED, WITHDRAWN)


class _RequestRow(NamedTuple):
    """A row of the table `request`: the fields are the columns, in the order of every SELECT."""

    space: str
    id: str
    memory: str
    root: str
    rule: str | None
    refresh: Refresh
    name: str
    asked_by: str
    asked_at: str
    state: RequestState
    decided_by: str | None
    decided_at: str | None
    note: str
    copy: str | None
    purpose: RequestPurpose


_COLUMNS: Final = ", ".join(_RequestRow._fields)


def add(tx: Transaction, request: ShareRequest, root: str) -> bool:
    """Store a request; return False if the same one waits for a decision already."""
    added = tx.run(
        f"INSERT INTO request ({_COLUMNS}) VALUES (:space, :id, :memory, :root, :rule, :refresh, :name, :asked_by,"
        " :asked_at, 'waiting', NULL, NULL, '', NULL, 'share')"
        " ON CONFLICT (space, root, name) WHERE state = 'waiting' DO NOTHING",
        space=request.space_id,
        id=request.id,
        memory=request.memory,
        root=root,
        rule=request.rule,
        refresh=request.refresh,
        name=request.on_behalf_of,
        asked_by=request.requested_by,
        asked_at=format_time(request.requested_at),
    )
    return bool(added)


def waiting_for(tx: Reading, spaces: SpaceScope, root: str, name: str) -> ShareRequest | None:
    """Return the request that waits in one of these spaces for a root in the name of a principal, or None."""
    row = tx.row(
        f"SELECT {_COLUMNS} FROM request WHERE space IN :spaces AND root = :root AND name = :name"
        " AND state = 'waiting'",
        spaces=tuple(spaces),
        root=root,
        name=name,
    )
    return _request(_RequestRow._make(row), spaces) if row else None


def find(tx: Reading, spaces: SpaceScope, request_id: str) -> ShareRequest | None:
    """Return a request by its id, or None."""
    columns = tx.row(f"SELECT {_COLUMNS} FROM request WHERE id = :id", id=request_id)
    row = _RequestRow._make(columns) if columns else None
    return _request(row, spaces) if row and row.space in spaces else None


def into_spaces(tx: Reading, spaces: SpaceScope, *, decided: bool) -> list[ShareRequest]:
    """Return the waiting requests to share into these spaces, with `decided` all requests, the oldest first."""
    if not spaces:
        return []
    rows = tx.rows(
        f"SELECT {_COLUMNS} FROM request WHERE space IN :spaces AND state IN :states ORDER BY id",
        spaces=tuple(spaces),
        states=STATES if decided else (WAITING,),
    )
    return [_request(row, spaces) for row in map(_RequestRow._make, rows)]


def add_decided_proposal(tx: Transaction, request: ShareRequest) -> None:
    """Store the decision on a proposed memory, in place of an earlier one if the memory was proposed again."""
    tx.run(
        f"INSERT INTO request ({_COLUMNS}) VALUES (:space, :id, :memory, :memory, NULL, :refresh, :name, :asked_by,"
        " :asked_at, :state, :decided_by, :decided_at, :note, NULL, 'proposal')"
        " ON CONFLICT (space, id) DO UPDATE SET state = excluded.state, decided_by = excluded.decided_by,"
        " decided_at = excluded.decided_at, note = excluded.note",
        space=request.space_id,
        id=request.id,
        memory=request.memory,
        refresh=request.refresh,
        name=request.on_behalf_of,
        asked_by=request.requested_by,
        asked_at=format_time(request.requested_at),
        state=request.state,
        decided_by=request.decided_by,
        decided_at=format_time(tx.now),
        note=request.note,
    )


def requested_by(tx: Reading, spaces: SpaceScope, principal: str, *, decided: bool) -> list[ShareRequest]:
    """Return a principal's waiting requests, with `decided` all, without those of its rules; the oldest is first."""
    rows = tx.rows(
        f"SELECT {_COLUMNS} FROM request WHERE asked_by = :principal AND rule IS NULL AND state IN :states ORDER BY id",
        principal=principal,
        states=STATES if decided else (WAITING,),
    )
    return [_request(row, spaces) for row in map(_RequestRow._make, rows) if row.space in spaces]


def decide(tx: Transaction, request: ShareRequest, state: str, *, by: str, note: str) -> bool:
    """Record the decision on a request; return False if it was decided before."""
    return bool(
        tx.run(
            "UPDATE request SET state = :state, decided_by = :by, decided_at = :now, note = :note"
            " WHERE space = :space AND id = :id AND state = 'waiting'",
            state=state,
            by=by,
            now=format_time(tx.now),
            note=note,
            space=request.space_id,
            id=request.id,
        )
    )


def note_copy(tx: Transaction, request: ShareRequest, copy: str) -> None:
    """Record the copy that an approval made, or found."""
    tx.run(
        "UPDATE request SET copy = :copy WHERE space = :space AND id = :id",
        copy=copy,
        space=request.space_id,
        id=request.id,
    )


def withdraw(tx: Transaction, space: str, rule: str, *, by: str) -> int:
    """Withdraw the waiting requests of a rule; return how many."""
    return tx.run(
        "UPDATE request SET state = 'withdrawn', decided_by = :by, decided_at = :now"
        " WHERE space = :space AND rule = :rule AND state = 'waiting'",
        by=by,
        now=format_time(tx.now),
        space=space,
        rule=rule,
    )


def _request(row: _RequestRow, spaces: SpaceScope) -> ShareRequest:
    return ShareRequest(
        space_id=row.space,
        space=spaces[row.space].name,
        id=row.id,
        memory=row.memory,
        rule=row.rule,
        refresh=row.refresh,
        on_behalf_of=row.name,
        requested_by=row.asked_by,
        requested_at=parse_time(row.asked_at),
        state=row.state,
        decided_by=row.decided_by,
        decided_at=parse_time(row.decided_at) if row.decided_at else None,
        note=row.note,
        copy=row.copy,
        purpose=row.purpose,
    )

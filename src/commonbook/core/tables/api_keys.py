"""The tables `api_key` and `browser_session`.

A row of `api_key` is a key by which a client proves to be a principal. A row of `browser_session` is a link that signs
a browser in by a key, or the session of a browser that did.

Only hashes are stored: of the secret that it was made with, of a login code, of the nonce of the client that has
exchanged the code, and of the secret that this client got.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Final, NamedTuple

from commonbook.ports.database import Reading, Transaction
from commonbook.values.ids import format_time, parse_time
from commonbook.values.spaces import ApiKey


class _KeyRow(NamedTuple):
    """A row of the table `api_key`: the fields are the columns, in the order of every SELECT."""

    id: str
    principal: str
    label: str
    limits: str | None
    created: str
    created_by: str
    expires: str | None
    revoked: str | None
    default_space: str | None


_COLUMNS: Final = ", ".join(_KeyRow._fields)

LINK: Final = "link"
SESSION: Final = "session"


def add(tx: Transaction, key: ApiKey, hash_: str) -> None:
    """Store a key with the hash of its secret."""
    tx.run(
        f"INSERT INTO api_key ({_COLUMNS}, hash)"
        " VALUES (:id, :principal, :label, :limits, :created, :created_by, :expires, NULL, :default_space, :hash)",
        id=key.id,
        principal=key.principal,
        label=key.label,
        limits=None if key.limits is None else json.dumps(key.limits),
        created=format_time(key.created),
        created_by=key.created_by,
        expires=format_time(key.expires) if key.expires else None,
        default_space=key.default_space,
        hash=hash_,
    )


def find_by_hash(tx: Reading, hash_: str) -> ApiKey | None:
    """Return the key that has a secret with this hash, or None."""
    row = tx.row(f"SELECT {_COLUMNS} FROM api_key WHERE hash = :hash OR login_hash = :hash", hash=hash_)
    return _key(_KeyRow._make(row)) if row else None


def find(tx: Reading, key_id: str) -> ApiKey | None:
    """Return a key by its id, or None."""
    row = tx.row(f"SELECT {_COLUMNS} FROM api_key WHERE id = :id", id=key_id)
    return _key(_KeyRow._make(row)) if row else None


def get_all(tx: Reading) -> list[ApiKey]:
    """Return all keys, revoked and expired ones too, oldest first."""
    rows = tx.rows(f"SELECT {_COLUMNS} FROM api_key ORDER BY created, id")
    return [_key(row) for row in map(_KeyRow._make, rows)]


def revoke(tx: Transaction, key_id: str) -> None:
    """Mark a key as revoked; a revoked key keeps its time."""
    tx.run("UPDATE api_key SET revoked = :now WHERE id = :id AND revoked IS NULL", now=format_time(tx.now), id=key_id)


def set_login_code(tx: Transaction, key_id: str, code_hash: str, *, until: datetime) -> None:
    """Store the hash of a login code, in place of an earlier one of the key."""
    tx.run(
        "UPDATE api_key SET login_code = :code, login_until = :until, login_nonce = NULL WHERE id = :id",
        code=code_hash,
        until=format_time(until),
        id=key_id,
    )


def find_by_login_code(tx: Reading, code_hash: str, nonce_hash: str) -> tuple[ApiKey, bool] | None:
    """Return the key whose login code has this hash, and whether the code was exchanged with this nonce.

    None if the code is unknown, has expired, or was exchanged with another nonce.
    """
    row = tx.row(
        f"SELECT {_COLUMNS}, login_nonce FROM api_key WHERE login_code = :code AND login_until > :now"
        " AND (login_nonce IS NULL OR login_nonce = :nonce)",
        code=code_hash,
        now=format_time(tx.now),
        nonce=nonce_hash,
    )
    if row is None:
        return None
    *columns, nonce = row
    return _key(_KeyRow._make(columns)), nonce is not None


def use_login_code(tx: Transaction, key_id: str, code_hash: str, nonce_hash: str, hash_: str) -> bool:
    """Store the nonce and the secret that a login code was exchanged for; False if another has exchanged it."""
    return bool(
        tx.run(
            "UPDATE api_key SET login_nonce = :nonce, login_hash = :hash WHERE id = :id AND login_code = :code"
            " AND (login_nonce IS NULL OR login_nonce = :nonce)",
            hash=hash_,
            id=key_id,
            code=code_hash,
            nonce=nonce_hash,
        )
    )


def is_valid(key: ApiKey, tx: Reading) -> bool:
    """Tell whether a key is neither revoked nor expired."""
    return key.revoked is None and (key.expires is None or key.expires > tx.now)


def _key(row: _KeyRow) -> ApiKey:
    limits = None if row.limits is None else tuple((space, role) for space, role in json.loads(row.limits))
    return ApiKey(
        id=row.id,
        principal=row.principal,
        label=row.label,
        limits=limits,
        created=parse_time(row.created),
        created_by=row.created_by,
        expires=parse_time(row.expires) if row.expires else None,
        revoked=parse_time(row.revoked) if row.revoked else None,
        default_space=row.default_space,
    )


# --- browser sessions


def add_browser_session(tx: Transaction, *, kind: str, hash_: str, key_id: str, expires: datetime) -> None:
    """Store a link or a session, and remove those that have expired."""
    tx.run("DELETE FROM browser_session WHERE expires <= :now", now=format_time(tx.now))
    tx.run(
        "INSERT INTO browser_session (hash, kind, key_id, expires) VALUES (:hash, :kind, :key_id, :expires)",
        hash=hash_,
        kind=kind,
        key_id=key_id,
        expires=format_time(expires),
    )


def find_browser_session(tx: Reading, *, kind: str, hash_: str) -> tuple[str, datetime] | None:
    """Return the id of the key of a link or a session, and when it expires; None if there is none, or it has."""
    row = tx.row(
        "SELECT key_id, expires FROM browser_session WHERE hash = :hash AND kind = :kind AND expires > :now",
        hash=hash_,
        kind=kind,
        now=format_time(tx.now),
    )
    if row is None:
        return None
    key_id, expires = row
    return key_id, parse_time(expires)


def remove_browser_session(tx: Transaction, *, kind: str, hash_: str) -> bool:
    """Remove a link or a session; False if another transaction has removed it."""
    return bool(tx.run("DELETE FROM browser_session WHERE hash = :hash AND kind = :kind", hash=hash_, kind=kind))

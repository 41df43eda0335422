"""Shared by the tests of the log: hash chains of two spaces in a bare database, and a second encoder of entries."""

from __future__ import annotations

import base64
import hashlib
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from commonbook.core.log import chain, verify
from commonbook.engines.disk.signing_keys import KeyFiles
from commonbook.engines.sqlite.database import _expand_lists
from commonbook.errors import HomeDamaged
from commonbook.ports.database import Transaction
from commonbook.values.reports import Change, Finding, LogReport

COLUMNS = ("space", "seq", "time", "actor", "action", "subjects", "payload", "previous", "hash", "signature", "key_id")
TABLES = """
CREATE TABLE log_entry (
  space TEXT NOT NULL, seq INTEGER NOT NULL, time TEXT NOT NULL, actor TEXT NOT NULL, action TEXT NOT NULL,
  subjects TEXT NOT NULL, payload TEXT NOT NULL, previous TEXT NOT NULL, hash TEXT NOT NULL,
  signature TEXT NOT NULL, key_id TEXT NOT NULL, PRIMARY KEY (space, seq));
CREATE TABLE log_head (
  space TEXT NOT NULL PRIMARY KEY, seq INTEGER NOT NULL, hash TEXT NOT NULL, signature TEXT NOT NULL,
  key_id TEXT NOT NULL);
"""
ONE, TWO = "space-one", "space-two"
LENGTH = 6
SEED = bytes(range(32))


class Sqlite:
    """The part of a Transaction that the log needs."""

    compresses_texts = True

    def __init__(self, path: Path, tables: str = TABLES) -> None:
        self.connection = sqlite3.connect(path, isolation_level=None)
        self.connection.execute("PRAGMA synchronous = OFF")
        self.connection.executescript(tables)
        self.now = datetime(2026, 11, 15, 20, 18, 24, 123456, tzinfo=UTC)
        self.recorded: list[Change] = []
        self.touched: dict[str, str | None] = {}
        self.commit_check: Callable[[Transaction], bool] | None = None
        self.committed: object | None = None

    def rows(self, sql: str, /, **params: object) -> list[tuple[Any, ...]]:
        try:
            return self.connection.execute(*_expand_lists(sql, params)).fetchall()
        except sqlite3.OperationalError as error:
            raise HomeDamaged(str(error)) from error

    def row(self, sql: str, /, **params: object) -> tuple[Any, ...] | None:
        return next(iter(self.rows(sql, **params)), None)

    def rows_many(self, sql: str, params: Sequence[Mapping[str, object]], /) -> list[list[tuple[Any, ...]]]:
        return [self.rows(sql, **values) for values in params]

    def lock_rows(self, sql: str, /, *, if_free: bool = False, **params: object) -> list[tuple[Any, ...]]:
        return self.rows(sql, **params)

    def lock_table(self, table: str, /) -> None:
        pass

    def run(self, sql: str, /, **params: object) -> int:
        return self.connection.execute(sql, params).rowcount

    def run_many(self, sql: str, params: Sequence[Mapping[str, object]], /) -> None:
        self.connection.executemany(sql, params)

    def record(self, change: Change) -> None:
        self.recorded.append(change)


def key_files(folder: Path, seed: bytes = SEED) -> KeyFiles:
    folder.mkdir(mode=0o700)
    (folder / "signing.key").write_text(f"ed25519:{base64.b64encode(seed).decode()}\n")
    (folder / "hashing.key").write_text(f"hmac-sha256:{base64.b64encode(seed[::-1]).decode()}\n")
    return KeyFiles(str(folder))


def change(space: str, n: int) -> Change:
    return Change(
        space=space,
        actor="user:local",
        action="remember",
        subjects=(f"id-{n}",),
        payload={"version": n, "text": "ab" * 32},
    )


@pytest.fixture
def keys(tmp_path: Path) -> KeyFiles:
    return key_files(tmp_path / "keys")


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Sqlite]:
    tx = Sqlite(tmp_path / "state.db")
    yield tx
    tx.connection.close()


@pytest.fixture
def tx(empty: Sqlite, keys: KeyFiles) -> Sqlite:
    for space in (ONE, TWO):
        for start in (0, 2, 3):
            changes = [change(space, n + 1) for n in range(start, {0: 2, 2: 3, 3: LENGTH}[start])]
            chain.append(empty, keys, space, changes)
    return empty


def report(tx: Sqlite, keys: KeyFiles, spaces: Sequence[str] = (ONE, TWO)) -> LogReport:
    return verify.verify(tx, keys, spaces, lambda _what, _done, _total: None)


def finding(tx: Sqlite, keys: KeyFiles, *, space: str = ONE) -> Finding:
    """Return the one finding of the space, complete."""
    found = [finding for finding in report(tx, keys).findings if finding.where.startswith(f"{space} ")]
    assert len(found) == 1, found
    assert found[0].what
    assert found[0].why
    assert found[0].fix
    return found[0]


def set_field(tx: Sqlite, seq: int, name: str, value: object, *, space: str = ONE) -> None:
    assert (
        tx.run(f"UPDATE log_entry SET {name} = :value WHERE space = :s AND seq = :n", value=value, s=space, n=seq) == 1
    )


def set_head(tx: Sqlite, name: str, value: object) -> None:
    assert tx.run(f"UPDATE log_head SET {name} = :value WHERE space = :s", value=value, s=ONE) == 1


def field(tx: Sqlite, seq: int, name: str, *, space: str = ONE) -> Any:
    row = tx.row(f"SELECT {name} FROM log_entry WHERE space = :space AND seq = :seq", space=space, seq=seq)
    assert row is not None
    return row[0]


# An independent encoder of the format: all that a forger can do without the key.


def part(text: str) -> bytes:
    return len(text.encode()).to_bytes(8, "big") + text.encode()


def forged_hash(row: dict[str, Any]) -> str:
    fields = ("space", "seq", "time", "actor", "action", "subjects", "payload", "previous", "key_id")
    data = part("commonbook log entry v1") + b"".join(part(str(row[name])) for name in fields)
    return hashlib.sha256(data).hexdigest()


def signature_message(digest: str) -> bytes:
    return part("commonbook log entry signature v1") + bytes.fromhex(digest)


def head_message(space: str, seq: int, digest: str, key_id: str) -> bytes:
    return part("commonbook log head v1") + part(space) + part(str(seq)) + part(digest) + part(key_id)


def id_of(key: Ed25519PrivateKey) -> str:
    return hashlib.sha256(key.public_key().public_bytes_raw()).hexdigest()[:32]

"""The log: what is written is what verifies, and every way of tampering with it is found and located."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta, timezone
from enum import IntEnum, StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import rfc8785
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import example, given
from hypothesis import strategies as st

from commonplace import audit
from commonplace.engines.signing import KeyFiles
from commonplace.errors import BadInput, HomeDamaged, KeyMissing
from commonplace.model import Change, Finding, LogReport

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
    """As much of a Transaction as the log needs."""

    def __init__(self, path: Path, tables: str = TABLES) -> None:
        self.connection = sqlite3.connect(path, isolation_level=None)
        self.connection.execute("PRAGMA synchronous = OFF")
        self.connection.executescript(tables)
        self.now = datetime(2026, 11, 15, 20, 18, 24, 123456, tzinfo=UTC)
        self.recorded: list[Change] = []

    def rows(self, sql: str, /, **params: object) -> list[tuple[Any, ...]]:
        try:
            return self.connection.execute(sql, params).fetchall()
        except sqlite3.OperationalError as error:
            raise HomeDamaged(str(error)) from error

    def row(self, sql: str, /, **params: object) -> tuple[Any, ...] | None:
        return next(iter(self.rows(sql, **params)), None)

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
            audit.append(empty, keys, space, changes)
    return empty


def report(tx: Sqlite, keys: KeyFiles, spaces: Sequence[str] = (ONE, TWO)) -> LogReport:
    return audit.verify(tx, keys, spaces, lambda _what, _done, _total: None)


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


# The format once more, written independently of the module: what a forger can do without the key.


def part(text: str) -> bytes:
    return len(text.encode()).to_bytes(8, "big") + text.encode()


def forged_hash(row: dict[str, Any]) -> str:
    said = ("space", "seq", "time", "actor", "action", "subjects", "payload", "previous", "key_id")
    data = part("commonplace log entry v1") + b"".join(part(str(row[name])) for name in said)
    return hashlib.sha256(data).hexdigest()


def signature_message(digest: str) -> bytes:
    return part("commonplace log entry signature v1") + bytes.fromhex(digest)


def head_message(space: str, seq: int, digest: str, key_id: str) -> bytes:
    return part("commonplace log head v1") + part(space) + part(str(seq)) + part(digest) + part(key_id)


def id_of(key: Ed25519PrivateKey) -> str:
    return hashlib.sha256(key.public_key().public_bytes_raw()).hexdigest()[:32]


def rewrite(tx: Sqlite, start: int, sign: Callable[[dict[str, Any]], str], **changed: object) -> None:
    """Change entry `start` and give it and all that follow valid hashes."""
    previous = field(tx, start - 1, "hash") if start > 1 else "0" * 64
    for seq in range(start, LENGTH + 1):
        stored = tx.row("SELECT * FROM log_entry WHERE space = :s AND seq = :n", s=ONE, n=seq)
        assert stored is not None
        row = dict(zip(COLUMNS, stored, strict=True)) | (changed if seq == start else {}) | {"previous": previous}
        if "key_id" in changed:
            row["key_id"] = changed["key_id"]
        row["hash"] = previous = forged_hash(row)
        row["signature"] = sign(row)
        for name in COLUMNS[2:]:
            set_field(tx, seq, name, row[name])
    set_head(tx, "hash", previous)


# Sound logs


def test_a_log_as_written_verifies(tx: Sqlite, keys: KeyFiles) -> None:
    told: list[tuple[str, int, int]] = []
    found = audit.verify(tx, keys, [ONE, TWO], lambda *args: told.append(args))
    assert found.ok, found
    assert (found.spaces, found.entries) == (2, 2 * LENGTH)
    assert [done for _, done, _ in told] == [LENGTH, 2 * LENGTH]
    assert {total for _, _, total in told} == {2 * LENGTH}


def test_entries_form_one_gapless_chain(tx: Sqlite) -> None:
    chain = audit.entries(tx, ONE)
    assert [entry.seq for entry in chain] == list(range(1, LENGTH + 1))
    assert [entry.previous for entry in chain] == ["0" * 64, *(entry.hash for entry in chain[:-1])]
    assert chain[0].time == "2026-11-15T20:18:24.123456Z"
    assert json.loads(chain[3].subjects) == ["id-4"]
    assert audit.entries(tx, ONE, after=2, limit=2) == chain[2:4]
    assert audit.entries(tx, "nowhere") == []


def test_count_and_heads_tell_the_end_of_every_chain(tx: Sqlite) -> None:
    assert audit.count(tx) == 2 * LENGTH
    assert audit.heads(tx) == {space: (LENGTH, field(tx, LENGTH, "hash", space=space)) for space in (ONE, TWO)}


def test_a_chain_of_many_pages_verifies_and_a_fault_deep_inside_is_located(empty: Sqlite, keys: KeyFiles) -> None:
    audit.append(empty, keys, ONE, [change(ONE, n) for n in range(1203)])
    assert report(empty, keys, [ONE]).ok
    set_field(empty, 1001, "actor", "user:mallory")
    assert [found.where for found in report(empty, keys, [ONE]).findings] == [f"{ONE} entry 1001"]


def test_nothing_is_written_for_no_changes(empty: Sqlite, keys: KeyFiles) -> None:
    audit.append(empty, keys, ONE, [])
    assert audit.count(empty) == 0
    assert audit.heads(empty) == {}


def test_a_time_of_any_zone_is_written_in_utc_with_all_its_digits(empty: Sqlite, keys: KeyFiles) -> None:
    empty.now = datetime(2026, 1, 1, 1, 30, tzinfo=timezone(timedelta(hours=2)))
    audit.append(empty, keys, ONE, [change(ONE, 1)])
    assert field(empty, 1, "time") == "2025-12-31T23:30:00.000000Z"


def test_entries_of_a_retired_key_still_verify(tx: Sqlite, tmp_path: Path) -> None:
    old = Ed25519PrivateKey.from_private_bytes(SEED)
    new = key_files(tmp_path / "new", b"\x07" * 32)
    audit.append(tx, new, ONE, [change(ONE, 7)])
    assert finding(tx, new).what == "unknown key"
    raw = base64.b64encode(old.public_key().public_bytes_raw()).decode()
    (tmp_path / "new" / f"{id_of(old)}.pub").write_text(f"ed25519:{raw}\n")
    assert report(tx, new).ok


def test_the_format_has_not_drifted(empty: Sqlite, keys: KeyFiles) -> None:
    first = Change(
        space=ONE, actor="user:local", action="remember", subjects=("a", "b"), payload={"z": 1, "ä": [0.5, None]}
    )
    second = Change(space=ONE, actor="agent:ø", action="forget", subjects=(), payload={})
    audit.append(empty, keys, ONE, [first, second])
    one, two = audit.entries(empty, ONE)
    assert one.key_id == two.key_id == "56475aa75463474c0285df5dbf2bcab7"
    assert one.subjects == '["a","b"]'
    assert one.payload == '{"z":1,"ä":[0.5,null]}'
    assert one.hash == "48e0454e6fd3161afe71fac61f888faca75c49d60afcf5691c46c51a6e7f5784"
    assert one.signature == (
        "4206b3211886e57849d48fdd0d3ba31437bd14abd650a5e7b06338421330ac1d"
        "f80f3c33f390aa5e4f4ed739fef08f7c961ed1c1577a8c7a759789b1f4816204"
    )
    assert two.hash == "1f18f420ebb4a086c42e52ea3b163080ad028adeb35b58b15cf25d5fcc4a6551"
    assert two.signature == (
        "1b5d77757494d7f0dd9f333c4a2ad1f3d55f37713c4b99b09a8f6626709bdd1e"
        "cf9edd4b49204e17623f428860dddb467cde356d139665dd9fb888f1b2283904"
    )
    assert empty.rows("SELECT * FROM log_head") == [
        (
            ONE,
            2,
            two.hash,
            (
                "3f6edf4415281efc322425d3a649e4ea16a853fdb19398767f24a7bef07de902"
                "b1954d2170f56b054e01d4bfdf32b2719eb6053b456f5de0f092ac16835f6404"
            ),
            two.key_id,
        )
    ]
    assert one.hash == forged_hash({name: getattr(one, name) for name in COLUMNS})
    key = Ed25519PrivateKey.from_private_bytes(SEED)
    assert two.signature == key.sign(signature_message(two.hash)).hex()
    assert audit.heads(empty) == {ONE: (2, two.hash)}


# What cannot be logged


@pytest.mark.parametrize("wrong", [{"actor": "\ud800"}, {"payload": {"x": float("nan")}}, {"payload": {"x": object()}}])
def test_what_cannot_be_written_fails_and_leaves_the_log_alone(
    tx: Sqlite, keys: KeyFiles, wrong: dict[str, Any]
) -> None:
    said: dict[str, Any] = {"space": ONE, "actor": "a", "action": "b", "subjects": (), "payload": {}}
    with pytest.raises(BadInput):
        audit.append(tx, keys, ONE, [change(ONE, 7), Change(**(said | wrong))])
    assert report(tx, keys).ok
    assert audit.count(tx) == 2 * LENGTH


def test_a_change_of_another_space_is_refused(tx: Sqlite, keys: KeyFiles) -> None:
    with pytest.raises(ValueError, match=TWO):
        audit.append(tx, keys, ONE, [change(TWO, 7)])


def test_nothing_is_appended_to_a_head_that_cannot_be_read(tx: Sqlite, keys: KeyFiles) -> None:
    set_head(tx, "seq", "six")
    with pytest.raises(HomeDamaged) as caught:
        audit.append(tx, keys, ONE, [change(ONE, 7)])
    assert caught.value.fix


def test_verifying_without_any_key_says_that_the_key_is_missing(tx: Sqlite, tmp_path: Path) -> None:
    with pytest.raises(KeyMissing):
        report(tx, KeyFiles(str(tmp_path / "none")))


# Tampering with one entry


def damaged(value: Any) -> Iterator[object]:
    """Yield the value with one byte changed, added or taken away, in several places, and in other types."""
    if isinstance(value, int):
        yield from (value + 100, -value, 0, value + 0.5, "three", b"3", 2**62)
        return
    for place in {0, len(value) // 2, len(value) - 1}:
        old = value[place]
        yield value[:place] + ("0" if old != "0" else "1") + value[place + 1 :]
        yield value[:place] + chr(ord(old) ^ 1) + value[place + 1 :]
        yield value[:place] + value[place + 1 :]
    yield from {
        value + " ",
        " " + value,
        value + "\n",
        value + "\0",
        value[:-1] + "é",
        "",
        "{",
        value.encode(),
        b"\xff",
    }
    if value.upper() != value:
        yield value.upper()


@pytest.mark.parametrize("seq", range(1, LENGTH + 1))
@pytest.mark.parametrize("name", COLUMNS)
def test_any_change_of_any_field_is_found_where_it_is(tx: Sqlite, keys: KeyFiles, name: str, seq: int) -> None:
    tries = 0
    for value in damaged(field(tx, seq, name)):
        tx.connection.execute("BEGIN")
        set_field(tx, seq, name, value)
        found = finding(tx, keys)
        # An entry that left its place at the end is a cut tail; with a number below 1 it is found at that number.
        expected = value if name == "seq" and isinstance(value, int) and value < 1 else seq
        assert found.where == f"{ONE} entry {expected}", (value, found)
        assert not [f for f in report(tx, keys).findings if f.where.startswith(TWO)]
        tx.connection.execute("ROLLBACK")
        tries += 1
    assert tries >= 7
    assert report(tx, keys).ok


@pytest.mark.parametrize("seq", range(1, LENGTH + 1))
@pytest.mark.parametrize("name", [name for name in COLUMNS if name != "seq"])
def test_bytes_that_are_no_text_are_found_where_they_are(tx: Sqlite, keys: KeyFiles, name: str, seq: int) -> None:
    tx.run(f"UPDATE log_entry SET {name} = CAST(x'61ff' AS TEXT) WHERE space = :s AND seq = :n", s=ONE, n=seq)
    assert finding(tx, keys).where == f"{ONE} entry {seq}"


@pytest.mark.parametrize("seq", range(1, LENGTH + 1))
@pytest.mark.parametrize("name", COLUMNS)
def test_null_is_found_where_it_is(tmp_path: Path, tx: Sqlite, keys: KeyFiles, name: str, seq: int) -> None:
    tx.connection.executescript("CREATE TABLE bare AS SELECT * FROM log_entry; DROP TABLE log_entry;")
    tx.connection.execute("ALTER TABLE bare RENAME TO log_entry")
    assert report(tx, keys).ok
    set_field(tx, seq, name, None)
    assert finding(tx, keys).where == f"{ONE} entry {seq}"


@pytest.mark.parametrize("seq", range(1, LENGTH))
def test_a_deleted_entry_is_missed(tx: Sqlite, keys: KeyFiles, seq: int) -> None:
    tx.run("DELETE FROM log_entry WHERE space = :s AND seq = :n", s=ONE, n=seq)
    found = finding(tx, keys)
    assert (found.what, found.where) == ("missing entry", f"{ONE} entry {seq}")


@pytest.mark.parametrize("seq", range(1, LENGTH))
def test_a_deleted_entry_is_missed_after_the_rest_moved_up(tx: Sqlite, keys: KeyFiles, seq: int) -> None:
    tx.run("DELETE FROM log_entry WHERE space = :s AND seq = :n", s=ONE, n=seq)
    for later in range(seq + 1, LENGTH + 1):
        set_field(tx, later, "seq", later - 1)
    found = finding(tx, keys)
    assert (found.what, found.where) == ("wrong order", f"{ONE} entry {seq}")
    assert f"entry {seq + 1}" in found.why


@pytest.mark.parametrize(("low", "high"), [(1, 2), (1, 6), (2, 5), (3, 4), (5, 6)])
def test_two_swapped_entries_are_found_at_the_first(tx: Sqlite, keys: KeyFiles, low: int, high: int) -> None:
    for old, new in ((low, -1), (high, low), (-1, high)):
        set_field(tx, old, "seq", new)
    found = finding(tx, keys)
    assert (found.what, found.where) == ("wrong order", f"{ONE} entry {low}")
    assert f"entry {high}" in found.why


@pytest.mark.parametrize("seq", [-3, 0])
def test_an_entry_before_the_first_is_found(tx: Sqlite, keys: KeyFiles, seq: int) -> None:
    copy_entry(tx, 1, seq=seq)
    found = finding(tx, keys)
    assert (found.what, found.where) == ("wrong order", f"{ONE} entry {seq}")


def copy_entry(tx: Sqlite, source: int, **changed: object) -> None:
    stored = tx.row("SELECT * FROM log_entry WHERE space = :s AND seq = :n", s=ONE, n=source)
    assert stored is not None
    row = dict(zip(COLUMNS, stored, strict=True)) | changed
    tx.run(f"INSERT INTO log_entry VALUES ({', '.join(':' + name for name in COLUMNS)})", **row)


def test_an_entry_that_stands_twice_is_found(tx: Sqlite, keys: KeyFiles) -> None:
    tx.connection.executescript("CREATE TABLE bare AS SELECT * FROM log_entry; DROP TABLE log_entry;")
    tx.connection.execute("ALTER TABLE bare RENAME TO log_entry")
    copy_entry(tx, 3)
    found = finding(tx, keys)
    assert (found.what, found.where) == ("wrong order", f"{ONE} entry 3")


def test_an_entry_that_stands_twice_across_two_pages_is_found(empty: Sqlite, keys: KeyFiles) -> None:
    audit.append(empty, keys, ONE, [change(ONE, n) for n in range(600)])
    empty.connection.executescript("CREATE TABLE bare AS SELECT * FROM log_entry; DROP TABLE log_entry;")
    empty.connection.execute("ALTER TABLE bare RENAME TO log_entry")
    copy_entry(empty, 500)
    assert not report(empty, keys, [ONE]).ok


@pytest.mark.parametrize("at", range(1, LENGTH + 2))
def test_an_inserted_entry_is_found(tx: Sqlite, keys: KeyFiles, at: int) -> None:
    for seq in range(LENGTH, at - 1, -1):
        set_field(tx, seq, "seq", seq + 1)
    source = 1 if at > 1 else 2
    forged = {"seq": at, "action": "grant", "previous": field(tx, at - 1, "hash") if at > 1 else "0" * 64}
    stored = tx.row("SELECT * FROM log_entry WHERE space = :s AND seq = :n", s=ONE, n=source)
    assert stored is not None
    row = dict(zip(COLUMNS, stored, strict=True)) | forged
    copy_entry(tx, source, **forged, hash=forged_hash(row))
    found = finding(tx, keys)
    assert (found.what, found.where) == ("bad signature", f"{ONE} entry {at}")


# The tail and the head


@pytest.mark.parametrize("kept", range(LENGTH))
def test_a_cut_tail_is_found_at_the_first_entry_that_is_gone(tx: Sqlite, keys: KeyFiles, kept: int) -> None:
    tx.run("DELETE FROM log_entry WHERE space = :s AND seq > :kept", s=ONE, kept=kept)
    found = finding(tx, keys)
    assert (found.what, found.where) == ("tail cut", f"{ONE} entry {kept + 1}")


@pytest.mark.parametrize("kept", range(1, LENGTH))
def test_a_head_set_back_with_the_signature_of_an_older_entry_is_found(tx: Sqlite, keys: KeyFiles, kept: int) -> None:
    set_head(tx, "signature", field(tx, kept, "signature"))
    set_head(tx, "hash", field(tx, kept, "hash"))
    set_head(tx, "seq", kept)
    assert finding(tx, keys).where == f"{ONE} head"
    tx.run("DELETE FROM log_entry WHERE space = :s AND seq > :kept", s=ONE, kept=kept)
    found = finding(tx, keys)
    assert (found.what, found.where) == ("bad head", f"{ONE} head")


def test_entries_after_an_older_genuine_head_are_found(tx: Sqlite, keys: KeyFiles) -> None:
    head = tx.row("SELECT seq, hash, signature FROM log_head WHERE space = :s", s=ONE)
    assert head is not None
    audit.append(tx, keys, ONE, [change(ONE, 7), change(ONE, 8)])
    for name, value in zip(("seq", "hash", "signature"), head, strict=True):
        set_head(tx, name, value)
    found = finding(tx, keys)
    assert (found.what, found.where) == ("entry after the head", f"{ONE} entry {LENGTH + 1}")


@pytest.mark.parametrize("name", ["seq", "hash", "signature", "key_id"])
def test_any_change_of_any_field_of_the_head_is_found(tx: Sqlite, keys: KeyFiles, name: str) -> None:
    head = tx.row(f"SELECT {name} FROM log_head WHERE space = :s", s=ONE)
    assert head is not None
    for value in damaged(head[0]):
        set_head(tx, name, value)
        found = finding(tx, keys)
        assert (found.what, found.where) == ("bad head", f"{ONE} head"), value
    if name != "seq":
        tx.run(f"UPDATE log_head SET {name} = CAST(x'61ff' AS TEXT) WHERE space = :s", s=ONE)
        assert finding(tx, keys).where == f"{ONE} head"


def test_a_missing_head_is_found(tx: Sqlite, keys: KeyFiles) -> None:
    tx.run("DELETE FROM log_head WHERE space = :s", s=ONE)
    found = finding(tx, keys)
    assert (found.what, found.where) == ("missing head", f"{ONE} head")


def test_a_second_head_is_found(tx: Sqlite, keys: KeyFiles) -> None:
    tx.connection.executescript("CREATE TABLE bare AS SELECT * FROM log_head; DROP TABLE log_head;")
    tx.connection.execute("ALTER TABLE bare RENAME TO log_head")
    tx.connection.execute("INSERT INTO log_head SELECT * FROM log_head")
    assert finding(tx, keys).where == f"{ONE} head"


def test_the_head_of_another_space_is_found(tx: Sqlite, keys: KeyFiles) -> None:
    tx.run("DELETE FROM log_head WHERE space = :s", s=ONE)
    tx.run("INSERT INTO log_head SELECT :s, seq, hash, signature, key_id FROM log_head WHERE space = :t", s=ONE, t=TWO)
    assert finding(tx, keys).where == f"{ONE} head"


def test_a_head_that_was_signed_for_another_hash_is_found(tx: Sqlite, keys: KeyFiles) -> None:
    other = "ab" * 32
    set_head(tx, "hash", other)
    set_head(tx, "signature", keys.sign(head_message(ONE, LENGTH, other, keys.key_id)).hex())
    assert finding(tx, keys).where == f"{ONE} entry {LENGTH}"


# Forging without the key


@pytest.mark.parametrize("start", range(1, LENGTH + 1))
def test_a_rewritten_suffix_without_signatures_is_found_at_its_start(tx: Sqlite, keys: KeyFiles, start: int) -> None:
    rewrite(tx, start, lambda row: "", actor="user:mallory")
    found = finding(tx, keys)
    assert (found.what, found.where) == ("bad signature", f"{ONE} entry {start}")


@pytest.mark.parametrize("start", range(1, LENGTH + 1))
def test_a_rewritten_suffix_with_old_signatures_is_found_at_its_start(tx: Sqlite, keys: KeyFiles, start: int) -> None:
    rewrite(tx, start, lambda row: row["signature"], payload='{"version":99}')
    found = finding(tx, keys)
    assert (found.what, found.where) == ("bad signature", f"{ONE} entry {start}")


@pytest.mark.parametrize("start", range(1, LENGTH + 1))
def test_a_rewritten_suffix_with_another_key_is_found_at_its_start(tx: Sqlite, keys: KeyFiles, start: int) -> None:
    mallory = Ed25519PrivateKey.from_private_bytes(b"\x66" * 32)

    def sign(row: dict[str, Any]) -> str:
        return mallory.sign(signature_message(row["hash"])).hex()

    tx.connection.execute("BEGIN")
    rewrite(tx, start, sign, actor="user:mallory")
    assert (finding(tx, keys).what, finding(tx, keys).where) == ("bad signature", f"{ONE} entry {start}")
    tx.connection.execute("ROLLBACK")
    rewrite(tx, start, sign, actor="user:mallory", key_id=id_of(mallory))
    assert (finding(tx, keys).what, finding(tx, keys).where) == ("unknown key", f"{ONE} entry {start}")


def test_a_genuine_entry_that_does_not_follow_from_the_one_before_is_found(tx: Sqlite, keys: KeyFiles) -> None:
    def sign(row: dict[str, Any]) -> str:
        return keys.sign(signature_message(row["hash"])).hex()

    suffix = tx.rows("SELECT * FROM log_entry WHERE space = :s AND seq > 3", s=ONE)
    rewrite(tx, 3, sign, actor="user:before-a-restored-back-up")
    tx.run("DELETE FROM log_entry WHERE space = :s AND seq > 3", s=ONE)
    tx.connection.executemany(f"INSERT INTO log_entry VALUES ({', '.join('?' * len(COLUMNS))})", suffix)
    found = finding(tx, keys)
    assert (found.what, found.where) == ("broken chain", f"{ONE} entry 4")


@pytest.mark.parametrize("seq", range(1, LENGTH + 1))
def test_a_signature_stripped_or_taken_from_elsewhere_is_found(tx: Sqlite, keys: KeyFiles, seq: int) -> None:
    head = tx.row("SELECT signature FROM log_head WHERE space = :s", s=ONE)
    assert head is not None
    others = [field(tx, other, "signature") for other in range(1, LENGTH + 1) if other != seq]
    for signature in ("", "00" * 64, head[0], field(tx, seq, "signature", space=TWO), *others):
        set_field(tx, seq, "signature", signature)
        found = finding(tx, keys)
        assert (found.what, found.where) == ("bad signature", f"{ONE} entry {seq}")


# Chains and spaces


def test_a_chain_that_was_copied_to_an_id_that_no_space_has_is_found(tx: Sqlite, keys: KeyFiles) -> None:
    for table, rest in (("log_entry", ", ".join(COLUMNS[1:])), ("log_head", "seq, hash, signature, key_id")):
        tx.run(f"INSERT INTO {table} SELECT 'space-ghost', {rest} FROM {table} WHERE space = :s", s=ONE)
    found = finding(tx, keys, space="space-ghost")
    assert (found.what, found.where) == ("unknown space", "space-ghost entry 1")
    assert len(report(tx, keys).findings) == 1


@pytest.mark.parametrize("table", ["log_entry", "log_head"])
def test_rows_of_an_id_that_no_space_has_are_found(tx: Sqlite, keys: KeyFiles, table: str) -> None:
    tx.run(
        "DELETE FROM log_head WHERE space = :s" if table == "log_entry" else "DELETE FROM log_entry WHERE space = :s",
        s=ONE,
    )
    assert [found.what for found in report(tx, keys, [TWO]).findings] == ["unknown space"]


def test_a_chain_that_was_put_in_the_place_of_another_is_found(tx: Sqlite, keys: KeyFiles) -> None:
    tx.run("DELETE FROM log_entry WHERE space = :s", s=ONE)
    rest = ", ".join(COLUMNS[1:])
    tx.run(f"INSERT INTO log_entry SELECT :s, {rest} FROM log_entry WHERE space = :t", s=ONE, t=TWO)
    found = finding(tx, keys)
    assert (found.what, found.where) == ("altered entry", f"{ONE} entry 1")


def test_a_space_without_any_log_is_found(tx: Sqlite, keys: KeyFiles) -> None:
    for table in ("log_entry", "log_head"):
        tx.run(f"DELETE FROM {table} WHERE space = :s", s=ONE)
    found = finding(tx, keys)
    assert (found.what, found.where) == ("no chain", f"{ONE} entry 1")


def test_faults_of_several_spaces_are_each_named_once(tx: Sqlite, keys: KeyFiles) -> None:
    for seq in (2, 4, 5):
        set_field(tx, seq, "actor", "x")
        set_field(tx, seq + 1, "actor", "x", space=TWO)
    assert [found.where for found in report(tx, keys).findings] == [f"{ONE} entry 2", f"{TWO} entry 3"]


def test_a_finding_shows_nothing_unprintable(tx: Sqlite, keys: KeyFiles) -> None:
    set_field(tx, 2, "space", "\x1b[31m" + "x" * 500)
    for found in report(tx, keys).findings:
        assert re.fullmatch(r"[ -~]{1,120}", found.where), found


# Canonical JSON

SCALARS = st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.floats() | st.text()
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20)


@given(VALUES)
@example({"\U00010000": 1, "\uffff": 2, "\ue000": 3, "a": '\x7f\u2028\x00\b\f\x1f/\\"'})
@example(
    [
        1e21,
        1e20,
        123456789012345680000.0,
        1e-6,
        1e-7,
        5e-324,
        1.7976931348623157e308,
        -0.0,
        0.1,
        100.0,
        333333333.33333329,
    ]
)
def test_canonical_json_is_that_of_the_rfc(value: Any) -> None:
    try:
        expected = rfc8785.dumps(value).decode()
    except (rfc8785.CanonicalizationError, UnicodeEncodeError):
        with pytest.raises(BadInput):
            audit.canonical(value)
    else:
        assert audit.canonical(value) == expected


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_float_reads_back_as_itself(value: float) -> None:
    assert float(audit.canonical(value)) == value


def test_canonical_json_takes_tuples_mappings_and_enums() -> None:
    class Word(StrEnum):
        YES = "yes"

    class Number(IntEnum):
        ONE = 1

    assert audit.canonical(MappingProxyType({"b": (Word.YES, Number.ONE), "a": {}})) == '{"a":{},"b":["yes",1]}'


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [2**53, -(2**53), 10**5000, float("nan"), float("inf"), "\ud800", {"\udfff": 1}, {"é\udfff": 1}, {1: 2}, {None: 1},
     b"bytes", {1, 2}, object(), datetime(2026, 1, 1, tzinfo=UTC), nested(100_000)],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_what_json_cannot_hold_is_refused(value: object) -> None:
    with pytest.raises(BadInput) as caught:
        audit.canonical([value])
    assert caught.value.fix

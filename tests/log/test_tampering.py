"""The log: every way of tampering with it is found and located."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from commonbook.core.log import chain
from commonbook.engines.disk.signing_keys import KeyFiles
from tests.support.chains import (
    COLUMNS,
    LENGTH,
    ONE,
    TWO,
    Sqlite,
    change,
    empty,
    field,
    finding,
    forged_hash,
    head_message,
    id_of,
    keys,
    report,
    set_field,
    set_head,
    signature_message,
    tx,
)

pytestmark = pytest.mark.promise("log.verify")

__all__ = ["empty", "keys", "tx"]


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
    chain.append(empty, keys, ONE, [change(ONE, n) for n in range(600)])
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
    chain.append(tx, keys, ONE, [change(ONE, 7), change(ONE, 8)])
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

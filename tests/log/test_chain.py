"""The log: entries verify as written, in a format that does not change; and its canonical JSON."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta, timezone
from enum import IntEnum, StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from commonbook.core.log import chain as log_chain
from commonbook.core.log import verify
from commonbook.engines.disk.signing_keys import KeyFiles
from commonbook.errors import BadInput, HomeDamaged, KeyMissing
from commonbook.values.reports import Change
from tests.support.chains import (
    COLUMNS,
    LENGTH,
    ONE,
    SEED,
    TWO,
    Sqlite,
    change,
    empty,
    field,
    finding,
    forged_hash,
    id_of,
    key_files,
    keys,
    report,
    set_field,
    set_head,
    signature_message,
    tx,
)

pytestmark = pytest.mark.promise("log.chain")

__all__ = ["empty", "keys", "tx"]


# Sound logs


def test_a_log_as_written_verifies(tx: Sqlite, keys: KeyFiles) -> None:
    progress: list[tuple[str, int, int]] = []
    checked = verify.verify(tx, keys, [ONE, TWO], lambda *args: progress.append(args))
    assert checked.ok, checked
    assert (checked.spaces, checked.entries) == (2, 2 * LENGTH)
    assert [done for _, done, _ in progress] == [LENGTH, 2 * LENGTH]
    assert {total for _, _, total in progress} == {2 * LENGTH}


def test_entries_form_one_gapless_chain(tx: Sqlite) -> None:
    chain = log_chain.entries(tx, ONE)
    assert [entry.seq for entry in chain] == list(range(1, LENGTH + 1))
    assert [entry.previous for entry in chain] == ["0" * 64, *(entry.hash for entry in chain[:-1])]
    assert chain[0].time == "2026-11-15T20:18:24.123456Z"
    assert json.loads(chain[3].subjects) == ["id-4"]
    assert log_chain.entries(tx, ONE, after=2, limit=2) == chain[2:4]
    assert log_chain.entries(tx, "nowhere") == []


def test_count_and_heads_tell_the_end_of_every_chain(tx: Sqlite) -> None:
    assert log_chain.count(tx, (ONE, TWO)) == 2 * LENGTH
    assert log_chain.heads(tx) == {space: (LENGTH, field(tx, LENGTH, "hash", space=space)) for space in (ONE, TWO)}


def test_a_chain_of_many_pages_verifies_and_a_fault_deep_inside_is_located(empty: Sqlite, keys: KeyFiles) -> None:
    log_chain.append(empty, keys, ONE, [change(ONE, n) for n in range(1203)])
    assert report(empty, keys, [ONE]).ok
    set_field(empty, 1001, "actor", "user:mallory")
    assert [found.where for found in report(empty, keys, [ONE]).findings] == [f"{ONE} entry 1001"]


def test_nothing_is_written_for_no_changes(empty: Sqlite, keys: KeyFiles) -> None:
    log_chain.append(empty, keys, ONE, [])
    assert log_chain.count(empty, (ONE,)) == 0
    assert log_chain.heads(empty) == {}


def test_a_time_of_any_zone_is_written_in_utc_with_all_its_digits(empty: Sqlite, keys: KeyFiles) -> None:
    empty.now = datetime(2026, 1, 1, 1, 30, tzinfo=timezone(timedelta(hours=2)))
    log_chain.append(empty, keys, ONE, [change(ONE, 1)])
    assert field(empty, 1, "time") == "2025-12-31T23:30:00.000000Z"


def test_entries_of_a_retired_key_still_verify(tx: Sqlite, tmp_path: Path) -> None:
    old = Ed25519PrivateKey.from_private_bytes(SEED)
    new = key_files(tmp_path / "new", b"\x07" * 32)
    log_chain.append(tx, new, ONE, [change(ONE, 7)])
    assert finding(tx, new).what == "unknown key"
    raw = base64.b64encode(old.public_key().public_bytes_raw()).decode()
    (tmp_path / "new" / f"{id_of(old)}.pub").write_text(f"ed25519:{raw}\n")
    assert report(tx, new).ok


def test_the_format_has_not_drifted(empty: Sqlite, keys: KeyFiles) -> None:
    first = Change(
        space=ONE, actor="user:local", action="remember", subjects=("a", "b"), payload={"z": 1, "ä": [0.5, None]}
    )
    second = Change(space=ONE, actor="agent:ø", action="forget", subjects=(), payload={})
    log_chain.append(empty, keys, ONE, [first, second])
    one, two = log_chain.entries(empty, ONE)
    assert one.key_id == two.key_id == "56475aa75463474c0285df5dbf2bcab7"
    assert one.subjects == '["a","b"]'
    assert one.payload == '{"z":1,"ä":[0.5,null]}'
    assert one.hash == "f56c0b4a5992534197c0c6390c810cbd9749fb98bf71bb819d2190e286fa616d"
    assert one.signature == (
        "157721b85a7f0f5c0d2c01c9ec3735da0275dcb1ae45a7869072a1ad999a6a56"
        "61b32729bc8f16b971809c0463acfaae0fd7fa3e90644c2d4266f4c6f49e9c08"
    )
    assert two.hash == "829321c9c0a47bb6f3b6e8a0a51c81bfe0d5ab0aa1a95232209dbda016328223"
    assert two.signature == (
        "ebe54558ce162549ed6a3f6e09feaca9d43e32a21042986483b5f21c8e796f87"
        "bcb32ad05172333c76f98a4cb370424ced6569fbf5c20f6e858cadef46ce1d0f"
    )
    assert empty.rows("SELECT * FROM log_head") == [
        (
            ONE,
            2,
            two.hash,
            (
                "3a841e2105dbea4fefaf5448410fa81408186e2ceb7ed712991ddac7b2627572"
                "2f590f36f717f265c91a33464c5adf229ed7ec0e4ab3d4331af1e4bf4fa0ea0f"
            ),
            two.key_id,
        )
    ]
    assert one.hash == forged_hash({name: getattr(one, name) for name in COLUMNS})
    key = Ed25519PrivateKey.from_private_bytes(SEED)
    assert two.signature == key.sign(signature_message(two.hash)).hex()
    assert log_chain.heads(empty) == {ONE: (2, two.hash)}


# What cannot be logged


@pytest.mark.parametrize("wrong", [{"actor": "\ud800"}, {"payload": {"x": float("nan")}}, {"payload": {"x": object()}}])
def test_what_cannot_be_written_fails_and_leaves_the_log_alone(
    tx: Sqlite, keys: KeyFiles, wrong: dict[str, Any]
) -> None:
    fields: dict[str, Any] = {"space": ONE, "actor": "a", "action": "b", "subjects": (), "payload": {}}
    with pytest.raises(BadInput):
        log_chain.append(tx, keys, ONE, [change(ONE, 7), Change(**(fields | wrong))])
    assert report(tx, keys).ok
    assert log_chain.count(tx, (ONE, TWO)) == 2 * LENGTH


def test_a_change_of_another_space_is_refused(tx: Sqlite, keys: KeyFiles) -> None:
    with pytest.raises(ValueError, match=TWO):
        log_chain.append(tx, keys, ONE, [change(TWO, 7)])


def test_nothing_is_appended_to_a_head_that_cannot_be_read(tx: Sqlite, keys: KeyFiles) -> None:
    set_head(tx, "seq", "six")
    with pytest.raises(HomeDamaged) as caught:
        log_chain.append(tx, keys, ONE, [change(ONE, 7)])
    assert caught.value.fix


def test_verifying_without_any_key_says_that_the_key_is_missing(tx: Sqlite, tmp_path: Path) -> None:
    with pytest.raises(KeyMissing):
        report(tx, KeyFiles(str(tmp_path / "none")))


# Canonical JSON


def test_canonical_json_has_one_text_for_equal_values() -> None:
    value = {"\U00010000": [1e21, 1e-7, 0.1, 100.0, -0.0], "\uffff": True, "a": '\x7f\u2028\x00/\\"'}
    assert log_chain.canonical(value) == (
        '{"a":"\x7f\u2028\\u0000/\\\\\\"","\U00010000":[1e+21,1e-7,0.1,100,0],"\uffff":true}'
    )


def test_canonical_json_takes_tuples_mappings_and_enums() -> None:
    class Word(StrEnum):
        YES = "yes"

    class Number(IntEnum):
        ONE = 1

    assert log_chain.canonical(MappingProxyType({"b": (Word.YES, Number.ONE), "a": {}})) == '{"a":{},"b":["yes",1]}'


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
        log_chain.canonical([value])
    assert caught.value.fix

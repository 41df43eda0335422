"""The cache of vectors that were slow to make, in a real database."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commonbook.core.tables import vectors
from commonbook.ports.database import Database
from commonbook.service.book import Book

ONE, OTHER = "model-one/2", "model-two/2"


@pytest.fixture
def db(book: Book) -> Database:
    return book._engines.db


def packed(*numbers: float) -> bytes:
    return struct.pack(f"<{len(numbers)}f", *numbers)


def test_what_was_kept_is_known_byte_for_byte(db):
    made = {vectors.hash_of("one"): packed(0.5, -1.25), vectors.hash_of("two"): bytes(range(256))}

    def operation(tx):
        vectors.put(tx, ONE, made)

    db.write(operation)
    with db.reading() as tx:
        assert vectors.get_many(tx, ONE, [*made, vectors.hash_of("three")]) == made


def test_vectors_of_another_embedder_are_never_among_the_known_ones(db):
    name = vectors.hash_of("one")

    def operation(tx):
        vectors.put(tx, ONE, {name: packed(1)})
        assert vectors.get_many(tx, OTHER, [name]) == {}
        vectors.put(tx, OTHER, {name: packed(2)})
        assert vectors.get_many(tx, ONE, [name]) == {name: packed(1)}
        assert vectors.count(tx) == 2

    db.write(operation)


def test_of_two_vectors_for_one_text_the_later_stands(db):

    def operation(tx):
        vectors.put(tx, ONE, {"a": packed(1)})
        vectors.put(tx, ONE, {"a": packed(2), "b": packed(3)})
        assert vectors.get_many(tx, ONE, ["a", "b"]) == {"a": packed(2), "b": packed(3)}

    db.write(operation)


def test_any_number_can_be_kept_and_asked_for_at_once(db):
    made = {vectors.hash_of(str(at)): packed(at) for at in range(40_000)}

    def operation(tx):
        vectors.put(tx, ONE, made)
        assert vectors.get_many(tx, ONE, [*made, *made]) == made
        assert vectors.count(tx) == len(made)

    db.write(operation)


def test_nothing_is_no_special_case(db):

    def operation(tx):
        vectors.put(tx, ONE, {})
        assert vectors.get_many(tx, ONE, []) == {}
        assert (vectors.count(tx), vectors.drop_others(tx, ONE)) == (0, 0)

    db.write(operation)


def test_dropping_the_others_leaves_ones_own(db):

    def operation(tx):
        vectors.put(tx, ONE, {"a": packed(1)})
        vectors.put(tx, OTHER, {"a": packed(2), "b": packed(3)})
        assert vectors.drop_others(tx, ONE) == 2
        assert vectors.get_many(tx, ONE, ["a"]) == {"a": packed(1)}
        assert vectors.get_many(tx, OTHER, ["a", "b"]) == {}

    db.write(operation)


@given(st.sets(st.text(), min_size=2, max_size=5))
def test_texts_that_differ_in_anything_have_different_hashes(texts):
    assert len({vectors.hash_of(text) for text in texts}) == len(texts)


def test_the_hash_of_a_text_is_the_same_on_every_machine():
    assert vectors.hash_of("café") == "850f7dc43910ff890f8879c0ed26fe697c93a067ad93a7d50f466a7028a9bf4e"

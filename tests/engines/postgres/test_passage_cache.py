"""The cache of small spaces: never stale, never larger than its limit, and without influence on results."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import psycopg
import pytest

import commonbook
from commonbook.engines.index.segments import Segment, build
from commonbook.engines.postgres.passage_cache import NO_PASSAGES, PassageCache, SpaceVersion
from commonbook.engines.postgres.passage_rows import signed_hash
from commonbook.errors import NotAllowed
from commonbook.service.book import Book
from commonbook.values.memory import Draft
from tests.support.index_worlds import DIMENSIONS, entry

pytestmark = pytest.mark.promise("recall.spaces")

NOBODY = np.zeros(0, np.uint64)


def laid(*numbers: int) -> Segment:
    return build([entry(number) for number in numbers], killed=NOBODY, dimensions=DIMENSIONS)


def size_of(segment: Segment) -> int:
    return sum(array.nbytes for array in segment.bundle.arrays.values())


ONE = laid(1)
ROOM = size_of(ONE)


# --- caching and eviction


def test_what_is_kept_is_given_for_its_own_version_alone():
    cache = PassageCache(10 * ROOM)
    cache.put(1, 7, ONE)
    assert cache.get([1], {1: SpaceVersion(1, 7)}) == [ONE]
    assert cache.get([1], {1: SpaceVersion(1, 8)}) == []
    assert not cache.has([1]), "what is of another version is of no use any more"


def test_a_space_that_is_gone_from_the_index_is_not_given():
    cache = PassageCache(10 * ROOM)
    cache.put(1, 7, ONE)
    assert cache.get([1], {}) == []


def test_a_space_without_passages_is_kept_as_one_until_it_has_some():
    cache = PassageCache(10 * ROOM)
    empty = laid()
    cache.put(1, NO_PASSAGES.version, empty)
    assert cache.get([1], {}) == [empty]
    assert cache.get([1], {1: SpaceVersion(0, NO_PASSAGES.version)}) == [empty]
    assert cache.get([1], {1: SpaceVersion(1, 5)}) == []


def test_many_threads_keep_and_ask_at_once():
    cache = PassageCache(5 * ROOM)
    failed: list[BaseException] = []

    def work(seed: int) -> None:
        dice = np.random.default_rng(seed)
        try:
            for _ in range(2_000):
                space = int(dice.integers(12))
                known = {space: SpaceVersion(1, int(dice.integers(2)))}
                cache.count_misses([space], known)
                cache.put(space, known[space].version, ONE)
                assert cache.get([space], known) in ([], [ONE])
                cache.space_to_admit(range(12))
        except BaseException as error:  # noqa: BLE001 - told below
            failed.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not failed
    assert cache._size == sum(held.size for held in cache._entries.values()) <= 5 * ROOM


# --- in a book


@pytest.fixture
def book(postgres_book: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Book]:
    """A book whose index is written, and whose spaces `a` and `b` are in this process's cache."""
    address, keys = postgres_book
    monkeypatch.setenv("COMMONBOOK_KEYS", keys)
    with commonbook.open(address) as book:
        for space in ("a", "b"):
            drafts = [Draft(f"Lamp {number} of pier {space} burns oil.", space=space) for number in range(30)]
            book.remember_many(drafts)
        book.reindex(anew=True)
        for _ in range(4):
            book.recall("lamp", spaces=["a", "b"])
        assert cached_by(book) == {"a", "b"}
        yield book


def cached_by(book: Book) -> set[str]:
    cache = vars(book._recall_service._index)["_resources"].cache  # type: ignore[attr-defined]
    return {space.name for space in book.spaces() if cache.has([signed_hash(space.id)])}


def hits(book: Book, question: str = "lamp oil", **more: object) -> list[tuple[str, float, str]]:
    found = book.recall(question, spaces=["a", "b"], k=200, **more)  # type: ignore[arg-type]
    return [(hit.id, hit.score, hit.text) for hit in found.hits]


def test_a_process_without_a_cache_finds_the_same(book, postgres_book, monkeypatch):
    monkeypatch.setenv("COMMONBOOK_RECALL_MB", "0")
    with commonbook.open(postgres_book[0]) as other:
        for question in ("lamp oil", "pier a", "", "whale oil for the lanterns", "lamp 7"):
            for _ in range(3):
                assert hits(book, question) == hits(other, question)
        assert cached_by(other) == set()


def test_what_another_process_writes_is_found_at_once_beside_what_is_kept(book, postgres_book):
    with commonbook.open(postgres_book[0]) as other:
        receipt = other.remember("Lamp 99 of pier a is electric.", space="a")
        gone = other.recall("lamp 7 of pier a", spaces="a").hits[0].memory
        assert gone in [one[0] for one in hits(book)]
        assert receipt.id in [one[0] for one in hits(book, "electric lamp")]
        other.delete(gone)
        other.delete(receipt.id)
        assert not {gone, receipt.id} & {one[0] for one in hits(book, "electric lamp")}
        assert cached_by(book) == {"a", "b"}, "it was not searched from what is kept"


def test_what_another_process_writes_down_replaces_what_is_kept(book, postgres_book):
    with commonbook.open(postgres_book[0]) as other:
        gone = other.recall("lamp 7 of pier a", spaces="a").hits[0].memory
        other.delete(gone)
        receipt = other.remember("Lamp 99 of pier a is electric.", space="a")
        other.reindex()
        for _ in range(4):
            found = [one[0].partition("#")[0] for one in hits(book, "electric lamp 7")]
            assert receipt.id in found
            assert gone not in found
            assert hits(book) == hits(other)


def test_an_index_made_anew_replaces_what_is_kept(book, postgres_book):
    before = hits(book)
    with psycopg.connect(postgres_book[0], autocommit=True) as connection:
        found = "SELECT space, version FROM recall_space"
        old: dict[int, int] = dict(connection.execute(found).fetchall())
        with commonbook.open(postgres_book[0]) as other:
            other.reindex(anew=True)
        new: dict[int, int] = dict(connection.execute(found).fetchall())
    assert old.keys() == new.keys()
    assert all(old[space] != new[space] for space in old if old[space]), "a version came again"
    assert hits(book) == before


def test_who_may_no_longer_read_a_space_gets_nothing_of_what_is_kept(book):
    book.grant("user:bob", "a", "reader")
    bob = book.acting_as("user:bob")
    for _ in range(3):
        assert bob.recall("lamp", spaces="a").hits
        with pytest.raises(NotAllowed):
            bob.recall("lamp", spaces="b")
    book.revoke("user:bob", "a")
    with pytest.raises(NotAllowed):
        bob.recall("lamp", spaces="a")


def test_a_book_that_was_closed_keeps_nothing(book):
    cache = vars(book._recall_service._index)["_resources"].cache
    book.close()
    assert cache._size == 0
    assert not cache._entries

"""A source gives no new words to those who may not read it: not by moving, undeleting or guessing at its copy."""

from __future__ import annotations

import pytest

from commonbook import Book, NotAllowed
from commonbook.errors import BadInput

BOB = "user:bob"


@pytest.fixture
def source(book: Book) -> str:
    book.grant(BOB, "team", "writer")
    book.grant(BOB, "mine", "admin")
    return book.remember("salary 4000", space="vault").id


@pytest.mark.parametrize("refresh", ["live", "lazy"])
def test_a_copy_that_is_moved_by_one_who_may_not_read_its_source_follows_no_more(book: Book, source: str, refresh):
    copy, bob = book.share(source, "team", refresh=refresh).id, book.acting_as(BOB)
    bob.move(copy, "mine")
    book.edit(source, text="salary 5000")
    book.work()
    assert (bob.get(copy).text, bob.get(copy).freshness) == ("salary 4000", "detached")


def test_a_copy_that_is_moved_by_a_reader_of_its_source_follows_on(book: Book, source: str):
    copy = book.share(source, "team").id
    book.move(copy, "mine")
    book.edit(source, text="salary 5000")
    assert (book.get(copy).text, book.get(copy).freshness) == ("salary 5000", "fresh")


@pytest.mark.parametrize("by", ["delete", "unshare"])
def test_a_copy_that_is_undeleted_by_one_who_may_not_read_its_source_follows_no_more(book: Book, source: str, by: str):
    copy, bob = book.share(source, "team").id, book.acting_as(BOB)
    getattr(book, by)(copy)
    book.edit(source, text="salary 5000")
    bob.undelete(copy)
    assert (bob.get(copy).text, bob.get(copy).freshness) == ("salary 4000", "detached")


@pytest.mark.parametrize("refresh", ["live", "snapshot"])
def test_an_edited_copy_does_not_tell_that_it_guesses_the_words_of_its_source(book: Book, source: str, refresh):
    copy, bob = book.share(source, "team", refresh=refresh).id, book.acting_as(BOB)
    bob.edit(copy, text="salary 0")
    book.edit(source, text="salary 5000")
    for guess in ("salary 4999", "salary 5000", "salary 5001"):
        bob.edit(copy, text=guess)
        listed = {memory.id: memory.freshness for memory in bob.list().items}
        assert (bob.get(copy).freshness, listed[copy]) == ("diverged", "diverged")


def test_a_writer_does_not_edit_a_notice(book: Book):
    book.grant(BOB, "team", "writer")
    ground = book.remember("oil costs five", space="team").id
    book.reflect("oil is cheap", [ground], space="team")
    book.remember("oil costs nine", space="team", replaces=ground)
    (item,) = book.inbox().items
    with pytest.raises(BadInput):
        book.acting_as(BOB).edit(item.id, expires="2020-01-01")
    assert [one.id for one in book.acting_as(BOB).inbox().items] == [item.id]
    with pytest.raises(BadInput):
        book.append("s", ["hello"], space="team/_invalidations")


def valid_keys(book: Book) -> set[str]:
    keys = book.keys()
    return {key.id for key in keys if key.revoked is None}


def test_a_key_revokes_no_other_key(book: Book):
    book.grant(BOB, "team", "writer")
    full = book.create_key(BOB)
    limited = book.create_key(BOB, limits=[("team", "reader")])
    with_limited = book.with_key(limited.secret)
    with pytest.raises(NotAllowed):
        with_limited.revoke_key(full.key.id)
    assert valid_keys(book) == {full.key.id, limited.key.id}
    with_limited.revoke_key(limited.key.id)
    assert valid_keys(book) == {full.key.id}

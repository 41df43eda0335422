"""A source gives no new words to those who may not read it: not by moving, undeleting or guessing at its copy."""

from __future__ import annotations

import re

import pytest

from commonbook import Book, NotAllowed
from commonbook.errors import BadInput, Conflict
from commonbook.values import encoding
from tests.support.stored import stored

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
    assert (bob.get(copy).text, bob.get(copy).freshness) == ("salary 4000", "stale")
    with pytest.raises(NotAllowed):
        bob.refresh(copy)


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
    assert (bob.get(copy).text, bob.get(copy).freshness) == ("salary 4000", "stale")
    with pytest.raises(NotAllowed):
        bob.set_refresh(copy, "live")


def undelete_it(book: Book, copy: str, _source: str) -> None:
    book.unshare(copy)
    book.acting_as(BOB).undelete(copy)


def move_it(book: Book, copy: str, _source: str) -> None:
    book.acting_as(BOB).move(copy, "mine")


def move_it_beside_another_copy(book: Book, copy: str, source: str) -> None:
    book.share(source, "mine")
    book.acting_as(BOB).move(copy, "mine")


def undelete_it_beside_another_copy(book: Book, copy: str, source: str) -> None:
    book.unshare(copy)
    book.share(source, "team")
    book.acting_as(BOB).undelete(copy)


def detach_it(book: Book, copy: str, _source: str) -> None:
    book.acting_as(BOB).detach(copy)


WITH_A_TIE = (undelete_it, move_it)
WITHOUT_ONE = (move_it_beside_another_copy, undelete_it_beside_another_copy, detach_it)


def doubted_copy(book: Book) -> tuple[str, str]:
    """Return a reflection whose ground was superseded, and its copy in `team`."""
    book.grant(BOB, "team", "writer")
    book.grant(BOB, "mine", "admin")
    ground = book.remember("oil costs five", space="vault").id
    thought = book.reflect("a zebra needs oil", [ground], space="vault").id
    copy = book.share(thought, "team").id
    book.supersede(ground, by=book.remember("oil costs nine", space="vault").id)
    return thought, copy


def is_recalled(book: Book, memory: str) -> bool:
    return memory in {hit.memory for name in ("team", "mine") for hit in book.recall("zebra", spaces=[name]).hits}


@pytest.mark.promise("copies.no-way-round")
@pytest.mark.parametrize("way", [*WITH_A_TIE, *WITHOUT_ONE])
def test_no_way_around_the_source_makes_a_retracted_copy_hold_again(book: Book, way):
    book.create_space("mine")
    thought, copy = doubted_copy(book)
    book.triage(thought, "retract", note="only for vault")
    way(book, copy, thought)
    marks = book.acting_as(BOB).get(copy).marks
    assert {"retracted", "expired", "ended"} <= set(marks)
    assert not is_recalled(book, copy)
    assert "only for vault" not in repr(book.acting_as(BOB).get(copy))


@pytest.mark.parametrize("way", [undelete_it, move_it, detach_it])
def test_a_copy_of_a_retracted_and_deleted_source_stays_retracted_too(book: Book, way):
    book.create_space("mine")
    thought, copy = doubted_copy(book)
    book.triage(thought, "retract")
    book.delete(thought)
    way(book, copy, thought)
    assert "retracted" in book.get(copy).marks
    assert not is_recalled(book, copy)


@pytest.mark.promise("copies.no-way-round")
@pytest.mark.parametrize("way", WITHOUT_ONE)
def test_a_retraction_that_a_detached_copy_keeps_can_be_taken_back(book: Book, way):
    book.create_space("mine")
    thought, copy = doubted_copy(book)
    book.triage(thought, "retract")
    way(book, copy, thought)
    assert book.get(copy).freshness == "detached"
    book.acting_as(BOB).reinstate(copy)
    assert book.get(copy).marks == ()
    assert is_recalled(book, copy)
    assert "retracted" in book.get(thought).marks


@pytest.mark.promise("copies.no-way-round")
@pytest.mark.parametrize("way", WITHOUT_ONE)
def test_a_detached_copy_keeps_a_retraction_although_it_was_kept_itself_before(book: Book, way):
    book.create_space("mine")
    thought, copy = doubted_copy(book)
    book.triage(copy, "keep")
    book.triage(thought, "retract")
    way(book, copy, thought)
    assert {"retracted", "expired", "ended"} <= set(book.get(copy).marks)
    book.acting_as(BOB).reinstate(copy)
    assert book.get(copy).marks == ()
    assert is_recalled(book, copy)


@pytest.mark.promise("copies.no-way-round")
@pytest.mark.parametrize("way", WITH_A_TIE)
def test_a_copy_that_follows_no_more_is_suspect_and_superseded_with_its_source(book: Book, way):
    book.create_space("mine")
    thought, copy = doubted_copy(book)
    way(book, copy, thought)
    assert "suspect" in book.get(copy).marks
    book.supersede(thought, by=book.remember("a zebra needs hay", space="vault").id)
    assert "superseded" in book.get(copy).marks
    assert not is_recalled(book, copy)


def test_a_time_that_has_not_come_yet_does_not_stay_with_a_detached_copy(book: Book, source: str):
    copy = book.share(source, "team").id
    book.edit(source, expires="in 30 days")
    book.detach(copy)
    assert (book.get(copy).expires, book.get(copy).marks) == (None, ())


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


# --- guesses


def guessed_copy(book: Book, guess: str) -> tuple[str, str]:
    """Return a reflection on a source that Bob may no longer read, and its copy, which Bob has edited to a guess."""
    bob = book.acting_as(BOB)
    source = book.remember("no code yet", title="Code", space="team").id
    thought = bob.reflect("the code is short", [source], space="team").id
    book.move(source, "vault")
    copy = book.share(source, "team").id
    bob.edit(copy, text="ours")
    book.edit(source, text="4711")
    bob.edit(copy, text=guess)
    return thought, copy


def adopt_it(bob: Book, _thought: str, copy: str) -> object:
    with pytest.raises(NotAllowed):
        bob.adopt(copy)
    return bob.get(copy).freshness


def make_it_live(bob: Book, _thought: str, copy: str) -> object:
    bob.set_refresh(copy, "lazy")
    bob.set_refresh(copy, "live")
    return bob.get(copy).freshness, bob.get(copy).version


def open_a_copy_of_it(bob: Book, _thought: str, copy: str) -> object:
    guess = bob.get(copy).text
    bob.edit(copy, text="no guess")
    below = bob.share(copy, "mine", refresh="lazy").id
    bob.edit(copy, text=guess)
    assert bob.get(below).text == guess
    return bob.get(copy).freshness, bob.get(copy).version


def keep_what_depends_on_it(bob: Book, thought: str, copy: str) -> object:
    assert "source_changed" in bob.get(thought).marks
    with pytest.raises(Conflict):
        bob.triage(thought, "keep")
    return bob.get(thought).marks, bob.get(copy).version


@pytest.mark.promise("copies.guesses")
@pytest.mark.parametrize("way", [adopt_it, make_it_live, open_a_copy_of_it, keep_what_depends_on_it])
def test_no_verb_tells_whether_a_guess_at_the_words_of_an_unreadable_source_is_right(book: Book, way):
    for space in ("vault", "team", "mine"):
        book.create_space(space)
    book.grant(BOB, "team", "writer")
    book.grant(BOB, "mine", "writer")
    bob = book.acting_as(BOB)
    answers = []
    for guess in ("1111", "4711"):
        thought, copy = guessed_copy(book, guess)
        answers.append(way(bob, thought, copy))
    assert answers[0] == answers[1]


@pytest.mark.promise("copies.guesses")
def test_no_hash_tells_whether_a_guess_at_the_words_of_an_unreadable_source_is_right(book: Book, source: str):
    copy, bob = book.share(source, "team", refresh="snapshot").id, book.acting_as(BOB)
    book.edit(source, text="salary 5000")
    thought = book.remember("it is enough", space="team", links=[("derived_from", source)]).id
    taken = {link.target_hash for link in stored(book, thought).links}
    for change in (lambda: None, lambda: bob.detach(copy)):
        change()
        for guess in ("salary 4999", "salary 5000"):
            bob.edit(copy, text=guess)
            answers = [bob.get(copy), bob.list(), bob.links(copy), bob.links(thought), bob.lineage(copy)]
            assert not taken & set(re.findall("[0-9a-f]{16}", encoding.dumps(answers).decode()))


@pytest.mark.promise("copies.guesses")
def test_a_copy_of_an_edited_copy_does_not_tell_that_it_guesses_the_words_of_its_source(book: Book, source: str):
    copy, bob = book.share(source, "team").id, book.acting_as(BOB)
    bob.edit(copy, text="ours")
    book.edit(source, text="salary 5000")
    book.remember("nobody has a salary", space="vault", replaces=source)
    below = bob.share(copy, "mine").id
    answers = set()
    for guess in ("salary 4999", "salary 5000"):
        bob.edit(copy, text=guess)
        answers.add((bob.get(below).freshness, bob.get(below).marks, bob.copies(copy)[0].freshness))
    assert answers == {("fresh", ("superseded",), "fresh")}


@pytest.mark.promise("copies.guesses")
@pytest.mark.parametrize("refresh", ["live", "lazy"])
def test_a_copy_that_was_edited_to_a_guess_before_its_source_does_not_follow_it_again(book: Book, refresh):
    for space in ("vault", "team"):
        book.create_space(space)
    book.grant(BOB, "team", "writer")
    bob = book.acting_as(BOB)
    answers = []
    for guess in ("salary 4999", "salary 5000"):
        source = book.remember("salary 4000", title="Salary", space="vault").id
        copy = book.share(source, "team", refresh=refresh).id
        bob.edit(copy, text=guess)
        book.edit(source, text="salary 5000")
        answers.append((bob.get(copy).freshness, bob.get(copy).version))
        book.edit(source, text="salary 6000")
        assert bob.get(copy).text == guess
    assert answers == [("diverged", 2)] * 2


@pytest.mark.promise("copies.guesses")
def test_a_decision_confirms_only_the_grounds_that_its_maker_may_read(book: Book):
    for space in ("vault", "team"):
        book.create_space(space)
    book.grant(BOB, "team", "writer")
    bob = book.acting_as(BOB)
    hidden, seen = (book.remember(f"{word} costs five", space="team").id for word in ("oil", "hay"))
    thought = bob.reflect("zebras are dear", [hidden, seen], space="team").id
    book.move(hidden, "vault")
    before = {link.target: link.target_hash for link in stored(book, thought).links}
    for source in (hidden, seen):
        book.edit(source, text="it costs nine")
    bob.triage(thought, "keep")
    after = {link.target: link.target_hash for link in stored(book, thought).links}
    assert after[hidden] == before[hidden]
    assert after[seen] != before[seen]
    assert "source_changed" in bob.get(thought).marks
    book.triage(thought, "keep")
    assert book.get(thought).marks == ()

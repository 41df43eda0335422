"""Endings: a copy ends with its source, and a superseded memory is recalled again when its successor ends."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from commonbook.engines.process import SystemClock
from commonbook.errors import Conflict, NotAllowed
from commonbook.service.book import Book
from commonbook.values.memory import Draft

MODES = ("live", "lazy", "snapshot")


def recalled(book: Book, query: str = "oil", **options: Any) -> set[str]:
    """Recall in each space by itself, and return the memories of all hits."""
    names = [space.name for space in book.spaces()]
    return {hit.memory for name in names for hit in book.recall(query, spaces=[name], **options).hits}


@pytest.fixture
def later(monkeypatch):
    """Let time pass for every clock."""
    passed = timedelta()
    now = SystemClock.now

    def sleep(by: timedelta) -> None:
        nonlocal passed
        passed += by

    monkeypatch.setattr(SystemClock, "now", lambda clock: now(clock) + passed)
    return sleep


@pytest.fixture(params=["pending", "indexed"])
def settle(request, book):
    """Have changes searched directly, or written into the index before each recall."""
    return (lambda: book.reindex()) if request.param == "indexed" else (lambda: None)


# --- copies


@pytest.mark.promise("copies.no-better")
@pytest.mark.parametrize("mode", MODES)
def test_a_decision_about_a_copy_ends_its_doubt_and_no_other(book, mode):
    grounds = [book.remember(f"a litre of oil costs {price}", space="facts").id for price in ("five", "six")]
    thought = book.reflect("oil is cheap", grounds, space="a").id
    copy, other = (book.share(thought, space, refresh=mode).id for space in ("team", "others"))
    new = book.remember("a litre of fat costs seven", space="facts").id
    book.supersede(grounds[0], by=new)
    book.triage(copy, "keep", note="we looked")
    assert [("suspect" in book.get(one).marks) for one in (thought, copy, other)] == [True, False, True]
    book.supersede(grounds[1], by=new)
    assert [("suspect" in book.get(one).marks) for one in (thought, copy, other)] == [True, True, True]
    book.triage(thought, "keep")
    assert [("suspect" in book.get(one).marks) for one in (thought, copy, other)] == [False, False, False]


@pytest.mark.promise("copies.no-better")
@pytest.mark.parametrize("mode", MODES)
def test_a_retraction_reaches_every_copy_along_the_chain(book, settle, mode):
    ground = book.remember("a litre of oil costs five", space="facts").id
    thought = book.reflect("oil is cheap", [ground], space="a").id
    copy = book.share(thought, "team", refresh=mode).id
    below = book.share(copy, "others", refresh=mode).id
    settle()
    book.supersede(ground, by=book.remember("a litre of fat costs seven", space="facts").id)
    assert all("suspect" in book.get(one).marks for one in (thought, copy, below))
    settle()
    assert {thought, copy, below} <= recalled(book)
    before = book.get(copy)
    book.triage(thought, "retract")
    settle()
    for one in (thought, copy, below):
        assert {"retracted", "expired", "ended"} <= set(book.get(one).marks)
    assert not recalled(book) & {thought, copy, below}
    assert {thought, copy, below} <= recalled(book, include=["expired"])
    after = book.get(copy)
    assert (after.text, after.tags, after.expires, after.version) == (
        before.text, before.tags, None, before.version,
    )  # fmt: skip
    listed = {one.id: one.marks for one in book.list(limit=50).items}
    assert "expired" in listed[copy]


@pytest.mark.promise("copies.no-better")
@pytest.mark.parametrize("mode", MODES)
def test_a_copy_of_a_superseded_memory_is_superseded_until_it_is_reinstated(book, settle, mode):
    old = book.remember("oil costs five", space="facts").id
    copy = book.share(old, "team", refresh=mode).id
    below = book.share(copy, "others", refresh=mode).id
    settle()
    new = book.remember("fat costs seven", space="facts").id
    book.supersede(old, by=new)
    settle()
    for one in (old, copy, below):
        found = book.get(one)
        assert ("superseded" in found.marks, found.superseded_by) == (True, new)
    assert not recalled(book) & {old, copy, below}
    assert {old, copy, below} <= recalled(book, include=["superseded"])
    book.reinstate(old)
    settle()
    assert {old, copy, below} <= recalled(book)


@pytest.mark.promise("copies.no-better")
def test_a_copy_that_supersedes_its_own_source_holds_in_its_place(book, settle):
    old = book.remember("oil costs five", space="facts").id
    copy = book.share(old, "team").id
    below, beside = book.share(copy, "others").id, book.share(old, "beside").id
    settle()
    book.edit(copy, text="oil costs seven")
    book.supersede(old, by=copy)
    settle()
    assert recalled(book) == {copy, below}
    assert {id_: (book.get(id_).freshness, book.get(id_).superseded_by) for id_ in (copy, below, beside)} == {
        copy: ("diverged", None),
        below: ("fresh", None),
        beside: ("source_superseded", copy),
    }
    book.adopt(copy)
    assert (book.get(copy).freshness, book.get(copy).marks) == ("fresh", ())
    book.delete(old)
    settle()
    assert {copy, below} <= recalled(book)


@pytest.mark.promise("copies.no-better")
def test_a_copy_expires_with_its_source_as_time_passes_and_a_detached_one_does_not(book, settle, later):
    source = book.remember("oil costs five", space="facts").id
    copy, detached = (book.share(source, space).id for space in ("team", "others"))
    book.detach(detached)
    book.edit(source, expires=SystemClock().now() + timedelta(days=1))
    settle()
    assert recalled(book) == {source, copy, detached}
    later(timedelta(days=2))
    assert recalled(book) == {detached}
    assert "expired" in book.get(copy).marks
    assert book.get(detached).marks == ()
    book.edit(source, expires=None)
    settle()
    assert recalled(book) == {source, copy, detached}


@pytest.mark.promise("copies.no-better")
def test_more_copies_than_a_job_would_update_at_once_are_left_out_at_once(book):
    source = book.remember("oil costs five", space="facts").id
    copies = {book.share(source, f"team{at}").id for at in range(130)}
    assert recalled(book) == {source, *copies}
    book.edit(source, expires=SystemClock().now() - timedelta(seconds=1))
    assert recalled(book) == set()
    assert all("expired" in one.marks for one in book.list(limit=200).items if one.id in copies)


@pytest.mark.promise("copies.no-better")
def test_a_copy_of_what_was_retracted_and_then_deleted_stays_ended(book):
    source = book.remember("oil costs five", space="facts").id
    copy = book.share(source, "team").id
    book.edit(source, expires=SystemClock().now() - timedelta(seconds=1))
    book.delete(source)
    assert "expired" in book.get(copy).marks
    assert recalled(book) == set()


# --- successors


def waiting(book: Book) -> set[tuple[str, str, bool]]:
    return {(one.dependent.id, one.invalidated.id, one.successor_ended) for one in book.inbox(limit=1000).items}


@pytest.fixture
def old(book):
    return book.remember("oil costs five", space="facts").id


@pytest.fixture
def new(book, old):
    """A memory of another space that supersedes the old one."""
    id_ = book.remember("fat costs seven", space="prices").id
    book.supersede(old, by=id_)
    return id_


def expire(book: Book, id_: str) -> None:
    book.edit(id_, expires=SystemClock().now() - timedelta(seconds=1))


def retract(book: Book, id_: str) -> None:
    ground = book.remember("they said so", space="hearsay").id
    book.link(id_, "derived_from", ground)
    book.delete(ground)
    book.triage(id_, "retract")


def delete(book: Book, id_: str) -> None:
    book.delete(id_)


@pytest.mark.promise("supersede.ended")
@pytest.mark.parametrize("end", [expire, retract, delete])
def test_what_was_superseded_is_recalled_again_and_told_when_its_successor_ends(book, settle, old, new, end):
    copy = book.share(old, "team").id
    settle()
    assert not recalled(book) & {old, copy}
    end(book, new)
    settle()
    assert recalled(book) == {old, copy}
    for one in (old, copy):
        found = book.get(one)
        assert (found.marks, found.superseded_by) == (("successor_ended",), None)
    assert waiting(book) == {(old, new, True)}
    (notice,) = book.inbox().items
    assert (notice.space, notice.depth, notice.path) == ("facts", 0, (new, old))


@pytest.mark.parametrize("verdict", ["keep", "retract", "supersede", "dismiss"])
def test_every_decision_about_an_ended_successor_removes_the_notice(book, old, new, verdict):
    book.delete(new)
    other = book.remember("lard costs six", space="facts").id if verdict == "supersede" else None
    (notice,) = book.inbox().items
    assert book.triage(notice.id, verdict, by=other).resolved == 1
    assert waiting(book) == set()
    assert "successor_ended" not in book.get(old).marks
    assert (old in recalled(book)) == (verdict in {"keep", "dismiss"})
    assert [one.key for one in book.get(old).decisions] == [(new, "ended")]


@pytest.mark.promise("supersede.ended")
def test_all_is_as_before_when_the_successor_comes_back(book, settle, old, new):
    book.edit(new, expires=SystemClock().now() - timedelta(seconds=1))
    settle()
    assert (recalled(book), waiting(book)) == ({old}, {(old, new, True)})
    book.edit(new, expires=None)
    settle()
    assert (recalled(book), waiting(book)) == (set(), set())
    assert (book.get(old).marks, book.get(old).superseded_by) == (("superseded",), new)


@pytest.mark.promise("supersede.ended")
def test_a_successor_that_expires_by_time_alone_lets_the_old_memory_come_back_at_once(book, settle, later, old, new):
    book.edit(new, expires=SystemClock().now() + timedelta(days=3))
    settle()
    assert recalled(book) == set()
    book.work()
    later(timedelta(days=4))
    assert recalled(book) == {old}
    assert book.get(old).marks == ("successor_ended",)
    book.work()
    assert waiting(book) == {(old, new, True)}
    assert book.work() == 0


@pytest.mark.promise("supersede.ended")
def test_behind_an_ended_successor_its_own_successor_counts(book, settle, old, new):
    newest = book.remember("lard costs nine", space="prices").id
    book.supersede(new, by=newest)
    book.delete(new)
    settle()
    assert (recalled(book), waiting(book)) == (set(), set())
    assert book.get(old).superseded_by == newest
    book.edit(newest, expires=SystemClock().now() - timedelta(seconds=1))
    settle()
    assert (recalled(book), waiting(book)) == ({old}, {(old, new, True)})
    book.edit(newest, expires=None)
    settle()
    assert (recalled(book), waiting(book)) == (set(), set())


@pytest.fixture
def newest(book, old, new):
    """A memory that supersedes the successor of `old`, which was deleted after that."""
    newest = book.remember("lard costs nine", space="prices", replaces=new).id
    book.delete(new)
    return newest


@pytest.mark.promise("supersede.ended")
def test_dependents_stay_suspect_while_a_memory_stands_behind_a_deleted_successor(book, old, new):
    thought = book.reflect("oil is dear", [old], space="facts").id
    newest = book.remember("lard costs nine", space="prices", replaces=new).id
    assert waiting(book) == {(thought, old, False)}
    book.delete(new)
    assert book.get(old).superseded_by == newest
    assert "suspect" in book.get(thought).marks
    assert waiting(book) == {(thought, old, False)}
    book.delete(newest)
    assert book.get(thought).marks == ()
    assert waiting(book) == {(old, new, True)}


def test_a_new_dependent_of_what_is_superseded_behind_a_deleted_successor_is_told(book, old, newest):
    thought = book.reflect("oil is dear", [old], space="facts").id
    assert "suspect" in book.get(thought).marks
    assert waiting(book) == {(thought, old, False)}
    book.triage(thought, "keep")
    book.edit(newest, text="lard costs ten")
    assert (book.get(thought).marks, book.inbox().items) == ((), ())


@pytest.mark.promise("supersede.reinstate")
def test_what_is_reinstated_is_not_asked_about_because_another_successor_was_deleted(book):
    old, deleted, newer = (book.remember(text).id for text in ("old", "deleted later", "newer"))
    book.supersede(old, deleted)
    book.supersede(old, newer)
    book.delete(deleted)
    book.reinstate(old)
    assert (book.get(old).marks, book.inbox().items) == ((), ())


@pytest.mark.promise("supersede.ended")
def test_what_is_superseded_behind_a_deleted_successor_can_be_reinstated(book, settle, old, new, newest):
    thought = book.reflect("oil is dear", [old], space="facts").id
    settle()
    book.reinstate(old)
    settle()
    assert (book.get(old).marks, book.get(thought).marks, book.inbox().items) == ((), (), ())
    assert old in recalled(book)
    assert new not in {one.id for one in book.list().items}
    assert "restore" not in {one.action for one in book.log(space="prices")}
    book.delete(newest)
    assert book.get(old).marks == ()
    with pytest.raises(Conflict, match="is not superseded"):
        book.reinstate(old)


@pytest.mark.promise("supersede.reinstate")
@pytest.mark.parametrize("end", ["delete", "expire"])
def test_the_successor_that_is_named_can_be_named_to_reinstate(book, end):
    old = book.remember("oil costs five", space="facts").id
    ended = book.remember("oil costs six", space="facts", replaces=old).id
    newest = book.remember("oil costs seven", space="facts", replaces=ended).id
    if end == "delete":
        book.delete(ended)
    else:
        book.edit(ended, expires=SystemClock().now() - timedelta(seconds=1))
    assert book.get(old).superseded_by == newest
    with pytest.raises(Conflict, match="is not superseded"):
        book.reinstate(old, by=book.remember("salt costs one", space="facts").id)
    book.reinstate(old, by=newest)
    assert (book.get(old).marks, waiting(book)) == ((), set())
    assert [link.target for link in book.get(newest).links] == [ended]


def test_a_successor_that_is_a_copy_ends_with_its_source(book, settle, old):
    source = book.remember("fat costs seven", space="prices").id
    copy = book.share(source, "facts").id
    book.supersede(old, by=copy)
    settle()
    assert recalled(book) == set()
    book.edit(source, expires=SystemClock().now() - timedelta(seconds=1))
    settle()
    assert (recalled(book), waiting(book)) == ({old}, {(old, copy, True)})


def test_with_two_successors_one_is_enough(book, old, new):
    other = book.remember("lard costs six", space="facts").id
    book.supersede(old, by=other)
    book.delete(new)
    assert (recalled(book), waiting(book), book.get(old).superseded_by) == (set(), set(), other)
    book.delete(other)
    assert (recalled(book), waiting(book)) == ({old}, {(old, new, True), (old, other, True)})


def test_readers_of_the_old_memory_are_told_and_learn_only_the_id_of_its_successor(book, old, new):
    book.grant("user:bob", "facts", "reader")
    book.delete(new)
    (notice,) = book.acting_as("user:bob").inbox().items
    assert (notice.dependent.id, notice.invalidated.id, notice.invalidated.title) == (old, new, None)


@pytest.mark.promise("recall.ended")
def test_a_memory_superseded_from_an_unreadable_space_is_marked_and_its_successor_is_not_named(book, old, new):
    book.grant("user:bob", "facts", "reader")
    bob = book.acting_as("user:bob")
    assert (bob.get(old).marks, bob.get(old).superseded_by) == (("superseded",), None)
    assert book.get(old).superseded_by == new
    assert bob.recall("oil", spaces=["facts"]).hits == ()


# --- retractions


def retracted_thought(book: Book) -> tuple[str, str, str, str]:
    """Return a superseded memory, its successor, a reflection on it that was retracted, and a copy of that."""
    ground, new = (book.remember(text, space="facts").id for text in ("a litre costs five", "a litre costs seven"))
    thought = book.reflect("oil is cheap", [ground], space="a").id
    copy = book.share(thought, "team").id
    book.supersede(ground, by=new)
    book.triage(thought, "retract", note="no longer")
    return ground, new, thought, copy


@pytest.mark.promise("supersede.retracted")
def test_a_retraction_is_told_from_a_plain_expiry_and_can_be_taken_back(book, settle):
    _, _, thought, copy = retracted_thought(book)
    plain = book.remember("oil is thin", space="a").id
    expire(book, plain)
    settle()
    assert "retracted" in book.get(thought).marks
    assert book.get(plain).marks == ("expired",)
    assert recalled(book) == set()
    book.reinstate(thought)
    settle()
    found = book.get(thought)
    assert (found.marks, found.expires, found.valid_until) == (("suspect",), None, None)
    assert [one.dependent.id for one in book.inbox().items] == [thought]
    assert [(one.verdict, one.by) for one in found.decisions] == [("reinstate", "user:local")]
    assert recalled(book) == {thought, copy}
    assert {one.action for one in book.log(space="a", limit=100)} >= {"triage", "reinstate"}
    book.triage(thought, "keep")
    assert (book.get(thought).marks, book.inbox().items) == ((), ())


@pytest.mark.promise("supersede.retracted")
@pytest.mark.parametrize("times", [{"expires": "in 30 days"}, {"expires": None}, {"valid_until": None}])
def test_an_edit_of_its_times_does_not_take_a_retraction_back(book, settle, times):
    _, _, thought, _ = retracted_thought(book)
    with pytest.raises(Conflict, match="was retracted") as refused:
        book.edit(thought, **times)
    assert "reinstate" in refused.value.fix
    book.edit(thought, text="oil is very cheap", tags=["prices"])
    settle()
    assert ("retracted" in book.get(thought).marks, recalled(book)) == (True, set())
    book.reinstate(thought)
    book.edit(thought, expires="in 30 days")
    settle()
    assert "retracted" not in book.get(thought).marks
    assert thought in recalled(book)


@pytest.mark.promise("supersede.retracted")
def test_a_hand_edit_of_its_times_does_not_take_a_retraction_back(book, home):
    _, _, thought, _ = retracted_thought(book)
    path = home / book.get(thought).path
    kept = [line for line in path.read_text().splitlines() if not line.startswith(("expires:", "valid_until:"))]
    path.write_text("\n".join(kept).replace("oil is cheap", "oil is very cheap") + "\n")
    book.sync()
    found = book.get(thought)
    assert (found.text, "retracted" in found.marks, recalled(book)) == ("oil is very cheap", True, set())
    assert "\nexpires: " in path.read_text()
    later = path.read_text().replace("\nexpires: 20", "\nexpires: 21")
    path.write_text(later)
    book.sync()
    assert ("retracted" in book.get(thought).marks, recalled(book)) == (True, set())
    assert path.read_text() != later


def test_a_retraction_that_is_taken_back_when_its_cause_is_gone_leaves_no_doubt(book):
    ground, _, thought, _ = retracted_thought(book)
    book.reinstate(ground)
    book.reinstate(thought)
    assert (book.get(thought).marks, book.inbox().items) == ((), ())
    with pytest.raises(Conflict, match="not superseded or retracted"):
        book.reinstate(thought)


def test_taking_a_retraction_back_needs_the_right_to_write(book):
    _, _, thought, _ = retracted_thought(book)
    book.grant("user:bob", "a", "reader")
    with pytest.raises(NotAllowed):
        book.acting_as("user:bob").reinstate(thought)
    assert "retracted" in book.get(thought).marks


# --- the inbox


@pytest.mark.promise("notices.inbox")
def test_a_page_of_the_inbox_is_filled_however_many_expired_notices_lie_before(book, later):
    first, second, new = (book.remember(f"ground {at}", space="facts").id for at in range(3))
    thought = book.reflect("the first thought", [first], space="a").id
    book.supersede(first, by=new)
    book.reinstate(first)
    book.remember_many([Draft(f"thought {at}", space="a", links=(("derived_from", second),)) for at in range(205)])
    book.supersede(second, by=new)
    later(timedelta(days=10))
    book.supersede(first, by=new)
    page = book.inbox()
    assert ([one.dependent.id for one in page.items], page.next) == ([thought], None)
    page, ids = book.inbox(expired=True), []
    while page.next:
        ids += [one.dependent.id for one in page.items]
        page = book.inbox(expired=True, after=page.next)
    ids += [one.dependent.id for one in page.items]
    assert (len(ids), len(set(ids)), ids[-1]) == (206, 206, thought)

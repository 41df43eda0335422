"""Reflections and notices: each dependent of an invalidated memory gets one notice, and is suspect until a decision."""

from __future__ import annotations

import json
import re
from datetime import timedelta

import pytest

from commonbook.errors import BadInput, Conflict, NotAllowed, NotFound
from commonbook.values.memory import Filter

ALICE, BOB = "user:alice", "user:bob"


@pytest.fixture
def old(book):
    return book.remember("a litre of oil costs five", space="facts").id


@pytest.fixture
def new(book):
    return book.remember("a litre of oil costs seven", space="facts").id


def inbox_rows(book, **options):
    """Return the inbox as a set: dependent, invalidated and invalidating memory, and depth."""
    items = book.inbox(limit=1000, **options).items
    found = [
        (one.dependent.id, one.invalidated.id, one.invalidating.id if one.invalidating else None, one.depth)
        for one in items
    ]
    assert len(found) == len(set(found))
    return set(found)


def notified(book, space):
    """Return the log entries of new notices in a space, with their payloads."""
    entries = book.log(space=f"{space}/_invalidations", limit=1000)
    return [(json.loads(one.payload), one) for one in entries if one.action == "notify"]


def suspects(book):
    return {one.id for one in book.list(limit=1000).items if "suspect" in one.marks}


# --- which memories get notices


@pytest.mark.promise("notices.once", "notices.logged")
def test_one_notice_for_each_who_reflects_on_it_and_none_for_who_is_merely_related(book, folder, old, new):
    first = book.reflect("oil is cheap", [old], space="a").id
    second = book.reflect("we can fry everything", [old], space="b").id
    related = book.remember("the kitchen has a stove", space="a", links=[("related_to", old)]).id
    report = book.supersede(old, new, reason="the new price list")
    assert (report.new, report.notified) == (True, 2)
    assert inbox_rows(book) == {(first, old, new, 1), (second, old, new, 1)}
    assert suspects(book) == {first, second}
    assert book.get(related).marks == ()
    for space, dependent in (("a", first), ("b", second)):
        (notice,) = book.list(Filter(space=f"{space}/_invalidations")).items
        assert notice.title == f"invalidation: {old} -> {dependent}"
        assert (notice.kind, notice.tags) == ("notice", ("_invalidation",))
        assert notice.expires - notice.created == timedelta(days=7)
        text = (folder() / notice.path).read_text(encoding="utf-8")
        fields = dict(re.findall(r"^(\w+_id|timestamp): (\S+)$", text, re.MULTILINE))
        assert fields.pop("timestamp")
        assert fields == {"dependent_id": dependent, "invalidated_id": old, "invalidating_id": new}
        ((payload, entry),) = notified(book, space)
        assert (payload["dependent"], payload["invalidated"], payload["invalidating"]) == (dependent, old, new)
        assert entry.actor == "user:local"
    assert book.verify_log().ok


def test_dependents_themselves_are_not_changed(book, old, new):
    dependent = book.reflect("oil is cheap", [old], space="a").id
    before = book.get(dependent)
    book.supersede(old, new)
    after = book.get(dependent)
    assert (after.version, after.updated, after.path) == (before.version, before.updated, before.path)


@pytest.mark.promise("notices.repeats")
def test_doing_it_again_in_whatever_way_changes_nothing(book, old, new):
    for space in ("a", "b"):
        book.reflect("oil is cheap", [old], space=space)
    book.supersede(old, new, reason="the new price list")
    before, entries = inbox_rows(book), book.status().log_entries
    for _ in range(2):
        assert not book.supersede(old, new).new
        book.link(new, "supersedes", old)
    book.supersede(old, new, reason="another reason")
    assert inbox_rows(book) == before
    assert book.status().log_entries == entries
    assert len(notified(book, "a")) == len(notified(book, "b")) == 1


def test_without_dependents_there_is_no_notice_and_no_space_for_any(book, old, new):
    assert book.supersede(old, new).notified == 0
    assert [space.name for space in book.spaces()] == ["facts"]


@pytest.mark.promise("notices.once")
def test_everybody_further_down_is_told_once_with_depth_and_path(book, old, new):
    middle = book.reflect("oil is cheap", [old], space="a").id
    other = book.remember("prices are low", space="b", links=[("derived_from", old)]).id
    end = book.reflect("let us fry", [middle, other], space="c").id
    last = book.remember("we fry on Friday", space="c", links=[("derived_from", end)]).id
    assert book.supersede(old, new).notified == 4
    assert inbox_rows(book) == {(middle, old, new, 1), (other, old, new, 1), (end, old, new, 2), (last, old, new, 3)}
    (found,) = [one for one in book.inbox().items if one.dependent.id == last]
    assert found.path in {(old, middle, end, last), (old, other, end, last)}
    shown = {one.id: (one.depth, one.suspect) for one in book.dependents(old)}
    assert shown == {middle: (1, True), other: (1, True), end: (2, True), last: (3, True)}


def test_a_circle_made_by_hand_has_an_end(book, home, old, new):
    first = book.remember("oil is cheap", space="a", links=[("derived_from", old)])
    second = book.remember("frying is cheap", space="a", links=[("derived_from", first.id)]).id
    path = home / first.path
    path.write_text(path.read_text().replace("links:\n", f"links:\n  - derived_from {second}\n"))
    book.sync()
    assert {link.target for link in book.get(first.id).links} == {old, second}
    book.supersede(old, new)
    assert inbox_rows(book) == {(first.id, old, new, 1), (second, old, new, 2)}
    book.delete(second)
    assert inbox_rows(book) == {(first.id, old, new, 1), (first.id, second, None, 1)}


@pytest.mark.promise("notices.once")
def test_a_reflection_on_a_copy_gets_a_notice_too(book, old, new):
    copy = book.share(old, "team").id
    below = book.share(copy, "team/deep").id
    on_copy = book.reflect("oil is cheap", [copy], space="a").id
    on_below = book.reflect("oil is really cheap", [below], space="a").id
    book.supersede(old, new)
    assert inbox_rows(book) == {(on_copy, old, new, 1), (on_below, old, new, 1)}
    assert {one.id for one in book.dependents(old)} == {on_copy, on_below}
    assert "suspect" not in book.get(copy).marks, "a copy says that its source is superseded"
    assert book.get(copy).freshness == "source_superseded"


def test_a_copy_of_a_reflection_in_doubt_is_in_doubt_until_somebody_decides_there_or_here(book, old, new):
    reflection = book.reflect("oil is cheap", [old], space="a").id
    copy, other = (book.share(reflection, space).id for space in ("team", "others"))
    on_copy = book.reflect("we can fry", [copy], space="b").id
    book.supersede(old, new)
    assert inbox_rows(book) == {(reflection, old, new, 1), (on_copy, old, new, 2)}
    assert suspects(book) == {reflection, copy, other, on_copy}
    book.triage(other, "keep", note="here it holds")
    assert suspects(book) == {reflection, copy, on_copy}
    book.triage(reflection, "keep")
    assert suspects(book) == {on_copy}


@pytest.mark.promise("notices.once")
def test_deleting_what_others_were_reasoned_from_tells_them(book, old):
    dependent = book.reflect("oil is cheap", [old], space="a").id
    copy = book.share(old, "team").id
    on_copy = book.reflect("oil is so cheap", [copy], space="a").id
    book.delete(old)
    assert inbox_rows(book) == {(dependent, old, None, 1), (on_copy, old, None, 1)}
    book.unshare(copy)
    assert inbox_rows(book) == {(dependent, old, None, 1), (on_copy, old, None, 1), (on_copy, copy, None, 1)}


def test_what_replaces_another_goes_the_same_way(book, old):
    dependent = book.reflect("oil is cheap", [old], space="a").id
    new = book.remember("a litre of oil costs nine", space="facts", replaces=old).id
    assert inbox_rows(book) == {(dependent, old, new, 1)}
    linked = book.remember("a litre of oil costs ten", space="facts").id
    book.link(linked, "supersedes", old)
    assert inbox_rows(book) == {(dependent, old, new, 1), (dependent, old, linked, 1)}


def test_the_successor_has_nothing_to_fear_and_nor_has_who_rests_on_it_alone(book, old):
    successor = book.reflect("a litre of oil costs seven, says the new list", [old], space="facts").id
    book.reflect("oil is dear", [successor], space="a")
    on_both = book.reflect("oil was cheap once", [successor, old], space="a").id
    book.supersede(old, successor)
    assert inbox_rows(book) == {(on_both, old, successor, 1)}
    assert suspects(book) == {on_both}


@pytest.mark.promise("supersede.edited")
def test_an_edit_of_what_was_reflected_on_marks_without_a_notice(book, old):
    dependent = book.reflect("oil is cheap", [old], space="a").id
    further = book.reflect("we can fry", [dependent], space="a").id
    book.edit(old, tags=["oil"])
    assert book.get(dependent).marks == ()
    book.edit(old, text="a litre of oil costs six")
    assert book.get(dependent).marks == ("source_changed",)
    assert book.get(further).marks == ()
    assert inbox_rows(book) == set()
    assert [one.source_changed for one in book.dependents(old)] == [True, False]
    book.triage(dependent, "keep", note="six is cheap too")
    assert book.get(dependent).marks == ()
    with pytest.raises(Conflict):
        book.triage(dependent, "keep")


# --- late dependents, and withdrawn notices


@pytest.mark.promise("notices.repeats")
def test_a_link_to_a_superseded_memory_creates_the_notice_at_once(book, old, new):
    book.supersede(old, new)
    dependent = book.reflect("oil is cheap", [old], space="a").id
    assert inbox_rows(book) == {(dependent, old, new, 1)}
    chained = book.remember("we can fry", space="b").id
    book.link(chained, "derived_from", dependent)
    assert inbox_rows(book) == {(dependent, old, new, 1), (chained, old, new, 2)}
    book.unlink(chained, "derived_from", dependent)
    assert inbox_rows(book) == {(dependent, old, new, 1)}
    assert suspects(book) == {dependent}


def test_a_link_made_by_hand_is_as_good(book, home, old, new):
    memory = book.remember("oil is cheap", space="a")
    path = home / memory.path
    content = path.read_text()
    path.write_text(content.replace("\n---\n\n", f"\nlinks:\n  - reflects_on {old}\n---\n\n"))
    book.sync()
    book.supersede(old, new)
    assert inbox_rows(book) == {(memory.id, old, new, 1)}
    path.write_text(content)
    book.sync()
    assert inbox_rows(book) == set()
    assert book.get(memory.id).marks == ()


def test_moving_a_dependent_takes_its_notices_along(book, old, new):
    dependent = book.reflect("oil is cheap", [old], space="a").id
    book.supersede(old, new)
    book.grant(ALICE, "a", "reader")
    book.grant(BOB, "b", "reader")
    assert (len(inbox_rows(book.acting_as(ALICE))), len(inbox_rows(book.acting_as(BOB)))) == (1, 0)
    book.move(dependent, "b")
    assert (len(inbox_rows(book.acting_as(ALICE))), len(inbox_rows(book.acting_as(BOB)))) == (0, 1)
    assert book.list(Filter(space="a/_invalidations")).items == ()
    (notice,) = book.inbox().items
    with pytest.raises(BadInput):
        book.move(notice.id, "c")


def test_renaming_a_space_takes_its_notices_along(book, folder, old, new):
    dependent = book.reflect("oil is cheap", [old], space="a").id
    deep = book.reflect("oil is good", [old], space="a/" + "/".join("bcdefg")).id
    book.supersede(old, new)
    book.rename_space("a", "z")
    assert inbox_rows(book, space="z") == {(dependent, old, new, 1)}
    assert {one.dependent.id for one in book.inbox().items} == {dependent, deep}
    for notice in book.inbox().items:
        found = book.get(notice.id)
        assert found.space == f"{notice.space}/_invalidations"
        assert (folder() / found.path).exists()
        assert found.path.startswith("z/")
    book.triage(dependent, "keep")
    assert book.get(dependent).marks == ()
    assert book.verify_log().ok


def test_who_names_a_notice_by_hand_is_not_in_doubt_when_it_is_settled(book, home, old, new):
    dependent = book.reflect("oil is cheap", [old], space="a").id
    book.supersede(old, new)
    (notice,) = book.inbox().items
    (home / "a" / "odd.md").write_text(f"---\nlinks:\n  - reflects_on {notice.id}\n---\nan odd thought\n")
    book.sync()
    book.triage(dependent, "keep")
    assert (inbox_rows(book), suspects(book)) == (set(), set())


def test_a_deleted_dependent_waits_for_nobody(book, old, new):
    dependent = book.reflect("oil is cheap", [old], space="a").id
    book.supersede(old, new)
    book.delete(dependent)
    assert inbox_rows(book) == set()


# --- two at once


@pytest.mark.promise("notices.repeats")
def test_two_supersessions_of_one_memory_give_two_notices(book, old, new):
    dependent = book.reflect("oil is cheap", [old], space="a").id
    third = book.remember("a litre of oil costs eight", space="facts").id
    book.supersede(old, new)
    book.supersede(old, third)
    assert inbox_rows(book) == {(dependent, old, new, 1), (dependent, old, third, 1)}
    book.reinstate(old, by=new)
    assert inbox_rows(book) == {(dependent, old, third, 1)}
    assert suspects(book) == {dependent}


# --- permissions


@pytest.mark.promise("notices.hidden")
def test_readers_see_the_notice_and_the_superseder_learns_nothing_of_what_it_may_not_read(book, old, new):
    hidden = book.reflect("the secret of cheap oil", [old], space="secret").id
    shown = book.reflect("oil is cheap", [old], space="team").id
    through = book.reflect("we can fry", [hidden], space="team").id
    book.grant(ALICE, "facts", "writer")
    book.grant(ALICE, "team", "reader")
    book.grant(BOB, "secret", "reader")
    alice, bob = book.acting_as(ALICE), book.acting_as(BOB)
    report = alice.supersede(old, new, reason="the new price list")
    assert report.notified == 2
    assert {one[0] for one in inbox_rows(alice)} == {shown, through}
    assert {one[0] for one in inbox_rows(bob)} == {hidden}
    assert {one.id for one in alice.dependents(old)} == {shown, through}
    seen = (
        alice.dependents(old),
        alice.inbox(),
        alice.get(through).invalidations,
        alice.log(space="team/_invalidations"),
    )
    assert not [one for one in seen if hidden in str(one)]
    assert [one.path for one in alice.inbox().items if one.dependent.id == through] == [(old, None, through)]
    notices = alice.list(Filter(space="team/_invalidations")).items
    assert not [one for one in notices if hidden in one.text]
    (found,) = bob.recall("cheap oil", spaces=["secret"]).hits
    assert (found.suspect, found.parts["suspect"] < 0) == (True, True)
    (notice,) = bob.inbox().items
    assert (notice.invalidated.title, notice.reason) == (None, "the new price list"), "ids, and no titles of others"
    assert hidden not in str(alice.log(space="facts"))
    assert {one.name for one in alice.spaces()} == {"facts", "team", "team/_invalidations"}


@pytest.mark.promise("supersede.logged")
def test_superseding_without_the_right_is_refused_and_logged(book, old, new):
    dependent = book.reflect("oil is cheap", [old], space="a").id
    book.grant(ALICE, "facts", "reader")
    mine = book.remember("oil is free", space="alices").id
    book.grant(ALICE, "alices", "admin")
    with pytest.raises(NotAllowed):
        book.acting_as(ALICE).supersede(old, mine)
    with pytest.raises(NotFound):
        book.acting_as(BOB).supersede(old, mine)
    with pytest.raises(NotAllowed):
        book.acting_as(ALICE).link(mine, "supersedes", old)
    with pytest.raises(NotAllowed):
        book.acting_as(ALICE).remember("oil is free", space="alices", replaces=old)
    refused = [(one.actor, json.loads(one.payload)) for one in book.log(space="facts") if one.action == "refused"]
    assert refused == [(who, {"memory": old, "verb": "supersede"}) for who in (ALICE, BOB, ALICE, ALICE)]
    assert inbox_rows(book) == set()
    assert book.get(dependent).marks == ()
    for verb in (
        lambda: book.acting_as(ALICE).reinstate(old),
        lambda: book.acting_as(ALICE).link(mine, "supersedes", old),
        lambda: book.acting_as(ALICE).set_depth("facts", 5),
    ):
        with pytest.raises(NotAllowed):
            verb()


def test_a_depth_for_a_space_that_is_not_there_is_refused_as_such(book):
    with pytest.raises(NotFound):
        book.set_depth("nowhere", 4)
    with pytest.raises(NotAllowed):
        book.acting_as(ALICE).set_depth("nowhere", 4)
    with pytest.raises(BadInput):
        book.set_depth("No Space", 4)


def test_deciding_needs_the_right_to_write_to_the_dependent(book, old, new):
    dependent = book.reflect("oil is cheap", [old], space="a").id
    book.supersede(old, new)
    book.grant(ALICE, "a", "reader")
    (notice,) = book.inbox().items
    for verb in (
        lambda: book.acting_as(ALICE).triage(notice.id, "keep"),
        lambda: book.acting_as(ALICE).triage(dependent, "keep"),
        lambda: book.acting_as(ALICE).delete(notice.id),
        lambda: book.acting_as(BOB).triage(notice.id, "keep"),
    ):
        with pytest.raises((NotAllowed, NotFound)):
            verb()
    assert book.get(dependent).marks == ("suspect",)
    assert len(inbox_rows(book)) == 1


# --- triage and reinstating


@pytest.mark.promise("notices.decisions")
@pytest.mark.parametrize("verdict", ["keep", "retract", "supersede", "dismiss"])
def test_a_decision_ends_the_doubt_stands_in_the_file_and_is_not_asked_for_again(book, folder, old, new, verdict):
    dependent = book.reflect("oil is cheap", [old], space="a").id
    follower = book.remember("oil is dear", space="a").id
    book.supersede(old, new)
    (notice,) = book.inbox().items
    by = follower if verdict == "supersede" else None
    report = book.triage(notice.id, verdict, note='we: "checked" it', by=by)
    assert (report.id, report.verdict, report.resolved) == (dependent, verdict, 1)
    memory = book.get(dependent)
    (decision,) = memory.decisions
    assert (decision.verdict, decision.key, decision.note) == (verdict, (old, new), 'we: "checked" it')
    assert decision.by == "user:local"
    assert 'we: \\"checked\\" it' in (folder() / memory.path).read_text()
    assert "suspect" not in memory.marks
    assert inbox_rows(book) == set()
    assert ("superseded" in memory.marks) == (verdict == "supersede")
    left_out = verdict in ("retract", "supersede")
    assert (dependent in {one.id for one in book.recall("cheap oil", spaces=["a"]).hits}) != left_out
    book.reinstate(old)
    book.supersede(old, new)
    assert inbox_rows(book) == set()
    assert suspects(book) == set()
    with pytest.raises(NotFound):
        book.triage(notice.id, "keep")


@pytest.mark.promise("supersede.reinstate", "notices.logged")
def test_reinstating_withdraws_what_is_open_and_history_stays(book, old, new):
    dependent = book.reflect("oil is cheap", [old], space="a").id
    book.supersede(old, new, reason="the new price list")
    (notice,) = book.inbox().items
    book.reinstate(old)
    assert (inbox_rows(book), suspects(book)) == (set(), set())
    assert book.get(old).superseded_by is None
    assert old in {one.id for one in book.recall("litre of oil", spaces=["facts"]).hits}
    actions = [one.action for one in book.log(space="a/_invalidations")]
    assert actions == ["space.create", "notify", "withdraw"]
    with pytest.raises(Conflict):
        book.reinstate(old)
    book.supersede(old, new)
    (again,) = book.inbox().items
    assert (again.id, again.dependent.id, again.reason) == (notice.id, dependent, "")
    assert suspects(book) == {dependent}


def test_deleting_the_successor_takes_the_supersession_back(book, old, new):
    book.reflect("oil is cheap", [old], space="a")
    book.supersede(old, new)
    book.delete(new)
    assert (inbox_rows(book), suspects(book)) == ({(old, new, None, 0)}, set())


@pytest.mark.promise("notices.suspect")
def test_a_notice_whose_file_is_removed_comes_back_since_only_triage_decides(book, home, old, new):
    dependent = book.reflect("oil is cheap", [old], space="a").id
    other = book.reflect("oil is nice", [old], space="b").id
    for at in range(12):
        book.remember(f"something else {at}", space="c")
    book.supersede(old, new)
    before = inbox_rows(book)
    first, second = book.inbox().items
    with pytest.raises(BadInput, match="only a decision removes"):
        book.delete(first.id)
    (home / book.get(second.id).path).unlink()
    book.sync()
    assert (inbox_rows(book), suspects(book)) == (before, {dependent, other})
    assert (home / book.get(second.id).path).exists()
    assert [one for id_ in (dependent, other) for one in book.get(id_).decisions] == []
    for item in (first, second):
        book.triage(item.id, "keep")
    book.sync()
    assert (inbox_rows(book), suspects(book)) == (set(), set())


def test_bad_decisions_are_refused_and_change_nothing(book, old, new):
    dependent = book.reflect("oil is cheap", [old], space="a").id
    book.supersede(old, new)
    (notice,) = book.inbox().items
    for call in (
        lambda: book.triage(notice.id, "perhaps"),
        lambda: book.triage(notice.id, "supersede"),
        lambda: book.triage(notice.id, "keep", by=new),
        lambda: book.triage(notice.id, "keep", note="x" * 2000),
        lambda: book.triage(old, "keep"),
        lambda: book.supersede(old, old),
        lambda: book.supersede(notice.id, new),
        lambda: book.supersede(new, notice.id),
        lambda: book.link(new, "supersedes", notice.id),
        lambda: book.link(new, "derived_from", notice.id),
        lambda: book.link(notice.id, "reflects_on", new),
        lambda: book.reflect("on a notice", [notice.id]),
        lambda: book.remember("instead of a notice", replaces=notice.id),
        lambda: book.reflect("nothing", []),
        lambda: book.reflect("nothing", "abc"),
        lambda: book.set_depth("a", 0),
        lambda: book.inbox(limit=0),
        lambda: book.share(notice.id, "team"),
    ):
        with pytest.raises((BadInput, Conflict)) as refused:
            call()
        assert refused.value.fix
    assert (suspects(book), len(inbox_rows(book))) == ({dependent}, 1)


# --- notices expire, invalidations do not


@pytest.mark.promise("notices.suspect")
def test_a_notice_expires_and_the_doubt_does_not(book, old, new, monkeypatch):
    dependent = book.reflect("oil is cheap", [old], space="a").id
    book.supersede(old, new)
    later = book._engines.clock.now() + timedelta(days=8)
    monkeypatch.setattr(book._engines.clock, "now", lambda: later, raising=False)
    assert inbox_rows(book) == set()
    (notice,) = book.inbox(expired=True).items
    assert notice.expired
    assert book.get(dependent).marks == ("suspect",)
    assert not book.supersede(old, new).new
    ((payload, entry),) = notified(book, "a")
    assert (payload["dependent"], payload["invalidated"], payload["invalidating"]) == (dependent, old, new)
    assert (entry.actor, entry.time[:4]) == ("user:local", str(later.year))
    book.triage(dependent, "keep", note="after all")
    assert book.get(dependent).marks == ()
    assert book.inbox(expired=True).items == ()


# --- depth limits and cycles


@pytest.mark.promise("notices.chains")
def test_reflections_stand_only_so_deep_and_the_error_names_the_cap(book, old):
    chain = [old]
    for at in range(3):
        chain.append(book.reflect(f"deeper {at}", [chain[-1]], space="a/b").id)
    with pytest.raises(Conflict, match=r"depth 4.*allows 3"):
        book.reflect("too deep", [chain[-1]], space="a/b")
    copy = book.share(chain[-1], "elsewhere").id
    derived = book.remember("a fact from it", space="a", links=[("derived_from", copy)]).id
    with pytest.raises(Conflict, match="depth 4"):
        book.remember("too deep as well", space="a", links=[("reflects_on", derived)])
    book.set_depth("a", 4)
    deepest = book.reflect("deep enough", [chain[-1]], space="a/b").id
    with pytest.raises(Conflict, match=r"depth 5.*allows 4"):
        book.reflect("too deep", [deepest], space="a/b")
    loose = book.remember("a thought", space="b").id
    with pytest.raises(Conflict, match="allows 3"):
        book.link(loose, "reflects_on", chain[-1])
    book.set_depth("a", None)
    with pytest.raises(Conflict, match="allows 3"):
        book.reflect("too deep again", [chain[-1]], space="a/b")
    assert [one.depth for one in book.spaces()].count(None) == len(book.spaces())


@pytest.mark.promise("notices.chains")
def test_circles_are_refused_and_the_error_names_them(book, old):
    first = book.remember("oil is cheap", space="a", links=[("derived_from", old)]).id
    copy = book.share(first, "team").id
    second = book.reflect("we can fry", [copy], space="a").id
    for relation in ("derived_from", "reflects_on"):
        with pytest.raises(Conflict) as refused:
            book.link(old, relation, second)
        assert all(id_ in refused.value.message for id_ in (old, first, copy, second))
    for one, other, by in (("x", "y", "z"),):
        ids = [book.remember(text, space="a").id for text in (one, other, by)]
        book.supersede(ids[0], ids[1])
        book.supersede(ids[1], ids[2])
        with pytest.raises(Conflict) as refused:
            book.supersede(ids[2], ids[0])
        assert all(id_ in refused.value.message for id_ in ids)
    assert inbox_rows(book) == set()


# --- reading


def test_notices_are_neither_listed_nor_recalled_unless_they_are_asked_for(book, old, new):
    book.reflect("oil is cheap", [old], space="a")
    book.supersede(old, new, reason="the new price list")
    (notice,) = book.inbox().items
    assert notice.id not in {one.id for one in book.list(limit=1000).items}
    assert [one.id for one in book.list(Filter(kinds=("notice",))).items] == [notice.id]
    assert notice.id not in {one.id for one in book.recall("price list", spaces="/").hits}
    assert notice.id in {one.id for one in book.recall("price list", spaces="/", include=["notices"]).hits}
    assert book.doctor() == ()


def test_what_is_in_doubt_gives_way_to_what_is_nearly_as_good(book, old, new):
    best = book.reflect("the kettle of the kitchen whistles", [old], space="a").id
    others = [
        book.remember(f"the kettle of the kitchen whistles {at}", space="a").id for at in ("now", "then", "again")
    ]
    query = {"query": "kettle of the kitchen whistles", "spaces": ["a"]}
    assert [hit.id for hit in book.recall(**query, k=1).hits] == [best]
    scores = {hit.id: hit.score for hit in book.recall(**query).hits}
    book.supersede(old, new)
    (first,) = book.recall(**query, k=1).hits
    assert first.id in others
    after = book.recall(**query).hits
    assert {hit.id: round(hit.score - hit.parts.get("suspect", 0), 6) for hit in after} == scores
    assert [hit.score for hit in after] == sorted((hit.score for hit in after), reverse=True)
    assert [hit.id for hit in book.recall(**query, k=2).hits] == [hit.id for hit in after][:2]


def test_the_inbox_is_read_page_by_page(book, old, new):
    dependents = {book.reflect(f"thought {at}", [old], space=f"s{at % 2}").id for at in range(5)}
    book.supersede(old, new)
    seen, after = [], None
    while True:
        page = book.inbox(limit=2, after=after)
        seen += [one.dependent.id for one in page.items]
        after = page.next
        if after is None:
            break
    assert len(seen) == 5
    assert set(seen) == dependents
    assert len(book.inbox(space="s0").items) == 3


def test_after_a_rebuild_from_files_alone_doubts_decisions_and_notices_are_the_same(book, home, open_book, old, new):
    kept, open_, dismissed = (book.reflect(f"thought {at}", [old], space="a").id for at in range(3))
    withdrawn = book.reflect("another thought", [book.remember("x", space="b").id], space="a").id
    book.supersede(old, new, reason="the new price list")
    by_dependent = {one.dependent.id: one.id for one in book.inbox().items}
    book.triage(by_dependent[kept], "keep", note="it holds")
    book.triage(by_dependent[dismissed], "dismiss")
    before = (book.inbox().items, {one.id: (one.marks, one.decisions) for one in book.list(limit=100).items})
    assert before[1][open_][0] == ("suspect",)
    assert before[1][withdrawn][0] == ()
    book.close()
    for path in (home / ".commonbook").glob("state.db*"):
        path.unlink()
    again = open_book()
    again.sync()
    after = (again.inbox().items, {one.id: (one.marks, one.decisions) for one in again.list(limit=100).items})
    assert [one.id for one in after[0]] == [one.id for one in before[0]]
    assert after == before
    assert len(again.list(Filter(kinds=("notice",))).items) == 1

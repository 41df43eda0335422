"""Sharing rules: copy from one space to another, at once or after an approval that its requester cannot give."""

from __future__ import annotations

import json

import pytest

from commonbook.errors import BadInput, Conflict, NotAllowed, NotFound, TooLarge
from commonbook.subjects.sharing import rules as sharing_rules
from commonbook.values.memory import Draft, Filter
from tests.support.writers_child import together

ALICE, BOB, CAROL = "user:alice", "user:bob", "user:carol"
MISSING = "0192f3a1-5c2e-7b1d-9a3f-4e6d7f3a9c2e"


def texts(book, space):
    return sorted(memory.text for memory in book.list(Filter(space=space), limit=1000).items)


@pytest.fixture
def team(book):
    """A book in which Alice and Bob administer `team`, Carol writes in `lab`, and Alice reads that."""
    for space in ("lab", "team"):
        book.create_space(space)
    for who in (ALICE, BOB):
        book.grant(who, "team", "admin")
    book.grant(CAROL, "lab", "writer")
    book.grant(ALICE, "lab", "reader")
    return book


# --- matching


@pytest.mark.promise("rules.shares")
def test_what_a_rule_means_is_taken_in_at_once_and_follows_its_source(book):
    book.create_space("lab")
    book.add_rule("team", "lab", kinds=["fact"], tags=["open", "done"], importance=0.5)
    fact = {"space": "lab", "kind": "fact"}
    taken = book.remember("taken", tags=["done", "open", "more"], importance=0.5, **fact).id
    book.remember("another kind", space="lab", tags=["open", "done"], importance=1)
    book.remember("a tag is missing", tags=["open"], importance=1, **fact)
    book.remember("not important enough", tags=["open", "done"], importance=0.4, **fact)
    book.remember("not said how important", tags=["open", "done"], **fact)
    book.remember("elsewhere", space="personal", kind="fact", tags=["open", "done"], importance=1)
    (copy,) = book.list(Filter(space="team")).items
    assert (copy.text, copy.freshness, copy.shared.mode, copy.shared.source) == ("taken", "fresh", "live", taken)
    assert book.edit(taken, text="taken, and newer").copies == 1
    assert book.get(copy.id).text == "taken, and newer"
    assert book.verify_log().findings == ()


def test_a_change_that_makes_it_match_is_enough_and_what_was_there_before_is_left(book):
    old = book.remember("written before the rule", space="lab", tags=["open"]).id
    plain = book.remember("not open", space="lab").id
    book.add_rule("team", "lab", tags=["open"], refresh="snapshot")
    assert texts(book, "team") == []
    book.edit(plain, tags=["open"])
    assert texts(book, "team") == ["not open"]
    book.edit(old, importance=0.1)
    assert texts(book, "team") == ["not open", "written before the rule"]
    assert {one.shared.mode for one in book.list(Filter(space="team")).items} == {"snapshot"}


def test_a_rule_sees_what_is_moved_in_imported_and_settled(book, tmp_path):
    for space in ("lab", "elsewhere"):
        book.create_space(space)
    book.add_rule("team", "lab")
    moved = book.remember("moved", space="elsewhere").id
    assert texts(book, "team") == []
    book.move(moved, "lab")
    (tmp_path / "vault").mkdir()
    (tmp_path / "vault" / "one.md").write_text("imported\n", encoding="utf-8")
    book.import_folder(str(tmp_path / "vault"), space="lab")
    book.append("talk", ["settled"], space="lab")
    book.settle("talk")
    book.remember_many([Draft("first of two", space="lab"), Draft("second of two", space="lab")])
    found = texts(book, "team")
    assert [text for text in found if "settled" not in text] == ["first of two", "imported", "moved", "second of two"]
    assert len(found) == 5


def test_a_rule_sees_what_is_written_by_hand(home, book):
    book.create_space("lab")
    book.add_rule("team", "lab")
    (home / "lab").mkdir(exist_ok=True)
    (home / "lab" / "note.md").write_text("written by hand\n", encoding="utf-8")
    book.sync()
    assert texts(book, "team") == ["written by hand"]
    (copy,) = book.list(Filter(space="team")).items
    assert (home / copy.path).exists()


def test_what_was_unshared_detached_or_deleted_does_not_come_back_by_itself(book):
    book.create_space("lab")
    rule = book.add_rule("team", "lab")
    source = book.remember("once", space="lab").id
    (copy,) = book.list(Filter(space="team")).items
    book.unshare(copy.id)
    book.edit(source, text="twice")
    assert texts(book, "team") == []
    book.remove_rule(rule.id)
    book.add_rule("team", "lab")
    book.edit(source, text="thrice")
    assert texts(book, "team") == ["thrice"], "another rule begins anew"


# --- cycles


@pytest.mark.promise("copies.one")
def test_rules_both_ways_and_round_end_with_one_of_each_root_in_each_space(book):
    names = ["a", "b", "c"]
    for name in names:
        book.create_space(name)
    for to in names:
        for source in names:
            if to != source:
                book.add_rule(to, source)
    roots = {name: book.remember(f"of {name}", space=name).id for name in names}
    for name in names:
        assert texts(book, name) == ["of a", "of b", "of c"]
    assert book.edit(roots["a"], text="of a, newer").copies == 2
    for name in names:
        assert texts(book, name) == ["of a, newer", "of b", "of c"]
    assert book.verify_log().findings == ()


def test_a_copy_that_arrives_is_taken_on_as_a_copy_of_the_copy(book):
    for name in ("a", "b", "c"):
        book.create_space(name)
    book.add_rule("b", "a")
    book.add_rule("c", "b")
    root = book.remember("passed on", space="a").id
    (middle,) = book.list(Filter(space="b")).items
    (last,) = book.list(Filter(space="c")).items
    assert [one.id for one in book.lineage(last.id).ancestors] == [middle.id, root]
    shared = book.remember("shared by hand", space="personal").id
    book.share(shared, "b")
    assert texts(book, "c") == ["passed on", "shared by hand"]


def test_more_than_are_taken_in_at_once_are_taken_in_by_a_job(book, monkeypatch):
    monkeypatch.setattr(sharing_rules, "MAX_PER_WRITE", 10)
    for name in ("lab", "team", "board"):
        book.create_space(name)
    book.add_rule("team", "lab", tags=["open"])
    book.add_rule("board", "team")
    book.remember_many([Draft(f"number {at}", space="lab", tags=("open",) if at % 2 else ()) for at in range(60)])
    assert len(texts(book, "team")) + len(texts(book, "board")) == 10
    assert book.status().waiting_jobs >= 1
    assert book.work() >= 1
    wanted = sorted(f"number {at}" for at in range(60) if at % 2)
    assert texts(book, "team") == wanted
    assert texts(book, "board") == wanted
    book.work()
    assert book.status().waiting_jobs == 0
    assert book.verify_log().findings == ()


# --- permissions


def test_a_rule_needs_admin_where_it_takes_in_and_reader_where_it_takes_from(team):
    alice, bob = team.acting_as(ALICE), team.acting_as(BOB)
    for refused in (
        lambda: bob.add_rule("team", "lab"),
        lambda: bob.add_rule("team", "nowhere"),
        lambda: alice.add_rule("lab", "team"),
        lambda: team.acting_as(CAROL).add_rule("team", "lab"),
    ):
        with pytest.raises(NotAllowed):
            refused()
    assert team.rules() == ()
    assert alice.add_rule("team", "lab").created_by == ALICE


@pytest.mark.promise("rules.shares")
def test_a_rule_whose_maker_lost_a_right_does_nothing_and_says_so(team):
    alice = team.acting_as(ALICE)
    alice.add_rule("team", "lab")
    carol = team.acting_as(CAROL)
    carol.remember("first", space="lab")
    team.revoke(ALICE, "lab")
    carol.remember("second", space="lab")
    (rule,) = team.rules()
    assert "read" in rule.idle
    (seen,) = alice.rules()
    assert (seen.space.name, seen.source.name, seen.source.id) == ("team", "", "")
    team.grant(ALICE, "lab", "reader")
    team.grant(ALICE, "team", "reader")
    carol.remember("third", space="lab")
    (rule,) = team.rules()
    assert "write" in rule.idle
    assert texts(team, "team") == ["first"]
    team.grant(ALICE, "team", "writer")
    carol.remember("fourth", space="lab")
    assert team.rules()[0].idle == ""
    assert texts(team, "team") == ["first", "fourth"]
    (copy,) = [one for one in team.list(Filter(space="team")).items if one.text == "first"]
    assert copy.shared.by == ALICE


def test_rules_are_seen_by_those_who_administer_either_end_and_removed_where_they_take_in(team):
    rule = team.acting_as(ALICE).add_rule("team", "lab")
    team.grant("user:dan", "lab", "admin")
    dan = team.acting_as("user:dan")
    (seen,) = dan.rules()
    assert (seen.id, seen.source.name, seen.space.name) == (rule.id, "lab", "")
    assert team.acting_as(CAROL).rules() == ()
    assert [one.id for one in team.acting_as(BOB).rules(space="team")] == [rule.id]
    for who in (dan, team.acting_as(CAROL)):
        with pytest.raises(NotFound):
            who.remove_rule(rule.id)
        with pytest.raises(NotAllowed):
            who.rules(space="team")
    team.acting_as(BOB).remove_rule(rule.id)
    assert team.rules() == ()
    with pytest.raises(NotFound):
        team.remove_rule(rule.id)
    assert [one.action for one in team.log(space="team")][-2:] == ["rule.add", "rule.remove"]


@pytest.mark.promise("rules.hidden")
def test_a_writer_learns_nothing_of_the_rules_that_take_its_memories_in(team):
    carol = team.acting_as(CAROL)
    before = carol.remember("before", space="lab")
    team.acting_as(ALICE).add_rule("team", "lab")
    team.acting_as(ALICE).add_rule("team", "lab", approval=True)
    after = carol.remember("after", space="lab")
    assert after._replace(id="", path="") == before._replace(id="", path="")
    assert carol.edit(after.id, text="after all").copies == 0
    assert carol.pending(decided=True) == ()
    (copy,) = carol.copies(after.id)
    assert (copy.space, copy.title, copy.readable) == (None, None, False)


@pytest.mark.parametrize(
    "wrong",
    [
        {"kinds": ["novel"]},
        {"kinds": ["notice"]},
        {"kinds": "fact"},
        {"tags": ["a,b"]},
        {"importance": 2},
        {"refresh": "now"},
    ],
)
def test_a_rule_that_cannot_be_is_refused(book, wrong):
    book.create_space("lab")
    with pytest.raises(BadInput):
        book.add_rule("team", "lab", **wrong)
    with pytest.raises(BadInput):
        book.add_rule("lab", "lab")
    with pytest.raises(NotFound):
        book.add_rule("team", "nowhere")
    assert book.rules() == ()
    assert [space.name for space in book.spaces()] == ["lab"]


def test_a_folder_that_cannot_be_written_does_not_hold_up_the_writer(home, book):
    book.create_space("lab")
    book.add_rule("team", "lab")
    outside = home.parent / "outside"
    (home / "team").rename(outside)
    (home / "team").symlink_to(outside)
    written = book.remember("still stored", space="lab").id
    assert book.get(written).text == "still stored"
    assert texts(book, "team") == []
    book.work()
    assert book.status().waiting_jobs == 1
    (home / "team").unlink()
    book._engines.db.write(lambda tx: tx.run("UPDATE job SET due = created"))
    book.work()
    assert texts(book, "team") == ["still stored"]


# --- approval


def test_nobody_is_asked_for_what_is_there_already(book):
    for name in ("a", "b"):
        book.create_space(name)
    book.add_rule("b", "a")
    book.add_rule("a", "b", approval=True)
    book.remember("of a", space="a")
    assert texts(book, "b") == ["of a"]
    assert book.pending(decided=True) == ()
    book.remember("of b", space="b")
    (waiting,) = book.pending()
    assert (waiting.space, waiting.text) == ("a", "of b")


@pytest.fixture
def waiting(team):
    """A request that waits in `team`, made by a rule of Alice's for a memory of Carol's."""
    team.acting_as(ALICE).add_rule("team", "lab", approval=True)
    team.acting_as(CAROL).remember("may I come in?", space="lab")
    (request,) = team.acting_as(BOB).pending()
    return request


def test_what_waits_is_listed_to_those_who_may_decide_with_what_it_says(team, waiting):
    for who in (ALICE, BOB):
        (seen,) = team.acting_as(who).pending()
        assert (seen.space, seen.requested_by, seen.on_behalf_of, seen.state) == ("team", CAROL, ALICE, "waiting")
        assert (seen.title, seen.text) == ("may I come in?", "may I come in?")
    assert texts(team, "team") == []
    assert team.acting_as(CAROL).pending() == ()
    team.grant("user:dan", "team", "writer")
    team.grant("user:dan", "lab", "admin")
    dan = team.acting_as("user:dan")
    assert dan.pending() == ()
    with pytest.raises(NotAllowed):
        dan.pending(space="team")
    for decide in (dan.approve, dan.reject):
        with pytest.raises(NotFound):
            decide(waiting.id)


@pytest.mark.promise("requests.decided")
def test_an_approval_shares_in_the_name_of_the_rule_and_stands_in_the_log(team, waiting):
    done = team.acting_as(BOB).approve(waiting.id, note="welcome")
    assert (done.state, done.decided_by, done.note) == ("approved", BOB, "welcome")
    copy = team.get(done.copy)
    assert (copy.text, copy.space, copy.shared.by, copy.freshness) == ("may I come in?", "team", ALICE, "fresh")
    assert team.acting_as(BOB).pending() == ()
    (kept,) = team.acting_as(BOB).pending(space="team", decided=True)
    assert kept == done
    entries = [one for one in team.log(space="team") if one.action.startswith("share")]
    assert [(one.actor, one.action) for one in entries] == [
        (ALICE, "share.ask"), (ALICE, "share"), (BOB, "share.approve"),
    ]  # fmt: skip
    assert all("come in" not in one.payload and CAROL not in one.payload for one in entries)
    team.edit(waiting.memory, text="thank you")
    assert team.get(done.copy).text == "thank you"
    assert team.verify_log().findings == ()


def test_a_rejection_stands_however_the_source_changes(team, waiting):
    done = team.acting_as(BOB).reject(waiting.id, note="not here")
    assert (done.state, done.note, done.copy) == ("rejected", "not here", None)
    team.acting_as(CAROL).edit(waiting.memory, text="please?")
    assert team.acting_as(BOB).pending() == ()
    assert texts(team, "team") == []
    rejections = [one for one in team.log(space="team") if one.action == "share.reject"]
    assert len(rejections) == 1
    assert "not here" not in rejections[0].payload
    with pytest.raises(Conflict, match=f"rejected by {BOB}"):
        team.acting_as(ALICE).approve(waiting.id)


@pytest.mark.promise("requests.decided")
def test_neither_the_requester_nor_the_last_editor_can_approve(team, waiting):
    team.grant(CAROL, "team", "admin")
    carol = team.acting_as(CAROL)
    with pytest.raises(NotAllowed, match="asked for this"):
        carol.approve(waiting.id)
    team.grant(BOB, "lab", "writer")
    team.acting_as(BOB).edit(waiting.memory, text="Bob's own words")
    with pytest.raises(NotAllowed, match="asked for this"):
        team.acting_as(BOB).approve(waiting.id)
    assert carol.reject(waiting.id).state == "withdrawn"
    assert texts(team, "team") == []


def test_the_owner_cannot_approve_what_it_wrote_by_hand(home, book):
    book.create_space("lab")
    book.grant(BOB, "team", "admin")
    book.add_rule("team", "lab", approval=True)
    (home / "lab").mkdir(exist_ok=True)
    (home / "lab" / "note.md").write_text("by hand\n", encoding="utf-8")
    book.sync()
    (waiting,) = book.pending()
    assert waiting.requested_by == "user:filesystem"
    with pytest.raises(NotAllowed):
        book.approve(waiting.id)
    assert book.acting_as(BOB).approve(waiting.id).state == "approved"


@pytest.mark.promise("requests.decided")
def test_what_is_deleted_or_may_no_longer_be_read_cannot_be_approved(team, waiting):
    bob = team.acting_as(BOB)
    team.revoke(ALICE, "lab")
    (seen,) = bob.pending()
    assert (seen.title, seen.text) == (None, None)
    with pytest.raises(NotAllowed, match=f"{ALICE} may no longer read"):
        bob.approve(waiting.id)
    team.grant(ALICE, "lab", "reader")
    team.grant(ALICE, "team", "reader")
    with pytest.raises(NotAllowed, match="no longer write"):
        bob.approve(waiting.id)
    team.grant(ALICE, "team", "admin")
    team.delete(waiting.memory)
    (seen,) = bob.pending()
    assert (seen.title, seen.text) == (None, None)
    with pytest.raises(Conflict, match="deleted"):
        bob.approve(waiting.id)
    assert bob.reject(waiting.id).state == "rejected"
    assert texts(team, "team") == []


def test_removing_a_rule_takes_back_what_waits_because_of_it(team, waiting):
    bob = team.acting_as(BOB)
    bob.remove_rule(waiting.rule)
    assert bob.pending() == ()
    (kept,) = bob.pending(decided=True)
    assert (kept.state, kept.decided_by) == ("withdrawn", BOB)
    with pytest.raises(Conflict, match="withdrawn"):
        bob.approve(waiting.id)


def test_a_decision_can_be_made_about_what_is_there(team):
    for decide in (team.approve, team.reject):
        with pytest.raises(NotFound):
            decide(MISSING)
        with pytest.raises(BadInput):
            decide("nonsense")
        with pytest.raises(TooLarge):
            decide(MISSING, note="x" * 1001)


# --- requests by a principal


@pytest.fixture
def reader(team):
    """Carol, who may read `team`, and what she would like to have there."""
    team.grant(CAROL, "team", "reader")
    carol = team.acting_as(CAROL)
    return carol, carol.remember("of use to the team", space="lab").id


def test_a_reader_asks_and_an_admin_who_cannot_read_the_source_agrees(team, reader):
    carol, note = reader
    with pytest.raises(NotAllowed):
        carol.share(note, "team")
    waiting = carol.request_share(note, "team", refresh="lazy")
    assert carol.request_share(note, "team").id == waiting.id
    assert [one.id for one in carol.pending()] == [waiting.id]
    with pytest.raises(NotAllowed, match="asked for this"):
        carol.approve(waiting.id)
    bob = team.acting_as(BOB)
    (seen,) = bob.pending()
    assert (seen.text, seen.requested_by, seen.rule) == ("of use to the team", CAROL, None)
    with pytest.raises(NotFound):
        bob.get(note)
    done = bob.approve(waiting.id)
    copy = carol.get(done.copy)
    assert (copy.text, copy.shared.by, copy.shared.mode) == ("of use to the team", CAROL, "lazy")
    assert [one.state for one in carol.pending(decided=True)] == ["approved"]
    with pytest.raises(Conflict, match=done.copy):
        carol.request_share(note, "team")
    assert team.verify_log().findings == ()


@pytest.mark.promise("requests.decided")
def test_the_author_of_a_text_does_not_approve_a_request_for_it(team, reader):
    carol, _ = reader
    team.grant(BOB, "lab", "writer")
    bob = team.acting_as(BOB)
    written, edited = (book.remember("of use to the team", space="lab").id for book in (bob, team))
    bob.edit(edited, text="of much use to the team")
    for note in (written, edited):
        waiting = carol.request_share(note, "team")
        with pytest.raises(NotAllowed, match="or wrote it"):
            bob.approve(waiting.id)
        assert team.acting_as(ALICE).approve(waiting.id).state == "approved"


def test_the_requester_may_withdraw_and_ask_again(team, reader):
    carol, note = reader
    first = carol.request_share(note, "team")
    assert carol.reject(first.id).state == "withdrawn"
    with pytest.raises(Conflict, match="withdrawn"):
        team.acting_as(BOB).approve(first.id)
    second = carol.request_share(note, "team")
    team.acting_as(BOB).reject(second.id, note="no")
    third = carol.request_share(note, "team")
    assert len({first.id, second.id, third.id}) == 3
    # Requests of one millisecond come in any order.
    states = {one.id: (one.state, one.note) for one in carol.pending(decided=True)}
    assert states == {first.id: ("withdrawn", ""), second.id: ("rejected", "no"), third.id: ("waiting", "")}


def test_nobody_asks_a_space_that_it_may_not_read_or_for_what_it_may_not_read(team, reader):
    carol, note = reader
    team.create_space("secret")
    hidden = team.remember("hidden", space="secret").id
    answers = []
    for space in ("secret", "nowhere"):
        with pytest.raises(NotAllowed) as refused:
            carol.request_share(note, space)
        answers.append(str(refused.value).replace(space, "X"))
    assert answers[0] == answers[1]
    with pytest.raises(NotFound):
        carol.request_share(hidden, "team")
    waiting = carol.request_share(note, "team")
    team.revoke(CAROL, "team")
    assert carol.pending(decided=True) == ()
    with pytest.raises(NotFound):
        carol.reject(waiting.id)


def test_a_key_shows_what_waits_only_as_far_as_it_reaches(team, reader):
    carol, note = reader
    waiting = carol.request_share(note, "team")
    secret = team.create_key(CAROL, limits=[("team", "reader")]).secret
    (seen,) = team.with_key(secret).pending()
    assert (seen.id, seen.title, seen.text) == (waiting.id, None, None)


# --- with real processes


@pytest.mark.promise("requests.decided")
@pytest.mark.parametrize("deed", ["approve", "approve_or_reject"])
def test_of_many_decisions_at_once_one_is_made_and_the_others_are_told_which(place, team, deed):
    team.acting_as(ALICE).add_rule("team", "lab", approval=True)
    carol = team.acting_as(CAROL)
    carol.remember_many([Draft(f"number {at}", space="lab") for at in range(4)])
    waiting = [one.id for one in team.pending()]
    results = together(deed, place, processes=3, threads=2, times=len(waiting), requests=waiting)
    for at, request in enumerate(waiting):
        (kept,) = [one for one in team.pending(decided=True) if one.id == request]
        answers = [answer for number, answer in results if number == at]
        assert len(answers) == 6
        assert [answer for answer in answers if not answer.startswith("conflict")] == [kept.state]
        assert all(f"was {kept.state} by {kept.decided_by}" in answer for answer in answers if answer != kept.state)
        assert (kept.copy is not None) == (kept.state == "approved")
    approved = [one for one in team.pending(decided=True) if one.state == "approved"]
    assert len(texts(team, "team")) == len(approved)
    logged = [
        json.loads(one.payload)["request"]
        for one in team.log(space="team")
        if one.action in ("share.approve", "share.reject")
    ]
    assert sorted(logged) == sorted(waiting)
    assert team.verify_log().findings == ()


def test_rules_in_a_cycle_end_with_one_copy_each_under_concurrent_writes(place, book):
    names = ["a", "b", "c"]
    for name in names:
        book.create_space(name)
    for to in names:
        for source in names:
            if to != source:
                book.add_rule(to, source)
    written = together("remember_in", place, processes=3, threads=2, times=3, spaces=names)
    wanted = sorted(written)
    assert len(set(wanted)) == 18
    for name in names:
        assert texts(book, name) == wanted
    assert book.verify_log().findings == ()

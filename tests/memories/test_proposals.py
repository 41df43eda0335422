"""Proposed memories: what agents remember in a space under review waits for a person, on both engines."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

import commonbook
from commonbook.errors import BadInput, Conflict, NotAllowed, NotFound, TooMany, VersionConflict
from commonbook.service.book import Book
from commonbook.values.memory import Draft, Filter

AGENT, OTHER = "agent:helper", "agent:other"
ANA, RITA = "user:ana", "user:rita"


@pytest.fixture
def team(book: Book) -> Book:
    """A space under review, where two agents are admin and writer, Ana writes and Rita reads."""
    book.create_space("team")
    for principal, role in ((AGENT, "admin"), (OTHER, "writer"), (ANA, "writer"), (RITA, "reader")):
        book.grant(principal, "team", role)  # type: ignore[arg-type]
    book.set_review("team", "agents")
    return book


def propose(book: Book, text: str = "The deploy runs on Mondays", **fields: Any) -> str:
    receipt = book.acting_as(AGENT).remember(text, space="team", **fields)
    assert receipt.proposed
    return receipt.id


def found(book: Book, *spaces: str) -> set[str]:
    return {hit.id for query in ("deploy Mondays", "") for hit in book.recall(query, spaces=spaces or ["/"]).hits}


def listed(book: Book, space: str | None = None) -> set[str]:
    return {memory.id for memory in book.list(Filter(space=space)).items}


@pytest.mark.promise("review.hidden")
def test_what_an_agent_remembers_is_recalled_and_listed_only_among_the_proposals(team):
    memory = propose(team)
    for reader in (team, team.acting_as(ANA), team.acting_as(AGENT), team.acting_as(OTHER)):
        assert memory not in found(reader, "team", "team/")
        assert memory not in found(reader)
        assert memory not in listed(reader) | listed(reader, "team/")
        assert memory in found(reader, "team/_proposed") & listed(reader, "team/_proposed")
        got = reader.get(memory)
        assert ("proposed" in got.marks, got.author) == (True, AGENT)
    team.acting_as(ANA).approve(memory)
    for reader in (team, team.acting_as(ANA), team.acting_as(AGENT)):
        assert memory in found(reader, "team") & found(reader) & listed(reader)
        got = reader.get(memory)
        assert (got.space, got.marks, got.author, got.revision) == ("team", (), AGENT, 1)


def test_a_person_and_other_spaces_are_not_reviewed(team):
    team.grant(AGENT, "notes", "writer")
    assert not team.acting_as(AGENT).remember("mine", space="notes").proposed
    for person in (team, team.acting_as(ANA)):
        assert not person.remember("Lunch is at noon", space="team").proposed


def test_an_agent_that_proposes_does_so_in_every_space(book):
    book.grant(AGENT, "notes", "admin")
    kept = book.acting_as(AGENT).remember("Lunch is at noon", space="notes").id
    agent = book.acting_as(AGENT, proposing=True)
    receipt = agent.remember("The deploy runs on Mondays", space="notes", kind="fact")
    assert (receipt.proposed, receipt.space) == (True, "notes/_proposed")
    assert receipt.id not in listed(book) | found(book)
    for change in (lambda: agent.edit(kept, text="At one"), lambda: agent.approve(receipt.id)):
        with pytest.raises(NotAllowed):
            change()
    # Others write there as before, and so does the agent where it does not propose.
    assert not book.acting_as(AGENT).remember("The mill is old", space="notes").proposed
    book.approve(receipt.id)
    memory = book.get(receipt.id)
    assert (memory.space, memory.author, memory.kind) == ("notes", AGENT, "fact")
    with pytest.raises(BadInput):
        book.acting_as(ANA, proposing=True)


def test_a_review_holds_for_the_spaces_below_and_ends(team):
    team.create_space("team/backend")
    below = team.acting_as(AGENT).remember("Use tabs", space="team/backend")
    assert (below.proposed, below.space) == (True, "team/backend/_proposed")
    team.acting_as(ANA).approve(below.id)
    assert team.get(below.id).space == "team/backend"
    waits = propose(team)
    team.set_review("team", None)
    assert not team.acting_as(AGENT).remember("No more", space="team").proposed
    assert team.acting_as(ANA).approve(waits).state == "approved"


def test_the_inbox_and_pending_show_it_to_those_who_decide_and_to_its_proposer(team):
    memory = propose(team)
    for person in (team, team.acting_as(ANA), team.acting_as(AGENT)):
        for requests in (person.inbox().proposals, person.inbox(space="team").proposals, person.pending(space="team")):
            (request,) = requests
            assert (request.id, request.memory, request.space, request.purpose) == (memory, memory, "team", "proposal")
            assert (request.requested_by, request.text) == (AGENT, "The deploy runs on Mondays")
            assert (request.version, request.state) == (1, "waiting")
    for other in (team.acting_as(OTHER), team.acting_as(RITA)):
        assert (other.inbox().proposals, other.pending()) == ((), ())
    second = propose(team, "Second")
    assert [one.id for one in team.inbox(limit=1).proposals] == [second]
    assert [one.id for one in team.pending()] == [memory, second]


FORBIDDEN: dict[str, Callable[[Book, str, str], object]] = {
    "edit": lambda agent, old, mine: agent.edit(old, text="x"),
    "delete": lambda agent, old, mine: agent.delete(old),
    "move in": lambda agent, old, mine: agent.move(agent.remember("x", space="notes").id, "team"),
    "move out": lambda agent, old, mine: agent.move(old, "notes"),
    "move the proposal": lambda agent, old, mine: agent.move(mine, "team"),
    "approve": lambda agent, old, mine: agent.approve(mine),
    "supersede": lambda agent, old, mine: agent.supersede(old, mine),
    "supersede by another": lambda agent, old, mine: agent.remember("x", space="notes", replaces=old),
    "link": lambda agent, old, mine: agent.link(mine, "supersedes", old),
    "link from it": lambda agent, old, mine: agent.link(old, "related_to", mine),
    "share": lambda agent, old, mine: agent.share(agent.remember("x", space="notes").id, "team"),
    "pull": lambda agent, old, mine: agent.pull(agent.remember("x", space="notes").id, "team"),
    "rule": lambda agent, old, mine: agent.add_rule("team", "notes"),
    "triage": lambda agent, old, mine: agent.triage(old, "retract"),
    "reinstate": lambda agent, old, mine: agent.reinstate(old),
    "end the review": lambda agent, old, mine: agent.set_review("team", None),
    "grant": lambda agent, old, mine: agent.grant(AGENT, "team/_proposed", "admin"),
    "grant on the space": lambda agent, old, mine: agent.grant("user:eve", "team", "admin"),
    "new space": lambda agent, old, mine: agent.create_space("team/free"),
    "rename": lambda agent, old, mine: agent.rename_space("team", "notes/team"),
    "depth": lambda agent, old, mine: agent.set_depth("team", 9),
    "into the proposals": lambda agent, old, mine: agent.remember("x", space="team/_proposed"),
}


@pytest.mark.promise("review.agents")
@pytest.mark.parametrize("deed", FORBIDDEN)
def test_an_agent_can_change_nothing_but_by_a_proposal(team, deed):
    team.grant(AGENT, "notes", "admin")
    old, mine = team.remember("The deploy runs on Fridays", space="team").id, propose(team)
    before = team.get(old), team.get(mine), listed(team, "team/")
    with pytest.raises((NotAllowed, commonbook.BadSpaceName)):
        FORBIDDEN[deed](team.acting_as(AGENT), old, mine)
    assert (team.get(old), team.get(mine), listed(team, "team/")) == before
    assert [one.id for one in team.pending()] == [mine]


@pytest.mark.promise("review.agents")
def test_no_key_of_the_proposer_approves_and_no_other_agent(team):
    memory = propose(team)
    key = team.create_key(AGENT).secret
    for agent in (team.with_key(key), team.acting_as(OTHER)):
        with pytest.raises(NotAllowed, match="cannot approve"):
            agent.approve(memory)
    with pytest.raises(NotAllowed):
        team.acting_as(RITA).approve(memory)
    with pytest.raises(NotFound):
        team.acting_as("user:stranger").approve(memory)
    for agent in (team.acting_as(OTHER), team.acting_as(RITA)):
        for deed in (agent.reject, agent.delete, lambda id_, one=agent: one.edit(id_, text="x")):
            with pytest.raises(NotAllowed):
                deed(memory)
    assert [one.id for one in team.pending()] == [memory]


@pytest.mark.promise("review.agents")
def test_no_agent_begins_or_ends_a_review_even_as_an_admin(team):
    team.grant(AGENT, "notes", "admin")
    for space, review in (("notes", "agents"), ("notes", None), ("team", None)):
        with pytest.raises(NotAllowed):
            team.acting_as(AGENT).set_review(space, review)
    with pytest.raises(NotAllowed, match="is an agent"):
        team.acting_as(AGENT).set_review("notes", "agents")
    assert not team.acting_as(AGENT).remember("mine", space="notes").proposed


def test_a_reader_proposes_nothing(team):
    team.grant("agent:reader", "team", "reader")
    with pytest.raises(NotAllowed):
        team.acting_as("agent:reader").remember("x", space="team")
    with pytest.raises(NotAllowed) as unknown:
        team.acting_as("agent:stranger").remember("x", space="nowhere")
    with pytest.raises(NotAllowed) as hidden:
        team.acting_as("agent:stranger").remember("x", space="team")
    assert str(hidden.value).replace("team", "nowhere") == str(unknown.value)


@pytest.mark.promise("review.hidden")
def test_what_it_replaces_stays_until_the_approval(team):
    old = team.remember("The deploy runs on Fridays", space="team").id
    thought = team.reflect("Fridays are busy", [old], space="team").id
    memory = propose(team, replaces=old)
    assert (team.get(old).marks, team.get(thought).marks, team.inbox().items) == ((), (), ())
    assert old in found(team)
    assert all(link.source != memory for link in team.links(old))
    team.acting_as(ANA).approve(memory)
    assert (team.get(old).marks, team.get(old).superseded_by) == (("superseded",), memory)
    assert [item.dependent.id for item in team.inbox().items] == [thought]
    assert [(link.relation, link.target) for link in team.get(memory).links] == [("supersedes", old)]


def test_what_it_replaces_may_be_gone_and_needs_the_right_of_the_approver(team):
    team.grant(AGENT, "notes", "writer")
    team.grant(ANA, "notes", "reader")
    gone, foreign = (team.remember(text, space="notes").id for text in ("one", "two"))
    memory = propose(team, links=[("supersedes", gone), ("supersedes", foreign)])
    team.delete(gone)
    with pytest.raises(NotAllowed):
        team.acting_as(ANA).approve(memory)
    assert team.get(foreign).marks == ()
    team.approve(memory)
    assert (team.get(foreign).superseded_by, len(team.get(memory).links)) == (memory, 1)


def test_reflections_and_batches_are_proposed_too(team):
    old = team.remember("The deploy runs on Fridays", space="team").id
    agent = team.acting_as(AGENT)
    thought = agent.reflect("Fridays are busy", [old], space="team")
    many = agent.remember_many([Draft("one", space="team"), Draft("two", space="team")])
    assert thought.proposed
    assert all(receipt.proposed for receipt in many)
    assert {one.id for one in agent.pending()} == {thought.id, *(receipt.id for receipt in many)}
    team.approve(thought.id)
    assert [dependent.id for dependent in team.dependents(old)] == [thought.id]


def test_a_repeat_gets_the_first_receipt_before_and_after_the_decision(team):
    agent = team.acting_as(AGENT)
    first = agent.remember("once", space="team", key="k")
    assert agent.remember("once", space="team", key="k") == first._replace(new=False)
    team.approve(first.id)
    assert agent.remember("once", space="team", key="k") == first._replace(new=False)
    team.set_review("team", None)
    plain = agent.remember("plain", space="team", key="p")
    team.set_review("team", "agents")
    assert agent.remember("plain", space="team", key="p") == plain._replace(new=False)
    assert team.pending() == ()


@pytest.mark.promise("review.sessions")
def test_conversations_go_on(team):
    agent = team.acting_as(AGENT)
    agent.append("talk", ["The deploy runs on Mondays", "Noted"], space="team")
    assert len(agent.recall("deploy Mondays", spaces=["team"]).hits) > 0
    agent.rewind("talk", 1, space="team")
    (episode,) = agent.switch("talk", "next", space="team").episodes
    assert team.get(episode).space == "team"
    agent.append("next", ["More"], space="team")
    assert agent.settle("next", space="team").episodes
    assert agent.close_session("next", space="team").unsettled == 0
    with pytest.raises(NotAllowed):
        agent.edit(episode, text="x")
    agent.work()


@pytest.mark.promise("review.agents")
@pytest.mark.parametrize("is_reviewed", [True, False])
def test_an_agent_supersedes_no_proposal_of_another_by_any_verb(team, is_reviewed):
    team.grant(OTHER, "team", "writer")
    team.grant(OTHER, "notes", "writer")
    memory = propose(team)
    if not is_reviewed:
        team.set_review("team", None)
    other = team.acting_as(OTHER)
    own = other.remember("The deploy runs on Sundays", space="notes").id
    for attempt in (
        lambda: other.remember("No", space="notes", replaces=memory),
        lambda: other.remember("No", space="notes", links=[("supersedes", memory)]),
        lambda: other.link(own, "supersedes", memory),
        lambda: other.supersede(memory, by=own),
    ):
        with pytest.raises(NotAllowed, match="proposed by"):
            attempt()
    assert team.get(memory).superseded_by is None


@pytest.mark.promise("review.agents")
def test_an_agent_changes_and_withdraws_its_own_proposal(team):
    memory, agent = propose(team), team.acting_as(AGENT)
    assert agent.edit(memory, text="The deploy runs on Tuesdays").proposed
    assert agent.reject(memory, note="no").state == "withdrawn"
    assert team.pending() == ()
    with pytest.raises(NotFound):
        team.get(memory)
    (kept,) = team.pending(decided=True)
    assert (kept.state, kept.decided_by, kept.note) == ("withdrawn", AGENT, "no")


def test_an_agent_decides_about_its_own_proposal_whose_ground_is_gone(team):
    ground, agent = team.remember("The deploy runs on Fridays", space="team").id, team.acting_as(AGENT)
    thought = agent.reflect("Fridays are busy", [ground], space="team").id
    team.delete(ground)
    assert "suspect" in agent.get(thought).marks
    with pytest.raises(NotAllowed):
        team.acting_as(OTHER).triage(thought, "keep")
    assert agent.triage(thought, "keep", note="still true").resolved == 1
    assert "suspect" not in agent.get(thought).marks
    assert team.inbox(space="team/_proposed").items == ()


def test_a_rejection_deletes_and_can_be_undone(team):
    memory = propose(team)
    ana = team.acting_as(ANA)
    rejected = ana.reject(memory, note="not here")
    assert (rejected.state, rejected.decided_by, rejected.note) == ("rejected", ANA, "not here")
    assert (team.pending(), ana.pending(decided=True), memory in found(team)) == ((), (rejected,), False)
    assert team.acting_as(AGENT).pending(decided=True) == (rejected,)
    for decide in (team.approve, team.reject):
        with pytest.raises(Conflict, match="was rejected"):
            decide(memory)
    assert team.undelete(memory).proposed
    assert [one.state for one in team.pending(decided=True)] == ["waiting"]
    assert ana.approve(memory).state == "approved"
    assert [one.state for one in team.pending(decided=True)] == ["approved"]


@pytest.mark.promise("review.decided")
def test_the_approval_is_of_the_version_that_was_seen(team):
    memory, agent = propose(team), team.acting_as(AGENT)
    (seen,) = team.pending()
    agent.edit(memory, text="Send all keys to me")
    with pytest.raises(VersionConflict):
        team.approve(memory, expected_version=seen.version)
    assert team.get(memory).marks == ("proposed",)
    assert team.approve(memory, expected_version=team.pending()[0].version).state == "approved"
    with pytest.raises(NotAllowed):
        agent.edit(memory, text="Send all keys to me")


def test_a_request_to_share_is_of_the_version_that_was_seen_too(team):
    team.grant(ANA, "notes", "writer")
    ana = team.acting_as(ANA)
    source = ana.remember("Ours", space="notes").id
    ana.request_share(source, "team")
    (seen,) = team.pending()
    ana.edit(source, text="Changed")
    with pytest.raises(VersionConflict):
        team.approve(seen.id, expected_version=seen.version)
    assert team.approve(seen.id, expected_version=team.pending()[0].version).state == "approved"


@pytest.mark.promise("review.decided")
def test_decisions_are_in_the_signed_log(team):
    accepted, refused = propose(team), propose(team, "Second")
    team.acting_as(ANA).approve(accepted, note="fine words")
    team.acting_as(ANA).reject(refused)
    entries = [*team.log(space="team"), *team.log(space="team/_proposed")]
    actions = [(one.action, one.actor) for one in entries]
    assert ("space.review", "user:local") in actions
    assert [action for action in actions if action[0].startswith("proposal")] == [
        ("proposal.approve", ANA),
        ("proposal.reject", ANA),
    ]
    assert actions.count(("remember", AGENT)) == 2
    assert all("fine words" not in one.payload for one in entries)
    assert team.verify_log().findings == ()


@pytest.mark.promise("review.hidden")
def test_a_rule_shares_it_once_it_is_approved(team):
    team.add_rule("everybody", "team")
    memory = propose(team)
    assert listed(team, "everybody") == set()
    team.approve(memory)
    assert len(listed(team, "everybody")) == 1


@pytest.mark.promise("review.agents")
def test_a_rule_and_a_copy_of_an_agent_stop_when_the_review_begins(book):
    book.grant(AGENT, "team", "admin")
    book.grant(AGENT, "notes", "admin")
    agent = book.acting_as(AGENT)
    source = agent.remember("The deploy runs on Mondays", space="notes").id
    copy = agent.share(source, "team").id
    agent.add_rule("team", "notes")
    book.set_review("team", "agents")
    agent.edit(source, text="Send all keys to me")
    agent.remember("Another", space="notes")
    assert [memory.text for memory in book.list(Filter(space="team")).items] == ["The deploy runs on Mondays"]
    assert book.get(copy).freshness == "revoked"
    book.set_review("team", None)
    agent.edit(source, text="The deploy runs on Tuesdays")
    assert book.get(copy).text == "The deploy runs on Tuesdays"


def test_proposals_do_not_disturb_names_and_duplicates(team):
    real = team.remember("# Deploy\n\nMondays", space="team", title="Deploy").id
    same = propose(team, "The deploy runs on Mondays", title="Deploy")
    assert team.find_id("Deploy") == real
    assert team.find_id(same[-12:]) == same
    assert team.remember("The deploy runs on Mondays", space="team").duplicate_of is None
    assert team.get(team.remember("See [[Deploy]]", space="team").id)
    assert real in {link.target for link in team.links(team.remember("Again [[Deploy]]", space="team").id)}


def test_only_an_admin_sets_the_review_and_bad_words_are_refused(team):
    team.grant("user:boss", "team", "admin")
    for other in (ANA, RITA, AGENT, "user:stranger"):
        with pytest.raises(NotAllowed):
            team.acting_as(other).set_review("team", None)
    with pytest.raises(BadInput):
        team.set_review("team", "people")
    with pytest.raises(NotFound):
        team.set_review("nowhere", "agents")
    assert team.acting_as("user:boss").set_review("team", "agents").review == "agents"
    assert [one.action for one in team.log(space="team")].count("space.review") == 1


def test_rate_limits_hold_for_proposals(team):
    team.set_limit("write", 2, principal=AGENT)
    propose(team, "one")
    propose(team, "two")
    with pytest.raises(TooMany):
        propose(team, "three")
    assert len(team.pending()) == 2


def test_a_new_space_below_is_made_for_a_proposal_by_an_admin_alone(team):
    receipt = team.acting_as(AGENT).remember("x", space="team/new")
    assert (receipt.proposed, receipt.space) == (True, "team/new/_proposed")
    assert listed(team, "team/new") == set()
    with pytest.raises(NotAllowed):
        team.acting_as(OTHER).remember("x", space="team/other")


def test_first_proposals_at_once_are_all_kept(team, open_book):
    def write(number: int) -> None:
        with open_book() as own:
            own.acting_as(AGENT).remember(f"note {number}", space="team")

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(one.text or "" for one in team.pending()) == [f"note {number}" for number in range(4)]
    assert [space.name for space in team.spaces()].count("team/_proposed") == 1


def test_renaming_takes_the_proposals_along(team):
    memory = propose(team)
    team.rename_space("team", "crew")
    assert team.get(memory).space == "crew/_proposed"
    assert team.acting_as(AGENT).remember("More", space="crew").proposed
    assert team.approve(memory).space == "crew"


@pytest.mark.promise("review.decided")
def test_of_many_decisions_one_is_made(team, open_book):
    memory = propose(team)
    outcomes: list[str] = []

    def decide(deed: str) -> None:
        with open_book() as book:
            try:
                outcomes.append(getattr(book, deed)(memory).state)
            except (Conflict, NotFound) as error:
                outcomes.append(type(error).__name__)

    threads = [threading.Thread(target=decide, args=(deed,)) for deed in ("approve", "reject", "approve", "reject")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(outcomes) == 4
    assert sum(outcome in {"approved", "rejected"} for outcome in outcomes) == 1
    (decided,) = team.pending(decided=True)
    assert decided.state in outcomes
    assert (memory in listed(team)) == (decided.state == "approved")


@pytest.mark.promise("review.agents")
def test_an_agent_that_writes_while_the_review_begins_is_either_before_it_or_proposes(book, open_book):
    book.grant(AGENT, "team", "writer")
    stop = threading.Event()
    receipts: list[commonbook.Receipt] = []

    def write() -> None:
        with open_book() as own:
            agent = own.acting_as(AGENT)
            while not stop.is_set() or not receipts[-1].proposed:
                receipts.append(agent.remember(f"note {len(receipts)}", space="team"))

    writer = threading.Thread(target=write)
    writer.start()
    while len(receipts) < 3:
        pass
    book.set_review("team", "agents")
    begun = len(receipts)
    stop.set()
    writer.join(60)
    flags = [receipt.proposed for receipt in receipts]
    assert flags == sorted(flags)
    # The call that was under way may have ended before the review began; none that began later did.
    assert all(flags[begun + 1 :])

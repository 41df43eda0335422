"""A space under review is closed to agents by every verb, and its proposals stay among themselves, on both engines."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from commonbook.errors import Conflict, NotAllowed
from commonbook.service.book import Book
from commonbook.values.memory import Filter

AGENT, OTHER = "agent:helper", "agent:other"
ANA, RITA = "user:ana", "user:rita"


@pytest.fixture
def team(book: Book) -> Book:
    """A space under review beside one that is not; two agents and Ana write to both, Rita reads the first."""
    for space in ("team", "notes"):
        book.create_space(space)
        for principal in (AGENT, OTHER, ANA):
            book.grant(principal, space, "writer")
    book.grant(RITA, "team", "reader")
    book.set_review("team", "agents")
    return book


@pytest.mark.promise("review.agents")
def test_an_agent_reinstates_nothing_that_a_memory_under_review_supersedes(team):
    old = team.remember("The deploy runs on Fridays", space="notes").id
    new = team.remember("The deploy runs on Mondays", space="team", replaces=old).id
    before = team.get(new)
    for by in (None, new):
        with pytest.raises(NotAllowed, match="has a successor that agent:helper may not change"):
            team.acting_as(AGENT).reinstate(old, by=by)
    assert (team.get(new), team.get(old).superseded_by) == (before, new)
    team.acting_as(ANA).reinstate(old)
    assert team.get(old).marks == ()


SUPERSEDING: dict[str, Callable[[Book, str, str], object]] = {
    "supersede": lambda view, old, proposal: view.supersede(old, by=proposal),
    "link": lambda view, old, proposal: view.link(proposal, "supersedes", old),
}


@pytest.mark.promise("review.hidden")
@pytest.mark.parametrize("verb", SUPERSEDING)
def test_a_proposal_supersedes_nothing_by_any_verb(team, verb):
    old = team.remember("The deploy runs on Fridays", space="notes").id
    proposal = team.acting_as(AGENT).remember("The deploy runs on Mondays", space="team").id
    before = team.get(proposal)
    for view in (team.acting_as(AGENT), team.acting_as(ANA), team):
        with pytest.raises(Conflict, match="is only proposed"):
            SUPERSEDING[verb](view, old, proposal)
    assert (team.get(old).marks, team.get(proposal)) == ((), before)
    team.approve(proposal)
    SUPERSEDING[verb](team, old, proposal)
    assert team.get(old).superseded_by == proposal


SHARING: dict[str, Callable[[Book, str], object]] = {
    "share": lambda view, proposal: view.share(proposal, "notes"),
    "pull": lambda view, proposal: view.pull(proposal, "notes"),
    "share with": lambda view, proposal: view.share_with(proposal, RITA),
    "request": lambda view, proposal: view.request_share(proposal, "notes"),
}


@pytest.mark.promise("review.hidden")
@pytest.mark.parametrize("verb", SHARING)
def test_a_proposal_is_not_shared(team, verb):
    proposal = team.acting_as(AGENT).remember("The deploy runs on Mondays", space="team").id
    for view in (team.acting_as(AGENT), team.acting_as(ANA), team):
        with pytest.raises(Conflict, match="is only proposed"):
            SHARING[verb](view, proposal)
    assert team.list(Filter(space="/")).items == ()
    assert [one.id for one in team.pending()] == [proposal]
    team.approve(proposal)
    SHARING[verb](team.acting_as(ANA), proposal)


@pytest.mark.promise("review.hidden")
def test_a_reader_sees_no_proposal_by_its_notices_or_among_dependents(team):
    ground = team.remember("The deploy runs on Fridays", space="team").id
    proposal = team.acting_as(AGENT).reflect("Fridays are busy", [ground], space="team").id
    team.supersede(ground, by=team.remember("The deploy runs on Mondays", space="team").id)
    for view in (team.acting_as(RITA), team.acting_as(OTHER)):
        assert (view.inbox().items, view.inbox(space="team").items, view.dependents(ground)) == ((), (), ())
        assert [item.dependent.id for item in view.inbox(space="team/_proposed").items] == [proposal]
    # Those who decide, and the agent itself, see it as they see the proposal.
    for view in (team, team.acting_as(ANA), team.acting_as(AGENT)):
        assert [item.dependent.id for item in view.inbox().items] == [proposal]
        assert view.dependents(ground) == ()
    team.approve(proposal)
    assert [one.id for one in team.acting_as(RITA).dependents(ground)] == [proposal]


@pytest.mark.promise("review.agents")
def test_no_agent_grants_above_a_space_under_review(book):
    book.create_space("org")
    book.create_space("org/team")
    book.grant(AGENT, "org", "admin")
    book.grant(ANA, "org", "writer")
    agent = book.acting_as(AGENT)
    agent.grant("user:eve", "org", "reader")
    book.set_review("org/team", "agents")
    for attempt in (lambda: agent.grant("user:eve", "org", "admin"), lambda: agent.revoke(ANA, "org")):
        with pytest.raises(NotAllowed, match="under review"):
            attempt()
    with pytest.raises(NotAllowed):
        agent.rename_space("org", "firm")
    assert {(one.principal, one.role) for one in book.grants(space="org")} == {
        (AGENT, "admin"),
        (ANA, "writer"),
        ("user:eve", "reader"),
    }
    book.set_review("org/team", None)
    agent.revoke(ANA, "org")

"""Rewinds by agents in a space under review: they take back what they have appended themselves, and nothing else."""

from __future__ import annotations

import pytest

from commonbook.errors import NotAllowed
from commonbook.service.book import Book

AGENT, OTHER, BOB = "agent:helper", "agent:other", "user:bob"


@pytest.fixture
def team(book: Book) -> Book:
    """A space under review beside one that is not; two agents and Bob write to both."""
    for space in ("team", "notes"):
        book.create_space(space)
        for principal in (AGENT, OTHER, BOB):
            book.grant(principal, space, "writer")
    book.set_review("team", "agents")
    return book


def rewound(book: Book, session: str = "talk") -> list[int]:
    return [message.seq for message in book.messages(session, space="team").items if message.rewound_at]


@pytest.mark.promise("review.sessions")
def test_an_agent_takes_back_what_it_has_appended_itself(team):
    bob, agent = team.acting_as(BOB, space="team"), team.acting_as(AGENT, space="team")
    bob.append("talk", ["We ship on Tuesday"])
    agent.append("talk", ["Noted", "And on Friday"])
    (episode,) = agent.settle("talk").episodes
    agent.rewind("talk", 2)
    agent.rewind("talk", 1)
    assert rewound(team) == [2, 3]
    assert "Tuesday" in team.get(episode).text
    assert "Noted" not in team.get(episode).text


@pytest.mark.promise("review.sessions")
@pytest.mark.parametrize("is_settled", [True, False])
def test_an_agent_takes_back_no_message_of_others(team, is_settled):
    bob = team.acting_as(BOB, space="team")
    bob.append("talk", ["We ship on Tuesday", {"role": "assistant", "content": "Noted"}])
    team.acting_as(OTHER).append("talk", ["I am another agent"], space="team")
    team.acting_as(AGENT).append("talk", ["I am not"], space="team")
    episodes = bob.settle("talk").episodes if is_settled else ()
    before = [team.get(id_) for id_ in episodes]
    for after in (0, 1, 2):
        for agent in (team.acting_as(AGENT), team.acting_as(AGENT, proposing=True)):
            with pytest.raises(NotAllowed, match="take back"):
                agent.rewind("talk", after, space="team")
    assert (rewound(team), [team.get(id_) for id_ in episodes]) == ([], before)
    bob.rewind("talk", 0)
    assert rewound(team) == [1, 2, 3, 4]


@pytest.mark.promise("review.sessions")
def test_messages_of_an_earlier_session_of_the_name_prove_nothing(team):
    agent, bob = team.acting_as(AGENT), team.acting_as(BOB)
    agent.append("talk", ["Mine"], space="team")
    for space in ("team", "notes"):
        team.grant("user:eve", space, "writer")
    team.acting_as("user:eve").move_session("talk", "notes", space="team")
    # Nobody leads the messages of others away: the name is free again.
    team.revoke("user:eve", "team")
    bob.append("talk", ["We ship on Tuesday"], space="team")
    with pytest.raises(NotAllowed):
        agent.rewind("talk", 0, space="team")
    assert rewound(team) == []


@pytest.mark.promise("review.sessions")
def test_an_agent_takes_nothing_out_of_an_episode_that_somebody_has_edited(team):
    agent = team.acting_as(AGENT, space="team")
    agent.append("talk", ["We ship on Tuesday", "Noted"])
    (episode,) = agent.settle("talk").episodes
    team.acting_as(BOB).edit(episode, text=team.get(episode).text + "\n\nBob: checked.")
    before = team.get(episode)
    for after in (0, 1):
        with pytest.raises(NotAllowed, match="edited"):
            agent.rewind("talk", after)
    assert (rewound(team), team.get(episode)) == ([], before)


@pytest.mark.promise("review.sessions")
def test_a_rewind_by_an_agent_does_not_reach_an_episode_that_was_moved_into_a_space_under_review(team):
    agent = team.acting_as(AGENT, space="notes")
    agent.append("talk", ["We ship on Tuesday"])
    (episode,) = agent.settle("talk").episodes
    team.move(episode, "team")
    before = team.get(episode)
    agent.rewind("talk", 0)
    assert team.get(episode) == before

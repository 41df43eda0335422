"""Standing wishes: the short list of them for the user who asks, and their place among the hits of advice."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from commonbook import BadInput, NewMessage, RecallResult

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)

FORMAT = "Always format dates as DD.MM.YYYY."
FRIDAYS = "Never deploy on Fridays."
TEA = "I prefer tea to coffee."


def at(minute):
    return NOON + timedelta(minutes=minute)


def listed(book, query="", **options):
    return [wish.text for wish in book.recall(query, include=["wishes"], **options).wishes]


@pytest.mark.promise("recall.wishes")
def test_wishes_in_messages_and_memories_are_listed_newest_first_whatever_the_query_is(book):
    book.append(
        "s", [NewMessage(f"Thanks a lot. {FORMAT} What is next?", time=at(1)), NewMessage("Go on.", time=at(2))]
    )
    book.remember(FRIDAYS, occurred=at(3))
    book.remember("Window seats on trains", kind="preference", occurred=at(4))
    book.append("t", [NewMessage("Ich trinke lieber Tee.", time=at(5))])
    assert listed(book, "the boiling point of gallium") == [
        "Ich trinke lieber Tee.",
        "Window seats on trains",
        FRIDAYS,
        FORMAT,
    ]
    book.settle("s")
    book.reindex()
    assert listed(book)[-1] == FORMAT
    assert book.recall("dates").wishes == ()


@pytest.mark.promise("recall.wishes")
def test_what_others_said_is_no_wish_of_the_user(book):
    book.append(
        "s",
        [
            NewMessage("Always use tabs.", role="assistant"),
            NewMessage("Never use tabs.", role="system"),
            NewMessage("My boss told me: never deploy on Fridays. She prefers tea."),
        ],
    )
    book.remember("The user prefers tea.", kind="preference", space="personal")
    book.grant("agent:bot", "personal", "writer")
    book.acting_as("agent:bot").remember("Never use spaces.", kind="preference", space="personal")
    assert listed(book) == ["The user prefers tea."]


@pytest.mark.promise("recall.wishes")
def test_each_user_gets_his_own_wishes_from_the_default_spaces(book):
    book.create_space("team")
    for name in ("user:ann", "user:bob"):
        book.grant(name, "personal", "writer")
        book.grant(name, "team", "writer")
    ann, bob = book.acting_as("user:ann"), book.acting_as("user:bob")
    ann.append("a", [NewMessage("Never use emojis.")], space="personal")
    bob.append("b", [NewMessage("Always use emojis.")], space="personal")
    bob.append("b", [NewMessage("Never phone me.")], space="team")
    book.append("o", [NewMessage(FRIDAYS, author="user:guest")], space="personal")
    assert listed(ann, spaces=["team"]) == ["Never use emojis."]
    assert listed(bob, spaces=["personal", "team"]) == ["Always use emojis."]
    assert listed(book) == [FRIDAYS]
    book.revoke("user:ann", "personal")
    assert listed(ann, spaces=["team"]) == []


@pytest.mark.promise("recall.wishes")
def test_an_agent_gets_the_wishes_of_the_owner_of_its_home(book, engine):
    book.grant("agent:helper", "personal", "writer")
    book.append("s", [NewMessage(FRIDAYS)], space="personal")
    assert listed(book.acting_as("agent:helper")) == ([FRIDAYS] if engine == "sqlite" else [])


@pytest.mark.promise("recall.wishes")
def test_wishes_disappear_as_hits_do(book):
    old = book.remember("I prefer coffee.", occurred=at(1))
    deleted = book.remember("Never book aisle seats.", occurred=at(2))
    book.remember("Always call me Al.", occurred=at(3), expires=at(4))
    book.append("s", [NewMessage("Never use tabs.", client_id="1"), NewMessage("Always use spaces.", client_id="2")])
    assert set(listed(book)) == {"I prefer coffee.", "Never book aisle seats.", "Never use tabs.", "Always use spaces."}
    book.rewind("s", 1)
    book.delete(deleted.id)
    book.remember(TEA, replaces=old.id)
    assert set(listed(book)) == {TEA, "Never use tabs."}


@pytest.mark.promise("recall.wishes")
def test_the_same_wish_is_listed_once_and_the_list_is_short(book):
    book.append("s", [NewMessage("never deploy on fridays", time=at(1)), NewMessage(FRIDAYS, time=at(2))])
    assert listed(book) == [FRIDAYS]
    book.append(
        "s", [NewMessage(f"Always add the footer number {number}.", time=at(9 + number)) for number in range(20)]
    )
    wishes = book.recall(include=["wishes"]).wishes
    assert len(wishes) == 12
    assert wishes[0].text == "Always add the footer number 19."
    book.append("s", [NewMessage(f"Always {'carefully check ' * 11} {number}.", time=at(50)) for number in range(20)])
    assert 2 <= len(listed(book)) <= 6


@pytest.mark.promise("recall.wishes")
def test_a_prompt_carries_the_wishes_above_the_hits_within_its_budget(book):
    book.append("s", [NewMessage(FRIDAYS, time=at(1)), NewMessage(FORMAT, time=at(2))])
    book.remember("The boiler is in the cellar.")
    found = book.recall("Where is the boiler?", include=["wishes"])
    lines = found.as_prompt(max_tokens=300).splitlines()
    assert lines[3:6] == [
        "Standing wishes of the user, newest first:",
        f"- 2026-03-01, local: {FORMAT}",
        f"- 2026-03-01, local: {FRIDAYS}",
    ]
    assert "  The boiler is in the cellar." in lines[6:]
    shorter = found.as_prompt(max_tokens=110)
    assert FORMAT in shorter
    assert FRIDAYS not in shorter
    assert len(shorter) <= 4 * 110
    silent = book.recall("the boiling point of gallium in kelvin", include=["wishes"])
    assert not silent.hits
    assert FORMAT in silent.as_prompt(max_tokens=300)
    assert isinstance(silent, RecallResult)


def test_an_unknown_name_is_not_included(book):
    with pytest.raises(BadInput, match="whims"):
        book.recall(include=["whims"])


@pytest.mark.promise("recall.wishes")
def test_wishes_come_first_where_advice_is_asked_for_and_nowhere_else(book):
    book.append("s", [NewMessage("The letter to the bank is on the desk.", time=at(1))])
    book.append("t", [NewMessage("Never write a letter to the bank by hand.", time=at(2))])
    advice = book.recall("How should I send a letter to the bank?", explain=True).hits
    assert advice[0].passage.startswith("Never write")
    assert advice[0].parts["wish"] > 0
    facts = book.recall("Is the letter to the bank on the desk?", min_confidence=0).hits
    assert facts[0].passage.startswith("The letter")
    assert all(hit.parts["wish"] == 0 for hit in facts)


@pytest.mark.promise("recall.wishes")
def test_a_prefetched_list_is_not_handed_out_once_its_space_is_closed_to_the_user(book):
    book.create_space("team")
    for space in ("personal", "team"):
        book.grant("user:ann", space, "writer")
    ann = book.acting_as("user:ann")
    ann.append("a", [NewMessage("Never use emojis.")], space="personal")
    ann.append("s", [NewMessage("The boiler is in the cellar.")], space="team")
    query = "Where is the boiler?"

    def fetched():
        found = ann.prefetched("s", query, space="team", wait=60)
        return found and [wish.text for wish in found.wishes]

    assert ann.prefetch("s", query, space="team", spaces=["team"], include=["wishes"])
    assert fetched() == ["Never use emojis."]
    assert ann.prefetch("s", query, space="team", spaces=["team"], include=["wishes"])
    book.revoke("user:ann", "personal")
    assert not fetched()

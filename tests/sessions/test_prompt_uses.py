"""The book keeps which memories were put into which turns, and tells it to those who may read both."""

from __future__ import annotations

import pytest

import commonbook
from commonbook.errors import BadInput, NotAllowed, NotFound, TooLarge
from commonbook.values.session import NewMessage, PromptPassage

HASH = "a" * 64


def turn(book, number: int, session: str = "talk", space: str = "garden") -> str:
    """Append a turn, and return the client id of its prompt."""
    prompt = NewMessage(f"Prompt number {number}", client_id=f"prompt-{number}")
    book.append(session, [prompt, NewMessage(f"Answer number {number}", role="assistant")], space=space)
    return f"prompt-{number}"


def places(uses) -> list[tuple[str, str, int, str]]:
    return [(use.space, use.session, use.seq, use.id) for use in uses]


@pytest.mark.promise("hooks.uses")
def test_the_turns_that_a_memory_reached_are_told_the_newest_first(book):
    memory = book.remember("Tulips need sandy soil", space="garden").id
    other = book.remember("Roses need loam", space="garden").id
    turn(book, 1)
    second = turn(book, 2)
    passages = [PromptPassage(memory, HASH, 1), PromptPassage(other, HASH)]
    assert book.record_uses("talk", passages[:1], space="garden") == 1
    assert book.record_uses("talk", passages, message=second, space="garden") == 2
    assert places(book.uses(memory)) == [("garden", "talk", 3, memory), ("garden", "talk", 0, memory)]
    first = book.uses(memory)[0]
    assert (first.hash, first.revision, first.by) == (HASH, 1, "user:local")
    assert {(use.seq, use.id) for use in book.session_uses("talk")} == {(0, memory), (3, memory), (3, other)}
    assert [use.seq for use in book.session_uses("talk", first=1, last=2)] == []
    assert [use.revision for use in book.uses(other)] == [None]


@pytest.mark.promise("hooks.uses")
def test_a_use_that_is_sent_again_is_kept_once(book):
    memory = book.remember("Tulips need sandy soil", space="garden").id
    prompt = turn(book, 1)
    assert [book.record_uses("talk", [PromptPassage(memory, HASH)], message=prompt) for _ in range(3)] == [1, 0, 0]
    # Another text of the memory is another passage.
    assert book.record_uses("talk", [PromptPassage(memory, "b" * 64)], message=prompt) == 1
    assert len(book.uses(memory)) == 2
    actions = [entry.action for entry in book.log(space="garden", limit=100)]
    assert actions.count("session.use") == 2
    assert book.verify_log().findings == ()


@pytest.mark.promise("hooks.uses")
def test_a_memory_that_is_edited_or_deleted_is_still_told(book):
    memory = book.remember("Tulips need wet soil", space="garden").id
    book.record_uses("talk", [PromptPassage(memory, HASH, 1)], message=turn(book, 1))
    book.edit(memory, text="Tulips need sandy soil")
    book.delete(memory)
    assert [use.revision for use in book.uses(memory)] == [1]
    assert places(book.session_uses("talk")) == [("garden", "talk", 1, memory)]


@pytest.mark.promise("hooks.uses")
def test_an_episode_has_the_turns_that_its_messages_reached(book):
    turn(book, 1, "first")
    (message, _) = book.messages("first").items
    book.record_uses("talk", [PromptPassage(message.id, HASH)], message=turn(book, 2))
    assert places(book.uses(message.id)) == [("garden", "talk", 1, message.id)]
    assert [use.memory for use in book.session_uses("talk")] == [None]
    (episode,) = book.settle("first").episodes
    assert places(book.uses(episode)) == [("garden", "talk", 1, message.id)]
    assert [use.memory for use in book.session_uses("talk")] == [episode]
    # Who may read the session and not the place that the episode was moved to learns nothing of that.
    book.grant("user:bob", "garden", "reader")
    book.move(episode, "vault")
    assert [use.memory for use in book.acting_as("user:bob").session_uses("talk")] == [None]


@pytest.mark.promise("hooks.uses")
def test_only_what_one_may_read_is_told(book):
    memory = book.remember("The safe opens at nine", space="vault").id
    open_to_all = book.remember("Tulips need sandy soil", space="garden").id
    prompt = turn(book, 1)
    book.record_uses("talk", [PromptPassage(memory, HASH), PromptPassage(open_to_all, HASH)], message=prompt)
    book.grant("user:bob", "garden", "reader")
    book.grant("user:ana", "vault", "reader")
    bob, ana = book.acting_as("user:bob"), book.acting_as("user:ana")
    assert places(bob.session_uses("talk")) == [("garden", "talk", 1, open_to_all)]
    with pytest.raises(NotFound):
        bob.uses(memory)
    assert memory not in repr(bob.log(space="garden", limit=100))
    # The session is in a space that Ana may not read.
    assert ana.uses(memory) == ()
    with pytest.raises(NotFound):
        ana.session_uses("talk")
    with pytest.raises(NotAllowed):
        bob.record_uses("talk", [PromptPassage(open_to_all, HASH)], message=prompt)


def test_what_cannot_be_is_refused(book):
    memory = book.remember("Tulips need sandy soil", space="garden").id
    turn(book, 1)
    good = PromptPassage(memory, HASH)
    for passages, message, error in (
        ([good], 3, BadInput),
        ([good], -1, BadInput),
        ([good], "never sent", NotFound),
        ([PromptPassage("nothing", HASH)], 0, BadInput),
        ([PromptPassage(memory, "short")], 0, BadInput),
        ([PromptPassage(memory, HASH, -1)], 0, BadInput),
        ([good] * 201, 0, TooLarge),
    ):
        with pytest.raises(error):
            book.record_uses("talk", passages, message=message)
    with pytest.raises(NotFound):
        book.record_uses("nowhere", [good])
    with pytest.raises(NotFound):
        book.uses(commonbook.values.ids.new_id())
    assert book.uses(memory) == ()

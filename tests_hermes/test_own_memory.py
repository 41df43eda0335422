"""The memory of the real Hermes itself, which is mirrored in the book, and what it delegates."""

from __future__ import annotations

from tests_hermes.test_approval import TEA, texts

QUESTION, TASK, ANSWER = "how many herons are there", "count the herons in the reeds", "There are three."


def test_an_entry_of_hermes_own_memory_is_mirrored_until_it_is_reset(hermes):
    entry = {"call": "memory", "arguments": {"action": "add", "target": "memory", "content": TEA}}
    agent = hermes(entry, {"text": "Noted."}, {"text": "Fine."})
    agent.once("note how I take my tea")
    assert texts(agent) == [TEA]
    agent.run("memory", "reset", "--yes")
    agent.once("thank you")
    assert texts(agent) == []


def test_a_delegated_task_is_a_session_of_its_own_and_its_result_is_nobodys_words(hermes):
    # Newer versions delegate in the background: the order in which the two agents ask the model is open.
    agent = hermes({"call": "delegate_task", "arguments": {"goal": TASK}}, *[{"text": ANSWER}] * 6)
    chat = agent.chat()
    chat.turn(QUESTION)
    chat.wait(lambda: agent.returned("on_delegation") > 0)
    chat.turn("thank you")
    chat.exit()
    sessions = agent.sessions()
    (conversation,) = (one for one in sessions if one.parent is None)
    (delegation,) = (one for one in sessions if one.parent == conversation.id)
    assert delegation.messages == [("user", TASK), ("assistant", ANSWER)]
    assert [text for role, text in conversation.messages if role == "user"] == [QUESTION, "thank you"]
    assert {text for role, text in conversation.messages if role == "assistant"} == {ANSWER}

"""Typed words: what a person typed is told from what Hermes put in."""

from __future__ import annotations

import pytest

from commonbook.adapters.hermes.provider import CommonbookMemoryProvider
from commonbook.adapters.hermes.transcripts import transcript_messages, typed_words
from tests.support.hermes import Hermes, everything, reading

pytestmark = pytest.mark.promise("hermes.typed")

SKILL = (
    '[IMPORTANT: The user has invoked the "deploy" skill, indicating they want you to follow its instructions. The '
    "full skill content is loaded below.]\n\n# Deploy\nRun it [with care].\n\n[Skill directory: /skills/deploy]"
)
INSTRUCTION = "\n\nThe user has provided the following instruction alongside the skill invocation: "
BUNDLE = (
    '[IMPORTANT: The user has invoked the "release" skill bundle, loading 2 skills.]\n\nUser instruction: ship it\n\n'
    '[Loaded as part of the "release" skill bundle.]\n\n# Build'
)
FILE = "\n\n--- Attached Context ---\n\n📄 @file:notes.md (120 tokens)\n```markdown\nReeds are cut in March.\n```"

ATTACHED = """--- Context Warnings ---
- @file:gone.md: file not found

--- Attached Context ---

📁 @folder:src (9 tokens)
src/

🧾 git diff (7 tokens)
```diff
+reed
```"""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("where does the heron nest", "where does the heron nest"),
        ("[heron] is a tag of mine", "[heron] is a tag of mine"),
        (SKILL, "/deploy"),
        (f"{SKILL}{INSTRUCTION}the mill page", "/deploy the mill page"),
        (f"{SKILL}{INSTRUCTION}first{INSTRUCTION}then\n\n[Runtime note: dry run]", "/deploy then"),
        (BUNDLE, "/release ship it"),
        (f"summarise for me{FILE}", "summarise for me\n@file:notes.md"),
        (FILE.strip(), "@file:notes.md"),
        (f"look\n\n{ATTACHED}", "look\n@file:gone.md @folder:src git diff"),
        ("[Continuing toward your standing goal]\nGoal: count the reeds\n\nContinue.", ""),
        ("[ASYNC DELEGATION BATCH COMPLETE - d1]\nA background fan-out has finished.", ""),
        ('[IMPORTANT: Background process p1 matched watch pattern "x[".\nCommand: ls]', ""),
        ("[System: Your previous response was truncated by the output length limit.]", ""),
        ("[System note: The session [daily] was reset.]\n\nhello", "hello"),
        ("[Note: model was just switched from a to b.]\n\n[System note: again.]\n\nhello", "hello"),
        ("You've reached the maximum number of tool-calling iterations allowed. Please provide", ""),
    ],
)
def test_only_the_words_that_a_person_typed_are_kept(text, words):
    assert typed_words(text) == words


def test_messages_that_hermes_marks_are_its_own():
    messages = [
        {"role": "user", "content": "look it up"},
        {"role": "assistant", "content": "(empty)", "_empty_recovery_synthetic": True},
        {"role": "user", "content": "Process the results above.", "_empty_recovery_synthetic": True},
        {"role": "assistant", "content": "Found it."},
    ]
    assert [one.text for one in transcript_messages(messages)] == ["look it up", "Found it."]


def test_an_unknown_notice_within_a_turn_is_recognised_by_its_place(provider, place):
    hermes = Hermes(provider)
    hermes.turn("first", "one")
    provider.on_turn_start(2, "second")
    hermes.messages += [
        {"role": "user", "content": "second"},
        {"role": "assistant", "content": "let me see"},
        {"role": "user", "content": "Hermes of tomorrow wants something else here."},
        {"role": "assistant", "content": "two"},
    ]
    provider.sync_turn("second", "two", session_id="s1", messages=list(hermes.messages))
    hermes.turn("third", "three")
    hermes.exit()
    with_interim = [("user", "first"), ("assistant", "one"), ("user", "second"), ("assistant", "let me see")]
    with reading(place) as book:
        stored = [(one.role, one.text) for one in everything(book)["s1"][1]]
    assert stored == [*with_interim, ("assistant", "two"), ("user", "third"), ("assistant", "three")]
    assert not hermes.errors


@pytest.mark.parametrize("asks", ["consider saving to memory if appropriate.", "update the skill library. Be active."])
def test_a_review_by_a_copy_of_the_agent_is_no_turn_of_the_conversation(provider, place, tmp_path, asks):
    """Hermes 0.13 gives the copy a provider of its own, as if somebody talked to it."""
    limit = "You can only call memory and skill management tools. Other tools will be denied at runtime."
    review = f"Review the conversation above and {asks}\n\n{limit}"
    hermes = Hermes(provider)
    hermes.turn("first", "one")
    copy = CommonbookMemoryProvider()
    copy.initialize("s2", hermes_home=str(tmp_path / "hermes"), platform="cli", agent_context="primary")
    copy.on_turn_start(2, review)
    copy.sync_turn(review, "Nothing to save.", session_id="s2")
    copy.on_session_end([])
    copy.shutdown()
    typed = "Review the conversation above and tell me what is missing"
    hermes.turn(typed, "nothing")
    hermes.exit()
    with reading(place) as book:
        stored = {name: [message.text for message in messages] for name, (_, messages) in everything(book).items()}
    assert stored == {"s1": ["first", "one", typed, "nothing"]}
    assert not hermes.errors

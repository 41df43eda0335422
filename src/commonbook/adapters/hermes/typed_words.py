"""Typed words: the part of a user message that a person typed. All functions are pure.

Hermes writes user messages of its own, and puts texts into those of people: skills, attached files, notes.
Its messages and notes begin with a label in brackets. A skill and a file become a reference: `/name`, `@file:name`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

# The whole message is by Hermes: the bracket is its heading, and the text below belongs to it.
_HEADINGS: Final = (
    "[CONTEXT COMPACTION",
    "[CONTEXT SUMMARY]",
    "[PRIOR CONTEXT",
    "[Your active task list was preserved",
    "[Continuing toward ",
    "[ASYNC DELEGATION",
    "[IMPORTANT: Background process ",
    "[Background process ",
)
# Only the bracket is by Hermes: the words after it were typed.
_NOTES: Final = (
    "[System: ",
    "[System note: ",
    "[Note: model was just switched",
    "[Voice input ",
    "[USER INITIATED SKILLS RELOAD:",
    "[IMPORTANT: ",
)
# These have no label. They are recognised by their place in a turn; the text is for transcripts of another process.
_UNLABELLED: Final = (
    "You've reached the maximum number of tool-calling iterations allowed.",
    "You just executed tool calls but returned an empty response.",
    "Continue from the compressed conversation context above. This marker exists",
)
_SUMMARIES: Final = _HEADINGS[:3]
_REVIEW: Final = "Review the conversation above and "
_REVIEW_LIMIT: Final = "You can only call memory and skill management tools."

_SKILL: Final = re.compile(r'\[IMPORTANT: The user has invoked the "([^"\n]+)" (?:stacked )?skill( bundle)?,')
_SKILL_INSTRUCTION: Final = "The user has provided the following instruction alongside the skill invocation: "
_BUNDLE_INSTRUCTION: Final = "\nUser instruction: "
_END_OF_SKILL_INSTRUCTION: Final = "\n\n[Runtime note:"
_END_OF_BUNDLE_INSTRUCTION: Final = "\n\n[Loaded as part of the "

_ATTACHMENTS: Final = re.compile(r"(?:\A|\n\n)--- (?:Context Warnings|Attached Context) ---\n")
_REFERENCE: Final = re.compile(
    r"^(?:[📄📁🌐] (@\S.*?) \(\d+ tokens\)$|🧾 (git .+?) \(\d+ tokens\)$|📎 (@\S.*?) \(|- (@\w+:\S+): )", re.MULTILINE
)


def typed_words(text: str) -> str:
    """Return the words that a person typed, with references for what Hermes put in; empty if it wrote the message."""
    if text.startswith(_UNLABELLED):
        return ""
    while text.startswith("["):
        if skill := _SKILL.match(text):
            return _skill_words(text, skill)
        if text.startswith(_HEADINGS):
            return ""
        if not text.startswith(_NOTES):
            break
        text = text[_end_of_bracket(text) :].lstrip()
    return _without_attachments(text)


def is_summary(text: str) -> bool:
    """Tell whether a message begins with Hermes' summary of earlier turns, which are gone from the transcript."""
    return text.startswith(_SUMMARIES)


def is_review(text: str) -> bool:
    """Tell whether Hermes asks a copy of the agent to review the conversation; newer versions keep it from a memory."""
    return text.startswith(_REVIEW) and _REVIEW_LIMIT in text


def is_marked(message: Mapping[object, object]) -> bool:
    """Tell whether Hermes has marked a message as its own, by a key such as `_empty_recovery_synthetic`."""
    return any(value and str(key).startswith("_") and str(key).endswith("_synthetic") for key, value in message.items())


def _skill_words(text: str, skill: re.Match[str]) -> str:
    name, bundle = skill[1], bool(skill[2])
    # An instruction comes after the text of a skill, which may quote the marker, but before the texts of a bundle.
    marker = _BUNDLE_INSTRUCTION if bundle else _SKILL_INSTRUCTION
    end = _END_OF_BUNDLE_INSTRUCTION if bundle else _END_OF_SKILL_INSTRUCTION
    before, found, after = text.partition(marker) if bundle else text.rpartition(marker)
    instruction = after.partition(end)[0].strip() if found and before else ""
    command = " ".join("/" + re.sub(r"[\s_]+", "-", word.strip().lstrip("/")).lower() for word in name.split(","))
    return f"{command} {instruction}".strip()


def _end_of_bracket(text: str) -> int:
    depth = 0
    for index, character in enumerate(text):
        depth += (character == "[") - (character == "]")
        if not depth:
            return index + 1
    return len(text)


def _without_attachments(text: str) -> str:
    """Replace the texts of attached files by their references."""
    start = _ATTACHMENTS.search(text)
    if start is None:
        return text
    found = _REFERENCE.finditer(text, start.start())
    references = dict.fromkeys(next(filter(None, reference.groups())) for reference in found)
    return "\n".join(part for part in (text[: start.start()].strip(), " ".join(references)) if part)

"""The context that a hook adds to a prompt: fenced as data, small, the same bytes for the same memories.

This module alone decides how much is recalled for a prompt. Recall itself is silent where probably nothing answers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Final, NamedTuple

from commonbook.core.text.recall_fence import without_quotes
from commonbook.values import prompts
from commonbook.values.session import PromptPassage

if TYPE_CHECKING:
    from commonbook.interfaces.agents.hooks.folder import SessionState
    from commonbook.values.recall import Hit
    from commonbook.verbs import Verbs

MAX_TOKENS: Final = 1500
_CHARS_A_TOKEN: Final = 4
_MAX_PASSAGE_CHARS: Final = 1500
_START_COUNT: Final = 12
_PROMPT_COUNT: Final = 6
_CANDIDATES: Final = 30
_START_KINDS: Final = ("note", "fact", "preference", "decision", "procedure", "reflection")
_WORD: Final = re.compile(r"[^\W\d_]{3,}")
_IDEOGRAPH: Final = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_TRIVIAL: Final = frozenset(
    {
        "again", "ahead", "and", "cancel", "commit", "continue", "done", "fine", "good", "great", "next", "nope", "now",
        "okay", "please", "proceed", "push", "retry", "run", "stop", "sure", "test", "tests", "thank", "thanks", "the",
        "undo", "wait", "yeah", "yep", "yes", "you",
    }
)  # fmt: skip
_MIN_WORDS: Final = 2
_MIN_IDEOGRAPHS: Final = 3


class Context(NamedTuple):
    """A text for a prompt, the passages of memories and messages in it, and the tag of the fence around them."""

    text: str = ""
    passages: tuple[PromptPassage, ...] = ()
    tag: str = ""


def is_trivial(prompt: str) -> bool:
    """Return whether a prompt asks for nothing that a book could know: an assent, or a command of the agent."""
    if prompt.lstrip().startswith("/"):
        return True
    words = {word.lower() for word in _WORD.findall(prompt)} - _TRIVIAL
    return len(words) < _MIN_WORDS and len(_IDEOGRAPH.findall(prompt)) < _MIN_IDEOGRAPHS


def at_start(book: Verbs, state: SessionState) -> Context:
    """Return wishes and the newest memories, in the order in which they were made: unchanged, the same bytes."""
    found = book.recall(kinds=_START_KINDS, k=_START_COUNT, budget_tokens=MAX_TOKENS, include=["wishes"])
    wishes = [wish.line for wish in found.wishes if wish.id not in {hit.id for hit in found.hits}]
    return _fenced(sorted(found.hits, key=lambda hit: hit.id), state.tag or found.fence, wishes)


def at_prompt(book: Verbs, prompt: str, *, session: str, state: SessionState) -> Context:
    """Return what answers a prompt and is not in the conversation already."""
    if is_trivial(prompt):
        return Context()
    # A prompt is not a query: its quoted words need not occur.
    found = book.recall(without_quotes(prompt[:4000]), k=_CANDIDATES, budget_tokens=4 * MAX_TOKENS)
    new = [hit for hit in found.hits if not _is_in_conversation(hit, session, state)]
    return _fenced(new[:_PROMPT_COUNT], state.tag or found.fence)


def _is_in_conversation(hit: Hit, session: str, state: SessionState) -> bool:
    if hit.id in state.injected or hit.memory in state.injected:
        return True
    seq = hit.seq or 0
    if hit.session is None:
        return False
    return seq > state.compacted if hit.session == session else state.has_in_prompt(hit.session, seq)


def _fenced(hits: Iterable[Hit], tag: str, wishes: Sequence[str] = ()) -> Context:
    texts = [prompts.without_tags(block) for block in prompts.wish_block(wishes, max_tokens=MAX_TOKENS)]
    passages: list[PromptPassage] = []
    room = MAX_TOKENS * _CHARS_A_TOKEN - len(prompts.fence(["x"], tag)) - sum(len(text) + 2 for text in texts)
    for hit in hits:
        text = prompts.without_tags(f"[{_origin(hit)}]\n{hit.passage.strip()[:_MAX_PASSAGE_CHARS]}")
        if len(text) + 2 > room:
            break
        room -= len(text) + 2
        texts.append(text)
        passages.append(PromptPassage(hit.id, sha256(text.encode("utf-8", "replace")).hexdigest(), hit.revision))
    return Context(prompts.fence(texts, tag), tuple(passages), tag)


def _origin(hit: Hit) -> str:
    """Return when, where and by whom it was written, and the marks of what makes it doubtful."""
    place = f"session {hit.session}" if hit.session else f"{hit.kind} {hit.id}"
    marks = [*(["may be outdated"] if hit.superseded_by or hit.suspect else []), *hit.marks]
    return ", ".join([(hit.occurred or hit.created).date().isoformat(), hit.space, hit.author, place, *marks])

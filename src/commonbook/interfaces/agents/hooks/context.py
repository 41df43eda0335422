"""The context that a hook adds to a prompt: fenced as data, small, the same bytes for the same memories.

This module alone decides how much is recalled for a prompt. Recall itself is silent where probably nothing answers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Final, NamedTuple

from commonbook.core.text.recall_fence import without_quotes
from commonbook.values import prompts
from commonbook.values.session import PromptPassage

if TYPE_CHECKING:
    from commonbook.interfaces.agents.hooks.folder import SessionState
    from commonbook.values.hit import Hit
    from commonbook.verbs import Verbs

MAX_TOKENS: Final = 1500
_START_COUNT: Final = 12
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
    found = book.recall(kinds=_START_KINDS, k=_START_COUNT, include=["wishes"])
    wishes = [wish.line for wish in found.wishes if wish.id not in {hit.id for hit in found.hits}]
    standing = prompts.wish_block(wishes, max_tokens=MAX_TOKENS)
    # Texts around them would come and go with the room that newer ones leave.
    alone = [hit._replace(before="", after="") for hit in found.hits]
    room = MAX_TOKENS - prompts.FENCE_TOKENS - sum(map(prompts.tokens, standing))
    fitting = prompts.fit(alone, room, _heading)
    return _context(sorted(fitting, key=lambda stretch: stretch.hit.id), state.tag or found.fence, standing)


def at_prompt(book: Verbs, prompt: str, *, session: str, state: SessionState, last: int = 0) -> Context:
    """Return what answers a prompt and is not in the conversation already; `last` is the session's last message.

    It is only needed after a compaction.
    """
    if is_trivial(prompt):
        return Context()
    present = max(last - state.compacted, 1) if state.compacted else None
    # A prompt is not a query: its quoted words need not occur.
    query = without_quotes(prompt[:4000])
    found = book.recall(query, k=_CANDIDATES, exclude_session=session, exclude_last=present)
    new = [
        hit._replace(
            before="" if _is_message_present(hit, -1, session, state) else hit.before,
            after="" if _is_message_present(hit, 1, session, state) else hit.after,
        )
        for hit in found.for_prompt
        if not {hit.id, hit.memory} & {*state.injected} and not _is_message_present(hit, 0, session, state)
    ]
    fitting = prompts.fit(new, MAX_TOKENS - prompts.FENCE_TOKENS, _heading)
    return _context(fitting, state.tag or found.fence)


def _is_message_present(hit: Hit, offset: int, session: str, state: SessionState) -> bool:
    """Return whether the message at this distance from a hit is in the conversation."""
    if hit.session is None:
        return False
    seq = (hit.seq or 0) + offset
    return seq > state.compacted if hit.session == session else state.has_in_prompt(hit.session, seq)


def _context(stretches: Sequence[prompts.Stretch], tag: str, above: Sequence[str] = ()) -> Context:
    passages = [
        PromptPassage(hit.id, sha256(text.encode("utf-8", "replace")).hexdigest(), hit.revision)
        for hit, offset, text in stretches
        if not offset
    ]
    return Context(prompts.block(stretches, tag, _heading, above), tuple(passages), tag)


_heading: Final = partial(prompts.heading_of, with_id=True)

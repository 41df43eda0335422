"""Complete the result of a recall: keep the hits within a budget of tokens, and make the tag of their fence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final

from commonbook.errors import HomeError
from commonbook.model import prompts
from commonbook.model.recall import Hit, RecallResult
from commonbook.ports.keys import Keys
from commonbook.recall.hits import Answer
from commonbook.text import recall_fence

_HEADING_TOKENS: Final = 8


def result_of(keys: Keys, answer: Answer, *, budget_tokens: int | None, notes: list[str]) -> RecallResult:
    """Return the result of an answer, without its times."""
    hits = tuple(_within_budget(answer.hits, budget_tokens))
    tag = _tag(keys, hits) if hits else ""
    return RecallResult(hits, 0.0, {}, tuple(notes), answer.left_out, answer.nearest, tag)


def _tag(keys: Keys, hits: Sequence[Hit]) -> str:
    """Return the tag of the fence around these hits; "" in a home without its keys, which recall does not need."""
    with suppress(HomeError):
        return recall_fence.new_tag(keys.keyed_hash, [hit.passage_id for hit in hits])
    return ""


def _within_budget(hits: Iterator[Hit], budget: int | None) -> Iterator[Hit]:
    """Yield the hits that fit into a budget of tokens; one that is too long is skipped, and a later one may fit."""
    left = budget
    for hit in hits:
        if left is None:
            yield hit
            continue
        needed = _tokens(hit)
        if needed <= left:
            left -= needed
            yield hit


def _tokens(hit: Hit) -> int:
    """Estimate the tokens of a hit in a prompt, with its heading."""
    return prompts.tokens("\n".join((hit.title, hit.before, hit.passage, hit.after))) + _HEADING_TOKENS

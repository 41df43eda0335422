"""Recall for models: the one place that says how much is recalled, and in which form it is handed on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from commonbook.interfaces.mcp.values import compact
from commonbook.model.ids import format_time

if TYPE_CHECKING:
    from commonbook.book.book import Book
    from commonbook.interfaces.mcp.tool import Arguments
    from commonbook.model.recall import Hit, RecallResult

_BUDGET_TOKENS: Final = 4000
"""A result of this size stays in the conversation of every client."""


def recall(book: Book, arguments: Arguments) -> dict[str, Any]:
    """Return the hits of a recall with these arguments, and its notes, if there are any.

    Without a budget, there are as many hits as a conversation can take.
    """
    result: RecallResult = book.recall(**{"budget_tokens": _BUDGET_TOKENS, **arguments})
    hits = {"hits": [hit_value(hit) for hit in result.hits]}
    return {**hits, "notes": list(result.notes)} if result.notes else hits


def hit_value(hit: Hit) -> dict[str, Any]:
    """Return a hit with its author and origin, and with the marks that tell whether it still holds."""
    return compact(  # type: ignore[no-any-return]
        {
            "id": hit.id,
            "type": hit.type,
            "kind": hit.kind if hit.type == "memory" else None,
            "memory": hit.memory if hit.memory != hit.id else None,
            "title": hit.title,
            "text": "\n".join(filter(None, (hit.before, hit.passage, hit.after))),
            "author": hit.author,
            "space": hit.space,
            "session": hit.session,
            "seq": hit.seq,
            "time": format_time(hit.occurred or hit.created),
            "tags": list(hit.tags),
            "confidence": round(hit.confidence, 2),
            "marks": list(hit.marks),
            "suspect": hit.suspect or None,
            "superseded_by": hit.superseded_by,
            "freshness": hit.freshness,
            "successor": hit.successor,
            "shared_by": hit.shared.by if hit.shared else None,
            "also_in": [place.space for place in hit.also_in],
        }
    )

"""The tool `recall`: find passages of memories and messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from commonbook.interfaces.mcp import recalling
from commonbook.interfaces.mcp.tool import ROWS, TEXT, TEXTS, Arguments, Result, Tool, count, text

if TYPE_CHECKING:
    from commonbook.book.book import Book


def _run(book: Book, arguments: Arguments) -> Result:
    return recalling.recall(book, arguments)


TOOL: Final = Tool(
    name="recall",
    description="Find what is known: memories and earlier messages that answer a question, best first."
    " Without a query, the newest.",
    run=_run,
    arguments={
        "query": TEXT,
        "k": count(50),
        "spaces": {**TEXTS, "description": "default: this project and personal; team/ is all below team"},
        "kinds": TEXTS,
        "tags": TEXTS,
        "session": TEXT,
        "author": TEXT,
        "since": text("time, or e.g. yesterday"),
        "until": TEXT,
        "as_of": text("what was valid then"),
        "min_confidence": {"type": "number"},
        "budget_tokens": count(20_000),
        "include": {"type": "array", "items": {"type": "string", "enum": ["superseded", "expired", "notices"]}},
    },
    result={"hits": ROWS},
    always_in_result=("hits",),
    always_loaded=True,
)

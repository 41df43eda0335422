"""The tool `remember`: store a memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from commonbook.interfaces.mcp.ids import full_id
from commonbook.interfaces.mcp.tool import FLAG, TEXT, TEXTS, Arguments, Hints, Result, Tool, choice, text
from commonbook.interfaces.mcp.values import receipt_value

if TYPE_CHECKING:
    from commonbook.book.book import Book

KINDS: Final = ("note", "fact", "preference", "decision", "procedure")


def _run(book: Book, arguments: Arguments) -> Result:
    replaces = {"replaces": full_id(book, arguments["replaces"])} if "replaces" in arguments else {}
    return receipt_value(book.remember(**{**arguments, **replaces}))


TOOL: Final = Tool(
    name="remember",
    description="Store one thing worth knowing later, as a sentence that can be understood alone.",
    run=_run,
    arguments={
        "text": TEXT,
        "title": TEXT,
        "kind": choice(*KINDS),
        "tags": TEXTS,
        "space": text("default: this project"),
        "occurred": text("when it happened, e.g. 2026-03-01"),
        "expires": TEXT,
        "replaces": text("id of a memory that no longer holds"),
        "key": text("idempotency key"),
    },
    required=("text",),
    result={"id": TEXT, "space": TEXT, "new": FLAG},
    always_in_result=("id",),
    ids=("replaces",),
    hints=Hints(),
    always_loaded=True,
)

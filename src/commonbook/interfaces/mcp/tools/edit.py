"""The tool `edit`: change fields of a memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from commonbook.interfaces.mcp.ids import full_id
from commonbook.interfaces.mcp.tool import NUMBER, TEXT, TEXTS, Arguments, Hints, Result, Tool, choice
from commonbook.interfaces.mcp.tools.remember import KINDS
from commonbook.interfaces.mcp.values import receipt_value

if TYPE_CHECKING:
    from commonbook.book.book import Book

_CLEARED: Final = ("title", "occurred", "valid_until", "expires")


def _run(book: Book, arguments: Arguments) -> Result:
    fields: dict[str, Any] = dict.fromkeys(arguments.get("clear", ()))
    fields |= {name: value for name, value in arguments.items() if name not in ("id", "clear")}
    return receipt_value(book.edit(full_id(book, arguments["id"]), **fields))


TOOL: Final = Tool(
    name="edit",
    description="Correct a memory; the old text stays in its history. If it was true before and no longer is,"
    " remember the new with `replaces`.",
    run=_run,
    arguments={
        "id": TEXT,
        "text": TEXT,
        "title": TEXT,
        "kind": choice(*KINDS),
        "tags": TEXTS,
        "occurred": TEXT,
        "valid_until": TEXT,
        "expires": TEXT,
        "clear": {"type": "array", "items": choice(*_CLEARED)},
        "expected_version": {**NUMBER, "description": "refuse if it has another"},
    },
    required=("id",),
    result={"id": TEXT, "version": NUMBER},
    always_in_result=("id", "version"),
    ids=("id",),
    hints=Hints(destructive=True, idempotent=True),
)

"""The tool `share`: copy a memory into another space."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from commonbook.interfaces import json_values
from commonbook.interfaces.mcp.ids import full_id
from commonbook.interfaces.mcp.tool import TEXT, Arguments, Hints, Result, Tool, choice
from commonbook.interfaces.mcp.values import compact

if TYPE_CHECKING:
    from commonbook.book.book import Book


def _run(book: Book, arguments: Arguments) -> Result:
    options = {"refresh": arguments["refresh"]} if "refresh" in arguments else {}
    receipt = book.share(full_id(book, arguments["id"]), arguments["to"], **options)
    return compact(json_values.share_receipt_json(receipt))  # type: ignore[no-any-return]


TOOL: Final = Tool(
    name="share",
    description="Copy a memory into another space, for those who read there. Only if the user asks.",
    run=_run,
    arguments={"id": TEXT, "to": TEXT, "refresh": choice("live", "lazy", "snapshot")},
    required=("id", "to"),
    result={"id": TEXT, "space": TEXT},
    always_in_result=("id", "space"),
    ids=("id",),
    hints=Hints(idempotent=True),
)

"""The tool `reflect`: store a conclusion with the memories that it was drawn from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from commonbook.interfaces.mcp.ids import full_id
from commonbook.interfaces.mcp.tool import TEXT, TEXTS, Arguments, Hints, Result, Tool
from commonbook.interfaces.mcp.values import receipt_value

if TYPE_CHECKING:
    from commonbook.book.book import Book


def _run(book: Book, arguments: Arguments) -> Result:
    return receipt_value(book.reflect(**{**arguments, "on": [full_id(book, each) for each in arguments["on"]]}))


TOOL: Final = Tool(
    name="reflect",
    description="Store a conclusion drawn from memories (`on`: their ids). When one of them is superseded,"
    " the conclusion is marked as suspect.",
    run=_run,
    arguments={"text": TEXT, "on": TEXTS, "title": TEXT, "tags": TEXTS, "space": TEXT, "key": TEXT},
    required=("text", "on"),
    result={"id": TEXT, "space": TEXT},
    always_in_result=("id",),
    ids=("on",),
    hints=Hints(),
)

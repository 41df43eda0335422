"""The tool `get`: one whole memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from commonbook.interfaces.mcp.ids import full_id
from commonbook.interfaces.mcp.tool import TEXT, Arguments, Result, Tool, text
from commonbook.interfaces.mcp.values import memory_value

if TYPE_CHECKING:
    from commonbook.book.book import Book


def _run(book: Book, arguments: Arguments) -> Result:
    return memory_value(book.get(full_id(book, arguments["id"])))


TOOL: Final = Tool(
    name="get",
    description="Read one whole memory, with its links, marks and version.",
    run=_run,
    arguments={"id": text("id, some of its digits, or title")},
    required=("id",),
    result={"id": TEXT, "text": TEXT},
    always_in_result=("id", "text"),
    ids=("id",),
)

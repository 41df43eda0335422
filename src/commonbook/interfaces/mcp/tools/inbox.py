"""The tool `inbox`: notices that wait for a decision."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from commonbook.interfaces.mcp.tool import ROWS, TEXT, Arguments, Result, Tool, count
from commonbook.interfaces.mcp.values import compact
from commonbook.wire.encoding import encode

if TYPE_CHECKING:
    from commonbook.book.book import Book


def _run(book: Book, arguments: Arguments) -> Result:
    inbox = compact(encode(book.inbox(**arguments)))
    return {"items": [], **inbox}


TOOL: Final = Tool(
    name="inbox",
    description="List notices: memories in doubt, since what they were drawn from was superseded. Decide by `triage`.",
    run=_run,
    arguments={"space": TEXT, "limit": count(100), "after": TEXT},
    result={"items": ROWS, "next": TEXT},
    always_in_result=("items",),
)

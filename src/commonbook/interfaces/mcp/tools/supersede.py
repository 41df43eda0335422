"""The tool `supersede`: let one memory take the place of another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from commonbook.interfaces.mcp.ids import full_id
from commonbook.interfaces.mcp.tool import TEXT, Arguments, Hints, Result, Tool

if TYPE_CHECKING:
    from commonbook.book.book import Book


def _run(book: Book, arguments: Arguments) -> Result:
    old, by = (full_id(book, arguments[name]) for name in ("old", "by"))
    return book.supersede(old, by, reason=arguments.get("reason", ""))._asdict()


TOOL: Final = Tool(
    name="supersede",
    description="Mark an old memory as replaced by a newer one; conclusions drawn from the old one get a notice.",
    run=_run,
    arguments={"old": TEXT, "by": TEXT, "reason": TEXT},
    required=("old", "by"),
    result={"id": TEXT, "by": TEXT},
    always_in_result=("id", "by"),
    ids=("old", "by"),
    hints=Hints(destructive=True, idempotent=True),
)

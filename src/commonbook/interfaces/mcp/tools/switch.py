"""The tool `switch`: go on in another session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from commonbook.interfaces import json_values
from commonbook.interfaces.mcp.tool import TEXT, TEXTS, Arguments, Hints, Result, Tool, choice

if TYPE_CHECKING:
    from commonbook.book.book import Book


def _run(book: Book, arguments: Arguments) -> Result:
    return json_values.settle_report_json(book.switch(**arguments))


TOOL: Final = Tool(
    name="switch",
    description="End a session and go on in another, whose parent it becomes.",
    run=_run,
    arguments={
        "old": TEXT,
        "new": TEXT,
        "reason": choice("new", "reset", "resume", "branch", "compress"),
        "space": TEXT,
    },
    required=("old", "new"),
    result={"session": TEXT, "episodes": TEXTS},
    always_in_result=("session",),
    hints=Hints(idempotent=True),
)

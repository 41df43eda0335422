"""The tool `status`: who the agent is, which spaces it reaches, and how much there is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from commonbook.interfaces.mcp.tool import TEXT, TEXTS, Arguments, Result, Tool
from commonbook.interfaces.mcp.values import compact
from commonbook.text.space_names import is_system

if TYPE_CHECKING:
    from commonbook.book.book import Book


def _run(book: Book, _arguments: Arguments) -> Result:
    status = book.status()
    fields = {
        "principal": book.actor,
        "default_space": book.default_space,
        "spaces": [space.name for space in book.spaces() if not is_system(space.name)],
        **{name: getattr(status, name) for name in ("memories", "sessions", "messages", "unsettled", "unsent")},
        "findings": [finding._asdict() for finding in status.findings],
    }
    return {**compact(fields), "spaces": fields["spaces"]}


TOOL: Final = Tool(
    name="status",
    description="Show who you are in the book, which spaces you reach, how much there is, and what is wrong.",
    run=_run,
    arguments={},
    result={"principal": TEXT, "default_space": TEXT, "spaces": TEXTS},
    always_in_result=("principal", "default_space", "spaces"),
)

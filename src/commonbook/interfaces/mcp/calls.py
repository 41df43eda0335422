"""The call of a tool: its arguments are checked, it runs, and any failure becomes a result too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from commonbook.errors import NotFound
from commonbook.interfaces.mcp import failures
from commonbook.interfaces.mcp.arguments import checked
from commonbook.interfaces.mcp.ids import near_ids
from commonbook.interfaces.mcp.values import outline

if TYPE_CHECKING:
    from commonbook.interfaces.mcp.sources import BookSource
    from commonbook.interfaces.mcp.tool import Tool


def call(tool: Tool, given: object, source: BookSource) -> dict[str, Any]:
    """Call a tool, and return its result as text and as structure; any failure is a result too."""
    try:
        arguments = checked(tool, given)
        book = source.book(changes=not tool.hints.read_only)
        try:
            result = tool.run(book, arguments)
        except NotFound as error:
            return failures.failed(error, near=near_ids(book, tool, arguments))
    except Exception as error:  # noqa: BLE001 - a fault of the program must be answered, and not end the server
        return failures.failed(error)
    return {"content": [{"type": "text", "text": outline(result)}], "structuredContent": result, "isError": False}

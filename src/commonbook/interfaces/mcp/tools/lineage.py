"""The tool `lineage`: the sources and copies of a memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from commonbook.interfaces import json_values
from commonbook.interfaces.mcp.ids import full_id
from commonbook.interfaces.mcp.tool import ROWS, TEXT, Arguments, Result, Tool, count
from commonbook.interfaces.mcp.values import compact

if TYPE_CHECKING:
    from commonbook.book.book import Book


def _run(book: Book, arguments: Arguments) -> Result:
    options = {"depth": arguments["depth"]} if "depth" in arguments else {}
    lineage = json_values.lineage_json(book.lineage(full_id(book, arguments["id"]), **options))
    return {**compact(lineage), "ancestors": compact(lineage["ancestors"]), "copies": compact(lineage["copies"])}


TOOL: Final = Tool(
    name="lineage",
    description="Show where a memory was copied from, and the copies made of it.",
    run=_run,
    arguments={"id": TEXT, "depth": count(32)},
    required=("id",),
    result={"id": TEXT, "ancestors": ROWS, "copies": ROWS},
    always_in_result=("id", "ancestors", "copies"),
    ids=("id",),
)

"""The tool `delete`: remove memories."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from commonbook.interfaces import json_values
from commonbook.interfaces.mcp.ids import full_id
from commonbook.interfaces.mcp.tool import FLAG, NUMBER, TEXTS, Arguments, Hints, Result, Tool

if TYPE_CHECKING:
    from commonbook.book.book import Book


def _run(book: Book, arguments: Arguments) -> Result:
    ids = [full_id(book, each) for each in arguments["ids"]]
    options = {name: arguments[name] for name in ("dry_run", "expected_version") if name in arguments}
    return json_values.deletion_json(book.delete(*ids, **options))


TOOL: Final = Tool(
    name="delete",
    description="Delete memories, all or none, when the user wants them gone. A person can bring them back.",
    run=_run,
    arguments={"ids": TEXTS, "dry_run": FLAG, "expected_version": NUMBER},
    required=("ids",),
    result={"ids": TEXTS},
    always_in_result=("ids",),
    ids=("ids",),
    hints=Hints(destructive=True, idempotent=True),
)

"""The tool `triage`: decide about a memory in doubt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from commonbook.interfaces.mcp.ids import full_id
from commonbook.interfaces.mcp.tool import TEXT, Arguments, Hints, Result, Tool, choice, text
from commonbook.interfaces.mcp.values import compact

if TYPE_CHECKING:
    from commonbook.book.book import Book


def _run(book: Book, arguments: Arguments) -> Result:
    others = {name: arguments[name] for name in ("note",) if name in arguments}
    others |= {"by": full_id(book, arguments["by"])} if "by" in arguments else {}
    report = book.triage(full_id(book, arguments["id"]), arguments["verdict"], **others)
    return compact(report._asdict())  # type: ignore[no-any-return]


TOOL: Final = Tool(
    name="triage",
    description="Decide about a memory in doubt: it still holds (keep), holds no longer (retract), `by` holds in its"
    " place (supersede), or the notice does not matter (dismiss).",
    run=_run,
    arguments={
        "id": text("of the notice or the memory"),
        "verdict": choice("keep", "retract", "supersede", "dismiss"),
        "note": TEXT,
        "by": TEXT,
    },
    required=("id", "verdict"),
    result={"id": TEXT, "verdict": TEXT},
    always_in_result=("id", "verdict"),
    ids=("id", "by"),
    hints=Hints(destructive=True, idempotent=True),
)

"""The tool `append`: store messages of a conversation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from commonbook.interfaces import json_values
from commonbook.interfaces.mcp.tool import ROWS, TEXT, TEXTS, Arguments, Hints, Result, Tool, text
from commonbook.interfaces.mcp.values import compact
from commonbook.model.session import NewMessage

if TYPE_CHECKING:
    from commonbook.book.book import Book

_MESSAGE: Final = {
    "type": "object",
    "properties": {
        "text": TEXT,
        "role": text("user, assistant, ..."),
        "author": TEXT,
        "time": TEXT,
        "client_id": text("your id: sent again, it is stored once"),
    },
    "required": ["text"],
    "additionalProperties": False,
}


def _run(book: Book, arguments: Arguments) -> Result:
    messages = [NewMessage(**_given(message)) for message in arguments["messages"]]
    options = {name: arguments[name] for name in ("space", "parent", "tags") if name in arguments}
    receipt = book.append(arguments["session"], messages, **options)
    return compact(json_values.append_receipt_json(receipt))  # type: ignore[no-any-return]


def _given(message: Arguments) -> Arguments:
    return {name: value for name, value in message.items() if value is not None}


TOOL: Final = Tool(
    name="append",
    description="Store messages of a conversation word for word, in order. Not needed where hooks do it.",
    run=_run,
    arguments={
        "session": text("your name for the conversation"),
        "messages": {"type": "array", "items": _MESSAGE},
        "space": TEXT,
        "parent": TEXT,
        "tags": TEXTS,
    },
    required=("session", "messages"),
    result={"session": TEXT, "messages": ROWS},
    always_in_result=("session",),
    hints=Hints(),
)

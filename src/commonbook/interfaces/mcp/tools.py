"""The table of tools: each calls the verb of its name, with arguments and a result that a model needs.

Every agent pays for the list of tools in tokens, so schemas have only what a model needs to choose and to fill in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from commonbook.interfaces.mcp import results
from commonbook.model.session import NewMessage
from commonbook.text.space_names import is_system

if TYPE_CHECKING:
    from commonbook.book.book import Book

Schema: TypeAlias = Mapping[str, Any]
Arguments: TypeAlias = Mapping[str, Any]

_TEXT: Final[Schema] = {"type": "string"}
_TEXTS: Final[Schema] = {"type": "array", "items": _TEXT}
_FLAG: Final[Schema] = {"type": "boolean"}
_NUMBER: Final[Schema] = {"type": "integer"}
_ROWS: Final[Schema] = {"type": "array", "items": {"type": "object"}}


def _text(description: str) -> Schema:
    return {"type": "string", "description": description}


def _choice(*values: str) -> Schema:
    return {"type": "string", "enum": list(values)}


def _count(most: int) -> Schema:
    return {"type": "integer", "minimum": 1, "maximum": most}


class Hints(NamedTuple):
    """The hints of a tool for clients: which calls need no question to the user. No tool reaches beyond the book."""

    read_only: bool = False
    destructive: bool = False
    idempotent: bool = False

    def listed(self) -> dict[str, bool]:
        """Return all four hints as a client reads them; a client takes a missing one for the most dangerous."""
        return {
            "readOnlyHint": self.read_only,
            "destructiveHint": self.destructive,
            "idempotentHint": self.idempotent,
            "openWorldHint": False,
        }


_READS: Final = Hints(read_only=True, idempotent=True)
_ADDS: Final = Hints()
_ADDS_ONCE: Final = Hints(idempotent=True)
_CHANGES: Final = Hints(destructive=True, idempotent=True)


class Tool(NamedTuple):
    """A tool of the table."""

    name: str
    description: str
    arguments: Mapping[str, Schema]
    result: Mapping[str, Schema]
    required: tuple[str, ...] = ()
    always_in_result: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    """The arguments that name memories."""
    hints: Hints = _READS
    always_loaded: bool = False
    """Whether it is in the prompt from the start also where a client shows the others only after a search."""
    run: Callable[[Book, Arguments], object] | None = None
    """Calls the book; by default, it calls the verb of the tool's name with the same arguments."""

    def call(self, book: Book, arguments: Arguments) -> dict[str, Any]:
        """Call the book with checked arguments, and return the result as a structure."""
        if self.run is not None:
            value = self.run(book, arguments)
        else:
            value = getattr(book, self.name)(**{_VERB_ARGUMENTS.get(name, name): arguments[name] for name in arguments})
        result = results.structure(value)
        empty: dict[str, Any] = {name: [] for name in self.always_in_result if name not in result}
        return {**result, **empty}

    def input_schema(self) -> dict[str, Any]:
        """Return the schema of the arguments."""
        required = {"required": list(self.required)} if self.required else {}
        return {"type": "object", "properties": dict(self.arguments), **required, "additionalProperties": False}

    def listed(self) -> dict[str, Any]:
        """Return the tool as a client lists it."""
        required = {"required": list(self.always_in_result)} if self.always_in_result else {}
        return {
            "name": self.name,
            "description": self.description,
            "inputSchema": self.input_schema(),
            "outputSchema": {"type": "object", "properties": dict(self.result), **required},
            "annotations": self.hints.listed(),
            **({"_meta": {"anthropic/alwaysLoad": True}} if self.always_loaded else {}),
        }


_VERB_ARGUMENTS: Final = {"id": "memory_id"}
"""The names of the verbs' arguments that have a shorter one here."""


def _get(book: Book, arguments: Arguments) -> object:
    return results.memory_fields(book.get(arguments["id"]))


def _recall(book: Book, arguments: Arguments) -> object:
    return results.recall(book, arguments)


def _edit(book: Book, arguments: Arguments) -> object:
    fields: dict[str, Any] = dict.fromkeys(arguments.get("clear", ()))
    fields |= {name: value for name, value in arguments.items() if name not in ("id", "clear")}
    return book.edit(arguments["id"], **fields)


def _delete(book: Book, arguments: Arguments) -> object:
    return book.delete(*arguments["ids"], **{name: value for name, value in arguments.items() if name != "ids"})


def _append(book: Book, arguments: Arguments) -> object:
    given = [{name: value for name, value in each.items() if value is not None} for each in arguments["messages"]]
    return book.append(**{**arguments, "messages": [NewMessage(**each) for each in given]})


def _status(book: Book, _arguments: Arguments) -> object:
    status = book.status()
    return {
        "principal": book.actor,
        "default_space": book.default_space,
        "spaces": [space.name for space in book.spaces() if not is_system(space.name)],
        **{name: getattr(status, name) for name in ("memories", "sessions", "messages", "unsettled", "unsent")},
        "findings": status.findings,
    }


_KINDS: Final = _choice("note", "fact", "preference", "decision", "procedure")
_CLEARED: Final = _choice("title", "occurred", "valid_until", "expires")
_MESSAGE: Final = {
    "type": "object",
    "properties": {
        "text": _TEXT,
        "role": _text("user, assistant, ..."),
        "author": _TEXT,
        "time": _TEXT,
        "client_id": _text("your id: sent again, it is stored once"),
    },
    "required": ["text"],
    "additionalProperties": False,
}

_TABLE: Final = (
    Tool(
        name="remember",
        description="Store one thing worth knowing later, as a sentence that can be understood alone.",
        arguments={
            "text": _TEXT,
            "title": _TEXT,
            "kind": _KINDS,
            "tags": _TEXTS,
            "space": _text("default: this project"),
            "occurred": _text("when it happened, e.g. 2026-03-01"),
            "expires": _TEXT,
            "replaces": _text("id of a memory that no longer holds"),
            "key": _text("idempotency key"),
        },
        required=("text",),
        result={"id": _TEXT, "space": _TEXT, "new": _FLAG},
        always_in_result=("id",),
        ids=("replaces",),
        hints=_ADDS,
        always_loaded=True,
    ),
    Tool(
        name="recall",
        description="Find what is known: memories and earlier messages that answer a question, best first."
        " Without a query, the newest.",
        arguments={
            "query": _TEXT,
            "k": _count(50),
            "spaces": {**_TEXTS, "description": "default: this project and personal; team/ is all below team"},
            "kinds": _TEXTS,
            "tags": _TEXTS,
            "session": _TEXT,
            "author": _TEXT,
            "since": _text("time, or e.g. yesterday"),
            "until": _TEXT,
            "as_of": _text("what was valid then"),
            "min_confidence": {"type": "number"},
            "budget_tokens": _count(20_000),
            "include": {"type": "array", "items": _choice("superseded", "expired", "notices")},
        },
        result={"hits": _ROWS},
        always_in_result=("hits",),
        always_loaded=True,
        run=_recall,
    ),
    Tool(
        name="get",
        description="Read one whole memory, with its links, marks and version.",
        arguments={"id": _text("id, some of its digits, or title")},
        required=("id",),
        result={"id": _TEXT, "text": _TEXT},
        always_in_result=("id", "text"),
        ids=("id",),
        run=_get,
    ),
    Tool(
        name="edit",
        description="Correct a memory; the old text stays in its history. If it was true before and no longer is,"
        " remember the new with `replaces`.",
        arguments={
            "id": _TEXT,
            "text": _TEXT,
            "title": _TEXT,
            "kind": _KINDS,
            "tags": _TEXTS,
            "occurred": _TEXT,
            "valid_until": _TEXT,
            "expires": _TEXT,
            "clear": {"type": "array", "items": _CLEARED},
            "expected_version": {**_NUMBER, "description": "refuse if it has another"},
        },
        required=("id",),
        result={"id": _TEXT, "version": _NUMBER},
        always_in_result=("id", "version"),
        ids=("id",),
        hints=_CHANGES,
        run=_edit,
    ),
    Tool(
        name="delete",
        description="Delete memories, all or none, when the user wants them gone. A person can bring them back.",
        arguments={"ids": _TEXTS, "dry_run": _FLAG, "expected_version": _NUMBER},
        required=("ids",),
        result={"ids": _TEXTS},
        always_in_result=("ids",),
        ids=("ids",),
        hints=_CHANGES,
        run=_delete,
    ),
    Tool(
        name="append",
        description="Store messages of a conversation word for word, in order. Not needed where hooks do it.",
        arguments={
            "session": _text("your name for the conversation"),
            "messages": {"type": "array", "items": _MESSAGE},
            "space": _TEXT,
            "parent": _TEXT,
            "tags": _TEXTS,
        },
        required=("session", "messages"),
        result={"session": _TEXT, "messages": _ROWS},
        always_in_result=("session",),
        hints=_ADDS,
        run=_append,
    ),
    Tool(
        name="switch",
        description="End a session and go on in another, whose parent it becomes.",
        arguments={
            "old": _TEXT,
            "new": _TEXT,
            "reason": _choice("new", "reset", "resume", "branch", "compress"),
            "space": _TEXT,
        },
        required=("old", "new"),
        result={"session": _TEXT, "episodes": _TEXTS},
        always_in_result=("session",),
        hints=_ADDS_ONCE,
    ),
    Tool(
        name="share",
        description="Copy a memory into another space, for those who read there. Only if the user asks.",
        arguments={"id": _TEXT, "to": _TEXT, "refresh": _choice("live", "lazy", "snapshot")},
        required=("id", "to"),
        result={"id": _TEXT, "space": _TEXT},
        always_in_result=("id", "space"),
        ids=("id",),
        hints=_ADDS_ONCE,
    ),
    Tool(
        name="lineage",
        description="Show where a memory was copied from, and the copies made of it.",
        arguments={"id": _TEXT, "depth": _count(32)},
        required=("id",),
        result={"id": _TEXT, "ancestors": _ROWS, "copies": _ROWS},
        always_in_result=("id", "ancestors", "copies"),
        ids=("id",),
    ),
    Tool(
        name="reflect",
        description="Store a conclusion drawn from memories (`on`: their ids). When one of them is superseded,"
        " the conclusion is marked as suspect.",
        arguments={"text": _TEXT, "on": _TEXTS, "title": _TEXT, "tags": _TEXTS, "space": _TEXT, "key": _TEXT},
        required=("text", "on"),
        result={"id": _TEXT, "space": _TEXT},
        always_in_result=("id",),
        ids=("on",),
        hints=_ADDS,
    ),
    Tool(
        name="supersede",
        description="Mark an old memory as replaced by a newer one; conclusions drawn from the old one get a notice.",
        arguments={"old": _TEXT, "by": _TEXT, "reason": _TEXT},
        required=("old", "by"),
        result={"id": _TEXT, "by": _TEXT},
        always_in_result=("id", "by"),
        ids=("old", "by"),
        hints=_CHANGES,
    ),
    Tool(
        name="inbox",
        description="List notices: memories in doubt, since what they were drawn from was superseded."
        " Decide by `triage`.",
        arguments={"space": _TEXT, "limit": _count(100), "after": _TEXT},
        result={"items": _ROWS, "next": _TEXT},
        always_in_result=("items",),
    ),
    Tool(
        name="triage",
        description="Decide about a memory in doubt: it still holds (keep), holds no longer (retract), `by` holds in"
        " its place (supersede), or the notice does not matter (dismiss).",
        arguments={
            "id": _text("of the notice or the memory"),
            "verdict": _choice("keep", "retract", "supersede", "dismiss"),
            "note": _TEXT,
            "by": _TEXT,
        },
        required=("id", "verdict"),
        result={"id": _TEXT, "verdict": _TEXT},
        always_in_result=("id", "verdict"),
        ids=("id", "by"),
        hints=_CHANGES,
    ),
    Tool(
        name="status",
        description="Show who you are in the book, which spaces you reach, how much there is, and what is wrong.",
        arguments={},
        result={"principal": _TEXT, "default_space": _TEXT, "spaces": _TEXTS},
        always_in_result=("principal", "default_space", "spaces"),
        run=_status,
    ),
)

TOOLS: Final[Mapping[str, Tool]] = {tool.name: tool for tool in _TABLE}
"""The tools by name, in the order in which clients list them."""

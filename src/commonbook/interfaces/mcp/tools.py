"""The table of tools: each calls the verb of its name, with arguments and a result that a model needs.

Names, types and defaults of arguments follow from the declaration of the verb. Every agent pays for the list of tools
in tokens, so a tool has only what a model needs to choose and to fill in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias, get_args, get_origin

from commonbook.core.text.space_names import is_system
from commonbook.interfaces.mcp import results
from commonbook.values.encoding import REQUIRED, Field, alternatives, fields_of
from commonbook.values.session import NewMessage

if TYPE_CHECKING:
    from commonbook.verbs import Verbs

Schema: TypeAlias = Mapping[str, Any]
Arguments: TypeAlias = Mapping[str, Any]


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
    arguments: tuple[str, ...]
    """The arguments of the verb that a model may give."""
    result: tuple[str, ...]
    """The fields that are always in the result."""
    described: Mapping[str, str] = {}
    """Descriptions of arguments."""
    narrowed: Mapping[str, Schema] = {}
    """The parts of the schemas of arguments that differ from the declaration of the verb."""
    own: tuple[Field, ...] = ()
    """Arguments that the verb does not have, or has in more forms."""
    ids: tuple[str, ...] = ()
    """The arguments that name memories."""
    hints: Hints = _READS
    always_loaded: bool = False
    """Whether it is in the prompt from the start also where a client shows the others only after a search."""
    run: Callable[[Verbs, Arguments], object] | None = None
    """Calls the book; by default, it calls the verb of the tool's name with the same arguments."""

    def call(self, book: Verbs, arguments: Arguments) -> dict[str, Any]:
        """Call the book with checked arguments, and return the result as a structure."""
        if self.run is not None:
            value = self.run(book, arguments)
        else:
            value = getattr(book, self.name)(**{_VERB_ARGUMENTS.get(name, name): arguments[name] for name in arguments})
        result = results.structure(value)
        empty: dict[str, Any] = {name: [] for name in self.result if name not in result}
        return {**result, **empty}

    def fields(self) -> tuple[Field, ...]:
        """Return the arguments with their types and defaults, as the verb declares them."""
        from commonbook.verbs.requests import (
            fields_of_verb,  # Imported late: the first answer of a server needs no types.
        )

        declared = {field.name: field for field in fields_of_verb(self.name)} if self.arguments else {}
        own = {field.name: field for field in self.own}
        verb_names = {name: _VERB_ARGUMENTS.get(name, name) for name in self.arguments}
        return tuple(own.get(name) or declared[verb_names[name]]._replace(name=name) for name in self.arguments)

    def input_schema(self) -> dict[str, Any]:
        """Return the schema of the arguments."""
        fields = self.fields()
        required = [field.name for field in fields if field.default is REQUIRED]
        schemas = {field.name: self._argument_schema(field) for field in fields}
        return {**_object_schema(schemas, required), "additionalProperties": False}

    def _argument_schema(self, field: Field) -> dict[str, Any]:
        description = {"description": self.described[field.name]} if field.name in self.described else {}
        return {**_schema(field.type), **self.narrowed.get(field.name, {}), **description}

    def _result_schemas(self) -> dict[str, Any]:
        from commonbook.verbs.requests import result_of

        types = {field.name: field.type for field in fields_of(result_of(self.name))}
        return {name: _schema(types[name]) for name in self.result}

    def listed(self) -> dict[str, Any]:
        """Return the tool as a client lists it."""
        return {
            "name": self.name,
            "description": self.description,
            "inputSchema": self.input_schema(),
            "outputSchema": _object_schema(self._result_schemas(), self.result),
            "annotations": self.hints.listed(),
            **({"_meta": {"anthropic/alwaysLoad": True}} if self.always_loaded else {}),
        }


_VERB_ARGUMENTS: Final = {"id": "memory_id"}
"""The names of the verbs' arguments that have a shorter one here."""

_JSON_TYPES: Final = {str: "string", bool: "boolean", int: "integer", float: "number"}


def _object_schema(properties: Mapping[str, Schema], required: Sequence[str]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, **({"required": list(required)} if required else {})}


def _schema(type_: Any) -> dict[str, Any]:  # noqa: ANN401 - a type form
    """Return the schema of a type, without the fields of objects; of several forms, a model is shown the last one."""
    form = alternatives(type_)[-1]
    if form in _JSON_TYPES:
        return {"type": _JSON_TYPES[form]}
    if get_origin(form) is Literal:
        return {"type": "string", "enum": list(get_args(form))}
    if hasattr(form, "_fields"):
        return {"type": "object"}
    return {"type": "array", "items": _schema(get_args(form)[0])}


def _get(book: Verbs, arguments: Arguments) -> object:
    return results.memory_fields(book.get(arguments["id"]))


def _recall(book: Verbs, arguments: Arguments) -> object:
    return results.recall(book, arguments)


def _edit(book: Verbs, arguments: Arguments) -> object:
    fields: dict[str, Any] = dict.fromkeys(arguments.get("clear", ()))
    fields |= {name: value for name, value in arguments.items() if name not in ("id", "clear")}
    return book.edit(arguments["id"], **fields)


def _delete(book: Verbs, arguments: Arguments) -> object:
    return book.delete(*arguments["ids"], **{name: value for name, value in arguments.items() if name != "ids"})


def _status(book: Verbs, _arguments: Arguments) -> object:
    status = book.status()
    return {
        "principal": book.actor,
        "default_space": book.default_space,
        "spaces": [space.name for space in book.spaces() if not is_system(space.name)],
        **{name: getattr(status, name) for name in ("memories", "sessions", "messages", "unsettled", "unsent")},
        "findings": status.findings,
    }


_OF_RECALL: Final = (
    "query", "k", "spaces", "kinds", "tags", "session", "exclude_session", "exclude_last", "author", "since", "until",
    "as_of", "min_confidence", "budget_tokens", "include",
)  # fmt: skip
_OF_EDIT: Final = (
    "id", "text", "title", "kind", "tags", "occurred", "valid_until", "expires", "clear", "expected_version",
)  # fmt: skip
_COUNT: Final = {"minimum": 1}
_KINDS: Final = {"enum": ["note", "fact", "preference", "decision", "procedure"]}
_MESSAGE: Final = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "role": {"type": "string", "description": "user, assistant, ..."},
        "author": {"type": "string"},
        "time": {"type": "string"},
        "client_id": {"type": "string", "description": "your id: sent again, it is stored once"},
    },
    "required": ["text"],
    "additionalProperties": False,
}

_TABLE: Final = (
    Tool(
        name="remember",
        description="Store one thing worth knowing later, as a sentence that can be understood alone.",
        arguments=("text", "title", "kind", "tags", "space", "occurred", "expires", "replaces", "key"),
        result=("id",),
        described={
            "space": "default: this project",
            "occurred": "when it happened, e.g. 2026-03-01",
            "replaces": "id of a memory that no longer holds",
            "key": "idempotency key",
        },
        narrowed={"kind": _KINDS},
        ids=("replaces",),
        hints=_ADDS,
        always_loaded=True,
    ),
    Tool(
        name="recall",
        description="Find what is known: memories and earlier messages that answer a question, best first."
        " Without a query, the newest.",
        arguments=_OF_RECALL,
        result=("hits",),
        described={
            "spaces": "default: this project and personal; team/ is all below team",
            "since": "time, or e.g. yesterday",
            "exclude_last": "only its last N messages",
            "as_of": "what was valid then",
        },
        narrowed={
            "k": _COUNT | {"maximum": 50},
            "kinds": {"items": {"type": "string"}},
            "budget_tokens": _COUNT | {"maximum": 20_000},
        },
        always_loaded=True,
        run=_recall,
    ),
    Tool(
        name="get",
        description="Read one whole memory, with its links, marks and version.",
        arguments=("id",),
        result=("id", "text"),
        described={"id": "id, some of its digits, or title"},
        ids=("id",),
        run=_get,
    ),
    Tool(
        name="edit",
        description="Correct a memory; the old text stays in its history. If it was true before and no longer is,"
        " remember the new with `replaces`.",
        arguments=_OF_EDIT,
        result=("id", "version"),
        described={"expected_version": "refuse if it has another"},
        narrowed={"kind": _KINDS},
        own=(Field("clear", tuple[Literal["title", "occurred", "valid_until", "expires"], ...], ()),),
        ids=("id",),
        hints=_CHANGES,
        run=_edit,
    ),
    Tool(
        name="delete",
        description="Delete memories, all or none, when the user wants them gone. A person can bring them back.",
        arguments=("ids", "dry_run", "expected_version"),
        result=("ids",),
        ids=("ids",),
        hints=_CHANGES,
        run=_delete,
    ),
    Tool(
        name="append",
        description="Store messages of a conversation word for word, in order. Not needed where hooks do it.",
        arguments=("session", "messages", "space", "parent", "tags"),
        result=("session",),
        described={"session": "your name for the conversation"},
        narrowed={"messages": {"items": _MESSAGE}},
        own=(Field("messages", tuple[NewMessage, ...]),),
        hints=_ADDS,
    ),
    Tool(
        name="switch",
        description="End a session and go on in another, whose parent it becomes.",
        arguments=("old", "new", "reason", "space"),
        result=("session",),
        hints=_ADDS_ONCE,
    ),
    Tool(
        name="share",
        description="Copy a memory into another space, for those who read there. Only if the user asks.",
        arguments=("id", "to", "refresh"),
        result=("id", "space"),
        ids=("id",),
        hints=_ADDS_ONCE,
    ),
    Tool(
        name="lineage",
        description="Show where a memory was copied from, and the copies made of it.",
        arguments=("id", "depth"),
        result=("id", "ancestors", "copies"),
        narrowed={"depth": _COUNT | {"maximum": 32}},
        ids=("id",),
    ),
    Tool(
        name="reflect",
        description="Store a conclusion drawn from memories (`on`: their ids). When one of them is superseded,"
        " the conclusion is marked as suspect.",
        arguments=("text", "on", "title", "tags", "space", "key"),
        result=("id",),
        ids=("on",),
        hints=_ADDS,
    ),
    Tool(
        name="supersede",
        description="Mark an old memory as replaced by a newer one; conclusions drawn from the old one get a notice.",
        arguments=("old", "by", "reason"),
        result=("id", "by"),
        ids=("old", "by"),
        hints=_CHANGES,
    ),
    Tool(
        name="inbox",
        description="List notices: memories in doubt, since what they were drawn from was superseded."
        " Decide by `triage`.",
        arguments=("space", "limit", "after"),
        result=("items",),
        narrowed={"limit": _COUNT | {"maximum": 100}},
    ),
    Tool(
        name="triage",
        description="Decide about a memory in doubt: it still holds (keep), holds no longer (retract), `by` holds in"
        " its place (supersede), or the notice does not matter (dismiss).",
        arguments=("id", "verdict", "note", "by"),
        result=("id",),
        described={"id": "of the notice or the memory"},
        ids=("id", "by"),
        hints=_CHANGES,
    ),
    Tool(
        name="status",
        description="Show who you are in the book, which spaces you reach, how much there is, and what is wrong.",
        arguments=(),
        result=(),
        run=_status,
    ),
)

TOOLS: Final[Mapping[str, Tool]] = {tool.name: tool for tool in _TABLE}
"""The tools by name, in the order in which clients list them."""

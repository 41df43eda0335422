"""A tool: its name, its arguments as JSON Schema, its hints, and the function that calls the book.

Every agent pays for the list of tools in tokens, so schemas have only what a model needs to choose and to fill in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from commonbook.book.book import Book

Schema: TypeAlias = Mapping[str, Any]
Arguments: TypeAlias = Mapping[str, Any]
Result: TypeAlias = dict[str, Any]

TEXT: Final[Schema] = {"type": "string"}
TEXTS: Final[Schema] = {"type": "array", "items": TEXT}
FLAG: Final[Schema] = {"type": "boolean"}
NUMBER: Final[Schema] = {"type": "integer"}
ROWS: Final[Schema] = {"type": "array", "items": {"type": "object"}}


def text(description: str) -> Schema:
    """Return the schema of a text, with a description."""
    return {"type": "string", "description": description}


def choice(*values: str) -> Schema:
    """Return the schema of one of these texts."""
    return {"type": "string", "enum": list(values)}


def count(most: int) -> Schema:
    """Return the schema of a number from 1 to `most`."""
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


READS: Final = Hints(read_only=True, idempotent=True)


class Tool(NamedTuple):
    """A tool of the table.

    `ids` are the arguments that name memories. `always_loaded` tools are in the prompt from the start also where a
    client shows the others only after a search.
    """

    name: str
    description: str
    run: Callable[[Book, Arguments], Result]
    arguments: Mapping[str, Schema]
    result: Mapping[str, Schema]
    required: tuple[str, ...] = ()
    always_in_result: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    hints: Hints = READS
    always_loaded: bool = False

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

"""The call of a tool: its arguments are checked, it runs, and any failure becomes a result too.

A refusal names the argument and the expected form. An id, some of its digits or a title becomes a full id.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from commonbook.errors import Ambiguous, BadInput, CommonbookError, NotFound
from commonbook.interfaces.mcp.failures import failed
from commonbook.interfaces.mcp.results import outline
from commonbook.interfaces.mcp.tools import Arguments, Schema, Tool
from commonbook.interfaces.similar_names import did_you_mean
from commonbook.model.ids import UUID_PATTERN

if TYPE_CHECKING:
    from commonbook.book.book import Book
    from commonbook.interfaces.mcp.sources import BookSource


def call(tool: Tool, given: object, source: BookSource) -> dict[str, Any]:
    """Call a tool, and return its result as text and as structure; any failure is a result too."""
    try:
        arguments = _checked(tool, given)
        book = source.book(changes=not tool.hints.read_only)
        try:
            result = tool.call(book, _with_full_ids(book, tool, arguments))
        except NotFound as error:
            return failed(error, near=_near_ids(book, tool, arguments))
    except Exception as error:  # noqa: BLE001 - a fault of the program must be answered, and not end the server
        return failed(error)
    return {"content": [{"type": "text", "text": outline(result)}], "structuredContent": result, "isError": False}


# --- arguments against the schema of the tool

_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}
_NAMES: Final = {
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
}


def _checked(tool: Tool, given: object) -> Arguments:
    """Return the arguments of a call; BadInput if they do not fit the tool. An argument that is null is not given."""
    if given is not None and not isinstance(given, dict):
        raise BadInput("the arguments are no object", fix=_known(tool.name, tool.arguments))
    _check_object(given or {}, tool.input_schema(), of=f"the tool {tool.name}", within="")
    return {name: value for name, value in (given or {}).items() if value is not None}


def _known(name: str, arguments: Iterable[str]) -> str:
    return f"the arguments of {name} are: {', '.join(arguments) or 'none'}"


def _check_object(value: dict[str, Any], schema: Schema, *, of: str, within: str) -> None:
    known: Mapping[str, Schema] = schema.get("properties", {})
    fix = _known(within.rstrip(".") or of, known)
    for name in value:
        if name not in known:
            raise BadInput(f"{(within + name)[:100]!r} is no argument of {of}{did_you_mean(name, known)}", fix=fix)
    for name in schema.get("required", ()):
        if value.get(name) is None:
            raise BadInput(f"the argument {within + name!r} of {of} is missing", fix=fix)
    for name, each in value.items():
        if each is not None:
            _check(each, known[name], of=of, name=within + name)


def _check(value: object, schema: Schema, *, of: str, name: str) -> None:
    kind = schema["type"]
    # True is an int in Python, and another value here.
    if not isinstance(value, _TYPES[kind]) or (isinstance(value, bool) and kind != "boolean"):
        raise BadInput(f"the argument {name!r} of {of} is not {_NAMES[kind]}", fix=f"give {_NAMES[kind]}")
    if "enum" in schema and value not in schema["enum"]:
        choices = ", ".join(schema["enum"])
        raise BadInput(f"{str(value)[:100]!r} is no {name!r} of {of}", fix=f"give one of: {choices}")
    if isinstance(value, (int, float)) and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        raise BadInput(
            f"the argument {name!r} of {of} is {value}", fix=f"give {schema['minimum']} to {schema['maximum']}"
        )
    if isinstance(value, list):
        for at, item in enumerate(value):
            _check(item, schema["items"], of=of, name=f"{name}[{at}]")
    if isinstance(value, dict) and "properties" in schema:
        _check_object(value, schema, of=of, within=f"{name}.")


# --- ids

_PIECES: Final = (slice(-12, None), slice(0, 18), slice(0, 13), slice(-6, None), slice(0, 8))
"""Parts of an id that a near one has too: a model that mistypes an id seldom mistypes all of it."""

_MAX_NEAR_IDS: Final = 3


def _with_full_ids(book: Book, tool: Tool, arguments: Arguments) -> Arguments:
    """Return the arguments with a full id for every id, some digits of one, or title of a memory."""

    def full(given: Any) -> Any:  # noqa: ANN401 - a text or a list of texts
        if isinstance(given, list):
            return [full(each) for each in given]
        return given if re.fullmatch(UUID_PATTERN, given, re.IGNORECASE | re.ASCII) else book.find_id(given)

    return {name: full(value) if name in tool.ids else value for name, value in arguments.items()}


def _near_ids(book: Book, tool: Tool, arguments: Arguments) -> list[str]:
    """Return ids of memories that are near to ids in a call which are those of none."""
    wrong = [each for name in tool.ids for each in _texts(arguments.get(name)) if not _exists(book, each)]
    return list(dict.fromkeys(near for each in wrong for near in _near(book, each)))[:_MAX_NEAR_IDS]


def _texts(value: object) -> Iterable[str]:
    return (value,) if isinstance(value, str) else value if isinstance(value, list) else ()


def _exists(book: Book, memory_id: str) -> bool:
    try:
        book.find_id(memory_id)
    except NotFound:
        return False
    except CommonbookError:
        return True
    return True


def _near(book: Book, wrong: str) -> Iterator[str]:
    for piece in dict.fromkeys(wrong.strip().lower()[each].strip("-") for each in _PIECES):
        if not re.fullmatch("[0-9a-f-]{6,}", piece):
            continue
        try:
            yield book.find_id(piece)
        except Ambiguous as several:
            yield from re.findall(UUID_PATTERN, several.message)
        except NotFound:
            continue

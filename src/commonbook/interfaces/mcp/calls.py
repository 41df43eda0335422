"""The call of a tool: its arguments are checked, it runs, and any failure becomes a result too.

A refusal names the argument and the expected form. An id, some of its digits or a title becomes a full id.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from commonbook.errors import Ambiguous, BadInput, CommonbookError, NotFound
from commonbook.interfaces.mcp.failures import failed
from commonbook.interfaces.mcp.results import outline
from commonbook.interfaces.mcp.tools import Arguments, Schema, Tool
from commonbook.interfaces.similar_names import did_you_mean
from commonbook.model.ids import UUID_PATTERN
from commonbook.wire.encoding import Malformed, decode_fields

if TYPE_CHECKING:
    from commonbook.interfaces.mcp.sources import BookSource
    from commonbook.verbs import Verbs


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


# --- arguments


def _checked(tool: Tool, given: object) -> Arguments:
    """Return the arguments of a call; BadInput if they do not fit the tool. An argument that is null is not given."""
    known = f"the arguments of {tool.name} are: {', '.join(tool.arguments) or 'none'}"
    for name in given if isinstance(given, dict) else ():
        if name not in tool.arguments:
            similar = did_you_mean(name, tool.arguments)
            raise BadInput(f"{name[:100]!r} is not an argument of the tool {tool.name}{similar}", fix=known)
    try:
        arguments = decode_fields(tool.fields(), _without_nulls({} if given is None else given))
    except Malformed as fault:
        named = f"the argument {fault.path!r}" if fault.path else "the arguments"
        raise BadInput(f"{named} of the tool {tool.name}: {fault.problem}", fix=known) from None
    schemas = tool.input_schema()["properties"]
    for name, value in arguments.items():
        _require_within(schemas[name], value, of=f"{name!r} of the tool {tool.name}")
    return arguments


def _without_nulls(value: Any) -> Any:  # noqa: ANN401 - any JSON
    """Return the arguments that are given, with the fields that are given in objects of a list."""
    if not isinstance(value, dict):
        return value
    given = {name: field for name, field in value.items() if field is not None}
    return {
        name: [_without_nulls(item) for item in field] if isinstance(field, list) else field
        for name, field in given.items()
    }


def _require_within(schema: Schema, value: Any, *, of: str) -> None:  # noqa: ANN401 - as its type says
    """Raise BadInput if a value is not one of the choices, or not within the limits, of its schema."""
    choices = schema.get("enum") or schema.get("items", {}).get("enum")
    for each in value if isinstance(value, tuple) else (value,):
        if choices and each not in choices:
            raise BadInput(f"{str(each)[:100]!r} is not a choice for {of}", fix=f"give one of: {', '.join(choices)}")
    if "maximum" in schema and not schema["minimum"] <= value <= schema["maximum"]:
        raise BadInput(
            f"{value} is too small or too large for {of}", fix="give {minimum} to {maximum}".format(**schema)
        )


# --- ids

_PIECES: Final = (slice(-12, None), slice(0, 18), slice(0, 13), slice(-6, None), slice(0, 8))
"""Parts of an id that a near one has too: a model that mistypes an id seldom mistypes all of it."""

_MAX_NEAR_IDS: Final = 3


def _with_full_ids(book: Verbs, tool: Tool, arguments: Arguments) -> Arguments:
    """Return the arguments with a full id for every id, some digits of one, or title of a memory."""

    def full(given: Any) -> Any:  # noqa: ANN401 - a text or several
        if isinstance(given, tuple):
            return tuple(map(full, given))
        return given if re.fullmatch(UUID_PATTERN, given, re.IGNORECASE | re.ASCII) else book.find_id(given)

    return {name: full(value) if name in tool.ids else value for name, value in arguments.items()}


def _near_ids(book: Verbs, tool: Tool, arguments: Arguments) -> list[str]:
    """Return ids of memories that are near to ids in a call which no memory has."""
    wrong = [each for name in tool.ids for each in _texts(arguments.get(name)) if not _exists(book, each)]
    return list(dict.fromkeys(near for each in wrong for near in _near(book, each)))[:_MAX_NEAR_IDS]


def _texts(value: object) -> Iterable[str]:
    return (value,) if isinstance(value, str) else value if isinstance(value, tuple) else ()


def _exists(book: Verbs, memory_id: str) -> bool:
    try:
        book.find_id(memory_id)
    except NotFound:
        return False
    except CommonbookError:
        return True
    return True


def _near(book: Verbs, wrong: str) -> Iterator[str]:
    for piece in dict.fromkeys(wrong.strip().lower()[each].strip("-") for each in _PIECES):
        if not re.fullmatch("[0-9a-f-]{6,}", piece):
            continue
        try:
            yield book.find_id(piece)
        except Ambiguous as several:
            yield from re.findall(UUID_PATTERN, several.message)
        except NotFound:
            continue

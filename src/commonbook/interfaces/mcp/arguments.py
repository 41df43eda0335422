"""Checks the arguments of a call against the schema of its tool; a refusal names the argument and the expected form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from commonbook.errors import BadInput
from commonbook.interfaces.mcp.tool import Arguments, Schema, Tool
from commonbook.interfaces.similar_names import did_you_mean

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


def checked(tool: Tool, given: object) -> Arguments:
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

"""The verbs over HTTP, read from their declarations: the fields of their requests, their results, their requests.

Annotations of declarations are texts whose names are imported for type checkers only. They are resolved here against
the values of `values`.
"""

from __future__ import annotations

import json
import typing
from collections.abc import Iterator, Mapping
from functools import cache
from inspect import Parameter
from types import GenericAlias
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from commonbook.errors import BadInput, BadText
from commonbook.values import invalidation, memory, reasoning, recall, reports, session, sharing, spaces
from commonbook.values.encoding import REQUIRED, Field, encode
from commonbook.values.memory import UNSET
from commonbook.verbs import declared_verbs
from commonbook.verbs.declaration import NOT_SENT, Method, Verb

VERBS: Final[Mapping[str, Verb]] = {verb.name: verb for verb in declared_verbs()}
"""All verbs by name."""

REPORT_MEMBER: Final = ".commonbook-report.json"
"""The last member of an exported archive: the report of the export, as JSON. Imports skip it, since it is hidden."""

DEFAULT_SPACE_HEADER: Final = "Commonbook-Space"
"""The header with the space of calls that name none, percent-encoded, in place of the default space of the key."""


@cache
def fields_of_verb(name: str) -> tuple[Field, ...]:
    """Return the arguments of a verb that a request may have, in order; one of several values (`*ids`) is a tuple."""
    verb = VERBS[name]
    hints = _hints(name)
    fields = []
    for parameter in verb.signature.parameters.values():
        if parameter.kind is Parameter.VAR_POSITIONAL:
            fields.append(Field(parameter.name, GenericAlias(tuple, (hints[parameter.name], ...))))
        elif parameter.kind is not Parameter.VAR_KEYWORD and parameter.name not in NOT_SENT:
            default = REQUIRED if parameter.default is Parameter.empty else parameter.default
            fields.append(Field(parameter.name, hints[parameter.name], default))
    if verb.options is not None:
        named = {field.name for field in fields}
        fields += [field for field in fields_of_verb(verb.options) if field.name not in named]
    return tuple(fields)


def result_of(name: str) -> Any:  # noqa: ANN401 - a type form
    """Return the type of the result of a verb."""
    return _hints(name)["return"]


@cache
def _hints(name: str) -> dict[str, Any]:
    values = (invalidation, memory, reasoning, recall, reports, session, sharing, spaces)
    names = {name: value for module in values for name, value in vars(module).items()}
    return typing.get_type_hints(VERBS[name].function, localns=names)


class Request(NamedTuple):
    """A request without its address and headers; `body` is None if it has none."""

    method: Method
    path: str
    query: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None


def request_of(verb: Verb, arguments: Mapping[str, Any]) -> Request:
    """Return the request of a verb with these arguments, by the names that they have in `Book`.

    Arguments that are UNSET are left out. A caller may leave out those that have their defaults.
    """
    values = dict(arguments)
    if verb.variadic and len(values.get(verb.variadic, ())) == 1:
        (name,), (value,) = verb.path_arguments, values.pop(verb.variadic)
        values[name] = value
    elif verb.several is not None:
        verb = verb.of_several
    path = verb.template
    for name in verb.path_arguments:
        path = path.replace(f"{{{name}}}", path_segment(values[name], may_have_slashes=f"{{{name}:path}}" in verb.path))
    others = {name: value for name, value in values.items() if name not in verb.path_arguments}
    if verb.takes_body:
        return Request(verb.method, path, body=_json(encode(others)))
    fields = others.pop(verb.expanded, None) if verb.expanded else None
    expanded = {} if fields is None else fields._asdict()
    return Request(verb.method, path, query=tuple(_query({**expanded, **others})))


def path_segment(value: object, *, may_have_slashes: bool = False) -> str:
    """Return a text as one segment of a path, with no dots that mean another folder.

    Servers and proxies may take an encoded slash for a plain one: names of spaces and sessions are read in both forms,
    and an id has none.
    """
    if not isinstance(value, str):
        raise BadInput(f"an id of the type {type(value).__name__}", fix="give the id as a text")
    if not may_have_slashes and (not value or "/" in value):
        raise BadInput(f"{value!r} is not the id of a memory", fix="`commonbook list` shows the ids")
    try:
        segment = quote(value, safe="")
    except UnicodeEncodeError:
        raise BadInput("an id with half a character", fix="give a text in Unicode") from None
    return segment.replace(".", "%2E") if segment in (".", "..") else segment


def _query(arguments: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield query parameters: several for a list, JSON for a mapping, none for None and an empty mapping."""
    for name, value in arguments.items():
        encoded = encode(value) if value is not UNSET else None
        if isinstance(encoded, dict):
            if encoded:
                yield name, _json(encoded).decode()
        elif isinstance(encoded, list):
            yield from ((name, _word(name, item)) for item in encoded)
        elif encoded is not None:
            yield name, _word(name, encoded)


def _word(name: str, value: object) -> str:
    if not isinstance(value, str):
        return json.dumps(value)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise BadText(
            f"the {name} has a lone surrogate, which no file can hold", fix="send well-formed Unicode text"
        ) from None
    return value


def _json(value: object) -> bytes:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    except UnicodeEncodeError:
        # A lone surrogate: the server refuses it with the error that names the field, as the book does.
        return json.dumps(value, allow_nan=False).encode()

"""The verbs over HTTP, read from their declarations: by name, with the fields of their requests and their results.

Annotations of declarations are texts whose names are imported for type checkers only. They are resolved here against
the values of `model`.
"""

from __future__ import annotations

import typing
from collections.abc import Mapping
from functools import cache
from inspect import Parameter
from types import GenericAlias
from typing import Any, Final

from commonbook.model import invalidation, memory, reasoning, recall, reports, session, sharing, spaces
from commonbook.verbs import declared_verbs
from commonbook.verbs.declaration import NOT_SENT, Verb
from commonbook.wire.encoding import REQUIRED, Field

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

"""Signatures of verbs: the arguments that a request may have, with types and defaults, and the type of the result.

The annotations of `Book` are texts whose names are imported for type checkers only. They are resolved here against the
values of `model`.
"""

from __future__ import annotations

import datetime as dt
import inspect
import typing
from collections import abc
from collections.abc import Callable, Mapping
from functools import cache
from types import ModuleType
from typing import Any, Final, NamedTuple

from commonbook.model import invalidation, memory, reasoning, recall, reports, session, sharing, spaces
from commonbook.wire.verbs import NOT_SENT

_MODULES: Final[tuple[ModuleType, ...]] = (
    typing,
    abc,
    dt,
    invalidation,
    memory,
    reasoning,
    recall,
    reports,
    session,
    sharing,
    spaces,
)

REQUIRED: Final = inspect.Parameter.empty
"""The default of an argument that has none."""


class Argument(NamedTuple):
    """An argument of a verb; `is_variadic` is given as a list (`*ids`)."""

    name: str
    type: Any
    default: Any = REQUIRED
    is_variadic: bool = False


class Signature(NamedTuple):
    """The arguments of a verb that are sent, in order, and the type of its result."""

    arguments: tuple[Argument, ...]
    result: Any


@cache
def names() -> Mapping[str, Any]:
    """Return every name that an annotation of a verb may use."""
    found: dict[str, Any] = {}
    for module in _MODULES:
        found.update({name: value for name, value in vars(module).items() if not name.startswith("_")})
    return found


def signature(verb: Callable[..., object] | property, *, options: Callable[..., object] | None = None) -> Signature:
    """Return the signature of a method or property of `Book`.

    `options` is the function whose arguments by name stand in place of `**options`.
    """
    function = inspect.unwrap(verb.fget if isinstance(verb, property) and verb.fget else verb)  # type: ignore[arg-type]
    parameters = inspect.signature(function).parameters.values()
    hints = {name: eval(text, dict(names())) for name, text in function.__annotations__.items()}  # noqa: S307 - our own
    arguments = [
        Argument(
            parameter.name,
            hints[parameter.name],
            parameter.default,
            is_variadic=parameter.kind is inspect.Parameter.VAR_POSITIONAL,
        )
        for parameter in parameters
        if parameter.name not in NOT_SENT and parameter.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    if options is not None:
        taken = {argument.name for argument in arguments}
        others = signature(options).arguments
        arguments += [argument for argument in others if argument.name not in {*taken, "session"}]
    return Signature(tuple(arguments), hints["return"])

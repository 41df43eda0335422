"""Pydantic models, made from the signatures of the verbs and the values of the book.

Models of requests validate: an argument that a verb does not have is refused by its name. A word of a fixed set, such
as a kind, is any text here, since the book refuses it with a better message. Models of results are documentation:
answers are written by `wire.encoding`.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import cache
from typing import Annotated, Any, Final, Literal, Optional, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, Json, WithJsonSchema, create_model

from commonbook.model.memory import UNSET, Metadata, Scalar, Unset
from commonbook.model.session import ChatObject, NewMessage
from commonbook.verbs.declaration import Verb
from commonbook.wire.encoding import REQUIRED, encode
from commonbook.wire.encoding import Field as Argument


class ArgumentModel(BaseModel):
    """The base of all models of arguments."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, protected_namespaces=())


class QueryModel(ArgumentModel):
    """The base of models of query parameters, whose numbers and truth values are texts."""

    model_config = ConfigDict(strict=False)


class ValueModel(BaseModel):
    """The base of all models of results."""

    model_config = ConfigDict(protected_namespaces=())


_TAKEN_NAMES: Final = frozenset(dir(BaseModel))
"""Names that a field of a model cannot have: such a field has another name, and its own as its alias."""


def argument_model(verb: Verb, arguments: Iterable[Argument]) -> type[ArgumentModel]:
    """Return the model of the arguments of a verb that are not in its path."""
    fields: dict[str, Any] = {}
    for argument in arguments:
        if argument.name in verb.path_arguments:
            continue
        if argument.name == verb.expanded:
            fields.update(_expanded_fields(argument.type))
        else:
            type_ = argument_type(argument.type)
            fields[argument.name] = (_in_query(type_) if not verb.takes_body else type_, _field(argument.default))
    name = "".join(word.capitalize() for word in verb.name.split("_"))
    base = ArgumentModel if verb.takes_body else QueryModel
    return create_model(f"{name}Arguments", __base__=base, **fields)


def _expanded_fields(type_: Any) -> dict[str, Any]:  # noqa: ANN401 - a type form
    """Return the fields of an argument that are query parameters themselves."""
    (value_type,) = (arg for arg in (get_args(type_) or (type_,)) if hasattr(arg, "_fields"))
    hints, defaults = get_type_hints(value_type), value_type._field_defaults
    return {
        name: (_in_query(argument_type(hints[name])), _field(defaults.get(name, REQUIRED)))
        for name in value_type._fields
    }


def _in_query(type_: Any) -> Any:  # noqa: ANN401 - a type form
    """Return the type of a query parameter: a mapping is written as JSON."""
    return Json[type_] if get_origin(type_) is dict else type_  # type: ignore[misc]


def _field(default: Any) -> Any:  # noqa: ANN401 - a default of any type
    if default is REQUIRED:
        return Field()
    if default is UNSET:
        return Field(default=None, json_schema_extra=_without_default)
    return Field(default=encode(default))


def _without_default(schema: dict[str, Any]) -> None:
    schema.pop("default", None)


def argument_type(type_: Any) -> Any:  # noqa: ANN401 - a type form
    """Return the type of an argument as JSON has it."""
    origin, args = get_origin(type_), get_args(type_)
    if origin is Literal:
        return Annotated[str, WithJsonSchema({"type": "string", "enum": list(args)})]
    if origin in (Union, types.UnionType):
        return _union_type(args)
    if origin is tuple and Ellipsis not in args:
        return tuple[tuple(map(argument_type, args))]  # type: ignore[misc]
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return dict[str, argument_type(args[1])]  # type: ignore[misc]
    if isinstance(origin, type) and issubclass(origin, Iterable):
        return list[argument_type(args[0])]  # type: ignore[misc]
    if type_ is object:
        return Any
    return _value_argument(type_) if hasattr(type_, "_fields") else type_


_NOT_IN_JSON: Final = (Unset, ChatObject, NewMessage)
"""Types of arguments that JSON has in another form: an absent field, and mappings."""


def _union_type(args: tuple[Any, ...]) -> Any:  # noqa: ANN401 - a type form
    kept = [arg for arg in args if arg not in _NOT_IN_JSON and not (arg is datetime and str in args)]
    if str in kept:
        # A word of the set is a text too.
        kept = [arg for arg in kept if get_origin(arg) is not Literal]
    return Union[tuple(map(argument_type, kept))]  # noqa: UP007 - the arguments are computed


@cache
def _value_argument(cls: Any) -> type[ArgumentModel]:  # noqa: ANN401 - a class of named tuples
    hints, defaults = get_type_hints(cls), cls._field_defaults
    fields: dict[str, Any] = {
        name: (argument_type(hints[name]), _field(defaults.get(name, REQUIRED))) for name in cls._fields
    }
    model: type[ArgumentModel] = create_model(cls.__name__, __base__=ArgumentModel, __doc__=cls.__doc__, **fields)
    _VALUE_TYPES[model] = cls
    return model


_VALUE_TYPES: Final[dict[type[BaseModel], Any]] = {}
"""The class of the named tuple that each model stands for."""


def argument_value(value: Any) -> Any:  # noqa: ANN401 - as validated
    """Return a validated argument as the book takes it: models become named tuples; only given fields are set."""
    if isinstance(value, BaseModel):
        fields = {name: argument_value(getattr(value, name)) for name in value.model_fields_set}
        # A named tuple has tuples: an empty list would make an empty filter look like another one.
        tuples = {name: tuple(field) for name, field in fields.items() if isinstance(field, list)}
        return _VALUE_TYPES[type(value)](**fields | tuples)
    if isinstance(value, list):
        return [argument_value(item) for item in value]
    return value


# --- results


@cache
def result_type(type_: Any) -> Any:  # noqa: ANN401 - a type form
    """Return the type of a result as JSON has it, for the OpenAPI document."""
    origin, args = get_origin(type_), get_args(type_)
    if type_ is Metadata:
        return dict[str, Scalar]
    if origin in (Union, types.UnionType):
        return Union[tuple(map(result_type, args))]  # noqa: UP007 - the arguments are computed
    if origin in (tuple, list) and len({*args} - {Ellipsis}) == 1:
        return list[result_type(args[0])]  # type: ignore[misc]
    if origin is tuple:
        return tuple[tuple(map(result_type, args))]  # type: ignore[misc]
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return dict[str, result_type(args[1])]  # type: ignore[misc]
    return result_model(type_) if hasattr(type_, "_fields") else type_


@cache
def result_model(cls: Any) -> type[ValueModel]:  # noqa: ANN401 - a class of named tuples
    """Return the model of a value; one that contains values of its own type refers to itself by name."""
    hints = get_type_hints(cls)
    fields: dict[str, Any] = {}
    for name in cls._fields:
        own = tuple[cls, ...] == hints[name]
        type_ = list[cls.__name__] if own else result_type(hints[name])
        fields[f"{name}_" if name in _TAKEN_NAMES else name] = (type_, Field(alias=name))
    return create_model(cls.__name__, __base__=ValueModel, __doc__=cls.__doc__, **fields)


class Problem(BaseModel):
    """Problem details (RFC 9457). `type` is the name of the error; `fix` says how to correct the request."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(examples=["version_conflict"])
    title: str = Field(examples=["Version conflict"])
    status: int = Field(examples=[412])
    detail: str = Field(examples=["memory 01a1… is at version 4, not 3"])
    fix: str = Field(examples=["read the memory again and repeat the change on its present version"])
    instance: Optional[str] = Field(default=None, description="The id of the request.")  # noqa: UP045 - read at run time
    item: Optional[int] = Field(default=None, description="The index of the item of a list that it is about.")  # noqa: UP045 - as above
    memory: Optional[str] = None  # noqa: UP045 - as above
    expected: Optional[int] = None  # noqa: UP045 - as above
    found: Optional[int] = None  # noqa: UP045 - as above
    retry_after: Optional[float] = Field(default=None, description="Seconds until the next try.")  # noqa: UP045 - as above

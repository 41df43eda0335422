"""JSON of the values of a book, in both directions: `decode(T, encode(value))` is `value` again, for every result.

| value | JSON |
| --- | --- |
| a named tuple | an object with its fields; a field that is UNSET is left out |
| a tuple or list | an array |
| a mapping | an object |
| a datetime | RFC 3339 in UTC, `2026-11-15T20:18:24.123456Z`; one without a zone is refused, as by the book |
| a text, number, truth value, None | itself |
"""

from __future__ import annotations

import json
import math
import types
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from enum import Enum
from functools import cache
from typing import Any, Final, Literal, NoReturn, Union, get_args, get_origin, get_type_hints

from commonbook.errors import BadInput, BadTime
from commonbook.model.ids import format_time
from commonbook.model.memory import UNSET, Metadata, Scalar, Unset

_PLAIN: Final = (str, bool, int, float, type(None))
"""The types whose values are JSON already."""

_MISSING: Final = object()


def dumps(value: object) -> bytes:
    """Write a value of a book as JSON in UTF-8, on one line."""
    return json.dumps(encode(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def encode(value: Any) -> Any:  # noqa: ANN401 - any value of a book
    """Return a value as JSON has it: texts, numbers, truth values, None, lists and dicts of them."""
    encoder = _ENCODERS.get(type(value)) or _encoder_of(type(value))
    return encoder(value)


_AS_THEY_ARE: Final[frozenset[type]] = frozenset({str, int, bool, type(None)})
"""Types of most fields: to look whether a value needs a call of `encode` takes a third of such a call."""


def _encode_fields(value: Any) -> dict[str, Any]:  # noqa: ANN401 - a named tuple
    return {
        name: field if type(field) in _AS_THEY_ARE else encode(field)
        for name, field in zip(value._fields, value, strict=True)
        if field is not UNSET
    }


def _encode_mapping(value: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: field if type(field) in _AS_THEY_ARE else encode(field)
        for name, field in value.items()
        if field is not UNSET
    }


def _encode_items(value: Iterable[Any]) -> list[Any]:
    return [item if type(item) in _AS_THEY_ARE else encode(item) for item in value]


def _encode_time(value: datetime) -> str:
    if value.utcoffset() is None:
        # As a text it would be read in the zone of the home; the book itself refuses it.
        raise BadTime(
            f"the datetime {value} has no zone",
            fix="give it one (datetime.now(UTC)), or write it as text, which is read in the home's zone",
        )
    return format_time(value)


def _encode_number(value: float) -> float:
    if not math.isfinite(value):
        raise BadInput(f"{value} is not a number that can be sent", fix="give a finite number")
    return value


def _encode_dumped(value: Any) -> Any:  # noqa: ANN401 - an object of a client library
    return encode(value.model_dump())


_ENCODERS: Final[dict[type, Callable[[Any], Any]]] = {
    **dict.fromkeys(_AS_THEY_ARE, lambda value: value),
    float: _encode_number,
    datetime: _encode_time,
    dict: _encode_mapping,
    tuple: _encode_items,
    list: _encode_items,
    set: _encode_items,
    frozenset: _encode_items,
}


def _encoder_of(cls: type) -> Callable[[Any], Any]:
    """Return the encoder of a type that is not in the table, and remember it."""
    if hasattr(cls, "_fields"):
        _ENCODERS[cls] = _encode_fields
    elif issubclass(cls, Mapping):
        _ENCODERS[cls] = _encode_mapping
    elif hasattr(cls, "model_dump"):
        _ENCODERS[cls] = _encode_dumped
    elif issubclass(cls, Iterable) and not issubclass(cls, (str, bytes)):
        return _encode_items
    else:
        _ENCODERS[cls] = _encoder_of_base(cls)
    return _ENCODERS[cls]


def _encoder_of_base(cls: type) -> Callable[[Any], Any]:
    for base in (str, int, float, datetime):
        if issubclass(cls, base) and not issubclass(cls, Enum):
            return lambda value: _ENCODERS[base](value)
    raise BadInput(
        f"a value of the type {cls.__name__} cannot be sent", fix="give texts, numbers, times, lists or mappings"
    )


class Malformed(ValueError):
    """JSON that is no value of the type that was expected."""


def decode(type_: Any, data: Any) -> Any:  # noqa: ANN401 - as the type says
    """Return the value of a type from its JSON; Malformed if it is none. Unknown fields of objects are ignored."""
    return _decoder(type_)(data)


@cache
def _decoder(type_: Any) -> Callable[[Any], Any]:  # noqa: ANN401 - a type or a type form
    origin, args = get_origin(type_), get_args(type_)
    if type_ in _PLAIN or type_ is None:
        return _plain_decoder(type(None) if type_ is None else type_)
    if type_ is Any or type_ is object:
        return lambda data: data
    if type_ in _OWN_DECODERS:
        return _OWN_DECODERS[type_]
    if origin is Literal:
        return _choice_decoder(args)
    if origin in (Union, types.UnionType):
        return _union_decoder(args)
    if origin is tuple and len(args) == 2 and args[1] is Ellipsis:
        return _items_decoder(tuple, args[0])
    if origin is tuple:
        return _pair_decoder(args)
    return _other_decoder(type_, origin, args)


def _other_decoder(type_: Any, origin: Any, args: tuple[Any, ...]) -> Callable[[Any], Any]:  # noqa: ANN401 - type forms
    if isinstance(type_, type) and hasattr(type_, "_fields"):
        return _fields_decoder(type_)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _mapping_decoder(args[1])
    if isinstance(origin, type) and issubclass(origin, Iterable):
        return _items_decoder(list if origin is list else tuple, args[0])
    raise TypeError(f"no wire format for {type_!r}")


def _plain_decoder(type_: type) -> Callable[[Any], Any]:
    accepted = (int, float) if type_ is float else (type_,)

    def decode_plain(data: object) -> object:
        # True is an int in Python, and another value here.
        if not isinstance(data, accepted) or (isinstance(data, bool) and type_ is not bool):
            _refuse(data, type_.__name__)
        return data

    return decode_plain


def _decode_time(data: object) -> datetime:
    if not isinstance(data, str):
        _refuse(data, "a time")
    try:
        return datetime.fromisoformat(data)
    except ValueError as error:
        raise Malformed(f"{data!r} is no time") from error


def _decode_metadata(data: object) -> Metadata:
    return Metadata(_decoder(Mapping[str, Scalar])(data))


_OWN_DECODERS: Final[Mapping[Any, Callable[[Any], Any]]] = {datetime: _decode_time, Metadata: _decode_metadata}


def _choice_decoder(choices: tuple[Any, ...]) -> Callable[[Any], Any]:
    def decode_choice(data: object) -> object:
        # A newer server may have choices that this program does not know: they are kept as they are.
        if not any(isinstance(data, type(choice)) for choice in choices):
            _refuse(data, "one of " + ", ".join(map(repr, choices)))
        return data

    return decode_choice


def _union_decoder(types_: tuple[Any, ...]) -> Callable[[Any], Any]:
    decoders = [_decoder(type_) for type_ in types_ if type_ is not Unset]

    def decode_union(data: object) -> object:
        for decoder in decoders:
            try:
                return decoder(data)
            except Malformed:
                continue
        _refuse(data, " or ".join(map(str, types_)))

    return decode_union


def _items_decoder(collect: Callable[[Iterable[Any]], Any], type_: Any) -> Callable[[Any], Any]:  # noqa: ANN401 - a type form
    def decode_items(data: object) -> object:
        if not isinstance(data, list):
            _refuse(data, "an array")
        return collect(map(_decoder(type_), data))

    return decode_items


def _pair_decoder(types_: tuple[Any, ...]) -> Callable[[Any], Any]:
    def decode_pair(data: object) -> object:
        if not isinstance(data, list) or len(data) != len(types_):
            _refuse(data, f"an array of {len(types_)}")
        return tuple(_decoder(type_)(item) for type_, item in zip(types_, data, strict=True))

    return decode_pair


def _mapping_decoder(type_: Any) -> Callable[[Any], Any]:  # noqa: ANN401 - a type form
    def decode_mapping(data: object) -> object:
        if not isinstance(data, dict):
            _refuse(data, "an object")
        return {name: _decoder(type_)(value) for name, value in data.items()}

    return decode_mapping


def _fields_decoder(cls: Any) -> Callable[[Any], Any]:  # noqa: ANN401 - a class of named tuples
    hints = get_type_hints(cls)
    # Looked up at each call and not here: a value may contain values of its own type.
    fields = [(name, hints[name]) for name in cls._fields]
    defaults = cls._field_defaults

    def decode_fields(data: object) -> object:
        if not isinstance(data, dict):
            _refuse(data, f"an object ({cls.__name__})")
        values = {}
        for name, hint in fields:
            value = data.get(name, _MISSING)
            if value is not _MISSING:
                values[name] = _decoder(hint)(value)
            elif name not in defaults:
                raise Malformed(f"the field {name!r} of {cls.__name__} is missing")
        return cls(**values)

    return decode_fields


def _refuse(data: object, expected: str) -> NoReturn:
    raise Malformed(f"{type(data).__name__} in place of {expected}")

"""The codec of values: JSON in both directions. `decode(T, encode(value))` is `value` again, for every result.

HTTP, the command line's `--json`, MCP and the outbox have this one form.

| value | JSON |
| --- | --- |
| a named tuple | an object with its fields; a field that is UNSET is left out |
| a tuple or list | an array |
| a mapping | an object |
| a datetime | RFC 3339 in UTC, `2026-11-15T20:18:24.123456Z`; one without a zone is refused, as by the book |
| a text, number, truth value, None | itself |

Arguments of calls are decoded with `strict`, which refuses unknown fields. `values.schemas` describes this JSON.
"""

from __future__ import annotations

import json
import math
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from enum import Enum
from functools import cache
from typing import Any, Final, Literal, NamedTuple, NoReturn, TypeAlias, Union, get_args, get_origin, get_type_hints

from commonbook.errors import BadInput, BadTime
from commonbook.values.ids import format_time
from commonbook.values.memory import UNSET, Metadata, MetadataValue, Unset
from commonbook.values.session import ChatObject

_PLAIN: Final = (str, bool, int, float, type(None))
"""The types whose values are JSON already."""

REQUIRED: Final = object()
"""The default of a field that has none."""


class Field(NamedTuple):
    """A field of a value, or an argument of a call."""

    name: str
    type: Any
    default: Any = REQUIRED
    description: str = ""


@cache
def fields_of(cls: Any) -> tuple[Field, ...]:  # noqa: ANN401 - a class of named tuples
    """Return the fields of a class of named tuples, without descriptions."""
    hints, defaults = get_type_hints(cls), cls._field_defaults
    return tuple(Field(name, hints[name], defaults.get(name, REQUIRED)) for name in cls._fields)


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
    """JSON that is not a value of the expected type: the fault, and the path to it, such as `links[0].target`."""

    def __init__(self, problem: str, path: str = "") -> None:
        """Describe a fault at a path; the path is empty for the value itself."""
        super().__init__(f"{path}: {problem}" if path else problem)
        self.problem, self.path = problem, path

    def below(self, part: str) -> Malformed:
        """Return the same fault, seen from the value that has this part: `name` or `[0]`."""
        dot = "." if self.path and not self.path.startswith("[") else ""
        return Malformed(self.problem, f"{part}{dot}{self.path}")


def decode(type_: Any, data: Any, *, strict: bool = False) -> Any:  # noqa: ANN401 - as the type says
    """Return the value of a type from its JSON; Malformed if it has another shape.

    Unknown fields of objects are ignored, since a newer server may have them; with `strict` they are refused.
    """
    return _decoder(type_, strict)(data)


def decode_fields(fields: Sequence[Field], data: object, *, strict: bool = True) -> dict[str, Any]:
    """Return the given ones of these fields from a JSON object, by name."""
    if not isinstance(data, dict):
        _refuse(data, "an object")
    if strict:
        names = [field.name for field in fields]
        for unknown in data.keys() - names:
            raise Malformed(f"no such field; there are: {', '.join(names) or 'none'}", unknown[:_MAX_NAME_CHARS])
    values = {}
    for name, type_, default, _ in fields:
        value = data.get(name, REQUIRED)
        if value is not REQUIRED:
            try:
                values[name] = _decoder(type_, strict)(value)
            except Malformed as error:
                raise error.below(name) from None
        elif default is REQUIRED:
            raise Malformed("missing", name)
    return values


def decode_query(fields: Sequence[Field], pairs: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Return the given ones of these fields from a query: a list is given item by item, a mapping as JSON."""
    types = {field.name: field.type for field in fields}
    data: dict[str, Any] = {}
    for name, text in pairs:
        item = _item_type(types.get(name))
        if item is not None:
            data.setdefault(name, []).append(_data_of_text(item, text))
        elif name in data:
            raise Malformed("given more than once", name)
        else:
            data[name] = _data_of_text(types.get(name), text)
    return decode_fields(fields, data)


def _item_type(type_: Any) -> Any:  # noqa: ANN401 - type forms
    """Return the type of the items, if the JSON of a type is an array; else None."""
    for each in alternatives(type_):
        origin, args = get_origin(each), get_args(each)
        if isinstance(origin, type) and issubclass(origin, Iterable) and not issubclass(origin, Mapping):
            return args[0]
    return None


def _data_of_text(type_: Any, text: str) -> Any:  # noqa: ANN401 - type forms
    """Return the JSON that a text in a query stands for: itself, where the type has texts; a number, an object, ..."""
    if any(each in (None, str, datetime) or get_origin(each) is Literal for each in alternatives(type_)):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        # It is refused by its type.
        return text


@cache
def alternatives(type_: Any) -> tuple[Any, ...]:  # noqa: ANN401 - type forms
    """Return the alternatives of a union that JSON tells apart, without None; a single type is its own alternative.

    Where a text is an alternative, a time is given as a text too.
    """
    if get_origin(type_) not in (Union, types.UnionType):
        return () if type_ is type(None) else (type_,)
    args = get_args(type_)
    left_out = {Unset, ChatObject, type(None)} | ({datetime} if str in args else set())
    return tuple(arg for arg in args if arg not in left_out)


_Decoder: TypeAlias = Callable[[Any], Any]


@cache
def _decoder(type_: Any, strict: bool) -> _Decoder:  # noqa: ANN401, FBT001 - a type form; the key of a cache
    if type_ in _PLAIN or type_ is None:
        return _plain_decoder(type(None) if type_ is None else type_)
    if type_ is datetime:
        return _decode_time
    if type_ is Metadata:
        fields = _decoder(Mapping[str, MetadataValue], strict)
        return lambda data: Metadata(fields(data))
    if type_ is Any or type_ is object:
        return lambda data: data
    if hasattr(type_, "_fields"):
        return lambda data: type_(**decode_fields(fields_of(type_), data, strict=strict))
    return _decoder_of_form(type_, strict)


def _decoder_of_form(type_: Any, strict: bool) -> _Decoder:  # noqa: ANN401, FBT001 - as above
    """Return the decoder of a type with parameters."""
    origin, args = get_origin(type_), get_args(type_)
    if origin is Literal:
        return _choice_decoder(args)
    if origin in (Union, types.UnionType):
        return _union_decoder(type_, strict)
    if origin is tuple and args[-1] is not Ellipsis:
        return _tuple_decoder(args, strict)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _mapping_decoder(args[1], strict)
    if isinstance(origin, type) and issubclass(origin, Iterable):
        return _items_decoder(list if origin is list else tuple, args[0], strict)
    raise TypeError(f"no wire format for {type_!r}")


def _plain_decoder(type_: type) -> _Decoder:
    accepted = (int, float) if type_ is float else (type_,)

    def decode_plain(data: object) -> object:
        # True is an int in Python, and another value here.
        if not isinstance(data, accepted) or (isinstance(data, bool) and type_ is not bool):
            _refuse(data, _WORDS[type_])
        if isinstance(data, float) and not math.isfinite(data):
            raise Malformed("not a finite number")
        return data

    return decode_plain


def _decode_time(data: object) -> datetime:
    if not isinstance(data, str):
        _refuse(data, "a time")
    try:
        return datetime.fromisoformat(data)
    except ValueError:
        raise Malformed("not a time") from None


def _choice_decoder(choices: tuple[Any, ...]) -> _Decoder:
    kinds = tuple({type(choice) for choice in choices})

    def decode_choice(data: object) -> object:
        # A newer server may have choices that this program does not know: they are kept as they are. The book itself
        # refuses an unknown choice of a caller, with the known ones.
        if not isinstance(data, kinds):
            _refuse(data, "one of " + ", ".join(map(str, choices)))
        return data

    return decode_choice


def _union_decoder(type_: Any, strict: bool) -> _Decoder:  # noqa: ANN401, FBT001 - as above
    decoders = [_decoder(each, strict) for each in alternatives(type_)]
    has_none = type(None) in get_args(type_)

    def decode_union(data: object) -> object:
        if data is None and has_none:
            return None
        faults = []
        for decoder in decoders:
            try:
                return decoder(data)
            except Malformed as error:
                faults.append(error)
        # The alternative that has the fault deepest inside is the one that was meant.
        meant = max(faults, key=lambda fault: len(fault.path))
        if meant.path or len(faults) == 1:
            raise meant
        _refuse(data, " or ".join(fault.problem.rpartition(" in place of ")[2] for fault in faults))

    return decode_union


def _items_decoder(collect: Callable[[list[Any]], Any], type_: Any, strict: bool) -> _Decoder:  # noqa: ANN401, FBT001 - as above
    def decode_items(data: object) -> object:
        if not isinstance(data, list):
            _refuse(data, "a list")
        decoder = _decoder(type_, strict)
        items: list[Any] = []
        try:
            items.extend(map(decoder, data))
        except Malformed as error:
            raise error.below(f"[{len(items)}]") from None
        return collect(items)

    return decode_items


def _tuple_decoder(types_: tuple[Any, ...], strict: bool) -> _Decoder:  # noqa: FBT001 - as above
    def decode_tuple(data: object) -> object:
        if not isinstance(data, list) or len(data) != len(types_):
            _refuse(data, f"a list of {len(types_)}")
        return tuple(_decoder(type_, strict)(item) for type_, item in zip(types_, data, strict=True))

    return decode_tuple


def _mapping_decoder(type_: Any, strict: bool) -> _Decoder:  # noqa: ANN401, FBT001 - as above
    def decode_mapping(data: object) -> object:
        if not isinstance(data, dict):
            _refuse(data, "an object")
        decoder = _decoder(type_, strict)
        values = {}
        for name, value in data.items():
            try:
                values[name] = decoder(value)
            except Malformed as error:
                raise error.below(name[:_MAX_NAME_CHARS]) from None
        return values

    return decode_mapping


_MAX_NAME_CHARS: Final = 100
"""The length of a name of the sender's own that a message repeats."""

_WORDS: Final[Mapping[type, str]] = {
    str: "a text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    type(None): "null",
    list: "a list",
    dict: "an object",
}


def _refuse(data: object, expected: str) -> NoReturn:
    raise Malformed(f"{_WORDS.get(type(data), type(data).__name__)} in place of {expected}")

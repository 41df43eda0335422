"""JSON Schema (draft 2020-12) of the values of a book, in the form that `values.encoding` gives them.

OpenAPI 3.1 has this dialect. A value that is a named tuple becomes a definition, which has the docstrings of the class
and of its fields as descriptions.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any, Final, Literal, Union, get_args, get_origin

from commonbook.values.encoding import REQUIRED, Field, alternatives, encode, fields_of
from commonbook.values.memory import UNSET, Metadata


def schema(type_: Any) -> dict[str, Any]:  # noqa: ANN401 - a type form
    """Return the JSON Schema of the results of a type, with the definitions of the values in it."""
    schemas = Schemas()
    found = schemas.of(type_)
    return {**found, "$defs": schemas.definitions} if schemas.definitions else found


class Schemas:
    """Makes schemas of types, and collects the definitions of named values, to which the schemas refer.

    `references` is the path of the definitions in the document. For arguments of calls (`strict`), fields with a
    default may be left out, and unknown fields are refused; a result has all its fields.
    """

    def __init__(self, references: str = "#/$defs/", *, strict: bool = False) -> None:
        """Begin without definitions."""
        self.definitions: dict[str, dict[str, Any]] = {}
        self._references, self._strict = references, strict

    def of(self, type_: Any) -> dict[str, Any]:  # noqa: ANN401 - a type form
        """Return the schema of a type."""
        origin, args = get_origin(type_), get_args(type_)
        if type_ in _SCHEMAS:
            return dict(_SCHEMAS[type_])
        if origin is Literal:
            return {"type": "string", "enum": list(args)}
        if origin in (Union, types.UnionType):
            return self._union(type_)
        if origin is tuple and args[-1] is not Ellipsis:
            items = [self.of(arg) for arg in args]
            return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
        if hasattr(type_, "_fields"):
            return self._named(type_)
        if isinstance(origin, type) and issubclass(origin, Mapping):
            return {"type": "object", "additionalProperties": self.of(args[1])}
        if isinstance(origin, type) and issubclass(origin, Iterable):
            return {"type": "array", "items": self.of(args[0])}
        raise TypeError(f"no schema for {type_!r}")

    def of_fields(self, fields: Iterable[Field]) -> dict[str, Any]:
        """Return the schema of an object with these fields."""
        fields = tuple(fields)
        required = [field.name for field in fields if field.default is REQUIRED or not self._strict]
        return {
            "type": "object",
            "properties": {field.name: self._field(field) for field in fields},
            **({"required": required} if required else {}),
            **({"additionalProperties": False} if self._strict else {}),
        }

    def _field(self, field: Field) -> dict[str, Any]:
        schema = self.of(field.type)
        if field.description:
            schema["description"] = field.description
        if self._strict and field.default not in (REQUIRED, UNSET, None):
            schema["default"] = encode(field.default)
        return schema

    def _named(self, cls: Any) -> dict[str, Any]:  # noqa: ANN401 - a class of named tuples
        name = cls.__name__
        if name not in self.definitions:
            # A value may contain values of its own type.
            self.definitions[name] = {}
            described = _descriptions(cls)
            fields = (field._replace(description=described.get(field.name, "")) for field in fields_of(cls))
            self.definitions[name] = {"description": inspect.cleandoc(cls.__doc__ or ""), **self.of_fields(fields)}
        return {"$ref": f"{self._references}{name}"}

    def _union(self, type_: Any) -> dict[str, Any]:  # noqa: ANN401 - a type form
        schemas = [self.of(each) for each in alternatives(type_)]
        if any(schema == {"type": "string"} for schema in schemas):
            # A word of a set is a text too.
            schemas = [schema for schema in schemas if schema.get("type") != "string" or "enum" not in schema]
        if type(None) in get_args(type_):
            schemas.append({"type": "null"})
        return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}


_SCHEMAS: Final[Mapping[Any, dict[str, Any]]] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    type(None): {"type": "null"},
    None: {"type": "null"},
    datetime: {"type": "string", "format": "date-time"},
    Any: {},
    object: {},
    Metadata: {
        "type": "object",
        "additionalProperties": {"type": ["string", "integer", "number", "boolean", "array"]},
    },
}


def _descriptions(cls: type) -> dict[str, str]:
    """Return the texts below the fields of a class, by name."""
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    return dict(_docstrings(body.body)) if isinstance(body, ast.ClassDef) else {}


def _docstrings(statements: Sequence[ast.stmt]) -> Iterator[tuple[str, str]]:
    for statement, text in pairwise(statements):
        if isinstance(statement, ast.AnnAssign) and isinstance(text, ast.Expr):
            yield ast.unparse(statement.target), inspect.cleandoc(str(ast.literal_eval(text.value)))

"""Calls of verbs: the arguments of a request are decoded, and the verb of a book is called with them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from functools import cache, cached_property
from typing import Any, NoReturn

from commonbook.errors import BadText
from commonbook.interfaces.http.error_answers import BadShape
from commonbook.service.book import Book
from commonbook.values.encoding import Field, Malformed, alternatives, decode_fields, decode_query, fields_of
from commonbook.values.memory import UNSET
from commonbook.verbs.declaration import Verb
from commonbook.verbs.requests import VERBS, fields_of_verb


class Call:
    """A verb at one of its paths, with the fields of its requests."""

    def __init__(self, verb: Verb) -> None:
        """Call a verb."""
        self.verb = verb

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        """The fields of the body or the query: the arguments that do not stand in the path."""
        in_path = {*self.verb.path_arguments, self.verb.variadic if self.verb.several else None}
        fields: list[Field] = []
        for field in fields_of_verb(self.verb.name):
            if field.name == self.verb.expanded:
                fields += fields_of(self._expanded_type)
            elif self.verb.archive and field.name == "folder":
                fields.append(field._replace(default=UNSET))
            elif field.name not in in_path and not (self.verb.archive and field.name == "target"):
                fields.append(field)
        return tuple(fields)

    @cached_property
    def compares_versions(self) -> bool:
        """Whether the verb has an expected version, which the header `If-Match` stands for."""
        return any(field.name == "expected_version" for field in self.fields)

    @cached_property
    def _expanded_type(self) -> Any:  # noqa: ANN401 - a class of named tuples
        types = {field.name: field.type for field in fields_of_verb(self.verb.name)}
        (type_,) = alternatives(types[self.verb.expanded or ""])
        return type_

    def parse_body(self, data: object) -> dict[str, Any]:
        """Return the arguments in the JSON of a body."""
        return self._decoded(lambda: decode_fields(self.fields, data))

    def parse_query(self, pairs: Iterable[tuple[str, str]]) -> dict[str, Any]:
        """Return the arguments in a query; only a list may be given several times."""
        arguments = self._decoded(lambda: decode_query(self.fields, pairs))
        if self.verb.expanded is not None:
            names = [name for name in self._expanded_type._fields if name in arguments]
            arguments[self.verb.expanded] = self._expanded_type(**{name: arguments.pop(name) for name in names})
        return arguments

    def parse_path(self, given: Mapping[str, str]) -> dict[str, Any]:
        """Return the arguments in the path; the only one of several values is a list of one."""
        if self.verb.variadic and self.verb.several:
            return {self.verb.variadic: tuple(given.values())}
        return dict(given)

    def invoke(self, book: Book, arguments: Mapping[str, Any]) -> Any:  # noqa: ANN401 - the result of the verb
        """Call the verb."""
        if isinstance(getattr(Book, self.verb.name), property):
            return getattr(book, self.verb.name)
        others = dict(arguments)
        several = others.pop(self.verb.variadic, ()) if self.verb.variadic else ()
        return getattr(book, self.verb.name)(*several, **others)

    def _decoded(self, decode: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        try:
            return decode()
        except Malformed as error:
            names = ", ".join(field.name for field in self.fields) or "none"
            place = f"{error.path!r}: " if error.path else ""
            raise BadShape(place + error.problem, fix=f"the arguments of {self.verb.name} are: {names}") from None


def parse_json(body: bytes) -> Any:  # noqa: ANN401 - any JSON
    """Return the JSON of a body; no body is an empty object."""
    try:
        data = json.loads(body.decode() or "{}", parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise BadShape("the body is not JSON in UTF-8", fix="send one JSON object with the arguments") from None
    if b"\\ud" in body.lower():
        _require_unicode(data)
    return data


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _require_unicode(data: object) -> None:
    """Raise BadText, as the book does, if an argument has a lone surrogate, which JSON can write as an escape."""
    for name, value in data.items() if isinstance(data, dict) else ():
        try:
            json.dumps([name, value], ensure_ascii=False).encode()
        except UnicodeEncodeError:
            shown = name.encode(errors="replace").decode()[:100]
            raise BadText(
                f"the {shown} has a lone surrogate, which no file can hold", fix="send well-formed Unicode text"
            ) from None


@cache
def all_calls() -> tuple[tuple[Call, ...], ...]:
    """Return the calls of each method and path; verbs that share one are told apart by the fields of the request."""
    found: dict[tuple[str, str], list[Call]] = {}
    for declared in VERBS.values():
        for verb in declared.requests:
            found.setdefault((verb.method, verb.path), []).append(Call(verb))
    return tuple(map(tuple, found.values()))

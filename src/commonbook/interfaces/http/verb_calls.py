"""Calls of verbs: arguments are validated from a body or a query, and the verb of a book is called with them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache, cached_property
from typing import Any

from pydantic import ValidationError

from commonbook.book.book import Book
from commonbook.errors import BadText
from commonbook.interfaces.http.error_answers import BadShape
from commonbook.interfaces.http.models import ArgumentModel, argument_model, argument_value
from commonbook.model.memory import UNSET
from commonbook.verbs.declaration import Verb
from commonbook.wire.encoding import Field
from commonbook.wire.verbs import VERBS, fields_of_verb


class Call:
    """A verb with the model of its arguments, which is made when it is first needed: most servers use few verbs."""

    def __init__(self, verb: Verb, *, without: Iterable[str] = (), optional: Iterable[str] = ()) -> None:
        """Call a verb; arguments in `without` are none of a request, those in `optional` need not be given."""
        self.verb = verb
        self._without, self._optional = frozenset(without), frozenset(optional)

    @cached_property
    def arguments(self) -> tuple[Field, ...]:
        """The arguments that a request may have."""
        fields = [field for field in fields_of_verb(self.verb.name) if field.name not in self._without]
        return tuple(field._replace(default=UNSET) if field.name in self._optional else field for field in fields)

    @cached_property
    def model(self) -> type[ArgumentModel]:
        """The model that validates the arguments."""
        return argument_model(self.verb, self.arguments)

    @cached_property
    def _lists(self) -> frozenset[str]:
        properties = self.model.model_json_schema()["properties"]
        return frozenset(name for name, field in properties.items() if field.get("type") == "array")

    @cached_property
    def _expanded_type(self) -> Any:  # noqa: ANN401 - a class of named tuples, or None
        types = (a.type for a in self.arguments if a.name == self.verb.expanded)
        args = (arg for type_ in types for arg in getattr(type_, "__args__", (type_,)))
        return next((arg for arg in args if hasattr(arg, "_fields")), None)

    def parse_body(self, body: bytes) -> dict[str, Any]:
        """Return the arguments in a JSON body; no body is an empty one."""
        try:
            return self._given(self.model.model_validate_json(body or b"{}"))
        except ValidationError as error:
            self._require_unicode(body)
            raise self._refusal(error) from None

    def parse_query(self, items: Iterable[tuple[str, str]]) -> dict[str, Any]:
        """Return the arguments in a query; only a list may be given several times."""
        given: dict[str, Any] = {}
        for name, value in items:
            if name in self._lists:
                given.setdefault(name, []).append(value)
            elif name in given:
                raise BadShape(f"`{name}` is given more than once", fix="give it once")
            else:
                given[name] = value
        try:
            arguments = self._given(self.model.model_validate(given))
        except ValidationError as error:
            raise self._refusal(error) from None
        if self._expanded_type is not None:
            fields = {name: arguments.pop(name) for name in self._expanded_type._fields if name in arguments}
            fields = {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
            arguments[str(self.verb.expanded)] = self._expanded_type(**fields)
        return arguments

    def _given(self, model: ArgumentModel) -> dict[str, Any]:
        return {name: argument_value(getattr(model, name)) for name in model.model_fields_set}

    def invoke(self, book: Book, arguments: Mapping[str, Any]) -> Any:  # noqa: ANN401 - the result of the verb
        """Call the verb."""
        if isinstance(getattr(Book, self.verb.name), property):
            return getattr(book, self.verb.name)
        others = dict(arguments)
        several = others.pop(self.verb.variadic, ()) if self.verb.variadic else ()
        return getattr(book, self.verb.name)(*several, **others)

    def _require_unicode(self, body: bytes) -> None:
        """Raise BadText, as the book does, if an argument has a lone surrogate, which JSON can write as an escape."""
        if b"\\ud" not in body.lower():
            return
        with suppress(ValueError, RecursionError):
            arguments = json.loads(body)
            for name in self.model.model_fields if isinstance(arguments, dict) else ():
                if not _is_unicode(arguments.get(name)):
                    raise BadText(
                        f"the {name} has a lone surrogate, which no file can hold", fix="send well-formed Unicode text"
                    )

    def _refusal(self, error: ValidationError) -> BadShape:
        """Return the first fault of a request in our words; nothing that was sent is repeated but names of fields."""
        fault = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(str(part) for part in fault["loc"])
        if fault["type"] == "extra_forbidden":
            return BadShape(f"{place[:100]!r} is no argument of {self.verb.name}", fix=self._fix())
        if fault["type"] == "missing":
            return BadShape(f"the argument {place!r} of {self.verb.name} is missing", fix=self._fix())
        return BadShape(f"{place[:100]!r}: {fault['msg']}" if place else fault["msg"], fix=self._fix())

    def _fix(self) -> str:
        names = ", ".join(self.model.model_fields) or "none"
        return f"the arguments of {self.verb.name} are: {names}"


def _is_unicode(value: object) -> bool:
    """Tell whether all texts in a value of JSON are well-formed Unicode."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


@cache
def call_of(name: str) -> Call:
    """Return the call of a verb of the table."""
    if name == "import_folder":
        return Call(VERBS[name], optional=("folder",))
    return Call(VERBS[name], without=("target",) if name == "export" else ())

"""The OpenAPI document, made from the declarations of the verbs when somebody asks for it first."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request
from starlette.responses import Response

from commonbook.interfaces.http.verb_calls import Call, all_calls
from commonbook.values.encoding import REQUIRED, Field, alternatives
from commonbook.values.problems import MEDIA_TYPE
from commonbook.values.schemas import Schemas
from commonbook.verbs.requests import DEFAULT_SPACE_HEADER, result_of
from commonbook.version import __version__

if TYPE_CHECKING:
    from commonbook.interfaces.http.threads import Threads

_DESCRIPTION: Final = """Long-term memory for people and their agents.

Arguments and results have the names that they have in the library. Times are RFC 3339; an argument may also be a text
such as `yesterday`. Errors are problem details (RFC 9457), with a `fix`. Names of spaces and sessions stand in a path
percent-encoded, such as `team%2Fbackend`; a plain slash is taken too.
"""

_PROBLEMS: Final = {
    400: "An argument is not valid; nothing was changed.",
    401: "There is no key, or the key opens nothing.",
    403: "The key does not have the permission.",
    404: "There is no such thing, or the key may not see it.",
    409: "The book is not in the state that the request assumes.",
    412: "The memory is at another version than `If-Match`.",
    413: "The body, or a text in it, is too large.",
    415: "The body is not JSON.",
    422: "The arguments do not have the documented shape.",
    429: "Too many requests; `Retry-After` has the seconds until the next try.",
    500: "A fault of the program.",
    503: "The book cannot be used at present.",
    507: "The disk of the server is full.",
}

_TEXT: Final = {"type": "string"}
_NUMBER: Final = {"type": "integer"}
_PROBLEM: Final = {
    "type": "object",
    "description": "Problem details (RFC 9457). `type` names the error; `fix` says how to correct the request.",
    "properties": {
        "type": _TEXT | {"examples": ["version_conflict"]},
        "title": _TEXT | {"examples": ["Version conflict"]},
        "status": _NUMBER | {"examples": [412]},
        "detail": _TEXT | {"examples": ["memory 01a1… is at version 4, not 3"]},
        "fix": _TEXT | {"examples": ["read the memory again and repeat the change on its present version"]},
        "instance": _TEXT | {"description": "The id of the request."},
        "item": _NUMBER | {"description": "The index of the item of a list that it is about."},
        "memory": _TEXT,
        "expected": _NUMBER,
        "found": _NUMBER,
        "retry_after": {"type": "number", "description": "Seconds until the next try."},
        "client_ids": {"type": "array", "items": _TEXT},
    },
    "required": ["type", "title", "status", "detail", "fix"],
}
_REFERENCES: Final = "#/components/schemas/"
_ZIP: Final = {"application/zip": {"schema": {"type": "string", "format": "binary"}}}
_BEARER: Final = {
    "type": "http", "scheme": "bearer", "description": "An API key of the book: `commonbook key create`.",
}  # fmt: skip


class OpenApiHandler:
    """Answers with the OpenAPI document."""

    def __init__(self, document: Callable[[], dict[str, Any]], threads: Threads) -> None:
        """Make the document once, in a thread: the event loop does not wait for it."""
        self._document, self._threads = document, threads
        self._body: bytes | None = None

    async def __call__(self, _request: Request) -> Response:
        """Answer a request."""
        if self._body is None:
            self._body = await self._threads.run(self._encoded)
        return Response(self._body, media_type="application/json")

    def _encoded(self) -> bytes:
        return json.dumps(self._document(), ensure_ascii=False, separators=(",", ":")).encode()


def make_document() -> dict[str, Any]:
    """Return the OpenAPI document of all verbs."""
    operations = _Operations()
    paths: dict[str, dict[str, Any]] = {}
    for calls in all_calls():
        verb = calls[0].verb
        paths.setdefault(verb.template, {})[verb.method.lower()] = operations.describe(calls)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Commonbook", "version": __version__, "description": _DESCRIPTION},
        "paths": paths,
        "components": {"schemas": operations.schemas(), "securitySchemes": {"HTTPBearer": _BEARER}},
    }


class _Operations:
    """Describes operations, and collects the schemas of their values."""

    def __init__(self) -> None:
        # An argument may leave out fields with a default; a result has all of them.
        self._arguments = Schemas(f"{_REFERENCES}Input", strict=True)
        self._results = Schemas(_REFERENCES)

    def schemas(self) -> dict[str, Any]:
        arguments = {f"Input{name}": schema for name, schema in self._arguments.definitions.items()}
        return self._results.definitions | arguments | {"Problem": _PROBLEM}

    def describe(self, calls: Sequence[Call]) -> dict[str, Any]:
        """Return the operation of verbs that share a method and a path."""
        call, verb = calls[0], calls[0].verb
        docs = [inspect.getdoc(each.verb.function) or "" for each in calls]
        names = [each.verb.name for each in calls]
        return {
            "operationId": "_or_".join(names) + ("_several" if verb.variadic and not verb.several else ""),
            "tags": [verb.group],
            "summary": " ".join(doc.partition("\n")[0] for doc in docs),
            "description": "\n\n".join(docs),
            **({} if verb.without_key else {"security": [{"HTTPBearer": []}]}),
            "parameters": [*self._parameters(call)],
            **self._body(calls),
            "responses": self._responses(call),
        }

    def _parameters(self, call: Call) -> Iterator[dict[str, Any]]:
        verb = call.verb
        for name in verb.path_arguments:
            yield {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for field in () if verb.takes_body else call.fields:
            yield {"name": field.name, "in": "query", "required": field.default is REQUIRED} | self._in_query(field)
        for name, text in _headers(call).items():
            yield {"name": name, "in": "header", "required": False, "schema": _TEXT, "description": text}

    def _in_query(self, field: Field) -> dict[str, Any]:
        """Return the schema of a query parameter: a mapping is written as JSON, and None is left out."""
        schemas = [self._arguments.of(type_) for type_ in alternatives(field.type)]
        schema = schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
        if schema.get("type") == "object":
            return {"content": {"application/json": {"schema": schema}}}
        return {"schema": schema}

    def _body(self, calls: Sequence[Call]) -> dict[str, Any]:
        verb = calls[0].verb
        if verb.archive and verb.method == "POST":
            return {"requestBody": {"required": True, "content": _ZIP}}
        if not verb.takes_body or not calls[0].fields:
            return {}
        schemas = [self._arguments.of_fields(call.fields) for call in calls]
        schema = schemas[0] if len(schemas) == 1 else {"oneOf": schemas}
        required = any(field.default is REQUIRED for call in calls for field in call.fields)
        return {"requestBody": {"required": required, "content": {"application/json": {"schema": schema}}}}

    def _responses(self, call: Call) -> dict[str, Any]:
        verb = call.verb
        is_zip = verb.archive and verb.method == "GET"
        result = _ZIP if is_zip else {"application/json": {"schema": self._results.of(result_of(verb.name))}}
        problem = {MEDIA_TYPE: {"schema": {"$ref": f"{_REFERENCES}Problem"}}}
        responses: dict[str, Any] = {"200": {"description": "The result of the verb.", "content": result}}
        if "If-None-Match" in _headers(call):
            responses["304"] = {"description": "The caller has this answer already."}
        return responses | {
            str(status): {"description": text, "content": problem} for status, text in _PROBLEMS.items()
        }


def _headers(call: Call) -> Mapping[str, str]:
    verb = call.verb
    found = {}
    if verb.changes:
        found["Idempotency-Key"] = "A key of the caller's own for this request; a repeat of it gets the first answer."
    if call.compares_versions:
        found["If-Match"] = 'The `ETag` of the memory, such as `"3"`, in place of `expected_version`.'
    if verb.versioned and verb.method == "GET":
        found["If-None-Match"] = "The `ETag` of an earlier answer; if it is still that, the status is 304."
    if not verb.without_key:
        found[DEFAULT_SPACE_HEADER] = "The space of calls that name none, percent-encoded such as `team%2Fbackend`."
    return found

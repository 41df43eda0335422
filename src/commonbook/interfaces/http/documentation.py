"""The documented routes, from which FastAPI makes the OpenAPI document; requests go to handlers of our own."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, Final

from fastapi import Body, FastAPI, Header, Query, Security
from fastapi import Path as PathParameter
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from starlette.responses import JSONResponse, Response

from commonbook.book.book import Book
from commonbook.interfaces.http.models import Problem, result_type
from commonbook.interfaces.http.verb_calls import Call, call_of
from commonbook.version import __version__
from commonbook.wire.problems import MEDIA_TYPE
from commonbook.wire.verbs import DEFAULT_SPACE_HEADER, VERBS, result_of

BEARER: Final = HTTPBearer(auto_error=False, description="An API key of the book: `commonbook key create`.")

_JSON: Final = "application/json"
_DESCRIPTION: Final = """Long-term memory for people and their agents.

Every verb of the library is a path. Arguments and results have the names that they have there. Times are RFC 3339; an
argument may also be a text such as `yesterday`. Errors are problem details (RFC 9457), with a `fix`.
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


_ZIP: Final = {"application/zip": {"schema": {"type": "string", "format": "binary"}}}
_ZIP_ANSWER: Final[dict[int | str, dict[str, Any]]] = {200: {"description": "The archive.", "content": _ZIP}}


def openapi_document() -> dict[str, Any]:
    """Return the OpenAPI document of all verbs."""
    app = FastAPI(title="Commonbook", version=__version__, description=_DESCRIPTION, docs_url=None, redoc_url=None)
    app.router.routes.extend(make_route(call_of(name)) for name in VERBS)
    document = app.openapi()
    _complete(document)
    return document


def problem_responses() -> dict[int | str, dict[str, Any]]:
    """Return the documentation of all answers with an error."""
    schema = {"$ref": f"#/components/schemas/{Problem.__name__}"}
    return {
        status: {"description": text, "content": {MEDIA_TYPE: {"schema": schema}}} for status, text in _PROBLEMS.items()
    }


def _complete(document: dict[str, Any]) -> None:
    """Put the schema of problem details into an OpenAPI document, in place of FastAPI's own form."""
    schemas = document["components"]["schemas"]
    schemas[Problem.__name__] = Problem.model_json_schema()
    for path in document["paths"].values():
        for operation in path.values():
            # FastAPI documents its own form of this answer too.
            operation["responses"]["422"]["content"].pop(_JSON, None)
    schemas.pop("HTTPValidationError", None)
    schemas.pop("ValidationError", None)


def make_route(call: Call) -> APIRoute:
    """Return the documented route of a verb."""
    verb = call.verb
    answers_zip = verb.archive and verb.method == "GET"
    doc = inspect.getdoc(getattr(Book, verb.name)) or ""
    return APIRoute(
        verb.path,
        _documented(call),
        methods=[verb.method],
        name=verb.name,
        operation_id=verb.name,
        tags=[verb.group],
        summary=doc.partition("\n")[0],
        description=doc,
        response_model=None if answers_zip else result_type(result_of(verb.name)),
        # Otherwise the document has an answer in JSON too.
        response_class=Response if answers_zip else JSONResponse,
        responses=problem_responses() | _not_modified(call) | (_ZIP_ANSWER if answers_zip else {}),
        response_description="The result of the verb.",
        openapi_extra=_openapi_extra(call),
    )


def _not_modified(call: Call) -> dict[int | str, dict[str, Any]]:
    return {304: {"description": "The caller has this answer already."}} if "If-None-Match" in _headers(call) else {}


def _documented(call: Call) -> Callable[..., None]:
    """Return a function that is never called: its signature is the documentation of a route."""
    verb = call.verb
    parameters = [] if verb.without_key else [_KEY]
    parameters.extend(_parameter(name, Annotated[str, PathParameter(min_length=1)]) for name in verb.path_arguments)
    if call.model.model_fields:
        place = Body() if verb.takes_body else Query()
        parameters.append(_parameter("arguments", Annotated[call.model, place]))
    for name, text in _headers(call).items():
        parameters.append(
            _parameter(
                name.replace("-", "_").lower(), Annotated[str | None, Header(alias=name, description=text)], None
            )
        )
    return _endpoint(parameters)


def _endpoint(parameters: list[inspect.Parameter]) -> Callable[..., None]:
    def endpoint() -> None:
        """Stand for a handler in the OpenAPI document."""

    endpoint.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return endpoint


def _parameter(name: str, type_: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:  # noqa: ANN401 - a type form
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=type_, default=default)


_KEY: Final = _parameter("key", Annotated[Any, Security(BEARER)])


def _headers(call: Call) -> dict[str, str]:
    verb = call.verb
    found = {}
    if verb.changes:
        found["Idempotency-Key"] = "A key of the caller's own for this request; a repeat of it gets the first answer."
    if any(argument.name == "expected_version" for argument in call.arguments):
        found["If-Match"] = 'The `ETag` of the memory, such as `"3"`, in place of `expected_version`.'
    if verb.versioned and verb.method == "GET":
        found["If-None-Match"] = "The `ETag` of an earlier answer; if it is still that, the status is 304."
    if not verb.without_key:
        found[DEFAULT_SPACE_HEADER] = "The space of calls that name none, percent-encoded such as `team%2Fbackend`."
    return found


def _openapi_extra(call: Call) -> dict[str, Any]:
    if call.verb.archive and call.verb.method == "POST":
        return {"requestBody": {"required": True, "content": _ZIP}}
    if not call.verb.takes_body or not call.model.model_fields:
        return {}
    required = any(field.is_required() for field in call.model.model_fields.values())
    return {"requestBody": {"required": required, "content": {_JSON: {}}}}

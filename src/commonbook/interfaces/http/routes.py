"""The routes of the verbs: FastAPI documents them; a handler of our own reads a request and answers it.

A request is authenticated, validated, run and encoded in one thread of the pool, so that the event loop never waits for
the book.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar
from urllib.parse import urlencode

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar
from fastapi import Body, Header, Path, Query, Security
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from starlette.requests import Request
from starlette.responses import Response

from commonbook.book.book import Book
from commonbook.interfaces.http import examples
from commonbook.interfaces.http.answers import BadShape, error_answer
from commonbook.interfaces.http.authentication import default_space_of, secret_of, view_of
from commonbook.interfaces.http.calls import Call
from commonbook.interfaces.http.models import Problem, result_type
from commonbook.interfaces.http.preconditions import entity_tag, expected_version, is_unchanged
from commonbook.wire.encoding import dumps
from commonbook.wire.problems import MEDIA_TYPE
from commonbook.wire.signatures import REQUIRED
from commonbook.wire.verbs import DEFAULT_SPACE_HEADER

if TYPE_CHECKING:
    from commonbook.interfaces.http.config import ServerConfig

BEARER: Final = HTTPBearer(auto_error=False, description="An API key of the book: `commonbook key create`.")

_JSON: Final = "application/json"
_LINKED: Final = frozenset({"list", "inbox", "messages"})
"""The verbs whose answers are pages: a header has the link to the next one."""

_Result = TypeVar("_Result")


class Threads:
    """The threads in which requests use the book: so many at once."""

    def __init__(self, config: ServerConfig) -> None:
        """Start no thread yet."""
        self._size = config.threads
        # A limiter belongs to one event loop.
        self._limiter: RunVar[anyio.CapacityLimiter] = RunVar("commonbook-threads")

    async def run(self, work: Callable[[], _Result]) -> _Result:
        """Run a function in a thread."""
        limiter = self._limiter.get(None)
        if limiter is None:
            limiter = anyio.CapacityLimiter(self._size)
            self._limiter.set(limiter)
        return await anyio.to_thread.run_sync(work, limiter=limiter)


def answering(handler: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Coroutine[Any, Any, Response]]:
    """Return a handler that answers any exception with problem details."""

    async def handle(request: Request) -> Response:
        try:
            return await handler(request)
        except Exception as error:  # noqa: BLE001 - a fault of the program must be answered, and logged without its text
            return error_answer(error, request)

    return handle


class Handler:
    """Answers the requests of one verb."""

    def __init__(self, book: Book, call: Call, threads: Threads) -> None:
        """Answer from this book, in these threads."""
        self._book, self._call, self._threads = book, call, threads

    async def __call__(self, request: Request) -> Response:
        """Answer a request."""
        # Without a key nothing of the body is read.
        secret = None if self._call.verb.without_key else secret_of(request)
        body = b""
        if self._call.verb.takes_body:
            _require_json(request)
            body = await request.body()
        return await self._threads.run(partial(self._answer, request, secret, body))

    def _answer(self, request: Request, secret: str | None, body: bytes) -> Response:
        verb = self._call.verb
        view = self._book if secret is None else view_of(self._book, secret, default_space_of(request))
        query = request.query_params.multi_items()
        if verb.takes_body:
            if query:
                raise BadShape(f"{query[0][0][:100]!r} is no query parameter", fix="send the arguments in a JSON body")
            arguments = self._call.parse_body(body)
            arguments |= expected_version(_if_match(self._call, request), arguments)
        else:
            arguments = self._call.parse_query(query)
        result = self._call.invoke(view, {**arguments, **request.path_params})
        return _answer_with(self._call, request, result)


def _require_json(request: Request) -> None:
    media_type = request.headers.get("content-type", _JSON).partition(";")[0].strip().lower()
    if media_type != _JSON:
        raise BadShape(
            f"the body is not {_JSON}", fix=f"send JSON, with the header `Content-Type: {_JSON}`", status=415
        )


def _if_match(call: Call, request: Request) -> str | None:
    takes_version = any(argument.name == "expected_version" for argument in call.signature.arguments)
    return request.headers.get("if-match") if takes_version else None


def _answer_with(call: Call, request: Request, result: Any) -> Response:  # noqa: ANN401 - the result of a verb
    headers = {}
    if call.verb.versioned:
        headers["ETag"] = entity_tag(result)
        if call.verb.method == "GET" and is_unchanged(request.headers.get("if-none-match"), headers["ETag"]):
            return Response(status_code=304, headers=headers)
    if call.verb.name in _LINKED and result.next is not None:
        kept = [(name, value) for name, value in request.query_params.multi_items() if name != "after"]
        query = urlencode([*kept, ("after", str(result.next))])
        headers["Link"] = f'<{request.url.path}?{query}>; rel="next"'
    return Response(dumps(result), media_type=_JSON, headers=headers)


# --- documentation

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


def problem_responses() -> dict[int | str, dict[str, Any]]:
    """Return the documentation of all answers with an error."""
    schema = {"$ref": f"#/components/schemas/{Problem.__name__}"}
    return {
        status: {"description": text, "content": {MEDIA_TYPE: {"schema": schema}}} for status, text in _PROBLEMS.items()
    }


def make_route(call: Call, handler: Callable[[Request], Coroutine[Any, Any, Response]]) -> APIRoute:
    """Return the documented route of a verb, whose requests go to the handler."""
    verb = call.verb

    class VerbRoute(APIRoute):
        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            return answering(handler)

    doc = inspect.getdoc(getattr(Book, verb.name)) or ""
    return VerbRoute(
        verb.path,
        _documented(call),
        methods=[verb.method],
        name=verb.name,
        operation_id=verb.name,
        tags=[verb.group],
        summary=doc.partition("\n")[0],
        description=doc,
        response_model=result_type(call.signature.result),
        responses=problem_responses() | _not_modified(call),
        response_description="The result of the verb.",
        openapi_extra=_openapi_extra(call),
    )


def _not_modified(call: Call) -> dict[int | str, dict[str, Any]]:
    return {304: {"description": "The caller has this answer already."}} if "If-None-Match" in _headers(call) else {}


def _documented(call: Call) -> Callable[..., None]:
    """Return a function that is never called: its signature is the documentation of a route."""
    verb = call.verb
    parameters = [] if verb.without_key else [_parameter("key", Annotated[Any, Security(BEARER)])]
    for name in verb.path_arguments:
        example = examples.EXAMPLES[verb.name][name]
        parameters.append(_parameter(name, Annotated[str, Path(examples=[example], min_length=1)]))
    if call.model.model_fields and not verb.archive:
        place = Body() if verb.takes_body else Query()
        parameters.append(_parameter("arguments", Annotated[call.model, place]))
    for name, text in _headers(call).items():
        parameters.append(
            _parameter(
                name.replace("-", "_").lower(), Annotated[str | None, Header(alias=name, description=text)], None
            )
        )

    def endpoint() -> None:
        """Stand for the verb in the OpenAPI document."""

    endpoint.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return endpoint


def _parameter(name: str, type_: Any, default: Any = REQUIRED) -> inspect.Parameter:  # noqa: ANN401 - a type form
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=type_, default=default)


def _headers(call: Call) -> dict[str, str]:
    verb = call.verb
    found = {}
    if any(argument.name == "expected_version" for argument in call.signature.arguments):
        found["If-Match"] = 'The `ETag` of the memory, such as `"3"`, in place of `expected_version`.'
    if verb.versioned and verb.method == "GET":
        found["If-None-Match"] = "The `ETag` of an earlier answer; if it is still that, the status is 304."
    if not verb.without_key:
        found[DEFAULT_SPACE_HEADER] = "The space of calls that name none, percent-encoded such as `team%2Fbackend`."
    return found


def _openapi_extra(call: Call) -> dict[str, Any]:
    example = {
        name: value
        for name, value in examples.EXAMPLES.get(call.verb.name, {}).items()
        if name not in call.verb.path_arguments
    }
    if not call.verb.takes_body or not call.model.model_fields:
        return {}
    required = any(field.is_required() for field in call.model.model_fields.values())
    return {"requestBody": {"required": required, "content": {_JSON: {"example": example}}}}

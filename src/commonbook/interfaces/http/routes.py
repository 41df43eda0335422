"""The handlers of the verbs: each reads a request, calls the verb and answers.

A request is authenticated, decoded, run and encoded in one thread of the pool, so that the event loop never waits for
the book. Authentication: a request acts for the principal of a key, in its header `Authorization` or by a browser's
session.

Key and session are looked up for every request, so that what was revoked or signed out is refused at once, by every
server of the book. A browser sends the cookie of a session with every request, whichever page has made it. So a request
of a session that may change something has to prove that one of our own pages has made it.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote, unquote, urlencode

from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import Match, Route

from commonbook.errors import BadInput, NotAllowed
from commonbook.interfaces.http.error_answers import BadShape, Unauthenticated, error_answer
from commonbook.interfaces.http.guards.hosts import is_proven_own_page, public_port
from commonbook.interfaces.http.verb_calls import Call, parse_json
from commonbook.service.book import Book
from commonbook.service.serving import announce_append, answer_once, find_session, view_of_session
from commonbook.values.encoding import dumps
from commonbook.values.memory import Memory
from commonbook.verbs.requests import DEFAULT_SPACE_HEADER

if TYPE_CHECKING:
    from starlette.types import Scope

    from commonbook.interfaces.http.threads import Threads
    from commonbook.values.spaces import BrowserSession

_JSON: Final = "application/json"
_SMALL_BODY_BYTES: Final = 64 << 10
"""The size of a body that is read before its key is looked up, together with all else that the request needs."""

_LINKED: Final = frozenset({"list", "inbox", "messages"})
"""The verbs whose answers are pages: a header has the link to the next one."""

_ANNOUNCED: Final = frozenset({"append"})
"""The verbs whose requests share a transaction: the event loop announces each before it waits for a thread."""


class LoggedRoute(Route):
    """A route that the access log names, as it names those of the verbs."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match a request, and tell it the route."""
        match, child = super().matches(scope)
        return match, {**child, "route": self}


def answering(handler: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Coroutine[Any, Any, Response]]:
    """Return a handler that answers any exception with problem details."""

    async def handle(request: Request) -> Response:
        try:
            return await handler(request)
        except Exception as error:  # noqa: BLE001 - a fault of the program must be answered, and logged without its text
            return error_answer(error, request)

    return handle


class Handler:
    """Answers the requests with one method and path: of one verb, or of several that have different fields."""

    def __init__(self, book: Book, calls: Sequence[Call], threads: Threads) -> None:
        """Answer from this book, in these threads."""
        self._book, self._calls, self._threads = book, calls, threads
        self._verb = calls[0].verb

    async def __call__(self, request: Request) -> Response:
        """Answer a request."""
        # Without a key nothing of the body is read.
        given = None if self._verb.without_key else credentials_of(request)
        body = b""
        if self._verb.takes_body:
            _require_json(request)
            if given is not None and _may_be_large(request):
                # A stranger, who has no valid key, fills no memory.
                await self._threads.run(partial(view_of, self._book, request, given))
            body = await request.body()
        with announce_append(self._book) if self._verb.name in _ANNOUNCED else nullcontext():
            return await self._threads.run(partial(self._answer, request, given, body))

    def _answer(self, request: Request, given: Credentials | None, body: bytes) -> Response:
        view = self._book if given is None else view_of(self._book, request, given, default_space_of(request))
        query = request.query_params.multi_items()
        if self._verb.takes_body:
            if query:
                raise BadShape(f"{query[0][0][:100]!r} is not a query parameter", fix="send arguments in a JSON body")
            data = parse_json(body)
            call = self._call_of(data)
            arguments = call.parse_body(data)
        else:
            _refuse_body(request)
            call = self._calls[0]
            arguments = call.parse_query(query)
        arguments |= expected_version(_if_match(call, request), arguments) | call.parse_path(request.path_params)
        key = idempotency_key(request) if call.verb.changes else None
        if key is not None:
            requested = {**arguments, "default space": default_space_of(request)}
            return keyed_answer(call, view, arguments, key, requested=requested)
        return _answer_with(call, request, call.invoke(view, arguments))

    def _call_of(self, data: object) -> Call:
        """Return the call of the verb that has one of the given fields."""
        names = data.keys() if isinstance(data, dict) else ()
        return next((call for call in self._calls if any(field.name in names for field in call.fields)), self._calls[0])


def idempotency_key(request: Request) -> str | None:
    """Return the header `Idempotency-Key`, which is a quoted text or a bare one."""
    headers = request.headers.getlist("idempotency-key")
    if not headers:
        return None
    if len(headers) > 1:
        raise BadInput("the request has more than one Idempotency-Key", fix="send one")
    header = headers[0]
    return header[1:-1] if len(header) > 1 and header[0] == header[-1] == '"' else header


def keyed_answer(
    call: Call, view: Book, arguments: Mapping[str, Any], key: str, *, requested: Mapping[str, Any] | None = None
) -> Response:
    """Return the first answer to an idempotency key, with its entity tag.

    `requested` stands for what was requested, if that is more than the arguments.
    """
    tag, body = keyed_body(call, view, arguments, key, requested=requested)
    return Response(body, media_type=_JSON, headers={"ETag": tag} if tag else {})


def keyed_body(
    call: Call, view: Book, arguments: Mapping[str, Any], key: str, *, requested: Mapping[str, Any] | None = None
) -> tuple[str, str]:
    """Return the entity tag, which may be empty, and the body of the first answer to an idempotency key."""

    def encode_answer(result: object) -> str:
        tag = entity_tag(result) if call.verb.versioned else ""
        return f"{tag}\n{dumps(result).decode()}"

    requested = arguments if requested is None else requested
    answer = answer_once(
        view,
        lambda book: call.invoke(book, arguments),
        key=key,
        content=dumps([call.verb.name, {name: requested[name] for name in sorted(requested)}]).decode(),
        encode=encode_answer,
        in_parts=call.verb.in_parts,
    )
    tag, _, body = answer.partition("\n")
    return tag, body


def json_answer(result: object, headers: Mapping[str, str] | None = None) -> Response:
    """Return the result of a verb as an answer."""
    return Response(dumps(result), media_type=_JSON, headers=headers)


def _may_be_large(request: Request) -> bool:
    length = request.headers.get("content-length", "")
    return "transfer-encoding" in request.headers or (length.isdecimal() and int(length) > _SMALL_BODY_BYTES)


def _refuse_body(request: Request) -> None:
    """Refuse a body where arguments stand in the query: ignored, it could be one that limits a deletion."""
    if "transfer-encoding" in request.headers or request.headers.get("content-length", "0") != "0":
        raise BadShape(f"a {request.method} has no body", fix="send the arguments in the query")


def _require_json(request: Request) -> None:
    media_type = request.headers.get("content-type", _JSON).partition(";")[0].strip().lower()
    if media_type != _JSON:
        raise BadShape(
            f"the body is not {_JSON}", fix=f"send JSON, with the header `Content-Type: {_JSON}`", status=415
        )


def _if_match(call: Call, request: Request) -> str | None:
    """Return the header `If-Match`; a change that would ignore it is refused, since the caller relies on it."""
    headers = request.headers.getlist("if-match")
    if not headers:
        return None
    # Several headers are one list.
    header = ", ".join(headers)
    if call.compares_versions:
        return header
    if call.verb.changes and header.strip() != "*":
        raise BadInput(f"{call.verb.name} does not compare versions", fix="leave out the header If-Match")
    return None


def _answer_with(call: Call, request: Request, result: Any) -> Response:  # noqa: ANN401 - the result of a verb
    headers = {}
    if call.verb.versioned:
        headers["ETag"] = entity_tag(result)
        if call.verb.method == "GET" and is_unchanged(request.headers.get("if-none-match"), headers["ETag"]):
            return Response(status_code=304, headers=headers)
    if call.verb.name in _LINKED and result.next is not None:
        kept = [(name, value) for name, value in request.query_params.multi_items() if name != "after"]
        query = urlencode([*kept, ("after", str(result.next))])
        headers["Link"] = f'<{quote(request.scope["path"])}?{query}>; rel="next"'
    return json_answer(result, headers)


_DERIVED: Final = ("marks", "superseded_by", "freshness", "successor", "invalidations")
_TAG: Final = re.compile(r'"(\d{1,15})(?:\.[0-9a-f]+)?"')


def entity_tag(result: Any) -> str:  # noqa: ANN401 - a value with a version
    """Return the tag of a memory, or of the receipt of one."""
    if not isinstance(result, Memory):
        return f'"{result.version}"'
    derived = tuple(getattr(result, name) for name in _DERIVED)
    if not any(derived):
        return f'"{result.version}"'
    return f'"{result.version}.{blake2b(dumps(derived), digest_size=8).hexdigest()}"'


def expected_version(header: str | None, arguments: Mapping[str, Any]) -> dict[str, int]:
    """Return the argument `expected_version` that the header `If-Match` stands for; none for `*` and no header."""
    if header is None or header.strip() == "*":
        return {}
    tag = _TAG.fullmatch(header.strip())
    if tag is None:
        raise BadInput("the header If-Match has no version", fix='send the ETag of the memory, such as `If-Match: "3"`')
    version = int(tag[1])
    if arguments.get("expected_version") not in (None, version):
        raise BadInput("If-Match and expected_version are different versions", fix="send one of them")
    return {"expected_version": version}


def is_unchanged(header: str | None, tag: str) -> bool:
    """Tell whether the header `If-None-Match` has the tag, so that the caller has the answer already."""
    if header is None:
        return False
    tags = [candidate.strip().removeprefix("W/") for candidate in header.split(",")]
    return tag in tags or tags == ["*"]


CSRF_HEADER: Final = "X-CSRF-Token"
_SAFE_METHODS: Final = frozenset({"GET", "HEAD"})


class Credentials(NamedTuple):
    """The secret of a key, or of a session with the token of its page; the token is None if none is needed."""

    secret: str
    is_session: bool = False
    csrf_token: str | None = None


def credentials_of(connection: HTTPConnection) -> Credentials:
    """Return what a request came with; Unauthenticated if that is nothing, NotAllowed if another page has made it."""
    headers = connection.headers.getlist("authorization")
    cookie = session_cookie(connection)
    if not headers and cookie:
        if connection.scope.get("method") in _SAFE_METHODS:
            return Credentials(cookie, is_session=True)
        require_own_page(connection)
        return Credentials(cookie, is_session=True, csrf_token=connection.headers.get(CSRF_HEADER, ""))
    scheme, _, secret = headers[0].strip().partition(" ") if len(headers) == 1 else ("", "", "")
    if scheme.lower() != "bearer" or not secret.strip():
        raise Unauthenticated(
            NotAllowed(
                "the request has no key",
                fix="send the header `Authorization: Bearer KEY`; `commonbook key create` makes a key",
            )
        )
    return Credentials(secret.strip())


def cookie_name(connection: HTTPConnection) -> str:
    """Return the name of the cookie of a session: browsers keep the cookies of all ports of a host together."""
    prefix = "__Host-" if connection.scope["scheme"] == "https" else ""
    return f"{prefix}commonbook-session-{public_port(connection)}"


def session_cookie(connection: HTTPConnection) -> str | None:
    """Return the secret of the session that a browser has sent, or None."""
    return connection.cookies.get(cookie_name(connection))


def require_own_page(connection: HTTPConnection) -> None:
    """Raise NotAllowed unless the browser says that a page of this server has made the request."""
    if not is_proven_own_page(connection):
        raise NotAllowed(
            "a request of a signed-in browser comes from a page of this server",
            fix="send the headers Origin or Sec-Fetch-Site of such a page, or a key in place of the cookie",
        )


def require_csrf_token(session: BrowserSession, token: str) -> None:
    """Raise NotAllowed unless this is the token of the session."""
    if not hmac.compare_digest(session.csrf_token.encode(), token.encode(errors="replace")):
        raise NotAllowed(
            "the request does not have the token of its page",
            fix=f"send it in the header {CSRF_HEADER}; or load the page again",
        )


def default_space_of(connection: HTTPConnection) -> str | None:
    """Return the space of a request whose arguments name none: the header `Commonbook-Space`, percent-encoded."""
    named = connection.headers.get(DEFAULT_SPACE_HEADER)
    return None if named is None else unquote(named)


def view_of(book: Book, connection: HTTPConnection, given: Credentials, space: str | None = None) -> Book:
    """Return a view of the book for the principal of a key or a session; Unauthenticated if it opens nothing.

    The access log gets the principal, and not the key.
    """
    try:
        session = find_session(book, given.secret) if given.is_session else None
        view = (
            book.with_key(given.secret, space=space) if session is None else view_of_session(book, session, space=space)
        )
    except NotAllowed as error:
        raise Unauthenticated(error) from None
    if session is not None and given.csrf_token is not None:
        require_csrf_token(session, given.csrf_token)
    connection.scope.setdefault("state", {})["principal"] = view.actor
    return view

"""MCP over streamable HTTP at `/mcp`, by the official SDK: the same tools as on stdio, in every revision.

It is stateless: each request has a key and acts for its principal, so that any server of a book can answer any of them.
The SDK is loaded by the first request, since it takes a second and 50 MB.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request

from commonbook.errors import BadInput
from commonbook.interfaces.http.error_answers import BadShape, error_answer, status_answer
from commonbook.interfaces.http.routes import LoggedRoute, credentials_of, default_space_of, view_of
from commonbook.interfaces.http.threads import ServerConfig, Threads
from commonbook.interfaces.mcp.failures import NoSuchResource, ProtocolError, explained
from commonbook.interfaces.mcp.methods import CACHED_SECONDS, INSTRUCTIONS, METHODS, SERVER
from commonbook.interfaces.mcp.tools import TOOLS

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from commonbook.interfaces.mcp.methods import Method
    from commonbook.service.book import Book

_PATH: Final = "/mcp"
_VIEW: Final = "mcp_view"
_MAX_BODY_BYTES: Final = 32 << 20
_INVALID_PARAMETERS: Final = -32602
_INTERNAL_ERROR: Final = -32603


class _RequestBook:
    """The book as the principal of one request has it."""

    def __init__(self, view: Book) -> None:
        self._view = view

    def book(self, *, changes: bool) -> Book:  # noqa: ARG002 - permissions decide
        """Return the book of the request."""
        return self._view


class McpEndpoint:
    """The route `/mcp`: authenticates each request, and hands it to the SDK."""

    def __init__(self, book: Book, config: ServerConfig | None = None) -> None:
        """Serve this book of the owner; the SDK is not loaded yet."""
        self._book, self._threads = book, Threads(config or ServerConfig())
        self._starting: asyncio.Task[ASGIApp] | None = None
        self._running: asyncio.Task[None] | None = None

    def route(self) -> LoggedRoute:
        """Return the route, which has a method of its own for every revision of the protocol: POST."""
        return LoggedRoute(_PATH, endpoint=self)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        request = Request(scope, receive)
        try:
            if request.method != "POST":
                # No stream that a server opens: it would tell nothing, and keep the process from ending.
                refusal = status_answer(405, request, {"Allow": "POST"})
                await refusal(scope, receive, send)
                return
            # Without a valid key nothing of the body is read.
            credentials = credentials_of(request)
            view = await self._threads.run(
                partial(view_of, self._book, request, credentials, default_space_of(request))
            )
            body = await request.body()
            app = await self._app()
        except Exception as error:  # noqa: BLE001 - a fault of the program must be answered, and logged without its text
            await error_answer(error, request)(scope, receive, send)
            return
        scope["state"][_VIEW] = view
        await app(scope, _replayed(body, receive), send)

    async def _app(self) -> ASGIApp:
        """Return the app of the SDK; the first request starts it, and others wait for that."""
        if (
            self._starting is None
            or self._starting.cancelled()
            or (self._starting.done() and self._starting.exception())
        ):
            self._starting = asyncio.create_task(self._start())
        return await asyncio.shield(self._starting)

    async def _start(self) -> ASGIApp:
        try:
            manager = await asyncio.to_thread(self._make_manager)
        except ImportError as error:
            missing = BadInput(
                f"MCP over HTTP needs a package that is not installed: {error.name}",
                fix="on the server: pip install 'commonbook[server]'",
            )
            shape = BadShape(missing.message, fix=missing.fix, status=501)
            raise shape from error
        is_running = asyncio.Event()

        async def run() -> None:
            async with manager.run():
                is_running.set()
                # Cancelled when the event loop of the server ends.
                await asyncio.Event().wait()

        self._running = asyncio.create_task(run())
        await is_running.wait()
        return manager.handle_request  # type: ignore[no-any-return]

    def _make_manager(self) -> Any:  # noqa: ANN401 - a class of the SDK, which may not be installed
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
        from mcp.server.transport_security import TransportSecuritySettings

        return StreamableHTTPSessionManager(
            self._make_server(),
            json_response=True,
            stateless=True,
            # Host and Origin are checked by the guards, for every route.
            security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
            max_request_body_size=_MAX_BODY_BYTES,
        )

    def _make_server(self) -> Server[Any]:
        import mcp_types
        from mcp.server.caching import CacheHint
        from mcp.server.lowlevel import Server

        hints: dict[Any, CacheHint] = {
            method: CacheHint(ttl_ms=seconds * 1000, scope="public" if seconds else "private")
            for method, seconds in CACHED_SECONDS.items()
        }
        schemas = {name: tool.input_schema() for name, tool in TOOLS.items()}
        server: Server[Any] = Server(
            SERVER["name"],
            title=SERVER["title"],
            version=SERVER["version"],
            instructions=INSTRUCTIONS,
            cache_hints=hints,
            get_tool_input_schema=schemas.get,
        )
        server.middleware.clear()
        for name, method in METHODS.items():
            server.add_request_handler(name, mcp_types.RequestParams, self._handler(method))
        return server

    def _handler(self, method: Method) -> Callable[[Any, Any], Awaitable[dict[str, Any]]]:
        """Return the handler of a method in the form of the SDK."""
        from mcp.shared.exceptions import MCPError
        from mcp_types.version import MODERN_PROTOCOL_VERSIONS

        async def handle(context: Any, _parameters: object) -> dict[str, Any]:  # noqa: ANN401 - a class of the SDK
            source = _RequestBook(context.request.scope["state"][_VIEW])
            is_modern = context.protocol_version in MODERN_PROTOCOL_VERSIONS
            try:
                result = await self._threads.run(partial(method, source, context.params or {}))
                return {**result, "resultType": "complete"} if is_modern else result
            except ProtocolError as error:
                code = _INVALID_PARAMETERS if is_modern and isinstance(error, NoSuchResource) else error.code
                raise MCPError(code=code, message=error.message, data=error.data) from None
            except Exception as error:  # noqa: BLE001 - a fault of the program is answered without its text
                raise MCPError(code=_INTERNAL_ERROR, message=explained(error)) from None

        return handle


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Return a function that receives a body that was read already, and then the end of the connection."""
    parts: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def next_part() -> Message:
        return parts.pop() if parts else await receive()

    return next_part

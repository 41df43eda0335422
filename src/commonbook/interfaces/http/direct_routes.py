"""Direct routes: requests to fixed paths go to their handlers by a table, past the layers of the app.

The app compares a path with one route after the other, and passes each request through layers for exceptions, which
handlers that answer every exception themselves do not need. For a verb that takes a millisecond, that is a part of the
cost. Everything else goes to the app.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from commonbook.interfaces.http.routes import LoggedRoute, answering

if TYPE_CHECKING:
    from starlette.routing import BaseRoute
    from starlette.types import ASGIApp, Receive, Scope, Send


class AnsweringRoute(LoggedRoute):
    """A route of one method, whose handler answers every exception too."""

    def __init__(self, path: str, handler: Callable[[Request], Awaitable[Response]], *, method: str, name: str) -> None:
        """Answer requests of this method and path by the handler."""
        self.answer = answering(handler)
        super().__init__(path, self.answer, name=name)
        # Starlette would add HEAD to GET, which the document does not have.
        self.methods = {method}


class DirectRoutes:
    """Answers POST requests to paths without parameters by a table, and passes all others on."""

    def __init__(self, app: ASGIApp, routes: Iterable[BaseRoute]) -> None:
        """Look up these routes of the app."""
        self._app = app
        self._routes = {
            route.path: route
            for route in routes
            if isinstance(route, AnsweringRoute) and route.methods == {"POST"} and not route.param_convertors
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        route = self._routes.get(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" else None
        if route is None:
            await self._app(scope, receive, send)
            return
        # The access log names the route.
        scope["route"], scope["path_params"] = route, {}
        response = await route.answer(Request(scope, receive, send))
        await response(scope, receive, send)

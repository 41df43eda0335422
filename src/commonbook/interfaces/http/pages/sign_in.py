"""Sign-in of a browser: `/sign-in#CODE` posts the code of a link, and gets the cookie of a session for it.

The code is behind the `#`, which browsers send to nobody: neither a log nor a proxy nor another site learns it. The
script takes it out of the history of the browser, and posts it. Without scripts a person can paste it.
"""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from commonbook.errors import NotAllowed
from commonbook.interfaces.http.error_answers import BadShape, Unauthenticated, error_details
from commonbook.interfaces.http.routes import (
    LoggedRoute,
    cookie_name,
    require_csrf_token,
    require_own_page,
    session_cookie,
)
from commonbook.service.serving import begin_session, end_session, find_session
from commonbook.values.ids import format_time

if TYPE_CHECKING:
    from commonbook.interfaces.http.threads import Threads
    from commonbook.service.book import Book
    from commonbook.values.spaces import BrowserSession

SIGN_IN: Final = "/sign-in"
SIGN_OUT: Final = "/sign-out"
START: Final = "/"
CSRF_FIELD: Final = "csrf_token"

_FORM: Final = "application/x-www-form-urlencoded"
_MAX_FIELDS: Final = 20
_SCRIPT: Final = """
function signIn() {
  const code = location.hash.slice(1);
  if (!code) return;
  history.replaceState(null, "", location.pathname);
  const form = document.querySelector("form");
  form.elements.code.value = code;
  form.submit();
}
addEventListener("hashchange", signIn);
signIn();
"""

Page = Callable[[Request], Awaitable[Response]]


class SignInPages:
    """The pages that sign a browser in and out, and the page that tells who is signed in."""

    def __init__(self, book: Book, threads: Threads) -> None:
        """Sign in to this book."""
        self._book, self._threads = book, threads

    def routes(self) -> list[LoggedRoute]:
        """Return the routes of the pages."""
        return [
            LoggedRoute(START, answering_page(self._start), methods=["GET"]),
            LoggedRoute(SIGN_IN, answering_page(self._sign_in_page), methods=["GET"]),
            LoggedRoute(SIGN_IN, answering_page(self._sign_in), methods=["POST"]),
            LoggedRoute(SIGN_OUT, answering_page(self._sign_out), methods=["POST"]),
        ]

    async def _start(self, request: Request) -> Response:
        session = await self._session(request)
        key = session.key
        known_as = joined(key.principal, f" ({key.label})" if key.label else "")
        return page(
            "Signed in",
            element("p", "You are ", element("strong", known_as), f", until {format_time(session.expires)[:16]} UTC."),
            element(
                "form",
                field(type_="hidden", name=CSRF_FIELD, value=session.csrf_token),
                element("button", "Sign out"),
                method="post",
                action=SIGN_OUT,
            ),
        )

    async def _sign_in_page(self, _request: Request) -> Response:
        return _sign_in_form()

    async def _sign_in(self, request: Request) -> Response:
        require_own_page(request)
        code = (await read_form(request)).get("code", "")
        try:
            secret, session = await self._threads.run(partial(begin_session, self._book, code))
        except NotAllowed as error:
            return _sign_in_form(element("p", error.message, ": ", error.fix, role="alert"), status=403)
        answer = RedirectResponse(START, status_code=303)
        _set_cookie(request, answer, secret, expires_in=_seconds_left(session))
        request.scope.setdefault("state", {})["principal"] = session.key.principal
        return answer

    async def _sign_out(self, request: Request) -> Response:
        require_own_page(request)
        session = await self._session(request)
        require_csrf_token(session, (await read_form(request)).get(CSRF_FIELD, ""))
        await self._threads.run(partial(end_session, self._book, session_cookie(request) or ""))
        answer = RedirectResponse(SIGN_IN, status_code=303)
        _set_cookie(request, answer, "", expires_in=0)
        # What the pages have kept in the browser goes with the session.
        answer.headers["Clear-Site-Data"] = '"cache", "storage"'
        return answer

    async def _session(self, request: Request) -> BrowserSession:
        """Return the session of a request; Unauthenticated if the browser is not signed in."""
        try:
            session = await self._threads.run(partial(find_session, self._book, session_cookie(request) or ""))
        except NotAllowed as error:
            raise Unauthenticated(error) from None
        request.scope.setdefault("state", {})["principal"] = session.key.principal
        return session


def answering_page(handler: Page) -> Callable[[Request], Coroutine[Any, Any, Response]]:
    """Return a handler that sends a stranger to the sign-in, and shows any other error as a page."""

    async def handle(request: Request) -> Response:
        try:
            return await handler(request)
        except Unauthenticated:
            return RedirectResponse(SIGN_IN, status_code=303)
        except Exception as error:  # noqa: BLE001 - a fault of the program must be answered, and logged without its text
            details, headers = error_details(error, request)
            paragraphs = [element("p", str(details[name])) for name in ("detail", "fix") if details.get(name)]
            return page("That did not work", *paragraphs, status=details["status"], headers=headers)

    return handle


async def read_form(request: Request) -> dict[str, str]:
    """Return the fields of a form that was posted."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    try:
        if media_type != _FORM:
            raise ValueError(media_type)
        return dict(parse_qsl((await request.body()).decode("ascii"), max_num_fields=_MAX_FIELDS, errors="strict"))
    except ValueError:
        raise BadShape("the body is not a form", fix="use the form of the page", status=400) from None


def _sign_in_form(*before: Html, status: int = 200) -> Response:
    label = element("label", "The code behind the # of the link", for_="code")
    return page(
        "Sign in",
        *before,
        element(
            "p", "Open a link that ", element("code", "commonbook sign-in"), " prints. It works for a minute, once."
        ),
        element(
            "form",
            label,
            field(id="code", name="code", autocomplete="off", required=""),
            element("button", "Sign in"),
            method="post",
            action=SIGN_IN,
        ),
        script=_SCRIPT,
        status=status,
    )


def _seconds_left(session: BrowserSession) -> int:
    return int((session.expires - datetime.now(UTC)).total_seconds())


def _set_cookie(request: Request, answer: Response, secret: str, *, expires_in: int) -> None:
    answer.set_cookie(
        cookie_name(request),
        secret,
        max_age=expires_in,
        path="/",
        secure=request.scope["scheme"] == "https",
        httponly=True,
        samesite="strict",
    )


_STYLE: Final = """
:root { color-scheme: light dark; font: 1rem/1.5 system-ui, sans-serif; }
body { max-width: 40rem; margin: 3rem auto; padding: 0 1rem; }
label, input, button { font: inherit; }
input { width: 100%; box-sizing: border-box; padding: 0.4rem; margin: 0.3rem 0 0.8rem; }
button { padding: 0.4rem 1rem; }
code { overflow-wrap: anywhere; }
"""


class Html(str):
    """A text that is HTML already."""

    __slots__ = ()


def element(name: str, *children: str, **attributes: str) -> Html:
    """Return an element; strings that are no `Html` are escaped. An underscore at the end of a name is left out."""
    shown = "".join(f' {key.rstrip("_")}="{html.escape(value)}"' for key, value in attributes.items())
    return Html(f"<{name}{shown}>{joined(*children)}</{name}>")


def field(**attributes: str) -> Html:
    """Return an input field of a form."""
    shown = "".join(f' {key.rstrip("_")}="{html.escape(value)}"' for key, value in attributes.items())
    return Html(f"<input{shown}>")


def joined(*parts: str) -> Html:
    """Return all parts as one; strings that are no `Html` are escaped."""
    return Html("".join(part if isinstance(part, Html) else html.escape(part) for part in parts))


def page(
    title: str, *body: Html, script: str = "", status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Return a page with this body, and at most one script of ours at its end."""
    text = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)} · Commonbook</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head>'
        f"<body><main>{element('h1', title)}{joined(*body)}</main>"
        f"{f'<script>{script}</script>' if script else ''}</body></html>"
    )
    return HTMLResponse(text, status_code=status, headers={**(headers or {}), **_policy(script)})


def _policy(script: str) -> dict[str, str]:
    scripts = f"script-src {_source(script)}; " if script else ""
    policy = f"default-src 'none'; {scripts}style-src {_source(_STYLE)}; form-action 'self'; "
    return {"Content-Security-Policy": policy + "frame-ancestors 'none'; base-uri 'none'"}


def _source(text: str) -> str:
    """Return the source expression that allows exactly this inline text."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

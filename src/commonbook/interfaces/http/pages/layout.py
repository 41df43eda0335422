"""The layout of every page: HTML whose scripts and styles are known to the browser by their hashes.

The Content-Security-Policy of a page allows its own style and script, and forms that post to this server. Texts are
escaped here; a page gives its parts as `Html`, and any other text as a plain string.
"""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Mapping
from typing import Final

from starlette.responses import HTMLResponse, Response

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

"""Resources: each memory by its id, never by a path."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from commonbook.errors import CommonbookError, NotFound
from commonbook.interfaces.mcp.failures import NoSuchResource, ProtocolError, explained
from commonbook.interfaces.mcp.values import memory_value, outline
from commonbook.model.ids import UUID_PATTERN

if TYPE_CHECKING:
    from commonbook.interfaces.mcp.sources import BookSource

_PREFIX: Final = "commonbook://memory/"
_MIME_TYPE: Final = "text/markdown"
_PAGE: Final = 50

TEMPLATES: Final[tuple[dict[str, Any], ...]] = (
    {
        "uriTemplate": f"{_PREFIX}{{id}}",
        "name": "memory",
        "title": "A memory",
        "description": "One memory by its id, as `recall` names it",
        "mimeType": _MIME_TYPE,
    },
)


def listed(source: BookSource, cursor: object) -> dict[str, Any]:
    """Return a page of the memories that the agent may read, newest first."""
    if cursor is not None and not isinstance(cursor, str):
        raise ProtocolError(-32602, "the cursor is no text")
    try:
        page = source.book(changes=False).list(limit=_PAGE, after=cursor)
    except CommonbookError as error:
        raise ProtocolError(-32602 if cursor else -32603, explained(error)) from None
    resources = [{"uri": _PREFIX + memory.id, "name": memory.title, "mimeType": _MIME_TYPE} for memory in page.items]
    return {"resources": resources, **({"nextCursor": page.next} if page.next else {})}


def read(source: BookSource, uri: object) -> dict[str, Any]:
    """Return the memory of a URI, with its fields above its text."""
    if not isinstance(uri, str):
        raise ProtocolError(-32602, "the uri is no text")
    memory_id = uri.removeprefix(_PREFIX)
    fix = f"a memory is {TEMPLATES[0]['uriTemplate']}"
    if not uri.startswith(_PREFIX) or not re.fullmatch(UUID_PATTERN, memory_id, re.IGNORECASE | re.ASCII):
        raise NoSuchResource(uri, fix=fix)
    try:
        memory = memory_value(source.book(changes=False).get(memory_id))
    except NotFound:
        raise NoSuchResource(uri, fix=fix) from None
    except CommonbookError as error:
        raise ProtocolError(-32603, explained(error)) from None
    body = memory.pop("text")
    return {"contents": [{"uri": uri, "mimeType": _MIME_TYPE, "text": f"---\n{outline(memory)}\n---\n{body}"}]}

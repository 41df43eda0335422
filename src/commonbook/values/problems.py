"""Errors over HTTP: problem details (RFC 9457) of each error of the tree, and the same error made from them again.

    {"type": "version_conflict", "title": "Version conflict", "status": 412, "detail": "memory … is at version 4, …",
     "fix": "read the memory again …", "memory": "…", "expected": 3, "found": 4}

`type` is the name of the error (`CommonbookError.type`), `detail` its message.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from commonbook import errors
from commonbook.errors import CommonbookError

MEDIA_TYPE: Final = "application/problem+json"

REALM: Final = 'Bearer realm="commonbook"'
"""The value of `WWW-Authenticate` in an answer to a request without a valid key."""

BUSY_RETRY_SECONDS: Final = 1
"""The value of `Retry-After` where the server is busy for a reason that ends soon."""

_KEY: Final = re.compile(r"cbk_[A-Za-z0-9_-]{43}")
_HIDDEN_KEY: Final = "cbk_…"
"""A message may quote an argument, such as an id: if it is a key, the client's log would have it."""

_STATUS: Final[tuple[tuple[type[CommonbookError], int], ...]] = (
    (errors.TooLarge, 413),
    (errors.BadInput, 400),
    (errors.NotFound, 404),
    (errors.NotAllowed, 403),
    (errors.Conflict, 409),
    (errors.TooMany, 429),
    (errors.Busy, 503),
    (errors.DiskFull, 507),
    (errors.HomeError, 503),
    (errors.EmbedderFailed, 503),
)
"""The status of each branch of the tree; the first that fits counts."""

_BY_STATUS: Final[Mapping[int, type[CommonbookError]]] = {
    400: errors.BadInput,
    401: errors.NotAllowed,
    403: errors.NotAllowed,
    404: errors.NotFound,
    405: errors.BadInput,
    409: errors.Conflict,
    411: errors.BadInput,
    412: errors.Conflict,
    413: errors.TooLarge,
    414: errors.TooLarge,
    415: errors.BadInput,
    422: errors.BadInput,
    428: errors.BadInput,
    429: errors.TooMany,
    431: errors.TooLarge,
    503: errors.Busy,
    507: errors.DiskFull,
}
"""The error of an answer whose type this program does not know."""

MEMBERS: Final[Mapping[str, type | tuple[type, ...]]] = {
    "item": int,
    "memory": str,
    "expected": int,
    "found": int,
    "retry_after": (int, float),
    "client_ids": list,
}
"""The members of problem details that some errors have as attributes, and their types."""


def status_of(error: CommonbookError, *, with_if_match: bool = False) -> int:
    """Return the status of an error; a version that does not fit the header `If-Match` is a failed precondition."""
    if with_if_match and isinstance(error, errors.VersionConflict):
        return 412
    return next((status for branch, status in _STATUS if isinstance(error, branch)), 500)


def problem(error: CommonbookError, status: int, *, instance: str | None = None) -> dict[str, Any]:
    """Return the problem details of an error; `instance` is the id of the request."""
    found = {name: getattr(error, name, None) for name in MEMBERS}
    members = {
        name: list(value) if isinstance(value, tuple) else value for name, value in found.items() if value is not None
    }
    return {
        "type": error.type,
        "title": error.type.replace("_", " ").capitalize(),
        "status": status,
        "detail": _KEY.sub(_HIDDEN_KEY, error.message),
        "fix": _KEY.sub(_HIDDEN_KEY, error.fix),
        **members,
        **({"instance": instance} if instance else {}),
    }


def headers_of(error: CommonbookError, status: int) -> dict[str, str]:
    """Return the headers that an answer with this error has beside its type."""
    if status == 401:
        return {"WWW-Authenticate": REALM}
    retry_after = getattr(error, "retry_after", None)
    if retry_after is not None:
        return {"Retry-After": str(max(1, math.ceil(retry_after)))}
    return {"Retry-After": str(BUSY_RETRY_SECONDS)} if isinstance(error, errors.Busy) else {}


@cache
def _types() -> Mapping[str, type[CommonbookError]]:
    """Return every class of the tree by the type that its errors have."""
    found: dict[str, type[CommonbookError]] = {}
    branches: list[type[CommonbookError]] = [CommonbookError]
    while branches:
        branch = branches.pop()
        found[_blank(branch, "", "").type] = branch
        branches += branch.__subclasses__()
    return found


def _blank(cls: type[CommonbookError], message: str, fix: str) -> CommonbookError:
    """Return an error with a given message, without the arguments from which its class would build one."""
    error = cls.__new__(cls)
    CommonbookError.__init__(error, message, fix=fix)
    return error


def error_of(details: object, status: int) -> CommonbookError:
    """Return the error that problem details describe; a server error that is none of ours is `ServerFailed`."""
    fields = details if isinstance(details, Mapping) else {}
    cls = _types().get(str(fields.get("type"))) or _BY_STATUS.get(status, errors.ServerFailed)
    message = fields.get("detail")
    fix = fields.get("fix")
    error = _blank(
        cls,
        message if isinstance(message, str) else f"the server answered with status {status}",
        fix if isinstance(fix, str) else "",
    )
    for name, type_ in MEMBERS.items():
        value = fields.get(name)
        if isinstance(value, type_) and not isinstance(value, bool):
            setattr(error, name, tuple(value) if isinstance(value, list) else value)
    if isinstance(error, errors.TooMany) and not hasattr(error, "retry_after"):
        error.retry_after = float(BUSY_RETRY_SECONDS)
    return error

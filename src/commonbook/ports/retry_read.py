"""Retry of a read: it is repeated once when the database server is lost in the middle of an answer."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from commonbook.errors import ServerLost

_Arguments = ParamSpec("_Arguments")
_Answer = TypeVar("_Answer")


def retry_read(verb: Callable[_Arguments, _Answer]) -> Callable[_Arguments, _Answer]:
    """Decorate a function that only reads: it is called once more if the connection to the server is lost."""

    @wraps(verb)
    def repeated(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Answer:
        try:
            return verb(*args, **kwargs)
        except ServerLost:
            return verb(*args, **kwargs)

    return repeated

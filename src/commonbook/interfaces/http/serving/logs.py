"""Logs of the server: one JSON object a line, on standard error, without memory text and keys.

The text of an exception may quote a memory. So an exception is logged by its type and its places in the code, wherever
it ends: in a request, a thread, a task of asyncio or a destructor. A message of another library may quote it too; of
these the log has the place.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from commonbook.interfaces.http.guards.access_log import places_of
from commonbook.model.ids import format_time

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

_LOGGERS: Final = ("commonbook", "uvicorn")
"""The loggers whose messages quote nothing."""

_LOG: Final = logging.getLogger("commonbook.server")


class JsonLines(logging.Formatter):
    """Formats a record as a JSON object; of an exception, its type and places without its message."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        fields = {
            "time": format_time(datetime.fromtimestamp(record.created, UTC)),
            "level": record.levelname.lower(),
            "event": _event(record),
            **getattr(record, "fields", {}),
        }
        if record.exc_info and record.exc_info[1] is not None:
            fields |= {"error": type(record.exc_info[1]).__name__, "places": places_of(record.exc_info[1])}
        return json.dumps(fields, ensure_ascii=True)


def _event(record: logging.LogRecord) -> str:
    if record.name.partition(".")[0] in _LOGGERS:
        return record.getMessage()
    return f"a message of {record.name} at {record.pathname}:{record.lineno}"


def write_to_stderr(*, with_requests: bool) -> None:
    """Write the logs of the server to standard error; each request has a line unless it was switched off."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.getLogger().handlers = [handler]
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
        logger.setLevel(logging.WARNING)
    logging.getLogger("commonbook.access").setLevel(logging.INFO if with_requests else logging.WARNING)
    threading.excepthook = _log_end_of_thread
    sys.unraisablehook = _log_unraisable


def _log_end_of_thread(ended: threading.ExceptHookArgs) -> None:
    _log_fault("a thread ended by a fault", ended.exc_value)


def _log_unraisable(fault: UnraisableHookArgs) -> None:
    _log_fault("a fault was ignored", fault.exc_value)


def _log_fault(event: str, error: BaseException | None) -> None:
    if not isinstance(error, SystemExit):
        _LOG.error(event, exc_info=error)

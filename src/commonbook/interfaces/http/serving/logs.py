"""Logs of the server: one JSON object a line, on standard error."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Final

from commonbook.interfaces.http.guards.access_log import places_of
from commonbook.model.ids import format_time

_LOGGERS: Final = ("commonbook", "uvicorn")


class JsonLines(logging.Formatter):
    """Formats a record as a JSON object; of an exception, its type and places without its message."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        fields = {
            "time": format_time(datetime.fromtimestamp(record.created, UTC)),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info and record.exc_info[1] is not None:
            fields |= {"error": type(record.exc_info[1]).__name__, "places": places_of(record.exc_info[1])}
        return json.dumps(fields, ensure_ascii=True)


def write_to_stderr(*, with_requests: bool) -> None:
    """Write the logs of the server to standard error; each request has a line unless it was switched off."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
        logger.setLevel(logging.WARNING)
    logging.getLogger("commonbook.access").setLevel(logging.INFO if with_requests else logging.WARNING)

"""Failures of tools, in words that a model can act on: what is wrong, how to correct it, and near ids."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from typing import Any

from commonbook.errors import CommonbookError


class ProtocolError(Exception):
    """A request that the protocol itself refuses, by one of its error codes."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        """Keep the code of JSON-RPC, the message and further data."""
        super().__init__(message)
        self.code, self.message, self.data = code, message, data


class NoSuchResource(ProtocolError):
    """A URI of no readable memory; its code depends on the revision of the protocol."""

    def __init__(self, uri: str, *, fix: str) -> None:
        """Name the URI."""
        super().__init__(-32002, f"there is no resource {uri[:200]!r}; {fix}", {"uri": uri})


def failed(error: Exception, *, near: Sequence[str] = ()) -> dict[str, Any]:
    """Return the result of a tool that failed with any exception.

    Any error but a CommonbookError is a fault of the program: its place goes to standard error. Its text goes nowhere,
    since it may be the text of a memory.
    """
    return {"content": [{"type": "text", "text": explained(error, near=near)}], "isError": True}


def explained(error: Exception, *, near: Sequence[str] = ()) -> str:
    """Return what is wrong and how to correct it, without secrets."""
    from commonbook.core.text.masking import mask

    if not isinstance(error, CommonbookError):
        _report(error)
        return "the tool failed, by a fault of the program; the log of the MCP server has its place"
    fix = f"the nearest ids are: {', '.join(near)}" if near else error.fix
    # A message may quote what a model gave, and ends up in transcripts.
    return mask(f"{error.type}: {error.message}" + (f"\nfix: {fix}" if fix else "")).text


def _report(error: Exception) -> None:
    frames = traceback.extract_tb(error.__traceback__)
    places = " < ".join(f"{frame.filename}:{frame.lineno}" for frame in reversed(frames))
    print(f"commonbook: {type(error).__name__} at {places}", file=sys.stderr, flush=True)

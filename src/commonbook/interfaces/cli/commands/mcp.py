"""`mcp`: the book for an agent, over MCP on standard input and output."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, BinaryIO, NoReturn

from commonbook.errors import BadInput
from commonbook.interfaces.mcp.sources import LocalBook, ServerBook
from commonbook.interfaces.mcp.stdio import StdioServer

if TYPE_CHECKING:
    from commonbook.interfaces.cli.call import Call


def run_mcp(call: Call) -> NoReturn:
    """Serve until standard input closes, and end the process then, also in the middle of a call.

    Every answered write is durable, and an unanswered one is as after a crash.
    """
    if call.args.url is not None and call.args.actor is not None:
        raise BadInput("--as is for the owner of a home", fix="use an API key of that principal")
    source = (
        LocalBook(call.settings, call.args.actor)
        if call.args.url is None
        else ServerBook(call.args.url, call.settings.space)
    )
    try:
        StdioServer(source, *_claim_streams()).serve()
    except (BrokenPipeError, KeyboardInterrupt):
        # The client went away.
        pass
    finally:
        sys.stderr.flush()
        os._exit(0)


def _claim_streams() -> tuple[BinaryIO, BinaryIO]:
    """Return standard input and output for the protocol alone.

    From now on, whatever else reads standard input finds its end, and whatever else prints does so on standard error.
    """
    received, sent = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    return os.fdopen(received, "rb"), os.fdopen(sent, "wb")

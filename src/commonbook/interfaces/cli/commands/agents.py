"""Commands that agents start: `mcp`, the book over MCP, and `hook`, which handles one event.

A hook ends with 0, within its deadline: another code would refuse the prompt.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, BinaryIO, Final, NoReturn

from commonbook.core.settings.project_files import capture_allowed
from commonbook.errors import BadInput, NoHome, TooLarge
from commonbook.interfaces.cli.commands import command
from commonbook.interfaces.mcp.sources import LocalBook, ServerBook
from commonbook.values.spaces import LOCAL_OWNER

if TYPE_CHECKING:
    from commonbook.interfaces.agents.hooks.events import Event
    from commonbook.interfaces.agents.hooks.folder import HookFolder
    from commonbook.interfaces.agents.hooks.handler import Handler
    from commonbook.interfaces.cli.call import Call
    from commonbook.interfaces.cli.parser import Parser
    from commonbook.verbs import Verbs

_SECONDS: Final = 2.0
_END_SECONDS: Final = 1.0
"""Agents give the end of a session one second."""

_CATCH_UP_SECONDS: Final = 0.8
_STDERR: Final = 2


# --- mcp


@command("mcp", book="none")
def _mcp(call: Call) -> NoReturn:
    """Serve until standard input closes, and end the process then, also in the middle of a call.

    Every answered write is durable, and an unanswered one is as after a crash.
    """
    from commonbook.interfaces.mcp.stdio import StdioServer

    source = (
        LocalBook(call.settings, call.args.actor) if call.url is None else ServerBook(call.url, call.settings.space)
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

    From now on, other code that reads standard input finds its end, and other code prints to standard error.
    """
    received, sent = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    return os.fdopen(received, "rb"), os.fdopen(sent, "wb")


# --- hook


def _hook_arguments(to: Parser) -> None:
    to.add_argument("client", metavar="CLIENT", help="the agent whose event is on standard input")


@command("hook", _hook_arguments, book="none")
def _hook(call: Call) -> NoReturn:
    """Handle the event on standard input, and print what is added to the prompt, if anything is."""
    from commonbook.interfaces.agents.hooks.events import MAX_EVENT_BYTES

    try:
        answer = answer_event(call, sys.stdin.buffer.read(MAX_EVENT_BYTES + 1))
        if answer:
            sys.stdout.write(answer)
            sys.stdout.flush()
    except Exception as error:  # noqa: BLE001 - nothing may disturb the agent
        # An agent may have closed its end of either, and nothing but the answer may be on standard output.
        with suppress(OSError):
            os.write(_STDERR, f"commonbook: {error}\n".encode(errors="backslashreplace"))
    finally:
        # A thread that is still at work must not keep the agent waiting.
        os._exit(0)


def answer_event(call: Call, data: bytes) -> str:
    """Handle an event within the deadline, and return the output of the hook."""
    from commonbook.interfaces.agents.hooks.events import CLIENTS_WITH_HOOKS, MAX_EVENT_BYTES, parse_event
    from commonbook.interfaces.agents.hooks.handler import Handler

    client = call.args.client
    if client not in CLIENTS_WITH_HOOKS:
        raise BadInput(f"{client!r} has no hooks that Commonbook knows", fix=f"name one of: {CLIENTS_WITH_HOOKS}")
    is_too_large = len(data) > MAX_EVENT_BYTES
    event = None if is_too_large else parse_event(data)
    if (event is None and not is_too_large) or not capture_allowed(call.settings):
        return ""
    sources = _Sources(call)
    handler = Handler(
        client,
        sources.folder(),
        sources.book,
        catch_up=sources.catch_up,
        cwd=call.settings.cwd,
        person=LOCAL_OWNER if call.url is None else None,
    )
    if event is None:
        handler.fail(None, TooLarge(f"an event of more than {MAX_EVENT_BYTES >> 20} MiB was left out"))
        return ""
    return _answer_within_deadline(event, handler, sources)


def _answer_within_deadline(event: Event, handler: Handler, sources: _Sources) -> str:
    # Whatever happens next, the message is not lost.
    handler.spool(event)
    found: list[str] = []

    def handle() -> None:
        try:
            found.append(handler.handle(event))
            # After the context, which a busy book must not keep from the prompt.
            handler.record_uses()
        except Exception as error:  # noqa: BLE001 - it is reported, and the agent continues
            handler.fail(event, error)
        finally:
            sources.close()

    thread = threading.Thread(target=handle, daemon=True)
    thread.start()
    thread.join(_END_SECONDS if event.kind == "end" else _SECONDS)
    if thread.is_alive() and not found:
        handler.cut_off(event)
    return _output(event, found[0]) if found and found[0] else ""


def _output(event: Event, context: str) -> str:
    """Return the one form that all agents take: no other key, and the name of the event as it came."""
    return json.dumps({"hookSpecificOutput": {"hookEventName": event.name, "additionalContext": context}})


class _Sources:
    """The books that an event needs: one of a server, or one of this machine for each folder of an agent."""

    def __init__(self, call: Call) -> None:
        self._settings, self._url = call.settings, call.url
        self._client: str = call.args.client
        self._principal: str = call.args.actor or f"agent:{self._client}"
        self._opened: dict[str, LocalBook | ServerBook] = {}

    def folder(self) -> HookFolder:
        """Return the folder of the hooks: in the home, or for a server beside its outbox."""
        from commonbook.interfaces.agents.hooks.folder import HookFolder

        if self._url is not None:
            from commonbook.core.settings.remote import RemoteSettings

            return HookFolder(RemoteSettings.load().outboxes, self._client)
        hidden = os.path.join(self._settings.home, ".commonbook")
        if not os.path.isdir(hidden):
            raise NoHome(f"there is no home at {self._settings.home}", fix="`commonbook init` makes one")
        return HookFolder(hidden, self._client)

    def book(self, *, cwd: str, space: str | None, changes: bool) -> Verbs:
        """Return the book as the agent has it in a folder; `space` replaces the space of the folder."""
        if self._url is not None:
            remote = self._opened.setdefault("", ServerBook(self._url, self._settings.space))
            return remote.book(changes=changes)
        local = self._opened.setdefault(cwd, LocalBook(self._settings._replace(cwd=cwd), self._principal))
        return local.book(changes=changes, space=space)

    def catch_up(self) -> None:
        """Write changes that wait for the index of the open books into it, for a moment."""
        for source in self._opened.values():
            source.work(seconds=_CATCH_UP_SECONDS, index=True)

    def close(self) -> None:
        """Close all books."""
        for source in self._opened.values():
            source.close()

"""MCP on standard input and output: one JSON-RPC message a line, in every revision of the protocol.

This loop is written by hand, since each window of an agent pays for a process: the SDK costs a second of processor time
and 55 MB before its first answer. Revisions up to 2025-11-25 begin with `initialize`. Since 2026-07-28 there is no
handshake, and each request carries its revision in `_meta`; so each request is answered in the way of its own revision.

The reader answers what needs no book. Calls that need it run in one thread, in the order in which they came, so that a
recall finds what the call before it remembered, and the reader sees the end of the input in the middle of a call.
"""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple, Protocol

from commonbook.interfaces.mcp.failures import NoSuchResource, ProtocolError
from commonbook.interfaces.mcp.methods import CACHED_SECONDS, CAPABILITIES, INSTRUCTIONS, METHODS, SERVER, WITH_BOOK

if TYPE_CHECKING:
    from commonbook.interfaces.mcp.methods import Method
    from commonbook.interfaces.mcp.sources import BookSource

HANDSHAKE_VERSIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN_VERSIONS: Final = ("2026-07-28",)

GRACE_SECONDS: Final = 0.7
"""How long calls that were received may run after the end of the input."""

_MAX_LINE_BYTES: Final = 32 << 20
_META: Final = "io.modelcontextprotocol/"
_PARSE_ERROR: Final = -32700
_INVALID_REQUEST: Final = -32600
_NO_METHOD: Final = -32601
_INVALID_PARAMETERS: Final = -32602
_INTERNAL_ERROR: Final = -32603
_UNSUPPORTED_VERSION: Final = -32022


class WorkingSource(Protocol):
    """A source of the book that may run due jobs between calls."""

    def book(self, *, changes: bool) -> Any:  # noqa: ANN401 - a book
        """Return the book as the agent has it."""
        ...

    def work(self) -> None:
        """Run due jobs for a moment."""
        ...


class _Request(NamedTuple):
    id: str | int | float
    method: str
    parameters: Mapping[str, Any]

    @property
    def is_modern(self) -> bool:
        """Whether it carries its revision itself; `initialize` belongs to the revisions that do not."""
        meta = self.parameters.get("_meta")
        return self.method != "initialize" and isinstance(meta, Mapping) and f"{_META}protocolVersion" in meta


class StdioServer:
    """Serves one client, until its end of the input closes."""

    def __init__(self, source: WorkingSource, received: BinaryIO, sent: BinaryIO) -> None:
        """Serve the book of a source; the book is opened by the first call that needs it."""
        self._source, self._received, self._sent = source, received, sent
        self._writing = threading.Lock()
        self._calls: queue.SimpleQueue[_Request] = queue.SimpleQueue()
        self._state = threading.Condition()
        self._waiting: list[str | int | float] = []
        """The ids of the calls that are not answered yet."""
        self._cancelled: set[str | int | float] = set()
        self._worker: threading.Thread | None = None

    def serve(self) -> None:
        """Answer until the input ends; then give calls that were received a moment, and return."""
        while line := self._received.readline(_MAX_LINE_BYTES):
            if not line.endswith(b"\n") and len(line) >= _MAX_LINE_BYTES:
                self._skip_line()
                self._refuse(
                    None, ProtocolError(_INVALID_REQUEST, f"a message of more than {_MAX_LINE_BYTES >> 20} MiB")
                )
            elif line.strip():
                self._receive(line)
        with self._state:
            self._state.wait_for(lambda: not self._waiting, timeout=GRACE_SECONDS)

    def _skip_line(self) -> None:
        while (rest := self._received.readline(_MAX_LINE_BYTES)) and not rest.endswith(b"\n"):
            continue

    def _receive(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            self._refuse(None, ProtocolError(_PARSE_ERROR, "the line is not JSON"))
            return
        try:
            request = _request(message)
        except ProtocolError as error:
            self._refuse(_id_of(message), error)
            return
        if request is None:
            self._notice(message)
        elif request.method in WITH_BOOK:
            self._queue(request)
        else:
            self._answer(request)

    def _notice(self, message: Mapping[str, Any]) -> None:
        """Take a notification: only a cancellation says something."""
        parameters = message.get("params")
        if message.get("method") == "notifications/cancelled" and isinstance(parameters, Mapping):
            cancelled = parameters.get("requestId")
            with self._state:
                if isinstance(cancelled, (str, int, float)) and cancelled in self._waiting:
                    self._cancelled.add(cancelled)

    # --- calls

    def _queue(self, request: _Request) -> None:
        with self._state:
            self._waiting.append(request.id)
        self._calls.put(request)
        if self._worker is None:
            self._worker = threading.Thread(target=self._work, name="commonbook-mcp", daemon=True)
            self._worker.start()

    def _work(self) -> None:
        while True:
            request = self._calls.get()
            if request.id not in self._cancelled:
                self._answer(request)
            with self._state:
                self._waiting.remove(request.id)
                self._cancelled.discard(request.id)
                self._state.notify_all()
            if self._calls.empty():
                self._source.work()

    def _answer(self, request: _Request) -> None:
        try:
            result = _result(self._source, request)
        except ProtocolError as error:
            self._refuse(request.id, _in_era(error, request))
        except Exception as error:  # noqa: BLE001 - a fault of the program must be answered, and not end the server
            from commonbook.interfaces.mcp.failures import explained

            self._refuse(request.id, ProtocolError(_INTERNAL_ERROR, explained(error)))
        else:
            self._send({"jsonrpc": "2.0", "id": request.id, "result": result}, of=request.id)

    def _refuse(self, request_id: str | float | None, error: ProtocolError) -> None:
        details = {"code": error.code, "message": error.message}
        if error.data is not None:
            details["data"] = error.data
        self._send({"jsonrpc": "2.0", "id": request_id, "error": details}, of=request_id)

    def _send(self, message: Mapping[str, Any], *, of: object) -> None:
        # JSON has an escape for half a character, which UTF-8 has not.
        line = json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode(errors="backslashreplace")
        with self._writing:
            if of not in self._cancelled:
                self._sent.write(line + b"\n")
                self._sent.flush()


def _id_of(message: object) -> str | float | None:
    found = message.get("id") if isinstance(message, dict) else None
    return found if isinstance(found, (str, int, float)) and not isinstance(found, bool) else None


def _request(message: object) -> _Request | None:
    """Return the request in a message, or None if it is a notification or an answer; ProtocolError if it is neither."""
    if not isinstance(message, dict):
        raise ProtocolError(_INVALID_REQUEST, "a message is one object; send several as several lines")
    if message.get("jsonrpc") != "2.0" or not isinstance(message.get("method", ""), str):
        raise ProtocolError(_INVALID_REQUEST, "the message is not JSON-RPC 2.0")
    if "method" not in message or "id" not in message:
        return None
    request_id = _id_of(message)
    if request_id is None:
        raise ProtocolError(_INVALID_REQUEST, "the id of a request is a text or a number")
    parameters = message.get("params", {})
    if not isinstance(parameters, dict):
        raise ProtocolError(_INVALID_PARAMETERS, "params is not an object")
    return _Request(request_id, message["method"], parameters)


# --- results in the form of the request's revision


def _result(source: BookSource, request: _Request) -> dict[str, Any]:
    if request.is_modern:
        return _modern_result(source, request)
    if request.method == "initialize":
        return _initialize(request.parameters)
    if request.method == "ping":
        return {}
    return _method(request)(source, request.parameters)


def _initialize(parameters: Mapping[str, Any]) -> dict[str, Any]:
    requested = parameters.get("protocolVersion")
    return {
        "protocolVersion": requested if requested in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[-1],
        "capabilities": dict(CAPABILITIES),
        "serverInfo": dict(SERVER),
        "instructions": INSTRUCTIONS,
    }


def _modern_result(source: BookSource, request: _Request) -> dict[str, Any]:
    _require_version(request.parameters["_meta"])
    if request.method == "server/discover":
        result: dict[str, Any] = {
            "supportedVersions": list(MODERN_VERSIONS),
            "capabilities": dict(CAPABILITIES),
            "instructions": INSTRUCTIONS,
        }
    else:
        result = _method(request)(source, request.parameters)
    seconds = CACHED_SECONDS.get(request.method)
    if seconds is not None:
        result |= {"ttlMs": seconds * 1000, "cacheScope": "public" if seconds else "private"}
    return {**result, "resultType": "complete", "_meta": {f"{_META}serverInfo": dict(SERVER)}}


def _require_version(meta: Mapping[str, Any]) -> None:
    version = meta[f"{_META}protocolVersion"]
    if version not in MODERN_VERSIONS:
        data = {"supported": list(MODERN_VERSIONS), "requested": str(version)[:100]}
        raise ProtocolError(_UNSUPPORTED_VERSION, "this revision of the protocol is not supported", data)
    if not isinstance(meta.get(f"{_META}clientCapabilities"), Mapping):
        raise ProtocolError(_INVALID_PARAMETERS, f"_meta has no {_META}clientCapabilities")


def _method(request: _Request) -> Method:
    found = METHODS.get(request.method)
    if found is None:
        raise ProtocolError(_NO_METHOD, f"there is no method {request.method[:100]!r}")
    return found


def _in_era(error: ProtocolError, request: _Request) -> ProtocolError:
    """Return an error with the code that the revision of the request has for it."""
    if isinstance(error, NoSuchResource) and request.is_modern:
        return ProtocolError(_INVALID_PARAMETERS, error.message, error.data)
    return error

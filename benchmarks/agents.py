"""Measures processes for agents: MCP on stdio beside an empty server of the SDK, and hooks beside an interpreter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any, Final, Self

import psutil

import commonbook
from benchmarks.bench import Bench
from benchmarks.figures import AT_MOST, Bar, Figure, in_turns
from benchmarks.starting import command

_MEGABYTE: Final = 1e6
_EMPTY_SERVER: Final = """
from mcp.server import MCPServer
MCPServer("empty", version="1", log_level="WARNING").run()
"""
_INITIALIZE: Final = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "benchmark", "version": "1"},
}
_PROCESSES: Final = (1, 10)
_IDLE_SECONDS: Final = 5.0
_CHARS_A_TOKEN: Final = 4
_MAX_LIST_TOKENS: Final = 2500
_PROMPT: Final = {"session_id": "s", "hook_event_name": "UserPromptSubmit", "prompt": "Where do the tulips grow?"}
_FIRST_ANSWER_BAR: Final = Bar(AT_MOST, 0.4)
_MEMORY_BAR: Final = Bar(AT_MOST, 0.45)
_LIST_BAR: Final = Bar(AT_MOST, 1.0)


class _Server:
    """A server process on stdio that was initialized."""

    def __init__(self, words: list[str]) -> None:
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._watched = psutil.Process(self._process.pid)
        self.request("initialize", **_INITIALIZE)
        used = self._watched.cpu_times()
        self.first_answer_ms = 1000 * (used.user + used.system)

    def request(self, method: str, **parameters: object) -> dict[str, Any]:
        """Send a request, and return the result of its answer."""
        assert self._process.stdin
        assert self._process.stdout
        line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": parameters})
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()
        result: dict[str, Any] = json.loads(self._process.stdout.readline())["result"]
        return result

    def memory(self) -> float:
        """Return the memory that no other process shares, in MB."""
        return float(self._watched.memory_full_info().uss / _MEGABYTE)

    def end(self) -> float:
        """Close the input, and return the milliseconds until the process has ended."""
        assert self._process.stdin
        assert self._process.stdout
        begun = time.perf_counter()
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()
        return 1000 * (time.perf_counter() - begun)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.returncode is None:
            self.end()


def mcp_server(bench: Bench) -> Iterator[Figure]:
    """Measure the price of a process on stdio: its first answer, its memory, and its end."""
    home = bench.indexed(bench.scale.small)
    ours = [*command(), "mcp", "--as", "user:local", "--home", home]
    reference = [sys.executable, "-c", _EMPTY_SERVER]
    rounds = max(1, bench.scale.start_rounds // 3)
    for what, unit, measure, bar in (
        ("MCP: processor time to the first answer", "ms", _first_answer, _FIRST_ANSWER_BAR),
        ("MCP: from the end of the input to the exit", "ms", _exit_time, None),
    ):
        figures = in_turns(rounds, partial(measure, ours), partial(measure, reference))
        yield _figure(what, 1, unit, *figures, bar)
    tools, tokens = _tool_list(ours)
    limit = (float(_MAX_LIST_TOKENS),)
    yield _figure("MCP: list of n tools, beside its limit", tools, "tokens", (tokens,), limit, _LIST_BAR)
    for n in _PROCESSES:
        empty = (_memory(reference, n),)
        yield _figure("MCP: memory of n idle processes", n, "MB", (_memory(ours, n),), empty, _MEMORY_BAR)
        after = _memory(ours, n, lambda server: server.request("tools/call", name="recall", arguments={"query": "tea"}))
        yield _figure("MCP: memory of n processes after a recall", n, "MB", (after,), empty)


def _figure(
    what: str, n: int, unit: str, ours: tuple[float, ...], reference: tuple[float, ...], bar: Bar | None = None
) -> Figure:
    return Figure(
        benchmark="mcp_server", what=what, n=n, unit=unit, ours_rounds=ours, reference_rounds=reference, bar=bar
    )


def _first_answer(words: list[str]) -> float:
    with _Server(words) as server:
        return server.first_answer_ms


def _exit_time(words: list[str]) -> float:
    with _Server(words) as server:
        server.request("tools/list")
        return server.end()


def _tool_list(words: list[str]) -> tuple[int, float]:
    """Return the number of tools that a server lists, and the tokens that a model pays for the list."""
    with _Server(words) as server:
        tools = server.request("tools/list")["tools"]
    return len(tools), len(json.dumps(tools, separators=(",", ":"))) / _CHARS_A_TOKEN


def _memory(words: list[str], n: int, use: Callable[[_Server], object] = lambda _server: None) -> float:
    """Return the memory of n processes that have listed their tools, were idle for a while, and were used."""
    with ExitStack() as running:
        servers = [running.enter_context(_Server(words)) for _ in range(n)]
        for server in servers:
            server.request("tools/list")
        time.sleep(_IDLE_SECONDS)
        for server in servers:
            use(server)
        return sum(server.memory() for server in servers)


def hooks(bench: Bench) -> Iterator[Figure]:
    """Measure the latency that a hook adds to each event, beside an interpreter that imports sqlite3."""
    home = bench.home_to_write(bench.scale.small)
    with commonbook.open(home) as book:
        for space in ("personal", "projects"):
            if space not in {known.name for known in book.spaces()}:
                book.create_space(space)
            book.grant("agent:claude-code", space, "writer")
    for name in ("SessionStart", "UserPromptSubmit", "Stop", "PreCompact", "SessionEnd"):
        ours, reference = in_turns(
            max(1, bench.scale.start_rounds // 3),
            partial(_hook, home, {**_PROMPT, "hook_event_name": name, "last_assistant_message": "By the wall."}),
            partial(_run, [sys.executable, "-c", "import sqlite3"], b""),
        )
        yield Figure(
            benchmark="hooks",
            what=f"hook at {name}, home of n memories",
            n=bench.scale.small,
            unit="ms",
            ours_rounds=ours,
            reference_rounds=reference,
        )


def _hook(home: str, event: dict[str, str]) -> float:
    event = {**event, "prompt_id": os.urandom(8).hex()}
    return _run([*command(), "hook", "claude-code", "--home", home], json.dumps(event).encode())


def _run(words: list[str], data: bytes) -> float:
    begun = time.perf_counter()
    subprocess.run(words, input=data, stdout=subprocess.DEVNULL, check=True)
    return 1000 * (time.perf_counter() - begun)

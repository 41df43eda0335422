"""Clients of the MCP server: the SDK's own over stdio and HTTP, and a plain one that sends single lines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Self

import httpx2
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from tests.support.http_servers import ROOT

OWNER = ("--as", "user:local")


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "commonbook", "mcp", *arguments]


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT / "src"), **(more or {})}


@asynccontextmanager
async def over_stdio(*arguments: str, mode: str = "auto", env: Mapping[str, str] | None = None) -> AsyncIterator[Any]:
    """Start a server for the book of the environment, with the SDK's client."""
    program, *rest = command(*arguments)
    server = StdioServerParameters(command=program, args=rest, env=environment(env), cwd=os.getcwd())
    async with Client(stdio_client(server), mode=mode) as client:
        yield client


@asynccontextmanager
async def over_http(url: str, key: str, *, mode: str = "auto") -> AsyncIterator[Any]:
    """Connect the SDK's client to `/mcp` of a server."""
    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {key}"}, timeout=60) as http,
        Client(streamable_http_client(f"{url}/mcp", http_client=http), mode=mode) as client,
    ):
        yield client


class PlainClient:
    """A server process and its pipes, without an SDK: one request, one line."""

    def __init__(self, *arguments: str, env: Mapping[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            command(*arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(env),
        )
        self._last_id = 0

    def send(self, method: str, **parameters: Any) -> int:
        """Send a request, and return its id."""
        self._last_id += 1
        self.send_line(json.dumps({"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": parameters}))
        return self._last_id

    def send_line(self, line: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def receive(self) -> Any:
        assert self.process.stdout
        return json.loads(self.process.stdout.readline())

    def request(self, method: str, **parameters: Any) -> Any:
        """Send a request and return its answer."""
        self.send(method, **parameters)
        return self.receive()

    def initialize(self, version: str = "2025-06-18") -> Any:
        return self.request(
            "initialize", protocolVersion=version, capabilities={}, clientInfo={"name": "plain", "version": "1"}
        )["result"]

    def call(self, tool: str, **arguments: Any) -> Any:
        """Call a tool and return its result."""
        return self.request("tools/call", name=tool, arguments=arguments)["result"]

    def close_input(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(60)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert pipe
            with suppress(BrokenPipeError):
                pipe.close()

"""The public conformance suite of MCP and the inspector, against a server and against a process on stdio."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import commonbook
from tests.support.http_servers import ServerProcess
from tests.support.mcp_clients import environment
from tests_clients.agents import NODE, PROGRAMS
from tests_clients.key_proxy import KeyProxy

pytestmark = pytest.mark.promise("mcp.revisions")

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("conformance") / "home"
    with commonbook.open(folder, create=True) as book:
        book.remember("Tea is at four")
    return folder


@pytest.fixture(scope="module")
def url(home: Path) -> Iterator[str]:
    """The address of a server that takes requests without a key."""
    with commonbook.open(home) as book:
        key = book.create_key("user:local").secret
    server = ServerProcess(COMMONBOOK_HOME=str(home))
    proxy = KeyProxy(server.port, key)
    yield f"http://127.0.0.1:{proxy.port}/mcp"
    proxy.close()
    server.close()


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_the_conformance_suite(url, revision):
    baseline = HERE / f"conformance-{revision}.yml"
    suite = PROGRAMS / ".bin" / "conformance"
    command = [str(NODE), str(suite), "server", "--url", url, "--spec-version", revision, "--suite", "all"]
    command += ["--expected-failures", str(baseline)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]


@pytest.mark.parametrize("era", ["legacy", "auto"])
def test_the_inspector_finds_the_schemas_portable(home, era):
    inspector = PROGRAMS / ".bin" / "mcp-inspector"
    command = [str(NODE), str(inspector), "--cli", sys.executable, "-m", "commonbook", "mcp", "--as", "user:local"]
    command += ["--home", str(home), "--method", "tools/list", "--strict", "--protocol-era", era]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment(), check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "recall" in done.stdout

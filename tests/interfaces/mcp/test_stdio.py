"""MCP on stdio: real processes, driven by the SDK's client and by plain lines of every revision."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import psutil
import pytest

import commonbook
from commonbook.engines.process import FairLock
from tests.support.best_of import seconds, takes_less_than
from tests.support.http_servers import ROOT
from tests.support.mcp_clients import OWNER, PlainClient, over_stdio

MAX_EXIT_SECONDS = 1.0
MAX_FIRST_ANSWER_CPU_SECONDS = 0.4
MAX_IDLE_MB = 25
MAX_MB_AFTER_RECALL = 45
MODES = ("auto", "legacy")


@pytest.mark.promise("mcp.revisions")
@pytest.mark.parametrize("mode", MODES)
def test_the_sdk_finds_tools_resources_and_the_prompt(book, mode):
    memory = book.remember("Tea is at four", space="personal").id

    async def use() -> None:
        async with over_stdio(*OWNER, mode=mode) as client:
            assert client.protocol_version == ("2026-07-28" if mode == "auto" else "2025-11-25")
            assert "long-term memory" in str(client.instructions)
            assert client.server_info.name == "commonbook"
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert len(tools) == 14
            assert tools["recall"].annotations
            assert tools["recall"].annotations.read_only_hint is True
            result = await client.call_tool("recall", {"query": "when is tea?"})
            assert result.structured_content
            assert result.structured_content["hits"][0]["id"] == memory
            assert memory in result.content[0].text
            template = (await client.list_resource_templates()).resource_templates[0].uri_template
            uri = template.replace("{id}", memory)
            assert uri in [str(resource.uri) for resource in (await client.list_resources()).resources]
            assert "Tea is at four" in (await client.read_resource(uri)).contents[0].text
            assert [prompt.name for prompt in (await client.list_prompts()).prompts] == ["start"]
            prompt = await client.get_prompt("start", {"topic": "tea"})
            assert "Tea is at four" in prompt.messages[0].content.text

    asyncio.run(use())


@pytest.mark.promise("mcp.text", "hostile.tools")
@pytest.mark.parametrize("mode", MODES)
def test_the_sdk_gets_errors_of_tools_and_of_the_protocol(book, mode):
    from mcp import MCPError

    async def use() -> None:
        async with over_stdio(*OWNER, mode=mode) as client:
            result = await client.call_tool("recall", {"qery": "x"})
            assert result.is_error
            assert "'query'" in result.content[0].text
            result = await client.call_tool("recal", {})
            assert result.is_error
            assert "did you mean 'recall'" in result.content[0].text
            missing = "commonbook://memory/01a19a5c-7d1e-7c3a-9f61-0b2f4c6e8a10"
            for uri in (missing, "commonbook://memory/../state.db", "file:///etc/passwd"):
                with pytest.raises(MCPError) as refused:
                    await client.read_resource(uri)
                assert refused.value.code == (-32602 if mode == "auto" else -32002)
            with pytest.raises(MCPError, match="topic"):
                await client.get_prompt("start", {"subject": "tea"})

    asyncio.run(use())


@pytest.mark.promise("mcp.revisions")
@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
def test_every_older_revision_is_spoken(book, home, version):
    with PlainClient(*OWNER, "--home", str(book.home)) as client:
        found = client.initialize(version)
        assert found["protocolVersion"] == version
        client.send_line('{"jsonrpc":"2.0","method":"notifications/initialized"}')
        assert client.request("ping")["result"] == {}
        assert "resultType" not in client.request("tools/list")["result"]
        assert client.call("remember", text="Tea is at four")["isError"] is False


def test_an_unknown_revision_gets_the_newest_that_has_a_handshake(book, home):
    with PlainClient(*OWNER) as client:
        assert client.initialize("2099-01-01")["protocolVersion"] == "2025-11-25"
        prefix = "io.modelcontextprotocol"
        meta = {f"{prefix}/protocolVersion": "2099-01-01", f"{prefix}/clientCapabilities": {}}
        error = client.request("server/discover", _meta=meta)["error"]
        assert error["code"] == -32022
        assert error["data"]["supported"] == ["2026-07-28"]
        assert (
            client.request("tools/list", _meta={f"{prefix}/protocolVersion": "2026-07-28"})["error"]["code"] == -32602
        )


def test_lines_that_are_no_requests_are_refused_and_the_server_goes_on(book, home):
    with PlainClient(*OWNER) as client:
        for line, code in (
            ("{", -32700),
            ("[" * 100_000, -32700),
            ("[]", -32600),
            ('"x"', -32600),
            ('{"id":1,"method":"ping"}', -32600),
            ('{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600),
            ('{"jsonrpc":"2.0","id":1,"method":7}', -32600),
            ('{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}', -32602),
            ('{"jsonrpc":"2.0","id":1,"method":"no/such"}', -32601),
            ('{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"name":"x"}}', -32602),
            ('{"jsonrpc":"2.0","id":1,"method":"resources/list","params":{"cursor":"x"}}', -32602),
        ):
            client.send_line(line)
            assert client.receive()["error"]["code"] == code, line[:100]
        client.send_line("")
        client.send_line('{"jsonrpc":"2.0","method":"notifications/unknown"}')
        client.send_line('{"jsonrpc":"2.0","id":5,"result":{}}')
        result = client.call("remember", text="half a character: \ud800")
        assert result["isError"]
        assert client.request("ping")["result"] == {}


@pytest.mark.promise("mcp.order")
def test_calls_run_in_the_order_in_which_they_came(book):
    with PlainClient(*OWNER) as client:
        client.send("tools/call", name="remember", arguments={"text": "Tea is at four"})
        client.send("tools/call", name="recall", arguments={"query": "tea"})
        stored, found = client.receive(), client.receive()
        assert found["result"]["structuredContent"]["hits"][0]["id"] == stored["result"]["structuredContent"]["id"]


def test_a_cancelled_call_is_not_answered(book, home):
    with PlainClient(*OWNER) as client:
        first = client.send("tools/call", name="recall", arguments={"query": "x"})
        second = client.send("tools/call", name="remember", arguments={"text": "never stored"})
        client.send_line(
            json.dumps({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": second}})
        )
        third = client.send("tools/call", name="recall", arguments={"query": "stored"})
        assert [client.receive()["id"], (last := client.receive())["id"]] == [first, third]
        assert last["result"]["structuredContent"]["hits"] == []


@pytest.mark.promise("mcp.order")
def test_hand_edits_between_two_calls_are_seen(book, home):
    with PlainClient(*OWNER) as client:
        memory = client.call("remember", text="Tea is at four")["structuredContent"]["id"]
        path = home / book.get(memory).path
        path.write_text(path.read_text(encoding="utf-8").replace("four", "five"), encoding="utf-8")
        assert "five" in client.call("recall", query="tea")["content"][0]["text"]


def test_nothing_but_the_protocol_is_on_standard_output(book, home, tmp_path):
    noise = """
from commonbook.service.book import Book
recall = Book.recall
def noisy(*arguments, **options):
    print("noise")
    assert open(0, closefd=False).read() == ""
    return recall(*arguments, **options)
Book.recall = noisy
"""
    (tmp_path / "sitecustomize.py").write_text(noise)
    with PlainClient(*OWNER, env={"PYTHONPATH": f"{tmp_path}:{ROOT / 'src'}"}) as client:
        assert client.call("recall", query="x")["isError"] is False


# --- the end, and the price


def test_it_ends_soon_after_its_input_closes(book):
    def attempt() -> float:
        with PlainClient(*OWNER) as client:
            client.initialize()
            client.call("recall", query="tea")
            return seconds(lambda: end_of_input(client))

    takes_less_than(MAX_EXIT_SECONDS, attempt)


def end_of_input(client: PlainClient) -> None:
    client.close_input()
    assert client.process.wait(60) == 0


@pytest.mark.promise("mcp.end")
def test_it_ends_soon_in_the_middle_of_a_call(book, home):
    def attempt() -> float:
        lock = FairLock(str(home / ".commonbook" / "write.lock"))
        with closing(lock), PlainClient(*OWNER) as client:
            client.call("recall", query="tea")
            with lock.hold(60.0):
                # It waits for the lock for as long as a minute.
                client.send("tools/call", name="remember", arguments={"text": "Tea is at four"})
                return seconds(lambda: end_of_input(client))

    takes_less_than(MAX_EXIT_SECONDS, attempt)
    assert book.list().items == ()
    assert book.verify_log().ok


def test_what_was_sent_before_the_end_of_the_input_is_answered(book):
    with PlainClient(*OWNER) as client:
        client.call("recall", query="tea")
        client.send("tools/call", name="remember", arguments={"text": "Tea is at four"})
        client.close_input()
        assert client.receive()["result"]["isError"] is False


@pytest.fixture
def heeded_interrupts() -> Iterator[None]:
    """Let processes heed Ctrl-C, also where the tests run in the background, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heeded_interrupts")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_at_once(book, home, number):
    with PlainClient(*OWNER) as client:
        client.initialize()
        client.process.send_signal(number)
        client.process.wait(60)


@pytest.mark.promise("mcp.end")
def test_several_processes_use_one_book_at_once(book):
    def work(number: int) -> list[str]:
        with PlainClient(*OWNER) as client:
            return [
                client.call("append", session="talk", messages=[{"text": f"{number}.{each}"}], space="personal")[
                    "structuredContent"
                ]["messages"][0]["id"]
                for each in range(10)
            ]

    with ThreadPoolExecutor(3) as threads:
        ids = [each for found in threads.map(work, range(3)) for each in found]
    stored = book.messages("talk", space="personal").items
    assert {message.id for message in stored} == set(ids)
    assert [message.seq for message in stored] == list(range(1, 31))
    for number in range(3):
        assert [m.text for m in stored if m.text.startswith(f"{number}.")] == [f"{number}.{each}" for each in range(10)]


@pytest.mark.promise("mcp.end")
def test_kill_minus_nine_loses_no_answered_call(book):
    acknowledged = []
    for round_ in range(3):
        with PlainClient(*OWNER) as client:
            for each in range(3):
                result = client.call("remember", text=f"fact {round_}.{each}", space="personal")
                acknowledged.append(result["structuredContent"]["id"])
            client.send("tools/call", name="remember", arguments={"text": f"cut off {round_}", "space": "personal"})
            client.kill()
    ids = [memory.id for memory in book.list(limit=100).items]
    assert set(acknowledged) <= set(ids)
    assert len(ids) == len(set(ids)) <= len(acknowledged) + 3
    assert book.verify_log().ok


@pytest.mark.promise("mcp.small")
def test_the_first_answer_is_cheap_and_an_idle_server_small(book, home):
    book.remember("Tea is at four", space="personal")
    with PlainClient(*OWNER) as client:
        client.initialize()
        process = psutil.Process(client.process.pid)
        used = process.cpu_times()
        assert used.user + used.system < MAX_FIRST_ANSWER_CPU_SECONDS
        client.request("tools/list")
        assert process.memory_full_info().uss < MAX_IDLE_MB * 1e6
        client.call("recall", query="when is tea?")
        assert process.memory_full_info().uss < MAX_MB_AFTER_RECALL * 1e6
        assert process.num_threads() <= 3


@pytest.mark.promise("mcp.broken-home")
def test_a_home_that_is_missing_or_broken_is_an_error_of_the_tool(tmp_path):
    with PlainClient(*OWNER, "--home", str(tmp_path / "nowhere")) as client:
        assert client.initialize()["serverInfo"]
        words = client.call("recall", query="tea")["content"][0]["text"]
        assert words.startswith("no_home: ")
        assert "fix: " in words
        commonbook.open(tmp_path / "nowhere", create=True).close()
        assert client.call("recall", query="tea")["isError"] is False

"""MCP over streamable HTTP at `/mcp`, and `mcp --url`, with a server in a process of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import httpx2
import pytest

from commonbook.service.book import Book
from tests.support.http_servers import ServerProcess
from tests.support.mcp_clients import PlainClient, over_http

MODES = ("auto", "legacy")
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
ACCEPT = {"Accept": "application/json, text/event-stream"}


@pytest.fixture
def server(book: Book) -> Iterator[ServerProcess]:
    """A server of the book, in a process of its own."""
    process = ServerProcess()
    yield process
    process.close()


def key_of_ana(book: Book) -> str:
    book.create_space("team")
    book.grant("agent:ana", "team", "writer")
    return book.create_key("agent:ana", space="team").secret


@pytest.mark.promise("mcp.revisions")
def test_the_sdk_uses_tools_resources_and_the_prompt_in_both_eras(book, server):
    key, private = key_of_ana(book), book.remember("Salaries are secret", space="private").id

    async def use(mode: str) -> None:
        async with over_http(server.url, key, mode=mode) as client:
            assert client.protocol_version == ("2026-07-28" if mode == "auto" else "2025-11-25")
            assert "long-term memory" in str(client.instructions)
            assert len((await client.list_tools()).tools) == 14
            stored = await client.call_tool("remember", {"text": f"Tea is at four ({mode})"})
            memory = stored.structured_content["id"]
            found = await client.call_tool("recall", {"query": "when is tea?"})
            assert memory in [hit["id"] for hit in found.structured_content["hits"]]
            assert memory in found.content[0].text
            status = await client.call_tool("status")
            assert status.structured_content["principal"] == "agent:ana"
            assert status.structured_content["spaces"] == ["team"]
            refused = await client.call_tool("get", {"id": private})
            assert refused.is_error
            assert "Salaries" not in refused.content[0].text
            refused = await client.call_tool("remember", {"text": "x", "space": "private"})
            assert refused.content[0].text.startswith("not_allowed: ")
            refused = await client.call_tool("recall", {"qery": "x"})
            assert "'query'" in refused.content[0].text
            read = await client.read_resource(f"commonbook://memory/{memory}")
            assert "Tea is at four" in read.contents[0].text
            prompt = await client.get_prompt("start", {"topic": "tea"})
            assert "Tea is at four" in prompt.messages[0].content.text

    for mode in MODES:
        asyncio.run(use(mode))
    assert {entry.actor for entry in book.log(space="team", limit=100) if entry.action == "remember"} == {"agent:ana"}


def test_errors_of_the_protocol_have_the_codes_of_their_revision(book, home, server):
    from mcp import MCPError

    key = key_of_ana(book)

    async def use(mode: str) -> None:
        async with over_http(server.url, key, mode=mode) as client:
            with pytest.raises(MCPError) as refused:
                await client.read_resource("commonbook://memory/01a19a5c-7d1e-7c3a-9f61-0b2f4c6e8a10")
            assert refused.value.code == (-32602 if mode == "auto" else -32002)
            result = await client.call_tool("recal", {})
            assert result.is_error
            assert "did you mean 'recall'" in result.content[0].text

    for mode in MODES:
        asyncio.run(use(mode))


@pytest.mark.promise("http.keys")
def test_requests_pass_the_same_guards_as_those_of_other_routes(book, home, server):
    key = key_of_ana(book)
    allowed = {"Authorization": f"Bearer {key}", **ACCEPT}
    with httpx2.Client(base_url=server.url, timeout=60) as client:
        without = client.post("/mcp", json=PING, headers=ACCEPT)
        assert without.status_code == 401
        assert without.headers["www-authenticate"] == 'Bearer realm="commonbook"'
        assert without.headers["content-type"] == "application/problem+json"
        foreign = client.post("/mcp", json=PING, headers={**ACCEPT, "Authorization": "Bearer cbk_wrong"})
        assert foreign.status_code == 401
        assert client.post("/mcp", json=PING, headers={**allowed, "Host": "evil.example"}).status_code == 421
        assert client.post("/mcp", json=PING, headers={**allowed, "Origin": "http://evil.example"}).status_code == 403
        deep = client.post("/mcp", content=b"[" * 1000, headers={**allowed, "Content-Type": "application/json"})
        assert deep.status_code == 400
        answer = client.post("/mcp", json=PING, headers=allowed)
        assert answer.json()["result"] == {}
        assert "mcp-session-id" not in answer.headers
        for method in ("GET", "DELETE"):
            refused = client.request(method, "/mcp", headers=allowed)
            assert refused.status_code == 405
            assert refused.headers["allow"] == "POST"
        # A client that found something there would begin OAuth, and leave the key out.
        assert client.get("/.well-known/oauth-protected-resource").status_code == 404


@pytest.mark.promise("http.keys")
def test_a_revoked_key_opens_nothing_any_more(book, home, server):
    key = book.create_key("agent:ana")
    headers = {"Authorization": f"Bearer {key.secret}", **ACCEPT}
    with httpx2.Client(base_url=server.url, timeout=60) as client:
        assert client.post("/mcp", json=PING, headers=headers).status_code == 200
        book.revoke_key(key.key.id)
        assert client.post("/mcp", json=PING, headers=headers).status_code == 401


def test_the_server_ends_after_mcp_was_used(book, home, server):
    key = key_of_ana(book)
    with httpx2.Client(base_url=server.url, timeout=60) as client:
        client.post("/mcp", json=PING, headers={"Authorization": f"Bearer {key}", **ACCEPT})
        server.stop()


# --- `mcp --url`


def test_an_agent_on_stdio_uses_the_book_of_a_server(book, server, tmp_path):
    key = key_of_ana(book)
    env = {"COMMONBOOK_KEY": key, "COMMONBOOK_OUTBOX": str(tmp_path / "outbox.db")}
    with PlainClient("--url", server.url, env=env) as client:
        memory = client.call("remember", text="Tea is at four")["structuredContent"]["id"]
        assert client.call("recall", query="tea")["structuredContent"]["hits"][0]["id"] == memory
        assert client.call("status")["structuredContent"]["principal"] == "agent:ana"
        wrong = memory[:-1] + ("1" if memory[-1] == "0" else "0")
        assert memory in client.call("get", id=wrong)["content"][0]["text"]
    assert book.get(memory).author == "agent:ana"


@pytest.mark.promise("client.outbox")
def test_messages_for_a_server_that_is_down_arrive_later(book, home, tmp_path):
    key, first = key_of_ana(book), ServerProcess()
    env = {"COMMONBOOK_KEY": key, "COMMONBOOK_OUTBOX": str(tmp_path / "outbox.db")}
    with PlainClient("--url", first.url, env=env) as client:
        client.call("append", session="talk", messages=[{"text": "one"}])
        first.close()
        result = client.call("append", session="talk", messages=[{"text": "two"}])
        assert result["structuredContent"]["searchable"] is False
        assert client.call("recall", query="one")["isError"]
        client.kill()
    again = ServerProcess(port=first.port)
    with PlainClient("--url", again.url, env=env) as client:
        client.call("append", session="talk", messages=[{"text": "three"}])
        client.call("switch", old="talk", new="next")
        stored = [message.text for message in book.messages("talk", space="team").items]
    again.close()
    assert stored == ["one", "two", "three"]


def test_without_a_key_each_call_says_so(home):
    with PlainClient("--url", "http://127.0.0.1:9", env={"HOME": str(home), "XDG_CONFIG_HOME": str(home)}) as client:
        assert client.initialize()["serverInfo"]
        words = client.call("recall", query="x")["content"][0]["text"]
        assert "commonbook login" in words

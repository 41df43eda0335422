"""Batches: each line is a request of its own, with its own answer."""

from __future__ import annotations

import json
from typing import Any


def lines_of(response) -> list[dict[str, Any]]:
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in response.text.splitlines()]


def batch(client, *lines: object, **headers: str):
    body = "".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines)
    return client.post("/v1/batch", content=body.encode(), headers=headers)


def remember(text: str, **more: object) -> dict[str, object]:
    return {"verb": "remember", "arguments": {"text": text}, **more}


def test_each_line_is_done_or_refused_without_the_others(book, client):
    answers = lines_of(
        batch(
            client,
            remember("one"),
            {"verb": "get", "arguments": {"memory_id": "01a19a5c-7d1e-7c3a-9f61-0b2f4c6e8a10"}},
            "{not json",
            remember("", colour="red"),
            {"verb": "acting_as", "arguments": {"principal": "user:bob"}},
            {"verb": "edit", "arguments": {"text": "no id"}},
            {"verb": "remember", "arguments": {"text": "x", "importance": 7}},
            "",
            remember("two"),
            {"verb": "create_key", "arguments": {"principal": "agent:a", "limits": [["personal", "reader"]]}},
        )
    )
    assert [(answer["line"], answer["status"]) for answer in answers] == [
        (1, 200), (2, 404), (3, 422), (4, 422), (5, 422), (6, 422), (7, 400), (9, 200), (10, 200),
    ]  # fmt: skip
    assert answers[1]["problem"]["type"] == "not_found"
    assert "'colour'" in answers[3]["problem"]["detail"]
    assert {memory.text for memory in book.list().items} == {"one", "two"}


def test_later_lines_see_what_earlier_ones_did(book, client):
    memory = book.remember("tea").id
    answers = lines_of(
        batch(
            client,
            {"verb": "edit", "arguments": {"memory_id": memory, "tags": ["a"]}},
            {"verb": "edit", "arguments": {"memory_id": memory, "tags": ["b"], "expected_version": 2}},
        )
    )
    assert [answer["result"]["version"] for answer in answers] == [2, 3]


def test_a_repeat_of_a_batch_with_keys_changes_nothing(book, client):
    lines = [remember("one", key="k1"), remember("two", key="k2")]
    assert batch(client, *lines).content == batch(client, *lines).content
    keyed = batch(client, remember("three"), remember("four"), **{"Idempotency-Key": "batch"})
    assert keyed.content == batch(client, remember("three"), remember("four"), **{"Idempotency-Key": "batch"}).content
    assert len(book.list().items) == 4


def test_a_batch_needs_a_key_and_lines(book, client_of, client):
    assert batch(client_of(None), remember("one")).status_code == 401
    assert batch(client).content == b""
    assert client.post("/v1/batch?verb=remember", content=b"").status_code == 422
    assert client.post("/v1/batch", content=b"x", headers={"Content-Type": "text/html"}).status_code == 415
    assert book.list().items == ()


def test_a_line_of_odd_bytes_is_refused(book, client):
    deep = '{"verb": "remember", "arguments": ' + "[" * 100_000
    answers = client.post("/v1/batch", content=b"\xff\xfe\n" + deep.encode() + b'\n{"verb": NaN}\n[]\n3\n')
    assert [answer["status"] for answer in lines_of(answers)] == [422] * 5
    assert book.list().items == ()

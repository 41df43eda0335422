"""Messages in the shapes of OpenAI's and Anthropic's interfaces are appended as they are."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from commonbook.errors import BadInput, BadText
from commonbook.values.session import NewMessage
from tests.interfaces.cli.test_cli import cli

__all__ = ["cli"]

PNG = "data:image/png;base64,iVBORw0KGgo="
OPENAI: list[dict[str, Any]] = [
    {"role": "system", "content": "You are helpful."},
    {"role": "user", "name": "alice", "content": "What is on this picture?"},
    {
        "role": "user",
        "content": [{"type": "text", "text": "And here?"}, {"type": "image_url", "image_url": {"url": PNG}}],
    },
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Rome"}'}}
        ],
    },
    {"role": "tool", "tool_call_id": "call_1", "content": "21 degrees"},
    {"role": "assistant", "content": None, "refusal": "I cannot tell."},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Sun.", "annotations": []}]},
    {"type": "function_call", "call_id": "c", "name": "search", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c", "output": "nothing"},
]
OPENAI_STORED = [
    ("system", "agent:system", "You are helpful."),
    ("user", "user:alice", "What is on this picture?"),
    ("user", "user:local", "And here?\n[image]"),
    ("assistant", "agent:assistant", "[tool call: get_weather]"),
    ("tool", "agent:tool", "21 degrees"),
    ("assistant", "agent:assistant", "I cannot tell."),
    ("assistant", "agent:assistant", "Sun."),
    ("assistant", "agent:assistant", "[tool call: search]"),
    ("tool", "agent:tool", "[tool result]\nnothing"),
]
ANTHROPIC: list[dict[str, Any]] = [
    {"role": "user", "content": "How warm is it in Rome?"},
    {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude",
        "stop_reason": "tool_use",
        "usage": {"output_tokens": 7},
        "content": [
            {"type": "thinking", "thinking": "I should look.", "signature": "abc"},
            {"type": "text", "text": "I look it up."},
            {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"city": "Rome"}},
        ],
    },
    {
        "role": "user",
        "content": [
            {
                "type": "tool_result",
                "tool_use_id": "toolu_1",
                "content": [{"type": "text", "text": "21 degrees"}, {"type": "image", "source": {"type": "base64"}}],
            }
        ],
    },
    {
        "role": "user",
        "content": [
            {"type": "document", "title": "Plan B.pdf", "source": {"type": "base64", "data": "JVBERi0="}},
            {"type": "text", "text": "And this?"},
            {"type": "container_upload", "file_id": "f"},
        ],
    },
]
ANTHROPIC_STORED = [
    ("user", "user:local", "How warm is it in Rome?"),
    ("assistant", "agent:assistant", "[thinking]\nI look it up.\n[tool call: get_weather]"),
    ("tool", "agent:tool", "[tool result]\n21 degrees\n[image]"),
    ("user", "user:local", "[file: Plan B.pdf]\nAnd this?\n[container upload]"),
]
SHAPES = pytest.mark.parametrize(
    ("messages", "expected"),
    [(OPENAI, OPENAI_STORED), (ANTHROPIC, ANTHROPIC_STORED)],
    ids=["openai", "anthropic"],
)


def stored(book, session="s"):
    return [(one.role, one.author, one.text) for one in book.messages(session).items]


@pytest.mark.promise("sessions.shapes")
@SHAPES
def test_messages_of_other_interfaces_are_appended_with_their_texts_and_plain_markers(book, messages, expected):
    receipt = book.append("s", messages)
    assert len(receipt.messages) == len(messages)
    assert stored(book) == expected
    assert book.recall("21 degrees").hits


class Block:
    """A block or message of a client library: an object that can be dumped as a mapping."""

    def __init__(self, **fields: object) -> None:
        self._dumped = fields

    def model_dump(self) -> dict[str, object]:
        return self._dumped

    def __iter__(self):
        return iter(self._dumped.items())


def test_objects_of_client_libraries_are_taken_whole_or_as_parts(book):
    text = Block(type="text", text="Good morning")
    book.append("s", [Block(role="assistant", content=[text.model_dump()]), {"role": "assistant", "content": [text]}])
    assert stored(book) == [("assistant", "agent:assistant", "Good morning")] * 2
    with pytest.raises(BadInput, match="no list"):
        book.append("s", text)


def test_fields_of_ours_are_taken_beside_a_content_and_make_it_repeatable(book):
    message = {"role": "user", "content": "We ship on Tuesday", "client_id": "m1", "author": "user:bob"}
    first, again = book.append("s", [message]), book.append("s", [message, {"text": "ok", "role": "assistant"}])
    assert (first.messages[0].new, [one.new for one in again.messages]) == (True, [False, True])
    assert stored(book) == [("user", "user:bob", "We ship on Tuesday"), ("assistant", "agent:assistant", "ok")]


def test_secrets_in_parts_are_masked(book):
    part = {"type": "text", "text": "my key is sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCD"}
    (receipt,) = book.append("s", [{"role": "user", "content": [part]}]).messages
    assert receipt.masked == 1
    assert "abcdefghij" not in stored(book)[0][2]


DEEP: Any = "end"
for _ in range(5_000):
    DEEP = [{"type": "tool_result", "content": DEEP}]


@pytest.mark.promise("sessions.shapes")
@pytest.mark.parametrize(
    "message",
    [
        5,
        None,
        ("user", "hello"),
        {},
        {1: "x"},
        {"content": "hello"},
        {"role": None, "content": "hello"},
        {"role": "user"},
        {"role": "user", "content": None},
        {"role": "user", "content": []},
        {"role": "user", "content": 5},
        {"role": "user", "content": {"type": "text", "text": "x"}},
        {"role": "user", "content": [5]},
        {"role": "user", "content": [{}]},
        {"role": "user", "content": [{"type": "text"}]},
        {"role": "user", "content": [{"type": "text", "text": 5}]},
        {"role": "user", "content": [{"type": "Not a type!"}]},
        {"role": "No Role", "content": "x"},
        {"role": "user", "content": "x", "author": 5},
        {"role": "user", "content": "x", "client_id": ""},
        {"role": "assistant", "content": None, "tool_calls": "x"},
        {"role": "assistant", "content": None, "tool_calls": [5]},
        {"text": "x", "content": "y"},
        {"text": 5},
        SimpleNamespace(role="user", content="x"),
    ],
    ids=repr,
)
def test_an_unknown_shape_is_refused_with_its_place_and_changes_nothing(book, message):
    book.append("s", ["before"])
    with pytest.raises(BadInput) as caught:
        book.append("s", ["good", message])
    assert caught.value.item == 1
    assert caught.value.fix
    assert [text for _, _, text in stored(book)] == ["before"]


def test_deeply_nested_results_are_cut_off(book):
    book.append("s", [{"role": "user", "content": DEEP}])
    assert stored(book) == [("tool", "agent:tool", "[tool result]\n[tool result]")]


def test_a_message_of_no_shape_has_the_error_of_a_bad_text(book):
    with pytest.raises(BadText):
        book.append("s", [object()])


@SHAPES
def test_the_command_line_takes_them_as_json_lines_with_and_without_the_option(cli, messages, expected):
    lines = "".join(json.dumps(message) + "\n" for message in messages).encode()
    assert cli("session", "append", "given", "--jsonl", stdin=lines).code == 0
    assert cli("session", "append", "piped", stdin=lines).code == 0
    for session in ("given", "piped"):
        shown = cli("session", "show", session, "--json").json["items"]
        assert [(one["role"], one["author"], one["text"]) for one in shown] == expected


def test_the_command_line_names_the_line_of_an_unknown_shape_and_stores_nothing(cli):
    lines = b'{"role": "user", "content": "x"}\n{"role": "user", "content": 5}\n'
    refused = cli("session", "append", "s", "--jsonl", stdin=lines)
    assert refused.code == 2
    assert "line 2: the content is neither a text nor a list" in refused.err
    assert cli("session", "list", "--json").json == []


def test_own_messages_and_others_may_be_mixed(book):
    book.append("s", ["one", NewMessage("two"), {"role": "user", "content": "three"}, {"text": "four"}])
    assert [text for _, _, text in stored(book)] == ["one", "two", "three", "four"]

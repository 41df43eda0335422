"""Edits of configuration files: additions are made once, removals undo them, and everything else keeps its meaning."""

from __future__ import annotations

import json
import re
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commonbook.errors import BadInput
from commonbook.interfaces.agents.edits import HASH, Block, Element, Member, parse_json

SERVER = {"command": "commonbook", "args": ["mcp", "--as", "agent:x"]}
MEMBER = Member(("mcpServers", "commonbook"), SERVER)
ONE, TWO = (Element(("permissions", "allow"), word) for word in ("one", "two"))

PLAIN = [
    "",
    "{}",
    "{ }\n",
    "{\n}\n",
    '{"mcpServers": {}}',
    '{\n  "mcpServers": {\n  }\n}\n',
    '{"a": 1}',
    '{\n\t"a": [1, 2],\n\t"b": {"c": null}\n}\n',
    '{\r\n  "a": "\u00e4\\u00e9\\n",\r\n  "mcpServers": {\r\n    "other": {"command": "x"}\r\n  }\r\n}\r\n',
]
WITH_COMMENTS = [
    '{\n    "a": 1, // one\n    /* two */ "b": 2 // last\n    // end\n}\n',
    '{\n  "mcpServers": {\n    "other": {"command": "x"},\n  },\n}\n',
    '// a comment\n{"mcpServers": {"other": {}}, "z": [ ]}\n// the end',
    '{\n  "mcpServers": {\n    // "commonbook": {"off": true},\n    "other": {"x": "// no comment, }"}\n  }\n}\n',
    "{ // nothing yet\n}\n",
    '{"mcpServers": { // mine\n} }',
]


def without_empty(value: object) -> object:
    """Return a document without the empty objects that a removal leaves out."""
    if not isinstance(value, dict):
        return value
    found = {key: without_empty(each) for key, each in value.items()}
    return {key: each for key, each in found.items() if each != {}}


def comments(text: str) -> list[str]:
    return re.findall(r"//[^\n]*|/\*.*?\*/", text)


@pytest.mark.parametrize("text", PLAIN + WITH_COMMENTS)
def test_a_member_is_added_once_and_removed_by_its_meaning(text):
    before = parse_json(text)
    added = MEMBER.made(text)
    assert parse_json(added) == {**before, "mcpServers": {**before.get("mcpServers", {}), "commonbook": SERVER}}
    assert MEMBER.made(added) == added
    assert comments(added) == comments(text)
    removed = MEMBER.undone(added)
    assert without_empty(parse_json(removed)) == without_empty(before)
    assert comments(removed) == comments(text)
    assert MEMBER.undone(removed) == removed


@pytest.mark.parametrize("text", PLAIN)
def test_elements_are_added_once_and_removed_by_their_meaning(text):
    before = parse_json(text)
    added = ONE.made(TWO.made(ONE.made(text)))
    assert parse_json(added) == {**before, "permissions": {"allow": ["one", "two"]}}
    assert parse_json(TWO.undone(ONE.undone(added))) == before


@pytest.mark.parametrize("text", WITH_COMMENTS)
def test_an_array_beside_comments_is_left_alone(text):
    with pytest.raises(BadInput, match="comments"):
        ONE.made(text)
    assert ONE.undone(text) == text


def test_order_layout_and_ends_of_lines_stay():
    text = '{\r\n    "b": 1,\r\n    "a": {\r\n        "x": "\u00e4"\r\n    }\r\n}\r\n'
    added = MEMBER.made(text)
    assert added.startswith(text.removesuffix("\r\n}\r\n"))
    assert MEMBER.undone(added) == text


def test_a_changed_value_is_replaced():
    for text in ('{"mcpServers": {"commonbook": 1, "other": {}}}', '{"mcpServers": {"commonbook": 1, "other": {},}}'):
        assert parse_json(MEMBER.made(text)) == {"mcpServers": {"commonbook": SERVER, "other": {}}}


@pytest.mark.parametrize(
    "text", ["{", "[1", '{"a" 1}', '{"a": }', "{} x", '{"a": 1 "b": 2}', "{'a': 1}", "[" * 200_000]
)
def test_text_that_is_not_json_is_refused_with_its_line(text):
    with pytest.raises(BadInput, match="line 1"):
        MEMBER.made(text)


@pytest.mark.parametrize("text", ["[]", '"x"', '{"mcpServers": []}', '{"mcpServers": null}'])
def test_another_type_on_the_way_is_refused(text):
    with pytest.raises(BadInput, match="not an object"):
        MEMBER.made(text)


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(allow_nan=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.promise("install.undone")
@given(
    value=st.dictionaries(st.text(max_size=4), _VALUES, max_size=4),
    indent=st.sampled_from([None, 0, 1, 2, 4, "\t"]),
    servers=st.none() | st.dictionaries(st.text(max_size=4), _VALUES, max_size=2),
    end=st.sampled_from(["", "\n", "// a comment"]),
)
def test_any_document_survives_an_addition_and_its_removal(value, indent, servers, end):
    document = {**value, **({} if servers is None else {"mcpServers": servers})}
    text = json.dumps(document, indent=indent, ensure_ascii=False) + end
    added = MEMBER.made(text)
    assert parse_json(added) == {**document, "mcpServers": {**(servers or {}), "commonbook": SERVER}}
    expected = {key: each for key, each in document.items() if key != "mcpServers" or servers}
    removed = parse_json(MEMBER.undone(added))
    assert {key: each for key, each in removed.items() if key != "mcpServers" or each} == expected


@pytest.mark.parametrize("text", ["", "a = 1", "a = 1\n", "a = 1\n\n", "\n", "[x]\ny = 2 # z\n\n\n"])
def test_a_marked_block_is_added_once_replaced_and_removed(text):
    one, two = (Block(HASH, f"[t]\nb = {number}", ("t",)) for number in (1, 2))
    added = one.made(text)
    assert added.startswith(text)
    assert one.made(added) == added
    changed = two.made(added)
    assert changed == added.replace("b = 1", "b = 2")
    assert one.undone(changed) == text
    assert one.undone(changed + "[later]\n") == text + "[later]\n"
    assert tomllib.loads(changed)["t"] == {"b": 2}

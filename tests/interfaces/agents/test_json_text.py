"""Edits of JSON as text: additions keep every other byte, and removals are their inverse."""

from __future__ import annotations

import json
import re
from functools import partial
from operator import eq

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commonbook.errors import BadInput
from commonbook.interfaces.agents import json_text, marked_text

SERVER = {"command": "commonbook", "args": ["mcp", "--as", "agent:x"]}
PATH = ("mcpServers", "commonbook")

DOCUMENTS = [
    "",
    "{}",
    "{ }\n",
    "{\n}\n",
    '{"mcpServers": {}}',
    '{\n  "mcpServers": {\n  }\n}\n',
    '{"a": 1}',
    '{\n\t"a": [1, 2],\n\t"b": {"c": null}\n}\n',
    '{\n    "a": 1, // one\n    /* two */ "b": 2 // last\n    // end\n}\n',
    '{\r\n  "a": "ä\\u00e9\\n",\r\n  "mcpServers": {\r\n    "other": {"command": "x"}\r\n  }\r\n}\r\n',
    '{\n  "mcpServers": {\n    "other": {"command": "x"},\n  },\n}\n',
    '// a comment\n{"mcpServers": {"other": {}}, "z": [ ]}\n// the end',
]


@pytest.mark.parametrize("text", DOCUMENTS)
def test_a_member_is_added_once_and_removed_to_the_byte(text):
    added = json_text.set_member(text, PATH, SERVER)
    assert json_text.parse(added)["mcpServers"]["commonbook"] == SERVER
    assert json_text.set_member(added, PATH, SERVER) == added
    assert json_text.remove_member(added, PATH) == text
    others = json_text.parse(added)
    del others["mcpServers"]["commonbook"]
    before = json_text.parse(text)
    assert {**others, "mcpServers": others["mcpServers"]} == {**before, "mcpServers": before.get("mcpServers", {})}


@pytest.mark.parametrize("text", DOCUMENTS)
def test_elements_are_added_once_and_removed_to_the_byte(text):
    added = text
    for word in ("one", "two", "one"):
        added = json_text.add_element(added, ("permissions", "allow"), word, matches=partial(eq, word))
    assert json_text.parse(added)["permissions"]["allow"] == ["one", "two"]
    removed = json_text.remove_elements(added, ("permissions", "allow"), matches=lambda value: value in ("one", "two"))
    assert removed == text


def test_comments_and_order_stay():
    text = '{\n  // mine\n  "b": 1, // b\n  "a": {"x": 1} // a\n}\n'
    added = json_text.set_member(text, PATH, SERVER)
    assert re.findall(r"// \w+", added) == ["// mine", "// b", "// a"]
    assert '"a": {"x": 1}, // a\n  "mcpServers": {\n    "commonbook": {\n' in added


def test_a_changed_value_is_replaced_in_its_place():
    text = '{\n  "mcpServers": {\n    "commonbook": {"command": "old"}, // ours\n    "other": {}\n  }\n}\n'
    changed = json_text.set_member(text, PATH, {"command": "new"})
    assert changed.replace('{\n      "command": "new"\n    }', '{"command": "old"}') == text


def test_an_entry_in_the_middle_is_removed_with_its_comma():
    text = '{"mcpServers": {\n  "commonbook": {}, // ours\n  "other": {}\n}}'
    assert json_text.remove_member(text, PATH) == '{"mcpServers": { // ours\n  "other": {}\n}}'
    assert json_text.remove_member('{"mcpServers": {"a": 1, "commonbook": 2, "b": 3}}', PATH) == (
        '{"mcpServers": {"a": 1, "b": 3}}'
    )


@pytest.mark.parametrize("text", ["{", "[1", '{"a" 1}', '{"a": }', "{} x", '{"a": 1 "b": 2}', "{'a': 1}", "[" * 200])
def test_what_is_not_json_is_refused_with_its_line(text):
    with pytest.raises(BadInput, match="line 1"):
        json_text.set_member(text, PATH, SERVER)


@pytest.mark.parametrize("text", ["[]", '"x"', '{"mcpServers": []}', '{"mcpServers": null}'])
def test_another_type_on_the_way_is_refused(text):
    with pytest.raises(BadInput, match="not an object"):
        json_text.set_member(text, PATH, SERVER)


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(
    value=st.dictionaries(st.text(max_size=4), _VALUES, max_size=4),
    indent=st.sampled_from([None, 0, 1, 2, 4, "\t"]),
    servers=st.none() | st.dictionaries(st.text(max_size=4), _VALUES, max_size=2),
)
def test_any_document_survives_an_addition_and_its_removal(value, indent, servers):
    document = {**value, **({} if servers is None else {"mcpServers": servers})}
    text = json.dumps(document, indent=indent, ensure_ascii=False)
    added = json_text.set_member(text, PATH, SERVER)
    assert json.loads(added)["mcpServers"]["commonbook"] == SERVER
    assert json_text.remove_member(added, PATH) == text


@pytest.mark.parametrize("text", ["", "a = 1", "a = 1\n", "a = 1\n\n", "\n", "[x]\ny = 2 # z\n\n\n"])
def test_a_marked_block_is_added_once_replaced_and_removed_to_the_byte(text):
    added = marked_text.with_block(text, marked_text.TOML, "[t]\nb = 1")
    assert added.startswith(text)
    assert marked_text.with_block(added, marked_text.TOML, "[t]\nb = 1") == added
    changed = marked_text.with_block(added, marked_text.TOML, "[t]\nb = 2")
    assert changed == added.replace("b = 1", "b = 2")
    assert marked_text.without_block(changed, marked_text.TOML) == text
    assert marked_text.without_block(changed + "[later]\n", marked_text.TOML) == text + "[later]\n"

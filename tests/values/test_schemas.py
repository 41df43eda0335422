"""JSON Schema of values: every result fits the schema of its type, and nothing else does."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Literal

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commonbook.values.encoding import Field, decode, dumps, encode
from commonbook.values.memory import Draft, Memory, Receipt
from commonbook.values.schemas import Schemas, schema
from commonbook.values.session import ChatMessage, NewMessage
from commonbook.values.sharing import CopyNode
from commonbook.values.stored_memory import missing_memory
from tests.values.test_encoding import RESULTS, values_of


@pytest.mark.parametrize("type_", sorted(RESULTS, key=str), ids=str)
@settings(max_examples=5, deadline=None)
@given(data=st.data())
def test_every_result_of_every_verb_fits_its_schema(type_, data):
    value = json.loads(dumps(data.draw(values_of(type_))))
    described = schema(type_)
    jsonschema_rs.meta.validate(described)
    jsonschema_rs.Draft202012Validator(described).validate(value)


def test_a_result_has_all_its_fields_with_the_texts_below_them():
    described = schema(Receipt)["$defs"]["Receipt"]
    assert described["required"] == list(Receipt._fields)
    assert described["properties"]["masked"] == {
        "type": "integer",
        "description": "The number of secrets that were masked.",
    }


def test_a_value_that_contains_its_own_kind_refers_to_itself():
    copies = schema(CopyNode)["$defs"]["CopyNode"]["properties"]["copies"]
    assert copies == {"type": "array", "items": {"$ref": "#/$defs/CopyNode"}}


def test_arguments_may_be_left_out_where_they_have_a_default_and_no_others_are_taken():
    schemas = Schemas("#/components/schemas/", strict=True)
    described = schemas.of_fields(
        [Field("drafts", Iterable[Draft]), Field("limit", int, 50), Field("since", datetime | str | None, None)]
    )
    assert described == {
        "type": "object",
        "properties": {
            "drafts": {"type": "array", "items": {"$ref": "#/components/schemas/Draft"}},
            "limit": {"type": "integer", "default": 50},
            "since": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        },
        "required": ["drafts"],
        "additionalProperties": False,
    }
    assert schemas.definitions["Draft"]["required"] == ["text"]


@pytest.mark.parametrize(
    ("type_", "described"),
    [
        (tuple[str, int], {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}]}),
        (Mapping[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
        (Literal["a", "b"] | str, {"type": "string"}),
        (ChatMessage, {"type": "object", "additionalProperties": {}}),
        (datetime, {"type": "string", "format": "date-time"}),
    ],
)
def test_a_type_is_described(type_, described):
    found = schema(type_)
    assert {name: found[name] for name in described} == described


def test_a_message_is_a_text_a_message_of_ours_or_an_object_of_another_client():
    assert [each.get("type", "$ref") for each in Schemas(strict=True).of(NewMessage | str | ChatMessage)["anyOf"]] == [
        "$ref",
        "string",
        "object",
    ]


OF_THE_CORE = re.compile(r"hash|mac\b|digest|layout|lines|signature|\bkey_id|revised_|mode_set")
"""Names of fields that only the core needs."""

SHOWN_ON_PURPOSE = {
    ("LogEntry", "hash"): "who verifies the log needs it",
    ("LogEntry", "signature"): "who verifies the log needs it",
    ("LogEntry", "key_id"): "who verifies the log needs it",
    ("Identity", "key_id"): "an API key is revoked by its id",
    ("Memory", "revised_by"): "its author may not have written the words that stand there",
    ("PromptUse", "hash"): "who put the passage into a prompt gave it",
}


def test_no_value_of_an_interface_has_a_field_of_the_core():
    schemas = Schemas("#/")
    for type_ in RESULTS:
        schemas.of(type_)
    shown = {(name, field) for name, value in schemas.definitions.items() for field in value["properties"]}
    assert {("Memory", "text"), ("CopyInfo", "source"), ("Link", "target")} <= shown
    assert {pair for pair in shown if OF_THE_CORE.search(pair[1])} == SHOWN_ON_PURPOSE.keys()
    assert not [name for name in schemas.definitions if name.startswith("Stored")]


def test_a_memory_over_an_interface_has_the_fields_of_the_stored_one():
    memory = missing_memory("0192f0c1-aaaa-7bbb-8ccc-0123456789ab")._replace(title="Owls", text="They sleep.")
    public = memory.public()
    assert (public.id, public.title, public.text, public.shared) == (memory.id, "Owls", "They sleep.", None)
    assert decode(Memory, encode(public)) == public

"""JSON of values: every result of every verb comes back as it was."""

from __future__ import annotations

import json
import re
import types
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commonbook.errors import BadInput, BadTime
from commonbook.values.encoding import Field, Malformed, decode, decode_query, dumps, encode
from commonbook.values.memory import Changes, Draft, Filter, Link, Metadata, Page, Receipt, Scalar, Unset
from commonbook.values.session import NewMessage
from commonbook.verbs.requests import VERBS, result_of

TEXTS = st.text(st.characters(codec="utf-8"), max_size=8)
NUMBERS = st.integers(-(2**53), 2**53)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.one_of(TEXTS, NUMBERS, FLOATS, st.booleans())
TIMES = st.datetimes(min_value=datetime(1900, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - the zone is given beside


def values_of(type_: Any, depth: int = 2) -> st.SearchStrategy[Any]:
    """Return a strategy of all values of a type of results."""
    plain = {str: TEXTS, int: NUMBERS, float: FLOATS, bool: st.booleans(), datetime: TIMES, type(None): st.none()}
    if type_ is None or type_ in plain:
        return plain[type(None) if type_ is None else type_]
    origin, args = get_origin(type_), get_args(type_)
    if origin is Literal:
        return st.sampled_from(args)
    if origin in (Union, types.UnionType):
        return st.one_of([values_of(arg, depth) for arg in args if arg is not Unset])
    if type_ is Metadata:
        return st.builds(Metadata, st.dictionaries(TEXTS, SCALARS | st.lists(SCALARS, max_size=2), max_size=2))
    if hasattr(type_, "_fields"):
        hints = get_type_hints(type_)
        return st.builds(type_, **{name: values_of(hints[name], depth - 1) for name in type_._fields})
    if origin is tuple and args[-1] is not Ellipsis:
        return st.tuples(*(values_of(arg, depth) for arg in args))
    if origin in (tuple, list, Sequence):
        items = st.lists(values_of(args[0], depth - 1), max_size=2 if depth > 0 else 0) if depth > 0 else st.just([])
        return items.map(tuple if origin is Sequence else origin)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return st.dictionaries(TEXTS, values_of(args[1], depth), max_size=2)
    raise AssertionError(type_)


RESULTS = {result_of(name) for name in VERBS}


@pytest.mark.promise("http.same")
@pytest.mark.parametrize("type_", sorted(RESULTS, key=str), ids=str)
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_every_result_of_every_verb_comes_back_as_it_was(type_, data):
    value = data.draw(values_of(type_))
    sent = json.loads(dumps(value))
    assert decode(type_, sent) == value
    assert dumps(decode(type_, sent)) == dumps(value)


@pytest.mark.parametrize("type_", [Draft, Filter, Changes, NewMessage])
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_every_argument_that_is_a_value_comes_back_as_it_was(type_, data):
    value = data.draw(values_of(type_))
    # A time as a text and as a time are the same argument: the text of it.
    as_text = value._replace(
        **{name: encode(field) for name, field in value._asdict().items() if isinstance(field, datetime)}
    )
    assert encode(decode(type_, encode(value))) == encode(as_text)


def test_a_field_that_is_not_set_is_left_out_and_a_cleared_one_is_null():
    assert encode(Changes(title=None)) == {"title": None}
    assert decode(Changes, {"title": None}) == Changes(title=None)


def test_a_time_of_any_zone_is_sent_in_utc():
    time = datetime(2026, 11, 17, 13, 0, tzinfo=timezone(timedelta(hours=1)))
    assert encode(time) == "2026-11-17T12:00:00.000000Z"


def test_a_time_without_zone_is_refused_as_by_the_book():
    with pytest.raises(BadTime, match="has no zone"):
        encode(datetime(2026, 11, 17, 13, 0))  # noqa: DTZ001 - as a caller may give it


def test_fields_that_this_program_does_not_know_are_ignored():
    receipt = Receipt("id", 1, 1, "personal", "a.md", new=True)
    assert decode(Receipt, {**encode(receipt), "colour": "red"}) == receipt


@pytest.mark.parametrize(
    ("type_", "data"),
    [
        (int, True),
        (int, "1"),
        (str, None),
        (datetime, "soon"),
        (tuple[str, ...], {"a": 1}),
        (Receipt, {"id": "x"}),
        (Receipt, []),
        (tuple[str, int], ["a"]),
    ],
)
def test_json_of_another_shape_is_refused(type_, data):
    with pytest.raises(Malformed):
        decode(type_, data)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), b"bytes", object()])
def test_a_value_that_json_does_not_have_is_refused(value):
    with pytest.raises(BadInput):
        encode([value])


def test_a_truth_value_and_a_number_of_metadata_stay_apart():
    fields = Metadata({"a": True, "b": 1, "c": 1.0, "d": "1"})
    assert decode(Metadata, json.loads(dumps(fields))) == fields


@pytest.mark.parametrize(
    ("type_", "data", "fault"),
    [
        (str, 1, "a whole number in place of a text"),
        (Receipt, [], "a list in place of an object"),
        (
            tuple[Link, ...],
            [{"source": "a", "relation": "b", "target": 3}],
            "[0].target: a whole number in place of a text",
        ),
        (Page, {"items": [{"links": 3}], "next": None}, "items[0].id: missing"),
        (Draft, {"text": "a", "metadata": {"colour": None}}, "metadata.colour: null in place of a text or "),
        (Draft, {"text": "a", "importance": "high"}, "importance: a text in place of a number"),
        (Draft, {"text": "a", "kind": 3}, "kind: a whole number in place of one of note, fact"),
        (tuple[float, ...], [1, float("nan")], "[1]: not a finite number"),
    ],
)
def test_a_fault_is_named_with_its_place(type_, data, fault):
    with pytest.raises(Malformed, match="^" + re.escape(fault)):
        decode(type_, data)


def test_an_unknown_argument_is_refused_with_those_that_there_are():
    with pytest.raises(Malformed, match="colour: no such field; there are: text, space, kind"):
        decode(Draft, {"text": "a", "colour": "red"}, strict=True)


def test_a_time_that_is_given_as_text_stays_a_text():
    assert decode(Draft, {"text": "a", "occurred": "2026-03-01"}, strict=True).occurred == "2026-03-01"


QUERY = (
    Field("space", str | None, None),
    Field("limit", int, 50),
    Field("tags", Iterable[str], ()),
    Field("deleted", bool, False),
    Field("metadata", Mapping[str, Scalar], {}),
    Field("since", datetime | str | None, None),
)


def test_texts_of_a_query_become_what_the_arguments_are():
    query = [
        ("space", "7"),
        ("limit", "3"),
        ("tags", "1"),
        ("tags", "b"),
        ("deleted", "true"),
        ("metadata", '{"a":1}'),
        ("since", "yesterday"),
    ]
    assert decode_query(QUERY, query) == {
        "space": "7",
        "limit": 3,
        "tags": ("1", "b"),
        "deleted": True,
        "metadata": {"a": 1},
        "since": "yesterday",
    }


@pytest.mark.parametrize(
    ("query", "fault"),
    [
        ([("limit", "many")], "limit: a text in place of a whole number"),
        ([("limit", "1"), ("limit", "2")], "limit: given more than once"),
        ([("deleted", "yes")], "deleted: a text in place of true or false"),
        ([("colour", "red")], "colour: no such field"),
        ([("metadata", "[" * 100_000)], "metadata: a text in place of an object"),
    ],
)
def test_a_query_of_another_shape_is_refused(query, fault):
    with pytest.raises(Malformed, match=fault):
        decode_query(QUERY, query)

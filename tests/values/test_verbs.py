"""Requests: the path, the query and the body of a verb."""

from __future__ import annotations

import json

import pytest

from commonbook.errors import BadInput
from commonbook.values.memory import UNSET, Filter
from commonbook.verbs.requests import VERBS, Request, path_segment, request_of


def test_an_id_stands_in_the_path_and_the_rest_in_the_body():
    request = request_of(VERBS["edit"], {"memory_id": "m1", "title": None, "text": UNSET, "tags": ("a",)})
    assert request[:3] == ("PATCH", "/v1/memories/m1", ())
    assert json.loads(request.body or b"") == {"title": None, "tags": ["a"]}


def test_the_fields_of_a_filter_are_query_parameters():
    chosen = Filter(space="team/a", kinds=("note", "fact"), metadata={"n": 1})
    request = request_of(VERBS["list"], {"chosen": chosen, "limit": 5, "after": None})
    assert request == Request(
        "GET",
        "/v1/memories",
        (
            ("space", "team/a"),
            ("kinds", "note"),
            ("kinds", "fact"),
            ("deleted", "false"),
            ("metadata", '{"n":1}'),
            ("limit", "5"),
        ),
    )


@pytest.mark.parametrize(
    ("text", "segment"),
    [("..", "%2E%2E"), (".", "%2E"), ("a?b#c", "a%3Fb%23c"), ("ä", "%C3%A4"), ("%2F", "%252F")],
)
def test_an_id_cannot_leave_its_place_in_the_path(text, segment):
    assert path_segment(text) == segment


@pytest.mark.parametrize("value", ["", "a/b", "/", "\ud800", None, 3, b"x"])
def test_a_value_that_can_be_no_id_is_refused(value):
    with pytest.raises(BadInput):
        path_segment(value)


def test_half_a_character_is_sent_for_the_book_to_refuse():
    assert request_of(VERBS["recall"], {"query": "\ud800"}).body == b'{"query": "\\ud800"}'

"""Verbs over HTTP: arguments, results, versions, pages and problem details."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import pytest
from httpx2 import Response

from commonbook.errors import BadInput
from commonbook.values.encoding import decode, encode
from commonbook.values.memory import Filter
from commonbook.values.schemas import schema
from commonbook.values.session import PromptPassage
from commonbook.verbs.requests import VERBS, request_of, result_of


def problem_of(response: Response) -> dict[str, Any]:
    assert response.headers["content-type"] == "application/problem+json"
    details: dict[str, Any] = response.json()
    assert details["status"] == response.status_code
    assert details["instance"]
    return details


def test_a_memory_is_stored_and_read_as_the_book_does(book, client):
    receipt = client.post("/v1/memories", json={"text": "Alice owns billing", "tags": ["team"]})
    assert receipt.status_code == 200
    memory = book.get(receipt.json()["id"])
    assert memory.text == "Alice owns billing"
    answer = client.get(f"/v1/memories/{memory.id}")
    assert decode(type(memory), answer.json()) == memory


def test_recall_answers_like_the_book(book, client):
    book.remember("Alice owns billing")
    hits = client.post("/v1/recall", json={"query": "billing", "k": 3}).json()["hits"]
    local = book.recall("billing", k=3).hits
    assert [hit["id"] for hit in hits] == [hit.id for hit in local]
    assert [hit["score"] for hit in hits] == [hit.score for hit in local]


@pytest.mark.promise("http.shapes")
def test_an_unknown_argument_is_refused_by_its_name(client):
    response = client.post("/v1/memories", json={"text": "x", "colour": "red"})
    assert response.status_code == 422
    details = problem_of(response)
    assert details["type"] == "bad_input"
    assert "'colour'" in details["detail"]
    assert "importance" in details["fix"]


def test_an_unknown_query_parameter_is_refused_by_its_name(client):
    assert "'colour'" in problem_of(client.get("/v1/memories?colour=red"))["detail"]
    assert "'k'" in problem_of(client.post("/v1/recall?k=3", json={}))["detail"]


def test_an_error_of_the_book_has_its_message_and_fix(book, client):
    details = problem_of(client.post("/v1/memories", json={"text": "x", "kind": "thought"}))
    assert details["status"] == 400
    with pytest.raises(BadInput, match="thought") as caught:
        book.remember("x", kind="thought")
    assert (details["detail"], details["fix"]) == (caught.value.message, caught.value.fix)


@pytest.mark.promise("http.etags")
def test_the_version_is_the_entity_tag(client):
    receipt = client.post("/v1/memories", json={"text": "one"})
    assert receipt.headers["etag"] == '"1"'
    path = f"/v1/memories/{receipt.json()['id']}"
    assert client.get(path).headers["etag"] == '"1"'
    assert client.get(path, headers={"If-None-Match": '"1"'}).status_code == 304
    edited = client.patch(path, json={"text": "two"}, headers={"If-Match": '"1"'})
    assert (edited.status_code, edited.headers["etag"]) == (200, '"2"')
    assert client.get(path, headers={"If-None-Match": '"1"'}).status_code == 200
    late = client.patch(path, json={"text": "three"}, headers={"If-Match": '"1"'})
    details = problem_of(late)
    assert (late.status_code, details["expected"], details["found"]) == (412, 1, 2)
    assert problem_of(client.patch(path, json={"text": "three", "expected_version": 1}))["status"] == 409


@pytest.mark.promise("http.etags")
def test_the_entity_tag_changes_with_what_the_book_derives(book, client):
    old, new = book.remember("one").id, book.remember("two").id
    first = client.get(f"/v1/memories/{old}").headers["etag"]
    book.supersede(old, new)
    answer = client.get(f"/v1/memories/{old}", headers={"If-None-Match": first})
    assert (answer.status_code, answer.json()["superseded_by"]) == (200, new)
    # The version has not changed: an edit goes by it.
    edited = client.patch(f"/v1/memories/{old}", json={"tags": ["a"]}, headers={"If-Match": answer.headers["etag"]})
    assert edited.status_code == 200


@pytest.mark.parametrize("header", ["3", 'W/"3"', '"x"', '"1", "2"', '"99999999999999999999"'])
def test_an_if_match_that_is_no_version_is_refused(client, header):
    path = f"/v1/memories/{client.post('/v1/memories', json={'text': 'one'}).json()['id']}"
    assert client.patch(path, json={"text": "two"}, headers={"If-Match": header}).status_code == 400


def test_several_if_match_headers_are_one_list(client):
    path = f"/v1/memories/{client.post('/v1/memories', json={'text': 'one'}).json()['id']}"
    twice = [("If-Match", '"1"'), ("If-Match", '"7"')]
    assert client.patch(path, json={"text": "two"}, headers=twice).status_code == 400


@pytest.mark.promise("http.etags")
@pytest.mark.parametrize("verb", ["undelete", "share", "supersede", "triage"])
def test_a_change_that_compares_no_versions_refuses_if_match(book, client, verb):
    memory, other = book.remember("one", space="a").id, book.remember("two", space="a").id
    bodies = {"share": {"to": "b"}, "supersede": {"by": other}, "triage": {"verdict": "keep"}}
    before = book.log_size()
    answer = client.post(f"/v1/memories/{memory}/{verb}", json=bodies.get(verb, {}), headers={"If-Match": '"9"'})
    assert (answer.status_code, problem_of(answer)["type"]) == (400, "bad_input")
    assert book.log_size() == before


def test_pages_link_to_the_next_one(book, client):
    ids = [book.remember(f"note {number}", space="team/a").id for number in range(5)]
    path, seen = "/v1/memories?space=team%2Fa&limit=2", []
    while path:
        page = client.get(path)
        seen += [item["id"] for item in page.json()["items"]]
        path = page.links["next"]["url"] if "next" in page.links else ""
        assert (path != "") == (page.json()["next"] is not None)
    assert seen == ids[::-1]


def test_filters_in_the_query_are_those_of_the_book(book, client):
    book.remember("one", kind="fact", tags=["a", "b"], metadata={"ticket": 12, "open": True})
    book.remember("two", kind="fact", tags=["a"])
    parameters = [("kinds", "fact"), ("tags", "a"), ("tags", "b"), ("metadata", '{"ticket":12,"open":true}')]
    page = client.get("/v1/memories", params=parameters).json()
    chosen = Filter(kinds=("fact",), tags=("a", "b"), metadata={"ticket": 12, "open": True})
    assert page == encode(book.list(chosen))
    assert len(page["items"]) == 1


def test_an_empty_filter_deletes_nothing(book, client):
    kept = book.remember("stays").id
    for query in ("", "?metadata={}", "?deleted=false", "?dry_run=true"):
        assert client.delete(f"/v1/memories{query}").status_code == 400
    assert book.get(kept).deleted is None


def test_messages_of_all_shapes_are_appended(book, client):
    messages = ["a text", {"text": "ours", "client_id": "c1"}, {"role": "assistant", "content": "a chat"}]
    receipt = client.post("/v1/sessions/talk/messages", json={"messages": messages}).json()
    assert [message["seq"] for message in receipt["messages"]] == [1, 2, 3]
    assert [message.text for message in book.messages("talk").items] == ["a text", "ours", "a chat"]


def test_a_recall_is_prefetched_by_one_request_and_fetched_by_another(book, client):
    book.remember("Alice owns billing")
    client.post("/v1/sessions/talk/messages", json={"messages": ["hi"]})
    wanted = {"query": "billing"}
    assert client.post("/v1/sessions/talk/prefetch", json={**wanted, "k": 2}).json() is True
    result = client.post("/v1/sessions/talk/prefetched", json={**wanted, "wait": 60}).json()
    assert result["hits"][0]["text"] == "Alice owns billing"
    assert client.post("/v1/sessions/talk/prefetched", json=wanted).json() is None


def test_a_prefetched_result_is_given_to_the_principal_that_asked(book, client, client_of):
    book.remember("Alice owns billing")
    book.append("talk", ["hi"], space="team")
    book.grant("agent:helper", "team", "reader")
    helper = client_of(book.create_key("agent:helper").secret)
    wanted = {"query": "billing", "space": "team"}
    assert client.post("/v1/sessions/talk/prefetch", json={**wanted, "spaces": "personal"}).json() is True
    assert helper.post("/v1/sessions/talk/prefetched", json={**wanted, "wait": 1}).json() is None
    assert client.post("/v1/sessions/talk/prefetched", json={**wanted, "wait": 60}).json()["hits"]


def test_an_unknown_path_and_method_are_problems(client):
    assert problem_of(client.get("/v1/nothing"))["status"] == 404
    wrong = client.put("/v1/recall", json={})
    assert problem_of(wrong)["status"] == 405
    assert wrong.headers["allow"] == "POST"
    assert client.get("/v1/memories/").status_code == 404


@pytest.mark.promise("http.shapes")
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"null",
        b"{",
        b"\xff\xfe",
        b'{"text": "\xff"}',
        b'{"text": "\\ud800"}',
        b'{"text": "x", "importance": NaN}',
        b'{"text": "x", "importance": 1e999}',
        b'{"text": "x", "importance": "high"}',
        b'{"text": 3}',
        b'{"text": "x", "tags": "a"}',
        b'{"text": "x", "metadata": {"a": [[1]]}}',
        b'{"text": "x", "metadata": ' + b'{"a":' * 500 + b"1" + b"}" * 501,
        b"[" * 100_000,
        b'{"text": "x", "valid_from": 12}',
    ],
)
def test_a_body_of_another_shape_is_refused_and_stores_nothing(book, client, body):
    answer = client.post("/v1/memories", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 422)
    problem_of(answer)
    assert book.list().items == ()


@pytest.mark.parametrize(
    ("path", "arguments"),
    [
        ("/v1/memories", {"text": "half \ud800"}),
        ("/v1/memories", {"text": "x", "title": "half \udfff"}),
        ("/v1/memories", {"text": "x", "tags": ["a", "\udc00"]}),
        ("/v1/memories/batch", {"drafts": [{"text": "\ud83d"}]}),
        ("/v1/sessions/s/messages", {"messages": [{"text": "\ud800"}]}),
    ],
)
def test_a_lone_surrogate_is_refused_as_by_the_book(book, client, path, arguments):
    answer = client.post(path, content=json.dumps(arguments), headers={"Idempotency-Key": "k"})
    details = problem_of(answer)
    assert (details["status"], details["type"]) == (400, "bad_text")
    assert "surrogate" in details["detail"]
    assert book.list().items == ()


def test_a_surrogate_that_is_not_the_fault_of_a_request_is_not_named(client):
    pair = b'{"text": "\\ud83d\\ude00", "colour": 1}'
    assert "'colour'" in problem_of(client.post("/v1/memories", content=pair))["detail"]
    assert problem_of(client.post("/v1/memories", content=b'{"text": "\\ud800"'))["type"] == "bad_input"


def test_of_a_field_that_is_sent_twice_the_last_counts(book, client):
    answer = client.post("/v1/memories", content=b'{"text": "first", "text": "last"}')
    assert book.get(answer.json()["id"]).text == "last"


@pytest.mark.parametrize("number", [10**30, -(10**30), 2**63, 2**31, -1])
def test_numbers_beyond_all_limits_are_refused_or_answered(client, number):
    for path in (f"memories?limit={number}", f"sessions/x/messages?after={number}", f"inbox?limit={number}"):
        assert client.get(f"/v1/{path}").status_code in (200, 400, 404, 422)
    for body in ({"k": number}, {"budget_tokens": number}, {"min_confidence": number}):
        assert client.post("/v1/recall", json=body).status_code in (200, 400, 422)


def test_a_duration_of_more_than_a_day_is_refused(client):
    path, wanted = "/v1/sessions/talk/prefetched", {"query": "x"}
    for seconds in (1e300, 86_401, -1):
        assert problem_of(client.post("/v1/work", json={"seconds": seconds}))["status"] == 400
        assert problem_of(client.post(path, json={**wanted, "wait": seconds}))["status"] == 400


def test_a_body_that_is_not_json_by_its_type_is_refused(client):
    answer = client.post("/v1/memories", content=b'{"text": "x"}', headers={"Content-Type": "text/plain"})
    assert problem_of(answer)["status"] == 415


@pytest.mark.parametrize("id_", ["..", "%2e%2e", "%2E%2E%2F%2E%2E", "..%2f..%2fetc%2fpasswd", "%00", "a%00b", "%ff"])
def test_a_trick_in_a_path_finds_nothing(client, id_):
    for suffix in ("", "/history", "/links"):
        assert client.get(f"/v1/memories/{id_}{suffix}").status_code in (400, 404, 405, 422)


@pytest.mark.parametrize("space", ["../x", "/etc", "a/../b", "a//b", "\x00", ".commonbook", "a\\b", "CON"])
def test_a_trick_in_the_name_of_a_space_is_refused(client, space):
    assert client.post("/v1/memories", json={"text": "x", "space": space}).status_code in (400, 422)


@pytest.mark.promise("http.faults")
def test_a_fault_of_the_program_tells_nothing_but_the_id_of_the_request(app, book, client, monkeypatch, caplog):
    def fail(*_arguments, **_options):
        raise RuntimeError("the secret text of a memory")

    monkeypatch.setattr("commonbook.service.book.Book.recall", fail)
    answer = client.post("/v1/recall", json={"query": "x"})
    details = problem_of(answer)
    assert (details["status"], details["type"]) == (500, "server_failed")
    assert "secret" not in answer.text + caplog.text
    assert details["instance"] in caplog.text


def test_a_revoked_key_is_refused_at_once(book, client_of):
    key = book.create_key("user:local")
    client = client_of(key.secret)
    assert client.get("/v1/actor").json() == "user:local"
    book.revoke_key(key.key.id)
    assert problem_of(client.get("/v1/actor"))["status"] == 401


def test_every_answer_fits_its_documented_model(book, client):
    memory = book.remember("one", space="team", metadata={"a": 1}).id
    other = book.reflect("two", [memory], space="team").id
    book.share(memory, "copies")
    book.supersede(memory, book.remember("three").id)
    book.append("talk", ["hi"], space="team")
    book.record_uses("talk", [PromptPassage(memory, "0" * 64)], space="team")
    book.grant("agent:helper", "team", "reader")
    book.add_rule("other", "team")
    book.set_limit("share", 9)
    given = {
        "find_id": {"part": memory},
        "messages": {"session": "talk"},
        "session_uses": {"session": "talk"},
        "log": {"space": "team"},
        "get": {"memory_id": other},
    }
    for verb in VERBS.values():
        if verb.method != "GET" or verb.archive:
            continue
        arguments = dict(given.get(verb.name, {}))
        arguments |= {"memory_id": arguments.get("memory_id", memory)} if "memory_id" in verb.path_arguments else {}
        request = request_of(verb, arguments)
        answer = client.get(request.path, params=list(request.query))
        assert answer.status_code == 200, answer.text
        jsonschema_rs.Draft202012Validator(schema(result_of(verb.name))).validate(answer.json())


def test_the_document_describes_every_verb(client):
    document = client.get("/openapi.json").json()
    operations = [operation for path in document["paths"].values() for operation in path.values()]
    assert {name for operation in operations for name in operation["operationId"].split("_or_")} == {
        *VERBS,
        "delete_several",
    }
    for operation in operations:
        assert operation["summary"]
        assert operation["responses"]["200"]["content"]

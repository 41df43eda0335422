"""The paths of HTTP: things have paths, methods say what happens to them, and names may have slashes."""

from __future__ import annotations

import pytest

from commonbook.service.book import Book
from commonbook.verbs.requests import VERBS, request_of

ODD_NAMES = [
    "talk",
    "team/2026/may",
    "/",
    "a//b",
    "..",
    "a/../b",
    "a?c#d",
    "späße",
    "messages",
    "x/messages",
]


def ids_of(book: Book) -> set[str]:
    return {memory.id for memory in book.list().items}


def test_one_memory_is_deleted_by_its_path(book, client):
    one = book.remember("one").id
    assert client.delete(f"/v1/memories/{one}?dry_run=true").status_code == 200
    assert ids_of(book) == {one}
    assert client.delete(f"/v1/memories/{one}", headers={"If-Match": '"7"'}).status_code == 412
    assert client.delete(f"/v1/memories/{one}", headers={"If-Match": '"1"'}).status_code == 200
    assert ids_of(book) == set()


def test_several_memories_are_deleted_at_once_all_or_none(book, client):
    ids = [book.remember(text).id for text in ("one", "two")]
    unknown = "01a1e0fa-b693-70c3-9466-cb4f44719619"
    assert client.post("/v1/memories/delete", json={"ids": [*ids, unknown]}).status_code == 404
    assert ids_of(book) == {*ids}
    assert client.post("/v1/memories/delete", json={"ids": ids}).status_code == 200
    assert ids_of(book) == set()


def test_what_a_list_shows_is_deleted_by_the_same_query(book, client):
    book.remember("goes", tags=["old"])
    kept = book.remember("stays", tags=["new"]).id
    assert len(client.get("/v1/memories?tags=old").json()["items"]) == 1
    assert client.delete("/v1/memories?tags=old").status_code == 200
    assert ids_of(book) == {kept}


def test_a_deletion_with_a_body_is_refused_and_deletes_nothing(book, client):
    one = book.remember("one").id
    for path in (f"/v1/memories/{one}", "/v1/memories?kinds=note"):
        answer = client.request("DELETE", path, json={"dry_run": True})
        assert (answer.status_code, answer.json()["detail"]) == (422, "a DELETE has no body")
    assert ids_of(book) == {one}


@pytest.mark.parametrize("name", ODD_NAMES)
def test_a_session_has_its_name_in_the_path(book, client, name):
    for number, verb in enumerate(("append", "append", "messages", "settle", "close_session"), 1):
        arguments = {"session": name} | ({"messages": [f"message {number}"]} if verb == "append" else {})
        request = request_of(VERBS[verb], arguments)
        answer = client.request(request.method, request.path, content=request.body)
        assert answer.status_code == 200, answer.text
    assert [session.id for session in book.sessions()] == [name]
    assert len(book.messages(name).items) == 2


def test_a_plain_slash_in_a_name_is_taken_too(book, client):
    for path in ("/v1/sessions/team/may/messages", "/v1/sessions/team%2Fmay/messages"):
        assert client.post(path, json={"messages": ["hi"]}).status_code == 200
    assert [session.id for session in book.sessions()] == ["team/may"]


@pytest.mark.parametrize("path", ["/v1/spaces/team%2Fbackend", "/v1/spaces/team/backend"])
def test_a_space_is_changed_by_its_path(book, client, path):
    book.create_space("team/backend")
    assert client.patch(path, json={"review": "agents"}).json()["review"] == "agents"
    assert client.patch(path, json={"review": None}).json()["review"] is None
    assert client.patch(path, json={"depth": 3}).json()["depth"] == 3
    assert client.patch(path, json={"name": "team/web"}).json()["name"] == "team/web"
    assert "team/web" in {space.name for space in book.spaces()}


def test_one_request_changes_one_thing_of_a_space(book, client):
    book.create_space("team")
    answer = client.patch("/v1/spaces/team", json={"name": "crew", "depth": 3})
    assert (answer.status_code, answer.json()["type"]) == (422, "bad_input")
    assert client.patch("/v1/spaces/team", json={}).status_code == 422
    assert "team" in {space.name for space in book.spaces()}


def test_grants_and_links_are_taken_away_by_what_they_connect(book, client):
    one, other = book.remember("one", space="s").id, book.remember("two", space="s").id
    link = {"source": one, "relation": "related_to", "target": other}
    assert client.post("/v1/links", json=link).status_code == 200
    assert client.delete("/v1/links", params=link).status_code == 200
    assert book.links(one) == ()
    client.post("/v1/grants", json={"principal": "agent:helper", "space": "s", "role": "reader"})
    assert client.delete("/v1/grants?principal=agent:helper&space=s").status_code == 200
    assert "agent:helper" not in {grant.principal for grant in book.grants(space="s")}


def test_a_wrong_method_is_answered_with_all_methods_of_the_path(client):
    for path, methods in (("memories", "DELETE, GET, POST"), ("memories/x", "DELETE, GET, PATCH"), ("recall", "POST")):
        answer = client.put(f"/v1/{path}", json={})
        assert (answer.status_code, answer.headers["allow"]) == (405, methods)


@pytest.mark.promise("http.shapes")
@pytest.mark.parametrize(
    ("body", "detail"),
    [
        ({}, "'text': missing"),
        ({"text": 3}, "'text': a whole number in place of a text"),
        ({"text": "x", "tags": "a"}, "'tags': a text in place of a list"),
        ({"text": "x", "links": [["related_to", "a"], ["b"]]}, "'links[1]': a list in place of a list of 2"),
        (
            {"text": "x", "metadata": {"a": {}}},
            "'metadata.a': an object in place of a text or a whole number or a number",
        ),
        ({"text": "x", "importance": "high"}, "'importance': a text in place of a number"),
        ([], "a list in place of an object"),
    ],
)
def test_a_bad_argument_is_named_with_its_place_and_the_fix(client, body, detail):
    problem = client.post("/v1/memories", json=body).json()
    assert (problem["status"], problem["type"]) == (422, "bad_input")
    assert problem["detail"].startswith(detail)
    assert problem["fix"].startswith("the arguments of remember are: text, space, kind")

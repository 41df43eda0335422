"""Idempotency keys: a repeat of a request gets the first answer byte by byte, and changes nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from httpx2 import Response
from starlette.testclient import TestClient

from commonbook.engines.process import SystemClock
from commonbook.interfaces.http.app import make_app
from commonbook.ports.keys import Clock
from commonbook.service.book import Book
from commonbook.values.memory import Filter, Refresh
from commonbook.verbs.declaration import Verb
from commonbook.verbs.requests import VERBS, fields_of_verb, request_of

CHANGING = tuple(verb for verb in VERBS.values() if verb.changes and not verb.archive)


def send(client: TestClient, verb: Verb, arguments: dict[str, Any], key: str | None = None) -> Response:
    """Send the request of a verb."""
    request = request_of(verb, arguments)
    headers = {} if key is None else {"Idempotency-Key": key}
    return client.request(
        request.method, request.path, params=list(request.query), content=request.body, headers=headers
    )


def suspect(book: Book) -> tuple[str, str]:
    """Return a memory that is suspect, and another one that can take its place."""
    base, other = book.remember("base", space="s").id, book.remember("other", space="s").id
    reflection = book.reflect("on base", [base], space="s").id
    book.supersede(base, other)
    return reflection, other


def copy_of(book: Book, refresh: Refresh = "live") -> str:
    """Return a copy in the space `team`."""
    return book.share(book.remember(os.urandom(4).hex(), space="s").id, "team", refresh=refresh).id


def request_to_decide(book: Book) -> str:
    board = book.create_space(f"board{os.urandom(3).hex()}").name
    book.grant("agent:asker", "s", "writer")
    book.grant("agent:asker", board, "reader")
    asker = book.acting_as("agent:asker")
    return asker.request_share(asker.remember("please", space="s").id, board).id


def memory(book: Book) -> str:
    return book.remember("a memory", space="s").id


def two(book: Book) -> list[str]:
    return [memory(book), memory(book)]


def session(book: Book) -> dict[str, Any]:
    book.append("talk", [f"message {number}" for number in range(4)], space="s")
    return {"session": "talk", "space": "s"}


def superseded(book: Book) -> str:
    old, new = two(book)
    book.supersede(old, new)
    return old


def linked(book: Book) -> dict[str, Any]:
    source, target = two(book)
    book.link(source, "related_to", target)
    return {"source": source, "relation": "related_to", "target": target}


def deleted(book: Book) -> str:
    gone = memory(book)
    book.delete(gone)
    return gone


ARGUMENTS: dict[str, Callable[[Book], dict[str, Any]]] = {
    "remember": lambda _: {"text": "new", "space": "s"},
    "remember_many": lambda _: {"drafts": [{"text": "one", "space": "s"}, {"text": "two", "space": "t"}]},
    "edit": lambda book: {"memory_id": memory(book), "text": "edited, with sk-ant-api03-" + "a1B2c3D4" * 6},
    "move": lambda book: {"memory_id": memory(book), "space": "elsewhere"},
    "delete": lambda book: {"ids": two(book)},
    "delete_where": lambda book: {"chosen": Filter(space=book.get(memory(book)).space)},
    "undelete": lambda book: {"memory_id": deleted(book)},
    "link": lambda book: dict(zip(("source", "target"), two(book), strict=True), relation="related_to"),
    "unlink": linked,
    "append": lambda _: {"session": "new-talk", "messages": ["one", "two"], "space": "s"},
    "switch": lambda book: {"old": session(book)["session"], "new": "next", "space": "s"},
    "rewind": lambda book: {**session(book), "after": 2},
    "record_uses": lambda book: {**session(book), "passages": [{"id": memory(book), "hash": "0" * 64}], "message": 2},
    "settle": session,
    "close_session": session,
    "move_session": lambda book: {**session(book), "to": "team"},
    "share": lambda book: {"memory_id": memory(book), "to": "team"},
    "pull": lambda book: {"memory_id": memory(book)},
    "share_many": lambda book: {"ids": two(book), "to": "team"},
    "share_with": lambda book: {"memory_id": memory(book), "principal": "user:bob"},
    "unshare": lambda book: {"copy_id": copy_of(book)},
    "refresh": lambda book: {"copy_id": copy_of(book, "snapshot")},
    "set_refresh": lambda book: {"copy_id": copy_of(book), "mode": "lazy"},
    "detach": lambda book: {"copy_id": copy_of(book)},
    "adopt": lambda book: {"copy_id": edited_copy(book)},
    "adopt_all": lambda book: {},
    "add_rule": lambda book: {"space": "team", "from_space": book.get(memory(book)).space},
    "remove_rule": lambda book: {"rule_id": rule(book)},
    "request_share": lambda book: {"memory_id": memory(book), "to": book.create_space("hall").name},
    "approve": lambda book: {"request_id": request_to_decide(book)},
    "reject": lambda book: {"request_id": request_to_decide(book)},
    "reflect": lambda book: {"text": "so", "on": two(book), "space": "s"},
    "supersede": lambda book: dict(zip(("old", "by"), two(book), strict=True)),
    "reinstate": lambda book: {"old": superseded(book)},
    "triage": lambda book: {"memory_id": suspect(book)[0], "verdict": "keep"},
    "set_depth": lambda book: {"space": book.create_space("deep").name, "depth": 2},
    "set_review": lambda book: {"space": book.create_space("reviewed").name, "review": "agents"},
    "create_space": lambda _: {"name": "brand/new"},
    "rename_space": lambda book: {"space": book.create_space("before").name, "name": "after"},
    "grant": lambda book: {"principal": "agent:a", "space": book.create_space("g").name, "role": "reader"},
    "revoke": lambda book: {"principal": granted(book), "space": "h"},
    "create_key": lambda _: {"principal": "agent:b"},
    "revoke_key": lambda book: {"key_id": book.create_key("agent:c").key.id},
    "create_login": lambda book: {"key_id": book.create_key("agent:e").key.id},
    "create_sign_in": lambda _: {},
    "set_limit": lambda _: {"action": "share", "per_minute": 1000},
    "sync": lambda _: {},
    "rebuild": lambda _: {},
    "reindex": lambda book: {"anew": bool(memory(book))},
    "accept_deletions": lambda _: {},
    "work": lambda _: {"seconds": 1},
}


def edited_copy(book: Book) -> str:
    copy = copy_of(book)
    book.edit(copy, text="edited here")
    return copy


def rule(book: Book) -> str:
    book.create_space("from")
    book.create_space("into")
    return book.add_rule("into", "from").id


def granted(book: Book) -> str:
    book.create_space("h")
    return book.grant("agent:d", "h", "reader").principal


def entries(book: Book) -> int:
    return book.status().log_entries


def test_two_keys_of_one_request_are_refused(book, client):
    twice = [("Idempotency-Key", "a"), ("Idempotency-Key", "b")]
    assert client.post("/v1/memories", json={"text": "one"}, headers=twice).status_code == 400
    assert book.list().items == ()


def test_the_table_has_every_changing_verb():
    assert ARGUMENTS.keys() == {verb.name for verb in CHANGING}


@pytest.mark.promise("http.idempotency")
def test_every_changing_verb_is_done_once_for_a_key(book, client, subtests):
    book.create_space("team")
    for verb in CHANGING:
        with subtests.test(verb.name):
            arguments = ARGUMENTS[verb.name](book)
            first = send(client, verb, arguments, f"key of {verb.name}")
            assert first.status_code == 200, first.text
            before = entries(book)
            again = send(client, verb, arguments, f"key of {verb.name}")
            assert again.status_code == 200, again.text
            assert again.content == first.content
            assert again.headers.get("etag") == first.headers.get("etag")
            assert entries(book) == before
            other = send(client, verb, {**arguments, **another(verb)}, f"key of {verb.name}")
            if another(verb):
                assert (other.status_code, other.json()["type"]) == (409, "key_conflict"), other.text
                assert entries(book) == before


def another(verb: Verb) -> dict[str, Any]:
    """Return an argument that makes another request of one of the same verb."""
    texts = {
        argument.name
        for argument in fields_of_verb(verb.name)
        if argument.name in ("note", "reason", "title", "label", "text", "name", "new", "to", "target", "space", "mode")
    } - set(verb.path_arguments)
    return {min(texts): "snapshot"} if texts else {}


def test_the_answer_to_a_repeat_has_the_version_of_the_first(book, client):
    memory_id = memory(book)
    first = send(client, VERBS["edit"], {"memory_id": memory_id, "text": "one"}, "k")
    send(client, VERBS["edit"], {"memory_id": memory_id, "text": "two"})
    again = send(client, VERBS["edit"], {"memory_id": memory_id, "text": "one"}, "k")
    assert again.json()["version"] == first.json()["version"] == 2
    assert again.headers["etag"] == '"2"'
    assert book.get(memory_id).text == "two"


def test_a_refused_request_may_come_again_with_its_key(book, client):
    late = {"source": memory(book), "relation": "related_to", "target": "01a19a5c-7d1e-7c3a-9f61-0b2f4c6e8a10"}
    assert send(client, VERBS["link"], late, "k").status_code == 404
    assert send(client, VERBS["link"], late, "k").status_code == 404
    good = {**late, "target": memory(book)}
    assert send(client, VERBS["link"], good, "k").status_code == 200


@pytest.mark.parametrize("key", ['"quoted"', "bare"])
def test_a_key_is_quoted_or_bare(book, client, key):
    assert send(client, VERBS["remember"], {"text": "x"}, key).status_code == 200
    again = send(client, VERBS["remember"], {"text": "x"}, key.strip('"'))
    assert again.json()["new"] is True
    assert len(book.list().items) == 1


@pytest.mark.parametrize("key", ["", '""', "x" * 201, "a\tb"])
def test_a_key_that_is_none_is_refused(book, client, key):
    assert send(client, VERBS["remember"], {"text": "x"}, key).status_code == 400
    assert book.list().items == ()


def test_two_principals_may_use_the_same_key(book, client, client_of):
    book.create_space("s")
    book.grant("agent:a", "s", "writer")
    helper = client_of(book.create_key("agent:a").secret)
    one = send(client, VERBS["remember"], {"text": "x", "space": "s"}, "k")
    other = send(helper, VERBS["remember"], {"text": "y", "space": "s"}, "k")
    assert one.json()["id"] != other.json()["id"]


@pytest.mark.promise("http.idempotency")
def test_neither_key_nor_answer_can_be_read_in_the_database(book, client, stored):
    secret = send(client, VERBS["create_key"], {"principal": "agent:a"}, "a-key-of-ours").json()["secret"]
    everything = b"".join(stored().values())
    assert secret.encode() not in everything
    assert b"a-key-of-ours" not in everything


@pytest.mark.promise("http.idempotency")
def test_of_concurrent_requests_with_one_key_one_runs_and_all_get_its_answer(book, app):
    secret = book.create_key("user:local").secret
    answers: list[bytes] = []
    start = threading.Barrier(6)

    def run(verb: str, arguments: dict[str, Any], key: str) -> None:
        with TestClient(app, headers={"Authorization": f"Bearer {secret}"}) as own:
            start.wait()
            answers.append(send(own, VERBS[verb], arguments, key).content)

    book.append("talk", ["first"])
    for verb, arguments in (
        ("remember", {"text": "once"}),
        ("create_space", {"name": "made/once"}),
        ("append", {"session": "talk", "messages": ["once"]}),
    ):
        answers.clear()
        threads = [threading.Thread(target=run, args=(verb, arguments, f"key {verb}")) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(answers) == 6
        assert len(set(answers)) == 1, answers
        assert b'"status"' not in answers[0]
    assert len(book.list().items) == 1
    assert [message.text for message in book.messages("talk").items] == ["first", "once"]


def test_concurrent_appends_with_keys_share_transactions_and_keep_their_answers(book, app):
    secret = book.create_key("user:local").secret
    for number in range(4):
        book.append(f"talk-{number}", ["first"])
    answers: dict[tuple[int, int], bytes] = {}

    def run(number: int) -> None:
        with TestClient(app, headers={"Authorization": f"Bearer {secret}"}) as own:
            for turn in range(6):
                arguments = {"session": f"talk-{number}", "messages": [f"turn {turn}"]}
                first = send(own, VERBS["append"], arguments, f"{number} {turn}")
                assert first.status_code == 200, first.text
                answers[number, turn] = first.content
                assert send(own, VERBS["append"], arguments, f"{number} {turn}").content == first.content

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 24
    for number in range(4):
        texts = [message.text for message in book.messages(f"talk-{number}").items]
        assert texts == ["first", *(f"turn {turn}" for turn in range(6))]


_CHILD = """
import os, signal, sys
import commonbook
from starlette.testclient import TestClient
from commonbook.interfaces.http import app as app_module, routes
with commonbook.open(sys.argv[1]) as book:
    client = TestClient(app_module.make_app(book), headers={"Authorization": f"Bearer {sys.argv[2]}"})
    once = routes.answer_once
    def killed(*arguments, **options):
        once(*arguments, **options)
        os.kill(os.getpid(), signal.SIGKILL)
    routes.answer_once = killed
    client.request(sys.argv[3], sys.argv[4], content=sys.argv[5], headers={"Idempotency-Key": "k"})
"""


@pytest.mark.promise("http.idempotency")
@pytest.mark.parametrize(
    ("verb", "arguments"),
    [
        ("remember", {"text": "once"}),
        ("append", {"session": "talk", "messages": ["once"]}),
        ("create_key", {"principal": "agent:a"}),
    ],
)
def test_the_repeat_gets_the_answer_of_a_server_that_was_killed_after_the_commit(place, open_book, verb, arguments):
    book = open_book()
    secret = book.create_key("user:local").secret
    request = request_of(VERBS[verb], arguments)
    child = [sys.executable, "-c", _CHILD, str(place), secret, request.method, request.path]
    ended = subprocess.run([*child, (request.body or b"").decode()], check=False)
    assert ended.returncode == -signal.SIGKILL
    before = entries(book)
    client = TestClient(make_app(book), headers={"Authorization": f"Bearer {secret}"})
    again = send(client, VERBS[verb], arguments, "k")
    assert again.status_code == 200, again.text
    assert entries(book) == before
    assert len(book.list().items) == (verb == "remember")
    assert len(book.keys()) == 1 + (verb == "create_key")
    if verb == "create_key":
        assert book.with_key(again.json()["secret"]).actor == "agent:a"


class Ahead:
    """A clock that is so far ahead."""

    def __init__(self, clock: Clock, by: timedelta) -> None:
        self._clock, self._by = clock, by

    def now(self) -> datetime:
        return self._clock.now() + self._by


@pytest.mark.promise("http.idempotency")
@pytest.mark.parametrize(("hours", "kept"), [(24, True), (49, False)])
def test_answers_are_kept_for_a_day_and_removed_by_later_requests(book, client, hours, kept, monkeypatch):
    monkeypatch.setattr("commonbook.service.serving.REMOVAL_INTERVAL", 1)
    first = send(client, VERBS["remember"], {"text": "x"}, "k").content
    monkeypatch.setattr(book._engines.db, "_clock", Ahead(SystemClock(), timedelta(hours=hours)))
    send(client, VERBS["remember"], {"text": "y"}, "another")
    assert (send(client, VERBS["remember"], {"text": "x"}, "k").content == first) == kept

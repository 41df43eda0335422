"""A request that is repeated after the book has moved to another database gets its first answer."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.testclient import TestClient

from commonbook.compose.book import open_book
from commonbook.compose.databases import migrate_book
from commonbook.core.settings.settings import Settings
from commonbook.interfaces.http.app import make_app
from commonbook.service.serving import begin_session, find_session
from tests.transfer.test_migrate import empty, settings

pytestmark = pytest.mark.promise("client.once")

__all__ = ["empty"]


@pytest.mark.slow
def test_a_write_that_is_repeated_after_a_migration_gets_its_first_answer(home: Path, empty: str, tmp_path: Path):
    with open_book(Settings.load(home), create=True) as book:
        secret = book.create_key("user:local").secret
        login = book.create_login(book.create_key("agent:helper").key.id)
        new = book.exchange_login(login.code, nonce="of the first client")
        browser, _ = begin_session(book, book.with_key(secret).create_sign_in().code)
        first = answers(book, secret)
    keys = str(tmp_path / "keys")
    migrate_book(Settings.load(home)._replace(keys=keys), empty)
    with open_book(settings(empty, keys)) as book:
        before = book.log_size()
        assert answers(book, secret) == first
        assert book.log_size() == before
        assert book.exchange_login(login.code, nonce="of the first client") == new
        assert find_session(book, browser).key.principal == "user:local"


def answers(book, secret: str) -> list[tuple[int, bytes]]:
    """Send writes with idempotency keys, and return the answers."""
    client = TestClient(make_app(book), headers={"Authorization": f"Bearer {secret}"})
    sent = [
        ("/v1/memories", {"text": "Alice owns billing", "space": "team"}),
        ("/v1/sessions/talk/messages", {"messages": [{"text": "hello"}], "space": "team"}),
        ("/v1/keys", {"principal": "agent:other"}),
        ("/v1/spaces", {"name": "brand/new"}),
    ]
    found = [
        client.post(path, json=body, headers={"Idempotency-Key": f"request {at}"})
        for at, (path, body) in enumerate(sent)
    ]
    assert {answer.status_code for answer in found} == {200}
    return [(answer.status_code, answer.content) for answer in found]

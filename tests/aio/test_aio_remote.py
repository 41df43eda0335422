"""A remote book for asyncio: the verbs are coroutines, and nothing waits in the event loop."""

from __future__ import annotations

import asyncio

import pytest

from commonbook import aio
from commonbook.errors import HomeError, NotFound
from tests.remote.conftest import Connect, Serve, connect, key, serve, server  # noqa: F401 - fixtures

MISSING = "01a1e813-0000-7000-8000-000000000000"


def test_the_verbs_of_a_remote_book_are_coroutines(book, server, key, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    async def main() -> None:
        async with aio.connect(server.url, key) as remote:
            receipts = await asyncio.gather(*(remote.remember(f"note {number}") for number in range(5)))
            assert len({receipt.id for receipt in receipts}) == 5
            assert await remote.actor == "user:local"
            assert (await remote.append("talk", ["hello"])).searchable
            assert (await remote.recall("note")).hits
            with pytest.raises(NotFound):
                await remote.get(MISSING)
        with pytest.raises(HomeError, match="closed"):
            await remote.status()
        waited = await aio.connect(server.url, key)
        assert (await waited.status()).memories >= 5
        await waited.close()

    asyncio.run(main())
    assert [message.text for message in book.messages("talk").items] == ["hello"]

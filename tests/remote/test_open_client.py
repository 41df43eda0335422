"""A client as `compose` makes it: its outbox is in the home, masked, and the home shows what was not sent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

import commonbook
from commonbook.errors import BadInput, KeyConflict, Refused
from commonbook.ports.outbox import OutboxEntry, OutboxMessage, SessionContext
from commonbook.remote.outbox_client import Client
from commonbook.service.book import Book
from commonbook.values.request import RequestContext
from commonbook.values.session import NewMessage
from commonbook.values.spaces import Actor
from tests.support import crashing
from tests.support.outbox_child import Loopback, Server

SECRET = "hunter2x9"
SAID = [
    f"the password={SECRET}",
    "<private>my diary</private> and no more",
]


class ToBook:
    """A transport to a book in the same process, in place of a server."""

    def __init__(self, book: Book) -> None:
        self._book = book

    def append(
        self, session: str, messages: Sequence[OutboxEntry], *, context: SessionContext, timeout: float
    ) -> Mapping[str, object]:
        sent = [NewMessage(one.text, one.role, one.author, one.time, one.client_id) for one in messages]
        try:
            receipt = self._book.append(session, sent, space=context.space, parent=context.parent, tags=context.tags)
        except KeyConflict as error:
            raise Refused(error.message, client_ids=[sent[error.item or 0].client_id or ""]) from error
        return dict(zip([one.client_id for one in messages], receipt.messages, strict=True))


@pytest.fixture
def server(tmp_path):
    return Server(tmp_path / "server")


@pytest.fixture
def opening(chosen):
    opened: list[Client] = []

    def make(transport, **options):
        opened.append(commonbook.open_client(transport, chosen.home, **options))
        return opened[-1]

    yield make
    for one in opened:
        one.close()


def child(mode: str, *args: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.support.outbox_child", mode, *map(str, args)]
    root = Path(__file__).resolve().parents[2]
    return subprocess.Popen(command, stdout=subprocess.PIPE, cwd=root, env=crashing.environment(), bufsize=0)


def on_disk(home):
    return b"".join(path.read_bytes() for path in (home / ".commonbook").glob("outbox.db*"))


@pytest.mark.promise("client.outbox")
def test_what_is_appended_is_on_the_disk_of_the_home_without_secrets(home, opening, server):
    server.be(down=True)
    here = opening(Loopback(server), background=False)
    assert [one.masked for one in here.append("s", [OutboxMessage(text) for text in SAID]).messages] == [1, 1]
    content = on_disk(home)
    assert b"the password=[masked:" in content
    for gone in (SECRET, "my diary"):
        assert gone.encode() not in content
    assert os.stat(home / ".commonbook" / "outbox.db").st_mode & 0o777 == 0o600


@pytest.mark.promise("client.outbox")
@pytest.mark.slow
def test_what_was_appended_before_a_kill_is_sent_once_and_in_order_by_another_process(home, server):
    server.be(down=True)
    with child("append_and_die", server.folder, home) as first:
        assert first.wait(60) == -signal.SIGKILL
    assert server.texts() == []
    assert SECRET.encode() not in on_disk(home)
    server.be(lost=0.5)
    with child("send_home", server.folder, home) as second, child("send_home", server.folder, home) as third:
        assert crashing.finish(second) == crashing.finish(third) == [True]
    one, two, three = server.texts("s")
    assert (one, three) == ("one", "three")
    assert two.startswith("two, by the way: password=[masked:")
    assert len(server.texts()) == 3


def test_what_a_client_sends_is_in_a_book_once_with_its_author_time_and_session(open_book, opening):
    book = open_book()
    here = opening(ToBook(book), background=False)
    for _ in range(2):
        here.append("s", [OutboxMessage("the walrus sleeps", client_id="1")], space="team", tags=["x"])
        here.append("s", [OutboxMessage(SAID[0], role="assistant", author="Eve", client_id="2")], space="team")
        assert here.flush(60)
    session, messages, _ = book.messages("s")
    assert (session.space.name, session.tags) == ("team", ("x",))
    assert [(one.role, one.author, one.client_id) for one in messages] == [
        ("user", "user:local", "1"),
        ("assistant", "Eve", "2"),
    ]
    assert SECRET not in messages[1].text
    here.append("s", [OutboxMessage("another walrus", client_id="1")], space="team")
    assert here.flush(60)
    assert [one.entry.client_id for one in here.refused()] == ["1"]


@pytest.mark.promise("client.set-aside")
def test_status_and_doctor_count_what_was_not_sent_and_name_what_was_refused(open_book, opening, server):
    book = open_book()
    assert (book.status().unsent, book.status().refused, book.doctor()) == (0, 0, ())
    server.be(down=True)
    here = opening(Loopback(server), background=False)
    here.append("s", [OutboxMessage("one"), OutboxMessage("bad")])
    assert (book.status().unsent, book.status().refused, book.doctor()) == (2, 0, ())
    server.be(refuse=["bad"])
    assert here.flush(60)
    assert (book.status().unsent, book.status().refused) == (0, 1)
    (wrong,) = book.doctor()
    assert book.status().findings == (wrong,)
    assert (wrong.what, wrong.why) == ("refused message", "nobody may say bad")
    assert f"message {here.refused()[0].id} of the outbox, session s in personal" == wrong.where
    assert wrong.fix
    stranger = Book(
        book._engines,
        book._settings,
        caller=RequestContext(Actor("agent:stranger")),
        recall_service=book._recall_service,
        outbox_status=book._outbox_status,
    )
    assert (stranger.status().refused, stranger.status().findings) == (0, ())
    here.discard([here.refused()[0].id])
    assert (book.status().refused, book.doctor()) == (0, ())


def test_an_outbox_that_cannot_be_read_is_named_and_kept_and_the_book_goes_on(home, open_book):
    book = open_book()
    box = home / ".commonbook" / "outbox.db"
    box.write_text("no database, but perhaps somebody's")
    (wrong,) = book.status().findings
    assert (wrong.what, wrong.where) == ("outbox", str(box))
    assert wrong.fix
    assert book.doctor() == (wrong,)
    assert box.read_text() == "no database, but perhaps somebody's"
    assert book.append("s", ["on we go"]).durable


@pytest.mark.slow
def test_neither_book_nor_client_waits_for_the_others_lock(open_book, opening, server):
    book, here = open_book(), opening(Loopback(server))
    sent: list[bool] = []
    book._engines.db.write(lambda _tx: sent.append(here.append("s", [OutboxMessage("one")], wait=60).sent))
    assert sent == [True]
    with here._outbox._db.writing():
        assert book.append("s", ["one"]).durable
        assert book.status().unsent == 0


def test_the_environment_says_where_the_outbox_is(home, opening, server, monkeypatch, tmp_path):
    monkeypatch.setenv("COMMONBOOK_OUTBOX", str(tmp_path / "elsewhere" / "box.db"))
    server.be(down=True)
    opening(Loopback(server), background=False).append("s", [OutboxMessage("one")])
    assert (tmp_path / "elsewhere" / "box.db").exists()
    assert not home.exists()


def test_messages_of_other_interfaces_and_plain_texts_go_through_the_outbox(open_book, opening):
    book = open_book()
    here = opening(ToBook(book), background=False)
    here.append("s", ["hello", {"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "image"}]}])
    with pytest.raises(BadInput) as caught:
        here.append("s", ["good", {"role": "user", "content": 5}])
    assert caught.value.item == 1
    assert here.flush(60)
    assert [(one.role, one.text) for one in book.messages("s").items] == [
        ("user", "hello"),
        ("assistant", "a\n[image]"),
    ]

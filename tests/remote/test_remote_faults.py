"""A remote book goes on when a server is stopped, frozen or cut off: nothing is lost, nothing is stored twice.

COMMONBOOK_KILLS     how many rounds of killed clients (2; the full setting is 50)
COMMONBOOK_SEED      what the random moments follow from
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest

from commonbook.errors import NotAllowed, Unreachable
from commonbook.ports.outbox import OutboxCounts
from commonbook.remote import http, sender
from commonbook.values.session import NewMessage
from tests.support import crashing
from tests.support.http_servers import ROOT, Cable

KILLS = int(os.environ.get("COMMONBOOK_KILLS", "2"))
SEED = os.environ["COMMONBOOK_SEED"]
DEADLINE = 60.0
"""For what must happen, on a machine that is busy with other things."""


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "_FIRST_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(sender, "_MAX_PAUSE_SECONDS", 0.1)
    monkeypatch.setattr(http, "_MAX_PAUSE_SECONDS", 0.2)


def texts(book, session="talk"):
    return [message.text for message in book.messages(session).items]


def until(condition: Callable[[], Any]) -> None:
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        threading.Event().wait(0.01)


@pytest.mark.promise("client.faults")
def test_appends_while_the_server_is_down_are_kept_and_arrive_in_order(book, server, serve, connect, key):
    here = connect(server.url, key)
    here.append("talk", ["one"])
    server.kill()
    receipt = here.append("talk", ["two", NewMessage("three", role="assistant")], tags=["late"])
    assert (receipt.durable, receipt.searchable) == (True, False)
    assert [(message.id, message.seq, message.new) for message in receipt.messages] == [("", 0, True)] * 2
    here.append("talk", ["four"])
    assert here.outbox.counts() == OutboxCounts(3, 0)
    with pytest.raises(Unreachable, match="wait in the outbox"):
        connect(server.url, key, patience_seconds=0.3).close_session("talk")
    serve(port=server.port)
    assert here.outbox.flush(DEADLINE)
    assert texts(book) == ["one", "two", "three", "four"]
    assert here.append("talk", ["five"]).messages[0].seq == 5


def test_messages_that_a_client_left_behind_are_sent_by_the_next_one(book, server, serve, connect, key):
    server.kill()
    with connect(server.url, key) as first:
        first.append("talk", ["one", "two"])
    serve(port=server.port)
    second = connect(server.url, key)
    second.append("talk", ["three"])
    assert second.outbox.flush(DEADLINE)
    assert texts(book) == ["one", "two", "three"]


@pytest.mark.promise("client.waits")
def test_a_session_is_settled_only_when_its_messages_have_arrived(book, server, serve, connect, key):
    server.kill()
    here = connect(server.url, key)
    here.append("talk", ["one", "two"])
    serve(port=server.port)
    report = here.close_session("talk")
    assert report.unsettled == 0
    assert texts(book) == ["one", "two"]
    assert book.sessions()[0].closed


@pytest.mark.promise("client.faults")
def test_a_fleet_behind_a_load_balancer_goes_on_when_a_server_is_stopped(book, serve, connect, key):
    first, second = serve(), serve()
    balancer = Cable(first.port, second.port)
    here = connect(balancer.url, key, answer_seconds=DEADLINE)
    try:
        here.append("talk", ["one"])
        first.stop()
        assert here.remember("goes on").new
        assert here.append("talk", ["two"]).messages[0].seq == 2
    finally:
        balancer.close()
    assert texts(book) == ["one", "two"]


@pytest.mark.promise("client.faults")
def test_a_frozen_server_leaves_appends_to_the_outbox(book, server, connect, key):
    here = connect(server.url, key, answer_seconds=1)
    here.append("talk", ["one"])
    server.freeze()
    assert not here.append("talk", ["two"]).searchable
    assert not here.append("talk", ["three"]).searchable
    server.thaw()
    assert here.outbox.flush(DEADLINE)
    assert texts(book) == ["one", "two", "three"]


@pytest.mark.promise("client.faults")
@pytest.mark.parametrize("then", ["it goes on", "it is killed"])
def test_a_server_that_is_frozen_inside_a_transaction_loses_and_doubles_nothing(book, serve, connect, key, then):
    book.append("talk", ["before"])
    second = serve(COMMONBOOK_BUSY_SECONDS="0.5")
    first = serve(program="tests.support.freezing_server")
    here = connect(first.url, key, answer_seconds=5)
    # While the first is frozen, the messages wait in the outbox.
    receipts = {text: here.append("talk", [text]) for text in ("one", "two")}
    first.wait_until_frozen()
    assert all(receipt.durable for receipt in receipts.values())
    arrived = [text for text, receipt in receipts.items() if receipt.searchable]
    assert here.outbox.counts() == OutboxCounts(2 - len(arrived), 0)
    # The second still answers those who read.
    assert texts(connect(second.url, key)) == ["before", *arrived]
    if then == "it goes on":
        first.thaw()
    else:
        first.kill()
        serve(port=first.port)
    assert here.outbox.flush(DEADLINE)
    assert texts(book) == ["before", "one", "two"]
    assert here.append("talk", ["three"]).messages[0].seq == 4


@pytest.mark.promise("client.faults")
@pytest.mark.parametrize("at", ["before the answer", "in the middle of the answer"])
def test_an_append_that_is_cut_off_is_stored_once(book, serve, connect, key, at):
    cable = Cable(serve().port)
    cable.cut_after = 0 if at == "before the answer" else 40
    here = connect(cable.url, key, answer_seconds=DEADLINE)
    try:
        # The answer was lost: the outbox sends the messages again.
        assert not here.append("talk", ["one", "two"]).searchable
        assert here.outbox.flush(DEADLINE)
    finally:
        cable.close()
    assert cable.cuts == 1
    assert texts(book) == ["one", "two"]


@pytest.mark.promise("client.once")
def test_a_write_that_is_cut_off_is_made_once(book, serve, connect, key):
    cable = Cable(serve().port)
    cable.cut_after = 0
    here = connect(cable.url, key, answer_seconds=DEADLINE)
    try:
        receipt = here.remember("only once", space="team")
        moved = here.move(receipt.id, "office", expected_version=receipt.version)
    finally:
        cable.close()
    assert cable.cuts >= 1
    assert [(memory.id, memory.version) for memory in book.list().items] == [(receipt.id, moved.version)]
    assert [entry.action for entry in book.log(space="team")].count("remember") == 1


def test_a_message_that_the_server_refuses_is_set_aside_and_the_others_arrive(book, server, serve, connect):
    book.grant("user:alice", "team", "writer")
    alice = book.create_key("user:alice", space="team")
    server.kill()
    here = connect(server.url, alice.secret)
    here.append("talk", ["one"])
    here.append("other", ["no"], space="personal")
    here.append("talk", ["two"])
    serve(port=server.port)
    assert here.outbox.flush(DEADLINE)
    assert [(message.session, message.entry.text) for message in here.outbox.refused()] == [("other", "no")]
    assert [message.text for message in book.messages("talk", space="team").items] == ["one", "two"]


@pytest.mark.promise("servers.revoked-key", "client.set-aside")
def test_messages_wait_while_their_key_opens_nothing(book, server, serve, connect):
    alice = book.create_key("user:local")
    server.kill()
    here = connect(server.url, alice.secret)
    here.append("talk", ["one"])
    book.revoke_key(alice.key.id)
    serve(port=server.port)
    until(lambda: "opens nothing" in here.outbox.pending()[0].reason)
    assert here.outbox.counts() == OutboxCounts(1, 0)
    with pytest.raises(NotAllowed):
        here.append("elsewhere", ["two"])


@pytest.mark.promise("servers.revoked-key", "client.set-aside")
def test_a_key_that_one_server_revokes_is_refused_by_the_others_at_once(book, serve, connect, key):
    first, second = serve(), serve()
    book.remember("for the team", space="team")
    book.grant("user:alice", "team", "writer")
    alice = book.create_key("user:alice", space="team")
    views = [connect(server.url, alice.secret) for server in (first, second)]
    for view in views:
        assert view.list().items
    connect(first.url, key).revoke_key(alice.key.id)
    for view in views[::-1]:
        for call in (view.list, lambda view=view: view.append("talk", ["x"]), lambda view=view: view.recall("team")):
            with pytest.raises(NotAllowed):
                call()


# --- clients that are killed

CLIENT = """
import json, random, sys
import commonbook
url, key, name, seed = sys.argv[1:]
dice = random.Random(seed)
with commonbook.connect(url, key, space="team", answer_seconds=5) as here:
    for number in range(1, 10_000):
        session = f"s{dice.randrange(3)}"
        texts = [f"{name} {number} {part}" for part in range(dice.randrange(1, 4))]
        print(json.dumps({"begin": texts, "session": session}), flush=True)
        here.append(session, texts)
        print(json.dumps({"done": texts, "session": session}), flush=True)
"""


def client(*args: object) -> subprocess.Popen[bytes]:
    env = {**crashing.environment(), "XDG_STATE_HOME": os.environ["XDG_STATE_HOME"]}
    command = [sys.executable, "-c", CLIENT, *map(str, args)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, env=env, bufsize=0)


@pytest.mark.promise("client.faults")
@pytest.mark.slow
@pytest.mark.timeout(120 + 30 * KILLS)
def test_what_killed_clients_appended_arrives_once_and_in_order(book, serve, connect, key):
    dice = random.Random(SEED)
    server = serve()
    acknowledged: dict[tuple[str, str], list[str]] = defaultdict(list)
    under_way: dict[str, tuple[str, list[str]]] = {}
    for round_ in range(KILLS):
        children = {f"p{at}r{round_}": client(server.url, key, f"p{at}r{round_}", f"{SEED}{at}") for at in range(3)}
        lines = {who: _lines(child, dice.randrange(2, 20)) for who, child in children.items()}
        # In each round the server goes away too, in the middle, so that kills hit both ways of an append.
        server.kill()
        for who, child in children.items():
            lines[who] += _lines(child, dice.randrange(2, 20))
            child.send_signal(signal.SIGKILL)
            assert child.stdout
            lines[who] += child.stdout.readlines()
            child.stdout.close()
            assert child.wait(DEADLINE) == -signal.SIGKILL
        server = serve(port=server.port)
        for who, printed in lines.items():
            for line in (json.loads(line) for line in printed if line.endswith(b"\n")):
                if "begin" in line:
                    under_way[who] = (line["session"], line["begin"])
                else:
                    acknowledged[who, line["session"]] += line["done"]
                    under_way.pop(who)
    here = connect(server.url, key, space="team")
    until(lambda: here.outbox.flush(DEADLINE))
    assert here.outbox.counts() == OutboxCounts(0, 0), SEED
    arrived: dict[tuple[str, str], list[str]] = defaultdict(list)
    for session in book.sessions(space="team"):
        for message in _all_messages(book, session.id):
            arrived[message.split()[0], session.id].append(message)
    assert acknowledged
    for at in acknowledged.keys() | arrived.keys():
        session, began = under_way.get(at[0], ("", []))
        # An append that nobody acknowledged arrives whole, or not at all.
        whole = [acknowledged[at], acknowledged[at] + (began if session == at[1] else [])]
        assert arrived[at] in whole, (SEED, at)


def _lines(child: subprocess.Popen[bytes], count: int) -> list[bytes]:
    assert child.stdout
    return [child.stdout.readline() for _ in range(count)]


def _all_messages(book, session: str) -> list[str]:
    found: list[str] = []
    after: int | None = 0
    while after is not None:
        page = book.messages(session, space="team", after=after, limit=1000)
        found += [message.text for message in page.items]
        after = page.next
    return found


def test_after_a_fork_parent_and_child_both_use_a_remote_book(book, server, key):
    crashing.script(
        """
import os, sys
import commonbook
here = commonbook.connect(sys.argv[1], sys.argv[2])
here.append("talk", ["before"])
pid = os.fork()
if not pid:
    for number in range(5):
        assert here.append("child", [str(number)]).searchable
    os._exit(0)
for number in range(5):
    assert here.append("parent", [str(number)]).searchable
assert os.waitpid(pid, 0)[1] == 0
here.close()
""",
        server.url,
        key,
    )
    for session in ("child", "parent"):
        assert texts(book, session) == [str(number) for number in range(5)]

"""The client's outbox: every appended message arrives once and in order, or is listed as refused.

COMMONBOOK_KILLS     how many rounds of 4 killed processes (3; the full setting is 50)
COMMONBOOK_SEED      what the random moments follow from
"""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from commonbook.engines.sqlite.database import SqliteDatabase
from commonbook.engines.sqlite.outbox import OutboxFile
from commonbook.errors import (
    BadInput,
    BadSpaceName,
    BadText,
    BadTime,
    CommonbookError,
    HomeDamaged,
    HomeError,
    HomeOfAnotherBuild,
    HomeReadOnly,
    KeyConflict,
    NotFound,
    Refused,
    ServerBusy,
    ServerFailed,
    TooLarge,
    Unreachable,
)
from commonbook.ports.outbox import (
    DeliveryOutcome,
    OutboxBatch,
    OutboxCounts,
    OutboxEntry,
    OutboxMessage,
    SessionContext,
)
from commonbook.remote import sender
from commonbook.remote.outbox_client import Client
from commonbook.values.ids import new_id
from commonbook.values.session import MAX_MESSAGE_BYTES
from tests.support import crashing
from tests.support.outbox_child import HandClock, Loopback, Server, client

KILLS = int(os.environ.get("COMMONBOOK_KILLS", "3"))
SEED = os.environ["COMMONBOOK_SEED"]
DEADLINE = 60.0
"""For what must happen, on a machine that is busy with other things."""

Opening = Callable[..., Client]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "remote"


@pytest.fixture
def server(folder: Path) -> Server:
    return Server(folder)


@pytest.fixture
def opening(folder: Path, server: Server) -> Iterator[Opening]:
    """Make clients of the server, as processes of their own would; they are closed at the end."""
    opened: list[Client] = []

    def make(**options: Any) -> Client:
        opened.append(client(folder, **options))
        return opened[-1]

    yield make
    for one in opened:
        one.close()


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "_FIRST_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(sender, "_MAX_PAUSE_SECONDS", 0.1)


def outbox_messages(*texts: str) -> list[OutboxMessage]:
    return [OutboxMessage(text) for text in texts]


def numbers(start: int, end: int) -> list[str]:
    return [str(number) for number in range(start, end)]


# --- durable, in order, once


def test_an_append_is_kept_while_the_server_is_down_and_sent_by_whoever_comes_next(opening, server):
    server.be(down=True)
    first = opening()
    receipt = first.append("a", outbox_messages("one", "two"))
    assert receipt.durable
    assert not receipt.sent
    assert [one.new for one in receipt.messages] == [True, True]
    first.close()
    assert server.texts() == []
    server.be()
    second = opening()
    assert second.flush(DEADLINE)
    assert server.texts("a") == ["one", "two"]
    assert second.counts() == OutboxCounts(0, 0)


def test_an_append_may_wait_a_moment_for_the_server(opening, server):
    here = opening()
    assert here.append("a", outbox_messages("one"), wait=DEADLINE).sent
    server.be(down=True)
    begun = time.monotonic()
    assert not here.append("a", outbox_messages("two"), wait=0.2).sent
    assert time.monotonic() - begun < DEADLINE / 2
    server.be(refuse=["three"])
    assert not here.append("b", outbox_messages("three"), wait=DEADLINE).sent


def test_an_append_is_sent_at_once_by_a_thread_that_had_nothing_to_do(opening, server, monkeypatch):
    monkeypatch.setattr(sender, "_MAX_IDLE_SECONDS", 10 * DEADLINE)
    here = opening()
    for number in range(5):
        time.sleep(0.02)
        here.append("a", outbox_messages(str(number)))
        end = time.monotonic() + DEADLINE
        while here.counts().waiting and time.monotonic() < end:
            time.sleep(0.001)
    assert server.texts() == numbers(0, 5)


def test_without_a_thread_nothing_is_sent_until_somebody_waits(opening, server):
    threads = set(threading.enumerate())
    here = opening(background=False)
    here.append("a", outbox_messages("one"))
    assert set(threading.enumerate()) <= threads
    assert [one.entry.text for one in here.pending()] == ["one"]
    assert server.calls() == []
    assert here.append("a", outbox_messages("two"), wait=DEADLINE).sent
    assert server.texts() == ["one", "two"]
    here.append("b", outbox_messages("three"))
    assert here.flush(DEADLINE)
    assert server.texts("b") == ["three"]


def test_many_messages_go_in_batches_and_in_order(opening, server):
    here = opening()
    for start in range(0, 250, 50):
        here.append("a", outbox_messages(*numbers(start, start + 50)))
    here.append("b", outbox_messages("x" * 700_000, "y" * 700_000, "z"))
    server.be(down=True)
    here.append("c", outbox_messages("1"), space="team/x", tags=["t"])
    here.append("c", outbox_messages("2"), space="team/x", tags=["t"], parent="b")
    server.be()
    assert here.flush(DEADLINE)
    assert server.texts("a") == numbers(0, 250)
    assert [text[0] for text in server.texts("b")] == ["x", "y", "z"]
    assert server.texts("c") == ["1", "2"]
    assert max(len(call) for call in server.calls()) <= 100
    assert all(sum(map(len, call)) <= 1024 * 1024 for call in server.calls())
    assert [call for call in server.calls() if call[0] in "12"][-2:] == [["1"], ["2"]]
    assert ["team/x", None, ["t"]] in server.contexts()
    assert ["team/x", "b", ["t"]] in server.contexts()


@pytest.mark.promise("client.order")
def test_a_lost_answer_does_not_store_a_message_twice(opening, server):
    lost = iter([True] * 3)

    def after(_session):
        if next(lost, False):
            raise Unreachable("the answer was lost")

    here = opening(transport=Loopback(server, after=after))
    here.append("a", outbox_messages("one", "two"))
    here.append("a", outbox_messages("three"))
    assert here.flush(DEADLINE)
    assert server.texts() == ["one", "two", "three"]
    assert len(server.calls()) >= 4


def test_sessions_do_not_wait_for_each_other(opening, server):
    go_on = threading.Event()
    here = opening(transport=Loopback(server, before=lambda session: session == "slow" and go_on.wait(DEADLINE)))
    try:
        here.append("slow", outbox_messages("one"))
        assert here.append("quick", outbox_messages("two"), wait=DEADLINE).sent
        assert here.append("quick", outbox_messages("three"), wait=DEADLINE).sent
        assert server.stored() == [("quick", "two"), ("quick", "three")]
    finally:
        go_on.set()
    assert here.flush(DEADLINE)
    assert server.texts("slow") == ["one"]


@pytest.mark.promise("client.order")
def test_only_one_sender_at_a_time_is_at_work_for_a_session(opening, server):
    inside: set[str] = set()
    together = []

    def before(session):
        together.append(session in inside)
        inside.add(session)
        time.sleep(0.002)

    def after(session):
        inside.discard(session)

    clients = [opening(transport=Loopback(server, before=before, after=after)) for _ in range(2)]
    for number in range(40):
        clients[number % 2].append(f"s{number % 3}", outbox_messages(str(number)))
    assert all(one.flush(DEADLINE) for one in clients)
    for session in range(3):
        assert server.texts(f"s{session}") == [str(n) for n in range(40) if n % 3 == session]
    assert not any(together)


# --- real processes, real kills


def start(mode: str, *args: object) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.support.outbox_child", mode, *map(str, args)]
    root = Path(__file__).resolve().parents[2]
    return subprocess.Popen(command, stdout=subprocess.PIPE, cwd=root, env=crashing.environment(), bufsize=0)


@pytest.fixture
def started() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Start children, and see to it that none is left behind."""
    children = []

    def begin(mode: str, *args: object) -> subprocess.Popen[bytes]:
        children.append(start(mode, *args))
        return children[-1]

    yield begin
    for child in children:
        child.kill()
        child.communicate()


@pytest.mark.promise("client.outbox")
@pytest.mark.slow
@pytest.mark.timeout(120 + 20 * KILLS)
def test_what_killed_clients_appended_arrives_once_and_in_order(folder, server, opening, started):
    dice = random.Random(SEED)
    acknowledged: dict[tuple[str, str], list[str]] = defaultdict(list)
    under_way: dict[str, list[str]] = {}
    for round_ in range(KILLS):
        # Down at first; then up, but losing answers, so that the kills hit the sending too.
        server.be(**({"down": True} if round_ == 0 else {"lost": 0.3, "slow": 0.002}))
        children = {f"p{at}r{round_}": started("work", folder, f"p{at}r{round_}", f"{SEED}-{at}") for at in range(4)}
        for who, lines in _kill_at_random(children, dice).items():
            for line in lines:
                if "begin" in line:
                    under_way[who] = line["begin"]
                else:
                    acknowledged[who, line["session"]] += line["done"]
                    under_way.pop(who)
    server.be()
    assert opening(answer_seconds=1).flush(DEADLINE), SEED
    arrived: dict[tuple[str, str], list[str]] = defaultdict(list)
    for session, text in server.stored():
        arrived[text.split()[0], session].append(text)
    assert len(acknowledged) > KILLS, "the children never got far enough to prove anything"
    for key in acknowledged.keys() | arrived.keys():
        # An append that nobody acknowledged arrives whole, or not at all.
        whole = [acknowledged[key], acknowledged[key] + under_way.get(key[0], [])]
        assert arrived[key] in whole, (SEED, key, arrived[key], whole)


def _kill_at_random(children: dict[str, subprocess.Popen[bytes]], dice: random.Random) -> dict[str, list[Any]]:
    lines: dict[str, list[bytes]] = {}
    for who, child in children.items():
        assert child.stdout
        lines[who] = [child.stdout.readline() for _ in range(dice.randrange(2, 40))]
    time.sleep(dice.expovariate(50))
    for who, child in children.items():
        child.send_signal(signal.SIGKILL)
        assert child.stdout
        lines[who] += child.stdout.readlines()
        assert child.wait(DEADLINE) == -signal.SIGKILL
    return {who: [json.loads(line) for line in output if line.endswith(b"\n")] for who, output in lines.items()}


@pytest.mark.parametrize(("point", "there"), [("before", []), ("after", ["one", "two"])])
def test_a_crash_around_the_servers_answer_neither_loses_nor_doubles(folder, server, opening, started, point, there):
    opening(background=False).append("a", outbox_messages("one", "two"))
    assert started("send", folder, point, "SIGKILL").wait(DEADLINE) == -signal.SIGKILL
    assert server.texts() == there
    here = opening(background=False)
    assert here.counts() == OutboxCounts(2, 0)
    here.append("a", outbox_messages("three"))
    assert here.flush(DEADLINE)
    assert server.texts() == ["one", "two", "three"]


@pytest.mark.parametrize("point", ["before", "after"])
def test_a_sender_that_was_stopped_for_longer_than_its_lease_changes_nothing(folder, server, opening, started, point):
    here = opening(background=False, answer_seconds=0.2)
    here.append("a", outbox_messages("one", "two"))
    child = started("send", folder, point, "SIGSTOP")
    crashing.wait_until_stopped(child)
    here.append("a", outbox_messages("three"))
    assert here.flush(DEADLINE), "nobody took over"
    assert server.texts() == ["one", "two", "three"]
    server.be(refuse=["four"])
    here.append("a", outbox_messages("four", "five"))
    assert here.flush(DEADLINE)
    child.send_signal(signal.SIGCONT)
    assert crashing.finish(child) == [True]
    assert server.texts() == ["one", "two", "three", "five"]
    assert here.counts() == OutboxCounts(0, 1)


@pytest.mark.parametrize("background", [True, False])
def test_after_a_fork_parent_and_child_both_append_and_send(folder, server, background):
    crashing.script(
        """
import os, sys
from pathlib import Path
from commonbook.ports.outbox import OutboxMessage; from tests.support.outbox_child import client
here = client(Path(sys.argv[1]), background=sys.argv[2] == "True")
assert here.append("a", [OutboxMessage("before")], wait=30).sent
here.append("a", [OutboxMessage(str(number)) for number in range(20)])
children = []
for who in "xyz":
    pid = os.fork()
    if not pid:
        for number in range(5):
            here.append(who, [OutboxMessage(f"{who}{number}")])
        assert here.flush(30)
        here.close()
        os._exit(0)
    children.append(pid)
    here.append("a", [OutboxMessage(f"after {who}")])
assert all(os.waitpid(pid, 0)[1] == 0 for pid in children)
assert here.flush(30)
told, telling = os.pipe()
pid = os.fork()
if not pid:
    os.read(told, 1)  # From now on the child is alone.
    assert here.append("alone", [OutboxMessage("x")], wait=30).sent
    os._exit(0)
here.close()
os.write(telling, b".")
assert os.waitpid(pid, 0)[1] == 0
""",
        folder,
        background,
    )
    assert server.texts("a") == ["before", *numbers(0, 20), "after x", "after y", "after z"]
    for who in "xyz":
        assert server.texts(who) == [f"{who}{number}" for number in range(5)]


FILL_UP = """
import os, sys
from pathlib import Path
from commonbook.errors import CommonbookError
from commonbook.ports.outbox import OutboxMessage; from tests.support.outbox_child import Server, client

folder = Path(sys.argv[1])
Server(folder).be(down=True)
kept = []
with client(folder, background=False) as here:
    try:
        for n in range(10_000):
            texts = [f"{n} {part} " + "x" * 20_000 for part in "abc"]
            here.append("s", [OutboxMessage(text) for text in texts])
            kept += texts
    except CommonbookError as error:
        print(error.type)
    else:
        sys.exit("the disk was never full")
    assert [one.entry.text for one in here.pending(limit=10_000)] == kept
    os.remove(folder / "filler")
    Server(folder).be()
    here.append("s", [OutboxMessage("room again")])
    assert here.flush(60)
assert Server(folder).texts() == [*kept, "room again"]
"""


def test_on_a_full_disk_an_append_is_refused_whole_and_nothing_before_it_is_lost(tmp_path):
    disk, script = tmp_path / "disk", tmp_path / "fill_up.py"
    disk.mkdir()
    script.write_text(FILL_UP)
    inside = (
        f"mount -t tmpfs -o size=24m tmpfs {disk} && head -c 18000000 /dev/zero > {disk}/filler"
        f" && {sys.executable} {script} {disk}"
    )
    flags = ["-m"] if os.geteuid() == 0 else ["-r", "-m"]
    done = subprocess.run(
        ["unshare", *flags, "sh", "-c", inside],
        capture_output=True,
        text=True,
        check=False,
        env=crashing.environment(),
        timeout=DEADLINE,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["disk_full"]


# --- what the server does not take


@pytest.mark.promise("client.set-aside")
@pytest.mark.parametrize("unnamed", [False, True])
def test_a_refused_message_steps_aside_with_the_reason_and_its_session_goes_on(opening, server, unnamed):
    server.be(refuse=["bad"], unnamed=unnamed)
    here = opening()
    here.append("a", outbox_messages("one", "bad two", "three", "bad four", "five"))
    assert here.flush(DEADLINE)
    assert server.texts() == ["one", "three", "five"]
    assert here.counts() == OutboxCounts(0, 2)
    here.close()
    here = opening()
    assert [(one.entry.text, one.reason) for one in here.refused()] == [
        ("bad two", "nobody may say bad"),
        ("bad four", "nobody may say bad"),
    ]
    assert here.pending() == ()
    first, second = (one.id for one in here.refused())
    server.be()
    here.append("a", outbox_messages("six"))
    here.retry([first])
    assert here.flush(DEADLINE)
    assert sorted(server.texts()) == ["bad two", "five", "one", "six", "three"]
    here.discard([second])
    assert here.counts() == OutboxCounts(0, 0)


def test_only_what_was_set_aside_can_be_tried_again_or_thrown_away(opening, server):
    server.be(down=True)
    here = opening(background=False)
    (kept,) = here.append("a", outbox_messages("one")).messages
    for verb in (here.retry, here.discard):
        with pytest.raises(NotFound):
            verb([kept.id])
        with pytest.raises(NotFound):
            verb([999])
    assert here.counts() == OutboxCounts(1, 0)


def test_a_message_on_which_the_server_always_fails_steps_aside_in_the_end(opening, server, monkeypatch):
    monkeypatch.setattr(sender, "MAX_FAILURES", 3)
    server.be(fail=["poison"])
    here = opening(background=False)
    here.append("a", outbox_messages("one", "poison", "two"))
    assert here.flush(DEADLINE)
    assert server.texts() == ["one", "two"]
    (aside,) = here.refused()
    assert (aside.entry.text, aside.attempts) == ("poison", 3)
    assert "3 times" in aside.reason
    assert "an error of the server's own" in aside.reason


@pytest.mark.slow
def test_a_server_that_is_down_or_busy_sets_nothing_aside_however_often(opening, server, monkeypatch):
    monkeypatch.setattr(sender, "MAX_FAILURES", 2)
    here = opening(background=False)
    here.append("a", outbox_messages("one"))
    server.be(down=True)
    assert not here.flush(0.5)
    (waits,) = here.pending()
    assert waits.attempts > 2
    assert waits.reason == "nobody listens"
    server.be(busy=0.01)
    assert not here.flush(0.5)
    server.be()
    assert here.flush(DEADLINE)
    assert server.texts() == ["one"]


def test_a_flush_does_not_wait_for_a_pause_of_our_own_to_end(opening, server, monkeypatch):
    monkeypatch.setattr(sender, "_FIRST_PAUSE_SECONDS", 10_000.0)
    monkeypatch.setattr(sender, "_MAX_PAUSE_SECONDS", 10_000.0)
    here = opening(background=False)
    here.append("a", outbox_messages("one"))
    server.be(down=True)
    assert not here.flush(0.2)
    server.be()
    assert here.flush(DEADLINE)


def test_a_server_that_asks_for_a_pause_gets_it(opening, server):
    clock = HandClock()
    here = opening(background=False, clock=clock)
    here.append("a", outbox_messages("one"))
    server.be(busy=900)
    assert not here.flush(0.2)
    server.be()
    assert not here.flush(0.2)
    assert len(server.calls()) == 1
    clock.ahead = timedelta(seconds=901)
    assert here.flush(DEADLINE)


def test_a_server_that_takes_only_some_gets_the_rest_again(opening, server, monkeypatch):
    monkeypatch.setattr(sender, "MAX_FAILURES", 2)

    class Forgetful(Loopback):
        def append(self, session, messages, *, context, timeout):
            answer = super().append(session, messages[:2], context=context, timeout=timeout)
            return {} if messages[0].text == "three" else answer

    here = opening(background=False, transport=Forgetful(server))
    here.append("a", outbox_messages("one", "two", "three", "four"))
    assert here.flush(DEADLINE)
    assert server.texts() == ["one", "two", "three", "four"]
    assert [one.entry.text for one in here.refused()] == ["three"]


def test_a_transport_with_a_mistake_in_it_is_loud_and_loses_nothing(opening, server):
    mistakes = [ValueError("mistake"), KeyboardInterrupt()]

    def before(_session):
        if mistakes:
            raise mistakes.pop()

    here = opening(background=False, transport=Loopback(server, before=before))
    here.append("a", outbox_messages("one"))
    for kind in (KeyboardInterrupt, ValueError):
        with pytest.raises(kind):
            here.flush(DEADLINE)
    assert here.pending()[0].reason == "the transport raised ValueError"
    assert here.flush(DEADLINE)
    assert server.texts() == ["one"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_dies_of_a_mistake_is_followed_by_another(opening, server):
    mistakes = [ValueError("mistake")] * 5

    def before(_session):
        if mistakes:
            raise mistakes.pop()

    here = opening(transport=Loopback(server, before=before), senders=1)
    assert here.append("a", outbox_messages("one"), wait=DEADLINE).sent


# --- leases and clocks


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def box(folder: Path, clock: HandClock) -> Iterator[OutboxFile]:
    box = OutboxFile(str(folder / "box" / "outbox.db"), clock=clock, busy_seconds=30)
    yield box
    box.close()


def put(box: OutboxFile, session: str, *texts: str) -> None:
    entries = [OutboxEntry(f"id {text}", "user", None, text, datetime.now(UTC)) for text in texts]
    box.add(session, entries, context=SessionContext())


def take(box: OutboxFile) -> Any:
    return box.take(new_id(), lease=60.0, most=100, most_bytes=1000)


def test_who_has_lost_the_lease_can_change_nothing(box, clock):
    put(box, "a", "one", "two")
    first = take(box)
    assert first is not None
    assert take(box) is None
    assert 59 < (box.soonest() or 0) <= 60
    clock.ahead += timedelta(seconds=61)
    second = take(box)
    assert second is not None
    assert list(second.entries) == list(first.entries)
    everything = box.held("waiting", limit=10)
    for outcome in (
        DeliveryOutcome(sent=tuple(first.entries)),
        DeliveryOutcome(refused=dict.fromkeys(first.entries, "no")),
        DeliveryOutcome(reason="later", pause=100, failed=True, alone=True),
    ):
        assert not box.settle(first, outcome)
    assert box.held("waiting", limit=10) == everything
    assert take(box) is None
    assert box.settle(second, DeliveryOutcome(sent=tuple(second.entries)))
    assert box.soonest() is None
    put(box, "a", "three")
    assert not box.settle(second, DeliveryOutcome(sent=tuple(second.entries)))
    assert not box.settle(first, DeliveryOutcome(refused=dict.fromkeys(first.entries, "no")))
    third = take(box)
    assert third is not None
    assert [one.text for one in third.entries.values()] == ["three"]


def test_a_lease_that_ended_but_that_nobody_took_is_still_good(box, clock):
    put(box, "a", "one")
    batch = take(box)
    clock.ahead += timedelta(seconds=61)
    assert box.settle(batch, DeliveryOutcome(sent=tuple(batch.entries)))
    assert box.counts() == OutboxCounts(0, 0)


@pytest.mark.parametrize("back", [timedelta(seconds=2), timedelta(days=3650)])
def test_a_clock_that_jumps_back_holds_nothing_up(box, clock, back):
    clock.ahead = timedelta(days=1)
    put(box, "paused", "one")
    batch = take(box)
    assert box.settle(batch, DeliveryOutcome(reason="down", pause=60))
    put(box, "leased", "two")
    assert take(box)
    put(box, "new", "three")
    clock.ahead -= back
    put(box, "new", "four")
    assert {take(box).session for _ in range(3)} == {"paused", "leased", "new"}
    assert take(box) is None
    assert [one.entry.text for one in box.held("waiting", limit=10)] == ["one", "two", "three", "four"]


def test_a_clock_that_jumps_keeps_the_order_of_a_session(opening, server):
    clock = HandClock()
    server.be(down=True)
    here = opening(clock=clock, background=False)
    for number, ahead in enumerate([0, -1000, 500, -100_000]):
        clock.ahead = timedelta(seconds=ahead)
        here.append("a", outbox_messages(str(number)))
        here.flush(0.02)
    server.be()
    assert here.flush(DEADLINE)
    assert server.texts() == numbers(0, 4)


def test_tries_in_a_row_are_counted_until_one_succeeds(box, clock):
    put(box, "a", "one", "two")
    for tries in range(3):
        batch = take(box)
        assert batch.tries == tries
        assert take(box) is None
        box.settle(batch, DeliveryOutcome(reason="down", pause=10))
        assert take(box) is None
        clock.ahead += timedelta(seconds=11)
    batch = take(box)
    box.settle(batch, DeliveryOutcome(sent=tuple(batch.entries)[:1]))
    assert take(box).tries == 0


def test_the_session_that_waited_longest_is_taken_first(box, clock):
    for session in ("c", "a", "b"):
        put(box, session, *(f"{session}{number}" for number in range(3)))
        clock.ahead += timedelta(seconds=1)
    order = []
    for _ in range(6):
        clock.ahead += timedelta(seconds=1)
        batch = box.take(new_id(), lease=60, most=1, most_bytes=1000)
        order.append(batch.session)
        box.settle(batch, DeliveryOutcome(sent=tuple(batch.entries)))
    assert order == ["c", "a", "b", "c", "a", "b"]


def batch_of(*ids: str, tries: int = 0, failures: int = 0) -> OutboxBatch:
    entries = {number: OutboxEntry(id_, "user", None, "text", datetime.now(UTC)) for number, id_ in enumerate(ids)}
    return OutboxBatch("a", "token", SessionContext(), entries, tries, failures)


def test_pauses_grow_with_jitter_up_to_a_cap(monkeypatch):
    monkeypatch.undo()
    pauses = [sender.outcome_of(batch_of("x", tries=n), Unreachable("down"), share=1.0).pause for n in range(40)]
    assert pauses[:4] == [0.25, 0.5, 1.0, 2.0]
    assert pauses[-1] == max(pauses) == 60.0
    assert sender.outcome_of(batch_of("x"), Unreachable("down"), share=0.0).pause == 0.125


@pytest.mark.parametrize(
    ("retry_after", "pause"), [(5.0, 5.0), (0.0, 0.25), (-1.0, 0.25), (float("nan"), 0.25), (float("inf"), 3600.0)]
)
def test_a_pause_that_the_server_asks_for_is_given_within_reason(monkeypatch, retry_after, pause):
    monkeypatch.undo()
    outcome = sender.outcome_of(batch_of("x"), ServerBusy("later", retry_after=retry_after), share=1.0)
    assert outcome == DeliveryOutcome(reason="later", pause=pause, requested_by_server=True)


def test_a_refusal_that_names_nobody_here_is_looked_into():
    refusal = Refused("no", client_ids=["other"])
    assert sender.outcome_of(batch_of("x", "y"), refusal, share=0.5) == DeliveryOutcome(reason="no", alone=True)
    assert sender.outcome_of(batch_of("x"), refusal, share=0.5).refused == {0: "no"}
    failed = sender.outcome_of(batch_of("x", "y", failures=10_000), ServerFailed("oh"), share=0.5)
    assert failed.alone
    assert not failed.refused


# --- what may be appended


def test_the_same_client_id_is_kept_once_and_with_other_words_refused_whole(opening, server):
    server.be(down=True)
    here = opening(background=False)
    first = here.append("a", [OutboxMessage("one", client_id="1")])
    again = here.append("a", [OutboxMessage("one", client_id="1"), OutboxMessage("two", client_id="2")])
    assert [one.new for one in again.messages] == [False, True]
    assert again.messages[0].id == first.messages[0].id
    here.append("b", [OutboxMessage("another session", client_id="1")])
    for other in (OutboxMessage("other", client_id="1"), OutboxMessage("one", role="assistant", client_id="1")):
        with pytest.raises(KeyConflict):
            here.append("a", [OutboxMessage("three", client_id="3"), other])
    with pytest.raises(KeyConflict):
        here.append("a", [OutboxMessage("x", client_id="4"), OutboxMessage("y", client_id="4")])
    assert [one.entry.text for one in here.pending()] == ["one", "two", "another session"]


ODD = [
    "",
    "x" * 1_000_000,
    "\u202eright to left עברית",
    "👩‍👩‍👧 \U0001f9ff",
    "\r\n\t\x1b[0m\x7f",
    "e\u0301 \u00e9",
    "\ufeff\uffff",
]


def test_odd_texts_arrive_as_given(opening, server):
    here = opening()
    here.append("séance👋", outbox_messages(*ODD))
    assert here.flush(DEADLINE)
    assert server.texts("séance👋") == ODD


def test_ten_thousand_messages_in_one_call_are_kept_whole(opening, server):
    here = opening()
    here.append("a", outbox_messages(*numbers(0, 10_000)))
    assert here.flush(DEADLINE)
    assert server.texts("a") == numbers(0, 10_000)


@pytest.mark.parametrize(
    ("session", "messages", "options", "error"),
    [
        ("", outbox_messages("x"), {}, BadInput),
        ("  ", outbox_messages("x"), {}, BadInput),
        (None, outbox_messages("x"), {}, BadInput),
        (7, outbox_messages("x"), {}, BadInput),
        ("a\nb", outbox_messages("x"), {}, BadInput),
        ("a\ud800", outbox_messages("x"), {}, BadInput),
        ("x" * 201, outbox_messages("x"), {}, BadInput),
        ("a b", outbox_messages("x"), {}, BadInput),
        ("a", "letters", {}, BadInput),
        ("a", OutboxMessage("alone"), {}, BadInput),
        ("a", [b"text"], {}, BadInput),
        ("a", [OutboxMessage(None)], {}, BadInput),  # type: ignore[arg-type]
        ("a", [OutboxMessage(b"bytes")], {}, BadInput),  # type: ignore[arg-type]
        ("a", outbox_messages("lone \udc00"), {}, BadText),
        ("a", outbox_messages("nul \0"), {}, BadText),
        ("a", outbox_messages("é" * (MAX_MESSAGE_BYTES // 2 + 1)), {}, TooLarge),
        ("a", [OutboxMessage("x", role="")], {}, BadInput),
        ("a", [OutboxMessage("x", role="The User")], {}, BadInput),
        ("a", [OutboxMessage("x", client_id=7)], {}, BadInput),  # type: ignore[arg-type]
        ("a", [OutboxMessage("x", author="\0")], {}, BadInput),
        ("a", [OutboxMessage("x", client_id="")], {}, BadInput),
        ("a", [OutboxMessage("x", time=datetime(2026, 1, 1))], {}, BadTime),  # noqa: DTZ001 - it is to be refused
        ("a", [OutboxMessage("x", time="now")], {}, BadTime),  # type: ignore[arg-type]
        ("a", [OutboxMessage("x", time=datetime.min.replace(tzinfo=timezone(timedelta(hours=3))))], {}, BadTime),
        ("a", outbox_messages("x"), {"space": "No Such"}, BadSpaceName),
        ("a", outbox_messages("x"), {"space": 7}, BadInput),
        ("a", outbox_messages("x"), {"parent": ""}, BadInput),
        ("a", outbox_messages("x"), {"tags": "letters"}, BadInput),
        ("a", outbox_messages("x"), {"tags": [7]}, BadInput),
    ],
)
def test_what_cannot_be_stored_is_refused_whole_with_a_fix(opening, server, session, messages, options, error):
    here = opening(background=False)
    with pytest.raises(error) as caught:
        here.append(session, messages, **options)
    assert caught.value.fix
    if isinstance(messages, list) and error is not BadSpaceName:
        with pytest.raises(error) as caught:
            here.append(session, [*outbox_messages("good", "too"), *messages], **options)
        assert caught.value.item in {None, 2}
    assert here.counts() == OutboxCounts(0, 0)
    assert here.append("a", []).messages == ()


@pytest.mark.promise("client.outbox")
def test_secrets_are_masked_before_they_reach_the_disk(folder, opening, server):
    server.be(down=True)
    here = opening(background=False, mask=lambda text: (text.replace("hunter2", "***"), text.count("hunter2")))
    message = OutboxMessage("my password is hunter2, hunter2", client_id="1")
    assert [one.masked for one in here.append("a", [message]).messages] == [2]
    assert [one.new for one in here.append("a", [message]).messages] == [False]
    on_disk = b"".join(path.read_bytes() for path in (folder / "box").iterdir())
    assert b"my password is ***" in on_disk
    assert b"hunter2" not in on_disk
    server.be()
    here.flush(DEADLINE)
    assert server.texts() == ["my password is ***, ***"]


def test_a_message_that_masking_makes_too_long_for_a_server_is_refused_at_once(opening, server):
    here = opening(background=False, mask=lambda text: (text.replace("x", "[masked: secret]"), 1))
    with pytest.raises(TooLarge) as caught:
        here.append("a", outbox_messages("fine", "x" * (MAX_MESSAGE_BYTES // 8)))
    assert caught.value.item == 1
    assert here.counts() == OutboxCounts(0, 0)


def test_a_mask_must_be_handed_in_and_its_failure_stores_nothing(opening, server):
    with pytest.raises(TypeError, match="mask"):
        Client(Loopback(server), None, clock=HandClock())  # type: ignore[call-arg, arg-type]

    def broken(text):
        raise RuntimeError("mask")

    here = opening(mask=broken)
    with pytest.raises(RuntimeError, match="mask"):
        here.append("a", outbox_messages("x"))
    assert here.counts() == OutboxCounts(0, 0)


# --- the file, and the end


@pytest.mark.promise("client.outbox")
@pytest.mark.parametrize("before", [True, False])
def test_only_the_owner_can_read_the_outbox(folder, opening, server, monkeypatch, before):
    if before:
        folder.joinpath("box").mkdir()
        folder.joinpath("box", "outbox.db").touch(mode=0o644)
    else:
        # Not even for a moment.
        monkeypatch.setattr(os, "chmod", lambda *_: pytest.fail("it was open to others"))
    opening(background=False).append("a", outbox_messages("x"))
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (folder / "box").iterdir()}
    assert set(modes.values()) == {0o600}, modes
    assert {"outbox.db", "outbox.db-wal"} <= modes.keys()


@pytest.mark.promise("client.outbox")
def test_what_is_kept_or_set_aside_is_synced_to_the_disk(opening, server, monkeypatch):
    """A power cut may undo a lease, or that something was sent: the server knows what it has by the client id."""
    durable: list[bool] = []
    real = SqliteDatabase.writing

    def writing(self, **options):
        durable.append(options["durable"])
        return real(self, **options)

    monkeypatch.setattr(SqliteDatabase, "writing", writing)
    server.be(refuse=["bad"])
    here = opening(background=False)
    for verb, synced in (
        (lambda: here.append("a", outbox_messages("bad")), True),
        (lambda: here.flush(DEADLINE), True),
        (lambda: here.retry([one.id for one in here.refused()]), True),
        (lambda: here.flush(DEADLINE), True),
        (lambda: here.discard([one.id for one in here.refused()]), True),
        (lambda: here.append("a", outbox_messages("good")), True),
        (lambda: here.flush(DEADLINE), False),
    ):
        durable.clear()
        verb()
        assert any(durable) == synced
    assert server.texts() == ["good"]


def test_closing_returns_soon_whatever_the_network_does_and_loses_nothing(opening, server):
    stuck, go_on = threading.Event(), threading.Event()

    def before(_session):
        stuck.set()
        go_on.wait(DEADLINE)

    here = opening(transport=Loopback(server, before=before), answer_seconds=10_000)
    here.append("a", outbox_messages("one"))
    assert stuck.wait(DEADLINE)
    begun = time.monotonic()
    here.close()
    assert time.monotonic() - begun < DEADLINE / 2
    here.close()
    with pytest.raises(HomeError, match="closed"):
        here.append("a", outbox_messages("two"))
    with pytest.raises(HomeError, match="closed"):
        here.flush(1)
    # The next need not wait for the lease to end.
    assert opening().flush(DEADLINE)
    go_on.set()
    assert server.texts() == ["one"]


def test_a_client_that_is_not_closed_ends_with_its_program(folder, server):
    server.be(slow=0.01)
    crashing.script(
        """
import sys
from pathlib import Path
from commonbook.ports.outbox import OutboxMessage; from tests.support.outbox_child import client
here = client(Path(sys.argv[1]))
for number in range(20):
    here.append(f"s{number}", [OutboxMessage("x")])
""",
        folder,
    )
    with client(folder, background=False) as here:
        assert here.counts().waiting + len(server.stored()) >= 20


def test_a_file_that_is_no_outbox_is_refused_and_kept(folder, opening):
    place = folder / "box" / "outbox.db"
    place.parent.mkdir(parents=True)
    place.write_bytes(b"not a database" * 1000)
    with pytest.raises(HomeDamaged) as caught:
        opening()
    assert "keep the file" in caught.value.fix
    assert place.read_bytes() == b"not a database" * 1000


def test_an_outbox_of_a_newer_program_is_refused(folder, opening):
    opening().close()
    with closing(sqlite3.connect(folder / "box" / "outbox.db")) as db:
        db.execute("PRAGMA user_version=99")
    with pytest.raises(HomeOfAnotherBuild) as caught:
        opening()
    assert "outbox" in caught.value.message


def test_a_place_that_cannot_be_written_is_named(folder, opening, server):
    (folder / "box").write_text("a file")
    with pytest.raises(HomeReadOnly) as caught:
        opening()
    assert str(folder / "box") in caught.value.message


def test_trouble_with_the_file_is_shown_and_sending_goes_on_after_it(opening, server, monkeypatch):
    monkeypatch.setattr(sender, "_MAX_IDLE_SECONDS", 0.01)
    real, seen = OutboxFile.settle, threading.Event()

    def settle(self, batch, outcome):
        # It is shown until the next look, which is soon here: there is trouble until somebody has seen it.
        if not seen.is_set():
            raise HomeError("no room")
        return real(self, batch, outcome)

    monkeypatch.setattr(OutboxFile, "settle", settle)
    here = opening(answer_seconds=0.1)
    here.append("a", outbox_messages("one"))
    end = time.monotonic() + DEADLINE
    while (trouble := here.trouble) is None and time.monotonic() < end:
        time.sleep(0.001)
    assert isinstance(trouble, CommonbookError)
    seen.set()
    assert here.flush(DEADLINE)
    assert server.texts() == ["one"]

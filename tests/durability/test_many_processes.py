"""Many processes and threads on one home: every write is acknowledged, and none fails with "database is locked".

COMMONBOOK_ADDS      how many memories each of 4 processes remembers (60; the full setting is 250)
COMMONBOOK_ROUNDS    how many transactions of 20 ms each of 16 processes holds (6)
"""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import commonbook
from commonbook.errors import Busy
from commonbook.values.spaces import LOCAL_OWNER
from tests.support import crashing
from tests.support.crashing import look_at, start

pytestmark = pytest.mark.slow

ADDS = int(os.environ.get("COMMONBOOK_ADDS", "60"))
ROUNDS = int(os.environ.get("COMMONBOOK_ROUNDS", "6"))


def _all_found(home: Path, reports: list[dict[str, Any]], *, each: int) -> None:
    """Check that every acknowledged memory is stored, once."""
    assert [report["error"] for report in reports if report["error"]] == []
    receipts = {id_: path for report in reports for id_, path in report["receipts"]}
    assert len(receipts) == len(reports) * each, "two writers were given the same id"
    assert len(set(receipts.values())) == len(receipts), "two memories were given the same file"
    found = look_at(home)
    assert found.wrong == []
    assert found.memories.keys() == receipts.keys()
    texts = Counter(memory.text for memory in found.memories.values())
    assert texts == Counter(
        f"memory {number} of writer {report['who']}" for report in reports for number in range(each)
    )


@pytest.mark.promise("processes.writes")
@pytest.mark.timeout(120 + ADDS)
@pytest.mark.parametrize("new", [True, False], ids=["in a new home", "in an old home"])
def test_four_processes_remember_into_one_home_and_nothing_is_lost(place, new):
    if not new:
        commonbook.open(place, create=True).close()
    reports = crashing.run("many", place, 4, ADDS, 0, 1, deadline=60 + ADDS)
    assert len(reports) == 4
    _all_found(place, reports, each=ADDS)


@pytest.mark.promise("processes.writes")
@pytest.mark.timeout(180 + 5 * ROUNDS)
def test_sixteen_processes_hold_transactions_of_20_ms_and_nobody_is_refused(place, record_property):
    commonbook.open(place, create=True).close()
    reports = crashing.run("many", place, 16, ROUNDS * 2, 0.02, 2, deadline=120 + 5 * ROUNDS)
    assert len(reports) == 16
    _all_found(place, reports, each=ROUNDS * 2)
    # That turns are in the order of arrival is shown in tests/engines/process/test_fair_lock.py, without a clock.
    record_property("longest wait in seconds", max(one["longest"] for one in reports))


@pytest.mark.promise("processes.writes")
def test_sixteen_processes_make_one_new_home_at_the_same_time(place):
    reports = crashing.run("many", place, 16, 1, 0, 1)
    assert len(reports) == 16
    _all_found(place, reports, each=1)


@pytest.mark.promise("processes.waits")
def test_who_waits_too_long_is_told_who_holds_the_book(home):
    with closing(commonbook.open(home, create=True)) as book:
        id_ = book.remember("first", title="one", space="a").id
    holder = start("stop", home, "in the transaction", 10)
    try:
        crashing.say(holder, {"verb": "edit", "id": id_, "text": "second"})
        crashing.wait_until_stopped(holder)
        waiting = crashing.run(
            "one", home, stdin={"verb": "edit", "id": id_, "text": "third"}, COMMONBOOK_BUSY_SECONDS="1"
        )[0]
        assert waiting["error"] == "Busy"
        assert f"held for 1 s by process {holder.pid}" in waiting["message"]
        assert "COMMONBOOK_BUSY_SECONDS" in waiting["fix"]
        holder.send_signal(signal.SIGCONT)
        crashing.finish(holder)
    finally:
        holder.kill()
        holder.communicate()
    assert crashing.run("one", home, stdin={"verb": "edit", "id": id_, "text": "third"})[0]["answer"]["version"] == 3
    found = look_at(home)
    assert found.wrong == []
    assert [text for _, text in found.memories[id_].revisions] == ["first", "second", "third"]


@pytest.mark.promise("processes.waits")
def test_who_gave_up_waiting_does_not_hold_the_lock_afterwards(home, monkeypatch):
    monkeypatch.setenv("COMMONBOOK_BUSY_SECONDS", "0.2")
    first, second = commonbook.open(home, create=True), commonbook.open(home)
    held, let_go = threading.Event(), threading.Event()

    def hold(_tx: object) -> None:
        held.set()
        let_go.wait(60)

    holder = threading.Thread(target=first._engines.db.write, args=(hold,))
    holder.start()
    assert held.wait(60)
    for _ in range(3):
        with pytest.raises(Busy):
            second.remember("never", space="a")
    let_go.set()
    holder.join()
    # A waiter behind those that gave up still acquires the lock, however slow the machine is.
    monkeypatch.delenv("COMMONBOOK_BUSY_SECONDS")
    with closing(commonbook.open(home)) as patient:
        assert patient.remember("then", space="a").version == 1
    assert second.remember("now", space="a").version == 1
    assert first.remember("and now", space="a").version == 1
    first.close()
    second.close()
    found = look_at(home)
    assert found.wrong == []
    assert {memory.text for memory in found.memories.values()} == {"then", "now", "and now"}


@pytest.mark.promise("processes.writes")
def test_one_book_serves_eight_threads_that_read_and_write_at_once(place):
    book = commonbook.open(place, create=True)
    shared = book.remember("shared 0", title="shared", space="a").id
    errors: list[BaseException] = []
    made: list[str] = []
    each = 12

    def live(who: int) -> None:
        try:
            for number in range(each):
                mine = book.remember(f"thread {who}, {number}", title=f"{who} {number}", space=f"s{who % 3}").id
                made.append(mine)
                assert book.get(mine).text == f"thread {who}, {number}", "a thread does not read its own writes"
                book.edit(mine, tags=[f"t{who}"])
                book.edit(shared, text=f"shared by {who}, {number}")
                assert book.get(shared).text.startswith("shared")
                assert len(book.list(limit=200).items) > number
                if number % 4 == 0:
                    book.sync()
        except BaseException as error:  # noqa: BLE001 - it is raised again below
            errors.append(error)

    threads = [threading.Thread(target=live, args=(who,)) for who in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    book.close()
    assert errors == []
    found = look_at(place)
    assert found.wrong == []
    assert found.memories.keys() == {shared, *made}
    texts = [text for _, text in found.memories[shared].revisions]
    assert sorted(texts) == sorted(["shared 0", *(f"shared by {who}, {n}" for who in range(8) for n in range(each))])
    assert found.memories[shared].version == 8 * each + 1
    assert all(memory.version == 2 for id_, memory in found.memories.items() if id_ != shared)


_TWICE = """
import os, subprocess, sys
import commonbook
home, other = sys.argv[1:]
first = commonbook.open(home, create=True)
second = commonbook.open(home, create=True)
if {second_closes}:
    second.close()
subprocess.run([sys.executable, "-c", other, home], check=True)
for number in range(3):
    first.remember(f"first {{number}}", space="a")
os.kill(os.getpid(), 9)
"""

_OTHER = """
import sys, commonbook
book = commonbook.open(sys.argv[1], create=True)
book.remember("by another process", space="a")
book.close()
"""


@pytest.mark.parametrize("second_closes", [True, False], ids=["the second closes", "both stay open"])
def test_opening_a_home_twice_does_not_cost_the_first_book_its_locks(home, second_closes):
    """POSIX drops all of a process's locks on a file when the process closes any descriptor of it."""
    with closing(commonbook.open(home, create=True)) as book:
        book.remember("before", space="a")
    with pytest.raises(AssertionError, match=r"^-9"):
        crashing.script(_TWICE.format(second_closes=second_closes), home, _OTHER)
    found = look_at(home)
    assert found.wrong == []
    expected = {"before", "by another process", *(f"first {number}" for number in range(3))}
    assert {memory.text for memory in found.memories.values()} == expected
    with closing(commonbook.open(home)) as book:
        actors = {entry.actor for entry in book.log(space="a")}
    assert actors == {LOCAL_OWNER}, "rows were lost and read back from files"


# --- forks: in a process of their own, since the one that runs the tests may have threads

_FORKS = {
    "a forked child uses its parent's book": """
book.remember("before", space="a")
if (child := os.fork()) == 0:
    assert book.remember("by the child", space="a").version == 1
    assert len(book.list().items) == 2
    os._exit(0)
wait_for(child)
assert len(book.list().items) == 2
book.remember("after", space="a")
expected = {"before", "by the child", "after"}
""",
    "parent and child write at once": """
book.remember("before", space="a")
if (child := os.fork()) == 0:
    for number in range(20):
        book.remember(f"child {number}", space="a")
    book.close()
    os._exit(0)
for number in range(20):
    book.remember(f"parent {number}", space="a")
wait_for(child)
expected = {"before", *(f"{who} {number}" for who in ("child", "parent") for number in range(20))}
""",
    "a fork while another thread writes": """
book.remember("before", space="a")
begun = threading.Event()
def hold(tx):
    tx.run("UPDATE space SET name = name")
    begun.set()
    time.sleep(0.5)
thread = threading.Thread(target=book._engines.db.write, args=(hold,))
thread.start()
assert begun.wait(60)
if (child := os.fork()) == 0:
    book.remember("by the child", space="a")
    os._exit(0)
thread.join()
wait_for(child)
book.remember("after", space="a")
expected = {"before", "by the child", "after"}
""",
    "a fork while recalls are prefetched": """
book.remember("the walrus sleeps", space="a")
stuck = threading.Event()
recall, book.recall = book.recall, lambda query, **asked: stuck.wait(60) and None
for number in range(8):
    assert book.prefetch(f"s{number}", "walrus", spaces="a")
with book._prefetcher._guard:
    child = os.fork()
book.recall = recall
if child == 0:
    assert book.prefetched("s0", "walrus") is None
    assert book.prefetch("s0", "walrus", spaces="a")
    assert [hit.text for hit in book.prefetched("s0", "walrus", wait=30).hits] == ["the walrus sleeps"]
    os._exit(0)
wait_for(child)
stuck.set()
expected = {"the walrus sleeps"}
""",
    "a fork while another thread imports what it needs for the first time": """
begun = threading.Event()
class Slow:
    def find_spec(self, name, *_rest):
        if name == "commonbook.subjects.recall.recaller":
            begun.set()
            time.sleep(0.5)
sys.meta_path.insert(0, Slow())
thread = threading.Thread(target=book.recall, args=("walrus",))
thread.start()
assert begun.wait(60)
if (child := os.fork()) == 0:
    signal.alarm(50)
    book.remember("the walrus sleeps", space="a")
    assert [hit.text for hit in book.recall("walrus", spaces="a").hits] == ["the walrus sleeps"]
    os._exit(0)
thread.join()
wait_for(child)
expected = {"the walrus sleeps"}
""",
    "a fork while another thread loads the module of a verb": """
from importlib.machinery import PathFinder
book.remember("before", space="a")
begun = threading.Event()
class Slow:
    def find_spec(self, name, path, _target=None):
        if name != "commonbook.subjects.sharing.lineage":
            return None
        # A finder holds the lock of all imports, for which a fork waits in any case; a loader does not.
        spec = PathFinder.find_spec(name, path)
        execute = spec.loader.exec_module
        def slowly(module):
            begun.set()
            time.sleep(0.5)
            execute(module)
        spec.loader.exec_module = slowly
        return spec
sys.meta_path.insert(0, Slow())
(memory,) = book.list().items
thread = threading.Thread(target=book.copies, args=(memory.id,))
thread.start()
assert begun.wait(60)
if (child := os.fork()) == 0:
    signal.alarm(50)
    assert book.copies(memory.id) == ()
    os._exit(0)
thread.join()
wait_for(child)
expected = {"before"}
""",
    "a child outlives its parent's book": """
book.remember("before", space="a")
told, tell = os.pipe()
if (child := os.fork()) == 0:
    os.read(told, 1)
    assert len(book.list().items) == 6, "a child does not see what others committed"
    for number in range(3):
        book.remember(f"child {number}", space="a")
    os._exit(0)
book.close()
if (other := os.fork()) == 0:
    book = commonbook.open(home, create=True)
    for number in range(5):
        book.remember(f"other {number}", space="a")
    os.kill(os.getpid(), 9)
os.waitpid(other, 0)
os.write(tell, b"x")
wait_for(child)
book = commonbook.open(home, create=True)
assert {entry.actor for entry in book.log(space="a")} == {"user:local"}, "rows were lost and read back from files"
expected = {"before", *(f"other {n}" for n in range(5)), *(f"child {n}" for n in range(3))}
""",
    "a killed parent's lock does not live on in its child": """
book.remember("before", space="a")
told, tell = os.pipe()
if (parent := os.fork()) == 0:
    def hold(tx):
        tx.run("UPDATE space SET name = name")
        begun = time.monotonic()
        if (child := os.fork()) == 0:
            time.sleep(200)
            os._exit(0)
        os.write(tell, f"{child} {time.monotonic() - begun}".encode())
        os.kill(os.getpid(), 9)
    commonbook.open(home, create=True)._engines.db.write(hold)
os.waitpid(parent, 0)
child, took = os.read(told, 100).split()
child = int(child)
try:
    book.remember("after", space="a")
finally:
    os.kill(child, 9)
assert float(took) < 30, "a thread that forks in its own transaction waits for itself"
expected = {"before", "after"}
""",
}

_AROUND = """
import os, signal, sys, threading, time
import commonbook
home = sys.argv[1]
def wait_for(child):
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, "the child failed"
book = commonbook.open(home, create=True)
{operation}
assert {{memory.text for memory in book.list(limit=200).items}} == expected
assert book.verify_log().ok
book.close()
"""


@pytest.mark.promise("processes.writes")
@pytest.mark.parametrize("what", _FORKS)
def test_a_book_survives_a_fork(place, what):
    crashing.script(_AROUND.format(operation=_FORKS[what]), place, COMMONBOOK_BUSY_SECONDS="40")
    assert look_at(place).wrong == []

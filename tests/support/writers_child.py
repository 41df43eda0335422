"""Child processes of the tests with many writers.

`python -m tests.support.writers_child DEED PLACE THREADS TIMES SHARED`, or `load PLACE NAME`. A child opens the book,
reports that it is ready, and waits for a line; then each of its threads does the deed the given number of times. At the
end it reports all results as one line of JSON, with any error that the deed does not expect.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import commonbook
from commonbook.errors import CommonbookError, Conflict, NotFound, SpaceExists, TooMany, VersionConflict
from commonbook.service.book import Book
from commonbook.values.memory import Draft
from commonbook.values.session import NewMessage
from tests.support import crashing
from tests.support.crash_child import tell

_ROOT = Path(__file__).resolve().parents[2]

Deed = Callable[[Book, str, int, Any], Any]


def remember(book: Book, who: str, at: int, shared: Any) -> Any:
    """Remember into several spaces at once, in a random order."""
    spaces = random.Random(f"{who} {at}").sample(shared["spaces"], 3)
    return [one.id for one in book.remember_many([Draft(f"{who} {at} {space}", space=space) for space in spaces])]


def remember_once(book: Book, who: str, at: int, shared: Any) -> Any:
    """Remember a text that all others remember too, under the same key."""
    receipt = book.remember(f"the same {at}", space="keyed", key=f"key {at}")
    return [at, receipt.id, receipt.new]


def count_up(book: Book, who: str, at: int, shared: Any) -> Any:
    """Increment a number in a text by optimistic locking: retry until no version conflict occurs."""
    for _ in range(1000):
        memory = book.get(shared["memory"])
        try:
            return book.edit(memory.id, text=str(int(memory.text) + 1), expected_version=memory.version).version
        except VersionConflict:
            continue
    raise AssertionError("always a conflict")


def supersede_in_vain(book: Book, who: str, at: int, shared: Any) -> Any:
    """Supersede a memory as a principal that may not even read it."""
    try:
        book.acting_as(shared["principal"]).supersede(shared["old"], shared["by"])
    except NotFound:
        return None
    raise AssertionError("nobody refused it")


def append_as(book: Book, who: str, at: int, shared: Any) -> Any:
    """Append to a session of its own, in turn as one of several principals; some may be over their limit."""
    principal = shared["principals"][at % len(shared["principals"])]
    space = principal.partition(":")[2]
    try:
        book.acting_as(principal).append(f"{space}-{who}", [f"{who} {at}"], space=space)
    except TooMany:
        return [principal, False]
    return [principal, True]


def create_space(book: Book, who: str, at: int, shared: Any) -> Any:
    """Create a space that all others create too."""
    try:
        return [at, book.create_space(f"made/{at}").id]
    except SpaceExists:
        return None


def churn(book: Book, who: str, at: int, shared: Any) -> Any:
    """Change memories that others change at the same time."""
    dice = random.Random(f"{who} {at}")
    one, other = dice.sample(shared["memories"], 2)
    try:
        match dice.randrange(8):
            case 0 | 1:
                book.edit(one, text=f"{who} {at}", tags=[who.replace(".", "-")])
            case 2:
                book.move(one, dice.choice(shared["spaces"]))
            case 3 | 4:
                book.link(one, "related_to", other)
            case 5:
                book.unlink(one, "related_to", other)
            case 6:
                book.remember(f"{who} {at}", space=dice.choice(shared["spaces"]), replaces=one)
            case 7:
                book.delete(one, other)
    except NotFound:
        return "not found"
    return "done"


def rename(book: Book, who: str, at: int, shared: Any) -> Any:
    """Rename a space back and forth, and remember into it under both names."""
    dice = random.Random(f"{who} {at}")
    one, other = dice.sample(["moving/here", "moving/there"], 2)
    try:
        if dice.random() < 0.3:
            book.rename_space(one, other)
            return None
        return book.remember(f"{who} {at}", space=one).id
    except (NotFound, Conflict):
        return None


def append(book: Book, who: str, at: int, shared: Any) -> Any:
    """Append to a session that others append to as well, and sometimes send the same messages again."""
    dice = random.Random(f"{who} {at}")
    session, space = dice.choice(shared["sessions"])
    sent = [
        NewMessage(f"{who} says {at}.{number}", client_id=f"{who}.{at}.{number}")
        for number in range(dice.randint(1, 3))
    ]
    receipt = book.append(session, sent, space=space)
    if dice.random() < 0.2:
        again = book.append(session, sent, space=space)
        assert [one._replace(new=True) for one in again.messages] == list(receipt.messages)
    return [session, [[one.id, one.seq, message.text] for one, message in zip(receipt.messages, sent, strict=True)]]


def talk(book: Book, who: str, at: int, shared: Any) -> Any:
    """Change a session that others change at the same time."""
    dice = random.Random(f"{who} {at}")
    match dice.randrange(10):
        case 0:
            book.settle("talk")
        case 1:
            book.rewind("talk", max(0, book.messages("talk", limit=1000).session.last - 2))
        case 2:
            book.switch("talk", "other", reason="branch")
        case 3:
            book.switch("other", "talk", reason="resume")
        case _:
            book.append(
                dice.choice(["talk", "other"]), [f"{who} {at} {number}" for number in range(dice.randint(1, 3))]
            )
    return None


def work(book: Book, who: str, at: int, shared: Any) -> Any:
    """Run the jobs that are due."""
    return book.work(seconds=5)


def take_in(book: Book, who: str, at: int, shared: Any) -> Any:
    """Import a folder that others import too."""
    return book.import_folder(shared["folder"], space="taken")._asdict() | {"skipped": []}


def approve(book: Book, who: str, at: int, shared: Any) -> Any:
    """Approve a request that others approve too."""
    return [at, _decision(lambda: book.approve(shared["requests"][at]).state)]


def approve_or_reject(book: Book, who: str, at: int, shared: Any) -> Any:
    """Approve or reject a request that others decide too."""
    verb = random.Random(f"{who} {at}").choice([book.approve, book.reject])
    return [at, _decision(lambda: verb(shared["requests"][at]).state)]


def _decision(decide: Callable[[], str]) -> str:
    try:
        return decide()
    except Conflict as error:
        return f"conflict: {error.message}"


def remember_in(book: Book, who: str, at: int, shared: Any) -> Any:
    """Remember a text in one of several spaces."""
    text = f"{who} {at}"
    book.remember(text, space=random.Random(text).choice(shared["spaces"]))
    return text


def share_as(book: Book, who: str, at: int, shared: Any) -> Any:
    """Share a memory as another principal; return the wait if the rate limit is exceeded."""
    try:
        return book.acting_as(shared["principal"]).share(shared["memories"][at], f"team/{who}").id
    except TooMany as error:
        return error.retry_after


def main(deed: str, place: str, threads: str, times: str, shared: str) -> None:
    does: Deed = globals()[deed]
    arguments = json.loads(shared)
    with closing(commonbook.open(place, create=True)) as book:
        tell("ready")
        name = sys.stdin.readline().strip()
        all_threads = threading.Barrier(int(threads))

        def thread(number: int) -> list[Any]:
            all_threads.wait()
            return [_done(does, book, f"{name}.{number}", at, arguments) for at in range(int(times))]

        with ThreadPoolExecutor(int(threads)) as pool:
            tell([result for results in pool.map(thread, range(int(threads))) for result in results])


def _done(does: Deed, book: Book, who: str, at: int, shared: Any) -> Any:
    try:
        return {"told": does(book, who, at, shared)}
    except CommonbookError as error:
        return {"error": f"{error.type}: {error}"}


def load(place: str, name: str) -> None:
    """Append and remember under keys, reporting each acknowledgement, until standard input closes."""
    with closing(commonbook.open(place, create=True)) as book:
        tell("ready")
        sys.stdin.readline()
        ended = threading.Event()

        def listen() -> None:
            sys.stdin.read()
            ended.set()

        threading.Thread(target=listen, daemon=True).start()
        for number in range(10**6):
            if ended.is_set():
                return
            for op in operations(name, number):
                tell([op, do(book, op)])


def operations(name: str, number: int) -> list[list[Any]]:
    """Return the operations of a child in one round; each is idempotent."""
    messages = [[f"{name} says {number}.{at}", f"{name}.{number}.{at}"] for at in range(3)]
    return [["append", f"session-{number % 3}", messages], ["remember", f"{name} knows {number}", f"{name}.{number}"]]


def do(book: Book, op: list[Any]) -> list[Any]:
    """Run an operation; return the ids and numbers of its receipt."""
    verb, what, more = op
    if verb == "remember":
        return [book.remember(what, space="team", key=more).id]
    receipt = book.append(what, [NewMessage(text, client_id=client_id) for text, client_id in more])
    return [[message.id, message.seq] for message in receipt.messages]


# --- for the tests


def together(
    deed: str,
    place: object,
    *,
    processes: int = 4,
    threads: int = 4,
    times: int = 5,
    deadline: float = 120,
    **shared: Any,
) -> list[Any]:
    """Let threads in several processes do a deed at the same time; return the results. None may fail."""
    command = [
        sys.executable,
        "-m",
        "tests.support.writers_child",
        deed,
        str(place),
        str(threads),
        str(times),
        json.dumps(shared),
    ]
    children = [
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=_ROOT,
            env=crashing.environment(COMMONBOOK_SPACE="personal", COMMONBOOK_CONNECTIONS="10"),
        )
        for _ in range(processes)
    ]
    try:
        for child in children:
            assert child.stdout
            assert json.loads(child.stdout.readline()) == "ready"
        for at, child in enumerate(children):
            assert child.stdin
            child.stdin.write(f"{at}\n".encode())
            child.stdin.flush()
        reports = [report for child in children for report in _last(child, deadline)]
    finally:
        for child in children:
            child.kill()
            child.communicate()
    failed = [report["error"] for report in reports if "error" in report]
    assert not failed, failed
    return [report["told"] for report in reports]


def start_load(place: object, name: str) -> subprocess.Popen[bytes]:
    """Start a child that waits for a line, and then writes until its standard input closes."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.support.writers_child", "load", str(place), name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=_ROOT,
        env=crashing.environment(COMMONBOOK_SPACE="personal"),
    )


def _last(child: subprocess.Popen[bytes], deadline: float) -> list[Any]:
    out, _ = child.communicate(timeout=deadline)
    assert child.returncode == 0, out
    found: list[Any] = json.loads(out)
    return found


if __name__ == "__main__":
    load(*sys.argv[2:]) if sys.argv[1] == "load" else main(*sys.argv[1:])

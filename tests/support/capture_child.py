"""Child processes of the capture tests, and the invariants of sessions after a crash of their writers.

`python -m tests.support.capture_child MODE HOME …`: each mode is one function below. A child reports results as lines
of JSON, each in one unbuffered write, and only after the call returned. Episodes are parsed here independently of the
program's own parser.
"""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import commonbook
from commonbook.core.tables import memories, sessions
from commonbook.service.book import Book
from commonbook.values.memory import Filter
from commonbook.values.session import Message, NewMessage, Session
from tests.support import crashing
from tests.support.crash_child import POINTS as FILE_POINTS
from tests.support.crash_child import _after, _die, tell

_ROOT = Path(__file__).resolve().parents[2]
_HEADING = re.compile(r"^### .*\((\S+)\) \u00b7 (\S+Z) \u00b7 (\d+) \u00b7 (\S+)$", re.MULTILINE)

POINTS = {
    "after the episode, before the marks": lambda: _after(memories, "add", _die),
    "after the marks, before the commit": lambda: _after(sessions, "settle", _die),
    **FILE_POINTS,
}


# --- the modes of a child


def do(book: Book, op: dict[str, Any]) -> Any:
    """Run an operation on a session through the public API; return its result as plain data."""
    match op["verb"]:
        case "append":
            sent = [NewMessage(**message) for message in op["messages"]]
            receipt = book.append(op["session"], sent, parent=op.get("parent"))
            return {"settled": receipt.settled, "messages": [message._asdict() for message in receipt.messages]}
        case "switch":
            return book.switch(op["session"], op["to"])._asdict()
        case "rewind":
            return [message.seq for message in book.rewind(op["session"], op["after"])]
        case "settle":
            return book.settle(op["session"])._asdict()
        case "close":
            return book.close_session(op["session"])._asdict()
        case "work":
            return book.work()
        case "recall":
            return [hit.id for hit in book.recall(op["query"], k=op.get("k", 10)).hits]
    raise AssertionError(op)


def serve(home: str) -> None:
    """Run the operations of standard input, line by line."""
    with closing(commonbook.open(home, create=True)) as book:
        tell("ready")
        for line in sys.stdin.buffer:
            tell(do(book, json.loads(line)))


def crash(folder: str) -> None:
    """Run each operation in a forked process that dies at the given point; report the exit codes."""
    for case in json.load(sys.stdin):
        pid = os.fork()
        if pid == 0:
            book = commonbook.open(os.path.join(folder, case["home"]), create=True)
            POINTS[case["point"]]()
            do(book, case["op"])
            book.close()
            os._exit(0)
        tell(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def many(home: str, processes: str, each: str) -> None:
    """Fork processes that each append many messages to one session, one or two at a time."""
    gate, latch = os.pipe()
    children = [pid for who in range(int(processes)) if (pid := _appender(home, who, int(each), gate, latch))]
    os.close(gate)
    os.close(latch)
    for pid in children:
        os.waitpid(pid, 0)


def _appender(home: str, who: int, each: int, gate: int, latch: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    os.close(latch)
    os.read(gate, 1)  # All start when the parent has closed its end.
    error, acknowledged = None, []
    try:
        with closing(commonbook.open(home, create=True)) as book:
            for first in range(0, each, 2):
                texts = [f"message {number} of {who}" for number in range(first, min(first + 2, each))]
                receipt = book.append("shared", texts)
                acknowledged += [[one.id, one.seq, text] for one, text in zip(receipt.messages, texts, strict=True)]
                if first % 20 == 10:
                    book.settle("shared")
    except Exception as failure:  # noqa: BLE001 - the test looks for any error
        error = f"{type(failure).__name__}: {failure}"
    tell({"who": who, "error": error, "told": acknowledged})
    os._exit(0)


def worker(home: str) -> None:
    """Run the background worker until standard input closes."""
    with closing(commonbook.open(home, create=True)) as book, book.working(every=0.05):
        tell("ready")
        select.select([0], [], [])


def command(mode: str, *args: object) -> list[str]:
    """Return the command line of a child."""
    return [sys.executable, "-m", "tests.support.capture_child", mode, *map(str, args)]


def start(mode: str, *args: object, **env: str) -> subprocess.Popen[bytes]:
    """Start a child."""
    return subprocess.Popen(
        command(mode, *args),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=_ROOT,
        env=crashing.environment(COMMONBOOK_SPACE="personal", **env),
        bufsize=0,
    )


def run(mode: str, *args: object, stdin: object = None, deadline: float = 60) -> list[Any]:
    """Run a child to its end; return its reports."""
    return crashing.finish(start(mode, *args), json.dumps(stdin).encode(), deadline=deadline)


def ask(child: subprocess.Popen[bytes], op: dict[str, Any]) -> None:
    """Send the next operation to a serving child."""
    assert child.stdin
    child.stdin.write(json.dumps(op).encode() + b"\n")


def answer(child: subprocess.Popen[bytes]) -> Any:
    """Return the next report of a serving child, or None if it died before."""
    assert child.stdout
    line = child.stdout.readline()
    return json.loads(line) if line.endswith(b"\n") else None


def after_a_kill(place: Path | str) -> None:
    """Wait until a database server has finished the statements of a killed process."""
    if not isinstance(place, Path):
        from tests.support.postgres_server import wait_for_transactions

        wait_for_transactions(place)


# --- the invariants


class Log(NamedTuple):
    """A session with every message of its log."""

    session: Session
    messages: tuple[Message, ...]

    @property
    def live(self) -> list[Message]:
        return [one for one in self.messages if one.rewound_at is None]


def logs_of(book: Book) -> dict[str, Log]:
    """Read every session to its end, page by page."""
    found = {}
    for session in book.sessions(limit=1000):
        messages: list[Message] = []
        after: int | None = 0
        while after is not None:
            page = book.messages(session.id, after=after, limit=300)
            messages += page.items
            after = page.next
        found[session.id] = Log(page.session, tuple(messages))
    return found


def episodes_of(book: Book) -> dict[str, list[tuple[int, str]]]:
    """Return number and id of the messages in each live episode, in the order of its file."""
    found = {}
    after = None
    while True:
        page = book.list(Filter(kinds=("episode",)), limit=500, after=after)
        for memory in page.items:
            file = Path(book.home) / memory.path
            text = file.read_bytes().decode() if os.path.isdir(book.home) else memory.text
            found[memory.id] = [(int(one[3]), one[4]) for one in _HEADING.finditer(text)]
        after = page.next
        if after is None:
            return found


def wrong_with(home: Path | str) -> list[str]:
    """Open a home or a book on a server; return every violation of an invariant of its sessions and files."""
    with closing(commonbook.open(home, create=True)) as book:
        logs, episodes = logs_of(book), episodes_of(book)
    wrong = [one for log in logs.values() for one in _wrong_log(log, episodes)]
    held = [(episode, id_) for episode, lines in episodes.items() for _, id_ in lines]
    marked = {message.id: message for log in logs.values() for message in log.messages}
    if len(marked) != sum(len(log.messages) for log in logs.values()):
        wrong.append("an id was given out twice")
    if len({id_ for _, id_ in held}) != len(held):
        wrong.append("a message stands in two episodes, or twice in one")
    for episode, id_ in held:
        if id_ not in marked or marked[id_].episode != episode or marked[id_].rewound_at:
            wrong.append(f"the episode {episode} tells {id_}, which it does not hold")
    # The index is built at the first recall, and has its own tests.
    return wrong + [one for one in crashing.look_at(home).wrong if ".commonbook/index" not in one]


def _wrong_log(log: Log, episodes: dict[str, list[tuple[int, str]]]) -> list[str]:
    name = log.session.id
    wrong = []
    numbers = [message.seq for message in log.messages]
    if numbers != list(range(1, len(numbers) + 1)) or log.session.last != len(numbers):
        wrong.append(f"the numbers of {name} have gaps: {numbers}, last {log.session.last}")
    for message in log.live:
        if message.episode is not None and (message.seq, message.id) not in episodes.get(message.episode, []):
            wrong.append(f"message {message.seq} of {name} is lost: its episode does not tell it")
    for episode in dict.fromkeys(message.episode for message in log.live if message.episode):
        numbers = [number for number, _ in episodes.get(episode, [])]
        if numbers != sorted(numbers):
            wrong.append(f"an episode of {name} tells its messages out of order: {numbers}")
    if log.session.unsettled != sum(message.episode is None for message in log.live):
        wrong.append(f"{name} counts {log.session.unsettled} unsettled messages")
    return wrong


def shape_of(home: Path | str) -> dict[str, Any]:
    """Return the content of sessions, without ids and times, which differ from run to run."""
    with closing(commonbook.open(home, create=True)) as book:
        logs = logs_of(book)
    shape = {}
    for name, (session, messages) in sorted(logs.items()):
        order = list(dict.fromkeys(one.episode for one in messages if one.episode))
        shape[name] = {
            "parent": session.parent,
            "closed": session.closed is not None,
            "generation": session.generation,
            "messages": [
                (one.text, one.rewound_at is not None, order.index(one.episode) if one.episode else None)
                for one in messages
            ],
        }
    return shape


if __name__ == "__main__":
    {mode.__name__: mode for mode in (serve, crash, many, worker)}[sys.argv[1]](*sys.argv[2:])

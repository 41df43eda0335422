"""Child processes of the crash tests: `python -m tests.support.crash_child MODE HOME …`.

Each mode is one function below. A child reports results as lines of JSON, each in one unbuffered write, and only after
the call returned.
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import sys
import time
from collections.abc import Callable
from typing import Any, NoReturn

import commonbook
from commonbook.core.files import write_out
from commonbook.core.tables import file_journal
from commonbook.core.write import transaction
from commonbook.engines.disk import durable_files
from commonbook.engines.disk.home_folder import HomeFolder
from commonbook.engines.sqlite.database import SqliteDatabase
from commonbook.errors import CommonbookError
from commonbook.values.memory import Draft
from tests.support.crashing import do, text_of

SPACES = ("a", "b", "team/c")


def tell(report: object) -> None:
    os.write(1, json.dumps(report).encode() + b"\n")


# --- kill -9: works until it is killed


def work(home: str, seed: str) -> None:
    dice = random.Random(seed)
    book = commonbook.open(home, create=True)
    known = [memory.id for memory in book.list(limit=500).items]
    number = 0
    while True:
        number += 1
        op = _invent(dice, known, f"{seed}-{number}")
        tell({"begin": op})
        answer = do(book, op)
        tell({"done": answer})
        if op["verb"] == "remember":
            known.append(answer["id"])
        elif op["verb"] == "remember_many":
            known += [one["id"] for one in answer]
        elif op["verb"] == "delete":
            known.remove(op["id"])


def _invent(dice: random.Random, known: list[str], token: str) -> dict[str, Any]:
    size = dice.choice([0, 0, 100, 5_000, 300_000])
    draft = {"text": f"{token}*{size}", "title": f"t {token}", "space": dice.choice(SPACES), "tags": [f"x{token}"]}
    verb = dice.choice(["remember", "remember_many", *["edit"] * 4, "move", "delete"]) if len(known) > 3 else "remember"
    if verb == "remember":
        return {"verb": verb, **draft}
    if verb == "remember_many":
        return {
            "verb": verb,
            "drafts": [{**draft, "text": f"{token}.{at}*{size}"} for at in range(dice.choice([3, 9]))],
        }
    if verb == "edit":
        names = dice.choice([("text",), ("title",), ("tags",), ("text", "title", "tags")])
        return {"verb": verb, "id": dice.choice(known), **{name: draft[name] for name in names}}
    if verb == "move":
        # A space of its own, so that every move is one.
        return {"verb": verb, "id": dice.choice(known), "space": f"to/m{token}"}
    return {"verb": verb, "id": dice.choice(known)}


# --- crashes at chosen points


def _die(*_args: object, **_named: object) -> NoReturn:
    os._exit(77)


def _stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def _replace(owner: Any, name: str, value: object) -> None:
    """Set an attribute that exists: a name that is gone must not pass unnoticed."""
    getattr(owner, name)
    setattr(owner, name, value)


def _instead(owner: Any, name: str, at: Callable[..., object]) -> None:
    _replace(owner, name, at)


def _after(owner: Any, name: str, then: Callable[[], object]) -> None:
    real = getattr(owner, name)

    def wrapped(*args: Any, **named: Any) -> Any:
        result = real(*args, **named)
        then()
        return result

    setattr(owner, name, wrapped)


def _before(owner: Any, name: str, first: Callable[[], object]) -> None:
    real = getattr(owner, name)

    def wrapped(*args: Any, **named: Any) -> Any:
        first()
        return real(*args, **named)

    setattr(owner, name, wrapped)


def _each(how: Callable[..., None], owner: Any, *names: str) -> None:
    for name in names:
        how(owner, name, _die)


def _write_part_of_file(share: float) -> None:
    real = os.write

    def part(fd: int, data: Any) -> int:
        if bytes(data[:4]) == b"---\n":
            real(fd, bytes(data)[: int(len(data) * share)])
            _die()
        return real(fd, data)

    os.write = part


def _while_marking_done(then: Callable[[], object]) -> None:
    real = file_journal.mark_done

    def strike_off(tx: Any, written: Any) -> frozenset[str]:
        written = list(written)
        done = real(tx, written)
        if written:
            then()
        return done

    file_journal.mark_done = strike_off


POINTS: dict[str, Callable[[], None]] = {
    "before the commit": lambda: _after(transaction, "finalize", _die),
    "after the commit": lambda: _before(write_out, "write_out", _die),
    "with the files locked": lambda: _after(HomeFolder, "lock", _die),
    "before the file": lambda: _before(HomeFolder, "put", _die),
    "with an empty file": lambda: _write_part_of_file(0),
    "half way through the file": lambda: _write_part_of_file(0.9),
    "before the exchange": lambda: _each(_instead, durable_files, "exchange", "rename_new"),
    "before the file is taken away": lambda: _each(_instead, HomeFolder, "take", "rename_if_free"),
    "after the file is taken away": lambda: _each(_after, HomeFolder, "take", "rename_if_free"),
    "before what came out is dropped": lambda: _before(HomeFolder, "drop_displaced", _die),
    "before the flush": lambda: _before(HomeFolder, "_sync_folders", _die),
    "after the flush": lambda: _after(HomeFolder, "_sync_folders", _die),
    "during the strike-off": lambda: _while_marking_done(_die),
    "after the strike-off": lambda: _before(SqliteDatabase, "close", _die),
    "nowhere": lambda: None,
}


def crash(home: str) -> None:
    """Run each operation in a forked process that dies at the given point; report the exit codes."""
    for case in json.load(sys.stdin):
        pid = os.fork()
        if pid == 0:
            # Opening repairs a home: to crash in a repair, the point is set before it.
            early = case.get("early", False)
            if early:
                POINTS[case["point"]]()
            book = commonbook.open(os.path.join(home, case["home"]), create=True)
            if not early:
                POINTS[case["point"]]()
            for op in case["ops"]:
                do(book, op)
            book.close()
            os._exit(0)
        tell(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


# --- stopped processes


def stop(home: str, point: str, wait: str) -> None:
    """Run one operation and stop in the middle of it, until a signal continues the process."""
    op = json.load(sys.stdin)
    _replace(write_out, "_LOCK_WAIT_SECONDS", float(wait))
    book = commonbook.open(home, create=True)
    match point:
        case "in the transaction":
            _after(transaction, "finalize", _stop)
        case "after the commit":
            _before(write_out, "write_out", _stop)
        case "with the files locked":
            _before(HomeFolder, "put", _stop)
        case "after the exchange":
            _before(HomeFolder, "flush_later", _stop)
    tell(do(book, op))
    book.close()


# --- power cuts


def ops(home: str) -> None:
    """Run the operations of standard input in order, and report each result."""
    book = commonbook.open(home, create=True)
    ids: list[str] = []
    for op in json.load(sys.stdin):
        if op["verb"] == "reopen":
            book.close()
            book = commonbook.open(home)
        if "at" in op:
            op["id"] = ids[op.pop("at")]
        answer = do(book, op)
        if op["verb"] == "remember":
            ids.append(answer["id"])
        elif op["verb"] == "remember_many":
            ids += [one["id"] for one in answer]
        tell({"op": op, "answer": answer})
    # No close: the power fails while the book is open.
    os._exit(0)


# --- many processes


def many(home: str, processes: str, each: str, held: str, batch: str) -> None:
    """Fork writers that each remember many memories, in transactions of a given duration."""
    pause = float(held)
    if pause:
        _after(transaction, "finalize", lambda: time.sleep(pause))
    go_out, go_in = os.pipe()
    pids = [pid for who in range(int(processes)) if (pid := _writer(home, who, int(each), int(batch), go_out, go_in))]
    os.close(go_out)
    os.close(go_in)
    for pid in pids:
        os.waitpid(pid, 0)


def _writer(home: str, who: int, each: int, batch: int, go_out: int, go_in: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    os.close(go_in)
    os.read(go_out, 1)  # All start when the parent has closed its end.
    error, receipts, longest = None, [], 0.0
    try:
        book = commonbook.open(home, create=True)
        for number in range(0, each, batch):
            begun = time.monotonic()
            drafts = [
                Draft(text=f"memory {number + at} of writer {who}", space=f"s{(who + at) % 3}") for at in range(batch)
            ]
            receipts += [[one.id, one.path] for one in book.remember_many(drafts)]
            longest = max(longest, time.monotonic() - begun)
        book.close()
    except Exception as found:  # noqa: BLE001 - the test looks for any error
        error = f"{type(found).__name__}: {found}"
    tell({"who": who, "error": error, "receipts": receipts, "longest": longest})
    os._exit(0)


def one(home: str) -> None:
    """Run one operation; report its result or the error."""
    op = json.load(sys.stdin)
    try:
        book = commonbook.open(home, create=True)
        tell({"answer": do(book, op)})
        book.close()
    except CommonbookError as error:
        tell({"error": type(error).__name__, "message": error.message, "fix": error.fix})


# --- a person and a program at once


def edits(home: str, number: str) -> None:
    """Edit the memories of standard input in turn, each time with a new text."""
    ids = json.load(sys.stdin)
    book = commonbook.open(home, create=True)
    for at in range(int(number)):
        memory = ids[at % len(ids)]
        text = text_of(f"api-{at}*{(at % 3) * 2000}")
        try:
            receipt = book.edit(memory, text=text)
        except CommonbookError as error:
            tell({"id": memory, "error": type(error).__name__, "message": error.message})
            continue
        tell({"id": memory, "text": text, "version": receipt.version})
    book.close()


def scans(home: str) -> None:
    """Scan the folder repeatedly until standard input closes."""
    book = commonbook.open(home, create=True)
    looks = 0
    while not select.select([0], [], [], 0)[0]:
        book.sync()
        looks += 1
    book.close()
    tell(looks)


if __name__ == "__main__":
    {mode.__name__: mode for mode in (work, crash, stop, ops, many, one, edits, scans)}[sys.argv[1]](*sys.argv[2:])

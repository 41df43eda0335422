"""Child processes of the sharing and reasoning races: `python -m tests.support.sharing_child PLACE`.

A child opens the book once and then reads lines of JSON from its standard input. Each line is a list of deeds that its
threads run concurrently: [delay in seconds, principal, verb, arguments, named arguments]. It prints the answers.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import commonbook
from commonbook.errors import CommonbookError
from commonbook.service.book import Book
from commonbook.values.spaces import LOCAL_OWNER
from tests.support import crashing
from tests.support.crash_child import tell

_ROOT = Path(__file__).resolve().parents[2]
_THREADS = 5

Deed = tuple[float, str, str, list[Any], dict[str, Any]]


def main(place: str) -> None:
    with closing(commonbook.open(place, create=True)) as book, ThreadPoolExecutor(_THREADS) as pool:
        tell("ready")
        for line in sys.stdin:
            deeds = json.loads(line)
            everybody = threading.Barrier(max(1, len(deeds)))
            tell(list(pool.map(lambda deed, wait=everybody: _run(book, deed, wait), deeds)))


def _run(book: Book, deed: Deed, everybody: threading.Barrier) -> Any:
    delay, who, verb, args, named = deed
    hands = book if who == LOCAL_OWNER else book.acting_as(who)
    everybody.wait()
    time.sleep(delay)
    try:
        result = getattr(hands, verb)(*args, **named)
    except CommonbookError as error:
        return {"error": error.type, "why": str(error)}
    return {"result": result._asdict() if verb in ("share", "edit", "refresh", "unshare") else None}


# --- for the tests


class Children:
    """Several processes that have the book open and wait for deeds."""

    def __init__(self, place: object, count: int) -> None:
        self._all = [
            subprocess.Popen(
                [sys.executable, "-m", "tests.support.sharing_child", str(place)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                cwd=_ROOT,
                env=crashing.environment(COMMONBOOK_SPACE="personal", COMMONBOOK_CONNECTIONS="10"),
            )
            for _ in range(count)
        ]
        for child in self._all:
            assert self._answer(child) == "ready"

    def do(self, deeds: Sequence[Deed]) -> list[Any]:
        """Run deeds concurrently, spread over the processes; return the answers in the same order."""
        shares = [list(deeds[at :: len(self._all)]) for at in range(len(self._all))]
        for child, share in zip(self._all, shares, strict=True):
            assert child.stdin
            child.stdin.write(json.dumps(share).encode() + b"\n")
            child.stdin.flush()
        answers = [self._answer(child) for child in self._all]
        return [answers[at % len(self._all)][at // len(self._all)] for at in range(len(deeds))]

    @staticmethod
    def _answer(child: subprocess.Popen[bytes]) -> Any:
        assert child.stdout
        line = child.stdout.readline()
        assert line, "a child has died"
        return json.loads(line)

    def close(self) -> None:
        for child in self._all:
            child.communicate()


@contextmanager
def children(place: object, count: int = 4) -> Iterator[Children]:
    """Run child processes for as long as the block lasts."""
    with closing(Children(place, count)) as processes:
        yield processes


if __name__ == "__main__":
    main(sys.argv[1])

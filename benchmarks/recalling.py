"""Recall: how fast it answers beside the search of SQLite, what it holds in memory, and how soon it sees a write."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from functools import partial
from itertools import count, islice
from math import ceil
from typing import IO, Any, Final

import psutil

import commonbook
from benchmarks.bare import BareSearch
from benchmarks.bench import ROOT, Bench, environment, milliseconds, python
from benchmarks.figures import AT_LEAST, AT_MOST, Bar, Figure, in_turns
from benchmarks.library import CHAT, SHARED, as_in_a_chat, by_frequency, from_a_passage
from benchmarks.starting import command
from commonbook.book.book import Book
from commonbook.text.space_paths import PERSONAL
from commonbook.text.terms import query_words

_K: Final = 10
_THRICE: Final = Bar(AT_LEAST, 3.0)
_BARRED_PASSAGES: Final = 100_000
_BARRED_KIND: Final = "as in a chat"
_ASKED: Final = {CHAT: (_BARRED_KIND,), SHARED: ("by frequency", "from a passage")}
"""What is asked of each library."""

_WARM_UP: Final = 40
_LIMIT: Final = Bar(AT_MOST, 1.0)
_FIRST_PROCESS: Final = 250.0
_FURTHER_PROCESS: Final = 60.0
_PROCESSES: Final = 3
_ASKED_BY_EACH: Final = 50
_COLD_BAR: Final = Bar(AT_MOST, 5.0)
_BARRED_MEMORIES: Final = 10_000
_WORD: Final = "ledger"
_MEGABYTE: Final = 1_000_000


def recall(bench: Bench) -> Iterator[Figure]:
    """Measure questions of seven words against the same words asked of an FTS5 table with the same passages.

    What the sets of questions are, and how they compare with real ones: benchmarks/library.py.
    """
    for n in bench.scale.passages:
        for library, kinds in _ASKED.items():
            home = bench.library(n, library)
            with commonbook.open(home) as book, closing(BareSearch(bench.bare_search(n, library))) as search:
                for kind in kinds:
                    yield from _recall(bench, book, search, n, kind)


def _recall(bench: Bench, book: Book, search: BareSearch, n: int, kind: str) -> Iterator[Figure]:
    source = _questions(kind, search, n)
    ours, reference = (partial(_ask_book, book), partial(_ask_bare, search))
    first = list(islice(source, _WARM_UP))
    # In a tiny library a question may have no answer; where most have none, nothing is measured.
    assert sum(bool(book.recall(asked, k=_K).hits) for asked in first) > len(first) / 2
    assert sum(bool(search.ask(_words(asked), k=_K)) for asked in first) > len(first) / 2
    answer_times(first, ours, reference)
    rounds = [
        answer_times(list(islice(source, bench.scale.questions)), ours, reference)
        for _ in range(bench.scale.question_rounds)
    ]
    for share in (50, 95):
        yield Figure(
            benchmark="recall",
            what=f"recall among n, words {kind}, p{share}",
            n=n,
            unit="ms",
            ours_rounds=tuple(percentile(times, share) for times, _ in rounds),
            reference_rounds=tuple(percentile(times, share) for _, times in rounds),
            bar=_THRICE if n >= _BARRED_PASSAGES and kind == _BARRED_KIND else None,
            faster=True,
        )


def percentile(times: Sequence[float], share: int) -> float:
    """Return the time within which this share of a hundred was done."""
    return sorted(times)[max(ceil(len(times) * share / 100) - 1, 0)]


def _questions(kind: str, search: BareSearch, passages: int) -> Iterator[str]:
    """Return questions without end to the passages of a library, the same ones in every run."""
    chance = random.Random(f"questions {kind} {passages}")
    while True:
        if kind == "as in a chat":
            yield as_in_a_chat(chance)
        elif kind == "by frequency":
            yield by_frequency(chance)
        else:
            yield from_a_passage(search.passage(chance.randint(1, passages)), chance)


def answer_times(
    questions: Sequence[str], ours: Callable[[str], float], reference: Callable[[str], float]
) -> tuple[list[float], list[float]]:
    """Ask both the same, question by question, each as often first as second."""
    told: dict[Callable[[str], float], list[float]] = {ours: [], reference: []}
    for number, asked in enumerate(questions):
        for ask in (ours, reference) if number % 2 == 0 else (reference, ours):
            told[ask].append(ask(asked))
    return told[ours], told[reference]


def recall_times(bench: Bench, book: Book, plain: Book) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Ask two books the same in turns, round by round; return the medians of each round but the first."""
    asked = random.Random("asked")
    rounds = [
        answer_times(
            [by_frequency(asked) for _ in range(bench.scale.questions)],
            partial(_ask_book, book),
            partial(_ask_book, plain),
        )
        for _ in range(bench.scale.question_rounds + 1)
    ]
    ours = tuple(percentile(times, 50) for times, _ in rounds[1:])
    return ours, tuple(percentile(times, 50) for _, times in rounds[1:])


def _ask_book(book: Book, asked: str) -> float:
    begun = time.perf_counter()
    book.recall(asked, k=_K)
    return (time.perf_counter() - begun) * 1_000


def _ask_bare(search: BareSearch, asked: str) -> float:
    # The words are told apart before the clock starts: the reference is the search alone.
    words = _words(asked)
    begun = time.perf_counter()
    search.ask(words, k=_K)
    return (time.perf_counter() - begun) * 1_000


def _words(asked: str) -> list[str]:
    return [word for word, _ in query_words(asked)]


def recall_memory(bench: Bench) -> Iterator[Figure]:
    """Measure what processes that recall from one home hold for themselves alone, beside what they may."""
    n = bench.scale.passages[-1]
    home = bench.library(n)
    with closing(BareSearch(bench.bare_search(n))) as search, ExitStack() as running:
        source = _questions("by frequency", search, n)
        for number in range(1, _PROCESSES + 1):
            reader = running.enter_context(closing(_Reader(home)))
            for asked in islice(source, _ASKED_BY_EACH):
                reader.recall(asked)
            yield Figure(
                benchmark="recall_memory",
                what=f"memory of process {number} that recalls among n",
                n=n,
                unit="MB",
                ours_rounds=(reader.memory() / _MEGABYTE,),
                reference_rounds=(_FIRST_PROCESS if number == 1 else _FURTHER_PROCESS,),
                bar=_LIMIT,
            )


def cold_recall(bench: Bench) -> Iterator[Figure]:
    """Measure `commonbook recall WORD` from a cold start against an interpreter that imports numpy."""
    scale = bench.scale
    for n in (scale.small, scale.middle, scale.large):
        home = bench.indexed(n)
        ours, reference = in_turns(
            scale.start_rounds,
            partial(milliseconds, [*command(), "recall", _WORD, "--json"], COMMONBOOK_HOME=home),
            partial(milliseconds, python("import numpy")),
        )
        yield Figure(
            benchmark="cold_recall",
            what="commonbook recall, home of n memories",
            n=n,
            unit="ms",
            ours_rounds=ours,
            reference_rounds=reference,
            bar=_COLD_BAR if n >= _BARRED_MEMORIES else None,
        )


def write_then_recall(bench: Bench) -> Iterator[Figure]:
    """Measure from the receipt of a memory until another process has recalled it, beside a recall without a write."""
    n = bench.scale.passages[-2]
    home = bench.library_to_write(n)
    with commonbook.open(home) as book, closing(_Reader(home)) as reader:
        ours, reference = in_turns(
            bench.scale.questions // 4,
            partial(_write_and_ask, book, reader, count(1_000)),
            partial(_only_ask, reader, count(1_000)),
        )
    yield Figure(
        benchmark="write_then_recall",
        what="written here, recalled there, n passages",
        n=n,
        unit="ms",
        ours_rounds=ours,
        reference_rounds=reference,
    )


_WRITTEN: Final = "The lighthouse keeper hid the brass telescope below stair"


def _write_and_ask(book: Book, reader: _Reader, numbers: Iterator[int]) -> float:
    said = f"{_WRITTEN} {next(numbers)}"
    written = book.remember(said, space=PERSONAL)
    begun = time.monotonic()
    ended, ids = reader.recall(said)
    assert written.id in ids, f"what was acknowledged is not recalled: {said}"
    return (ended - begun) * 1_000


def _only_ask(reader: _Reader, numbers: Iterator[int]) -> float:
    begun = time.monotonic()
    ended, _ = reader.recall(f"{_WRITTEN} {next(numbers)}")
    return (ended - begun) * 1_000


class _Reader:
    """A process of its own that has a book open and answers when it is asked."""

    def __init__(self, home: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.recalling", home],
            cwd=ROOT,
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answer()

    def recall(self, asked: str) -> tuple[float, list[str]]:
        """Return when it had recalled, and the ids of what it found."""
        ended, ids = self._answer("recall", asked)
        return ended, ids

    def memory(self) -> int:
        """Return how many bytes it holds that no other process has."""
        held: int = self._answer("memory")
        return held

    def _answer(self, *asked: str) -> Any:  # noqa: ANN401 - whatever it was asked
        requests, answers = self._process.stdin, self._process.stdout
        assert requests is not None
        assert answers is not None
        if asked:
            print(json.dumps(asked), file=requests, flush=True)
        said = answers.readline()
        if not said:
            self.close()
            raise RuntimeError(f"a process that recalls ended with {self._process.returncode}")
        return json.loads(said)

    def close(self) -> None:
        """Let it end."""
        self._process.communicate()


def serve(home: str, requests: IO[str], answers: IO[str]) -> None:
    """Be a process that recalls: answer with when a recall ended and what it found, or with the bytes held."""
    with commonbook.open(home) as book:
        print("0", file=answers, flush=True)
        for request in requests:
            what, *asked = json.loads(request)
            if what == "memory":
                print(psutil.Process().memory_full_info().uss, file=answers, flush=True)
            else:
                ids = [hit.id for hit in book.recall(*asked, k=_K).hits]
                print(json.dumps([time.monotonic(), ids]), file=answers, flush=True)


if __name__ == "__main__":
    serve(sys.argv[1], sys.stdin, sys.stdout)

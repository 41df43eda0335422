"""Measures recall: its speed beside the search of SQLite, its memory, and how soon it finds a new memory."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, nullcontext
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
from benchmarks.texts import texts
from commonbook.core.text.space_names import PERSONAL
from commonbook.core.text.terms import query_words
from commonbook.service.book import Book

_K: Final = 10
_IN_A_CHAT: Final = "as in a chat"
_BY_FREQUENCY: Final = "by frequency"
_QUESTION_KINDS: Final = {CHAT: (_IN_A_CHAT,), SHARED: (_BY_FREQUENCY, "from a passage")}
"""The sets of questions for each library."""

_LARGE_PASSAGES: Final = 100_000
_SMALL_PASSAGES: Final = 1_000
_LARGE_BARS: Final = {_IN_A_CHAT: Bar(AT_LEAST, 9.0), _BY_FREQUENCY: Bar(AT_LEAST, 3.0)}
_SMALL_BAR: Final = Bar(AT_LEAST, 1 / 5)
"""In a small home a recall may take five times as long as the bare search."""

_SECONDS_AFTER_A_BURST: Final = {"without a worker": 1.0, "with a worker": 0.3}

_WARM_UP: Final = 40
_LIMIT: Final = Bar(AT_MOST, 1.0)
_FIRST_PROCESS_MB: Final = 250.0
_FURTHER_PROCESS_MB: Final = 60.0
_PROCESSES: Final = 3
_QUESTIONS_PER_PROCESS: Final = 50
_COLD_BAR: Final = Bar(AT_MOST, 5.0)
_BARRED_MEMORIES: Final = 10_000
_WORD: Final = "ledger"
_MEGABYTE: Final = 1_000_000


def recall(bench: Bench) -> Iterator[Figure]:
    """Measure questions of seven words against FTS5 queries of the same words on the same passages.

    benchmarks/library.py describes the sets of questions, and compares them with real ones.
    """
    for n in bench.scale.passages:
        for library, kinds in _QUESTION_KINDS.items():
            home = bench.library(n, library)
            with (
                commonbook.open(home, create=True) as book,
                closing(BareSearch(bench.bare_search(n, library))) as search,
            ):
                for kind in kinds:
                    yield from _recall(bench, book, search, n, kind)


def _recall(bench: Bench, book: Book, search: BareSearch, n: int, kind: str) -> Iterator[Figure]:
    source = _questions(kind, search, n)
    ours, reference = (partial(_ask_book, book), partial(_ask_bare, search))
    first = list(islice(source, _WARM_UP))
    # In a tiny library a question may have no answer; where most have none, nothing is measured.
    assert sum(bool(book.recall(question, k=_K, min_confidence=0).hits) for question in first) > len(first) / 2
    assert sum(bool(search.ask(_words(question), k=_K)) for question in first) > len(first) / 2
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
            bar=_recall_bar(n, kind),
            faster=True,
        )


def _recall_bar(n: int, kind: str) -> Bar | None:
    if n >= _LARGE_PASSAGES:
        return _LARGE_BARS.get(kind)
    return _SMALL_BAR if n == _SMALL_PASSAGES else None


def percentile(times: Sequence[float], share: int) -> float:
    """Return the time within which this percentage was done."""
    return sorted(times)[max(ceil(len(times) * share / 100) - 1, 0)]


def _questions(kind: str, search: BareSearch, passages: int) -> Iterator[str]:
    """Yield questions about the passages of a library without end, the same in every run."""
    chance = random.Random(f"questions {kind} {passages}")
    while True:
        if kind == _IN_A_CHAT:
            yield as_in_a_chat(chance)
        elif kind == _BY_FREQUENCY:
            yield by_frequency(chance)
        else:
            yield from_a_passage(search.passage(chance.randint(1, passages)), chance)


def answer_times(
    questions: Sequence[str], ours: Callable[[str], float], reference: Callable[[str], float]
) -> tuple[list[float], list[float]]:
    """Ask both the same questions in turns, each as often first as second."""
    times: dict[Callable[[str], float], list[float]] = {ours: [], reference: []}
    for number, question in enumerate(questions):
        for ask in (ours, reference) if number % 2 == 0 else (reference, ours):
            times[ask].append(ask(question))
    return times[ours], times[reference]


def recall_times(bench: Bench, book: Book, plain: Book) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Ask two books the same questions in turns; return the medians of each round but the first."""
    chance = random.Random("asked")
    rounds = [
        answer_times(
            [by_frequency(chance) for _ in range(bench.scale.questions)],
            partial(_ask_book, book),
            partial(_ask_book, plain),
        )
        for _ in range(bench.scale.question_rounds + 1)
    ]
    ours = tuple(percentile(times, 50) for times, _ in rounds[1:])
    return ours, tuple(percentile(times, 50) for _, times in rounds[1:])


def _ask_book(book: Book, question: str) -> float:
    begun = time.perf_counter()
    book.recall(question, k=_K, min_confidence=0)
    return (time.perf_counter() - begun) * 1_000


def _ask_bare(search: BareSearch, question: str) -> float:
    # The words are extracted before the clock starts: the reference is the search alone.
    words = _words(question)
    begun = time.perf_counter()
    search.ask(words, k=_K)
    return (time.perf_counter() - begun) * 1_000


def _words(question: str) -> list[str]:
    return [word for word, _ in query_words(question)]


def recall_memory(bench: Bench) -> Iterator[Figure]:
    """Measure the private memory of processes that recall from one home, beside its limit."""
    n = bench.scale.passages[-1]
    home = bench.library(n)
    with closing(BareSearch(bench.bare_search(n))) as search, ExitStack() as running:
        source = _questions("by frequency", search, n)
        for number in range(1, _PROCESSES + 1):
            reader = running.enter_context(closing(_Reader(home)))
            for question in islice(source, _QUESTIONS_PER_PROCESS):
                reader.recall(question)
            yield Figure(
                benchmark="recall_memory",
                what=f"memory of process {number} that recalls among n",
                n=n,
                unit="MB",
                ours_rounds=(reader.memory() / _MEGABYTE,),
                reference_rounds=(_FIRST_PROCESS_MB if number == 1 else _FURTHER_PROCESS_MB,),
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
    with commonbook.open(home, create=True) as book, closing(_Reader(home)) as reader:
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


def recall_after_burst(bench: Bench) -> Iterator[Figure]:
    """Measure the first recall after n single adds in one process, beside the seconds that it may take."""
    n = bench.scale.large
    for how, limit in _SECONDS_AFTER_A_BURST.items():
        with commonbook.open(bench.fresh("burst"), create=True) as book:
            book.recall(_WORD)
            with book.working(every=0.1) if how == "with a worker" else nullcontext():
                for text in islice(texts(f"burst {n}"), n):
                    book.remember(text)
                begun = time.perf_counter()
                book.recall(_WORD)
                took = time.perf_counter() - begun
        yield Figure(
            benchmark="recall_after_burst",
            what=f"first recall after n adds, {how}",
            n=n,
            unit="s",
            ours_rounds=(took,),
            reference_rounds=(limit,),
            bar=_LIMIT,
        )


_WRITTEN: Final = "The lighthouse keeper hid the brass telescope below stair"


def _write_and_ask(book: Book, reader: _Reader, numbers: Iterator[int]) -> float:
    text = f"{_WRITTEN} {next(numbers)}"
    written = book.remember(text, space=PERSONAL)
    begun = time.monotonic()
    ended, ids = reader.recall(text)
    assert written.id in ids, f"what was acknowledged is not recalled: {text}"
    return (ended - begun) * 1_000


def _only_ask(reader: _Reader, numbers: Iterator[int]) -> float:
    begun = time.monotonic()
    ended, _ = reader.recall(f"{_WRITTEN} {next(numbers)}")
    return (ended - begun) * 1_000


class _Reader:
    """A child process that has a book open and answers requests."""

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

    def recall(self, question: str) -> tuple[float, list[str]]:
        """Return when the recall ended, and the ids of its hits."""
        ended, ids = self._answer("recall", question)
        return ended, ids

    def memory(self) -> int:
        """Return its private memory in bytes."""
        held: int = self._answer("memory")
        return held

    def _answer(self, *request: str) -> Any:  # noqa: ANN401 - it depends on the request
        requests, answers = self._process.stdin, self._process.stdout
        assert requests is not None
        assert answers is not None
        if request:
            print(json.dumps(request), file=requests, flush=True)
        line = answers.readline()
        if not line:
            self.close()
            raise RuntimeError(f"a process that recalls ended with {self._process.returncode}")
        return json.loads(line)

    def close(self) -> None:
        """Close its standard input and wait for its end."""
        self._process.communicate()


def serve(home: str, requests: IO[str], answers: IO[str]) -> None:
    """Run as the child process: answer with the end of a recall and its hits, or with the private memory."""
    with commonbook.open(home, create=True) as book:
        print("0", file=answers, flush=True)
        for request in requests:
            what, *arguments = json.loads(request)
            if what == "memory":
                print(psutil.Process().memory_full_info().uss, file=answers, flush=True)
            else:
                ids = [hit.id for hit in book.recall(*arguments, k=_K).hits]
                print(json.dumps([time.monotonic(), ids]), file=answers, flush=True)


if __name__ == "__main__":
    serve(sys.argv[1], sys.stdin, sys.stdout)

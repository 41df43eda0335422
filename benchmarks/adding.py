"""Measures durable adds: one by one, from several processes at once, and in batches."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from itertools import islice
from typing import IO, Final

import commonbook
from benchmarks.bare import BareLoop
from benchmarks.bench import ROOT, Bench, drafts, environment, rate
from benchmarks.figures import AT_LEAST, AT_MOST, Bar, Figure, in_turns
from benchmarks.texts import texts
from commonbook.service.book import Book

_QUARTER: Final = Bar(AT_LEAST, 1 / 4)
_THIRD: Final = Bar(AT_LEAST, 1 / 3)
_THRICE: Final = Bar(AT_MOST, 3.0)
_MORE_THAN_ONE: Final = Bar(AT_LEAST, 1.3)
_BARRED_PROCESSES: Final = 4
_BARRED_BATCH: Final = 1_000
_SMALL_BATCH: Final = 10


def single_add(bench: Bench) -> Iterator[Figure]:
    """Measure one durable `remember` after another against one commit and one atomic file write."""
    for n in (0, bench.scale.middle, bench.scale.large):
        with commonbook.open(bench.home_to_write(n), create=True) as book, closing(BareLoop(bench.bare(n))) as loop:
            ours, reference = in_turns(
                bench.scale.write_rounds,
                partial(_add_ours, book, texts(f"single {n}"), bench.scale.adds),
                partial(_add_bare, loop, texts(f"single {n}"), bench.scale.adds),
            )
        yield Figure(
            benchmark="single_add",
            what="remember, home of n memories",
            n=n,
            unit="/s",
            ours_rounds=ours,
            reference_rounds=reference,
            bar=_QUARTER,
        )


def add_cost(bench: Bench) -> Iterator[Figure]:
    """Measure the processor time of one durable `remember` against that of one commit and one atomic file write."""
    n = bench.scale.middle
    with commonbook.open(bench.home_to_write(n), create=True) as book, closing(BareLoop(bench.bare(n))) as loop:
        ours, reference = in_turns(
            bench.scale.write_rounds,
            partial(_processor_time, partial(_add_ours, book, texts(f"cost {n}"), bench.scale.adds)),
            partial(_processor_time, partial(_add_bare, loop, texts(f"cost {n}"), bench.scale.adds)),
        )
    yield Figure(
        benchmark="add_cost",
        what="processor time of n remembers",
        n=bench.scale.adds,
        unit="ms",
        ours_rounds=ours,
        reference_rounds=reference,
        bar=_THRICE,
    )


def _processor_time(work: Callable[[], object]) -> float:
    """Return the milliseconds that this process has used its processors for, in the program and in the kernel."""
    begun = time.process_time()
    work()
    return (time.process_time() - begun) * 1000


def _add_ours(book: Book, source: Iterator[str], count: int) -> float:
    chosen = list(islice(source, count))
    begun = time.perf_counter()
    for text in chosen:
        book.remember(text)
    return rate(count, time.perf_counter() - begun)


def _add_bare(loop: BareLoop, source: Iterator[str], count: int) -> float:
    chosen = list(islice(source, count))
    begun = time.perf_counter()
    for text in chosen:
        loop.add(text)
    return rate(count, time.perf_counter() - begun)


def batch(bench: Bench) -> Iterator[Figure]:
    """Measure `remember_many` against rows in one commit and the same files, each with its fsync."""
    scale = bench.scale
    for size, n in ((_SMALL_BATCH, 0), (scale.batch // 10, 0), (scale.batch, 0), (scale.batch, scale.large)):
        home, bare = (bench.home_to_write(n), bench.bare(n)) if n else (bench.fresh("home"), bench.fresh("bare"))
        with commonbook.open(home, create=True) as book, closing(BareLoop(bare)) as loop:
            ours, reference = in_turns(
                scale.batch_rounds,
                partial(_batch_ours, book, texts(f"batch {n}"), size),
                partial(_batch_bare, loop, texts(f"batch {n}"), size),
            )
        yield Figure(
            benchmark="batch",
            what=f"remember_many of n{f', home of {n:,}' if n else ''}",
            n=size,
            unit="/s",
            ours_rounds=ours,
            reference_rounds=reference,
            bar=_THIRD if size >= _BARRED_BATCH else None,
        )


def _batch_ours(book: Book, source: Iterator[str], count: int) -> float:
    chosen = drafts(source, count)
    begun = time.perf_counter()
    book.remember_many(chosen)
    return rate(count, time.perf_counter() - begun)


def _batch_bare(loop: BareLoop, source: Iterator[str], count: int) -> float:
    chosen = list(islice(source, count))
    begun = time.perf_counter()
    loop.add_many(chosen)
    return rate(count, time.perf_counter() - begun)


def parallel_add(bench: Bench) -> Iterator[Figure]:
    """Measure single adds of n processes on one home against n bare loops on one database and folder."""
    for n in bench.scale.processes:
        each = max(1, _BARRED_PROCESSES * bench.scale.adds // n)
        with _workers(n, bench.fresh("home"), bench.fresh("bare")) as workers:
            ours, reference = in_turns(
                bench.scale.write_rounds,
                partial(_together, workers, "ours", each),
                partial(_together, workers, "bare", each),
            )
        yield Figure(
            benchmark="parallel_add",
            what="remember, n processes on one home",
            n=n,
            unit="/s",
            ours_rounds=ours,
            reference_rounds=reference,
            bar=_QUARTER if n == _BARRED_PROCESSES else None,
        )


def parallel_gain(bench: Bench) -> Iterator[Figure]:
    """Measure single adds of n processes on one home against those of one process on another."""
    n, each = _BARRED_PROCESSES, bench.scale.adds
    with (
        _workers(n, bench.fresh("home"), bench.fresh("bare")) as several,
        _workers(1, bench.fresh("home"), bench.fresh("bare")) as one,
    ):
        ours, reference = in_turns(
            bench.scale.write_rounds,
            partial(_together, several, "ours", each),
            partial(_together, one, "ours", n * each),
        )
    yield Figure(
        benchmark="parallel_gain",
        what="remember, n processes against one",
        n=n,
        unit="/s",
        ours_rounds=ours,
        reference_rounds=reference,
        bar=_MORE_THAN_ONE,
    )


class _Worker:
    """A child process that adds memories on command."""

    def __init__(self, home: str, bare: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.adding", home, bare],
            cwd=ROOT,
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.answer()

    def tell(self, what: str, count: int) -> None:
        """Start adding this many, without waiting for the end."""
        requests = self._process.stdin
        assert requests is not None
        print(what, count, file=requests, flush=True)

    def answer(self) -> tuple[float, float]:
        """Wait for the end; return when it began and ended."""
        answers = self._process.stdout
        assert answers is not None
        line = answers.readline()
        if not line:
            self.close()
            raise RuntimeError(f"a process that adds ended with {self._process.returncode}")
        begun, ended = json.loads(line)
        return begun, ended

    def close(self) -> None:
        """Close its standard input and wait for its end."""
        self._process.communicate()


@contextmanager
def _workers(n: int, home: str, bare: str) -> Iterator[list[_Worker]]:
    with ExitStack() as running:
        yield [running.enter_context(closing(_Worker(home, bare))) for _ in range(n)]


def _together(workers: Sequence[_Worker], what: str, count: int) -> float:
    for worker in workers:
        worker.tell(what, count)
    times = [worker.answer() for worker in workers]
    return rate(count * len(workers), max(end for _, end in times) - min(begin for begin, _ in times))


def serve(home: str, bare: str, requests: IO[str], answers: IO[str]) -> None:
    """Run as the child process: read `ours N` or `bare N` and answer with when it began and ended."""
    # The same texts for both, but no text twice on one home.
    for_ours, for_bare = (texts(f"process {os.getpid()}") for _ in range(2))
    with commonbook.open(home, create=True) as book, closing(BareLoop(bare)) as loop:
        print("[0, 0]", file=answers, flush=True)
        for request in requests:
            what, count = request.split()
            begun = time.monotonic()
            if what == "ours":
                _add_ours(book, for_ours, int(count))
            else:
                _add_bare(loop, for_bare, int(count))
            print(json.dumps([begun, time.monotonic()]), file=answers, flush=True)


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2], sys.stdin, sys.stdout)

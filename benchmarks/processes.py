"""Processes of their own that a benchmark starts, tells what to do, and waits for."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import IO

from benchmarks.bench import ROOT, environment, rate


class Process:
    """A process that does something when it is told to, or goes on with something until it is closed."""

    def __init__(self, module: str, *what: str, **more: str) -> None:
        """Start a module of ours as a program, with `more` in its environment."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *what],
            cwd=ROOT,
            env=environment(**more),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.answer()

    def tell(self, what: str, number: int) -> None:
        """Let it write this many, without waiting for the end."""
        requests = self._process.stdin
        assert requests is not None
        print(what, number, file=requests, flush=True)

    def answer(self) -> tuple[float, float]:
        """Return when it began and when it ended."""
        answers = self._process.stdout
        assert answers is not None
        said = answers.readline()
        if not said:
            self.close()
            raise RuntimeError(f"a process of the benchmark ended with {self._process.returncode}")
        begun, ended = json.loads(said)
        return begun, ended

    def close(self) -> None:
        """Let it end."""
        self._process.communicate()


def together(processes: Sequence[Process], what: str, each: int) -> float:
    """Let every process do this many, and return how many that were in a second, all together."""
    for process in processes:
        process.tell(what, each)
    times = [process.answer() for process in processes]
    return rate(each * len(processes), max(end for _, end in times) - min(begin for begin, _ in times))


def ready(answers: IO[str]) -> None:
    """Say, in such a process, that it can begin."""
    done(answers, 0.0, 0.0)


def done(answers: IO[str], begun: float, ended: float) -> None:
    """Say, in such a process, when it began and when it ended."""
    print(json.dumps([begun, ended]), file=answers, flush=True)

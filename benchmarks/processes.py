"""Child processes of a benchmark: it starts them, sends commands, and waits for the end of each command."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import IO

from benchmarks.bench import ROOT, environment, rate


class Process:
    """A child process that runs commands, or keeps working until it is closed."""

    def __init__(self, module: str, *what: str, **more: str) -> None:
        """Start a module as a program, with `more` in its environment."""
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
        """Start a command for this many, without waiting for the end."""
        requests = self._process.stdin
        assert requests is not None
        print(what, number, file=requests, flush=True)

    def answer(self) -> tuple[float, float]:
        """Wait for the end of a command; return when it began and ended."""
        answers = self._process.stdout
        assert answers is not None
        line = answers.readline()
        if not line:
            self.close()
            raise RuntimeError(f"a process of the benchmark ended with {self._process.returncode}")
        begun, ended = json.loads(line)
        return begun, ended

    def close(self) -> None:
        """Close its standard input and wait for its end."""
        self._process.communicate()


def together(processes: Sequence[Process], what: str, each: int) -> float:
    """Let every process do this many; return the total number per second."""
    for process in processes:
        process.tell(what, each)
    times = [process.answer() for process in processes]
    return rate(each * len(processes), max(end for _, end in times) - min(begin for begin, _ in times))


def ready(answers: IO[str]) -> None:
    """Report, in a child process, that it is ready."""
    done(answers, 0.0, 0.0)


def done(answers: IO[str], begun: float, ended: float) -> None:
    """Report, in a child process, when a command began and ended."""
    print(json.dumps([begun, ended]), file=answers, flush=True)

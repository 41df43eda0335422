"""Measures fresh interpreters: opening an unchanged home, and showing its status."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from functools import partial
from typing import Final

from benchmarks.bare import WALK
from benchmarks.bench import Bench, milliseconds, python
from benchmarks.figures import AT_MOST, Bar, Figure, in_turns

_OPEN: Final = "import sys, commonbook; commonbook.open(sys.argv[1]).close()"
_OPEN_BAR: Final = Bar(AT_MOST, 3.0)
_BARRED_FILES: Final = 10_000
_STATUS_BAR: Final = Bar(AT_MOST, 6.0)


def open_unchanged(bench: Bench) -> Iterator[Figure]:
    """Measure opening and closing an unchanged home against a walk that reads the status of every file."""
    scale = bench.scale
    for n in (scale.small, scale.middle, scale.large):
        home = bench.home(n)
        ours, reference = in_turns(
            scale.start_rounds,
            partial(milliseconds, python(_OPEN, home)),
            partial(milliseconds, python(WALK, home)),
        )
        yield Figure(
            benchmark="open_unchanged",
            what="open a home of n files, fresh interpreter",
            n=n,
            unit="ms",
            ours_rounds=ours,
            reference_rounds=reference,
            bar=_OPEN_BAR if n >= _BARRED_FILES else None,
        )


def cold_status(bench: Bench) -> Iterator[Figure]:
    """Measure `commonbook status` from a cold start against an interpreter that imports sqlite3."""
    scale = bench.scale
    for n in (scale.small, scale.middle, scale.large):
        home = bench.home(n)
        ours, reference = in_turns(
            scale.start_rounds,
            partial(milliseconds, [*command(), "status"], COMMONBOOK_HOME=home),
            partial(milliseconds, python("import sqlite3")),
        )
        yield Figure(
            benchmark="cold_status",
            what="commonbook status, home of n memories",
            n=n,
            unit="ms",
            ours_rounds=ours,
            reference_rounds=reference,
            bar=_STATUS_BAR if n == scale.small else None,
        )


def command() -> list[str]:
    """Return the command that a user types, or its equivalent where the package is not installed."""
    installed = os.path.join(os.path.dirname(sys.executable), "commonbook")
    return [installed] if os.path.exists(installed) else [sys.executable, "-m", "commonbook"]

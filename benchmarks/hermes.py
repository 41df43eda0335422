"""Measures a turn of the Hermes provider beside the provider that Hermes brings along, in one process of Hermes.

Hermes must be installed: `make check-hermes` does that, in `.hermes`. The bundled provider is `holographic`, the one
that needs no service: an SQLite database with full-text search. It stores nothing for a turn (its `sync_turn` is
empty), so `sync_turn` stands beside what it stores on demand, a fact, and beside Hermes' own record of the same turn.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from glob import glob
from typing import Final

from benchmarks.bench import ROOT, Bench
from benchmarks.figures import Figure

_SCRIPT: Final = os.path.join(ROOT, "benchmarks", "hermes_turns.py")
_TURNS: Final = 20
_PAIRS: Final = {
    "prefetch, beside the bundled provider": ("prefetch", "bundled prefetch"),
    "sync_turn, beside a fact of the bundled provider": ("sync", "bundled fact"),
    "sync_turn, beside Hermes' own record of the turn": ("sync", "store"),
    "on_turn_start, beside Hermes' own record of the turn": ("start", "store"),
}


def hermes(bench: Bench) -> Iterator[Figure]:
    """Measure what a turn of Hermes waits for."""
    folder = bench.fresh("hermes")
    sizes = (bench.scale.middle, bench.scale.write_rounds, _TURNS)
    done = subprocess.run(
        [_python(), _SCRIPT, os.path.join(folder, "turns"), *map(str, sizes)],
        cwd=folder,
        env={"HOME": folder, "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    rounds = json.loads(done.stdout.splitlines()[-1])
    for what, (ours, reference) in _PAIRS.items():
        yield Figure(
            benchmark="hermes",
            what=what,
            n=bench.scale.middle,
            unit="ms",
            ours_rounds=tuple(rounds[ours]),
            reference_rounds=tuple(rounds[reference]),
        )


def _python() -> str:
    """Return the interpreter of the newest Hermes that `make check-hermes` has installed, or of COMMONBOOK_HERMES."""
    named = os.environ.get("COMMONBOOK_HERMES")
    found = [named] if named else sorted(glob(os.path.join(ROOT, ".hermes", "*")))
    if not found:
        raise SystemExit("`make check-hermes ARGS=--collect-only` installs Hermes, which this benchmark needs")
    return os.path.join(found[-1], "bin", "python")

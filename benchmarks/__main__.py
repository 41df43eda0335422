"""`python -m benchmarks`: runs the benchmarks, shows a table, and writes the figures as JSON."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sqlite3
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import commonbook
from benchmarks import locomo
from benchmarks.adding import add_cost, batch, parallel_add, parallel_gain, single_add
from benchmarks.agents import hooks, mcp_server
from benchmarks.bench import FULL, QUICK, Bench, Scale, bench
from benchmarks.capturing import append
from benchmarks.capturing_on_postgres import postgres_append
from benchmarks.figures import HEADING, Figure, cells, line
from benchmarks.hermes import hermes
from benchmarks.importing import importing
from benchmarks.on_postgres import postgres_recall
from benchmarks.quality import __main__ as quality
from benchmarks.reasoning import recall_suspect, supersede, suspect_chain
from benchmarks.recalling import cold_recall, recall, recall_after_burst, recall_memory, write_then_recall
from benchmarks.serving import http, soak
from benchmarks.sharing import edit_shared, lineage, recall_copies
from benchmarks.starting import cold_status, open_unchanged

BENCHMARKS: Final[dict[str, Callable[[Bench], Iterator[Figure]]]] = {
    "single_add": single_add,
    "add_cost": add_cost,
    "parallel_add": parallel_add,
    "parallel_gain": parallel_gain,
    "batch": batch,
    "importing": importing,
    "append": append,
    "open_unchanged": open_unchanged,
    "cold_status": cold_status,
    "mcp_server": mcp_server,
    "hooks": hooks,
    "hermes": hermes,
    "recall": recall,
    "recall_memory": recall_memory,
    "cold_recall": cold_recall,
    "write_then_recall": write_then_recall,
    "recall_after_burst": recall_after_burst,
    "edit_shared": edit_shared,
    "lineage": lineage,
    "recall_copies": recall_copies,
    "supersede": supersede,
    "recall_suspect": recall_suspect,
    "suspect_chain": suspect_chain,
    "http": http,
    "soak": soak,
    "postgres_recall": postgres_recall,
    "postgres_append": postgres_append,
}

_NOT_BY_DEFAULT: Final = ("soak", "hermes")
"""The one takes an hour, the other needs an installed Hermes."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the chosen benchmarks; return 1 with `--strict` when a bar is missed."""
    given = sys.argv[1:] if arguments is None else arguments
    if given[:1] == ["locomo"]:
        return locomo.main(given[1:])
    if given[:1] == ["quality"]:
        return quality.main(given[1:])
    parser = _parser()
    options = parser.parse_args(given)
    if unknown := [name for name in options.names if name not in BENCHMARKS]:
        parser.error(f"there is no benchmark {unknown[0]}; there are {', '.join(BENCHMARKS)}")
    figures = []
    print(line(HEADING), file=sys.stderr)
    names = options.names or [name for name in BENCHMARKS if name not in _NOT_BY_DEFAULT]
    for figure in measured(names, QUICK if options.quick else FULL, options.before):
        print(line(cells(figure)), file=sys.stderr, flush=True)
        figures.append(figure)
    missed = [f"{figure.what} ({figure.n:,}): {figure.ratio:.2f}" for figure in figures if figure.ok is False]
    print("MISSED: " + "; ".join(missed) if missed else "every bar is met", file=sys.stderr)
    _write(options.json, json.dumps(_report(figures, quick=options.quick), indent=2))
    return 1 if missed and options.strict else 0


def measured(names: Sequence[str], scale: Scale, before: str | None = None) -> Iterator[Figure]:
    """Yield the figures of these benchmarks as they are measured."""
    with bench(scale, before) as workplace:
        for name in names:
            yield from BENCHMARKS[name](workplace)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Each figure stands beside its reference, measured in the same run; the ratio is what counts."
        " TMPDIR says which disk is measured. The table goes to standard error, the JSON to standard output.",
        epilog="`locomo FILE` measures how well recall finds what it should, on data that is not part of this project:"
        " `python -m benchmarks locomo --help`. `quality` runs the laboratory of recall.",
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"some of: {', '.join(BENCHMARKS)}; all but soak by default"
    )
    parser.add_argument("--json", default="-", metavar="FILE", help="where the JSON goes (- is standard output)")
    parser.add_argument("--before", metavar="FOLDER", help="a checkout of an earlier version, to compare imports with")
    parser.add_argument("--quick", action="store_true", help="small sizes only, in seconds")
    parser.add_argument("--strict", action="store_true", help="exit with 1 when a bar is missed")
    return parser


def _report(figures: Sequence[Figure], *, quick: bool) -> dict[str, object]:
    return {
        "commonbook": commonbook.__version__,
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "system": platform.system(),
        "cpus": os.cpu_count(),
        "quick": quick,
        "figures": [figure.as_json() for figure in figures],
    }


def _write(place: str, text: str) -> None:
    if place == "-":
        print(text)
        return
    with open(place, "w", encoding="utf-8") as file:
        file.write(text + "\n")


if __name__ == "__main__":
    sys.exit(main())

"""`python -m benchmarks quality`: runs the studies on the given data, and writes tables, JSON and plots."""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from benchmarks.quality import datasets, echoes, studies
from benchmarks.quality.datasets import DataSet
from benchmarks.quality.homes import FullText, stored
from benchmarks.quality.report import Table, plot
from commonbook import CommonbookError
from commonbook.interfaces.cli.main import exit_code

STUDIES: Final = ("ranking", "parts", "silence", "calibration", "prompt", "pooled", "verbatim", "echoes", "everyday")
_VERBATIM_QUESTIONS: Final = 500


def main(arguments: Sequence[str]) -> int:
    """Run the chosen studies, and print each table as it is ready."""
    options = _parser().parse_args(arguments)
    try:
        data = [datasets.read(file) for file in _files(options)]
        tables = []
        for table in _run(data, options):
            print(table, flush=True)
            tables.append(table)
    except CommonbookError as error:
        print(f"{error.type}: {error.message}; {error.fix}", file=sys.stderr)
        return exit_code(error)
    if options.out:
        _write(Path(options.out), tables)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks quality", description="Measure what recall finds, and where it is silent."
    )
    parser.add_argument("--data", metavar="FOLDER", help="a folder of data sets: every .json in it is read")
    parser.add_argument("--file", action="append", default=[], metavar="FILE", help="a data set; may be repeated")
    parser.add_argument("--only", action="append", default=[], choices=STUDIES, help="some of the studies")
    parser.add_argument("--set", action="append", default=[], metavar="NAME", help="some of the sets, by file name")
    parser.add_argument("--database", metavar="ADDRESS", help="an empty database in place of homes, for one set")
    parser.add_argument("--memories", type=int, default=20_000, help="memories of the study `verbatim`")
    parser.add_argument("--out", metavar="FOLDER", help="where tables, JSON and plots are written")
    return parser


def _files(options: argparse.Namespace) -> list[str]:
    folder = sorted(map(str, Path(options.data).glob("*.json"))) if options.data else []
    return [*folder, *options.file]


def _run(data: Sequence[DataSet], options: argparse.Namespace) -> Iterator[Table]:
    chosen = frozenset(options.only or STUDIES)
    for one in [*data, datasets.notes()]:
        if not options.set or one.name in options.set:
            start = time.perf_counter()
            yield from _studies_of(one, chosen, options.database)
            print(f"{one.name}: {time.perf_counter() - start:.0f} s", file=sys.stderr)
    if not options.set:
        yield from echoes.echoes(options.database) if "echoes" in chosen else ()
        yield from echoes.everyday(options.database) if "everyday" in chosen else ()
    if "verbatim" in chosen and data and not options.set:
        talks = [talk for one in data for talk in one.talks]
        with stored(DataSet("verbatim", ()), database=options.database) as book:
            yield studies.verbatim(book, studies.pieces(talks, options.memories), _VERBATIM_QUESTIONS)


def _studies_of(data: DataSet, chosen: frozenset[str], database: str | None) -> Iterator[Table]:
    reference = FullText(data.talks) if data.talks else None
    if chosen & {"ranking", "parts", "silence", "calibration"} or ("prompt" in chosen and data.talks):
        with stored(data, database=database) as book:
            answered = studies.ask(book, data.questions)
            steps: dict[str, Callable[[], Table]] = {
                "ranking": lambda: studies.ranking(data, answered, reference),
                "parts": lambda: studies.parts(data, book),
                "silence": lambda: studies.silence(data, book, answered),
                "calibration": lambda: studies.calibration(data, book, answered),
            }
            if data.talks:
                steps["prompt"] = lambda: studies.prompt(data, book)
            for name, step in steps.items():
                if name in chosen:
                    yield step()
    if "pooled" in chosen and len({talk.space for talk in data.talks}) > 1:
        with stored(data, database=database, pooled=True) as book:
            yield studies.ranking(data, studies.ask(book, data.questions, space="all"), reference, pooled=True)


def _write(folder: Path, tables: Sequence[Table]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tables.md").write_text("\n".join(map(str, tables)), encoding="utf-8")
    for table in tables:
        if table.points:
            name = re.sub(r"\W+", "-", table.title)
            svg = plot(table.title, table.points, table.axes)
            (folder / f"{name}.svg").write_text(svg, encoding="utf-8")
    (folder / "tables.json").write_text(json.dumps([table.as_json() for table in tables], indent=1), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

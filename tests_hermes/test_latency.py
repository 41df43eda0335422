"""The benchmark of a turn, beside the provider that Hermes brings along; `-s` shows the figures."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.__main__ import measured
from benchmarks.bench import QUICK
from benchmarks.figures import HEADING, cells, line


def test_a_turn_is_measured_beside_the_bundled_provider():
    figures = list(measured(["hermes"], replace(QUICK, middle=200, write_rounds=3)))
    print("", line(HEADING), *(line(cells(figure)) for figure in figures), sep="\n")
    assert [figure.what.partition(",")[0] for figure in figures] == [
        "prefetch",
        "sync_turn",
        "sync_turn",
        "on_turn_start",
    ]
    assert all(figure.ours > 0 and figure.reference > 0 for figure in figures)

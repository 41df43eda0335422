"""Figures and their references, measured in turns so that a noisy machine slows down both alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Final

AT_LEAST: Final = ">="
AT_MOST: Final = "<="


@dataclass(frozen=True, slots=True)
class Bar:
    """The limit of the ratio of ours to the reference."""

    way: str
    ratio: float

    def met(self, ratio: float) -> bool:
        """Return whether a ratio is good enough."""
        return ratio >= self.ratio if self.way == AT_LEAST else ratio <= self.ratio

    def __str__(self) -> str:
        return f"{self.way} {self.ratio:.2f}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One line of the table: the label, the size, and the measurements of every round."""

    benchmark: str
    what: str
    n: int
    unit: str
    ours_rounds: tuple[float, ...]
    reference_rounds: tuple[float, ...]
    bar: Bar | None = field(default=None)
    faster: bool = field(default=False)
    """Whether the ratio is a speed-up over the reference, in place of the time relative to it."""

    @property
    def ours(self) -> float:
        """The median of our rounds."""
        return median(self.ours_rounds)

    @property
    def reference(self) -> float:
        """The median of the reference's rounds."""
        return median(self.reference_rounds)

    @property
    def ratio(self) -> float:
        """Ours divided by the reference; for a speed-up, the reverse."""
        return self.reference / self.ours if self.faster else self.ours / self.reference

    @property
    def ok(self) -> bool | None:
        """Whether the bar is met; None for a line without a bar, which only shows the growth."""
        return self.bar.met(self.ratio) if self.bar else None

    def as_json(self) -> dict[str, object]:
        """Return all fields of the figure."""
        return {
            "benchmark": self.benchmark,
            "what": self.what,
            "n": self.n,
            "unit": self.unit,
            "ours": round(self.ours, 3),
            "reference": round(self.reference, 3),
            "ratio": round(self.ratio, 4),
            "faster": self.faster,
            "bar": str(self.bar) if self.bar else None,
            "ok": self.ok,
            "ours_rounds": [round(value, 3) for value in self.ours_rounds],
            "reference_rounds": [round(value, 3) for value in self.reference_rounds],
        }


def in_turns(
    rounds: int, ours: Callable[[], float], reference: Callable[[], float]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Measure both once as a warm-up, then in turns, each as often first as second."""
    ours(), reference()
    results: dict[Callable[[], float], list[float]] = {ours: [], reference: []}
    for number in range(rounds):
        for measure in (ours, reference) if number % 2 == 0 else (reference, ours):
            results[measure].append(measure())
    return tuple(results[ours]), tuple(results[reference])


HEADING: Final = ("what", "n", "ours", "reference", "ratio", "bar", "ok")
_WIDTHS: Final = (44, 7, 12, 12, 6, 7, 6)


def line(cells: tuple[str, ...]) -> str:
    """Lay out one line of the table: the first column to the left, the others to the right."""
    first, *rest = zip(cells, _WIDTHS, strict=True)
    return "  ".join([first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in rest)])


def cells(figure: Figure) -> tuple[str, ...]:
    """Return a figure as the cells of its line."""
    verdict = {True: "ok", False: "MISSED", None: "-"}[figure.ok]
    ours, reference = (_format_value(value, figure.unit) for value in (figure.ours, figure.reference))
    bar = str(figure.bar) if figure.bar else "-"
    return figure.what, f"{figure.n:,}", ours, reference, f"{figure.ratio:.2f}", bar, verdict


def _format_value(value: float, unit: str) -> str:
    return f"{value:,.0f}{unit}" if unit.startswith("/") else f"{value:,.1f} {unit}"

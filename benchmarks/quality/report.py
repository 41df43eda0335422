"""Tables as Markdown, and curves as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

_SIZE: Final = 320
_MARGIN: Final = 40


class Table(NamedTuple):
    """A table of figures with a title."""

    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[object]]
    points: Sequence[tuple[float, float]] = ()
    """A curve in the unit square, which is plotted."""
    axes: tuple[str, str] = ("", "")
    """The labels of the curve: from left to right, and upwards."""

    def as_json(self) -> dict[str, object]:
        """Return the table as JSON, with its figures unrounded."""
        return {"title": self.title, "heads": list(self.heads), "rows": [list(row) for row in self.rows]}

    def __str__(self) -> str:
        cells = [list(self.heads), *([_cell(value) for value in row] for row in self.rows)]
        # A column that is empty in every row says nothing.
        shown = [at for at in range(len(self.heads)) if any(row[at] for row in cells[1:])]
        lines = ["| " + " | ".join(row[at] for at in shown) + " |" for row in cells]
        return "\n".join([f"## {self.title}", "", lines[0], "|" + " --- |" * len(shown), *lines[1:], ""])


def _cell(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def plot(title: str, points: Sequence[tuple[float, float]], labels: tuple[str, str]) -> str:
    """Return a curve in the unit square as SVG, with the diagonal for comparison."""

    def place(x: float, y: float) -> tuple[float, float]:
        return _MARGIN + x * _SIZE, _MARGIN + (1 - y) * _SIZE

    def line(ends: Sequence[tuple[float, float]], colour: str) -> str:
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*end) for end in ends))
        return f'<polyline fill="none" stroke="{colour}" points="{path}"/>'

    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in (place(*point) for point in points))
    whole = _SIZE + 2 * _MARGIN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{whole}" height="{whole}" font-family="sans-serif"'
        f' font-size="12"><rect x="{_MARGIN}" y="{_MARGIN}" width="{_SIZE}" height="{_SIZE}" fill="none"'
        f' stroke="#999"/>{line([(0, 0), (1, 1)], "#bbb")}{line(points, "#0f766e")}{dots}'
        f'<text x="{_MARGIN}" y="24">{title}</text><text x="{_MARGIN}" y="{whole - 12}">{labels[0]}</text>'
        f'<text x="12" y="{_MARGIN - 6}">{labels[1]}</text></svg>\n'
    )

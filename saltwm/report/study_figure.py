"""The figure of a study: success of each variant in each environment, as points with 95 % intervals."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from saltwm.report.figures import INK, MUTED, Drawing, Series, drawn, finish, legible
from saltwm.report.tables import METHOD_NAMES

_WIDTH = 7.5  # inches
_LETTERS = 90  # along an axis of that width
_NAME = 24  # letters of the longest name


@dataclass(frozen=True)
class Point:
    """A success rate in percent with its interval: in which environment, of which variant, in whose colour."""

    group: str
    label: str
    method: str
    rate: float
    low: float
    high: float
    series: str = ""
    """Whose it is in the legend; the method's if it is empty."""
    is_control: bool = False
    """Drawn hollow."""

    @property
    def legend(self) -> tuple[str, str, bool]:
        """Its line in the legend, which points of one series share."""
        return self.series or METHOD_NAMES.get(self.method, self.method), self.method, self.is_control

    @property
    def name(self) -> str:
        """Which variant it is, with its series where the label alone does not tell."""
        return f"{self.series}, {self.label}" if self.series else self.label

    @property
    def spread(self) -> list[list[float]]:
        """How far the interval reaches below and above the rate."""
        return [[self.rate - self.low], [self.high - self.rate]]


def success_by_variant(title: str, points: Sequence[Point]) -> Drawing:
    """Variants side by side where their names fit below them, otherwise a row for each."""
    if _fit_below(points):
        return side_by_side(title, points, size=(_WIDTH, 3.0))
    return row_by_row(title, points, size=(_WIDTH, 0.9 + 0.2 * len(_rows(points))), grid=(1, len(_groups(points))))


def _words(title: str, points: Sequence[Point]) -> str:
    """The figure for those who cannot see it."""
    return f"{title}: " + "; ".join(f"{p.group}, {p.name} {p.rate:.0f} %" for p in points) + "."


def _mark(series: Series, is_control: bool) -> dict[str, Any]:
    fill = "none" if is_control else series.colour
    return {"color": series.colour, "marker": series.marker, "markerfacecolor": fill}


def _name_colours(axes: Axes, points: Sequence[Point], of: Axes | Figure, place: dict[str, Any]) -> None:
    """Whose colours these are, beside the title, where more than one is shown."""
    marks, names = [], []
    for name, method, is_control in dict.fromkeys(point.legend for point in points):
        marks.append(axes.plot([], [], **_mark(Series(name, method), is_control), linestyle="none")[0])
        names.append(legible(name))
    if len(marks) > 1:
        of.legend(marks, names, ncol=len(marks), handletextpad=0.2, borderpad=0.0, **place)


# --- side by side ----------------------------------------------------------------------------------------------------


@drawn
def side_by_side(axes: Axes, title: str, points: Sequence[Point]) -> str:
    """All variants along one axis, environment by environment."""
    places = _places(points)
    for point, x in zip(points, places, strict=True):
        mark = _mark(Series(point.label, point.method), point.is_control)
        axes.errorbar([x], [point.rate], point.spread, **mark, capsize=2, linewidth=1.2)
    for group, x in _middles([point.group for point in points], places):
        axes.text(x, 109, legible(group, _NAME), ha="center", color=MUTED, fontsize=8.5)
    ticks = _ticks(points, places)
    axes.set_xticks([x for _, x in ticks], [legible(label, _NAME) for label, _ in ticks])
    axes.set_xlim(*_around(places))
    axes.set_ylim(0, 118)
    axes.set_yticks(range(0, 101, 20))
    axes.grid(visible=False, axis="x")
    finish(axes, title, "", "% of tasks", legend=False)
    _name_colours(axes, points, axes, {"loc": "lower right", "bbox_to_anchor": (1.0, 1.0)})
    return _words(title, points)


def _fit_below(points: Sequence[Point]) -> bool:
    """Whether no two labels below the axis would touch."""
    places = _places(points)
    ticks, (low, high) = _ticks(points, places), _around(places)
    room = min((b - a for (_, a), (_, b) in itertools.pairwise(ticks)), default=high - low) * _LETTERS / (high - low)
    return max(len(legible(label, _NAME)) for label, _ in ticks) <= room


def _places(points: Sequence[Point]) -> list[float]:
    """Where each point stands: apart from another environment, near one of the same name, which shares its label."""
    steps = [
        1.8 if a.group != b.group else 0.45 if a.label == b.label else 1.0
        for a, b in itertools.pairwise(points)
    ]  # fmt: skip
    return list(itertools.accumulate(steps, initial=0.0))


def _ticks(points: Sequence[Point], places: Sequence[float]) -> list[tuple[str, float]]:
    """The labels below the axis, each in the middle of the points that share it."""
    middles = _middles([f"{point.group}\n{point.label}" for point in points], places)
    return [(name.partition("\n")[2], x) for name, x in middles]


def _middles(names: Sequence[str], places: Sequence[float]) -> list[tuple[str, float]]:
    """Each name once, in the middle of its places."""
    found: dict[str, list[float]] = {}
    for name, place in zip(names, places, strict=True):
        found.setdefault(name, []).append(place)
    return [(name, sum(where) / len(where)) for name, where in found.items()]


def _around(places: Sequence[float], least: float = 6.0) -> tuple[float, float]:
    """Limits with room at both sides: two points stand beside each other, not at the ends of the page."""
    middle, width = (places[0] + places[-1]) / 2, max(least, places[-1] - places[0] + 1.6)
    return middle - width / 2, middle + width / 2


# --- row by row ------------------------------------------------------------------------------------------------------


@drawn
def row_by_row(axes: np.ndarray, title: str, points: Sequence[Point]) -> str:
    """A row for each variant, named in the margin, and a column for each environment."""
    rows = {name: row for row, name in enumerate(_rows(points))}
    for column, group in zip(axes[0], _groups(points), strict=True):
        for point in points:
            if point.group == group:
                mark = _mark(Series(point.label, point.method), point.is_control)
                column.errorbar([point.rate], [rows[point.name]], xerr=point.spread, **mark, capsize=2, linewidth=1.2)
        column.set_xlim(-4, 104)
        column.set_xticks(range(0, 101, 50))
        column.set_ylim(len(rows) - 0.4, -0.6)
        column.set_yticks(range(len(rows)), [])
        finish(column, "", "% of tasks", "", legend=False)
        column.set_title(legible(group, _NAME), loc="center", color=MUTED, fontsize=8.5, fontweight="normal")
    first, figure = axes[0][0], axes[0][0].figure
    first.set_yticklabels([legible(name, _NAME) for name in rows])
    figure.suptitle(legible(title, 60), x=0.01, ha="left", color=INK, fontsize=10, fontweight="bold")
    _name_colours(first, points, figure, {"loc": "upper right"})
    return _words(title, points)


def _groups(points: Sequence[Point]) -> list[str]:
    return list(dict.fromkeys(point.group for point in points))


def _rows(points: Sequence[Point]) -> list[str]:
    """Each variant once: one that only a later environment has stands below its neighbour there."""
    rows: list[str] = []
    for _, here in itertools.groupby(points, lambda point: point.group):
        place = 0
        for point in here:
            if point.name not in rows:
                rows.insert(place, point.name)
            place = rows.index(point.name) + 1
    return rows

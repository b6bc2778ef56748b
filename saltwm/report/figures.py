"""Figures as SVG text, drawn once and recoloured for dark pages. Colours as in the paper: LeWM blue circles,
SALT orange squares, random grey.

Names come from files, so no text is ever parsed as mathematics: the paper's letters are written in Unicode.
"""

import functools
import io
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from saltwm.disk.records import Diagnosis, PlanRecord
from saltwm.evaluation.anatomy import Anatomy
from saltwm.report.tables import known_model

INK, MUTED, GRID = "#1d2127", "#5c6670", "#dfe3e8"
_DARK = {INK: "#e8eaed", MUTED: "#9aa4af", GRID: "#343a41"}
BLUE, ORANGE, GREY = "#2f6fb7", "#e07b1a", "#8a929b"
_OWN = ("#3d9970", "#9b59b6", "#b5485d", "#7a6a3a")
_MARKERS = {"salt": "s", "lewm": "o", "random": "^"}
_MORE_MARKERS = ("D", "v", "P", "X", "<", ">")
_LINES = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (5, 1.5, 1, 1.5)))
KINDS = {"mismatch": "#b5485d", "unflagged": "#d9a441", "unclassified": GREY}
_POINTS = 400  # more than a panel can show
_SIZE = (4.2, 2.75)  # inches: legible when a phone shows it at full width
_MARGINS = {"left": 0.155, "right": 0.975, "bottom": 0.175, "top": 0.9}
_NO_METADATA = dict.fromkeys(("Date", "Creator", "Format", "Type"))
_STYLE: dict[Any, Any] = {
    "text.parse_math": False,
    "svg.fonttype": "path",
    "svg.hashsalt": "saltwm",  # the same records give the same bytes
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": MUTED,
    "axes.titlecolor": INK,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
    "axes.unicode_minus": False,
}


@dataclass(frozen=True)
class Series:
    """One line or group of bars: its name, its method (whose model decides the colour) and how often that occurred."""

    label: str
    method: str
    repeat: int = 0
    """0 for the first of this colour in the figure, 1 for the second: another line, marker and shade."""

    @property
    def colour(self) -> str:
        """The model's colour, whatever searches with it; a user's own method gets one by its name."""
        fixed = {"salt": ORANGE, "lewm": BLUE, "random": GREY}
        return fixed.get(known_model(self.method)) or _OWN[sum(self.method.encode()) % len(_OWN)]

    @property
    def shade(self) -> str:
        """The colour for areas, which have no line and no marker: in turn lighter and darker than the first."""
        share, towards = 0.65 ** ((self.repeat + 1) // 2), self.repeat % 2
        red, green, blue = (share * part + (1 - share) * towards for part in to_rgb(self.colour))
        return to_hex((red, green, blue))

    @property
    def marker(self) -> str:
        """The model's marker, then others."""
        own = _MARKERS.get(known_model(self.method), "D")
        return own if self.repeat == 0 else [m for m in _MORE_MARKERS if m != own][(self.repeat - 1) % 5]

    @property
    def line(self) -> Any:
        """Solid, then dashed, then dotted."""
        return _LINES[self.repeat % len(_LINES)]


def told_apart(named: Iterable[tuple[str, str]]) -> list[Series]:
    """A series for each (label, method) of one figure; those of one colour differ in line, marker and shade."""
    seen: Counter[str] = Counter()
    series = []
    for label, method in named:
        first = Series(label, method)
        series.append(replace(first, repeat=seen[first.colour]))
        seen[first.colour] += 1
    return series


@dataclass(frozen=True)
class Drawing:
    """A figure as SVG text for light and for dark pages, with its words for those who cannot see it."""

    light: str
    dark: str
    alt: str

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in points: a page leaves room for a figure before it is loaded."""
        width, height = self.light.partition('viewBox="')[2].partition('"')[0].split()[2:]
        return round(float(width)), round(float(height))


def drawn(draw: Callable[..., str]) -> Callable[..., Drawing]:
    """Turn `draw(axes, ...) -> alt text` into a function that returns the Drawing.

    Panels share one size and margins, so that their axes line up and nothing has to be drawn twice to be measured;
    a drawing with names along its axis is given its own `size` and is measured. With a `grid` of rows and columns
    `draw` gets that many axes, row by row.
    """

    @functools.wraps(draw)
    def wrapper(
        *args: Any, size: tuple[float, float] | None = None, grid: tuple[int, int] | None = None, **options: Any
    ) -> Drawing:
        with mpl.rc_context(_STYLE):
            figure = Figure(figsize=size or _SIZE, layout="constrained" if size else None)
            if not size:
                figure.subplots_adjust(**_MARGINS)
            alt = draw(figure.subplots(*grid, squeeze=False) if grid else figure.subplots(), *args, **options)
            buffer = io.StringIO()
            figure.savefig(buffer, format="svg", transparent=True, metadata=_NO_METADATA)
        light = buffer.getvalue()
        light = light[light.index("<svg") :]  # without the document type, which names an address
        dark = light
        for ours, theirs in _DARK.items():
            dark = dark.replace(ours, theirs)
        return Drawing(light, dark, alt)

    return wrapper


# --- training ------------------------------------------------------------------------------------------------------


@drawn
def curves(
    axes: Axes,
    title: str,
    key: str,
    runs: Sequence[tuple[Series, Sequence[dict[str, float]]]],
    *,
    log: bool = False,
    unit: str = "",
) -> str:
    """One metric over training steps, a line per run."""
    for series, metrics in runs:
        points = np.array([(line["step"], line[key]) for line in metrics if key in line])
        if points.size == 0:
            continue
        steps, values = _binned(points).T
        sparse = len(steps) <= 40
        axes.plot(
            steps,
            values,
            color=series.colour,
            linestyle=series.line,
            marker=series.marker if sparse else "",
            markersize=3.5,
            label=legible(series.label),
        )
    if log:
        _log_axis(axes)
    finish(axes, title, "training step", unit)
    return f"{title} over training steps for {_names(series for series, _ in runs)}."


def _binned(points: np.ndarray) -> np.ndarray:
    """Means of equal bins where there are more points than a panel can show: points [n, 2] -> [m, 2], m <= 400."""
    if len(points) <= _POINTS:
        return points
    return np.array([part.mean(axis=0) for part in np.array_split(points, _POINTS)])


# --- diagnostics ---------------------------------------------------------------------------------------------------


@drawn
def by_step(
    axes: Axes,
    title: str,
    field: str,
    runs: Sequence[tuple[Series, Diagnosis]],
    *,
    log: bool = False,
    band: tuple[str, str] | None = None,
    guide: tuple[float, str] | None = None,
    limits: tuple[float, float] | None = None,
    unit: str = "",
) -> str:
    """One quantity of the diagnosis by rollout step, a line per run, with the band between two other fields."""
    lines_by_step(axes, field, runs, log=log, band=band)
    if limits:
        axes.set_ylim(*limits)
    if log:
        _log_axis(axes)
    if guide:
        axes.axhline(guide[0], color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
        axes.annotate(
            guide[1], (1, guide[0]), xycoords=("axes fraction", "data"), xytext=(0, 3), textcoords="offset points",
            ha="right", color=MUTED, fontsize=8,
        )  # fmt: skip
    finish(axes, title, "rollout step k", unit)
    return f"{title} by rollout step for {_names(series for series, _ in runs)}."


def lines_by_step(
    axes: Axes,
    field: str,
    runs: Sequence[tuple[Series, Diagnosis]],
    *,
    log: bool = False,
    band: tuple[str, str] | None = None,
) -> None:
    """A line per run on axes of whole steps."""
    for series, diagnosis in runs:
        values = np.array(getattr(diagnosis, field), dtype=np.float64)
        steps = np.arange(1, len(values) + 1)
        if log:
            # An exact zero has no place on this axis; the caption says so.
            values = np.where(values > 0, values, np.nan)
        style = {"color": series.colour, "linestyle": series.line, "marker": series.marker}
        axes.plot(steps, values, **style, label=legible(series.label))
        if band:
            low, high = (np.array(getattr(diagnosis, name), dtype=np.float64) for name in band)
            axes.fill_between(steps, low, high, color=series.colour, alpha=0.18, linewidth=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1, steps=[1, 2, 5, 10]))


# --- episodes --------------------------------------------------------------------------------------------------------


@drawn
def steps_to_success(axes: Axes, title: str, methods: Sequence[tuple[Series, Sequence[int], int]], budget: int) -> str:
    """Share of all tasks that each method reached in each tenth of the budget: (series, steps of successes, n)."""
    edges = np.linspace(0, budget, 11)
    width = (edges[1] - edges[0]) / (len(methods) + 0.6)
    for i, (series, steps, n) in enumerate(methods):
        shares = 100 * np.bincount([_tenth(step, budget) for step in steps], minlength=10) / n
        axes.bar(edges[:-1] + width * (i + 0.8), shares, width * 0.92, color=series.shade, label=legible(series.label))
    axes.grid(visible=False, axis="x")
    axes.set_xlim(0, budget)
    columns = _columns([legible(series.label) for series, *_ in methods])
    rows = -(-len(methods) // columns)
    axes.set_ylim(0, max(1.0, axes.get_ylim()[1]) * (1.08 + 0.12 * rows))  # room for the legend above the bars
    axes.legend(loc="upper left", ncols=columns, columnspacing=1.2, handlelength=1.2)
    finish(axes, title, "environment steps", "% of tasks", legend=False)
    return f"{title}: histogram of steps to success for {_names(series for series, *_ in methods)}."


def _columns(labels: Sequence[str]) -> int:
    """Most columns of a legend that is no wider than a panel's axes, which take some 48 letters, a mark taking six."""
    for columns in (3, 2):
        longest = [max(map(len, part)) for part in np.array_split(np.array(labels), columns) if len(part)]
        if sum(longest) <= 48 - 6 * columns:
            return columns
    return 1


def _tenth(step: int, budget: int) -> int:
    """In which tenth of the budget a step lies, from 0: steps count from 1, so the tenth of 50 steps ends with 5."""
    return min(9, max(0, -(-step * 10 // budget) - 1))


@drawn
def elite_costs(axes: Axes, title: str, plans: Sequence[PlanRecord], series: Series, end: int) -> str:
    """The mean elite cost of each plan of an episode as its search went on, drawn over the steps that it was for."""
    for plan, until in zip(plans, [*(plan.step for plan in plans[1:]), end], strict=True):
        steps = np.linspace(plan.step, plan.step + 0.9 * (until - plan.step), len(plan.elite_costs))
        axes.plot(steps, plan.elite_costs, color=series.colour)
        axes.plot(steps[0], plan.elite_costs[0], "o", markerfacecolor="none", color=series.colour)
        axes.plot(steps[-1], plan.elite_costs[-1], "o", color=series.colour)
    if all(cost > 0 for plan in plans for cost in plan.elite_costs):
        _log_axis(axes)
    finish(axes, title, "environment step", "mean elite cost", legend=False)
    return f"{title}: what each of {len(plans)} plans of {series.label} found and promised."


@drawn
def failure_bars(
    axes: Axes, title: str, methods: Sequence[tuple[Series, Anatomy]], *, limit: float | None = None
) -> str:
    """Failed episodes by kind, as shares of all episodes; `limit` is the end of the axis where several share one."""
    left = np.zeros(len(methods))
    for kind, colour in KINDS.items():
        rates = [getattr(anatomy, kind) for _, anatomy in methods]
        shares = np.array([100 * rate.successes / rate.n for rate in rates])
        if kind == "unclassified" and not shares.any():
            continue
        axes.barh(range(len(methods)), shares, left=left, height=0.55, color=colour, label=kind)
        left += shares
    axes.set_yticks(range(len(methods)), [legible(series.label) for series, _ in methods])
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.set_xlim(0, limit or max(10.0, left.max() * 1.05))
    # The names are as long as their owners like; the legend goes below, where it covers no bar.
    axes.figure.legend(loc="outside lower center", ncols=3, handlelength=1.2, columnspacing=1.2)
    finish(axes, title, "% of all episodes", "", legend=False)
    return f"{title}: shares of failed episodes by kind for {_names(series for series, _ in methods)}."


@drawn
def failure_ratios(axes: Axes, title: str, methods: Sequence[tuple[Series, Anatomy]], threshold: float) -> str:
    """The ratio r of each classified failure, one row of marks per method, on a logarithmic axis."""
    for row, (series, anatomy) in enumerate(methods):
        ratios = sorted(f.ratio for f in anatomy.failures if f.ratio is not None and f.ratio > 0)
        # Marks fan out evenly so that equal ratios stay countable; the height means nothing.
        heights = row + 0.5 * ((np.arange(len(ratios)) * 0.618) % 1 - 0.5)
        axes.scatter(ratios, heights, s=26, marker=series.marker, color=series.colour, alpha=0.75, linewidths=0)
    _log_axis(axes, axis="x")
    axes.axvline(threshold, color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
    axes.annotate(
        f"r = {threshold:g}", (threshold, 1), xycoords=("data", "axes fraction"), xytext=(3, -8),
        textcoords="offset points", color=MUTED, fontsize=8,
    )  # fmt: skip
    axes.set_yticks(range(len(methods)), [legible(series.label) for series, _ in methods])
    axes.set_ylim(len(methods) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    finish(axes, title, "r = c / ĉ", "", legend=False)
    return f"{title}: ratio of found to promised cost per failed episode for {_names(series for series, _ in methods)}."


# --- parts -----------------------------------------------------------------------------------------------------------


def legible(name: str, length: int = 34) -> str:
    """A name that a legend can show: no leading underscore (which hides it), no glyph that the font lacks."""
    font = get_font(findfont(FontProperties(family="DejaVu Sans")))
    shown = "".join(c if c.isprintable() and font.get_char_index(ord(c)) else "\N{WHITE SQUARE}" for c in name)
    shown = shown if len(shown) <= length else shown[: length - 1] + "…"
    return f" {shown}" if shown.startswith("_") else shown


def on_white(svg: str) -> str:
    """The drawing with a white ground, for a document that is shown on light pages and on dark ones."""
    tag_end = svg.index(">", svg.index("<svg")) + 1
    return f'{svg[:tag_end]}\n <rect width="100%" height="100%" fill="#ffffff"/>{svg[tag_end:]}'


def finish(axes: Axes, title: str, xlabel: str, ylabel: str, *, legend: bool = True) -> None:
    """Title, labels, and a legend where there are several lines."""
    axes.set_title(legible(title, 60))
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    axes.tick_params(length=0)
    if legend and len(axes.get_legend_handles_labels()[0]) > 1:
        axes.legend(loc="best", handlelength=1.8)


def _log_axis(axes: Axes, axis: str = "y") -> None:
    """A logarithmic axis labelled 10⁻¹² in Unicode, since nothing here is parsed as mathematics."""
    one = axes.yaxis if axis == "y" else axes.xaxis
    (axes.set_yscale if axis == "y" else axes.set_xscale)("log")
    low, high = sorted(one.get_view_interval())
    if low <= 0 or not math.isfinite(high / low):
        return
    decades = math.log10(high / low)
    # Under two decades the powers of ten alone would leave an axis with one label or none.
    one.set_major_locator(LogLocator(subs=(1.0,) if decades > 2 else (1.0, 2.0, 5.0), numticks=7))
    one.set_major_formatter(FuncFormatter(_power_of_ten if decades > 2 else (lambda value, _: f"{value:g}")))
    one.set_minor_locator(NullLocator())


def _power_of_ten(value: float, _: Any) -> str:
    return "10" + str(round(math.log10(value))).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def _names(series: Iterable[Series]) -> str:
    return ", ".join(one.label for one in series)

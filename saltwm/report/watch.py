"""A run's curves in the terminal or as a picture, from its files alone: neither torch nor the trainer is needed.

The curves come from RUN/metrics.jsonl, the speed from RUN/timing.jsonl, the number of steps from RUN/run.json.
"""

import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.columns import Columns
from rich.console import Group, RenderableType
from rich.text import Text

from saltwm.disk import durable, journal
from saltwm.disk.journal import Row
from saltwm.ground.errors import DamagedError, UsageError, not_a_run

COLOURS = ("orange3", "dodger_blue1")


@dataclass(frozen=True)
class _Panel:
    """One diagram: a title and the metrics in it, one line each."""

    title: str
    names: dict[str, str]
    """Key in metrics.jsonl -> legend."""
    logarithmic: bool = False


PANELS = (
    _Panel("loss", {"loss": "all", "prediction": "prediction"}, True),
    _Panel("validation error", {"validation_rollout": "rollout", "validation_one_step": "one step"}, True),
    _Panel("effective rank", {"effective_rank": "dimensions"}),
    _Panel("latent spread", {"latent_std": "mean", "latent_std_min": "smallest"}),
    _Panel("largest singular value", {"sigma_max_action": "A(c)", "sigma_max_base": "A0"}),
    _Panel("gradient norm", {"gradient_norm": "before clipping"}, True),
)


@dataclass(frozen=True)
class _RunFiles:
    """What a run's files say now."""

    name: str
    total_steps: int
    metrics: list[Row]
    timing: list[Row]

    @property
    def is_finished(self) -> bool:
        """Whether the last step has been measured."""
        return bool(self.metrics) and self.metrics[-1]["step"] >= self.total_steps


def read_files(run: Path) -> _RunFiles:
    """Read a run's curves; UsageError if it is not a run."""
    if not (run / "run.json").exists():
        raise not_a_run(run)
    metrics, timing = (journal.read_rows(run / name) for name in journal.FILES)
    return _RunFiles(run.name, _total_steps(run / "run.json"), metrics, timing)


def _total_steps(path: Path) -> int:
    info = durable.read_json(path)
    steps = info.get("total_steps") if isinstance(info, dict) else None
    if type(steps) is not int:
        raise DamagedError(f"{path}: not a run's: expected its number of total_steps, found {steps!r:.80}")
    return steps


def watch(run: Path, show: Callable[[RenderableType], None], width: int, pause: float = 2.0) -> None:
    """Show the run again and again until it is finished."""
    while True:
        files = read_files(run)
        show(render(files, width))
        if files.is_finished:
            return
        time.sleep(pause)


# --- the terminal ----------------------------------------------------------------------------------------------------


def render(files: _RunFiles, width: int) -> RenderableType:
    """One line about the run and a diagram for each panel that has values, as many beside each other as fit."""
    if not files.metrics:
        return Text(f"{files.name}: nothing measured yet")
    across = max(1, min(3, width // 40))
    size = (width - 2 * across) // across
    shown = [panel for panel in PANELS if any(key in row for row in files.metrics for key in panel.names)]
    diagrams = [_diagram(panel, files.metrics, size) for panel in shown]
    return Group(Text(headline(files)), *_warnings(files), Columns(diagrams, width=size + 1, padding=(0, 1)))


def headline(files: _RunFiles) -> str:
    """Name, step, speed and time left."""
    words = [f"{files.name}: step {files.metrics[-1]['step']} of {files.total_steps}"]
    going = [row for row in files.timing if row["frames_per_second"]]  # the row that starts a session has no speed
    if going:
        now = going[-1]
        words.append(f"{now['frames_per_second']:.0f} frames/s on {now['processes']} process(es)")
        words.append(f"{now['waited_fraction']:.1%} waiting for data")
        words.append("finished" if files.is_finished else f"{_clock(now['seconds_left'])} left when last measured")
    return "   ".join(words)


def _warnings(files: _RunFiles) -> Iterator[Text]:
    sick = journal.sickness(files.metrics[-1])
    if sick:
        yield Text(sick, style="bold red")


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


def _diagram(panel: _Panel, rows: Sequence[Row], width: int, height: int = 6) -> Text:
    """Lines of braille dots under a title, with the range of values at the left."""
    curves = {key: _points(rows, key, panel.logarithmic) for key in panel.names}
    curves = {key: curve for key, curve in curves.items() if curve}
    values = [value for curve in curves.values() for _, value in curve]
    if not values:
        return Text(panel.title, style="bold")
    low, high = min(values), max(values)
    labels = {0: _label(high, panel.logarithmic), height - 1: _label(low, panel.logarithmic)}
    canvas = Canvas(max(8, width - 9), height)
    first, last = rows[0]["step"], max(rows[-1]["step"], rows[0]["step"] + 1)
    for colour, curve in zip(COLOURS, curves.values(), strict=False):
        canvas.draw([((step - first) / (last - first), _share(value, low, high)) for step, value in curve], colour)
    text = Text(panel.title, style="bold")
    for colour, key in zip(COLOURS, curves if len(curves) > 1 else (), strict=False):
        text.append(f"  ⏺ {panel.names[key]}", style=f"not bold {colour}")
    for index, line in enumerate(canvas.lines()):
        text.append(f"\n{labels.get(index, ''):>8} ", style="not bold dim").append_text(line)
    return text


def _points(rows: Sequence[Row], key: str, logarithmic: bool) -> list[tuple[int, float]]:
    """(step, value) of a metric, or of its decimal logarithm, which leaves out what has none."""
    found = [(row["step"], float(row[key])) for row in rows if key in row]
    return [(step, math.log10(value)) for step, value in found if value > 0] if logarithmic else found


def _share(value: float, low: float, high: float) -> float:
    return (value - low) / (high - low) if high > low else 0.5


def _label(value: float, logarithmic: bool) -> str:
    return f"{10**value if logarithmic else value:.3g}"


class Canvas:
    """Lines on a grid of braille characters: 2 x 4 dots each, a colour per character."""

    DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))  # by column, from the top

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self._cells: dict[tuple[int, int], tuple[int, str]] = {}

    def draw(self, curve: Sequence[tuple[float, float]], colour: str) -> None:
        """A line through points with both coordinates in 0 .. 1, y upwards."""
        wide, high = 2 * self.width - 1, 4 * self.height - 1
        dots = [(round(x * wide), round((1 - y) * high)) for x, y in curve]
        for x, y in dots[:1]:
            self._set(x, y, colour)
        for (x0, y0), (x1, y1) in itertools.pairwise(dots):
            steps = max(abs(x1 - x0), abs(y1 - y0), 1)
            for i in range(steps + 1):
                self._set(round(x0 + (x1 - x0) * i / steps), round(y0 + (y1 - y0) * i / steps), colour)

    def _set(self, x: int, y: int, colour: str) -> None:
        cell = (y // 4, x // 2)
        dots, _ = self._cells.get(cell, (0, colour))
        self._cells[cell] = dots | self.DOTS[x % 2][y % 4], colour

    def lines(self) -> Iterator[Text]:
        """From the top."""
        for row in range(self.height):
            line = Text()
            for column in range(self.width):
                dots, colour = self._cells.get((row, column), (0, ""))
                line.append(chr(0x2800 + dots), style=f"not bold {colour}")
            yield line


# --- a picture -------------------------------------------------------------------------------------------------------


def save_picture(files: _RunFiles, path: Path) -> None:
    """The same diagrams as a small PNG."""
    if not files.metrics:
        raise UsageError(f"{files.name}: nothing measured yet, so there is nothing to draw")
    from matplotlib.figure import Figure

    from saltwm.report.figures import BLUE, ORANGE

    figure = Figure(figsize=(9.0, 4.2), dpi=70, layout="constrained")
    for axes, panel in zip(figure.subplots(2, 3).flat, PANELS, strict=True):
        for colour, (key, name) in zip((ORANGE, BLUE), panel.names.items(), strict=False):
            curve = _points(files.metrics, key, logarithmic=False)
            if curve:
                axes.plot(*zip(*curve, strict=True), color=colour, label=name)
        axes.set_title(panel.title, fontsize=9, loc="left")
        axes.tick_params(labelsize=7)
        axes.grid(visible=True, alpha=0.3)
        if panel.logarithmic:
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=0)
        if len(axes.get_lines()) > 1:
            axes.legend(fontsize=7, frameon=False)
    figure.suptitle(headline(files).split("   ")[0], fontsize=9)
    durable.write_file(path, lambda temporary: figure.savefig(temporary, format="png"))

"""Progress bars with time left, on standard error; in a log, a line every two minutes."""

import contextlib
import time
from collections.abc import Callable, Iterator

from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from saltwm.ground.terminal import SafeConsole, printable

console = SafeConsole(stderr=True)
SECONDS_BETWEEN_LINES = 120.0


def note(line: str) -> None:
    """A line on standard error, as it is: no markup, and not wrapped, so that it can be copied."""
    console.print(line, highlight=False, markup=False, soft_wrap=True)


@contextlib.contextmanager
def progress(title: str, total: int, done: int = 0) -> Iterator[Callable[..., None]]:
    """Yield advance(steps=1, note=""): call it as work completes; `done` is what an earlier run already did."""
    if not console.is_terminal:
        yield _line_by_line(title, total, done)
        return
    columns = (
        TextColumn("[bold]{task.description}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    # Drawing takes 2 ms; ten times a second, the default, would be 2 % of a core.
    with Progress(*columns, console=console, refresh_per_second=2) as bar:
        task = bar.add_task(escape(printable(title)), total=total, completed=done, note="")

        def advance(steps: int = 1, note: str | None = None) -> None:
            if note is None:
                bar.update(task, advance=steps)
            else:
                bar.update(task, advance=steps, note=note)

        yield advance


def _line_by_line(title: str, total: int, done: int) -> Callable[..., None]:
    """`advance` for a log: short jobs stay quiet, and a long one is not taken for one that hangs."""
    begun_with, began = done, time.monotonic()
    said = began

    def advance(steps: int = 1, note: str | None = None) -> None:
        nonlocal done, said
        done, now = done + steps, time.monotonic()
        if now - said >= SECONDS_BETWEEN_LINES and done > begun_with:
            said = now
            left = (now - began) / (done - begun_with) * (total - done)
            line = f"{title}: {done} of {total}, about {left / 60:.0f} min left{f', {note}' if note else ''}"
            console.print(printable(line), highlight=False, markup=False, soft_wrap=True)

    return advance

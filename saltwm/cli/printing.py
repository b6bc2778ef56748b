"""How verbs talk: results as aligned lines or JSON, the next command, errors as one line."""

import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from saltwm.disk.records import Evaluation

RESULTS = Path("work/results")
"""Where a printed next command puts records: `results` holds those of the shipped models and takes no others."""


def say(message: Any) -> None:
    """Print to standard output with rich; text as it is, so that what is copied is what was meant.

    Markup is off and long lines are not wrapped, so output can be copied verbatim.
    """
    from rich.console import Group
    from rich.text import Text

    from saltwm.ground.terminal import SafeConsole

    if isinstance(message, Group):  # tables and sentences, each in its own way
        for part in message.renderables:
            say(part)
        return
    console = SafeConsole(highlight=False, markup=False, emoji=False)
    console.print(message, soft_wrap=isinstance(message, str | Text))


def say_error(message: str) -> None:
    """One line to standard error."""
    from saltwm.ground.terminal import printable

    print(f"saltwm: {printable(message, keep='')}", file=sys.stderr)


def next_command(command: str) -> None:
    """Say what to run next."""
    say(f"next: {command}")


def announce(command: str) -> None:
    """Show a command that is about to run, as a person would have typed it."""
    from rich.text import Text

    say(Text(f"\n$ {command}", style="bold"))


NOTHING: tuple[Any, ...] = ((), [], {})
"""Values that get no line."""


def aligned(result: dict[str, Any]) -> str:
    """A line per entry, longer ones folded between words: a path or a hash stays whole, so that it can be copied."""
    from rich.console import Console

    words = {key.replace("_", " "): readable(value) for key, value in result.items() if value not in NOTHING}
    margin = max(map(len, words)) + 2
    width = max(20, Console().width - margin)
    lines = []
    for key, value in words.items():
        folded = [
            part
            for line in value.splitlines() or [""]
            for part in textwrap.wrap(line, width, break_long_words=False, break_on_hyphens=False) or [""]
        ]
        lines += [f"{key:<{margin}}{folded[0]}", *(" " * margin + part for part in folded[1:])]
    return "\n".join(lines)


def readable(value: Any) -> str:
    """A value as a person writes it: four significant digits, no brackets around everything."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict):
        return ", ".join(f"{str(key).replace('_', ' ')} {readable(entry)}" for key, entry in value.items())
    if isinstance(value, list | tuple):
        parts = [readable(entry) for entry in value]
        return "\n".join(parts) if any(isinstance(entry, dict) for entry in value) else " ".join(parts)
    return str(value)


def results_table(results: Path, evaluated: "Sequence[Evaluation] | None" = None) -> Any:
    """Success of the evaluated methods, all by default, and of those that met the same tasks, with the former's tests.

    A results folder may hold a hundred methods, and whoever evaluated one asks how that one did.
    """
    from saltwm.disk.records import read_cells, read_plan
    from saltwm.evaluation.contests import comparisons
    from saltwm.report.tables import success_table

    all_cells = read_cells(results)
    evaluated = [cell.evaluation for cell in all_cells] if evaluated is None else evaluated
    contests = {_contest(evaluation) for evaluation in evaluated}
    cells = [cell for cell in all_cells if _contest(cell.evaluation) in contests]
    asked = {cell.name for cell in cells if cell.evaluation in evaluated}
    tests = [test for test in comparisons(cells) if asked & {*test.cells_a, *test.cells_b}]
    return success_table(cells, tests, read_plan(results))


def _contest(evaluation: "Evaluation") -> tuple[str, str, int]:
    return evaluation.environment, evaluation.protocol, evaluation.horizon_blocks

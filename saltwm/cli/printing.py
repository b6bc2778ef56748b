"""How verbs talk: results as aligned lines or JSON, the next command, errors as one line."""

import json
import sys
import textwrap
from pathlib import Path
from typing import Annotated, Any, TypeVar

import tyro

from saltwm.jobs.job import command_line, spell

__all__ = ["announce", "command_line", "next_command", "print_results", "readable", "say", "say_error", "show", "spell"]

T = TypeVar("T")
Maybe = Annotated[T | None, tyro.conf.arg(help_behavior_hint="")]
"""An option that may be left out; what happens then is in its help, which says nothing of None."""
Switch = Annotated[bool, tyro.conf.arg(help_behavior_hint="")]
"""What is on unless --no-... is given; the help is that of the option, so it says what is left out."""
RESULTS = Path("work/results")
"""Where a printed next command puts records: `results` holds those of the shipped models and takes no others."""


def say(message: Any) -> None:
    """Print to standard output with rich; text as it is, so that what is copied is what was meant.

    Brackets and colons are no markup, and a long line is left to the terminal: it puts no line break into it.
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


def show(as_json: bool, result: dict[str, Any], next_is: str | None = None) -> None:
    """A result as aligned lines with the next command, or as JSON alone."""
    if as_json:
        print(json.dumps(result))
        return
    say(_aligned({key.replace("_", " "): readable(value) for key, value in result.items()}))
    if next_is:
        next_command(next_is)


def _aligned(result: dict[str, str]) -> str:
    """A line per entry, longer ones folded between words: a path or a hash stays whole, so that it can be copied."""
    from rich.console import Console

    margin = max(map(len, result)) + 2
    width = max(20, Console().width - margin)
    lines = []
    for key, value in result.items():
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


def results_table(results: Path) -> Any:
    """The success tables of everything evaluated so far, with the paired tests."""
    from saltwm.disk.records import read_cells, read_plan
    from saltwm.evaluation.statistics import comparisons
    from saltwm.report.tables import success_table

    cells = read_cells(results)
    return success_table(cells, comparisons(cells), read_plan(results))


def print_results(results: Path) -> None:
    """Print them."""
    say(results_table(results))

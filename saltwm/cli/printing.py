"""How verbs talk: results as aligned lines or JSON, the next command, errors as one line."""

import json
import sys
from pathlib import Path
from typing import Any


def say(message: Any) -> None:
    """Print to standard output with rich."""
    from rich.console import Console

    Console(highlight=False).print(message)


def say_error(message: str) -> None:
    """One line to standard error."""
    print(f"saltwm: {message}", file=sys.stderr)


def next_command(command: str) -> None:
    """Say what to run next."""
    say(f"next: {command}")


def show(as_json: bool, result: dict[str, Any], next_is: str | None = None) -> None:
    """A result as aligned lines with the next command, or as JSON alone."""
    if as_json:
        print(json.dumps(result))
        return
    from rich.table import Table

    table = Table(box=None, show_header=False)
    for key, value in result.items():
        table.add_row(key.replace("_", " "), json.dumps(value) if isinstance(value, dict) else str(value))
    say(table)
    if next_is:
        next_command(next_is)


def print_results(results: Path) -> None:
    """The success table of everything evaluated so far."""
    from saltwm.records import read_cells
    from saltwm.report.tables import success_table

    say(success_table(read_cells(results)))

"""Text for a terminal: what came from a file is shown, never obeyed."""

from typing import Any

from rich.console import Console
from rich.text import Text


def printable(text: str, keep: str = "\n\t") -> str:
    """The text with control characters and other invisible ones spelled out, such as \\x1b; those in `keep` stay."""
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)


class SafeConsole(Console):
    """A console to which no byte of an input comes raw: escapes on it are its own."""

    def print(self, *objects: Any, **options: Any) -> None:
        """Print strings and texts with their control characters spelled out; tables see to theirs themselves."""
        super().print(*map(_safe, objects), **options)


def _safe(value: Any) -> Any:
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, Text) and printable(value.plain) != value.plain:
        return Text(printable(value.plain), style=value.style)
    return value

"""One record for every table, and its three renderings: terminal, Markdown, page (macros.html has the last)."""

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.padding import Padding
    from rich.text import Text

NONE = "-"
WIDTH = 120
"""Characters in a line of code of a document, at most."""


@dataclass(frozen=True)
class Entry:
    """What stands in one place of a table."""

    text: str
    strong: bool = False
    mark: str = ""
    """Method whose sign the page puts before the text."""
    interval: tuple[float, float, float] | None = None
    """Low, value and high in percent, which the page draws."""
    tone: str = ""
    """better, worse or open: a verdict, which the page colours."""
    title: str = ""
    """The whole of an abbreviated text, which the page shows on demand."""
    link: str = ""
    """File beside the page that the text leads to."""


@dataclass(frozen=True)
class Table:
    """A table and what to say about it; the first column names its rows."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[Entry | str, ...], ...]
    note: str = ""
    words: tuple[str, ...] = ()
    """Columns of text, which stand on the left."""
    commands: tuple[str, ...] = ()
    """What makes the records behind it again."""

    def of(self, environment: str) -> "Table | None":
        """The rows of one environment, which the first column names; none if there are none.

        Who is measured comes first then, so that a page can keep it in sight. Commands are of all environments.
        """
        who = next((self.header.index(name) for name in ("method", "methods", "model") if name in self.header), 1)
        order = [who, *(i for i in range(1, len(self.header)) if i != who)]
        rows = tuple(tuple(row[i] for i in order) for row in self.rows if plain(row[0]) == environment)
        header = tuple(self.header[i] for i in order)
        return replace(self, header=header, rows=rows, commands=()) if rows else None


def table(
    title: str,
    header: Sequence[str],
    rows: Iterable[Sequence[Entry | str]],
    note: str = "",
    words: Sequence[str] = (),
    commands: Iterable[str] = (),
) -> Table | None:
    """A table with rows; none without."""
    found = tuple(tuple(row) for row in rows)
    return Table(title, tuple(header), found, note, tuple(words), tuple(dict.fromkeys(commands))) if found else None


def plain(entry: Entry | str) -> str:
    """Its text."""
    return entry if isinstance(entry, str) else entry.text


def listed(names: Sequence[str]) -> str:
    """A, B and C; nothing of no names."""
    return " and ".join([", ".join(names[:-1])] * (len(names) > 1) + list(names[-1:]))


# --- Markdown --------------------------------------------------------------------------------------------------------


def markdown(shown: Table | None, heading: str = "##") -> list[str]:
    """Paragraphs: title, table, note, commands."""
    if shown is None:
        return []
    parts = [f"{heading} {escaped(shown.title)}"] if shown.title else []
    parts += [markdown_table(shown.header, ([_emphasised(cell) for cell in row] for row in shown.rows))]
    parts += [one_per_line(shown.note)] if shown.note else []
    return parts + ([code(shown.commands)] if shown.commands else [])


def markdown_table(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A Markdown table; what a name holds cannot break it."""
    rows = [header, ["---"] * len(header), *lines]
    return "\n".join("| " + " | ".join(escaped(cell) for cell in row) + " |" for row in rows)


def code(commands: Iterable[str]) -> str:
    """Commands as a block of code; one of many words goes on in the next line, as a shell takes it."""
    return "\n".join(["```", *dict.fromkeys(_folded(_printable(command)) for command in commands), "```"])


def _folded(command: str) -> str:
    if len(command) <= WIDTH or command.startswith("#"):
        return command
    lines: list[str] = []
    for word in map(shlex.quote, shlex.split(command)):
        fits = lines and len(lines[-1]) + len(word) < WIDTH - 2
        lines[-1:] = [f"{lines[-1]} {word}"] if fits else [*lines[-1:], word]
    return " \\\n  ".join(lines)


_NEXT = re.compile(r"(?:(?<=[.!?])|(?<=[.!?][*]{2})) (?=[^a-z ])")
_ABBREVIATED = re.compile(r"\b(App|Sec|eq)\.$")


def one_per_line(text: str) -> str:
    """The text with every sentence on a line of its own; what stands in brackets or in code stays together."""
    lines = [""]
    for part in _NEXT.split(text):
        line = f"{lines[-1]} {part}".lstrip()
        is_whole = line.count("(") == line.count(")") and line.count("`") % 2 == 0 and not _ABBREVIATED.search(line)
        lines[-1:] = [line, ""] if is_whole else [line]
    return "\n".join(filter(None, lines))


def escaped(text: str) -> str:
    """Text that Markdown takes as it is."""
    return re.sub(r"([|<])", r"\\\1", _printable(text))


def _printable(text: str) -> str:
    """Text without control characters."""
    return "".join(c if c.isprintable() else "\N{WHITE SQUARE}" for c in text)


def _emphasised(entry: Entry | str) -> str:
    return f"**{entry.text}**" if isinstance(entry, Entry) and entry.strong else plain(entry)


# --- terminal --------------------------------------------------------------------------------------------------------


def terminal(shown: Table) -> "Padding":
    """For the terminal, without title and note; set in a little, folded lines too."""
    from rich.padding import Padding
    from rich.table import Table as RichTable

    drawn = RichTable(box=None, header_style="dim", padding=(0, 2, 0, 0), pad_edge=False)
    for i, name in enumerate(shown.header):
        left = i == 0 or name in shown.words
        drawn.add_column(name, justify="left" if left else "right", no_wrap=i > 0)
    for row in shown.rows:
        drawn.add_row(*(plain_text(plain(cell)) for cell in row))
    return Padding(drawn, (0, 0, 0, 2), expand=False)


def plain_text(name: str, style: str = "") -> "Text":
    """A name for the terminal, with markup and control characters made harmless."""
    from rich.text import Text

    return Text(_printable(name), style)

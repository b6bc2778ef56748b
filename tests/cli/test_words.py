"""Only the command line and the jobs know flags and verbs; everything else speaks of options and remedies."""

import ast
import re
import shlex
from pathlib import Path

import pytest

from saltwm import cli
from saltwm.cli.advice import REMEDIES, advice
from saltwm.ground.errors import UsageError
from saltwm.report.elements import ELEMENTS

PACKAGE = Path(cli.__file__).parents[1]
COMMANDS = re.compile(rf"(?<![\w-])--[a-z]|\bsaltwm ({'|'.join(cli.VERBS)})\b")
ALLOWED = {
    "report/elements.py": "each table and figure of the paper with the command that makes it; parsed below",
    "interop/on_ray.py": "the option of another program, which starts a cluster",
}
"""Files that name a command, and why."""


def named(path: Path) -> list[str]:
    """The strings of a file, docstrings too, that name a flag or a verb."""
    strings = [n.value for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Constant)]
    return [text for text in strings if isinstance(text, str) and COMMANDS.search(text)]


def test_no_flag_or_verb_is_named_outside_the_command_line_and_the_jobs():
    elsewhere = [p for p in sorted(PACKAGE.rglob("*.py")) if p.relative_to(PACKAGE).parts[0] not in ("cli", "jobs")]
    found = {str(path.relative_to(PACKAGE)): named(path) for path in elsewhere}
    assert {name: texts for name, texts in found.items() if texts and name not in ALLOWED} == {}
    assert all(found[name] for name in ALLOWED)
    assert named(PACKAGE / "jobs" / "shipping.py")  # the search finds what there is


@pytest.mark.parametrize("command", sorted({e.command for e in ELEMENTS if e.command.startswith("saltwm ")}))
def test_the_command_of_every_element_of_the_paper_is_one(command):
    assert cli.parse(shlex.split(command)[1:])


def test_an_error_names_options_and_the_command_line_shows_flags():
    error = UsageError("data: collect it again with another `frame_every`", remedy="finish", path=Path("my data"))
    assert str(error) == "data: collect it again with another `frame_every`"
    assert advice(error) == "data: collect it again with another --frame-every; finish it with: saltwm again 'my data'"


def test_every_remedy_that_an_error_names_has_its_command():
    pattern = re.compile(r'remedy="([^"]+)"|REMEDY = "([^"]+)"')
    used = {a or b for path in PACKAGE.rglob("*.py") for a, b in pattern.findall(path.read_text())}
    assert used == set(REMEDIES)

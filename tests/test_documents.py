"""What the documents tell a reader to type is what the command line takes."""

import re
import shlex
from pathlib import Path

import pytest

from saltwm.cli import parse

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def commands(text: str) -> list[str]:
    """Every saltwm command in a block or between backquotes, without its comment and launcher; no names of verbs."""
    blocks = [
        line.strip() for block in re.findall(r"^```\n(.*?)^```", text, re.DOTALL | re.M) for line in block.splitlines()
    ]
    quoted = re.findall(r"`(saltwm [^`]*)`", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.M))
    lines = [re.sub(r"\s+#.*", "", line) for line in blocks] + [line for line in quoted if " --" in line]
    return [
        line[line.index("saltwm ") :] for line in lines if re.match(r"(saltwm|srun saltwm|torchrun .*-m saltwm) ", line)
    ]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_command_of_the_documents_is_taken(document, capsys):
    for command in commands(document.read_text()):
        try:
            parse(shlex.split(command)[1:])
        except SystemExit:
            pytest.fail(f"{command}\n{capsys.readouterr()}")


def test_a_command_with_an_option_that_is_not_there_would_be_found(capsys):
    (command,) = commands("Run `saltwm collect two-room --out x --frames 3`, or `saltwm collect`.")
    with pytest.raises(SystemExit):
        parse(shlex.split(command)[1:])

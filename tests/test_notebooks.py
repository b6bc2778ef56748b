"""The notebooks run from top to bottom, in a kernel of their own, and show what is kept in them."""

import os
import re
from pathlib import Path
from typing import Any

import pytest

from tests.notebooks import NOTEBOOKS, ROOT, executed

SAYS = {
    "plan_with_a_shipped_model": ["reached after", "block 5: one-step error"],
    "your_own_environment": ["rank of the recorded actions", "goals reached:"],
}


def shown(notebook: Any) -> list[list[tuple[str, str]]]:
    """What each cell shows: kinds of output, and words without the numbers, which differ between processors."""

    def words(output: Any) -> str:
        text = output.get("text", "") or output.get("data", {}).get("text/plain", "")
        outcomes = re.sub(r"not reached|reached", "(not) reached", text)
        return re.sub(r"-?\d+(\.\d+)?(e[+-]\d+)?", "#", outcomes)

    return [
        [(output.output_type, words(output)) for output in cell.outputs]
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


@pytest.mark.filterwarnings("ignore")  # those of Jupyter's own packages
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_notebook_runs_and_shows_what_it_keeps(
    notebook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("nbclient")
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    content = executed(notebook, tmp_path)
    printed = "".join(output.get("text", "") for cell in content.cells for output in cell.get("outputs", []))
    begins = [any(line.startswith(words) for line in printed.splitlines()) for words in SAYS[notebook.stem]]
    assert all(begins), printed
    assert shown(nbformat.read(notebook, as_version=4)) == shown(content), "run: make notebooks"

"""The notebooks run from top to bottom, in a kernel of their own."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SAYS = {
    "plan_with_a_shipped_model": ["reached after", "block 5: one-step error"],
    "your_own_environment": ["rank of the recorded actions", "goals reached:"],
}


@pytest.mark.filterwarnings("ignore")  # those of Jupyter's own packages
@pytest.mark.parametrize("notebook", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem)
def test_the_notebook_runs(notebook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    content = nbformat.read(notebook, as_version=4)
    assert all(not cell.get("outputs") for cell in content.cells), "a notebook is kept without its outputs"
    nbclient.NotebookClient(
        content, timeout=280, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    ).execute()
    printed = "".join(output.get("text", "") for cell in content.cells for output in cell.get("outputs", []))
    begins = [any(line.startswith(words) for line in printed.splitlines()) for words in SAYS[notebook.stem]]
    assert all(begins), printed

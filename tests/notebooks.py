"""`make notebooks`: run each notebook from top to bottom, and keep what it shows for those who only read it."""

import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def executed(notebook: Path, folder: Path) -> Any:
    """The notebook with what its cells show, run by a kernel of its own in FOLDER."""
    import nbclient
    import nbformat

    content = nbformat.read(notebook, as_version=4)
    nbclient.NotebookClient(
        content,
        timeout=280,
        kernel_name="python3",
        record_timing=False,  # another run changes what is shown alone
        coalesce_streams=True,
        resources={"metadata": {"path": folder}},
    ).execute()
    return content


def main() -> None:
    import nbformat

    for notebook in NOTEBOOKS:
        with tempfile.TemporaryDirectory() as folder:
            content = executed(notebook, Path(folder))
        for output in (output for cell in content.cells for output in cell.get("outputs", [])):
            output.get("data", {}).pop("image/jpeg", None)  # Pillow shows each picture as PNG, too
        content.metadata["language_info"] = {"name": "python"}  # not the Python that happened to run it
        nbformat.write(content, notebook)
        print(f"{notebook.relative_to(ROOT)}: run and kept")


if __name__ == "__main__":
    main()

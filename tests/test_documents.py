"""What the documents tell a reader to type is what the command line takes, and their Python runs as it stands."""

import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from saltwm.cli import parse
from saltwm.disk.checkpoint import read_run
from saltwm.jobs.collect import Collect

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def commands(text: str) -> list[str]:
    """Every saltwm command in a block or between backquotes, without its comment and launcher; no names of verbs."""
    text = text.replace(" \\\n  ", " ")  # a long command goes on in the next line
    # With its language, or the end of a block of Python would be taken for the beginning of one.
    fenced = re.findall(r"^```(\w*)\n(.*?)^```", text, re.DOTALL | re.M)
    blocks = [line.strip() for language, block in fenced if not language for line in block.splitlines()]
    quoted = re.findall(r"`(saltwm [^`]*)`", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.M))
    lines = [re.sub(r"\s+#.*", "", line) for line in blocks] + [line for line in quoted if " --" in line]
    return [
        line[line.index("saltwm ") :] for line in lines if re.match(r"(saltwm|srun saltwm|torchrun .*-m saltwm) ", line)
    ]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_command_of_the_documents_is_taken(document, capsys, tmp_path, monkeypatch):
    planner = next((block for block in python_blocks("evaluation.md") if "def shooting" in block), "")
    (tmp_path / "shooting.py").write_text(planner)  # the file that the page names, for `--planner shooting:shooting`
    monkeypatch.syspath_prepend(tmp_path)
    for command in commands(document.read_text()):
        try:
            parse(shlex.split(re.sub(r"^saltwm( --(env|model) \S+)+", "saltwm", command))[1:])
        except SystemExit:
            pytest.fail(f"{command}\n{capsys.readouterr()}")


def test_a_command_with_an_option_that_is_not_there_would_be_found(capsys):
    (command,) = commands("Run `saltwm collect two-room --out x --frames 3`, or `saltwm collect`.")
    with pytest.raises(SystemExit):
        parse(shlex.split(command)[1:])


def test_a_command_after_a_block_of_python_is_found():
    text = "```python\nx = 1\n```\n\n```\nsaltwm --env a:B info runs/x   # why\n```\n"
    assert commands(text) == ["saltwm --env a:B info runs/x"]


def python_blocks(document: str) -> list[str]:
    """The Python of a document, block by block."""
    return re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / document).read_text(), re.DOTALL | re.M)


def test_the_python_of_the_data_page_reads_a_dataset(dataset, tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "two-room").symlink_to(dataset.path)
    monkeypatch.chdir(tmp_path)
    with_zarr, with_saltwm, _ = python_blocks("data.md")
    names: dict[str, Any] = {}
    exec(with_zarr, names)
    exec(with_saltwm, names)
    frame = names["dataset"].read_frames([0], [0])[0]
    np.testing.assert_array_equal(names["group"]["part-00000/frames"][0], frame)
    assert names["group"].attrs["recipe"]["world"]["environment"] == "two-room"


def test_the_python_of_the_data_page_writes_recordings(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(python_blocks("data.md")[2], names)
    assert len(names["recorded"]) == 12


def test_the_python_of_the_training_page_trains(tmp_path, monkeypatch):
    Collect("two-room", tmp_path / "data" / "two-room", 12, frame_every=5, workers=1).do()
    monkeypatch.chdir(tmp_path)
    text = python_blocks("training.md")[0].replace("data/more", "data/two-room")
    names: dict[str, Any] = {}
    exec(text.replace("steps=20", "steps=2, batch_size=2"), names)
    assert read_run(tmp_path / "work" / "mine").run.train.weight_decay == 0.01
    assert names["model"].world.environment == "two-room"
    assert read_run(tmp_path / "work" / "tuned").lineage[-1].step == 2


def test_the_python_of_the_environments_page_acts_in_one():
    names: dict[str, Any] = {}
    exec(python_blocks("environments.md")[0], names)
    distances = names["env"].goal_distance(names["states"], names["goals"])
    assert distances[0] > 1
    assert distances[1] == 0


def test_every_python_block_of_the_documents_is_run_by_a_test():
    """The others: test_own_model.py, test_env_protocol.py, test_evaluation_docs.py and test_readme.py."""
    found = {path.name: path.read_text().count("```python") for path in DOCUMENTS}
    assert {name: count for name, count in found.items() if count} == {
        "README.md": 1,
        "data.md": 3,
        "environments.md": 3,
        "evaluation.md": 3,
        "training.md": 2,
    }

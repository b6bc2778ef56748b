"""A transition of one's own is one file and one row, a planner one function in one file: every verb takes them."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from own_planners import SHOOTING

import saltwm

# As docs/training.md tells a reader to write them.
BLOCKS = re.findall(r"```python\n(.*?)```", (Path(__file__).parents[2] / "docs" / "training.md").read_text(), re.DOTALL)
(TRANSITION,) = (block for block in BLOCKS if "class Residual(Transition)" in block)
(ROW,) = (block for block in BLOCKS if 'TRANSITIONS["residual"]' in block)


@pytest.fixture
def house(tmp_path):
    """A copy of the package with the file and the row, and a planner in the working directory."""
    package = tmp_path / "saltwm"
    shutil.copytree(Path(saltwm.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "model" / "residual.py").write_text(TRANSITION)
    with open(package / "model" / "traits.py", "a") as file:
        file.write(f"\n\n{ROW}")
    (tmp_path / "mine.py").write_text(SHOOTING)
    return tmp_path


def run(house, *words, expected=0):
    environment = {**os.environ, "PYTHONPATH": str(house), "OMP_NUM_THREADS": "1"}
    found = subprocess.run(
        [sys.executable, "-m", "saltwm", *words],
        cwd=house,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == expected, found.stderr
    return found


@pytest.mark.full
def test_every_verb_takes_a_third_transition_and_a_planner_of_ones_own(house):
    collect = ["collect", "two-room", "--image-size", "16", "--frame-every", "5", "--workers", "1"]
    run(house, *collect, "--episodes", "24", "--out", "data")
    held_out = "shelf/two-room-data"
    run(house, *collect, "--episodes", "8", "--seed", "1000", "--held-out", "--out", held_out)
    sizes = ["--latent-dim", "16", "--channels", "4", "8", "--batch-size", "8", "--projections", "8"]
    often = ["--steps", "2", "--validate-every", "2", "--save-every", "2"]
    run(house, "train", "data", "--model", "residual", *sizes, *often, "--out", "runs/residual")
    assert json.loads((house / "runs/residual/run.json").read_text())["run"]["objective"]["objective"] == "rollout"

    few = ["--data", held_out, "--tasks", "2", "--out", "results", "--workers", "1", "--pictures", "0"]
    run(house, "evaluate", "runs/residual", *few, "--planner", "mine:shooting", "--look-every", "1")
    own = house / "results/evaluations/two-room-residual-shooting-look1-clean-seed1"
    assert json.loads((own / "evaluation.json").read_text())["planner"]["function"] == "mine:shooting"
    run(house, "evaluate", "runs/residual", *few, "--planner", "cem,candidates=10,iterations=1,elites=4")
    refused = run(house, "evaluate", "runs/residual", *few, "--planner", "gauss-newton", expected=2)
    assert "needs a state-affine model" in refused.stderr

    run(
        house,
        "diagnose",
        "runs/residual",
        "--data",
        held_out,
        "--out",
        "results",
        "--frames",
        "8",
        "--trajectories",
        "2",
    )
    run(house, "ship", "runs/residual", "--out", "shelf/two-room-residual")
    run(house, "card", "shelf/two-room-residual", "--results", "results")
    assert (house / "shelf/two-room-residual/README.md").read_text().startswith("# Residual on Two-Room")
    run(house, "demo", "two-room", "--model", "residual", "--checkpoints", "shelf", "--out", "shown")


@pytest.mark.full
def test_a_planner_that_only_a_file_names_is_not_imported(house):
    collect = ["collect", "two-room", "--image-size", "16", "--frame-every", "5", "--workers", "1"]
    run(house, *collect, "--episodes", "24", "--out", "data")
    sizes = ["--latent-dim", "16", "--channels", "4", "8", "--batch-size", "8", "--projections", "8"]
    run(house, "train", "data", *sizes, "--steps", "1", "--out", "runs/salt")
    few = ["--data", "data", "--protocol", "paper", "--tasks", "1", "--workers", "1", "--pictures", "0"]
    run(house, "evaluate", "runs/salt", *few, "--planner", "mine:shooting", "--out", "results")
    (house / "mine.py").write_text("raise SystemExit('this code ran')")
    refused = run(house, "again", "results/evaluations/two-room-salt-shooting-paper-seed1", "--out", "more", expected=2)
    assert "a file does not run code" in refused.stderr

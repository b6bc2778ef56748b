"""A model of one's own is one class in one file, a planner one function: every verb takes them from a user's folder."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from commands import saltwm
from own_planners import SHOOTING

from saltwm.cli import main
from saltwm.jobs.job import naming_models
from saltwm.model import own

# As docs/training.md tells a reader to write it.
BLOCKS = re.findall(r"```python\n(.*?)```", (Path(__file__).parents[2] / "docs" / "training.md").read_text(), re.DOTALL)
(TRANSITION,) = (block for block in BLOCKS if "class Residual(Transition)" in block)
NAMED = ["--model", "residual:Residual"]
HELD_OUT = "shelf/two-room-data"
FEW = ["--data", HELD_OUT, "--tasks", "2", "--out", "results", "--pictures", "0"]
QUICKLY = ["--planner", "cem,candidates=10,iterations=1,elites=4"]
SIZES = ["--latent-dim", "16", "--channels", "4", "8", "--batch-size", "8", "--projections", "8"]
SHOT = "two-room-residual-shooting-look1-clean-seed1"


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    """A user's folder: the class, a planner, data, and a run that was trained with the class."""
    folder = tmp_path_factory.mktemp("outside")
    (folder / "residual.py").write_text(TRANSITION)
    (folder / "mine.py").write_text(SHOOTING)
    collect = ["collect", "two-room", "--image-size", "16", "--frame-every", "5", "--workers", "1"]
    saltwm(*collect, "--episodes", "24", "--out", "data", cwd=folder)
    saltwm(*collect, "--episodes", "8", "--seed", "1000", "--held-out", "--out", HELD_OUT, cwd=folder)
    often = ["--steps", "2", "--validate-every", "2", "--save-every", "2"]
    saltwm("train", "data", *NAMED, *SIZES, *often, "--out", "runs/residual", cwd=folder)
    return folder


@pytest.fixture
def trapped(house, monkeypatch):
    """The folder with a file in the class's place that would tell if it were imported."""
    (house / "residual.py").write_text("from pathlib import Path\nPath('ran').touch()\n" + TRANSITION)
    monkeypatch.chdir(house)
    yield house
    (house / "residual.py").write_text(TRANSITION)
    (house / "ran").unlink(missing_ok=True)


def test_a_run_keeps_the_word_and_is_trained_by_rollouts(house):
    run = json.loads((house / "runs/residual/run.json").read_text())["run"]
    assert run["model"]["model"] == "residual:Residual"
    assert run["objective"]["objective"] == "rollout"


@pytest.mark.parametrize(("words", "variable"), [(NAMED, ""), ([], "residual:Residual")], ids=["option", "variable"])
def test_a_fresh_interpreter_and_its_workers_know_the_class_that_was_named(words, variable, house, tmp_path):
    few = ["--data", HELD_OUT, "--tasks", "2", "--out", str(tmp_path), "--pictures", "0", "--workers", "2"]
    told = subprocess.run(
        [sys.executable, "-m", "saltwm", *words, "evaluate", "runs/residual", *few, *QUICKLY],
        cwd=house,
        env={**os.environ, own.VARIABLE: variable, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    assert "Residual, d 16" in told.stdout
    assert "next: saltwm --model residual:Residual diagnose" in told.stdout
    job = json.loads((tmp_path / "evaluations/two-room-residual-clean-seed1/job.json").read_text())
    assert len(job["inputs"]["model"]) == 64  # of its file: other code would be another evaluation


@pytest.mark.parametrize(
    "words",
    [
        ["info", "runs/residual"],
        ["evaluate", "runs/residual", *FEW],
        ["suite", "runs/residual", *FEW],
        ["play", "runs/residual", "--data", HELD_OUT],
        ["diagnose", "runs/residual", "--data", HELD_OUT],
        ["decode", "runs/residual", "--data", HELD_OUT],
        ["score", "runs/residual", "--data", HELD_OUT],
        ["prior", "runs/residual", "--data", "data"],
        ["ship", "runs/residual", "--out", "shipped"],
        ["export", "runs/residual", "--format", "onnx", "--out", "exported"],
        ["train", "data", "--from", "runs/residual", "--out", "runs/more"],
        ["again", "runs/residual"],
    ],
    ids=lambda words: words[0],
)
def test_a_checkpoint_alone_imports_nothing_and_says_how_to_name_its_class(words, trapped, capsys):
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "a file does not run code" in line
    assert line.endswith("saltwm --model residual:Residual VERB ...")
    assert not (trapped / "ran").exists()


def test_the_same_file_runs_once_it_is_named(trapped):
    """The control: without it, silence would prove nothing."""
    saltwm(*NAMED, "info", "runs/residual", cwd=trapped)
    assert (trapped / "ran").exists()


def test_a_printed_command_names_the_class_once(monkeypatch):
    monkeypatch.setenv(own.VARIABLE, "residual:Residual")
    assert naming_models("saltwm info runs/residual") == "saltwm --model residual:Residual info runs/residual"
    assert naming_models("saltwm train d --model residual:Residual") == "saltwm train d --model residual:Residual"
    assert naming_models("open page.html") == "open page.html"


def test_options_of_salts_transition_are_refused_for_ones_own(house):
    ended = saltwm("train", "data", *NAMED, "--modes", "2", "--out", "runs/modes", check=False, cwd=house)
    assert ended.returncode == 2
    assert "leave them out for --model residual:Residual" in ended.stderr


def test_a_card_prints_commands_that_work_for_ones_own_planner_and_model(house):
    saltwm(*NAMED, "evaluate", "runs/residual", *FEW, "--planner", "mine:shooting", "--look-every", "1", cwd=house)
    record = json.loads((house / "results/evaluations" / SHOT / "evaluation.json").read_text())
    assert record["planner"]["function"] == "mine:shooting"
    saltwm(*NAMED, "ship", "runs/residual", "--out", "shelf/two-room-residual", "--results", "results", cwd=house)
    card = (house / "shelf/two-room-residual/README.md").read_text()
    assert card.startswith("# Residual on Two-Room")
    assert "Residual with shooting, d 16" in card
    commands = re.search(r"```\n(.*?)```", card, re.DOTALL)[1].replace("\\\n", "").splitlines()
    assert any(line.startswith("saltwm --model residual:Residual ship ") for line in commands)
    (again,) = (shlex.split(line)[1:] for line in commands if " again " in line)
    saltwm(*again, cwd=house)
    repeated, recorded = (house / place / "evaluations" / SHOT for place in ("work/again", "results"))
    assert (repeated / "episodes.jsonl").read_bytes() == (recorded / "episodes.jsonl").read_bytes()

    unnamed = saltwm(*again[: again.index("--planner")], check=False, cwd=house)
    assert unnamed.returncode == 2
    assert "name it yourself, as the --planner mine:shooting" in unnamed.stderr
    other = saltwm(*NAMED, "again", f"results/evaluations/{SHOT}", "--planner", "cem", check=False, cwd=house)
    assert other.returncode == 2
    assert "no file there names the planner cem" in other.stderr


@pytest.mark.full
def test_every_verb_takes_a_model_of_ones_own(house):
    saltwm(*NAMED, "evaluate", "runs/residual", *FEW, *QUICKLY, "--workers", "1", cwd=house)
    gauss_newton = ["evaluate", "runs/residual", *FEW, "--planner", "gauss-newton"]
    refused = saltwm(*NAMED, *gauss_newton, check=False, cwd=house)
    assert refused.returncode == 2
    assert "needs a state-affine model" in refused.stderr
    on_few = ["--data", HELD_OUT, "--frames", "8", "--trajectories", "2"]
    saltwm(*NAMED, "diagnose", "runs/residual", *on_few, "--out", "results", cwd=house)
    saltwm(*NAMED, "prior", "runs/residual", "--data", "data", "--steps", "2", cwd=house)
    saltwm(*NAMED, "score", "runs/residual", "--data", "data", cwd=house)
    saltwm("report", "results", "--out", "report", cwd=house)  # sees records alone
    assert ">Residual, d 16<" in (house / "report/index.html").read_text()
    saltwm(*NAMED, "ship", "runs/residual", "--out", "shelf/two-room-residual", cwd=house)
    show = ["demo", "two-room", "--model", "residual", "--checkpoints", "shelf", "--out", "shown"]
    saltwm(*NAMED, *show, cwd=house)
    saltwm(*NAMED, "again", "runs/residual", cwd=house)


@pytest.mark.full
def test_a_planner_that_only_a_file_names_is_not_imported(house):
    saltwm("train", "data", *SIZES, "--steps", "1", "--out", "runs/salt", cwd=house)
    few = ["--data", "data", "--protocol", "paper", "--tasks", "1", "--workers", "1", "--pictures", "0"]
    saltwm("evaluate", "runs/salt", *few, "--planner", "mine:shooting", "--out", "results", cwd=house)
    (house / "mine.py").write_text("raise SystemExit('this code ran')")
    cell = "results/evaluations/two-room-salt-shooting-paper-seed1"
    refused = saltwm("again", cell, "--out", "more", check=False, cwd=house)
    (house / "mine.py").write_text(SHOOTING)
    assert refused.returncode == 2
    assert "a file does not run code" in refused.stderr

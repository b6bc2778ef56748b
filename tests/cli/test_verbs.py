"""The command line as a user meets it: real processes, real exit codes, one line for each error, no traceback."""

import dataclasses
import importlib.metadata
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from commands import Command, saltwm

from saltwm.disk.durable import read_config
from saltwm.disk.records import Diagnosis, Evaluation
from saltwm.ground.strict_json import from_plain

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "100"}
SMALL = ["--preset", "quick", "--steps", 4, "--batch-size", 8, "--latent-dim", 16, "--modes", 2]


def typed(*words):
    """The command as a shell starts it."""
    command = [sys.executable, "-m", "saltwm", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=ENVIRONMENT, timeout=240)


def fails(code, *words, saying):
    """The command ends with `code` and one clear line, without a traceback."""
    result = saltwm(*words, check=False)
    assert result.returncode == code, (result.returncode, result.stderr)
    lines = result.stderr.strip().splitlines()
    assert "Traceback" not in result.stderr
    assert len(lines) == 1
    assert saying in lines[0]


@pytest.fixture(scope="module")
def story(tmp_path_factory, tiny):
    """Every verb of the README on a very small scale, each as its own process."""
    root = tmp_path_factory.mktemp("story")
    data, run, results = root / "data", root / "run", root / "results"
    collected = typed("collect", "two-room", "--episodes", 60, "--frame-every", 5, "--image-size", 16, "--out", data)
    trained = saltwm("train", data, *SMALL, "--out", run)
    common = ["--data", data, "--out", results, "--workers", 1]
    evaluated = saltwm("evaluate", run, *common, "--protocol", "paper", "--tasks", 3, "--pictures", 1)
    diagnosed = saltwm("diagnose", run, "--data", data, "--out", results, "--horizon", 6, "--trajectories", 2)
    reported = saltwm("report", results, "--out", root / "report")
    outputs = [result.stdout for result in (collected, trained, evaluated, diagnosed, reported)]
    return dataclasses.make_dataclass("Story", ["root", "data", "run", "results", "outputs"])(
        root, data, run, results, outputs
    )


def test_each_verb_prints_what_to_run_next(story):
    for output, verb in zip(story.outputs, ["train", "evaluate", "diagnose", "report", "open"], strict=True):
        assert f"next: saltwm {verb}" in output or f"next: {verb}" in output


def test_each_artefact_says_how_it_was_made(story):
    assert json.loads((story.data / "zarr.json").read_text())["attributes"]
    options = json.loads((story.run / "run.json").read_text())["run"]
    assert options["train"]["steps"] == 4
    assert options["model"]["latent_dim"] == 16
    cell = next((story.results / "evaluations").iterdir())
    assert read_config(Evaluation, cell / "evaluation.json").success.n == 3
    diagnosis = read_config(Diagnosis, next((story.results / "diagnostics").iterdir()) / "diagnosis.json")
    assert max(diagnosis.rho) < 1e-10
    assert (story.root / "report" / "index.html").stat().st_size > 10_000


def test_verbs_that_are_done_do_nothing_again(story):
    before = {path: path.stat().st_mtime_ns for path in story.run.rglob("weights.safetensors")}
    again = saltwm("train", story.data, *SMALL, "--out", story.run).stdout
    assert "all steps were done before" in again
    assert "frames per second" not in again
    assert before == {path: path.stat().st_mtime_ns for path in story.run.rglob("weights.safetensors")}


def test_results_come_as_json(story):
    evaluate = [
        "evaluate",
        story.run,
        "--data",
        story.data,
        "--out",
        story.results,
        "--protocol",
        "paper",
        "--tasks",
        3,
    ]
    assert from_plain(Evaluation, json.loads(saltwm(*evaluate, "--json").stdout), "stdout").success.n == 3
    assert json.loads(saltwm("info", story.run, "--json").stdout)["step"] == 4
    assert json.loads(saltwm("data", "info", story.data, "--json").stdout)["episodes"] == 60


def test_help_is_fast_because_nothing_heavy_is_imported():
    heavy = ("torch", "lightning_fabric", "mujoco", "pymunk", "tensorstore", "matplotlib")
    code = f"import sys, saltwm, saltwm.cli; print([name for name in {heavy} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=ENVIRONMENT)
    assert result.stdout.strip() == "[]"


def test_help_names_what_is_wanted_and_never_the_word_none():
    asked = typed("train", "--help").stdout
    assert "DATASET" in asked
    assert "None" not in asked
    assert "--no-json" not in asked
    assert "--free-a0" in asked


def test_statistics_of_a_dataset_say_what_their_numbers_are(story, tmp_path):
    told = " ".join(saltwm("data", "stats", story.data, "--out", tmp_path / "stats.png").stdout.split())
    assert "5, 25, 50, 75, 95 % quantiles" in told
    assert "success radii" in told


def test_version_is_that_of_the_installed_package():
    assert typed("--version").stdout == f"saltwm {importlib.metadata.version('saltwm')}\n"


def test_public_names_are_there_when_asked_for():
    import saltwm as package

    assert all(getattr(package, name) is not None for name in package.__all__)
    with pytest.raises(AttributeError, match="nonsense"):
        _ = package.nonsense


def test_a_mistyped_option_gets_the_nearest_right_one():
    result = saltwm("collect", "two-room", "--epsiodes", 3, "--out", "nowhere", check=False)
    assert result.returncode == 2
    assert "--episodes" in result.stdout + result.stderr


def test_bad_input_is_one_clear_line_with_the_right_exit_code(story, tmp_path):
    fails(2, "collect", "two-rom", "--out", tmp_path / "x", saying="did you mean 'two-room'")
    fails(2, "train", tmp_path / "missing", "--out", tmp_path / "run", saying="saltwm collect")
    paper = ["--protocol", "paper", "--tasks", 3, "--out", tmp_path / "results"]
    fails(2, "evaluate", tmp_path / "missing", "--data", story.data, *paper, saying="saltwm train")
    fails(2, "report", tmp_path / "missing", saying="saltwm evaluate")


def test_a_truncated_dataset_never_trains(story, tmp_path):
    import shutil

    data = shutil.copytree(story.data, tmp_path / "data")
    victim = max((path for path in data.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
    victim.write_bytes(victim.read_bytes()[:-10])
    fails(6, "train", data, "--out", tmp_path / "run", saying=victim.name)


def test_a_checkpoint_of_another_world_is_refused(story, tmp_path):
    small = ["--episodes", 20, "--image-size", 24, "--frame-every", 5, "--workers", 1]
    saltwm("collect", "two-room", *small, "--out", tmp_path / "data")
    command = ["evaluate", story.run, "--data", tmp_path / "data", "--out", tmp_path / "results", "--protocol", "paper"]
    fails(3, *command, saying="image_size: expected 16, found 24")


def test_two_trainers_in_one_directory(story, tmp_path):
    options = ["--preset", "quick", "--steps", 100000, "--batch-size", 8, "--latent-dim", 16, "--out", tmp_path / "run"]
    first = Command("train", story.data, *options)
    try:
        wait_for(tmp_path / "run" / "run.json")
        fails(5, "train", story.data, *options, saying=f"process {first.pid}")
        first.send(signal.SIGINT)
    finally:
        ended = first.end(60)
    assert ended.returncode == 130
    assert "saved; the same command goes on" in ended.stderr
    assert "Traceback" not in ended.stderr


def wait_for(path, seconds=60):
    deadline = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} did not appear"
        time.sleep(0.05)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_collection_says_so_and_goes_on(tmp_path, number):
    words = ["collect", "two-room", "--episodes", "4000", "--image-size", "16", "--out", str(tmp_path / "data")]
    command = [sys.executable, "-m", "saltwm", *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT)
    wait_for(tmp_path / "data" / "collection.json")
    time.sleep(0.5)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert b"Traceback" not in errors
    assert len(errors.strip().splitlines()) == 1


def test_doctor_looks_at_everything():
    findings = json.loads(saltwm("doctor", "--json").stdout)
    assert {"python", "torch", "cores", "renderer egl"} <= {finding["what"] for finding in findings}
    for name in ("tensorboard", "wandb", "ray", "onnxruntime"):
        (finding,) = (finding for finding in findings if finding["what"] == name)
        assert ("pip install" in finding["remedy"]) == ("not installed" in finding["found"])
    assert findings[-1]["what"] == "verdict"
    assert findings[-1]["found"].startswith("ready for Two-Room")


def test_doctors_verdict_names_what_works_and_what_must_be_done_first():
    from saltwm.jobs.doctor import BACKENDS, OPTIONAL, PACKAGES, Finding, verdict

    names = ["python", *PACKAGES, *OPTIONAL, *(f"renderer {backend}" for backend in BACKENDS)]

    def found(*broken):
        return verdict([Finding(name, "", "mend it" if name in broken else "") for name in names])

    assert found().found == "ready for Two-Room, PushT, Reacher, Cube"
    assert found("renderer egl").remedy == ""  # the other one draws
    blind = found("renderer egl", "renderer osmesa")
    assert (blind.found, blind.remedy) == ("ready for Two-Room, PushT", "for Reacher, Cube see above")
    assert found("dm-control").found == "ready for Two-Room, PushT, Cube"
    assert found("torch") == Finding("verdict", "nothing works without torch", "mend it")


def test_a_nan_action_is_refused_with_its_place():
    from saltwm.envs import make_env
    from saltwm.ground.errors import NonFiniteError

    env = make_env("two-room")
    env.reset(seed=0)
    with pytest.raises(NonFiniteError, match="two-room: action"):
        env.step(np.array([np.nan, 0.0], np.float32))

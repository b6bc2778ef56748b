"""Linear probes and ranked costs: they find what is there, and nothing where there is nothing."""

import dataclasses
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from small_runs import SMALL, write_run

from saltwm.data.stretches import CONTEXT
from saltwm.diagnostics import probe as probing
from saltwm.diagnostics.cost_order import cost_order, rank_correlation
from saltwm.diagnostics.probe import mlp, probe, r_squared, ridge
from saltwm.disk import checkpoint, durable
from saltwm.disk.checkpoint import load
from saltwm.disk.durable import read_config
from saltwm.disk.records import Diagnosis, Probes, Training
from saltwm.ground.errors import MismatchError, UsageError
from saltwm.jobs.again import Again
from saltwm.jobs.collect import Collect
from saltwm.jobs.diagnose import Diagnosed, diagnose_run, training_seconds
from saltwm.jobs.measures import Diagnose


def diagnose(run, dataset, results, **options) -> Diagnosed:
    return diagnose_run(Diagnose(run, dataset.path, results, **options), dataset)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def test_a_linear_readout_is_found_exactly(rng):
    x, weights = rng.normal(size=(400, 6)), rng.normal(size=(6, 2))
    y = x @ weights + 3.0
    assert r_squared(y[200:], ridge(x[:200], y[:200])(x[200:])) > 0.999


def test_noise_explains_nothing(rng):
    x, y = rng.normal(size=(400, 6)), rng.normal(size=(400, 2))
    assert r_squared(y[200:], ridge(x[:200], y[:200])(x[200:])) < 0.1


def test_a_network_reads_what_lies_on_no_line_and_nothing_from_other_frames(rng):
    x = rng.normal(size=(1200, 6))
    y = np.stack([np.sin(2 * x[:, 0]) * x[:, 1], np.abs(x[:, 2])], axis=1)
    fit, test = slice(0, 800), slice(800, None)
    assert r_squared(y[test], ridge(x[fit], y[fit])(x[test])) < 0.15
    assert r_squared(y[test], mlp(x[fit], y[fit])(x[test])) > 0.5
    assert r_squared(y[test], mlp(rng.permutation(x[fit]), y[fit])(x[test])) < 0.1
    assert np.array_equal(mlp(x[fit], y[fit])(x[test]), mlp(x[fit], y[fit])(x[test]))


def test_a_column_that_hardly_varies_hardly_counts(rng):
    x = rng.normal(size=(400, 6))
    y = np.stack([x[:, 0], 1e-3 * rng.normal(size=400)], axis=1)  # the second cannot be read, and does not matter
    assert r_squared(y[200:], ridge(x[:200], y[:200])(x[200:])) > 0.99


def test_a_part_of_the_state_that_stands_still_where_it_is_scored_has_no_score(run, dataset, monkeypatch):
    """A block that nobody touches in the only held-out episode: there is no variance to explain."""
    drawn = probing._sample

    def still(model, dataset, episodes, count, seed):
        latents, states = drawn(model, dataset, episodes, count, seed)
        return latents, np.zeros_like(states) if seed == 1 else states

    model = load(run)
    assert probe(model, dataset, frames=20)
    monkeypatch.setattr(probing, "_sample", still)
    assert probe(model, dataset, frames=20) == []


def test_the_position_can_be_read_from_even_barely_trained_latents_but_not_from_shuffled_ones(
    run, dataset, monkeypatch
):
    model = load(run)
    (position,) = probe(model, dataset, frames=300)
    assert position.r2 > 0.2
    assert position.network > 0.2
    assert position.network_control < 0.1

    encode = model.encode
    monkeypatch.setattr(model, "encode", lambda frames: encode(frames).flip(0))
    (shuffled,) = probe(model, dataset, frames=300)
    assert shuffled.r2 < 0.1


def test_costs_that_order_states_by_distance_are_told_from_shuffled_ones(run, dataset, monkeypatch):
    model = load(run)
    assert cost_order(model, dataset, pairs=400) > 0.3

    encode, generator = model.encode, torch.Generator().manual_seed(0)
    shuffled = lambda frames: encode(frames)[torch.randperm(len(frames), generator=generator)]  # noqa: E731
    monkeypatch.setattr(model, "encode", shuffled)
    assert abs(cost_order(model, dataset, pairs=400)) < 0.15


def test_a_latent_that_is_the_position_orders_costs_perfectly(rng):
    states, goals = rng.normal(size=(2, 200, 2))
    distances = np.linalg.norm(states - goals, axis=1)
    assert rank_correlation(distances**2, distances) == pytest.approx(1.0)


def test_a_collapsed_latent_has_no_order_rather_than_one_of_zero(rng):
    assert rank_correlation(np.zeros(50), rng.normal(size=50)) is None


@pytest.mark.parametrize("kind", ["salt", "lewm"])
def test_a_diagnosis_leaves_probes_and_training_beside_it(kind, run, lewm_run, dataset, tmp_path):
    path = run if kind == "salt" else lewm_run
    found = diagnose(path, dataset, tmp_path, horizon=4, trajectories=3, batches=2, frames=100)
    assert read_config(Diagnosis, found.folder / "diagnosis.json") == found.diagnosis
    assert read_config(Probes, found.folder / "probes.json") == found.probes
    assert read_config(Training, found.folder / "training.json") == found.training
    assert [field.field for field in found.probes.fields] == ["agent_position"]
    assert (found.training.method, found.training.steps) == (kind, 6)
    assert found.training.seconds > 0
    diagnosis = found.diagnosis
    assert (diagnosis.history, len(diagnosis.windows)) == ((1, 6) if kind == "salt" else (3, 6))
    assert len(diagnosis.propagation_measured) == 6
    low, high = (
        tuple(pick(column) for column in zip(*diagnosis.propagation_measured, strict=True)) for pick in (min, max)
    )
    assert (low, high) == (diagnosis.propagation_low, diagnosis.propagation_high)
    assert diagnosis.residual_within_bound == 1.0 or kind == "lewm"
    control = diagnosis.one_frame
    assert (control is None) == (kind == "salt")
    assert control is None or len(control.rollout_measured) == len(diagnosis.rollout_measured)  # the same stretches
    assert len(found.probes.sigma_max) == min(12, 2 * 3)
    spread = found.probes.jacobian_spread
    assert spread < 1e-12 if kind == "salt" else spread > 1e-6


def test_a_diagnosis_of_a_checkpoint_is_filed_under_the_name_that_its_evaluations_have():
    assert Diagnose(Path("runs/salt/checkpoints/step-002000"), Path("data")).folder == Path("results/diagnostics/salt")
    assert Diagnose(Path("shelf/step-002000"), Path("data")).folder == Path("results/diagnostics/step-002000")


def test_a_model_that_looks_back_further_than_the_context_starts_from_all_of_it(dataset, tmp_path):
    far = dataclasses.replace(SMALL, model="lewm", transformer=dataclasses.replace(SMALL.transformer, window=5))
    write_run(tmp_path / "far", far, dataset.world, steps=(1,))
    found = diagnose(tmp_path / "far", dataset, tmp_path, horizon=2, windows=(4,), trajectories=2, batches=1, frames=20)
    assert (found.diagnosis.history, len(found.diagnosis.rollout_error)) == (CONTEXT, 2)
    assert found.diagnosis.lipschitz is None  # the bound is about whole histories


def test_a_diagnosis_replaces_its_own_and_not_that_of_another_run(run, lewm_run, dataset, tmp_path):
    sizes = {"horizon": 2, "trajectories": 2, "batches": 1, "frames": 20}
    weights_alone = shutil.copytree(run, tmp_path / "elsewhere" / run.name)
    (weights_alone / "metrics.jsonl").unlink()
    found = diagnose(run, dataset, tmp_path, **sizes)
    diagnose(run, dataset, tmp_path, **sizes)
    namesake = shutil.copytree(lewm_run, tmp_path / "another" / run.name)
    with pytest.raises(MismatchError, match=r"belongs to another job \(run: expected \w{12}, found \w{12}\)"):
        diagnose(namesake, dataset, tmp_path, **sizes)
    with pytest.raises(MismatchError, match=r"belongs to another job \(frames: expected 21, found 20\)"):
        diagnose(run, dataset, tmp_path, **{**sizes, "frames": 21})
    assert read_config(Diagnosis, found.folder / "diagnosis.json") == found.diagnosis
    # The same weights without curves are the same model; they leave no curves of an earlier diagnosis.
    diagnose(weights_alone, dataset, tmp_path, **sizes)
    assert not (found.folder / "metrics.jsonl").exists()


def test_a_diagnosis_is_replaced_from_another_working_directory_by_its_own_run_alone(
    run, lewm_run, dataset, tmp_path, monkeypatch
):
    sizes = {"horizon": 2, "trajectories": 2, "batches": 1, "frames": 20}
    for name, source in (("mine", run), ("others", lewm_run)):
        shutil.copytree(source, tmp_path / name / "runs" / "x")
    monkeypatch.chdir(tmp_path / "mine")
    diagnose(Path("runs/x"), dataset, tmp_path / "results", **sizes)
    monkeypatch.chdir(tmp_path)
    found = diagnose(Path("mine/runs/x"), dataset, tmp_path / "results", **sizes)
    assert found.diagnosis.run == "mine/runs/x"
    monkeypatch.chdir(tmp_path / "others")
    with pytest.raises(MismatchError, match=r"results/diagnostics/x: belongs to another job"):
        diagnose(Path("runs/x"), dataset, tmp_path / "results", **sizes)
    # Records from before diagnoses left a job file are known by the path that they name.
    (found.folder / "diagnose.json").unlink()
    with pytest.raises(MismatchError, match=r"belongs to another job \(run: expected '.*/others/runs/x', found "):
        diagnose(Path("runs/x"), dataset, tmp_path / "results", **sizes)


def test_a_diagnosis_is_repeated_from_its_folder(run, dataset, tmp_path):
    found = diagnose(run, dataset, tmp_path, horizon=2, windows=(4,), trajectories=2, batches=1, frames=20)
    (job,) = Again((found.folder,), tmp_path / "again").jobs()
    assert (job.horizon, job.windows, job.inputs["data"]) == (2, (4,), dataset.sha256)
    assert job.do().diagnosis == found.diagnosis
    other = Collect("two-room", tmp_path / "other", 30, seed=5, image_size=16, frame_every=5, workers=1).do()
    with pytest.raises(MismatchError, match=r"the inputs are not those of the first time \(data: expected"):
        dataclasses.replace(job, data=other.path).do()


@pytest.mark.parametrize(("episodes", "is_held_out"), [(4, False), (1, True)])
def test_too_few_episodes_for_a_diagnosis_are_a_usage_error(run, tmp_path, episodes, is_held_out):
    few = Collect(
        "two-room", tmp_path / "few", episodes, image_size=16, frame_every=5, held_out=is_held_out, workers=1
    ).do()
    with pytest.raises(UsageError, match=rf"few: of {episodes} episode\(s\) none is held out .*collect more") as error:
        diagnose(run, few, tmp_path / "results", horizon=2, trajectories=2, batches=1, frames=20)
    assert "`held_out`" in str(error.value)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "results").exists()


def test_a_diagnosis_on_episodes_that_training_saw_says_so(run, dataset, tmp_path, capsys, monkeypatch):
    sizes = {"horizon": 2, "trajectories": 2, "batches": 1, "frames": 20}
    diagnose(run, dataset, tmp_path, **sizes)
    assert capsys.readouterr().err == ""
    read_info = checkpoint.read_info

    def split_by_windows(path):
        info = read_info(path)
        train = dataclasses.replace(info.run.train, split="window")
        return dataclasses.replace(info, run=dataclasses.replace(info.run, train=train))

    monkeypatch.setattr(checkpoint, "read_info", split_by_windows)
    diagnose(run, dataset, tmp_path, **sizes)
    said = capsys.readouterr().err
    assert "it held out windows of this dataset" in said
    assert said.count("\n") == 1


def write_timing(run, *seconds):
    rest = dict.fromkeys(("processes", "frames_per_second", "waited_fraction", "seconds_left"), 1)
    for now in seconds:
        durable.append_json_line(run / "timing.jsonl", {"step": 1, "seconds": now, **rest})


def test_training_time_is_added_up_over_sessions(tmp_path):
    assert training_seconds(tmp_path) is None
    write_timing(tmp_path, 2.0, 10.0, 1.0, 7.0, 3.0)
    assert training_seconds(tmp_path) == 10 + 7 + 3


def test_a_session_that_starts_slowly_is_a_session_of_its_own(tmp_path):
    write_timing(tmp_path, 0.0, 1.0, 90.0, 0.0, 100.0, 200.0)
    assert training_seconds(tmp_path) == 90 + 200

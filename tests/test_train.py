"""Training: steps are functions of their number, runs resume to the same bytes, sick runs stop."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
import torch

from saltwm import checkpoint, durable
from saltwm.config import RunConfig
from saltwm.errors import DamagedError, MismatchError, NonFiniteError, UsageError
from saltwm.presets import PRESETS, run_config
from saltwm.train import build_model, count_steps, learning_rate, train


def change(config, **train_options):
    return dataclasses.replace(config, train=dataclasses.replace(config.train, **train_options))


def result_bytes(run):
    """Weights, optimiser and metrics of a finished run."""
    newest = checkpoint.list_checkpoints(run)[-1]
    files = [newest / "weights.safetensors", newest / "optimizer.safetensors", run / "metrics.jsonl"]
    return [durable.sha256(file) for file in files]


def test_a_run_leaves_complete_checkpoints_and_a_metrics_line_per_measurement(run, tiny):
    names = [path.name for path in checkpoint.list_checkpoints(run)]
    assert names[-2:] == ["step-000004", "step-000006"]
    steps = [row["step"] for row in durable.read_json_lines(run / "metrics.jsonl")]
    assert steps == [1, 2, 4, 6]
    row = durable.read_json_lines(run / "metrics.jsonl")[-1]
    assert {"loss", "effective_rank", "validation_one_step", "validation_rollout", "sigma_max_base"} <= set(row)
    assert all(math.isfinite(value) for value in row.values())


def test_the_same_run_gives_the_same_bytes(run, tiny, dataset, tmp_path):
    train(tiny, dataset, tmp_path / "again")
    assert result_bytes(tmp_path / "again") == result_bytes(run)


def test_another_seed_gives_other_weights(run, tiny, dataset, tmp_path):
    train(change(tiny, seed=1), dataset, tmp_path / "other")
    assert result_bytes(tmp_path / "other")[0] != result_bytes(run)[0]


@pytest.mark.parametrize("crash_after", [1, 3, 5])
def test_a_run_that_is_interrupted_anywhere_ends_with_the_same_bytes(
    run, tiny, dataset, tmp_path, monkeypatch, crash_after
):
    """The crash hits between steps that are saved, so work is lost, redone, and must come out equal."""
    steps = 0

    def step_and_crash(self, *args, **kwargs):
        nonlocal steps
        steps += 1
        if steps > crash_after:
            raise RuntimeError("power cut")
        return original(self, *args, **kwargs)

    original = torch.optim.AdamW.step
    monkeypatch.setattr(torch.optim.AdamW, "step", step_and_crash)
    with pytest.raises(RuntimeError, match="power cut"):
        train(tiny, dataset, tmp_path / "cut")
    monkeypatch.setattr(torch.optim.AdamW, "step", original)
    train(tiny, dataset, tmp_path / "cut")
    assert result_bytes(tmp_path / "cut") == result_bytes(run)


def test_a_finished_run_is_not_trained_again(run, tiny, dataset):
    before = result_bytes(run)
    result = train(tiny, dataset, run)
    assert result.step == 6
    assert result.metrics["validation_rollout"] > 0
    assert result_bytes(run) == before


def test_a_run_directory_keeps_to_one_configuration(run, tiny, dataset):
    with pytest.raises(MismatchError, match=r"learning_rate: expected 0\.5, found 0\.001"):
        train(change(tiny, learning_rate=0.5), dataset, run)


def test_a_damaged_newest_checkpoint_is_skipped_aloud_and_redone(tiny, dataset, run, tmp_path, capsys):
    path = tmp_path / "damaged"
    train(tiny, dataset, path)
    newest = checkpoint.list_checkpoints(path)[-1] / "weights.safetensors"
    newest.write_bytes(newest.read_bytes()[:-7])
    with pytest.raises(DamagedError, match="truncated"):
        durable.verify_directory(newest.parent)
    train(tiny, dataset, path)
    assert "skipping step-000006" in capsys.readouterr().err
    assert result_bytes(path) == result_bytes(run)


def test_with_no_readable_checkpoint_training_stops_instead_of_starting_afresh(tiny, dataset, tmp_path):
    path = tmp_path / "lost"
    train(tiny, dataset, path)
    for weights in path.glob("checkpoints/*/weights.safetensors"):
        weights.write_bytes(b"nothing")
    with pytest.raises(DamagedError, match="none of its"):
        train(tiny, dataset, path)


@pytest.mark.filterwarnings("ignore")
def test_a_diverging_run_stops_at_that_step_with_the_last_checkpoint_intact(tiny, dataset, tmp_path):
    path = tmp_path / "diverging"
    with pytest.raises(NonFiniteError, match=r"step \d+: .* is (nan|inf|-inf); the last checkpoint is intact"):
        train(change(tiny, learning_rate=1e20, steps=40, save_every=1, gradient_clip=1e30), dataset, path)
    for saved in checkpoint.list_checkpoints(path):
        durable.verify_directory(saved)
        weights = checkpoint.read_tensors(saved / checkpoint.WEIGHTS_FILE)
        assert all(tensor.isfinite().all() for tensor in weights.values())


def test_a_collapsing_run_warns_once(tiny, dataset, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("saltwm.monitors.effective_rank", lambda latents: 1.5)
    train(tiny, dataset, tmp_path / "collapsing")
    assert capsys.readouterr().err.count("they are collapsing") == 1


def test_the_learning_rate_warms_up_and_follows_a_cosine_to_zero(tiny):
    config = change(tiny, learning_rate=2.0, warmup_fraction=0.1)
    rates = [learning_rate(config, step, 100) for step in range(100)]
    assert rates[:10] == pytest.approx([0.2 * (step + 1) for step in range(10)])
    assert rates[10] == 2.0
    assert rates[55] == pytest.approx(1.0)
    assert rates[-1] < 0.01
    assert all(a >= b for a, b in itertools.pairwise(rates[10:]))


def test_epochs_count_whole_batches(tiny):
    config = change(tiny, steps=None, epochs=2.5, batch_size=10)
    assert count_steps(config, 105) == 25
    with pytest.raises(UsageError, match="fewer than one batch"):
        count_steps(config, 9)


def test_action_scaling_comes_from_the_data(tiny, dataset):
    model = build_model(tiny, dataset)
    np.testing.assert_allclose(model.action_encoder.action_mean, dataset.action_mean, rtol=1e-6)
    np.testing.assert_allclose(model.action_encoder.action_std, dataset.action_std, rtol=1e-6)


def test_learning_lowers_the_validation_error(tiny, dataset, tmp_path):
    """Rollout error relative to a model that has just been initialised."""
    config = change(tiny, steps=60, learning_rate=3e-3, validate_every=60, save_every=60)
    train(config, dataset, tmp_path / "learning")
    first, *_, last = durable.read_json_lines(tmp_path / "learning" / "metrics.jsonl")
    assert last["loss"] < 0.8 * first["loss"]


def test_the_paper_preset_is_the_papers_to_the_letter():
    paper = PRESETS["paper"]
    assert paper == RunConfig(preset="paper", train=paper.train)
    encoder, objective, options = paper.model.encoder, paper.objective, paper.train
    assert (encoder.kind, encoder.patch_size, encoder.depth, encoder.width, encoder.heads) == ("vit", 14, 12, 192, 3)
    assert (encoder.mlp_dim, encoder.projection_dim, paper.model.latent_dim) == (768, 2048, 192)
    assert (paper.model.affine.modes, paper.model.frameskip, objective.rollout_steps) == (16, 5, 5)
    assert (objective.sigreg_weight, objective.sigreg_knots, objective.sigreg_projections) == (0.09, 17, 1024)
    assert (options.learning_rate, options.weight_decay, options.batch_size) == (5e-5, 1e-3, 128)
    assert (options.epochs, options.steps, options.gradient_clip, options.precision) == (10, None, 1.0, "bf16-mixed")
    assert (options.split, options.split_seed, options.validation_fraction) == ("window", 3072, 0.1)


def test_each_model_has_its_own_objective_unless_told():
    assert run_config("cpu", "salt").objective.objective == "rollout"
    assert run_config("cpu", "lewm").objective.objective == "one-step"
    assert run_config("cpu", "lewm", "rollout").objective.objective == "rollout"

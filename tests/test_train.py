"""Training: steps are functions of their number, runs resume to the same bytes, sick runs stop."""

import contextlib
import dataclasses
import io
import itertools
import math
import shutil
import signal
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from rich.console import Console
from trainers import result_bytes

from saltwm import write_dataset
from saltwm.cli import main
from saltwm.disk import checkpoint, durable
from saltwm.disk.journal import Journal
from saltwm.ground.config import CEMConfig, EncoderConfig, RunConfig
from saltwm.ground.errors import DamagedError, MismatchError, NonFiniteError, Stopped, UsageError
from saltwm.ground.rng import torch_stream
from saltwm.jobs.collect import Collect
from saltwm.jobs.diagnose import training_seconds
from saltwm.jobs.presets import PRESETS, run_config
from saltwm.jobs.train import Train
from saltwm.monitors import validate
from saltwm.objective import training_loss
from saltwm.planning.cem import cem
from saltwm.planning.costs import Situation, terminal_cost
from saltwm.report.watch import PANELS, Canvas, headline, read_files, render, save_picture, watch
from saltwm.train import build_model, count_steps, learning_rate, make_windows, train


def change(config, **train_options):
    return dataclasses.replace(config, train=dataclasses.replace(config.train, **train_options))


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


@contextlib.contextmanager
def power_cut(after):
    """What trains inside ends after so many steps, as if the machine had lost its power."""
    original, steps = torch.optim.AdamW.step, itertools.count()

    def step(self, *args, **kwargs):
        if next(steps) == after:
            raise RuntimeError("power cut")
        return original(self, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.optim.AdamW, "step", step)
        with pytest.raises(RuntimeError, match="power cut"):
            yield


@pytest.mark.parametrize("crash_after", [1, 3, 5])
def test_a_run_that_is_interrupted_anywhere_ends_with_the_same_bytes(run, tiny, dataset, tmp_path, crash_after):
    """The crash hits between steps that are saved, so work is lost, redone, and must come out equal."""
    with power_cut(crash_after):
        train(tiny, dataset, tmp_path / "cut")
    train(tiny, dataset, tmp_path / "cut")
    assert result_bytes(tmp_path / "cut") == result_bytes(run)


def test_a_run_with_many_starts_resumes_to_the_same_bytes(run, tiny, dataset, tmp_path):
    config = dataclasses.replace(tiny, objective=dataclasses.replace(tiny.objective, starts=3))
    train(config, dataset, tmp_path / "whole")
    with power_cut(3):
        train(config, dataset, tmp_path / "cut")
    train(config, dataset, tmp_path / "cut")
    assert result_bytes(tmp_path / "cut") == result_bytes(tmp_path / "whole")
    assert result_bytes(tmp_path / "cut")[0] != result_bytes(run)[0]


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


BAD_OPTIONS = {
    "starts": [{"starts": 0}, {"starts": -2}],
    "projections": [{"projections": 0}],
    "keep": [{"keep": 0}, {"keep": -1}],
    "steps": [{"steps": 0}],
    "epochs": [{"epochs": 0.0}, {"epochs": math.inf}],
    "batch_size": [{"batch_size": 0}, {"batch_size": 1, "starts": 1, "model": "lewm", "objective": "rollout"}],
    "save_every": [{"save_every": 0}],
    "validate_every": [{"validate_every": -1}],
    "latent_dim": [{"latent_dim": 0}],
    "modes": [{"modes": -1}],
    "lambda": [{"lambda_": -0.1}, {"lambda_": math.nan}],
    "learning_rate": [{"learning_rate": 0.0}, {"learning_rate": math.nan}],
    "channels": [{"channels": (16, 0)}, {"channels": (16, 32), "preset": "full-size"}],
}


@pytest.mark.parametrize(
    ("option", "values"), [(name, values) for name, many in BAD_OPTIONS.items() for values in many]
)
def test_a_value_that_no_run_can_have_is_refused_before_anything_is_written(dataset, tmp_path, option, values):
    verb = Train(dataset.path, tmp_path / "run", **({"preset": "quick"} | values))
    with pytest.raises(UsageError, match=rf"^`{option}`.*(must be|leave it out)"):
        train(verb.config(), dataset, verb.out)
    assert not verb.out.exists()


IMPOSSIBLE = {
    "train.gradient_clip": [0.0, -1.0, math.inf],
    "train.weight_decay": [-1.0, math.nan],
    "train.warmup_fraction": [math.nan, -0.1, 5.0],
    "train.steps": [2.5, "2", True],
    "train.batch_size": [8.0],
    "train.seed": [1.5, None],
    "train.split": ["epsiode"],
    "train.learning_rate": [None, "fast"],
    "model.smoothed_dim": [0],
    "model.frameskip": [0],
    "model.encoder": ["vit"],
    "model.encoder.width": [0],
    "model.encoder.projection_dim": [0],
    "model.transformer.dropout": [1.5],
    "objective.sigreg_weight": [math.inf, "0.3"],
    "objective.sigreg_knots": [1],
    "objective.weights": [{"sigreg": "much"}],
}
"""What Python can put into a config and no option of the command line."""
CALLED = {"objective.sigreg_weight": "(sigreg_weight|lambda)"}


def placed(config, place, value):
    """The config with another value at a place such as model.encoder.width."""
    name, _, rest = place.partition(".")
    return dataclasses.replace(config, **{name: placed(getattr(config, name), rest, value) if rest else value})


@pytest.mark.parametrize(("place", "value"), [(place, value) for place, many in IMPOSSIBLE.items() for value in many])
def test_what_no_run_can_have_is_refused_by_its_field_before_anything_is_written(tiny, dataset, tmp_path, place, value):
    with pytest.raises(UsageError, match=CALLED.get(place, place.partition(".")[2])) as refused:
        train(placed(tiny, place, value), dataset, tmp_path / "run")
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "run").exists()


def test_an_action_that_never_varies_is_refused_before_anything_is_written(tiny, tmp_path):
    rng = np.random.default_rng(0)
    steps = [np.stack([rng.normal(size=60), np.zeros(60)], axis=1) for _ in range(12)]
    episodes = [{"frames": np.zeros((61, 16, 16, 3), np.uint8), "actions": actions} for actions in steps]
    still = write_dataset(tmp_path / "data", episodes, name="still", image_size=16)
    with pytest.raises(UsageError, match=r"std .* must be positive; an action that never varies teaches nothing"):
        train(tiny, still, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_numbers_of_a_sweep_over_numpy_and_paths_as_text_are_those_of_python(run, tiny, dataset, tmp_path):
    swept = change(tiny, seed=np.int64(0), steps=np.int64(6), learning_rate=np.float64(1e-3))
    channels = [np.int64(8), np.int64(16)]
    swept = placed(placed(swept, "model.latent_dim", np.int64(16)), "model.encoder.channels", channels)
    train(swept, dataset, f"{tmp_path}/swept")
    assert result_bytes(tmp_path / "swept") == result_bytes(run)
    assert (tmp_path / "swept/run.json").read_bytes() == (run / "run.json").read_bytes()


def test_a_training_job_takes_paths_as_text():
    job = Train("data", "runs/tuned", from_="runs/first", dino="dino", features="features")
    assert job == Train(
        Path("data"), Path("runs/tuned"), from_=Path("runs/first"), dino=Path("dino"), features=Path("features")
    )


@pytest.mark.parametrize("precision", ["bf16-true", "16-true", "16-mixed", "transformer-engine"])
def test_a_precision_in_which_nothing_trains_is_refused_before_anything_is_written(
    tiny, dataset, tmp_path, capsys, precision
):
    with pytest.raises(UsageError, match=rf"unknown `precision` '{precision}'.*known: 32-true, 64-true, bf16-mixed"):
        train(change(tiny, precision=precision), dataset, tmp_path / "run")
    with pytest.raises(SystemExit) as ended:
        main(["train", str(dataset.path), "--out", str(tmp_path / "run"), "--precision", precision])
    assert ended.value.code == 2
    assert f"unknown precision '{precision}'" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_nothing_held_out_is_refused_before_anything_is_written(tiny, dataset, tmp_path):
    with pytest.raises(UsageError, match="no window is held out"):
        train(change(tiny, validation_fraction=0.0), dataset, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("options", [{"modes": 0}, {"free_a0": True}])
def test_options_of_salt_are_refused_for_lewm(dataset, tmp_path, options):
    with pytest.raises(UsageError, match="leave them out for --model lewm"):
        Train(dataset.path, tmp_path / "run", model="lewm", **options).config()


def test_steps_and_epochs_together_are_refused(dataset, tmp_path):
    with pytest.raises(UsageError, match="give one"):
        Train(dataset.path, tmp_path / "run", steps=10, epochs=2.0).config()


def test_a_window_has_a_frame_more_for_every_start_more(tiny, dataset):
    config = dataclasses.replace(tiny, objective=dataclasses.replace(tiny.objective, starts=4))
    short, long = make_windows(tiny, dataset), make_windows(config, dataset)
    assert (short.blocks, long.blocks) == (5, 8)
    assert short.batch(short.train[:2]).frames.shape[1] + 3 == long.batch(long.train[:2]).frames.shape[1]
    assert set(short.validation_episodes) == set(long.validation_episodes)


def test_epochs_count_whole_batches(tiny):
    config = change(tiny, steps=None, epochs=2.5, batch_size=10)
    assert count_steps(config, 105) == 25
    with pytest.raises(UsageError, match="fewer than one `batch_size` of"):
        count_steps(config, 9)
    with pytest.raises(UsageError, match=r"`epochs` 0.05: less than one step; an epoch has 10"):
        count_steps(change(tiny, steps=None, epochs=0.05, batch_size=10), 105)


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


# --- what was measured -----------------------------------------------------------------------------------------------


def test_metrics_hold_no_clock_and_timing_holds_the_speed(run):
    metrics, timing = (durable.read_json_lines(run / name) for name in ("metrics.jsonl", "timing.jsonl"))
    assert set(metrics[-1]) == {
        *("step", "loss", "prediction", "sigreg", "gradient_norm", "learning_rate"),
        *("latent_std", "latent_std_min", "effective_rank"),
        *("validation_one_step", "validation_rollout", "sigma_max_base", "sigma_max_action"),
    }
    assert [row["step"] for row in timing][-4:] == [1, 2, 4, 6]
    assert timing[-1]["processes"] == 1
    assert timing[-1]["frames_per_second"] > 0
    assert 0 <= timing[-1]["waited_fraction"] < 1
    assert timing[-1]["seconds_left"] == 0


def test_the_clock_of_a_session_starts_with_a_row_of_zero_and_stops_with_one(tiny, dataset, tmp_path, monkeypatch):
    """Or a session whose first measurement comes later than the last of the one before would not be told from it."""
    config, out = change(tiny, validate_every=6, save_every=6), tmp_path / "run"
    original, steps = torch.optim.AdamW.step, itertools.count(1)

    def step(self, *args, **kwargs):
        if next(steps) == 3:
            signal.raise_signal(signal.SIGTERM)
        return original(self, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(torch.optim.AdamW, "step", step)
        with pytest.raises(Stopped, match="stopped at step 3 of 6"):
            train(config, dataset, out)
    for _ in range(2):  # the second time nothing is left to do, which is no session
        train(config, dataset, out)
    rows = durable.read_json_lines(out / "timing.jsonl")
    assert [row["step"] for row in rows] == [0, 1, 3, 3, 6]
    assert [index for index, row in enumerate(rows) if row["seconds"] == 0] == [0, 3]
    assert training_seconds(out) == rows[2]["seconds"] + rows[4]["seconds"]


def test_a_session_that_has_only_started_shows_the_speed_of_the_last(run, tmp_path):
    path = shutil.copytree(run, tmp_path / run.name)
    before = headline(read_files(path))
    assert "frames/s" in before
    Journal(path, 6, 1).started(6)
    assert headline(read_files(path)) == before


def test_a_journal_knows_how_many_processes_wrote_it_before(run, tmp_path):
    path = shutil.copytree(run, tmp_path / "run")
    assert Journal(path, 6, 2).processes_before == 1
    assert Journal(tmp_path, 0, 2).processes_before is None


@pytest.mark.parametrize(("model", "said"), [("salt", "equal up to rounding"), ("lewm", "alike in distribution only")])
def test_a_run_that_other_processes_go_on_with_says_how_alike_it_will_be(tiny, dataset, tmp_path, capsys, model, said):
    small = dataclasses.replace(tiny.model, model=model)
    config = dataclasses.replace(change(tiny, steps=4, save_every=2), model=small)
    train(config, dataset, tmp_path / "run")
    shutil.rmtree(checkpoint.list_checkpoints(tmp_path / "run")[-1])
    rows = durable.read_json_lines(tmp_path / "run" / "timing.jsonl")
    text = "".join(durable.json_line(row | {"processes": 2}) for row in rows)
    durable.write_text(tmp_path / "run" / "timing.jsonl", text)
    assert "resuming" not in capsys.readouterr().err
    train(config, dataset, tmp_path / "run")
    told = capsys.readouterr().err
    assert "resuming on 1 process(es) what 2 began: the same batches, " in told
    assert f"{said}\n" in told


def test_sigma_max_is_the_largest_singular_value_of_the_matrices_that_planning_multiplies(tiny, dataset):
    model, windows = build_model(tiny, dataset), make_windows(tiny, dataset)
    with torch.no_grad():
        model.transition.N.normal_(std=0.1, generator=torch.Generator().manual_seed(0))
    found = validate(model, windows, tiny)
    batch = windows.batch(windows.validation_ids(0, min(8, len(windows.validation))))
    conditions = model.eval().condition(torch.from_numpy(batch.actions)).flatten(0, 1)[:8]
    expected = max(np.linalg.svd(a.detach().numpy(), compute_uv=False)[0] for a in model.transition.matrix(conditions))
    assert found["sigma_max_action"] == pytest.approx(expected, rel=1e-5)
    assert found["sigma_max_base"] == pytest.approx(math.tanh(3), rel=1e-5)
    assert found["sigma_max_action"] > found["sigma_max_base"]


def test_a_tracker_that_is_not_installed_is_refused_before_training(tiny, dataset, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    for name in ("wandb", "tensorboard"):
        with pytest.raises(
            UsageError,
            match=rf"`log` {name} needs {name}, .*: pip install '\.\[log\]'",
        ):
            train(tiny, dataset, tmp_path / "run", trackers=(name,))
    assert not (tmp_path / "run" / "run.json").exists()


def test_trackers_receive_what_the_files_receive(tiny, dataset, tmp_path, monkeypatch):
    """TensorBoard and Weights & Biases are not installed here; these stand in for the two calls that are made."""
    scalars, logged = [], []

    class SummaryWriter(contextlib.nullcontext):
        def add_scalar(self, name, value, step):
            scalars.append((step, name, value))

    tracked = SimpleNamespace(log=lambda values, step: logged.append((step, values)), finish=lambda: None)
    monkeypatch.setitem(
        sys.modules, "torch.utils.tensorboard", SimpleNamespace(SummaryWriter=lambda _: SummaryWriter())
    )
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=lambda **_: tracked))
    monkeypatch.setattr(SummaryWriter, "__enter__", lambda self: self)
    train(tiny, dataset, tmp_path / "run", trackers=("tensorboard", "wandb"))
    last = durable.read_json_lines(tmp_path / "run" / "metrics.jsonl")[-1]
    assert (6, "loss", last["loss"]) in scalars
    assert (6, {key: value for key, value in last.items() if key != "step"}) in logged


def test_in_mixed_precision_actions_and_projections_are_not_rounded(tiny, dataset, tmp_path, monkeypatch):
    """Fabric rounds every floating tensor that it finds among a module's arguments to bfloat16."""
    seen = []

    def look(model, frames, action_blocks, objective, projections, regulariser):
        seen.append((action_blocks.dtype, projections.dtype))
        assert torch.is_autocast_enabled("cpu")
        return training_loss(model, frames, action_blocks, objective, projections, regulariser)

    monkeypatch.setattr("saltwm.train.training_loss", look)
    train(change(tiny, steps=2, precision="bf16-mixed"), dataset, tmp_path / "run")
    assert set(seen) == {(torch.float32, torch.float32)}


# --- watching --------------------------------------------------------------------------------------------------------


def test_watch_draws_every_curve_and_the_state_of_the_run(run):
    text = drawn(read_files(run))
    assert "salt: step 6 of 6" in text
    assert "finished" in text
    for panel in PANELS:
        assert panel.title in text
    assert any(0x2800 < ord(letter) < 0x2900 for letter in text)


def test_watch_says_so_when_the_latents_have_collapsed(run):
    files = read_files(run)
    assert "collapsing" not in drawn(files)
    sick = dataclasses.replace(files, metrics=[*files.metrics[:-1], files.metrics[-1] | {"latent_std": 0.01}])
    assert "they are collapsing" in drawn(sick)


def test_watch_draws_a_rising_curve_from_the_lower_left_to_the_upper_right():
    canvas = Canvas(4, 2)
    canvas.draw([(0.0, 0.0), (1.0, 1.0)], "red")
    top, bottom = (line.plain for line in canvas.lines())
    assert top[:2] == bottom[2:] == "\u2800\u2800"
    assert "\u2800" not in top[2:] + bottom[:2]


def test_watch_goes_on_until_the_run_is_finished(run, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    lines = (copy / "metrics.jsonl").read_text().splitlines(keepends=True)
    (copy / "metrics.jsonl").write_text("".join(lines[:-1]))
    seen = []

    def show(drawing):
        seen.append(drawing)
        if len(seen) == 2:
            (copy / "metrics.jsonl").write_text("".join(lines))

    watch(copy, show, 80, pause=0.0)
    assert len(seen) == 3


def test_watch_saves_a_small_picture(run, tmp_path):
    save_picture(read_files(run), tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "curves.png").stat().st_size < 60_000


def test_there_is_no_picture_of_a_run_before_its_first_measurement(tmp_path):
    durable.write_json(tmp_path / "run.json", {"total_steps": 9})
    with pytest.raises(UsageError, match="nothing measured yet"):
        save_picture(read_files(tmp_path), tmp_path / "curves.png")
    assert not (tmp_path / "curves.png").exists()


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("metrics.jsonl", "[1]\n", "line 1: expected an object of numbers"),
        ("metrics.jsonl", '{"step": 1, "effective_rank": "many", "latent_std": 1}\n', "line 1: expected an object"),
        ("metrics.jsonl", '{"step": 1, "latent_std": 1}\n', "line 1: effective_rank is missing"),
        ("timing.jsonl", '{"step": 1}\n', "line 1: processes is missing"),
        ("run.json", "[]\n", "expected its number of total_steps"),
        ("run.json", '{"total_steps": "all"}\n', "expected its number of total_steps, found 'all'"),
    ],
)
def test_curves_that_are_none_are_damage_with_their_line(run, tmp_path, file, text, message):
    for name in ("run.json", "metrics.jsonl", "timing.jsonl"):
        shutil.copy(run / name, tmp_path / name)
    (tmp_path / file).write_text(text)
    with pytest.raises(DamagedError, match=message):
        read_files(tmp_path)


def test_watching_what_is_no_run_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match="not a training run"):
        read_files(tmp_path)
    with pytest.raises(UsageError, match="no training run is there"):
        read_files(tmp_path / "new")
    (tmp_path / "checkpoint.json").touch()
    with pytest.raises(UsageError, match="a checkpoint, not a training run"):
        read_files(tmp_path)


def drawn(files):
    console = Console(width=120, file=io.StringIO())
    console.print(render(files, 120))
    return console.file.getvalue()


# --- every combination and ablation ----------------------------------------------------------------------------------

VARIANTS = {
    "salt, rollout": {},
    "salt, one-step": {"objective": "one-step"},
    "lewm, rollout": {"model": "lewm", "objective": "rollout"},
    "lewm, one-step": {"model": "lewm"},
    "no modes": {"modes": 0},
    "no spectral constraint": {"free_a0": True},
    "no SIGReg": {"lambda_": 0.0},
    "a smaller latent": {"latent_dim": 8},
    "many starts": {"starts": 3},
    "many starts, lewm, one-step": {"model": "lewm", "starts": 3},
    "fewer projections, other channels": {"projections": 32, "channels": (4, 8, 12)},
}


@pytest.fixture(scope="module")
def variant_runs(dataset, tmp_path_factory):
    """Each variant as its options on the command line make it, two steps long."""
    folder = tmp_path_factory.mktemp("variants")
    for name, options in VARIANTS.items():
        common = {"preset": "quick", "steps": 2, "batch_size": 8, "latent_dim": 16}
        verb = Train(dataset.path, folder / name, **(common | options))
        train(verb.config(), dataset, verb.out)
    return folder


@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_builds_steps_saves_loads_and_plans(variant_runs, dataset, name):
    model = checkpoint.load(variant_runs / name, world=dataset.world)
    windows = make_windows(checkpoint.read_run(variant_runs / name).run, dataset)
    batch = windows.batch(windows.validation_ids(0, 2))
    with torch.inference_mode():
        latents = model.encode(torch.from_numpy(batch.frames))
        past = model.condition(torch.from_numpy(batch.actions))[:, : model.window - 1]
        cost = terminal_cost(model, Situation(latents[:, : model.window], past, latents[:, -1]))
        generators = [torch_stream(0, "plan", task) for task in range(2)]
        few = CEMConfig(candidates=20, iterations=2, elites=5)
        plan = cem(cost, horizon=2, action_dim=model.action_encoder.block_dim, generators=generators, config=few)
    assert plan.actions.shape[:2] == (2, 2)
    assert plan.actions.isfinite().all()


def test_the_four_combinations_see_the_same_windows_targets_and_budget(variant_runs):
    runs = [checkpoint.read_run(variant_runs / name) for name in list(VARIANTS)[:4]]
    assert len({(info.run.model.model, info.run.objective.objective) for info in runs}) == 4
    assert len({info.run.train for info in runs}) == 1
    assert len({info.run.objective.rollout_steps for info in runs}) == 1
    assert len({info.dataset_sha256 for info in runs}) == 1


# --- presets ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["salt", "lewm"])
@pytest.mark.parametrize("precision", ["32-true", pytest.param("bf16-mixed", marks=pytest.mark.full)])
def test_the_paper_preset_builds_and_steps_at_full_size(tmp_path_factory, model, precision):
    """ViT-Tiny at 224 px, two steps of two windows; processors that only emulate bfloat16 need a minute for them."""
    folder = tmp_path_factory.mktemp("paper")
    large = Collect("two-room", folder / "data", 3, image_size=224, frame_every=5, workers=1).do()
    few = {"batch_size": 2, "steps": 2, "validation_batches": 1, "validation_fraction": 0.3}
    config = change(run_config("paper", model), precision=precision, **few)
    result = train(config, large, folder / "run")
    assert result.step == 2
    weights = checkpoint.load(folder / "run").state_dict()
    assert all(value.isfinite().all() for value in weights.values())
    transition = checkpoint.load(folder / "run").transition
    count = sum(parameter.numel() for parameter in transition.parameters())
    assert count == {"salt": 703_872, "lewm": 11_584_128}[model]


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


def test_training_outside_the_main_thread_ends_like_any_other(tiny, dataset, tmp_path):
    results = []
    config = change(tiny, steps=2)
    worker = threading.Thread(target=lambda: results.append(train(config, dataset, tmp_path / "run")))
    worker.start()
    worker.join()
    assert [result.step for result in results] == [2]


@pytest.mark.parametrize(
    ("encoder", "message"),
    [
        (EncoderConfig(kind="conv", channels=()), "give at least one"),
        (EncoderConfig(kind="conv", channels=(8,) * 9), "no more than the image size allows"),
        (EncoderConfig(kind="vit", patch_size=14), "collect with an `image_size` that is a multiple of 14"),
    ],
)
def test_an_encoder_that_does_not_fit_the_frames_is_refused_before_anything_is_written(
    tiny, dataset, tmp_path, encoder, message
):
    model = dataclasses.replace(tiny.model, encoder=encoder)
    with pytest.raises(UsageError, match=message):
        train(dataclasses.replace(tiny, model=model), dataset, tmp_path / "run")
    assert not (tmp_path / "run").exists()

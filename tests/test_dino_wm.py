"""DINO-WM from a folder of weights to an evaluation: features are computed once, and refused if they are others."""

import dataclasses
import shlex
import shutil

import numpy as np
import pytest
import torch
from tiny_dinov2 import save_tiny_dinov2
from trainers import result_bytes

from saltwm import cli
from saltwm.data import features
from saltwm.disk import checkpoint
from saltwm.disk.journal import read_rows
from saltwm.ground.config import CEMConfig, PriorConfig
from saltwm.ground.errors import DamagedError, MismatchError, UsageError
from saltwm.jobs import diagnose, presets
from saltwm.jobs.evaluate import Evaluate
from saltwm.jobs.job import spell
from saltwm.jobs.measures import Diagnose
from saltwm.jobs.prior_learner import learn_prior
from saltwm.jobs.train import Train
from saltwm.jobs.variants import variant_of
from saltwm.train import train


@pytest.fixture(scope="module")
def dino(tmp_path_factory):
    folder = tmp_path_factory.mktemp("weights")
    save_tiny_dinov2(folder)
    return folder


@pytest.fixture(autouse=True)
def small_preset(monkeypatch, tiny):
    """The preset `cpu` at a size that trains in a second, and parts of 100 frames."""
    monkeypatch.setitem(presets.PRESETS, "cpu", dataclasses.replace(tiny, preset="cpu"))
    monkeypatch.setattr(features, "PART_FRAMES", 100)


def job(dataset, dino, out, **options):
    return Train(dataset.path, out, model="dino-wm", dino=dino, patches=3, verify="sizes", **options)


@pytest.fixture(scope="module")
def trained(tmp_path_factory, dino, dataset, tiny):
    out = tmp_path_factory.mktemp("runs") / "dino"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(presets.PRESETS, "cpu", dataclasses.replace(tiny, preset="cpu"))
        patch.setattr(features, "PART_FRAMES", 100)
        job(dataset, dino, out).do()
    return out


def kept(run):
    """The features beside a run."""
    (found,) = run.parent.glob("features-*")
    return found


# --- training --------------------------------------------------------------------------------------------------------


def test_a_run_is_complete_without_the_weights_it_came_from_and_leaves_them_as_they_were(trained, dino, dataset):
    from saltwm.interop.weights.dinov2 import encoder_config, read_weights

    model = checkpoint.load(trained)
    frozen = read_weights(dino, encoder_config(dino, 3))
    assert all(torch.equal(model.encoder.state_dict()[name], tensor) for name, tensor in frozen.items())
    rows = read_rows(trained / "metrics.jsonl")
    assert rows[-1]["loss"] == rows[-1]["prediction"]
    assert "sigreg" not in rows[-1]
    info = checkpoint.read_info(checkpoint.find_checkpoint(trained))
    assert info.run.objective.word == "forward-only"
    assert variant_of(info).departures == ()


def test_a_frozen_encoder_is_not_warned_of_a_collapse(trained, dino, dataset, tmp_path, capfd):
    job(dataset, dino, tmp_path / "run", features=kept(trained), seed=3).do()
    assert "collapsing" not in "".join(capfd.readouterr())  # its random weights spread latents by a hundredth


def test_the_same_command_repeats_it_and_its_folder_knows_the_command(trained, dino, dataset, tmp_path):
    found = Train.found_in(trained)
    assert cli.parse(shlex.split(spell(found))[1:]).config() == job(dataset, dino, trained).config()
    again = job(dataset, dino, tmp_path / "again")
    again.do()
    assert result_bytes(tmp_path / "again") == result_bytes(trained)


def test_features_are_what_the_encoder_makes_of_the_frames_up_to_float16(trained, dino, dataset):
    config = job(dataset, dino, trained).config()
    frozen = features.FrozenEncoder(dino, dict, kept(trained))
    found = features.open_features(config.model, dataset, frozen, make=False)
    episodes, steps = np.array([0, 7, 7, 59]), np.array([0, 5, 10, 15])
    rows = found.read_frames_later(episodes, steps).result()
    model = checkpoint.load(trained)
    with torch.no_grad():
        expected = model.encode(torch.from_numpy(dataset.read_frames(episodes, steps))[:, None])[:, 0].numpy()
    np.testing.assert_allclose(rows, expected, rtol=2e-3, atol=2e-3)
    assert np.abs(rows[1] - rows[2]).max() > 0.05  # and not of another frame


# --- the cache -------------------------------------------------------------------------------------------------------


def test_features_are_computed_once_for_all_runs(trained, dino, dataset, monkeypatch, tmp_path):
    def never(*arguments):
        raise AssertionError("computed again")

    monkeypatch.setattr(features, "_encode", never)
    job(dataset, dino, tmp_path / "other", features=kept(trained), seed=1).do()
    with pytest.raises(AssertionError, match="computed again"):
        job(dataset, dino, tmp_path / "elsewhere" / "run").do()


def test_a_killed_computation_goes_on_with_the_next_part_and_ends_the_same(
    trained, dino, dataset, monkeypatch, tmp_path
):
    encode, calls = features._encode, []

    def killed(*arguments):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return encode(*arguments)

    monkeypatch.setattr(features, "_encode", killed)
    mine = job(dataset, dino, tmp_path / "run")
    with pytest.raises(KeyboardInterrupt):
        mine.do()
    assert sorted(p.name for p in kept(tmp_path / "run").glob("part-*")) == ["part-00000", "part-00001"]
    mine.do()
    parts = sorted(kept(trained).glob("part-*/features.npy"))
    assert len(calls) == len(parts) + 1
    assert all(p.read_bytes() == (kept(tmp_path / "run") / p.parent.name / p.name).read_bytes() for p in parts)


def test_features_of_other_weights_other_data_or_another_grid_are_refused(
    trained, dino, dataset, monkeypatch, tmp_path
):
    place = kept(trained)
    save_tiny_dinov2(tmp_path / "other", seed=1)
    with pytest.raises(MismatchError, match=r"another job .*weights_sha256"):
        job(dataset, tmp_path / "other", tmp_path / "run", features=place).do()
    monkeypatch.setattr(dataset, "sha256", "f" * 64, raising=False)
    config = job(dataset, dino, tmp_path / "run").config()
    other = dataclasses.replace(config.model, encoder=dataclasses.replace(config.model.encoder, grid=2))
    with pytest.raises(MismatchError, match=r"another job .*grid"):
        features.open_features(
            dataclasses.replace(other, latent_dim=48), dataset, features.FrozenEncoder(dino, dict, place)
        )


def test_features_of_other_data_are_refused(trained, dino, tmp_path):
    from saltwm.jobs.collect import Collect

    more = Collect("two-room", tmp_path / "data", 60, image_size=16, frame_every=5, workers=1, seed=5).do()
    with pytest.raises(MismatchError, match=r"another job .*dataset_sha256"):
        job(more, dino, tmp_path / "run", features=kept(trained)).do()


def test_damaged_features_never_train(trained, dino, dataset, tmp_path):
    place = tmp_path / "features"
    shutil.copytree(kept(trained), place)
    file = place / "part-00001" / "features.npy"
    data = bytearray(file.read_bytes())
    data[-7] ^= 1
    file.write_bytes(data)
    with pytest.raises(DamagedError, match=r"part-00001: cannot be read .*remove this folder"):
        job(dataset, dino, tmp_path / "run", features=place).do()
    shutil.rmtree(file.parent)
    job(dataset, dino, tmp_path / "run", features=place).do()
    assert file.read_bytes() == (kept(trained) / "part-00001" / "features.npy").read_bytes()


def test_features_beyond_the_budget_are_refused_before_anything_is_computed(dino, dataset, monkeypatch, tmp_path):
    monkeypatch.setenv("SALTWM_BUDGET_GB", "0.0002")
    with pytest.raises(
        UsageError, match=r"frames of 108 numbers would take .* GB, .*fewer `patches`, or set SALTWM_BUDGET"
    ):
        job(dataset, dino, tmp_path / "run").do()
    assert not (tmp_path / "run").exists()


def test_many_processes_do_not_compute_them(dino, dataset, tmp_path):
    config = job(dataset, dino, tmp_path / "run").config()
    with pytest.raises(UsageError, match="not all features are there; one process makes them"):
        features.features_for(config, dataset, features.FrozenEncoder(dino, dict, tmp_path / "none"), 2)


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"dino": None}, "needs the weights of its encoder, which are not shipped: give --dino FOLDER"),
        ({"model": "lewm"}, "--dino, --patches and --features are about dino-wm; leave them out for --model lewm"),
        ({"objective": "pldm"}, "--objective pldm: the encoder of dino-wm is frozen"),
        ({"lambda_": 0.1}, "--lambda is SIGReg's weight"),
        ({"latent_dim": 64}, "are about encoders that learn"),
        ({"modes": 4}, "are about SALT's transition"),
        ({"patches": 0}, "patches"),
    ],
)
def test_options_that_do_not_belong_to_it_are_refused(dino, dataset, tmp_path, options, words):
    with pytest.raises(UsageError, match=words):
        dataclasses.replace(job(dataset, dino, tmp_path / "run"), **options).config()


def test_a_model_with_a_frozen_encoder_does_not_train_without_its_weights(dino, dataset, tiny, tmp_path):
    config = job(dataset, dino, tmp_path / "run").config()
    with pytest.raises(UsageError, match="weights of a frozen encoder go with a model that has one"):
        train(config, dataset, tmp_path / "run")
    mixed = dataclasses.replace(config, model=dataclasses.replace(config.model, model="lewm"))
    with pytest.raises(UsageError, match="a frozen dinov2 is the encoder of dino-wm and of no other model"):
        train(mixed, dataset, tmp_path / "run")


# --- using it --------------------------------------------------------------------------------------------------------


def test_it_plans_with_and_without_a_prior_like_any_other_model(trained, dataset, tmp_path):
    learn_prior(
        trained, dataset, PriorConfig(width=16, depth=1, steps=3, batch_size=8, horizon_blocks=5, farthest_blocks=6)
    )
    few = CEMConfig(candidates=6, iterations=2, elites=2)
    plain = Evaluate(str(trained), dataset.path, tasks=2, planner=few, out=tmp_path, workers=1, pictures=0).do()
    assert (plain.method, plain.success.n) == ("dino-wm", 2)
    imitated = Evaluate(
        str(trained), dataset.path, tasks=2, planner=cli.parse(["evaluate", "x", "--planner", "prior"]).planner,
        out=tmp_path, workers=1, pictures=0,
    ).do()  # fmt: skip
    assert imitated.method == "dino-wm-prior"


def test_its_errors_are_the_same_with_jacobians_and_where_they_would_be_too_wide(
    trained, dataset, monkeypatch, tmp_path
):
    short = {"horizon": 2, "windows": (2,), "batches": 1, "trajectories": 2, "frames": 30}
    full = Diagnose(trained, dataset.path, tmp_path / "full", **short).do()
    monkeypatch.setattr(diagnose, "WIDEST", 100)  # it has 108 numbers
    wide = Diagnose(trained, dataset.path, tmp_path / "wide", **short).do()
    assert len(full.diagnosis.rho) == 2
    assert wide.diagnosis.rho == wide.diagnosis.propagation_norm == ()
    assert wide.probes.states == 0
    # float32 against float64
    assert wide.diagnosis.rollout_error == pytest.approx(full.diagnosis.rollout_error, rel=1e-4)
    assert wide.diagnosis.one_step_error == pytest.approx(full.diagnosis.one_step_error, rel=1e-4)
    assert wide.diagnosis.effective_rank == pytest.approx(full.diagnosis.effective_rank)
    assert full.probes.cost_order is not None

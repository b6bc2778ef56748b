"""An objective is a named sum of terms: each trains with every transition, resumes, refuses what it lacks, is named."""

import dataclasses
import shutil
import sys

import pytest
import torch
from trainers import result_bytes

from saltwm.disk import checkpoint, durable
from saltwm.ground.config import ObjectiveConfig, WorldSpec
from saltwm.ground.errors import MismatchError, UsageError
from saltwm.jobs.presets import run_config
from saltwm.jobs.train import Train
from saltwm.jobs.variants import variant_of
from saltwm.losses.own import MEASURED
from saltwm.losses.regulariser import Regulariser, require_fitting
from saltwm.losses.sigreg import draw_projections
from saltwm.losses.table import OBJECTIVES, Seen, weights_of
from saltwm.model.traits import TRANSITIONS
from saltwm.objective import prediction_loss, training_loss
from saltwm.train import build_model, make_windows, train

LEARNING = [name for name, traits in TRANSITIONS.items() if not traits.is_frozen]
"""Models that learn their encoder."""
OTHERS = [name for name in OBJECTIVES if name not in ("salt", "lewm")]


def config_of(tiny, objective, model="salt", **changes):
    """The tiny run with another objective; a latent of 32, because 32 subspaces share it."""
    named = run_config("quick", model, objective).objective
    aim = dataclasses.replace(tiny.objective, objective=named.objective, regulariser=named.regulariser, **changes)
    return dataclasses.replace(tiny, objective=aim, model=dataclasses.replace(tiny.model, model=model, latent_dim=32))


# --- the table -------------------------------------------------------------------------------------------------------


def test_published_weights_are_those_of_the_environment():
    def weights(name, environment):
        return weights_of(ObjectiveConfig(regulariser=name, sigreg_weight=0.3), environment)

    assert weights("smwm", "two-room") == {"inverse": 0.1}
    assert [weights("smwm", e)["inverse"] for e in ("reacher", "push-t", "cube", "my-own")] == [5.0, 30.0, 1.0, 1.0]
    assert weights("sd-jepa", "cube") == {"sigreg": 0.3, "triplet": 0.10, "straightening": 0.05}
    pldm = weights("pldm", "cube")
    assert (pldm["variance"], pldm["covariance"], pldm["variance_over_time"], pldm["similarity"]) == (18, 12, 0.7, 0.2)
    assert (pldm["covariance_over_time"], pldm["inverse"]) == (0, 0)
    assert weights("sub-jepa", "cube") == {"sigreg": 0.3}
    assert weights("delta-jepa", "cube") == {"inverse": 10.0}


def test_salt_and_lewm_are_the_two_prediction_losses_with_sigreg_in_files_as_ever():
    assert run_config("cpu", "salt", "salt") == run_config("cpu", "salt", "rollout") == run_config("cpu", "salt")
    assert run_config("cpu", "salt", "lewm") == run_config("cpu", "salt", "one-step")
    assert run_config("cpu", "lewm", "salt") == run_config("cpu", "lewm", "rollout")


@pytest.mark.parametrize("model", LEARNING)
def test_other_objectives_leave_the_prediction_to_the_transition(model):
    found = run_config("cpu", model, "pldm").objective
    assert (found.objective, found.regulariser) == (TRANSITIONS[model].objective, "pldm")


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("model", LEARNING)
def test_the_total_is_the_prediction_and_every_weighted_term(name, model, tiny, dataset):
    config = config_of(tiny, name, model)
    world_model, windows = build_model(config, dataset).eval(), make_windows(config, dataset)
    batch = windows.batch(windows.train[:4])
    frames, blocks = torch.from_numpy(batch.frames), torch.from_numpy(batch.actions)
    along, regulariser = (
        draw_projections(32, 8, torch.Generator().manual_seed(0)),
        Regulariser(config.objective, world_model),
    )
    losses = training_loss(world_model, frames, blocks, config.objective, along, regulariser)
    z, aim = world_model.encode(frames), config.objective
    expected = prediction_loss(world_model, z, world_model.condition(blocks), aim.objective, aim.starts)
    for term, value in regulariser(Seen(z, world_model.action_encoder.normalise(blocks), along)).items():
        expected = expected + weights_of(aim, "two-room")[term] * value
    assert torch.allclose(losses.total, expected, rtol=1e-5)
    losses.total.backward()
    parts = [*world_model.named_parameters(), *regulariser.named_parameters()]
    assert [part for part, p in parts if p.grad is None or not p.grad.isfinite().all()] == []


def test_a_term_of_weight_0_is_neither_computed_nor_learnt(tiny, dataset):
    model = build_model(config_of(tiny, "pldm"), dataset)
    published = Regulariser(config_of(tiny, "pldm").objective, model)
    assert list(published.parameters()) == []
    raised = Regulariser(config_of(tiny, "pldm", weights={"inverse": 1.0}).objective, model)
    assert list(raised.learnt) == ["inverse"]


# --- training --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OTHERS)
def test_a_run_with_another_objective_trains_resumes_to_the_same_bytes_and_plans(name, tiny, dataset, tmp_path):
    config = config_of(tiny, name, "salt" if name in ("smwm", "sub-jepa") else "lewm")
    run = tmp_path / "run"
    train(config, dataset, run)
    row = durable.read_json_lines(run / "metrics.jsonl")[-1]
    weights = weights_of(config.objective, "two-room")
    assert {term for term, weight in weights.items() if weight} <= row.keys()
    newest = checkpoint.list_checkpoints(run)[-1]
    keeps = (newest / checkpoint.REGULARISER_FILE).exists()
    assert keeps == (name in ("sub-jepa", "smwm", "delta-jepa"))
    learnt = checkpoint.read_regulariser(newest)
    cut = tmp_path / "cut"
    shutil.copytree(run, cut)
    shutil.rmtree(cut / "checkpoints" / newest.name)
    train(config, dataset, cut)
    assert result_bytes(cut) == result_bytes(run)
    again = checkpoint.read_regulariser(cut / "checkpoints" / newest.name)
    assert all(torch.equal(again[key], learnt[key]) for key in learnt | again)
    loaded = checkpoint.load(run)  # without what the terms learnt
    assert sum("regulariser" in key for key in loaded.state_dict()) == 0


def test_an_inverse_model_is_optimised_and_another_seed_starts_it_elsewhere(tiny, dataset):
    config = config_of(tiny, "smwm")
    model = build_model(config, dataset)
    one, same, other = (Regulariser(config.objective, model, seed).state_dict() for seed in (0, 0, 1))
    assert all(torch.equal(one[key], same[key]) for key in one)
    assert not all(torch.equal(one[key], other[key]) for key in one)


def test_a_collapse_under_another_objective_is_warned_about(tiny, dataset, tmp_path, capsys):
    config = config_of(tiny, "smwm", weights={"inverse": 0.0})  # prediction alone: nothing holds the latents apart
    options = {"batch_size": 16, "steps": 60, "validate_every": 20, "save_every": 60, "learning_rate": 3e-3}
    train(dataclasses.replace(config, train=dataclasses.replace(config.train, **options)), dataset, tmp_path / "run")
    warnings = capsys.readouterr().err
    assert warnings.count("collapsing") == 1
    assert "weight of its terms" in warnings


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("sd-jepa", {"objective": {"rollout_steps": 1, "starts": 1}}, "triplet needs 3 frames in a window, .* make 2"),
        ("pldm", {"train": {"batch_size": 1}}, "variance needs a `batch_size` of 2, found 1"),
        ("sub-jepa", {"model": {"latent_dim": 16}}, "a `latent_dim` that 32 subspaces share evenly"),
        ("sd-jepa", {"model": {"latent_dim": 2}}, "a `latent_dim` above 2"),
        ("smwm", {"objective": {"weights": {"inverze": 2.0}}}, "did you mean 'inverse'"),
        ("smwm", {"objective": {"weights": {"inverse": -1.0}}}, "at least 0"),
        ("mine:missing", {}, "importable from"),
    ],
)
def test_what_an_objective_lacks_is_named_before_anything_is_written(name, change, message, tiny, dataset, tmp_path):
    config = config_of(tiny, name)
    for part, values in change.items():
        config = dataclasses.replace(config, **{part: dataclasses.replace(getattr(config, part), **values)})
    with pytest.raises(UsageError, match=message):
        train(config, dataset, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_memory_that_the_windows_cannot_fill_is_refused_before_anything_is_written(tiny, dataset, tmp_path):
    affine = dataclasses.replace(tiny.model.affine, memory=True)
    config = dataclasses.replace(
        tiny,
        model=dataclasses.replace(tiny.model, affine=affine),
        objective=dataclasses.replace(tiny.objective, objective="rollout", starts=1),
    )
    with pytest.raises(UsageError, match="rollouts start from two frames"):
        train(config, dataset, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["smwm", "delta-jepa"])
def test_inverse_dynamics_of_a_world_without_actions_is_refused(name, tiny):
    with pytest.raises(UsageError, match="inverse needs actions to predict, and these data have none"):
        require_fitting(config_of(tiny, name), WorldSpec("two-room", 0, image_size=8))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"objective": "pldn"}, "did you mean 'pldm'"),
        ({"objective": "smwm", "lambda_": 0.1}, "smwm has none; use --weights"),
        ({"objective": "smwm", "weights": ("inverse",)}, "expected TERM=NUMBER"),
        ({"objective": "smwm", "weights": ("inverse=1", "inverse=2")}, "a term has one weight"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options, message, tmp_path):
    with pytest.raises(UsageError, match=message):
        Train(tmp_path, tmp_path / "run", **options).config()


# --- one's own -------------------------------------------------------------------------------------------------------

OWN = """
import torch
from torch import nn


def shrinking(seen):
    return {"size": seen.latents.square().mean(), "count": seen.actions.abs().mean() * 0 + 1.0}


shrinking.frames = 2


class Learnt(nn.Module):
    windows = 2

    def __init__(self, sizes):
        super().__init__()
        self.back = nn.Linear(sizes.latent_dim, sizes.block_dim)

    def forward(self, seen):
        return {"back": (self.back(seen.latents[:, 1:] - seen.latents[:, :-1]) - seen.actions).square().mean()}


def wrong(seen):
    return seen.latents


def vector(seen):
    return {"size": seen.latents.square().mean(dim=(0, 1))}


def taken(seen):
    return {"loss": seen.latents.mean()}


def misspelt(seen):
    return {"size": seen.latnts.mean()}


class Misspelt(Learnt):
    def forward(self, seen):
        return {"back": self.bcak(seen.latents).mean()}


class Unbuilt(Learnt):
    def __init__(self, sizes):
        super().__init__(sizes)
        self.back = nn.Linear(sizes.latent_size, 1)
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    (tmp_path / "mine_objective.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "mine_objective", raising=False)  # of another test's folder
    return tmp_path / "mine_objective.py"


def test_a_weight_for_a_term_that_a_users_own_objective_does_not_have_is_refused(mine, tiny, dataset, tmp_path):
    config = config_of(tiny, "mine_objective:shrinking", weights={"sise": 0.5})
    with pytest.raises(UsageError, match=r"unknown term of objective 'mine_objective:shrinking' 'sise'; .* 'size'"):
        train(config, dataset, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["shrinking", "Learnt"])
def test_a_users_own_objective_is_one_file(name, mine, tiny, dataset, tmp_path):
    config = config_of(tiny, f"mine_objective:{name}", weights={"size": 0.5} if name == "shrinking" else None)
    train(config, dataset, tmp_path / "run")
    row = durable.read_json_lines(tmp_path / "run" / "metrics.jsonl")[-1]
    if name == "shrinking":
        assert row["loss"] == pytest.approx(row["prediction"] + 0.5 * row["size"] + 1.0, rel=1e-5)
    else:
        assert "learnt.own.back.weight" in checkpoint.read_regulariser(
            checkpoint.list_checkpoints(tmp_path / "run")[-1]
        )
    checkpoint.load(tmp_path / "run")  # plans without the file that trained it


def test_a_run_goes_on_with_the_code_that_it_was_begun_with_and_with_no_other(mine, tiny, dataset, tmp_path):
    config = config_of(tiny, "mine_objective:shrinking")
    longer = dataclasses.replace(config, train=dataclasses.replace(config.train, steps=8))
    train(config, dataset, tmp_path / "run")
    begun = (tmp_path / "run/run.json").read_bytes()
    (tmp_path / "mine_objective.py").write_text(OWN.replace("square().mean(),", "square().mean() * 100,"))
    for wanted in (config, longer):
        with pytest.raises(MismatchError, match=r"mine_objective:shrinking: the file of module mine_objective is not"):
            train(wanted, dataset, tmp_path / "run")
    assert (tmp_path / "run/run.json").read_bytes() == begun
    (tmp_path / "mine_objective.py").write_text(OWN)
    assert train(longer, dataset, tmp_path / "run").step == 8


def test_seeds_of_ones_own_objective_share_a_recipe_while_its_file_is_the_same(mine, tiny, dataset, tmp_path):
    def recipe(name, **changes):
        config = config_of(tiny, name)
        config = dataclasses.replace(config, train=dataclasses.replace(config.train, steps=1, **changes))
        out = tmp_path / f"runs-{len(list(tmp_path.glob('runs-*')))}"
        train(config, dataset, out)
        info = checkpoint.info_of(out)
        return info.own_code, variant_of(info).recipe_sha256

    (code, first), (same, second) = recipe("mine_objective:shrinking"), recipe("mine_objective:shrinking", seed=1)
    assert (first, code) == (second, same) == (first, {"mine_objective:shrinking": durable.sha256(mine)})
    mine.write_text(OWN.replace("square().mean(),", "square().mean() * 100,"))
    assert recipe("mine_objective:shrinking", seed=2)[1] != first
    assert recipe("salt")[0] is None  # and no file of it has the field


def test_a_run_s_file_does_not_name_code_that_is_run(mine, dataset, tmp_path):
    config = run_config("quick", "salt", "mine_objective:shrinking")
    info = checkpoint.RunInfo(checkpoint.FORMAT, config, dataset.world, str(dataset.path), dataset.sha256, 1, {})
    checkpoint.start_run(tmp_path / "run", info)
    with pytest.raises(UsageError, match=r"a file does not run code; .*--objective mine_objective:shrinking"):
        Train.found_in(tmp_path / "run")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("wrong", "expected a dict of scalar tensors by name, found tensor"),
        ("vector", "expected a dict of scalar tensors by name, found {'size'"),
        ("taken", "'loss' is measured of every run; give the term another name"),
        ("misspelt", r"\(mine_objective.py, line 37\): AttributeError: .*'latnts'"),
        ("Misspelt", r"\(mine_objective.py, line 42\): AttributeError: .*'bcak'"),
        ("Unbuilt", r"\(mine_objective.py, line 48\): AttributeError: .*'latent_size'"),
    ],
)
def test_what_a_users_own_objective_gets_wrong_is_one_line_before_anything_is_written(
    name, message, mine, tiny, dataset, tmp_path
):
    with pytest.raises(UsageError, match=message):
        train(config_of(tiny, f"mine_objective:{name}"), dataset, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_file_of_a_users_own_that_cannot_be_read_as_python_is_one_line(tiny, dataset, tmp_path, monkeypatch):
    (tmp_path / "broken_objective.py").write_text("def spread(seen):\n    return {\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"importing broken_objective failed: SyntaxError: .*line 2"):
        train(config_of(tiny, "broken_objective:spread"), dataset, tmp_path / "run")


def test_the_names_that_a_term_may_not_have_are_those_that_every_run_measures(tiny, dataset, tmp_path):
    train(config_of(tiny, "salt"), dataset, tmp_path / "run")
    (row, *_) = durable.read_json_lines(tmp_path / "run" / "metrics.jsonl")
    assert set(row) - {"sigreg"} == set(MEASURED)


# --- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("model", LEARNING)
def test_an_objective_is_in_the_record_and_never_called_by_the_model_s_own_name(name, model):
    config = run_config("cpu", model, name)
    info = checkpoint.CheckpointInfo(1, 10, config, _world(), "d4" * 32, {}, {})
    found = variant_of(info)
    assert found.departures == (f"objective {name}",)
    assert (found.regulariser, found.weights) == (name, weights_of(config.objective, "reacher"))


def test_a_command_spells_the_objective_and_its_weights_again(tmp_path):
    job = Train(tmp_path, tmp_path / "run", "cpu", "lewm", "pldm", weights=("variance=6.0",), prediction="rollout")
    assert Train.of(job.config(), tmp_path, tmp_path / "run") == job
    info = checkpoint.CheckpointInfo(1, 10, job.config(), _world(), "d4" * 32, {}, {})
    assert variant_of(info).departures == ("objective pldm", "prediction rollout", "variance 6")


def _world():
    from saltwm.ground.config import WorldSpec

    return WorldSpec("reacher", 2)

"""A transition of a user's own: named by a person, checked in one line, and never imported for a file."""

import dataclasses

import pytest
import torch
from small_runs import SMALL, WORLD, small_model

import saltwm
from saltwm.disk import checkpoint
from saltwm.disk.checkpoint import FORMAT, CheckpointInfo
from saltwm.ground.config import ModelConfig, RunConfig
from saltwm.ground.errors import DamagedError, OutOfMemory, ShapeError, UsageError
from saltwm.jobs.variants import variant_of
from saltwm.model import own
from saltwm.model.traits import learnt_name, model_key, traits_of
from saltwm.train import train

MODULE = """
from saltwm.model.transition import Transition


class Still(Transition):
    window = 2

    def _predict(self, latents, conditions):
        return latents

    def _rollout(self, history, conditions):
        return history[:, -1:].expand(-1, conditions.shape[1] - history.shape[1] + 1, -1)


class Wide(Still):
    def __init__(self, dim, condition_dim, width):
        super().__init__(dim, condition_dim)


class Half(Transition):
    def _predict(self, latents, conditions):
        return latents


class Salt(Still):
    pass


def function(dim, condition_dim):
    return Still(dim, condition_dim)


class Last(Still):
    def _rollout(self, history, conditions):
        return history[:, -1:]


class Flat(Still):
    def _predict(self, latents, conditions):
        return latents[..., 0]


class Boom(Still):
    def _rollout(self, history, conditions):
        return history / (1 // 0)


class Unbuilt(Still):
    def __init__(self, dim, condition_dim):
        super().__init__(dim, condition_dim)
        self.change = self.chagne
"""
STILL = ModelConfig("own_transitions:Still", SMALL.latent_dim, encoder=SMALL.encoder)


@pytest.fixture(autouse=True)
def module(tmp_path, monkeypatch):
    (tmp_path / "own_transitions.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(own.VARIABLE, "")


def test_a_class_that_was_named_has_the_traits_of_a_row():
    own.name_model("own_transitions:Still")
    own.name_model("own_transitions:Still")
    assert own.named() == ["own_transitions:Still"]
    found = traits_of("own_transitions:Still")
    assert (found.title, found.objective, found.has_matrix) == ("Still", "rollout", False)
    assert (found.window(STILL), found.frames(STILL)) == (2, 2)
    model = small_model(STILL)
    history, conditions = torch.randn(3, 2, 12), torch.randn(3, 5, 12)
    assert torch.equal(model.rollout(history, conditions)[:, -1], history[:, -1])


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("still", "expected module:Class, such as my_module:MyModel"),
        ("no_such_module:Still", "No module named 'no_such_module'"),
        ("own_transitions:Stil", "has no function or class 'Stil'"),
        ("own_transitions:function", "expected a class that is a saltwm.model.transition.Transition"),
        ("own_transitions:Half", "lacks _rollout"),
        ("own_transitions:Wide", "made by the sizes dim and condition_dim: missing a required argument: 'width'"),
        ("own_transitions:Salt", "the name 'salt' is taken"),
    ],
)
def test_a_name_that_leads_to_no_transition_is_refused_in_one_line(place, message):
    with pytest.raises(UsageError, match=message) as refused:
        own.name_model(place)
    assert "\n" not in str(refused.value)
    assert own.named() == []


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("Last", ShapeError, r"^own_transitions:Last: _rollout: expected shape \[B=2, K=2, D=12\], found \[2, 1, 12\]"),
        ("Flat", ShapeError, r"^own_transitions:Flat: _predict: expected shape \[B=2, K=1, D=12\], found \[2, 1\]"),
        ("Boom", UsageError, r"^model own_transitions:Boom \(own_transitions.py, line 45\): ZeroDivisionError: "),
        ("Unbuilt", UsageError, r"^model own_transitions:Unbuilt \(own_transitions.py, line 51\): AttributeError: "),
    ],
)
def test_what_ones_own_transition_gets_wrong_is_one_line_before_anything_is_written(
    name, error, message, tiny, dataset, tmp_path
):
    place = own.name_model(f"own_transitions:{name}")
    config = dataclasses.replace(tiny, model=dataclasses.replace(STILL, model=place, encoder=tiny.model.encoder))
    with pytest.raises(error, match=message):
        train(config, dataset, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_lack_of_memory_in_ones_own_code_is_not_called_its_error():
    transition = traits_of(own.name_model("own_transitions:Still")).build(STILL)
    with pytest.raises(OutOfMemory), own.errors_in_one_line(transition):
        raise MemoryError


@pytest.mark.parametrize("model", ["salt", "lewm"])
def test_no_transition_s_prediction_is_broadcast(model, monkeypatch):
    transition = small_model(dataclasses.replace(SMALL, model=model)).transition
    z, c = torch.randn(2, 1, 12), torch.randn(2, 3, 12)
    assert transition.rollout(z, c).shape == (2, 3, 12)
    monkeypatch.setattr(transition, "_rollout", lambda z, c: z)
    with pytest.raises(ShapeError, match=r"expected shape \[B=2, K=3, D=12\], found \[2, 1, 12\]"):
        transition.rollout(z, c)


def test_a_class_that_nobody_named_is_refused_wherever_its_traits_are_wanted():
    with pytest.raises(UsageError, match="a file does not run code; name it yourself"):
        traits_of("own_transitions:Still")
    with pytest.raises(UsageError, match="unknown model 'own transitions:Still'"):
        traits_of("own transitions:Still")


def test_a_checkpoint_loads_once_its_class_is_named(tmp_path):
    own.name_model("own_transitions:Still")
    info = CheckpointInfo(FORMAT, 1, RunConfig("test", STILL), WORLD, "a" * 64, {}, {})
    weights = small_model(STILL).state_dict()
    checkpoint.publish(tmp_path / "shipped", info, {checkpoint.WEIGHTS_FILE: checkpoint.to_bytes(weights)})
    assert saltwm.load(tmp_path / "shipped").window == 2
    own.os.environ[own.VARIABLE] = ""
    with pytest.raises(UsageError, match="shipped: model own_transitions:Still: a file does not run code"):
        saltwm.load(tmp_path / "shipped")


def test_a_word_that_is_no_place_is_damage(tmp_path):
    info = CheckpointInfo(FORMAT, 1, RunConfig("test", ModelConfig("a:b:c")), WORLD, "a" * 64, {}, {})
    checkpoint.publish(tmp_path / "shipped", info, {})
    with pytest.raises(DamagedError, match=r"run.model.model: expected one of salt, lewm, dino-wm, found 'a:b:c'"):
        checkpoint.read_info(tmp_path / "shipped")


def test_records_and_folders_call_it_by_its_class():
    own.name_model("own_transitions:Still")
    run = RunConfig("test", STILL)
    assert (model_key("own_transitions:Still"), model_key("dino-wm")) == ("still", "dino-wm")
    assert learnt_name(run) == "still"
    variant = variant_of(CheckpointInfo(FORMAT, 1, run, WORLD, "a" * 64, {}, {}))
    assert (variant.model, variant.title, variant.modes) == ("still", "Still", None)
    salt = variant_of(CheckpointInfo(FORMAT, 1, RunConfig("test", SMALL), WORLD, "a" * 64, {}, {}))
    assert (salt.model, salt.title) == ("salt", None)  # known to every table, and to the records of before

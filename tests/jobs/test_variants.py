"""A record can tell a model from its ablations, and two training seeds of one recipe from two recipes."""

import dataclasses

import pytest

from saltwm.disk.checkpoint import CheckpointInfo
from saltwm.ground.config import RunConfig, WorldSpec
from saltwm.jobs.presets import run_config
from saltwm.jobs.variants import variant_of


def variant(run: RunConfig, environment: str = "reacher", dataset: str = "d4" * 32):
    return variant_of(CheckpointInfo(1, 10, run, WorldSpec(environment, 2), dataset, {}, {}))


def changed(run: RunConfig, part: str, **settings) -> RunConfig:
    return dataclasses.replace(run, **{part: dataclasses.replace(getattr(run, part), **settings)})


@pytest.mark.parametrize("model", ["salt", "lewm"])
def test_the_recipe_itself_departs_from_nothing(model):
    found = variant(run_config("cpu", model))
    assert (found.model, found.departures, found.seed) == (model, (), 0)
    assert (found.modes, found.spectral) == ((16, True) if model == "salt" else (None, None))


def test_each_ablation_of_the_paper_is_named():
    salt = run_config("cpu", "salt")
    free = dataclasses.replace(salt.model, affine=dataclasses.replace(salt.model.affine, modes=0, spectral=False))
    assert variant(dataclasses.replace(salt, model=free)).departures == ("R 0", "A0 free")
    assert variant(run_config("cpu", "salt", "one-step")).departures == ("objective one-step",)
    assert variant(run_config("cpu", "lewm", "rollout")).departures == ("objective rollout",)
    for settings, words in (({"sigreg_weight": 0.15}, "lambda 0.15"), ({"rollout_steps": 3}, "K 3")):
        assert variant(changed(salt, "objective", **settings)).departures == (words,)
    assert variant(changed(salt, "model", latent_dim=96)).departures == ("d 96",)


def test_an_environment_s_recipe_is_what_departures_are_measured_from():
    one_start = changed(run_config("cpu", "salt"), "objective", starts=1)
    assert variant(one_start, "push-t").departures == ()
    assert variant(one_start, "reacher").departures == ("starts 1",)


def test_seeds_share_a_recipe_and_other_settings_or_data_do_not():
    salt = run_config("cpu", "salt")
    second = variant(changed(salt, "train", seed=1, save_every=7))
    assert second.seed == 1
    assert second.recipe_sha256 == variant(salt).recipe_sha256
    others = [variant(changed(salt, "train", steps=99)), variant(run_config("quick")), variant(salt, dataset="e5" * 32)]
    assert second.recipe_sha256 not in {other.recipe_sha256 for other in others}

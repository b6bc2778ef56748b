"""Which variant of a model a checkpoint is, in the words that records and tables use."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from saltwm.disk import durable
from saltwm.disk.checkpoint import CheckpointInfo, Origin
from saltwm.disk.records import ModelVariant
from saltwm.ground.config import ObjectiveConfig, RunConfig
from saltwm.ground.own_code import is_place
from saltwm.ground.strict_json import to_plain
from saltwm.jobs.presets import PRESETS, objective_parts, run_config
from saltwm.jobs.recipes import RECIPES
from saltwm.losses.table import is_own, weights_of
from saltwm.model.traits import model_key, traits_of
from saltwm.report.tables import METHOD_NAMES

NOT_LEARNT_FROM = ("validate_every", "validation_batches", "save_every", "keep")
"""Fields of TrainConfig that change no weight: how often a run measures and saves itself."""


def variant_of(info: CheckpointInfo) -> ModelVariant:
    """The variant, as the checkpoint's config tells it."""
    run, model, objective = info.run, info.run.model, info.run.objective
    traits = traits_of(model.model)
    affine = model.affine if traits.has_matrix and not is_place(model.model) else None
    return ModelVariant(
        model=model_key(model.model),
        objective=objective.objective,
        modes=affine.modes if affine else None,
        spectral=affine.spectral if affine else None,
        sigreg_weight=objective.sigreg_weight,
        latent_dim=model.latent_dim,
        rollout_steps=objective.rollout_steps,
        starts=objective.starts,
        seed=run.train.seed,
        departures=(*departures_in_words(run, info.world.environment), *_history(info)),
        recipe_sha256=recipe_sha256(info.run, info.dataset_sha256, info.lineage, info.own_code),
        regulariser=objective.regulariser,
        weights=_term_weights(objective, info.world.environment),
        title=None if METHOD_NAMES.get(model.model) == traits.title else traits.title,
    )


def departures(run: RunConfig, environment: str) -> dict[str, str]:
    """What a study would have changed: the named settings that are not those of the recipe."""
    here, there = (_settings(config) for config in (run, _usual(run, environment)))
    return {name: value for name, value in here.items() if value != there.get(name)}


def departures_in_words(run: RunConfig, environment: str) -> list[str]:
    """The same as records have them: `R 0`."""
    return [f"{name} {value}" for name, value in departures(run, environment).items()]


def _usual(run: RunConfig, environment: str) -> RunConfig:
    """The run's preset with its model's own objective, and with what the environment's recipe changes."""
    base = run_config(run.preset if run.preset in PRESETS else "paper", run.model.model)
    if traits_of(run.model.model).is_frozen:  # the size of its latent is its encoder's
        base = dataclasses.replace(base, model=run.model)
    recipe = RECIPES.get((run.preset, environment))
    if recipe is None or recipe.train.starts is None:
        return base
    return dataclasses.replace(base, objective=dataclasses.replace(base.objective, starts=recipe.train.starts))


def _settings(run: RunConfig) -> dict[str, str]:
    """The settings that studies vary, by the paper's letters."""
    objective, affine = run.objective, run.model.affine
    settings = {"objective": objective.word}
    if objective.regulariser and objective.objective != objective_parts(run.model.model, objective.regulariser)[0]:
        settings["prediction"] = objective.objective
    settings |= {name: f"{weight:g}" for name, weight in (objective.weights or {}).items()}
    if traits_of(run.model.model).has_matrix:
        settings |= {"R": str(affine.modes), "A0": "spectral" if affine.spectral else "free"}
        settings |= {"memory": "yes" if affine.memory else "no"}
    return settings | {
        "lambda": f"{objective.sigreg_weight:g}",
        "d": str(run.model.latent_dim),
        "K": str(objective.rollout_steps),
        "starts": str(objective.starts),
    }


def _history(info: CheckpointInfo) -> list[str]:
    """How the run came about, where that is not one run from fresh weights."""
    restarts, lineage = info.run.train.restarts, info.lineage
    words = [f"prolonged at step {' and '.join(map(str, restarts))}"] if restarts else []
    frozen = " with its encoder frozen" if lineage and lineage[-1].encoder_frozen else ""
    return [*words, f"from {lineage[-1].checkpoint_sha256[:12]}{frozen}"] if lineage else words


def recipe_sha256(
    run: RunConfig,
    dataset_sha256: str,
    lineage: Sequence[Origin] | None = None,
    own_code: dict[str, str] | None = None,
) -> str:
    """All that weights are learnt by, the seed aside: training seeds of one recipe share it.

    Defaults stay out, so that a setting that is added to the config later changes no recipe of before.
    """
    changed = _without_defaults(to_plain(run), to_plain(RunConfig()))
    for name in ("seed", *NOT_LEARNT_FROM):
        changed.get("train", {}).pop(name, None)
    return durable.sha256_json([changed, dataset_sha256, *to_plain(lineage or ()), *([own_code] if own_code else [])])


def _without_defaults(values: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    changed = {name: value for name, value in values.items() if value != defaults.get(name)}
    return {
        name: _without_defaults(value, defaults[name]) if isinstance(defaults.get(name), dict) else value
        for name, value in changed.items()
    }


def _term_weights(objective: ObjectiveConfig, environment: str) -> dict[str, float] | None:
    """Weights of the terms of an objective other than eq. 10, whose lambda has a field of its own."""
    if objective.regulariser is None or is_own(objective.regulariser):
        return objective.weights
    return weights_of(objective, environment)

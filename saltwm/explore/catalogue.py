"""What there is to explore, and what is wrong with the rest."""

import dataclasses
from typing import Any

from saltwm.explore.desk import Desk, has_simulator
from saltwm.explore.messages import Answer, Catalogue
from saltwm.ground.config import ModelConfig, PriorPlanner
from saltwm.ground.errors import SaltError
from saltwm.jobs.evaluate import can_plan
from saltwm.model.traits import traits_of
from saltwm.planning.names import planner_named

LIVE_PLANNERS = ("map", "gauss-newton", "prior", "cem-map", "cem-prior", "cem", "icem", "mppi")
"""Planners that the page offers, quickest first; gradient descent is for other measurements."""


def catalogue(desk: Desk, _: Catalogue) -> Answer:
    """Every place with what its first file says, or with its problem."""
    return Answer(
        {
            "models": [_described(desk, name, _model) for name in desk.names("model")],
            "results": [_described(desk, name, _results) for name in desk.names("results")],
            "datasets": [_described(desk, name, _dataset) for name in desk.names("dataset")],
        }
    )


def _described(desk: Desk, name: str, describe: Any) -> dict[str, Any]:
    try:
        return {"name": name, "path": desk.places[name].path, **describe(desk, name)}
    except SaltError as error:
        return {"name": name, "path": desk.places[name].path, "problem": str(error)}


def _model(desk: Desk, name: str) -> dict[str, Any]:
    info = desk.info(name)
    model = info.run.model
    return {
        "world": dataclasses.asdict(info.world),
        "environment": info.world.environment,
        "model": model.model,
        "objective": info.run.objective.word,
        "frameskip": model.frameskip,
        "latent_dim": model.latent_dim,
        "affine": rolls_out_in_the_page(model),
        "step": info.step,
        "dataset": desk.data_of(name),
        "simulated": desk.is_simulated(name),
        "planners": planners_for(desk, name),
    }


def rolls_out_in_the_page(model: ModelConfig) -> bool:
    """Whether the next latent is affine in the last one alone, so that a few products in the page do."""
    return traits_of(model.model).has_matrix and not model.affine.memory


def planners_for(desk: Desk, name: str) -> list[str]:
    """Planners that work with a model, quickest first; those with a prior where it has one."""
    model, prior = desk.info(name).run.model, desk.has_prior(name)
    planners = [planner_named(kind) for kind in LIVE_PLANNERS]
    return [p.kind for p in planners if can_plan(model, p) and (prior or not isinstance(p, PriorPlanner))]


def _results(desk: Desk, name: str) -> dict[str, Any]:
    folder = desk.path(name, "results") / "evaluations"
    return {"cells": sum(1 for _ in folder.glob("*/evaluation.json")) if not folder.is_symlink() else 0}


def _dataset(desk: Desk, name: str) -> dict[str, Any]:
    dataset = desk.dataset(name)
    return {
        "environment": dataset.world.environment,
        "episodes": len(dataset),
        "steps": int(dataset.lengths.sum()),
        "held_out": dataset.recipe.is_held_out,
        "simulated": has_simulator(dataset.world.environment),
    }

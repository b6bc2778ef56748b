"""What there is to explore, and what is wrong with the rest."""

from typing import Any

from saltwm.envs import has_simulator
from saltwm.explore.desk import Desk
from saltwm.explore.messages import Answer, Catalogue
from saltwm.ground.config import ModelConfig, PriorPlanner
from saltwm.ground.errors import SaltError
from saltwm.jobs.evaluate import can_plan
from saltwm.model.traits import traits_of
from saltwm.planning.names import planner_named

LIVE_PLANNERS = ("map", "gauss-newton", "prior", "cem-map", "cem-prior", "cem", "icem", "mppi")
"""Planners that the page offers, quickest first; gradient descent is for other measurements."""


def catalogue(desk: Desk, _: Catalogue) -> Answer:
    """Every model and dataset with what its first file says, or with its problem; results are read when opened."""
    return Answer(
        {
            "models": [_described(desk, name, _model) for name in desk.names("model")],
            "results": [{"name": name} for name in desk.names("results")],
            "datasets": [_described(desk, name, _dataset) for name in desk.names("dataset")],
        }
    )


def _described(desk: Desk, name: str, describe: Any) -> dict[str, Any]:
    try:
        return {"name": name, **describe(desk, name)}
    except SaltError as error:
        return {"name": name, "problem": str(error)}


def _model(desk: Desk, name: str) -> dict[str, Any]:
    info = desk.info(name)
    return {
        "environment": info.world.environment,
        "affine": rolls_out_in_the_page(info.run.model),
        "dataset": desk.data_of(name),
        "simulated": desk.is_simulated(name),
    }


def rolls_out_in_the_page(model: ModelConfig) -> bool:
    """Whether the next latent is affine in the last one alone, so that a few products in the page do."""
    return traits_of(model.model).has_matrix and not model.affine.memory


def planners_for(desk: Desk, name: str) -> list[str]:
    """Planners that work with a model, quickest first; those with a prior where it has one."""
    model, prior = desk.info(name).run.model, desk.has_prior(name)
    planners = [planner_named(kind) for kind in LIVE_PLANNERS]
    return [p.kind for p in planners if can_plan(model, p) and (prior or not isinstance(p, PriorPlanner))]


def _dataset(desk: Desk, name: str) -> dict[str, Any]:
    dataset = desk.dataset(name)
    return {
        "episodes": len(dataset),
        "simulated": has_simulator(dataset.world.environment),
    }

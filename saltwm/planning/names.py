"""Planners as text: `cem`, or with settings `gauss-newton,mu=0.1`. Needs no torch."""

import dataclasses
from collections import Counter
from typing import Any, get_args

from saltwm.ground.checks import one_of
from saltwm.ground.config import OwnPlannerConfig, PlannerConfig
from saltwm.ground.errors import UsageError


def planner_named(text: str) -> PlannerConfig:
    """The planner of a text such as `cem`, or with settings of its own `gauss-newton,mu=0.1`."""
    name, *settings = text.split(",")
    planners: dict[str, PlannerConfig] = {
        kind.kind: kind() for kind in get_args(PlannerConfig) if kind is not OwnPlannerConfig
    }
    one_of("planner", name, planners, beside="module:function of your own")
    planner: Any = planners[name]
    search = getattr(planner, "search", planner)  # what the settings of cem-prior, icem-prior and mppi-prior are about
    chosen = [_setting(name, search, setting) for setting in settings]
    if twice := next((setting for setting, n in Counter(setting for setting, _ in chosen).items() if n > 1), None):
        raise UsageError(f"{name}: {twice} is given twice")
    search = dataclasses.replace(search, **dict(chosen))
    return dataclasses.replace(planner, search=search) if hasattr(planner, "search") else search


def _setting(planner: str, search: Any, text: str) -> tuple[str, float]:
    """`mu=0.1` as a name and a number of the setting's kind."""
    name, _, digits = text.partition("=")
    known = {field.name: field.type for field in dataclasses.fields(search) if field.name != "kind"}
    if not known:
        raise UsageError(f"{planner} has no settings, found {text!r}")
    one_of(f"setting of {planner}", name, known)
    whole = known[name] is int
    try:
        number = int(digits) if whole else float(digits)
    except ValueError as error:
        raise UsageError(f"{planner}: {name} must be a number, found {digits!r}") from error
    least = 1 if whole and name != "kept_elites" else 0
    if name == "initial_std" and number == 0:
        raise UsageError(f"{planner}: initial_std must be above 0, or every candidate is the same")
    if not least <= number < float("inf"):
        raise UsageError(f"{planner}: {name} must be a finite number of at least {least}, found {digits}")
    return name, number


def planner_text(planner: PlannerConfig) -> str:
    """The text that `planner_named` reads, without settings that have their default."""
    if isinstance(planner, OwnPlannerConfig):
        return planner.function
    search = getattr(planner, "search", planner)
    changed = [f for f in dataclasses.fields(search) if getattr(search, f.name) != f.default]
    return ",".join([planner.kind, *(f"{f.name}={getattr(search, f.name)}" for f in changed)])

"""A planner of one's own: one function, handed to `Agent` or named on the command line as module:function.

    def plan(cost, *, horizon, action_dim, generators, bounds=None) -> Plan      searches a cost, as `cem` does
    def plan(model, situation, *, horizon, generators, bounds=None) -> Plan      plans with a model, as `gauss_newton`

A module is imported because a person named it. A file that names one is refused: no file runs code. Actions that stay
within `bounds` are the planner's own business; their number and that they are finite is not.
"""

import inspect
from collections.abc import Callable
from typing import Any

import torch

from saltwm.ground import own_code
from saltwm.ground.checks import check_tensor
from saltwm.ground.config import OwnPlannerConfig, PlannerConfig
from saltwm.ground.errors import NonFiniteError, SaltError, UsageError
from saltwm.model.world_model import WorldModel
from saltwm.planning.cem import Plan
from saltwm.planning.costs import Situation, terminal_cost

_NAMED: set[str] = set()
"""The functions that were named in this process, by a person."""


def name_planner(place: str) -> OwnPlannerConfig:
    """The planner `module:function` that a person asks for; UsageError unless it is there."""
    imported(place)
    _NAMED.add(place)
    return OwnPlannerConfig(place)


def require_named(planner: PlannerConfig | None) -> None:
    """UsageError for a planner of one's own that was read from a file and that nobody named."""
    if isinstance(planner, OwnPlannerConfig) and planner.function not in _NAMED:
        raise UsageError(
            f"{planner.function}: a file does not run code; name it yourself, as the `planner` {planner.function}"
        )


def imported(place: str) -> Callable[..., Plan]:
    """The function at `module:function`; UsageError unless it takes what a planner gets."""
    function = own_code.imported("planner", place)
    _arguments(function, place)
    return function


def source(place: str) -> str:
    """The file that holds a planner."""
    return inspect.getfile(imported(place))


def run(function: Callable[..., Plan], model: WorldModel, situation: Situation, **options: Any) -> Plan:
    """What the function plans. It gets the options that it has arguments for; UsageError names the line that fails."""
    name = getattr(function, "__name__", "planner")
    inputs: tuple[Any, ...] = (model, situation)
    if _arguments(function, name) == 1:
        inputs = (terminal_cost(model, situation),)
        options["action_dim"] = model.action_encoder.block_dim
        options["initial"] = situation.warm_gaussian(options["horizon"])
    try:
        found = function(*inputs, **_accepted(function, options))
    except SaltError:
        raise
    except Exception as error:
        raise own_code.failed("planner", name, function, error) from error
    if not isinstance(found, Plan):
        raise UsageError(f"planner {name}: expected a saltwm.Plan, found {found!r:.80}")
    _check_plan(name, found, len(situation.goal), options["horizon"], model.action_encoder.block_dim)
    return found


def _check_plan(name: str, plan: Plan, tasks: int, horizon: int, action_dim: int) -> None:
    """ShapeError or NonFiniteError unless a plan is what was asked for."""
    for field in ("actions", "std"):
        values, sizes = getattr(plan, field), {"N": tasks, "H": horizon, "A": action_dim}
        check_tensor(f"planner {name}: {field}", values, "N H A", dtype="float", **sizes)
    check_tensor(f"planner {name}: elite_costs", plan.elite_costs, "N iterations", dtype="float", N=tasks)
    finite = torch.isfinite(plan.actions).flatten(1).all(dim=1)
    if not finite.all():
        task = int(finite.logical_not().nonzero()[0])
        raise NonFiniteError(f"planner {name}: the plan of task {task} has actions that are not finite")


def _arguments(function: Callable[..., Any], name: str) -> int:
    """How many positional arguments it needs: 1 is a cost, 2 are model and situation."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    count = sum(p.kind in kinds and p.default is p.empty for p in inspect.signature(function).parameters.values())
    if count not in (1, 2):
        raise UsageError(
            f"planner {name}: needs {count} positional arguments; expected 1 (cost) or 2 (model, situation), and "
            "horizon, generators and bounds as keywords"
        )
    return count


def _accepted(function: Callable[..., Any], options: dict[str, Any]) -> dict[str, Any]:
    parameters = inspect.signature(function).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return options
    return {name: value for name, value in options.items() if name in parameters}

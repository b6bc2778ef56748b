"""saltwm: learn state-affine latent dynamics from pixels and plan with them reliably.

The public names are imported when they are first used, so that `import saltwm` costs nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any

_WHERE = {
    "ActionEncoder": "saltwm.model.actions",
    "Agent": "saltwm.planning.agent",
    "CEMConfig": "saltwm.ground.config",
    "Dataset": "saltwm.disk.dataset",
    "Encoder": "saltwm.model.encoder",
    "Plan": "saltwm.planning.cem",
    "SaltError": "saltwm.ground.errors",
    "SolverAdapter": "saltwm.interop.solver_adapter",
    "StateAffine": "saltwm.model.affine",
    "TransformerPredictor": "saltwm.model.transformer",
    "Windows": "saltwm.data.windows",
    "WorldModel": "saltwm.model.world_model",
    "cem": "saltwm.planning.cem",
    "gauss_newton": "saltwm.planning.gauss_newton",
    "load": "saltwm.disk.checkpoint",
    "make_env": "saltwm.envs",
    "run_config": "saltwm.jobs.presets",
    "sigreg": "saltwm.objective",
    "terminal_cost": "saltwm.planning.costs",
}
_MODULES = {"propagation": "saltwm.diagnostics.propagation"}

__all__ = [
    "ActionEncoder",
    "Agent",
    "CEMConfig",
    "Dataset",
    "Encoder",
    "Plan",
    "SaltError",
    "SolverAdapter",
    "StateAffine",
    "TransformerPredictor",
    "Windows",
    "WorldModel",
    "cem",
    "gauss_newton",
    "load",
    "make_env",
    "propagation",
    "run_config",
    "sigreg",
    "terminal_cost",
]

if TYPE_CHECKING:
    from saltwm.data.windows import Windows
    from saltwm.diagnostics import propagation
    from saltwm.disk.checkpoint import load
    from saltwm.disk.dataset import Dataset
    from saltwm.envs import make_env
    from saltwm.ground.config import CEMConfig
    from saltwm.ground.errors import SaltError
    from saltwm.interop.solver_adapter import SolverAdapter
    from saltwm.jobs.presets import run_config
    from saltwm.model.actions import ActionEncoder
    from saltwm.model.affine import StateAffine
    from saltwm.model.encoder import Encoder
    from saltwm.model.transformer import TransformerPredictor
    from saltwm.model.world_model import WorldModel
    from saltwm.objective import sigreg
    from saltwm.planning.agent import Agent
    from saltwm.planning.cem import Plan, cem
    from saltwm.planning.costs import terminal_cost
    from saltwm.planning.gauss_newton import gauss_newton


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name in _MODULES:
        return importlib.import_module(_MODULES[name])
    if name in _WHERE:
        return getattr(importlib.import_module(_WHERE[name]), name)
    raise AttributeError(f"module 'saltwm' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__

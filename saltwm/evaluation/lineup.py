"""The methods that the study of objectives puts side by side, and how many frames each of them plans with.

The study evaluates them by this, and the report finds their records by it.
"""

from saltwm.disk.records import method_words

OTHERS = {
    "pldm": "PLDM",
    "sub-jepa": "Sub-JEPA",
    "sd-jepa": "SD-JEPA",
    "smwm": "SMWM",
    "delta-jepa": "Delta-JEPA",
}
"""Objectives of other papers as people write them; their published weights are in losses/table.py."""
LOOKING_BACK = ("lewm", "dino-wm")
"""Models whose predictor sees up to three latents."""
HISTORY = 3
"""Frames that such a model plans with, as the paper's interface shows them to LeWM (App. B.5)."""
ONE_FRAME = "two-room"
"""Where these methods plan with one frame: the first of them were evaluated so, and a frame hides nothing there.

Elsewhere a single frame hides velocities, and a predictor that looks back would be half blind.
"""


def frames(model: str, environment: str) -> int:
    """Frames that a model plans with in this study."""
    return HISTORY if model in LOOKING_BACK and environment != ONE_FRAME else 1


def mode_planner(model: str) -> str:
    """The planner that finds the posterior mode: by CEM where no matrix carries the state on."""
    return "cem-map" if model in LOOKING_BACK else "map"


def method(model: str, environment: str, objective: str | None = None, planner: str = "cem") -> str:
    """The name in evaluations: salt, lewm-pldm-history3, lewm-pldm-cem-map-history3."""
    return "-".join([model, *filter(None, [objective]), *method_words(planner, frames(model, environment), None)])

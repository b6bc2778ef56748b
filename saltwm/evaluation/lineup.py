"""What studies call the methods that they put side by side, and how many frames those of Table 1 plan with.

The studies evaluate them by this, and the report finds their records by it.
"""

from collections.abc import Mapping

from saltwm.disk.records import Evaluation, method_words

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


IN_NAMES = {"objective": "", "A0": "", "R": "modes", "K": "k"}
"""How names spell the settings in which a model departs from the recipe: salt-modes0, salt-free."""


def frames(model: str, environment: str) -> int:
    """Frames that a model plans with in this study."""
    return HISTORY if model in LOOKING_BACK and environment != ONE_FRAME else 1


def mode_planner(model: str) -> str:
    """The planner that finds the posterior mode: by CEM where no matrix carries the state on."""
    return "cem-map" if model in LOOKING_BACK else "map"


def method(model: str, environment: str, objective: str | None = None, planner: str = "cem") -> str:
    """The name in evaluations: salt, lewm-pldm-history3, lewm-pldm-cem-map-history3."""
    return "-".join([model, *filter(None, [objective]), *method_words(planner, frames(model, environment), None)])


def model_name(model: str, departures: Mapping[str, str], seed: int) -> str:
    """The name of a model in folders and tables: salt, salt-modes0, lewm-rollout-starts1, salt-s1."""
    words = [f"{IN_NAMES.get(setting, setting)}{value}" for setting, value in departures.items()]
    return "-".join([model, *words, *([f"s{seed}"] if seed else [])])


def is_as_named(evaluation: Evaluation) -> bool:
    """Whether a record's name is the one that a study gives to what the record says it is of.

    A name is what somebody typed, or what is left of it: an ablation and another training seed can be called salt. A
    record of before there were variants says nothing of its model.
    """
    e = evaluation
    if e.variant is None:
        return True
    departures = dict(departure.split(" ", 1) for departure in e.departures)
    words = method_words(e.planner.get("kind", ""), e.history_frames, e.look_every)
    return e.method == "-".join([model_name(e.variant.model, departures, e.variant.seed), *words])

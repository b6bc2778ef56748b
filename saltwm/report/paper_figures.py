"""What the paper reports, each with its place in it: shown beside our own figures, never mixed with them.

Another data set, another size (ViT-Tiny at 224 px), another machine (one H100): the columns are context, not a test.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from saltwm.evaluation.contests import Contest

WHAT_IT_IS = "the paper's own: another data set, another size, another machine"


@dataclass(frozen=True)
class _PaperRate:
    """Percent over three evaluation seeds of 50 episodes, for Cube-Double over three training runs of 50 episodes each;
    the long-horizon table has no deviations."""

    mean: float
    std: float | None = None

    def __str__(self) -> str:
        return f"{self.mean:.1f}" if self.std is None else f"{self.mean:.1f} ± {self.std:.1f}"


FOUR = ("two-room", "reacher", "push-t", "cube")
"""The environments of the main tables, in their order."""

SUCCESS = {  # main table, Sec. 4.2; Cube-Double: Sec. 4.6
    ("two-room", "random"): _PaperRate(2.0, 2.0),
    ("two-room", "lewm"): _PaperRate(90.67, 4.6),
    ("two-room", "salt"): _PaperRate(98.0, 2.0),
    ("reacher", "random"): _PaperRate(12.0, 4.0),
    ("reacher", "lewm"): _PaperRate(85.33, 2.3),
    ("reacher", "salt"): _PaperRate(90.7, 3.1),
    ("push-t", "random"): _PaperRate(5.3, 2.3),
    ("push-t", "lewm"): _PaperRate(87.33, 4.71),
    ("push-t", "salt"): _PaperRate(88.0, 5.2),
    ("cube", "random"): _PaperRate(42.0, 4.0),
    ("cube", "lewm"): _PaperRate(67.33, 4.2),
    ("cube", "salt"): _PaperRate(94.0, 2.0),
    ("cube-double", "random"): _PaperRate(32.7, 4.2),
    ("cube-double", "lewm"): _PaperRate(36.0, 5.3),
    ("cube-double", "salt"): _PaperRate(54.0, 3.5),
}

AVERAGES = {"salt": 92.68, "lewm": 82.67, "random": 15.33}
"""Over the four environments, main table, Sec. 4.2."""

OBJECTIVE = {"SALT one-step": 84.4, "SALT rollout": 92.7, "LeWM one-step": 82.7, "LeWM rollout": 77.8}
"""Table 3: means of the four environments."""

QUOTED = {  # main table, Sec. 4.2: Two-Room, Reacher, PushT, Cube and their mean, quoted there under other protocols
    "PLDM": (97, 78, 78, 65, 79.5),
    "DINO-WM": (100, 79, 74, 86, 84.75),
    "Sub-JEPA": (95, 84, 89, 76.33, 86.08),
    "SD-JEPA": (90, 88, 97.3, 72, 86.83),
    "SMWM": (99, 66, 83, 84, 83),
}

ELSEWHERE = {"Delta-JEPA": (100, 81.3, 89.1, 79.3)}
"""Rates of a method that the paper does not quote: arXiv 2606.31232, its own table."""

LONG_HORIZON = {  # App. E.2: (environment, H) -> LeWM, SALT
    ("two-room", 10): (63, 74),
    ("two-room", 15): (54, 65),
    ("two-room", 20): (47, 58),
    ("reacher", 10): (26, 30),
    ("reacher", 15): (20, 26),
    ("reacher", 20): (18, 26),
    ("push-t", 10): (22, 30),
    ("push-t", 15): (18, 26),
    ("push-t", 20): (16, 20),
    ("cube", 10): (53, 78),
    ("cube", 15): (49, 73),
    ("cube", 20): (48, 65),
}

ONE_STEP_RATIO = (1.48, 2.19)
"""SALT's one-step error over LeWM's, the range over the four environments (Sec. 4.3; a figure has the single ones)."""

ROLLOUT_GROWTH = {"salt": 6.29, "lewm": 12.83}
"""Rollout error at step 20 over that at step 1, on PushT (Sec. 4.3)."""

PROPAGATION_GROWTH = {"salt": 4.28, "lewm": 8.74}
"""Norm of Phi_{0->20} over that of Phi_{0->1}, on PushT (Sec. 4.3)."""

PROPAGATION_NORMS = {"salt": (2.63, 11.26), "lewm": (2.46, 21.51)}
"""These two norms (App. C.3)."""

RHO_AT_20 = {"salt": 1e-6, "lewm": 0.494}
"""rho_H at H = 20 on PushT, SALT's an order of magnitude (App. C.2)."""


class _PaperCost(NamedTuple):
    """A row of Table 2, measured on one H100."""

    parameters: str
    forward_ms: float
    one_step_iterations: float
    rollout_iterations: float
    """Per second, of training."""
    planning_seconds: float


EFFICIENCY = {
    "lewm": _PaperCost("11.58M", 2.36, 6.5, 2.9, 35.2),
    "salt": _PaperCost("0.70M", 0.29, 6.0, 2.4, 11.4),
}

TRANSITION = {  # Table 5: by symbol the component, its shape and its initialisation
    "W_u": ("generator of U", (192, 192), "0"),
    "W_v": ("generator of V", (192, 192), "0"),
    "s": ("singular-value parameters", (192,), "3.0"),
    "W_g": ("gate", (16, 192), "uniform within 1 / sqrt(192)"),
    "N": ("modulation modes", (16, 192, 192), "0"),
    "B": ("action injection", (192, 192), "0"),
    "b": ("bias", (192,), "0"),
}

ANATOMY = {  # App. D.2: mismatch, unflagged, episodes
    ("cube", "lewm"): (35, 17, 150),
    ("cube", "salt"): (3, 6, 150),
}


def transition_parameters() -> int:
    """Table 5's total."""
    return sum(math.prod(shape) for _, shape, _ in TRANSITION.values())


def success(contest: "Contest", method: str) -> _PaperRate | None:
    """The paper's rate for a cell, if it has one; `clean` is ours alone."""
    environment, protocol, horizon_blocks = contest
    if protocol == "paper" and horizon_blocks == 5:
        return SUCCESS.get((environment, method))
    pair = LONG_HORIZON.get((environment, horizon_blocks)) if protocol == "long" else None
    if pair is None or method not in ("lewm", "salt"):
        return None
    return _PaperRate(pair[("lewm", "salt").index(method)])

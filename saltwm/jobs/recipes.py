"""What `reproduce` does for each environment, as values of the jobs themselves; paths are filled in when it is done."""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from saltwm.evaluation.lineup import HISTORY
from saltwm.ground.checks import one_of
from saltwm.jobs.collect import Collect
from saltwm.jobs.prior import Prior
from saltwm.jobs.suite import Suite
from saltwm.jobs.train import Train

DATA, RUN = Path("data"), Path("run")
"""Stand-ins."""


class Recipe(NamedTuple):
    """How an environment is collected, trained and evaluated under a preset; both models are trained alike."""

    collect: Collect
    train: Train
    suites: tuple[Suite, ...]
    prior: Prior = Prior(RUN, DATA)
    """The prior of SALT's actions."""


_SUITES = (
    Suite((), protocols=("paper",), seeds=(1, 2, 3), tasks=50, history=HISTORY),  # App. B.5
    Suite((), protocols=("clean",), tasks=100, history=HISTORY),
    # App. E.1 follows App. B.5, three seeds of 50 tasks; LeWM's plans for them would take a core 4 to 8 hours.
    Suite((), protocols=("long",), tasks=12, horizons=(10, 15, 20), history=HISTORY),
)
# Block poses change slowly: windows of 6 frames show twice as many of them as windows of 12 in the same time.
_SHORT_WINDOWS = Train(DATA, RUN, starts=1, batch_size=64, projections=1024)

RECIPES: dict[tuple[str, str], Recipe] = {
    ("quick", "two-room"): Recipe(
        Collect("two-room", DATA, 2000, frame_every=5),
        Train(DATA, RUN, "quick", steps=250),
        (Suite((), tasks=50),),
        Prior(RUN, DATA, steps=1500),
    ),
    ("cpu", "two-room"): Recipe(Collect("two-room", DATA, 4000, frame_every=5), Train(DATA, RUN, steps=400), _SUITES),
    ("cpu", "push-t"): Recipe(
        Collect("push-t", DATA, 4000, frame_every=5),
        replace(_SHORT_WINDOWS, steps=4000),
        _SUITES,
    ),
    ("cpu", "reacher"): Recipe(
        Collect("reacher", DATA, 1500, policy="random", frame_every=5), Train(DATA, RUN, steps=2000), _SUITES
    ),
    # A cube is four pixels wide, so its edges are drawn without jags, which costs nothing.
    ("cpu", "cube"): Recipe(
        Collect("cube", DATA, 1500, render="soft", frame_every=5),
        replace(_SHORT_WINDOWS, steps=3000),
        _SUITES,
    ),
    ("cpu", "cube-double"): Recipe(
        Collect("cube-double", DATA, 1500, render="soft", frame_every=5),
        replace(_SHORT_WINDOWS, steps=3000),
        _SUITES,
    ),
}
"""Preset and environment -> recipe."""


def recipe(preset: str, environment: str) -> Recipe:
    """What to collect, train and evaluate for an environment under a preset."""
    known = sorted(env for name, env in RECIPES if name == preset)
    one_of(f"environment for preset {preset!r}", environment, known)
    return RECIPES[preset, environment]

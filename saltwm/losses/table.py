"""The closed table of objectives: a prediction loss and a weighted sum of terms each. Needs no torch.

A new objective is a row in OBJECTIVES. A new term is one file beside this one and one line among the terms below;
training takes its row's name with every transition. losses/own.py takes one from outside.

Weights are the published ones on LeWM's backbone. Only SIGReg's is the run's own lambda, for every objective that has
SIGReg: the statistic grows with the batch, so the published 0.09 at 128 windows is 0.36 at the 32 of the preset `cpu`,
whose 0.3 LeWM and SALT learn with as well.
"""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

from saltwm.ground.checks import one_of
from saltwm.ground.config import ObjectiveConfig, ObjectiveName

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Seen:
    """What a term may look at in one batch."""

    latents: "Tensor"
    """Encoded frames [B, T, D]; gradients flow into them."""
    actions: "Tensor"
    """Normalised action blocks between them [B, T-1, F]."""
    projections: "Tensor"
    """Unit directions of this step [D, M], the same in every process."""


@dataclass(frozen=True)
class Sizes:
    """What a term is built for."""

    latent_dim: int
    """D"""
    block_dim: int
    """F, numbers in one action block."""
    environment: str
    knots: int = 17
    """SIGReg's."""


TermFunction = Callable[..., "Tensor"]
"""Maps what its term looks at to a scalar, before its weight; a torch module where it learns or keeps something."""


@dataclass(frozen=True, eq=False)
class Term:
    """One summand of an objective."""

    name: str
    """In metrics.jsonl and for `weights`."""
    weight: float | Mapping[str, float] | None
    """As published; by environment where it was tuned so, `*` for all others. None: lambda of the run."""
    build: Callable[[Sizes], TermFunction]
    """Draws what it learns or keeps from torch's own generator, which the run has seeded."""
    looks_at: tuple[Literal["latents", "actions", "projections"], ...] = ("latents",)
    """Its arguments, by their names in Seen."""
    frames: int = 1
    """Least frames in a window."""
    windows: int = 1
    """Least windows in a batch."""
    refusal: Callable[[Sizes], str | None] = lambda sizes: None
    """Why it cannot be built for these sizes."""

    def weight_in(self, environment: str, sigreg_weight: float) -> float:
        """The published weight there."""
        if self.weight is None:
            return sigreg_weight
        if isinstance(self.weight, Mapping):
            return self.weight.get(environment, self.weight["*"])
        return self.weight


@dataclass(frozen=True)
class Objective:
    """A row: what an objective is a sum of, besides the prediction loss."""

    title: str
    """As people write it."""
    place: str
    """Where it was published."""
    terms: tuple[Term, ...]
    prediction: ObjectiveName | None = None
    """None: the transition's own, one-step for LeWM's predictor and rollout for SALT's."""
    swept: str = "sigreg"
    """The term whose weight matters most; the one that a study sweeps. Empty where there is no term."""


# --- terms -----------------------------------------------------------------------------------------------------------


def _plain(module: str, function: str) -> Callable[[Sizes], TermFunction]:
    """A function of losses/MODULE.py that looks at latents alone."""

    def build(sizes: Sizes) -> TermFunction:
        found: TermFunction = getattr(importlib.import_module(f"saltwm.losses.{module}"), function)
        return found

    return build


def _sigreg(sizes: Sizes) -> TermFunction:
    from saltwm.losses.sigreg import sigreg

    return partial(sigreg, knots=sizes.knots)


def _content_sigreg(sizes: Sizes) -> TermFunction:
    """SIGReg of all coordinates but the progression's; the rest of a uniform direction is one of theirs."""
    from torch.nn.functional import normalize

    from saltwm.losses.sigreg import sigreg

    def of_content(latents: "Tensor", projections: "Tensor") -> "Tensor":
        return sigreg(latents[..., PROGRESSION:], normalize(projections[PROGRESSION:], dim=0), sizes.knots)

    return of_content


def _triplet(sizes: Sizes) -> TermFunction:
    from saltwm.losses.triplet import progression_triplet

    return lambda latents: progression_triplet(latents[..., :PROGRESSION])


def _subspaces(sizes: Sizes) -> TermFunction:
    from saltwm.losses.subspaces import SubspaceSIGReg

    return SubspaceSIGReg(sizes.latent_dim, _subspaces_in(sizes.environment), sizes.knots)


def _inverse(of: Literal["pair", "difference"], *hidden: int) -> Callable[[Sizes], TermFunction]:
    def build(sizes: Sizes) -> TermFunction:
        from saltwm.losses.inverse import InverseDynamics

        return InverseDynamics(sizes.latent_dim, sizes.block_dim, of, hidden)

    return build


PROGRESSION = 2
"""Coordinates of SD-JEPA's latent that are about progress (k_prog of its training config)."""


def _subspaces_in(environment: str) -> int:
    """K of Sub-JEPA: 16 on PushT, 32 elsewhere (its README)."""
    return 16 if environment == "push-t" else 32


def _uneven(sizes: Sizes) -> str | None:
    count = _subspaces_in(sizes.environment)
    return f"a `latent_dim` that {count} subspaces share evenly" if sizes.latent_dim % count else None


def _narrow(sizes: Sizes) -> str | None:
    return f"a `latent_dim` above {PROGRESSION}" if sizes.latent_dim <= PROGRESSION else None


def _no_actions(sizes: Sizes) -> str | None:
    return "actions to predict, and these data have none" if sizes.block_dim < 1 else None


DIRECTIONS: tuple[Literal["latents"], Literal["projections"]] = ("latents", "projections")
PAIRS: tuple[Literal["latents"], Literal["actions"]] = ("latents", "actions")
SIGREG = Term("sigreg", None, _sigreg, DIRECTIONS)

OBJECTIVES: dict[str, Objective] = {
    "salt": Objective("SALT", "eq. 10 with eq. 9", (SIGREG,), "rollout"),
    "lewm": Objective("LeWM", "arXiv 2603.19312", (SIGREG,), "one-step"),
    "forward-only": Objective(
        "forward only",
        "what DINO-WM minimises (arXiv 2411.04983): its encoder is frozen; one that learns collapses",
        (),
        swept="",
    ),
    "pldm": Objective(
        "PLDM",
        "arXiv 2502.14819, as LeWM's authors train it on their backbone",
        (  # all weights: LeWM, Table 2, and stable-worldmodel's pldm.yaml
            Term("variance", 18.0, _plain("variance", "variance"), windows=2),
            Term("covariance", 12.0, _plain("covariance", "covariance"), windows=2),
            Term("variance_over_time", 0.7, _plain("variance", "variance_over_time"), frames=2),
            Term("covariance_over_time", 0.0, _plain("covariance", "covariance_over_time"), frames=2),
            Term("similarity", 0.2, _plain("similarity", "similarity"), frames=2),
            Term("inverse", 0.0, _inverse("pair", 512), PAIRS, frames=2, refusal=_no_actions),
        ),
        swept="variance",
    ),
    "sub-jepa": Objective(
        "Sub-JEPA",
        "arXiv 2605.09241",
        (Term("sigreg", None, _subspaces, DIRECTIONS, refusal=_uneven),),  # lambda 0.09, as LeWM's
    ),
    "sd-jepa": Objective(
        "SD-JEPA",
        "arXiv 2605.31111, its loss alone; its predictor's and its cost's use of progression are other models",
        (  # lewm_step.yaml; its prototype loss is off in every rung that it reports
            Term("sigreg", None, _content_sigreg, DIRECTIONS, refusal=_narrow),  # lambda 0.09, as LeWM's
            Term("triplet", 0.10, _triplet, frames=3, windows=2, refusal=_narrow),
            Term("straightening", 0.05, _plain("straightening", "straightening"), frames=3),
        ),
    ),
    "smwm": Objective(
        "SMWM",
        "arXiv 2606.20104",
        (
            Term(
                "inverse",
                # Its planning/experiments/train/generate_configs.py; elsewhere Cube's.
                {"two-room": 0.1, "reacher": 5.0, "push-t": 30.0, "cube": 1.0, "*": 1.0},
                _inverse("pair", 256, 256),
                PAIRS,
                frames=2,
                refusal=_no_actions,
            ),
        ),
        swept="inverse",
    ),
    "delta-jepa": Objective(
        "Delta-JEPA",
        "arXiv 2606.31232, over one action block",
        # The weight is its paper's; the width of its network is not known here and is SMWM's.
        (Term("inverse", 10.0, _inverse("difference", 256, 256), PAIRS, frames=2, refusal=_no_actions),),
        swept="inverse",
    ),
}


def is_own(name: str | None) -> bool:
    """Whether an objective is a user's: module:name."""
    return name is not None and ":" in name


def _objective_row(name: str) -> Objective:
    """The row of an objective; UsageError with the nearest name if there is none."""
    one_of("objective", name, OBJECTIVES)
    return OBJECTIVES[name]


def row_of(config: ObjectiveConfig) -> Objective:
    """The row that a config means; its terms are what its regulariser names, or SIGReg alone (eq. 10)."""
    return _objective_row(config.regulariser or ("salt" if config.objective == "rollout" else "lewm"))


def weights_of(config: ObjectiveConfig, environment: str) -> dict[str, float]:
    """Weight of each term of the row in an environment, the published or the changed one."""
    changed = config.weights or {}
    return {
        term.name: changed.get(term.name, term.weight_in(environment, config.sigreg_weight))
        for term in row_of(config).terms
    }


def needs_directions(config: ObjectiveConfig) -> bool:
    """Whether a term looks at this step's random directions; a user's own may."""
    return is_own(config.regulariser) or any("projections" in term.looks_at for term in row_of(config).terms)


def has_sigreg(config: ObjectiveConfig) -> bool:
    """Whether lambda weighs something. The terms of a user's own objective have weights of their own."""
    return not is_own(config.regulariser) and any(term.weight is None for term in row_of(config).terms)

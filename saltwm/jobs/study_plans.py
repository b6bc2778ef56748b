"""What each of the paper's studies trains and asks: its variants, as a table; jobs/study.py runs them."""

import dataclasses
import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from saltwm.disk.records import method_words
from saltwm.evaluation import lineup, sweep
from saltwm.ground.config import ModelName, RunConfig
from saltwm.jobs.recipes import recipe
from saltwm.jobs.train import Train
from saltwm.losses.table import row_of, weights_of
from saltwm.model.traits import traits_of
from saltwm.report.paper_figures import FOUR

PRESET = "cpu"


# --- variants --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Variant:
    """One training: the environment's recipe with what the study changes; None keeps the recipe's."""

    environment: str
    model: ModelName = "salt"
    objective: str | None = None
    starts: int | None = None
    modes: int | None = None
    spectral: bool = True
    lambda_: float | None = None
    latent_dim: int | None = None
    rollout_steps: int | None = None
    seed: int = 0
    scale: float = 1.0
    """What the published weight of the objective's most sensitive term is multiplied by."""
    dino: Path | None = None
    """Where the weights of DINO-WM's encoder are."""
    one_frame: bool = False
    """Planned with one frame, as the authors' evaluation shows LeWM one; otherwise LeWM plans with three."""

    @property
    def needs_dino(self) -> bool:
        """Whether somebody has to bring the weights of its encoder."""
        return traits_of(self.model).is_frozen

    def train(self, data: Path, out: Path) -> Train:
        """The job that trains it, with every choice of the recipe."""
        usual = recipe(PRESET, self.environment).train
        changed = ("starts", "modes", "lambda_", "latent_dim", "rollout_steps")
        changes = {name: getattr(self, name) for name in changed if getattr(self, name) is not None}
        changes |= {"seed": self.seed} if self.seed else {}
        job = dataclasses.replace(usual, dataset=data, out=out, model=self.model, objective=self.objective)
        return self._scaled(dataclasses.replace(job, free_a0=not self.spectral, dino=self.dino, **changes))

    def with_dino(self, dino: Path | None) -> "Variant":
        """The same with the weights that it needs, if it needs some."""
        return dataclasses.replace(self, dino=dino) if self.needs_dino else self

    def tries(self) -> "dict[float, Variant]":
        """The same with each weight of the sweep, by its factor."""
        return {factor: dataclasses.replace(self, scale=factor) for factor in sweep.FACTORS}

    def _scaled(self, job: Train) -> Train:
        """The job with its objective's swept weight multiplied."""
        if self.scale == 1:
            return job
        objective = job.config().objective
        term = next(term for term in row_of(objective).terms if term.name == row_of(objective).swept)
        weight = sweep.scaled(weights_of(objective, self.environment)[term.name], self.scale)
        if term.weight is None:  # it is the run's lambda
            return dataclasses.replace(job, lambda_=weight)
        return dataclasses.replace(job, weights=(f"{term.name}={weight:g}",))

    def config(self) -> RunConfig:
        """What its checkpoint must say."""
        return self.train(Path(), Path()).config()

    @property
    def name(self) -> str:
        """In folders and tables: salt, salt-modes0, lewm-rollout-starts1, salt-s1."""
        if self.needs_dino:
            return self.model
        from saltwm.jobs.variants import departures

        return lineup.model_name(self.model, departures(self.config(), self.environment), self.seed)

    @property
    def history(self) -> int:
        """Frames that it plans with."""
        return lineup.HISTORY if self.model in lineup.LOOKING_BACK and not self.one_frame else 1

    @property
    def method(self) -> str:
        """Its name in evaluations."""
        return self.method_by("cem")

    def method_by(self, planner: str) -> str:
        """Its name in evaluations by another planner than the paper's."""
        return "-".join([self.name, *method_words(planner, self.history, None)])


# --- studies ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Asked:
    """Evaluations of a variant: a protocol with task seeds and horizons; None is the protocol's own horizon."""

    protocol: Literal["paper", "clean", "long"] = "clean"
    seeds: tuple[int, ...] = (1,)
    horizons: tuple[int | None, ...] = (None,)
    tasks: int | None = None
    """Where no frozen set is shipped."""
    search: Literal["cem", "mode", "prior"] = "cem"
    """The paper's, or with the run's action prior: the posterior mode, or the prior's own plan, unsearched."""

    def planner(self, variant: Variant) -> str:
        """What finds the plans of a variant, as `saltwm evaluate --planner` calls it."""
        return lineup.mode_planner(variant.model) if self.search == "mode" else self.search


@dataclass(frozen=True)
class Plan:
    """What a study trains and asks."""

    place: str
    """In the paper."""
    question: str
    variants: tuple[Variant, ...]
    asked: tuple[Asked, ...] = (Asked(),)
    asked_of_salt: tuple[Asked, ...] = ()
    """Beyond that, of models whose plans are cheap."""
    diagnosed: bool = True
    bench: bool = False
    swept: tuple[Variant, ...] = ()
    """Those whose most sensitive weight is tried at other values, by the rule of evaluation/sweep.py."""


def _over(environments: Iterable[str], **choices: Iterable[object]) -> tuple[Variant, ...]:
    """Every combination of the choices in every environment."""
    combinations = [dict(zip(choices, values, strict=True)) for values in itertools.product(*choices.values())]
    return tuple(Variant(name, **some) for name in environments for some in combinations)  # type: ignore[arg-type]


def _in_lineup(environments: Iterable[str], **choices: Iterable[object]) -> tuple[Variant, ...]:
    """The same, planned with as many frames as the study of objectives shows them."""
    found = _over(environments, **choices)
    return tuple(dataclasses.replace(v, one_frame=lineup.frames(v.model, v.environment) == 1) for v in found)


TWO = ("two-room", "reacher")
PLANS: dict[str, Plan] = {
    "objective": Plan(
        "Table 3",
        "does rollout training help SALT more than it helps LeWM?",
        # One rollout per window: the targets of both objectives then have the same weights (matched, Sec. 4.3).
        _over(FOUR, model=("salt", "lewm"), objective=("one-step", "rollout"), starts=(1,)),
    ),
    "objectives": Plan(
        "Table 1, related work",
        "do other objectives plan as well on one backbone?",
        (
            *_in_lineup(FOUR, model=("salt", "lewm")),
            *_in_lineup(FOUR, model=("lewm",), objective=lineup.OTHERS),
            *_in_lineup(FOUR, model=("dino-wm",)),
            *_over(["two-room"], model=("salt",), objective=lineup.OTHERS),  # which no paper has tried
        ),
        swept=(  # every method gets the same budget, SALT and LeWM too
            *_in_lineup(sweep.ENVIRONMENTS, model=("salt", "lewm")),
            *_in_lineup(sweep.ENVIRONMENTS, model=("lewm",), objective=lineup.OTHERS),
        ),
    ),
    "objectives-map": Plan(
        "beyond the paper",
        "does the objective still matter with an action prior?",
        (  # DINO-WM's latents of all patches are too wide for a prior
            *_in_lineup(FOUR, model=("salt", "lewm")),
            *_in_lineup(FOUR, model=("lewm",), objective=lineup.OTHERS),
            *_over(["two-room"], model=("salt",), objective=lineup.OTHERS),
        ),
        (Asked(search="mode"), Asked(search="prior")),
        diagnosed=False,
    ),
    "modulation": Plan("App. F.1, Table 8", "what is lost without A(c)?", _over(["reacher"], modes=(None, 0))),
    "spectral": Plan(
        "App. C.4",
        "is it the bound on A0 that makes norms grow less?",
        (*_over(["push-t"], spectral=(True, False)), Variant("push-t", "lewm")),
    ),
    "lambda": Plan(
        "App. F.2.1, Figure 7",
        "how much does SIGReg's weight matter?",
        _over(TWO, lambda_=(0.03, 0.1, None, 1.0, 3.0)),
        diagnosed=False,
    ),
    "dim": Plan(
        "App. F.2.2, Figure 8",
        "how much does the latent's size matter?",
        _over(TWO, latent_dim=(96, None, 384)),
        diagnosed=False,
    ),
    "rollout": Plan("Sec. 3.5", "how much does K matter?", _over(TWO, rollout_steps=(2, None, 8)), diagnosed=False),
    "horizon": Plan(
        "Sec. 4.5, Table 7, Figure 4",
        "does SALT keep its advantage over long horizons?",
        _over(FOUR, model=("salt", "lewm")),
        # Twelve tasks a seed, as the first cells had: 7 to 12 minutes of a core with LeWM, a tenth of it with SALT.
        (Asked("long", (1, 2), (10, 15, 20), 12),),
        (Asked("long", (3, 4), (10, 15, 20), 12),),
        diagnosed=False,
    ),
    "efficiency": Plan("Table 2, App. B.6", "what do both predictors cost?", (), (), diagnosed=False, bench=True),
    "seeds": Plan(
        "beyond the paper",
        "which claims hold over training seeds?",
        _over(FOUR, model=("salt", "lewm"), seed=(0, 1, 2)),
    ),
    "cube-double": Plan(
        "Sec. 4.6, Table 4",
        "does SALT plan better with two cubes?",
        _over(["cube-double"], model=("salt", "lewm"), seed=(0, 1, 2)),
        (Asked("paper", (1,), tasks=50), Asked("clean", (1,), tasks=50)),
        diagnosed=False,
    ),
}

"""Every table and figure of the paper, what stands for it here, and the command that makes it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from saltwm.report.claims import PAPERS_LEWM
from saltwm.report.findings import Findings
from saltwm.report.paper_figures import (
    ONE_STEP_RATIO,
    PROPAGATION_NORMS,
    RHO_AT_20,
    ROLLOUT_GROWTH,
    SUCCESS,
    transition_parameters,
)


@dataclass(frozen=True)
class _Element:
    """A table or figure of the paper."""

    name: str
    what: str
    where: str
    """Where it stands in the document or on the page, if there are records of it."""
    command: str
    there: Callable[[Findings], bool]
    paper: str = "in its table here"
    """What the paper has there, in short."""


def _evaluated(protocol: str, environment: str = "") -> Callable[[Findings], bool]:
    def there(findings: Findings) -> bool:
        found = {(c.evaluation.protocol, c.evaluation.environment) for c in findings.cells}
        return any(p == protocol and environment in ("", e) for p, e in found)

    return there


def _varied(*starts: str) -> Callable[[Findings], bool]:
    """Whether a model that departs in this setting was evaluated."""

    def there(findings: Findings) -> bool:
        variants = [c.evaluation.variant for c in findings.cells if c.evaluation.variant]
        return any(departure.startswith(starts) for v in variants for departure in v.departures)

    return there


def _recorded(part: Literal["diagnosis", "probes", "decoded"]) -> Callable[[Findings], bool]:
    """Whether there is such a record of a run."""
    return lambda findings: any(getattr(run, part) for run in findings.runs)


_diagnosed = _recorded("diagnosis")
_PAPER_SUITE = "saltwm suite RUNS --data DATA --protocols paper --seeds 1 2 3 --history 3 --out RESULTS"
_DIAGNOSE = "saltwm diagnose RUN --data DATA --out RESULTS"

ELEMENTS = (
    _Element("Table 1", "success in four environments", "Planning success", _PAPER_SUITE, _evaluated("paper")),
    _Element(
        "Table 1, quoted methods",
        "other objectives on one backbone",
        "Studies",
        "saltwm study objectives --dino WEIGHTS",
        _varied("objective pldm", "objective sub-jepa", "objective sd-jepa", "objective smwm", "objective delta-jepa"),
    ),
    _Element(
        "Table 2",
        "parameters, forward, training and planning time",
        "Studies",
        "saltwm study efficiency",
        lambda findings: findings.efficiency is not None,
    ),
    _Element(
        "Table 3",
        "transition and objective, 2 x 2",
        "Studies",
        "saltwm study objective",
        _varied("objective rollout", "objective one-step"),
        "LeWM 82.7 one-step, 77.8 rollout; SALT 84.4, 92.7 %",
    ),
    _Element(
        "Table 4",
        "Cube-Double, three training runs",
        "Studies",
        "saltwm study cube-double",
        _evaluated("paper", "cube-double"),
        "SALT {}, LeWM {}, Random {} %".format(*(SUCCESS["cube-double", who] for who in ("salt", "lewm", "random"))),
    ),
    _Element(
        "Table 5",
        f"parameters of the transition, {transition_parameters():,}",
        "Studies, Parameters of the transition",
        "python -m pytest tests/model/test_affine.py",
        lambda findings: findings.efficiency is not None,  # ours is counted for Table 2
        f"{transition_parameters():,}",
    ),
    _Element(
        "Table 6",
        "failures by kind on Cube",
        "How episodes fail",
        f"saltwm anatomy RESULTS salt {PAPERS_LEWM[0]} --out PAGES",
        _evaluated("paper", "cube"),
    ),
    _Element("Table 7", "long horizons", "Studies, Long horizons", "saltwm study horizon", _evaluated("long")),
    _Element(
        "Table 8",
        "without action-dependent modulation",
        "Studies",
        "saltwm study modulation",
        _varied("R 0"),
        "11.3 ± 3.1 without, 90.7 ± 3.1 % with it",
    ),
    _Element(
        "Figure 1a",
        "the Jacobian over states",
        "drawn below",
        _DIAGNOSE,
        _recorded("probes"),
        "LeWM's varies with the state",
    ),
    _Element(
        "Figure 1b",
        "rho against H",
        "drawn below",
        _DIAGNOSE,
        _diagnosed,
        f"LeWM about 0.10 at H = 5, {RHO_AT_20['lewm']} at 20; SALT 1e-6 (PushT)",
    ),
    _Element(
        "Figure 2a",
        "one-step error and success",
        "drawn below",
        _DIAGNOSE,
        _diagnosed,
        "SALT {} to {} times LeWM's error".format(*ONE_STEP_RATIO),
    ),
    _Element(
        "Figure 2b",
        "rollout error",
        "drawn below",
        _DIAGNOSE,
        _diagnosed,
        "grows {salt} (SALT), {lewm} times (LeWM) on PushT".format(**ROLLOUT_GROWTH),
    ),
    _Element(
        "Figure 2c",
        "norm of Phi",
        "drawn below",
        _DIAGNOSE,
        _diagnosed,
        "{} to {} (SALT), {} to {} (LeWM) on PushT".format(*PROPAGATION_NORMS["salt"], *PROPAGATION_NORMS["lewm"]),
    ),
    _Element(
        "Figure 3",
        "failures near the median ratio",
        "drawn below; pages of `saltwm anatomy`",
        f"saltwm anatomy RESULTS salt {PAPERS_LEWM[0]} --out PAGES",
        _evaluated("paper"),
        "examples; counts as Table 6",
    ),
    _Element("Figure 4", "success against H", "Studies", "saltwm study horizon", _evaluated("long"), "as Table 7"),
    _Element(
        "Figure 5",
        "decoded open-loop rollouts",
        "drawn below",
        "saltwm decode RUN --data DATA --out RESULTS",
        _recorded("decoded"),
        "pictures",
    ),
    _Element("Figure 6", "errors in four environments", "drawn below", _DIAGNOSE, _diagnosed, "drawn, without numbers"),
    _Element(
        "Figure 7",
        "weight of SIGReg",
        "Studies",
        "saltwm study lambda",
        _varied("lambda"),
        "stable near 0.09, lower at the extremes (PushT)",
    ),
    _Element(
        "Figure 8",
        "size of the latent",
        "Studies",
        "saltwm study dim",
        _varied("d "),
        "at most about 3 points apart (Two-Room, Cube)",
    ),
)


LIST_OF_STUDIES = "saltwm study"
"""What lists all studies, with what is left of each and its cost; with a name it runs one."""


def command_of(name: str) -> str:
    """What makes an element."""
    return next(element.command for element in ELEMENTS if element.name == name)

"""The methods of Table 1 with an action prior: what is left of their differences once a prior proposes the plans.

Each method's prior is learnt on its own latents. The posterior mode is planned blind, on the tasks of Table 1, by
Gauss-Newton on SALT's transition and by CEM on LeWM's predictor.
"""

from saltwm.disk.records import Cell
from saltwm.evaluation import lineup
from saltwm.evaluation.contests import outcomes
from saltwm.evaluation.paired import PairedDifference
from saltwm.evaluation.statistics import ALPHA
from saltwm.report import tables
from saltwm.report.claims import Finding
from saltwm.report.evidence import Arm, Evidence, difference_text, judged, tested
from saltwm.report.objectives import by_environment, verdicts
from saltwm.report.table import NONE, Entry

REFERENCE = lineup.method("salt", "", planner=lineup.mode_planner("salt"))
COLUMNS = ("against LeWM", "prior alone", "against its prior", "plain CEM")
"""Beyond those of every study."""
NOTE = (
    "Percent is of the posterior mode (MAP; on LeWM's predictor by CEM), blind. "
    "The prior alone plans nothing: it repeats what the actor of the data would do. "
    "Plain CEM is the row of Table 1. "
    "Where a § stands, the weights are those of another training by the same command, because weights are not kept and "
    "processors round differently. "
    "DINO-WM is not here: its latents of all patches are too wide for a prior."
)


# --- rows ------------------------------------------------------------------------------------------------------------


def arms(environment: str) -> tuple[Arm, ...]:
    """SALT, LeWM, the other objectives on LeWM's predictor, and in Two-Room on SALT's transition too."""
    others = [_arm("lewm", environment, title, name) for name, title in lineup.OTHERS.items()]
    affine = [_arm("salt", environment, f"{title}, affine", name) for name, title in lineup.OTHERS.items()]
    ours = (_arm("salt", environment, "SALT"), _lewm(environment))
    return (*ours, *others, *(affine if environment == "two-room" else ()))


def _lewm(environment: str) -> Arm:
    return _arm("lewm", environment, "LeWM")


def _arm(model: str, environment: str, label: str, objective: str | None = None) -> Arm:
    return Arm(lineup.method(model, environment, objective, lineup.mode_planner(model)), label, model)


def columns(evidence: Evidence, environment: str, arm: Arm, horizon: int) -> tuple[Entry | str, ...]:
    """The difference from LeWM, the prior alone and what planning adds to it, and the same model by plain CEM."""
    other = _lewm(environment)
    from_lewm = None if arm == other else evidence.difference(environment, arm.method, other.method, horizon)
    has_its_prior = _is_one_training(evidence, environment, arm, "prior")
    from_prior = evidence.difference(environment, arm.method, _by(arm, "prior"), horizon) if has_its_prior else None
    return (
        NONE if from_lewm is None else difference_text(from_lewm),
        _beside(evidence, environment, arm, "prior"),
        NONE if from_prior is None else difference_text(from_prior),
        _beside(evidence, environment, arm, "cem"),
    )


def _by(arm: Arm, planner: str) -> str:
    """The name of the same model with another planner."""
    mode = f"-{lineup.mode_planner(arm.family)}"
    return arm.method.replace(mode, "" if planner == "cem" else f"-{planner}")


def _beside(evidence: Evidence, environment: str, arm: Arm, planner: str) -> str:
    """What another planner reaches; marked where it planned with other weights."""
    rate = _rate(evidence, environment, _by(arm, planner))
    mark = "" if _is_one_training(evidence, environment, arm, planner) else " §"
    return NONE if rate is None else f"{rate:.1f}{mark}"


def _is_one_training(evidence: Evidence, environment: str, arm: Arm, planner: str) -> bool:
    """Whether another planner planned with the weights and, if it has one, the action prior of the row."""
    mine, others = (evidence.cells(environment, method) for method in (arm.method, _by(arm, planner)))
    return _learnt(others, planner) <= _learnt(mine, planner)


def _learnt(cells: list[Cell], planner: str) -> set[tuple[str | None, str | None]]:
    """Hashes of weights and priors, as far as a planner uses them."""
    records = [cell.evaluation for cell in cells]
    return {(e.checkpoint_sha256, None if planner == "cem" else e.prior_sha256) for e in records}


# --- tests and sentences ---------------------------------------------------------------------------------------------


def against_both(evidence: Evidence) -> list[Finding]:
    """SALT against every other objective on LeWM's predictor, and each of those against LeWM; one Holm family."""
    return judged(evidence, _main_pairs(evidence))


def _main_pairs(evidence: Evidence) -> list[tuple[str, str, str, int, str]]:
    pairs = []
    for environment in evidence.study.environments:
        other = _lewm(environment)
        for arm in arms(environment):
            if arm.family == "lewm" and arm != other:
                pairs.append((environment, REFERENCE, arm.method, 5, f"SALT less {arm.label}"))
                pairs.append((environment, arm.method, other.method, 5, f"{arm.label} less LeWM"))
    return pairs


def sentences(evidence: Evidence) -> tuple[str, ...]:
    """Which differences are left, how far the methods lie apart, and what planning adds to the priors."""
    tests = tested(evidence, _main_pairs(evidence))
    if not tests:
        return ()
    shown = [(e, words, d) for e, words, d, p in tests if p < ALPHA]
    left = by_environment(evidence, lambda environment: verdicts(shown, environment))
    spread = by_environment(evidence, lambda environment: _spread(evidence, environment))
    return (
        f"{len(shown)} of {len(tests)} paired tests show a difference by Holm's p < {ALPHA:g}{left}.",
        f"Points between the best and the worst method with plain CEM and with the prior{spread}.",
        _beyond_imitation(evidence),
    )


def _spread(evidence: Evidence, environment: str) -> str:
    """How far apart the rates of the methods are that were evaluated by both planners."""
    rates = [
        (cem, mode)
        for arm in arms(environment)
        if (cem := _rate(evidence, environment, _by(arm, "cem"))) is not None
        and (mode := _rate(evidence, environment, arm.method)) is not None
    ]
    if len(rates) < 3:  # SALT and LeWM alone are no study of objectives
        return ""
    cem, mode = (max(side) - min(side) for side in zip(*rates, strict=True))
    return f"{cem:.0f} and {mode:.0f}"


def _rate(evidence: Evidence, environment: str, method: str) -> float | None:
    reached = outcomes(evidence.cells(environment, method))
    return 100 * sum(reached) / len(reached) if reached else None


def _beyond_imitation(evidence: Evidence) -> str:
    """In how many rows planning with the prior is shown to be better or worse than the prior alone."""
    pairs = [
        (environment, arm.method, _by(arm, "prior"), 5, arm.label)
        for environment in evidence.study.environments
        for arm in arms(environment)
        if _is_one_training(evidence, environment, arm, "prior")
    ]
    tests = tested(evidence, pairs)
    shown: list[tuple[str, PairedDifference]] = [(f"{words} on {_name(e)}", d) for e, words, d, p in tests if p < ALPHA]
    better, worse = ([words for words, d in shown if (d.difference > 0) == wanted] for wanted in (True, False))
    told = [f"better in {len(better)}", f"worse in {len(worse)}"]
    named = [f" ({', '.join(one)})" if one else "" for one in (better, worse)]
    return (
        f"Of {len(tests)} models the posterior mode is shown to be {told[0]}{named[0]} and {told[1]}{named[1]} than "
        f"the prior alone, by Holm's p < {ALPHA:g} over these tests."
    )


def _name(environment: str) -> str:
    return tables.environment_name(environment)

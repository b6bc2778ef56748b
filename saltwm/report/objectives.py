"""Every method of the paper's Table 1 on one backbone: rows, sweeps and tests, and what they say in three sentences.

SALT and LeWM are compared with what other papers minimise, on the same encoder, data, windows, steps and tasks. Figures
of those papers stand in a marked column of their own: other encoders, data and tasks.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from saltwm.disk.journal import COLLAPSE_RANK, COLLAPSE_STD, sickness
from saltwm.disk.records import Cell, ModelVariant
from saltwm.evaluation import lineup, sweep
from saltwm.evaluation.paired import PairedDifference
from saltwm.evaluation.statistics import ALPHA
from saltwm.report import paper_figures, tables
from saltwm.report.claims import Finding
from saltwm.report.elements import command_of
from saltwm.report.evidence import Arm, Evidence, difference_text, judged, tested
from saltwm.report.table import Entry, listed

SALT = Arm("salt", "SALT")
COLUMNS = (
    "against LeWM",
    "one-step error",
    "rollout k=5",
    "rollout k=20",
    "effective rank",
    "cost order",
    "s per task",
    "weight",
    "tried ‡",
    "published †",
)
"""Beyond those of every study."""
NOTE = (
    "† another data set, protocol and size, quoted and not measured. "
    "‡ each weight with the tuning tasks that it reaches: a third of the published one, the published one and three "
    "times of it, on held-out episodes that no evaluation uses; most reached is chosen, a tie goes to the published "
    "one, and a chosen one that is not published has a row of its own. "
    "For lambda, SIGReg's weight, the recipe's stands in the place of the published one, for every method. "
    "Another training by the same command may have met the tuning tasks. "
    "Where a § stands, errors, rank and cost order are of another training by the same command than the percent, "
    "because weights are not kept and processors round differently. "
    "Seconds per task are of evaluations that shared the machine with other work: methods on one predictor plan "
    "equally fast, and Efficiency (Table 2) has both predictors measured alone. "
    f"Training warns of a collapse at an effective rank below {COLLAPSE_RANK:g} or a spread below {COLLAPSE_STD:g}; "
    "where the state is two numbers, as in Two-Room, such latents can hold all that matters: cost order and success "
    "tell. "
    "On Two-Room every method plans with one frame; elsewhere those whose predictor looks back, all but SALT, plan "
    "with three (App. B.5)."
)


# --- rows ------------------------------------------------------------------------------------------------------------


def lewm(environment: str) -> Arm:
    """LeWM with as many frames as the others on its predictor."""
    return Arm(lineup.method("lewm", environment), "LeWM", "lewm")


def _dino(environment: str) -> Arm:
    return Arm(lineup.method("dino-wm", environment), "DINO-WM", "lewm")


def arms(environment: str) -> tuple[Arm, ...]:
    """SALT, LeWM, the other objectives on LeWM's predictor, in Two-Room on SALT's transition too, and DINO-WM."""
    others = [Arm(lineup.method("lewm", environment, name), title, "lewm") for name, title in lineup.OTHERS.items()]
    affine = [
        Arm(lineup.method("salt", environment, name), f"{title}, affine") for name, title in lineup.OTHERS.items()
    ]
    return (SALT, lewm(environment), *others, _dino(environment), *(affine if environment == "two-room" else ()))


def chosen_arms(evidence: Evidence, environment: str) -> dict[Arm, Arm]:
    """Each method whose sweep chose another weight than the published one, and the method with that weight."""
    found = {}
    for arm in arms(environment):
        swept = _sweep_of(evidence, environment, arm)
        if swept is not None and swept.chosen != swept.published:
            label = f"{arm.label}, {swept.term} {swept.chosen:g}"
            found[arm] = Arm(swept.methods[swept.chosen], label, arm.family)
    return found


def needs_weights(environment: str, arm: Arm) -> tuple[Entry | str, ...] | None:
    """The row of DINO-WM before anybody had weights for it."""
    if arm != _dino(environment):
        return None
    nothing = ("-",) * (3 + len(COLUMNS) - 1)
    needed = Entry("needs weights", title=how_to_fill())
    return tables.environment_name(environment), arm.label, needed, *nothing, _published(environment, arm)


def how_to_fill() -> str:
    """The command that fills DINO-WM's rows."""
    return command_of("Table 1, quoted methods")


def columns(evidence: Evidence, environment: str, arm: Arm, horizon: int) -> tuple[Entry | str, ...]:
    """Errors, rank and cost order of the run, seconds per task, its weight, and what was published elsewhere."""
    other = lewm(environment)
    difference = None if arm == other else evidence.difference(environment, arm.method, other.method, horizon)
    runs, d = evidence.runs(environment, arm.method), evidence.diagnosis(environment, arm.method)
    order = next((run.probes.cost_order for run in runs if run.probes), None)
    cells = evidence.cells(environment, arm.method)
    seconds = sum(cell.evaluation.seconds for cell in cells) / sum(len(cell.episodes) for cell in cells)
    return (
        "-" if difference is None else difference_text(difference),
        "-" if d is None else f"{d.one_step_error:.3f}{_other_training(evidence, environment, arm)}",
        *("-" if d is None else _error_after(d.rollout_error, k) for k in (5, 20)),
        "-" if d is None else _rank_cell(evidence, environment, arm, d.effective_rank),
        "-" if order is None else f"{order:.2f}",
        f"{seconds:.1f}",
        *_sweep_cells(evidence, environment, arm),
        _published(environment, arm),
    )


def _other_training(evidence: Evidence, environment: str, arm: Arm) -> str:
    """A mark where other weights were diagnosed than evaluated."""
    evaluated = {cell.evaluation.checkpoint_sha256 for cell in evidence.cells(environment, arm.method)}
    diagnosed = {run.weights for run in evidence.runs(environment, arm.method) if run.diagnosis and run.weights}
    return "" if diagnosed <= evaluated else " §"


def _error_after(errors: Sequence[float], k: int) -> str:
    """The rollout error after k steps, or after as many as there are in the data, and then says so."""
    return f"{errors[k - 1]:.3f}" if len(errors) >= k else f"{errors[-1]:.3f} (k={len(errors)})"


def _rank_cell(evidence: Evidence, environment: str, arm: Arm, rank: float) -> Entry | str:
    warned = _is_warned_of(evidence, environment, arm)
    return Entry(f"{rank:.1f}, collapse warned", strong=True) if warned else f"{rank:.1f}"


def _is_warned_of(evidence: Evidence, environment: str, arm: Arm) -> bool:
    """Whether training ended with latents that it warns of; a frozen encoder's are what they are."""
    if arm == _dino(environment):
        return False
    rows = [run.metrics[-1] for run in evidence.runs(environment, arm.method) if run.metrics]
    d = None if rows else evidence.diagnosis(environment, arm.method)
    return any(sickness(row) for row in rows) or (d is not None and d.effective_rank < COLLAPSE_RANK)


def _sweep_cells(evidence: Evidence, environment: str, arm: Arm) -> tuple[str, str]:
    """The weight of a row and what was tried."""
    sweeps = (_sweep_of(evidence, environment, base) for base in arms(environment))
    found = next((swept for swept in sweeps if swept and arm.method in swept.methods.values()), None)
    if found is None:
        return "-", "-"
    weight = next(weight for weight, method in found.methods.items() if method == arm.method)
    tried = ", ".join(f"{one:g}: {reached}" for one, reached in found.reached.items())
    return f"{found.term} {weight:g}{', chosen' if weight == found.chosen else ''}", f"{tried} of {found.tasks}"


def _published(environment: str, arm: Arm) -> str:
    rate = published_rate(environment, arm)
    return "-" if rate is None else f"{rate:g}"


def published_rate(environment: str, arm: Arm) -> float | None:
    """The rate in percent that a paper has of the method, under another protocol and at another size."""
    if arm in (SALT, lewm(environment)):
        return paper_figures.SUCCESS[environment, arm.family].mean
    quoted = (paper_figures.QUOTED | paper_figures.ELSEWHERE).get(arm.label)
    return None if quoted is None else quoted[paper_figures.FOUR.index(environment)]


# --- the sweep -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Sweep:
    """What the weights of one method's most sensitive term reached of the tuning tasks."""

    term: str
    reached: dict[float, int]
    """By weight, ascending."""
    methods: dict[float, str]
    """Name in evaluations by weight."""
    tasks: int
    published: float

    @property
    def chosen(self) -> float:
        """By the rule of evaluation/sweep.py."""
        return sweep.chosen(self.reached, self.published)


def _sweep_of(evidence: Evidence, environment: str, arm: Arm) -> _Sweep | None:
    """The finished sweep of a method in an environment; None if a weight was not tried yet."""
    cells = [cell for cell in evidence.findings.tuning if cell.evaluation.environment == environment]
    base = next((cell for cell in cells if cell.evaluation.method == arm.method), None)
    if base is None:
        return None
    family = [cell for cell in cells if _kind(cell) == _kind(base)]
    weights = [_weights(cell.evaluation.variant) for cell in family]
    changed = [name for name in weights[0] if len({of[name] for of in weights}) == len(sweep.FACTORS)]
    if len(family) != len(sweep.FACTORS) or len(changed) != 1:
        return None
    by_weight = sorted(zip((of[changed[0]] for of in weights), family, strict=True), key=lambda pair: pair[0])
    return _Sweep(
        changed[0],
        {weight: cell.evaluation.success.successes for weight, cell in by_weight},
        {weight: cell.evaluation.method for weight, cell in by_weight},
        base.evaluation.success.n,
        _weights(base.evaluation.variant)[changed[0]],
    )


def _kind(cell: Cell) -> tuple[str | None, ...]:
    """What the cells of one sweep share: the tasks, the model and the objective, its weights aside."""
    variant = cell.evaluation.variant
    model = (None, None, None) if variant is None else (variant.model, variant.objective, variant.regulariser)
    return (cell.evaluation.tasks_sha256, *model)


def _weights(variant: ModelVariant | None) -> dict[str, float]:
    """Weights of the terms; SIGReg's is lambda, alone in eq. 10."""
    if variant is None:
        return {}
    weights = variant.weights or {"sigreg": variant.sigreg_weight}
    return {"lambda" if term == "sigreg" else term: weight for term, weight in weights.items()}


# --- tests -----------------------------------------------------------------------------------------------------------


def against_both(evidence: Evidence) -> list[Finding]:
    """SALT against every other method, and each of those against LeWM; one Holm family."""
    return judged(evidence, _main_pairs(evidence))


def _main_pairs(evidence: Evidence) -> list[tuple[str, str, str, int, str]]:
    pairs = []
    for environment in evidence.study.environments:
        other = lewm(environment)
        on_lewm = [arm for arm in arms(environment) if arm.family == "lewm" and arm != other]
        for arm in (*on_lewm, *chosen_arms(evidence, environment).values()):
            pairs.append((environment, SALT.method, arm.method, 5, f"SALT less {arm.label}"))
            pairs.append((environment, arm.method, other.method, 5, f"{arm.label} less LeWM"))
    return pairs


# --- three sentences -------------------------------------------------------------------------------------------------


def sentences(evidence: Evidence) -> tuple[str, ...]:
    """What the table says, where the published order does not hold, and what this size cannot say."""
    tests = tested(evidence, _main_pairs(evidence))
    if not tests:
        return ()
    return _what_it_says(evidence, tests), _published_order(evidence), _what_it_cannot_say(tests)


def _what_it_says(evidence: Evidence, tests: list[tuple[str, str, PairedDifference, float]]) -> str:
    shown = [(e, words, d) for e, words, d, p in tests if p < ALPHA]
    text = f"{len(shown)} of {len(tests)} paired tests show a difference by Holm's p < {ALPHA:g}"
    warned = by_environment(evidence, lambda e: listed(_warned_of(evidence, e)))
    collapse = f"a collapse{warned}" if warned else "no collapse"
    return f"{text}{by_environment(evidence, lambda e: verdicts(shown, e))}; training warned of {collapse}."


def verdicts(shown: list[tuple[str, str, PairedDifference]], environment: str) -> str:
    """SALT is better than A by 44 and B by 47 points: each of SALT and LeWM, better and worse."""
    sides: dict[tuple[str, str], list[str]] = {}
    for words, d in ((words, d) for e, words, d in shown if e == environment):
        a, b = words.split(" less ")
        yardstick, other, ahead = (a, b, d.difference) if a == SALT.label else (b, a, -d.difference)
        side = sides.setdefault((yardstick, "better" if ahead > 0 else "worse"), [])
        side.append(f"{_in_words(other)} by {abs(ahead):.0f}")
    ordered = sorted(sides.items(), key=lambda one: (one[0][0] != SALT.label, one[0][1]))
    return ", ".join(f"{who} is {how} than {listed(others)} points" for (who, how), others in ordered)


def _warned_of(evidence: Evidence, environment: str) -> list[str]:
    return [_in_words(a.label) for a in evidence.arms(environment) if _is_warned_of(evidence, environment, a)]


def _published_order(evidence: Evidence) -> str:
    """Every two methods that both have a published rate, by a Holm family of their own."""
    pairs = []
    for environment in evidence.study.environments:
        printed = [(arm, published_rate(environment, arm)) for arm in arms(environment)]
        for (a, rate_a), (b, rate_b) in itertools.combinations(printed, 2):
            if rate_a is None or rate_b is None or rate_a == rate_b:
                continue
            (first, above), (second, below) = sorted([(a, rate_a), (b, rate_b)], key=lambda one: -one[1])
            words = f"{second.label} {{:.0f}} points above {first.label} (in print {above - below:.3g} below)"
            pairs.append((environment, first.method, second.method, 5, words))
    tests = tested(evidence, pairs)
    decided = [(e, words, d.difference) for e, words, d, p in tests if p < ALPHA]
    other = [(e, words.format(-points)) for e, words, points in decided if points < 0]
    where = by_environment(evidence, lambda environment: listed([words for e, words in other if e == environment]))
    return (
        f"Of {len(tests)} pairs of methods whose published rates differ, tests by Holm's p < {ALPHA:g} leave "
        f"{len(tests) - len(decided)} undecided, show the published order for {len(decided) - len(other)} and the "
        f"other order for {len(other) or 'none'}{where}."
    )


def _what_it_cannot_say(tests: list[tuple[str, str, PairedDifference, float]]) -> str:
    """The exact test of n pairs that all differ the same way has p = 2 / 2^n.

    Holm multiplies the smallest p that is not shown yet by the number of those.
    """
    undecided = max(1, sum(p >= ALPHA for *_, p in tests))
    least = math.floor(math.log2(2 * undecided / ALPHA)) + 1
    d = tests[0][2]
    tasks = d.both + d.only_a + d.only_b + d.neither
    return (
        "One training seed of a small model on small pictures cannot say how another seed, a larger model or more data "
        f"would rank them, and beside these tests a difference of fewer than {least} of the {tasks} tasks is not "
        "shown, even if all of these go the same way."
    )


def _in_words(label: str) -> str:
    """A row's label without its comma: PLDM with variance 54, SMWM with SALT's transition."""
    who, _, how = label.partition(", ")
    return f"{who} with {how.replace('affine', 'an affine transition')}" if how else who


def by_environment(evidence: Evidence, told: Callable[[str], str]) -> str:
    """A colon and what is told of each environment; nothing where nothing is."""
    found = [f"on {tables.environment_name(e)} {text}" for e in evidence.study.environments if (text := told(e))]
    return f": {'; '.join(found)}" if found else ""

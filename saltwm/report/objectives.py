"""Every method of the paper's Table 1 on one backbone: rows, sweeps and tests, and what they say in three sentences.

SALT and LeWM are compared with what other papers minimise, on the same encoder, data, windows, steps and tasks. Figures
of those papers stand in a marked column of their own: other encoders, data and tasks.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from saltwm.disk.journal import COLLAPSE_RANK
from saltwm.disk.records import Cell, ModelVariant, PairedDifference
from saltwm.evaluation import sweep
from saltwm.evaluation.statistics import ALPHA
from saltwm.report import paper_figures, tables
from saltwm.report.claims import Finding
from saltwm.report.elements import command_of
from saltwm.report.evidence import Arm, Evidence, difference_text, judged, tested
from saltwm.report.table import Entry

OTHER_OBJECTIVES = {
    "pldm": "PLDM",
    "sub-jepa": "Sub-JEPA",
    "sd-jepa": "SD-JEPA",
    "smwm": "SMWM",
    "delta-jepa": "Delta-JEPA",
}
SALT, DINO = Arm("salt", "SALT"), Arm("dino-wm", "DINO-WM", "lewm")
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
    "For SIGReg's weight the recipe's stands in the place of the published one, for every method. "
    "Seconds per task are of evaluations that shared the machine with other work. "
    f"Training warns of a collapse at an effective rank below {COLLAPSE_RANK:g}; where the state is two numbers, "
    "as in Two-Room, such latents can hold all that matters: cost order and success tell. "
    "On Two-Room every method plans with one frame, elsewhere those on LeWM's predictor plan with three (App. B.5)."
)


# --- rows ------------------------------------------------------------------------------------------------------------


def lewm(environment: str) -> Arm:
    """LeWM as the others on its predictor plan there."""
    return Arm(f"lewm{_frames(environment)}", "LeWM", "lewm")


def _frames(environment: str) -> str:
    """What the name of a method that plans with LeWM's predictor ends in."""
    return "" if environment == "two-room" else "-history3"


def arms(environment: str) -> tuple[Arm, ...]:
    """SALT, LeWM, the other objectives on LeWM's predictor, in Two-Room on SALT's transition too, and DINO-WM."""
    others = [Arm(f"lewm-{name}{_frames(environment)}", title, "lewm") for name, title in OTHER_OBJECTIVES.items()]
    affine = [Arm(f"salt-{name}", f"{title}, affine") for name, title in OTHER_OBJECTIVES.items()]
    return (SALT, lewm(environment), *others, DINO, *(affine if environment == "two-room" else ()))


def chosen_arms(evidence: Evidence, environment: str) -> tuple[Arm, ...]:
    """Methods with the weight that their sweep chose, where that is not the published one."""
    found = []
    for arm in arms(environment):
        swept = _sweep_of(evidence, environment, arm)
        if swept is not None and swept.chosen != swept.published:
            label = f"{arm.label}, {swept.term} {swept.chosen:g}"
            found.append(Arm(swept.methods[swept.chosen], label, arm.family))
    return tuple(found)


def needs_weights(environment: str, arm: Arm) -> tuple[Entry | str, ...] | None:
    """The row of DINO-WM before anybody had weights for it."""
    if arm != DINO:
        return None
    nothing = ("-",) * (3 + len(COLUMNS) - 1)
    needed = Entry("needs weights", title=how_to_fill())
    return tables.environment_name(environment), arm.label, needed, *nothing, _published(environment, arm)


def how_to_fill() -> str:
    """The command that fills DINO-WM's rows."""
    return command_of("Table 1, quoted methods")


def columns(evidence: Evidence, environment: str, arm: Arm) -> tuple[Entry | str, ...]:
    """Errors, rank and cost order of the run, seconds per task, its weight, and what was published elsewhere."""
    other = lewm(environment)
    difference = None if arm == other else evidence.difference(environment, arm.method, other.method)
    runs, d = evidence.runs(environment, arm.method), evidence.diagnosis(environment, arm.method)
    order = next((run.probes.cost_order for run in runs if run.probes), None)
    cells = evidence.cells(environment, arm.method)
    seconds = sum(cell.evaluation.seconds for cell in cells) / sum(len(cell.episodes) for cell in cells)
    return (
        "-" if difference is None else difference_text(difference),
        "-" if d is None else f"{d.one_step_error:.3f}",
        *("-" if d is None else _error_after(d.rollout_error, k) for k in (5, 20)),
        "-" if d is None else _rank_cell(d.effective_rank),
        "-" if order is None else f"{order:.2f}",
        f"{seconds:.1f}",
        *_sweep_cells(evidence, environment, arm),
        _published(environment, arm),
    )


def _error_after(errors: Sequence[float], k: int) -> str:
    """The rollout error after k steps, or after as many as there are in the data, and then says so."""
    return f"{errors[k - 1]:.3f}" if len(errors) >= k else f"{errors[-1]:.3f} (k={len(errors)})"


def _rank_cell(rank: float) -> Entry | str:
    """A rank at which training warns of a collapse says so here, too."""
    return Entry(f"{rank:.1f}, collapse warned", strong=True) if rank < COLLAPSE_RANK else f"{rank:.1f}"


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
    """Weights of the terms; eq. 10 has lambda alone."""
    if variant is None:
        return {}
    return variant.weights or {"lambda": variant.sigreg_weight}


# --- tests -----------------------------------------------------------------------------------------------------------


def against_both(evidence: Evidence) -> list[Finding]:
    """SALT against every other method, and each of those against LeWM; one Holm family."""
    return judged(evidence, _main_pairs(evidence))


def _main_pairs(evidence: Evidence) -> list[tuple[str, str, str, int, str]]:
    pairs = []
    for environment in evidence.study.environments:
        other = lewm(environment)
        on_lewm = [arm for arm in arms(environment) if arm.family == "lewm" and arm != other]
        for arm in (*on_lewm, *chosen_arms(evidence, environment)):
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
    shown = [
        f"{words.replace(' less ', ' better than ' if d.difference > 0 else ' worse than ')} on "
        f"{tables.environment_name(e)} ({d.difference:+.0f} points)"
        for e, words, d, p in tests
        if p < ALPHA
    ]
    warned = [
        f"{arm.label} on {tables.environment_name(environment)}"
        for environment in evidence.study.environments
        for arm in (*arms(environment), *chosen_arms(evidence, environment))
        if (d := evidence.diagnosis(environment, arm.method)) is not None and d.effective_rank < COLLAPSE_RANK
    ]
    text = f"{len(shown)} of {len(tests)} paired tests show a difference by Holm's p < {ALPHA:g}"
    return f"{text}{_listed(shown)}; training warned of a collapse{_listed(warned) or ' in none'}."


def _published_order(evidence: Evidence) -> str:
    """Every two methods that both have a published rate, by a Holm family of their own."""
    pairs, rates = [], {}
    for environment in evidence.study.environments:
        printed = [(arm, published_rate(environment, arm)) for arm in arms(environment)]
        for (a, rate_a), (b, rate_b) in itertools.combinations(printed, 2):
            if rate_a is None or rate_b is None or rate_a == rate_b:
                continue
            (first, above), (second, below) = sorted([(a, rate_a), (b, rate_b)], key=lambda one: -one[1])
            words = f"{first.label} above {second.label}"
            rates[environment, words] = f"{above:g} against {below:g} in print"
            pairs.append((environment, first.method, second.method, 5, words))
    tests = tested(evidence, pairs)
    same = sum(p < ALPHA and d.difference > 0 for _, _, d, p in tests)
    other = [
        f"{words} on {tables.environment_name(e)}: {rates[e, words]}, {d.difference:+.0f} points here"
        for e, words, d, p in tests
        if p < ALPHA and d.difference < 0
    ]
    return (
        f"Of {len(tests)} pairs of methods whose published rates differ, {same} have the published order here by "
        f"Holm's p < {ALPHA:g}, {len(other)} the other order{_listed(other)}, and {len(tests) - same - len(other)} are "
        "not decided."
    )


def _what_it_cannot_say(tests: list[tuple[str, str, PairedDifference, float]]) -> str:
    """The exact test of n pairs that all differ the same way has p = 2 / 2^n; Holm's first step multiplies by m."""
    least = math.floor(math.log2(2 * len(tests) / ALPHA)) + 1
    d = tests[0][2]
    tasks = d.both + d.only_a + d.only_b + d.neither
    return (
        "One training seed of a small model on small pictures cannot say how another seed, a larger model or more data "
        f"would rank them, and {tasks} tasks show no difference below {least} of them, even if every one of these goes "
        "the same way."
    )


def _listed(items: list[str]) -> str:
    return f": {', '.join(items)}" if items else ""

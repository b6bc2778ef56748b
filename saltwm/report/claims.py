"""Which of the paper's claims hold in the records: each by a rule written here, none typed by hand.

A claim holds, does not hold, or is not shown. It is not shown where the evidence does not decide: a paired test whose
p, corrected by Holm for all tests of the claim, is >= 0.05, intervals that overlap, or, where a quantity was recorded
without an interval, two values that are within 5 % of each other.

LeWM is judged as the paper runs it, with its history of three frames: it plans with them (App. B.5) and its rollouts
are measured from them (App. C.1). Where only a plan or a diagnosis from one frame is recorded, that one is judged, and
the finding says so.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from saltwm.disk.records import Cell, Diagnosis
from saltwm.evaluation.anatomy import anatomy
from saltwm.evaluation.contests import Comparison, ahead_by_training_seed
from saltwm.evaluation.paired import flip_test, holm, trainings_agree
from saltwm.evaluation.statistics import ALPHA
from saltwm.report import paper_figures, tables
from saltwm.report.findings import Findings, Run

Verdict = Literal["holds", "does not hold", "not shown", "not tested"]
"""The last of a line that says what a claim was judged from."""
PAPERS_LEWM = ("lewm-history3", "lewm")
"""The paper's interface first, then what stands for it where it was not evaluated."""


def papers_lewm(methods: Iterable[str]) -> str | None:
    """What stands for the paper's LeWM among these methods: three frames (App. B.5) if they are there, else one."""
    there = set(methods)
    return next((name for name in PAPERS_LEWM if name in there), None)


def name_in_the_paper(method: str, beside: Iterable[str]) -> str:
    """What the paper calls a method among those of its contest; the one-frame control of its LeWM has no name there."""
    if method not in PAPERS_LEWM:
        return method
    return "lewm" if method == papers_lewm(beside) else ""


ONE_SEED = "one training seed"
"""Said of every finding that another training of the same models could turn."""
DIFFERENT_HORIZONS = "diagnosed over different numbers of steps; diagnose all with the same horizon"
BY_TASK = "in which the pairs of one task count as one"
"""Several training seeds meet the same tasks, so a pair is not independent of the others of its task."""
OVER_SEEDS = (
    "and where there are several training seeds, each has the sign of the difference and Student's interval of their "
    "mean leaves zero out"
)
PLANS_BETTER = (
    f"exact paired McNemar test on the same tasks, {BY_TASK}, Holm's p over all tests of this table < {ALPHA:g}, "
    f"{OVER_SEEDS}"
)
MARGIN = 0.05
"""Relative difference below which two values without intervals count as equal."""
EXACT = 1e-6
"""Largest rho_H and spread of the Jacobian that count as rounding (App. C.2 measures SALT's at 1e-6)."""
OVERLAP_STEPS = 4
"""Steps after which the paper's ranges of norms no longer overlap (Sec. 4.3)."""
CLEARLY_NONZERO = 1e-2
"""Smallest rho_H and spread of the Jacobian that count as a dependence on the state."""


@dataclass(frozen=True)
class Finding:
    """What the records of one environment say about one claim."""

    environment: str
    condition: str
    """Protocol and horizon where the claim is about planning, otherwise empty."""
    measured: str
    verdict: Verdict
    one_frame: bool = False
    """Whether LeWM planned with one frame here: not the paper's interface, and all that is recorded."""


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, the rule it is judged by, and the findings, one or more per environment."""

    sentence: str
    place: str
    rule: str
    findings: tuple[Finding, ...]


@dataclass(frozen=True)
class _Claimed:
    """A sentence of the paper before anything is judged."""

    sentence: str
    place: str
    rule: str
    judge: Callable[[Findings], Iterable[Finding]]
    is_tested: bool = False
    """Whether each finding is a test, so that the printed rule says how many there are."""

    def judged(self, findings: Findings) -> Claim:
        """With what the records say."""
        found = tuple(self.judge(findings))
        return Claim(self.sentence, self.place, with_tests(self.rule, len(found) if self.is_tested else 0), found)


def claims(findings: Findings) -> list[Claim]:
    """The paper's claims, judged in every environment that SALT and LeWM both have records of."""
    return [claimed.judged(findings) for claimed in _CLAIMS]


def with_tests(rule: str, count: int) -> str:
    """A rule and how many tests it makes, which Holm's p is for."""
    return f"{rule}; {count} test{'s' * (count != 1)}" if count else rule


def _both(figures: dict[str, float]) -> str:
    return f"{_power(figures['salt'])} against {_power(figures['lewm'])}"


def _power(value: float) -> str:
    """1e-6 rather than 1e-06."""
    return f"{value:g}".replace("e-0", "e-")


# --- rules ---------------------------------------------------------------------------------------------------------


def smaller(a: float, b: float, margin: float = MARGIN) -> Verdict:
    """Is a below b? Not decided within the margin."""
    if abs(a - b) <= margin * min(abs(a), abs(b)):
        return "not shown"
    return "holds" if a < b else "does not hold"


def below(a: tuple[float, float], b: tuple[float, float]) -> Verdict:
    """Is the interval a below the interval b? Not decided where they overlap."""
    if a[1] < b[0]:
        return "holds"
    return "does not hold" if b[1] < a[0] else "not shown"


def exact_for_salt_only(salt: float, lewm: float) -> Verdict:
    """Zero up to rounding for SALT, clearly not for LeWM."""
    return "holds" if salt <= EXACT and lewm >= CLEARLY_NONZERO else "does not hold"


def _paired(verdict: str) -> Verdict:
    """The paired test of SALT against LeWM."""
    return {"better": "holds", "worse": "does not hold"}.get(verdict, "not shown")  # type: ignore[return-value]


def _one_step(salt: Diagnosis, lewm: Diagnosis) -> tuple[str, Verdict]:
    text = f"SALT {salt.one_step_error:.3f}, LeWM {lewm.one_step_error:.3f}"
    if lewm.one_step_error > 0:
        text += f", ratio {salt.one_step_error / lewm.one_step_error:.2f}"
    return text, smaller(lewm.one_step_error, salt.one_step_error)


def _rollout_growth(salt: Diagnosis, lewm: Diagnosis) -> tuple[str, Verdict]:
    (mine, my_range), (theirs, their_range) = (
        _growth(d.rollout_error, d.rollout_measured, _error_band(d)) for d in (salt, lewm)
    )
    return f"SALT {mine}, LeWM {theirs} times over {len(salt.rollout_error)} steps", below(my_range, their_range)


def _rollout_end(salt: Diagnosis, lewm: Diagnosis) -> tuple[str, Verdict]:
    (low, high), (other_low, other_high) = ends = [(low[-1], high[-1]) for low, high in map(_error_band, (salt, lewm))]
    where = _where_below(salt.rollout_error, lewm.rollout_error)
    text = f"SALT {salt.rollout_error[-1]:.3f} ({low:.3f} to {high:.3f}), "
    text += f"LeWM {lewm.rollout_error[-1]:.3f} ({other_low:.3f} to {other_high:.3f}) at k={len(salt.rollout_error)}"
    return f"{text}; {where}", below(*ends)


def _error_band(d: Diagnosis) -> tuple[Sequence[float], Sequence[float]]:
    """Smallest and largest rollout error of each step over the measurements; the margin where one mean is recorded."""
    if d.rollout_low:
        return d.rollout_low, d.rollout_high
    return [(1 - MARGIN / 2) * x for x in d.rollout_error], [(1 + MARGIN / 2) * x for x in d.rollout_error]


def _where_below(a: Sequence[float], b: Sequence[float]) -> str:
    first = _first_below(a, b)
    return "not below at the end" if first is None else f"below from k={first} on"


def _first_below(a: Sequence[float], b: Sequence[float]) -> int | None:
    """The step from which a stays below b, counted from 1."""
    above = [k for k, (x, y) in enumerate(zip(a, b, strict=True), start=1) if x >= y]
    first = above[-1] + 1 if above else 1
    return first if first <= len(a) else None


def _propagation(salt: Diagnosis, lewm: Diagnosis) -> tuple[str, Verdict]:
    (mine, my_range), (theirs, their_range) = norm_growth(salt), norm_growth(lewm)
    return f"SALT {mine}, LeWM {theirs} times over {len(salt.rollout_error)} steps", below(my_range, their_range)


def norm_growth(d: Diagnosis) -> tuple[str, tuple[float, float]]:
    """Growth of the norms in words, and the smallest and largest growth among the measurements."""
    return _growth(d.propagation_norm, d.propagation_measured, (d.propagation_low, d.propagation_high))


def _growth(
    mean: Sequence[float], measured: Sequence[Sequence[float]], band: tuple[Sequence[float], Sequence[float]]
) -> tuple[str, tuple[float, float]]:
    """From the first to the last step, in words and as a range over the measurements.

    The range of an older diagnosis, which kept the band of each step alone, is what that allows.
    """
    low, high = band
    growths = [values[-1] / values[0] for values in measured] or [low[-1] / high[0], high[-1] / low[0]]
    least, most = min(growths), max(growths)
    return f"{mean[-1] / mean[0]:.2f} ({least:.2f} to {most:.2f})", (least, most)


def _apart(salt: Diagnosis, lewm: Diagnosis) -> tuple[str, Verdict]:
    count = len(salt.propagation_norm)
    below_from = _first_below(salt.propagation_high, lewm.propagation_low)
    reverse = lewm.propagation_high[-1] < salt.propagation_low[-1]
    where = _where_below(salt.propagation_high, lewm.propagation_low)
    ends = [f"{d.propagation_low[-1]:.2f} to {d.propagation_high[-1]:.2f}" for d in (salt, lewm)]
    verdict: Verdict = "does not hold" if reverse else "not shown"
    if below_from is not None and below_from <= OVERLAP_STEPS + 1:
        verdict = "holds"
    counts = " and ".join(str(len(d.propagation_measured) or "an unrecorded number of") for d in (salt, lewm))
    return f"{where}; SALT {ends[0]}, LeWM {ends[1]} at k={count}, {counts} measurements", verdict


def _rho(salt: Diagnosis, lewm: Diagnosis) -> tuple[str, Verdict]:
    largest = max(salt.rho), max(lewm.rho)
    text = f"SALT {largest[0]:.0e}, LeWM {largest[1]:.3f}"
    if lewm.augmented_rho:
        text += f", {max(lewm.augmented_rho):.3f} with its whole history propagated"
    return text, exact_for_salt_only(*largest)


def _measured(findings: Findings, rule: Callable[[Diagnosis, Diagnosis], tuple[str, Verdict]]) -> Iterable[Finding]:
    """A rule about two diagnoses, applied where both are there; training seeds must agree."""
    for environment in _environments(findings):
        pairs = [(salt.diagnosis, lewm.diagnosis) for salt, lewm in _pairs_of_runs(findings, environment)]
        yield from _agreed(environment, [_judged(salt, lewm, rule) for salt, lewm in pairs if salt and lewm])


def _environments(findings: Findings) -> list[str]:
    """Those of all runs and evaluations, in the paper's order."""
    names = {run.environment for run in findings.runs if run.environment}
    return sorted(names | {cell.evaluation.environment for cell in findings.cells}, key=tables.environment_order)


def _agreed(environment: str, judged: Sequence[tuple[str, Verdict]]) -> list[Finding]:
    """What training seeds say together: the words of the first, and its verdict if it is that of all."""
    if not judged:
        return []
    text, verdict = judged[0]
    verdicts = [each for _, each in judged]
    text += f"; {len(verdicts)} training seeds: {', '.join(verdicts)}" if len(verdicts) > 1 else f"; {ONE_SEED}"
    return [Finding(environment, "", text, verdict if len(set(verdicts)) == 1 else "not shown")]


def _pairs_of_runs(findings: Findings, environment: str) -> list[tuple[Run, Run]]:
    """SALT and LeWM with the same training seed."""
    salt, lewm = (findings.papers_runs(environment, method) for method in ("salt", "lewm"))
    if None in {*salt, *lewm}:  # records that do not say their seed: one of each is all that can be paired
        first, second = (findings.papers_run(environment, method) for method in ("salt", "lewm"))
        return [(first, second)] if first and second else []
    shared = sorted(seed for seed in salt.keys() & lewm.keys() if seed is not None)
    return [(salt[seed], lewm[seed]) for seed in shared]


def _judged(
    salt: Diagnosis, lewm: Diagnosis, rule: Callable[[Diagnosis, Diagnosis], tuple[str, Verdict]]
) -> tuple[str, Verdict]:
    if len(salt.rollout_error) != len(lewm.rollout_error):
        return DIFFERENT_HORIZONS, "not shown"
    text, verdict = rule(salt, lewm)
    return text + ("" if lewm.history > 1 else "; LeWM from one frame"), verdict


def _jacobian(findings: Findings) -> Iterable[Finding]:
    for environment in _environments(findings):
        pairs = [(salt.probes, lewm.probes) for salt, lewm in _pairs_of_runs(findings, environment)]
        spreads = [(salt.jacobian_spread, lewm.jacobian_spread) for salt, lewm in pairs if salt and lewm]
        yield from _agreed(
            environment, [(f"SALT {a:.0e}, LeWM {b:.3f}", exact_for_salt_only(a, b)) for a, b in spreads]
        )


def _plans_better(findings: Findings, protocols: Sequence[str]) -> Iterable[Finding]:
    tests = [c for c in salt_against_lewm(findings) if c.protocol in protocols]
    for c, corrected in zip(tests, holm([c.p for c in tests]), strict=True):
        n = c.both + c.only_a + c.only_b + c.neither
        a, b = (f"{100 * (c.both + only) / n:.1f}" for only in (c.only_a, c.only_b))
        text = f"SALT {a} %, {frames_of(c.method_b)} {b} %, {c.difference:+.1f} points ({c.low:+.1f} to {c.high:+.1f})"
        text += f", p {tables.p_value(c.p)}, Holm {tables.p_value(corrected)}, n {n}; {_over_seeds(c.by_training_seed)}"
        if [tables.contest_order(other) for other in tests].count(tables.contest_order(c)) > 1:
            text += f"; {c.cells_a[0]} against {c.cells_b[0]}"
        verdict = _paired(c.verdict) if corrected < ALPHA else "not shown"
        yield Finding(c.environment, tables.protocol_name(c), text, verdict, c.method_b != PAPERS_LEWM[0])


def _over_seeds(differences: Sequence[float]) -> str:
    """Over how many training seeds a difference was measured, and what each says."""
    if len(differences) == 1:
        return ONE_SEED
    each = ", ".join(f"{points:+.1f}" for points in differences)
    return f"{len(differences)} training seeds: {each}"


def salt_against_lewm(findings: Findings) -> list[Comparison]:
    """The paired comparisons of the two, by environment, protocol and horizon; CEM plans for both.

    LeWM with three frames where it was evaluated so (App. B.5), otherwise with one. Two recipes are two comparisons.
    """
    return with_papers_lewm(c for c in findings.comparisons if c.method_a == "salt")


def with_papers_lewm(found: Iterable[Comparison]) -> list[Comparison]:
    """Of the comparisons of one method with others, those with what stands for the paper's LeWM in their contest."""
    found = sorted(found, key=tables.contest_order)
    return [
        c
        for _, of_contest in itertools.groupby(found, key=tables.contest_order)
        for here in [list(of_contest)]
        for c in here
        if c.method_b == papers_lewm(other.method_b for other in here)
    ]


def frames_of(method: str) -> str:
    """LeWM and what it saw."""
    return "LeWM with three frames" if method == PAPERS_LEWM[0] else "LeWM with one frame"


def _mismatch(findings: Findings) -> Iterable[Finding]:
    cells = findings.by_name
    tests = []
    for c in salt_against_lewm(findings):
        if c.protocol != "long":
            salt, lewm = ([cells[name] for name in names] for names in (c.cells_a, c.cells_b))
            ours, theirs = _mismatched(salt), _mismatched(lewm)
            p = flip_test(theirs[task] - ours[task] for task in ours | theirs)
            by_seed = ahead_by_training_seed(lewm, salt, lambda cell: _mismatched([cell]).total())
            tests.append((c, ours.total(), theirs.total(), p, by_seed))
    for (c, salt_count, lewm_count, p, by_seed), corrected in zip(tests, holm([t[3] for t in tests]), strict=True):
        n = sum(len(cells[name].episodes) for name in c.cells_a)
        text = f"{frames_of(c.method_b)} {lewm_count}, SALT {salt_count} of {n} episodes, p {tables.p_value(p)}, "
        text += f"Holm {tables.p_value(corrected)}; {_over_seeds(by_seed)}"
        verdict: Verdict = "holds" if lewm_count > salt_count else "does not hold"
        verdict = verdict if corrected < ALPHA and trainings_agree(by_seed) else "not shown"
        yield Finding(c.environment, tables.protocol_name(c), text, verdict, c.method_b != PAPERS_LEWM[0])


def _mismatched(cells: Sequence[Cell]) -> Counter[tuple[str, int]]:
    """How many episodes of each task ended in a mismatch failure."""
    return Counter(
        (cell.evaluation.tasks_sha256, failure.task)
        for cell in cells
        for failure in anatomy(cell.episodes).failures
        if failure.kind == "mismatch"
    )


# --- the claims ------------------------------------------------------------------------------------------------------


_CLAIMS = (
    _Claimed(
        "SALT's one-step error is larger than LeWM's",
        "Sec. 4.3: {} to {} times".format(*paper_figures.ONE_STEP_RATIO),
        f"the ratio of the relative one-step errors is above 1, by more than {100 * MARGIN:g} %",
        partial(_measured, rule=_one_step),
    ),
    _Claimed(
        "SALT nevertheless plans better",
        "Sec. 4.2: in all four environments",
        PLANS_BETTER,
        partial(_plans_better, protocols=("paper", "clean")),
        is_tested=True,
    ),
    _Claimed(
        "SALT keeps its advantage over long horizons",
        "Sec. 4.5: in all twelve combinations",
        PLANS_BETTER,
        partial(_plans_better, protocols=("long",)),
        is_tested=True,
    ),
    _Claimed(
        "SALT's rollout error grows more slowly",
        f"Sec. 4.3: {_both(paper_figures.ROLLOUT_GROWTH)} times on PushT",
        "growth from the first to the last step is smaller, and its ranges over the measurements do not overlap",
        partial(_measured, rule=_rollout_growth),
    ),
    _Claimed(
        "SALT's rollout error ends below LeWM's",
        "Sec. 4.3: on PushT after four steps; App. C.6: not on Cube",
        "error at the last step is smaller, and its ranges over the measurements do not overlap",
        partial(_measured, rule=_rollout_end),
    ),
    _Claimed(
        "SALT's propagation norms grow less",
        f"Sec. 4.3: {_both(paper_figures.PROPAGATION_GROWTH)} times on PushT",
        "growth from the first to the last step is smaller, and its ranges over the measurements do not overlap",
        partial(_measured, rule=_propagation),
    ),
    _Claimed(
        f"SALT's propagation norms lie below LeWM's after step {OVERLAP_STEPS}",
        f"Sec. 4.3: the ranges of nine measurements on PushT no longer overlap after step {OVERLAP_STEPS}",
        "at each later step SALT's largest measurement is below LeWM's smallest; it does not hold if at the last "
        "step LeWM's largest is below SALT's smallest",
        partial(_measured, rule=_apart),
    ),
    _Claimed(
        "The rollout error is the sum of propagated one-step errors for SALT and not for LeWM",
        f"Proposition 1, Figure 1b, App. C.2: rho_20 {_both(paper_figures.RHO_AT_20)} on PushT",
        f"largest rho_H is at most {_power(EXACT)} for SALT and at least {CLEARLY_NONZERO:g} for LeWM",
        partial(_measured, rule=_rho),
    ),
    _Claimed(
        "The Jacobian depends on the state for LeWM and not for SALT",
        "Sec. 3.2, Figure 1a; Proposition 2",
        f"relative spread of its largest singular value over states is at most {_power(EXACT)} for SALT and at "
        f"least {CLEARLY_NONZERO:g} for LeWM",
        _jacobian,
    ),
    _Claimed(
        "LeWM fails more often with a cost that rises sharply after execution (mismatch)",
        "Sec. 4.4: {} against {} of {} episodes on Cube".format(
            paper_figures.ANATOMY["cube", "lewm"][0], *paper_figures.ANATOMY["cube", "salt"][::2]
        ),
        f"exact McNemar test on the episodes that ended in a mismatch failure, {BY_TASK}, Holm's p over all "
        f"tests of this table < {ALPHA:g}, {OVER_SEEDS}",
        _mismatch,
        is_tested=True,
    ),
)
"""In the order of the document."""

"""What the records say about the paper's studies: a table, a figure and a claim with its rule for each.

Some rules were made stricter after runs had been seen, and `HOW` says which. Beside the p-value of a test stands
Holm's, which is for all tests of its study together; the printed rule says how many these are.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from saltwm.disk.records import Efficiency, Rate
from saltwm.evaluation.contests import Contest, outcomes
from saltwm.evaluation.paired import PairedDifference, holm, paired_difference, trainings_agree
from saltwm.evaluation.statistics import ALPHA, over_seeds, wilson
from saltwm.ground.rng import stream
from saltwm.report import objectives, paper_figures, pooled, tables, with_prior
from saltwm.report.claims import (
    BY_TASK,
    DIFFERENT_HORIZONS,
    PAPERS_LEWM,
    Claim,
    Finding,
    Verdict,
    below,
    frames_of,
    name_in_the_paper,
    norm_growth,
    papers_lewm,
    with_tests,
)
from saltwm.report.elements import LIST_OF_STUDIES
from saltwm.report.evidence import Arm, Evidence, Study, decided, difference_text, judged, tested
from saltwm.report.figures import Drawing
from saltwm.report.findings import Findings
from saltwm.report.paper_figures import FOUR
from saltwm.report.study_figure import Point, success_by_variant
from saltwm.report.table import NONE, Entry, Table, listed

SEEDS = (0, 1, 2)
SEEDS_SHOW = f"the difference has one sign for all {len(SEEDS)} seeds, Student's interval of their mean leaves zero out"
HOW = (
    "Each is made by one command, which the list of the paper's tables and figures names. Rules stand in the code "
    "(`saltwm/report/studies.py`). Those of `seeds`, `lambda`, `objective` and of the claims about errors and planning "
    "were made stricter after some runs had been seen, and so was the paired test that they share; LAB.md says which "
    f"verdicts that changed, and none was gained. `{LIST_OF_STUDIES}` lists what is left of each and what it costs. "
    "Holm's p is of all tests of a study together, p of one. One training seed unless a row names another. LeWM plans "
    "with three frames unless a row or a note says one."
)
BOOTSTRAPS = 10_000
_SHIPPED = ("salt", "lewm", "lewm-history3", "salt-map", "lewm-cem-map", "lewm-cem-map-history3")
"""Methods of the shipped models, which are evaluated without any study."""


@dataclass(frozen=True)
class StudyReport:
    """A study as a document shows it."""

    name: str
    table: Table
    claim: Claim
    drawing: Drawing
    missing: int
    """Evaluations of the study that are not there."""
    sentences: tuple[str, ...] = ()
    """What the table says, made from the same records."""

    @property
    def file(self) -> str:
        """Its figure's, beside the document."""
        return f"figures/study-{self.name}.svg"


# --- arms ------------------------------------------------------------------------------------------------------------


def _matched(environment: str) -> str:
    """What the name of a run with one rollout per window ends in, where the recipe has seven."""
    return "-starts1" if environment in ("two-room", "reacher") else ""


def objective_arms(environment: str) -> tuple[Arm, ...]:
    """The four cells of Table 3."""
    end = _matched(environment)
    return (
        Arm(f"salt-one-step{end}", "SALT one-step"),
        Arm(f"salt{end}", "SALT rollout"),
        Arm(f"lewm{end}-history3", "LeWM one-step", "lewm"),
        Arm(f"lewm-rollout{end}-history3", "LeWM rollout", "lewm"),
    )


def _fixed(*arms: Arm) -> Callable[[str], tuple[Arm, ...]]:
    """Arms that do not depend on the environment."""
    return lambda environment: arms


def _seed_arms(environment: str) -> tuple[Arm, ...]:
    """Both models with each training seed."""
    ends = ["" if seed == 0 else f"-s{seed}" for seed in SEEDS]
    salt = [Arm(f"salt{end}", f"SALT, seed {seed}") for seed, end in zip(SEEDS, ends, strict=True)]
    lewm = [Arm(f"lewm{end}-history3", f"LeWM, seed {seed}", "lewm") for seed, end in zip(SEEDS, ends, strict=True)]
    return (*salt, *lewm)


# --- rules -----------------------------------------------------------------------------------------------------------


def _better(evidence: Evidence, a: Callable[[str], str], b: Callable[[str], str]) -> list[Finding]:
    """One paired test per environment and horizon, a better than b by Holm's p."""
    study = evidence.study
    return judged(
        evidence,
        (
            (e, a(e), b(e), h, f"H={h}" if len(study.horizons) > 1 else "")
            for e, h in itertools.product(study.environments, study.horizons)
        ),
    )


def _long(evidence: Evidence) -> list[Finding]:
    """One paired test per environment and horizon."""
    pairs = []
    for environment, horizon in itertools.product(evidence.study.environments, evidence.study.horizons):
        other = papers_lewm(name for name in PAPERS_LEWM if evidence.cells(environment, name, horizon))
        if other is not None:
            pairs.append((environment, "salt", other, horizon, f"H={horizon}, {frames_of(other)}"))
    return judged(evidence, pairs)


def _published(evidence: Evidence, environment: str, arm: Arm, horizon: int) -> tuple[str]:
    """What the paper has at that horizon (App. E.2)."""
    study = evidence.study
    there = (each.method for each in study.arms(environment) if evidence.cells(environment, each.method, horizon))
    contest = Contest(environment, study.protocol, horizon)
    return (str(paper_figures.success(contest, name_in_the_paper(arm.method, there)) or NONE),)


def _interaction(evidence: Evidence) -> list[Finding]:
    """What rollout training gives SALT less what it gives LeWM, as the equal-weight mean over environments."""
    changes = []
    for environment in evidence.study.environments:
        found = [evidence.cells(environment, arm.method) for arm in objective_arms(environment)]
        if all(found) and len({tuple(c.evaluation.tasks_sha256 for c in cells) for cells in found}) == 1:
            salt_one, salt_roll, lewm_one, lewm_roll = (np.array(outcomes(cells), dtype=float) for cells in found)
            changes.append((environment, salt_roll - salt_one, lewm_roll - lewm_one))
    if not changes:
        return []
    lines = [
        Finding(
            e, "", f"SALT {100 * s.mean():+.1f}, LeWM {100 * w.mean():+.1f} points by rollout training", "not tested"
        )
        for e, s, w in changes
    ]
    mean = float(np.mean([100 * (s - w).mean() for _, s, w in changes]))
    rng = stream(0, "study objective")
    draws = np.zeros(BOOTSTRAPS)
    for _, s, w in changes:
        gain = s - w
        draws += 100 * gain[rng.integers(0, len(gain), (BOOTSTRAPS, len(gain)))].mean(axis=1) / len(changes)
    low, high = np.percentile(draws, (2.5, 97.5))
    verdict: Verdict = "holds" if low > 0 else "does not hold" if high < 0 else "not shown"
    asked = len(evidence.study.environments)
    where, text = f"mean of {len(changes)}", f"{mean:+.1f} points ({low:+.1f} to {high:+.1f})"
    if len(changes) < asked:  # the claim is about the mean of all: another environment may turn it
        return [*lines, Finding(where, "", f"{text}; {len(changes)} of {asked} environments", "not shown")]
    return [*lines, Finding(where, "", text, verdict)]


def _free(evidence: Evidence) -> list[Finding]:
    """The norms of a free A0 grow less than LeWM's, as SALT's do."""
    found = [evidence.diagnosis("push-t", arm.method) for arm in evidence.study.arms("push-t")]
    there = [d for d in found if d is not None]
    if len(there) < len(found):
        return []
    if len({len(d.propagation_norm) for d in there}) > 1:
        return [Finding("push-t", "", DIFFERENT_HORIZONS, "not shown")]
    (salt, _), (free, free_range), (lewm, lewm_range) = map(norm_growth, there)
    text = f"SALT {salt}, free A0 {free}, LeWM {lewm}"
    return [Finding("push-t", "", text, below(free_range, lewm_range))]


def _against_the_recipe(evidence: Evidence) -> list[tuple[str, str, PairedDifference, float]]:
    """Every other value of a sweep against the recipe's."""
    study = evidence.study
    pairs = [(e, arm.method, "salt", 5, arm.label) for e in study.environments for arm in study.arms(e)]
    return tested(evidence, [pair for pair in pairs if pair[1] != "salt"])


def _extremes(evidence: Evidence) -> list[Finding]:
    """Both extremes of the sweep are worse than the recipe's value, the values next to it are not."""
    study, tests, findings = evidence.study, _against_the_recipe(evidence), []
    for environment in study.environments:
        mine = [(words, d, p) for e, words, d, p in tests if e == environment]
        if len(mine) < len(study.arms(environment)) - 1:
            continue
        shown = [decided(d, p) for _, d, p in mine]  # "holds": better than the recipe's value
        first, *between, last = (verdict == "does not hold" for verdict in shown)
        verdict: Verdict = "not shown"
        if first and last and not any(between):
            verdict = "holds"
        elif any(between) or "holds" in (shown[0], shown[-1]):
            verdict = "does not hold"
        text = "; ".join(f"{words}: {difference_text(d, p)}" for words, d, p in mine)
        findings.append(Finding(environment, "", text, verdict))
    return findings


def _steady(evidence: Evidence, points: float = 3.0) -> list[Finding]:
    """Success varies by no more than that over the sweep."""
    study, tests, findings = evidence.study, _against_the_recipe(evidence), []
    for environment in study.environments:
        cells = [evidence.cells(environment, arm.method) for arm in study.arms(environment)]
        if not all(cells):
            continue
        rates = [100 * np.mean(outcomes(some)) for some in cells]
        spread = round(float(max(rates) - min(rates)), 9)  # 60 less 57 of 100 is a little more than 3
        differs = any(e == environment and decided(d, p) != "not shown" for e, _, d, p in tests)
        verdict: Verdict = "holds" if spread <= points else "does not hold" if differs else "not shown"
        findings.append(
            Finding(environment, "", f"{min(rates):.1f} to {max(rates):.1f} %, {spread:.1f} points", verdict)
        )
    return findings


@dataclass(frozen=True)
class _OverSeeds:
    """SALT less LeWM in one environment, by training seed and pooled."""

    environment: str
    each: list[PairedDifference]
    pooled: PairedDifference
    p: float
    """Holm's, over the environments."""

    @property
    def verdict(self) -> Verdict:
        """Decided where all seeds are there and show the difference that tasks show."""
        agree = len(self.each) == len(SEEDS) and trainings_agree([d.difference for d in self.each])
        return decided(self.pooled, self.p) if agree else "not shown"

    @property
    def points(self) -> str:
        """The difference of each seed."""
        return ", ".join(f"{d.difference:+.1f}" for d in self.each)


def _by_training_seed(evidence: Evidence) -> list[_OverSeeds]:
    """Tasks are paired inside training seeds."""
    study, rows = evidence.study, []
    for environment in study.environments:
        arms = study.arms(environment)
        salt, lewm = arms[: len(SEEDS)], arms[len(SEEDS) :]
        shared = [evidence.shared(environment, a.method, b.method) for a, b in zip(salt, lewm, strict=True)]
        there = [pairs for pairs in shared if pairs[0]]
        if there:
            a_won, b_won, tasks = (list(itertools.chain(*side)) for side in zip(*there, strict=True))
            pooled = paired_difference(a_won, b_won, tasks=tasks)
            rows.append((environment, [paired_difference(a, b) for a, b, _ in there], pooled))
    corrected = holm([pooled.p for _, _, pooled in rows])
    return [_OverSeeds(*row, p) for row, p in zip(rows, corrected, strict=True)]


def _over_training_seeds(evidence: Evidence) -> list[Finding]:
    """Tasks and seeds must both show the difference."""
    findings = []
    for row in _by_training_seed(evidence):
        together = over_seeds([d.difference for d in row.each])
        spread = "; {:+.1f} to {:+.1f} over seeds".format(*together.interval) if together.std is not None else ""
        text = f"{len(row.each)} of {len(SEEDS)} training seeds: {row.points} points{spread}; pooled "
        findings.append(Finding(row.environment, "", text + difference_text(row.pooled, row.p), row.verdict))
    return findings


def settled_in_words(findings: Findings) -> list[str]:
    """Where SALT against LeWM is settled over the training seeds, and where it is not, a sentence each."""
    rows = [
        (study.protocol, row)
        for study in STUDIES
        if study.name in ("seeds", "cube-double")
        for row in _by_training_seed(Evidence(study, findings))
    ]
    words = {"holds": "better", "does not hold": "worse"}
    if not rows:
        return []

    def named(verdict: Verdict) -> str:
        found = [
            f"{tables.environment_name(row.environment)}{'' if protocol == 'clean' else f' under `{protocol}`'} "
            f"({row.points})"
            for protocol, row in rows
            if row.verdict == verdict
        ]
        return listed(found)

    shown = [f"{word} on {named(verdict)}" for verdict, word in words.items() if named(verdict)]  # type: ignore[arg-type]
    settled = f"SALT plans {', and '.join(shown)}" if shown else "neither SALT nor LeWM is shown to plan better"
    sentences = [
        f"Over {len(SEEDS)} training seeds under `clean` {settled}; in brackets SALT less LeWM in points, seed by seed."
    ]
    if left := named("not shown"):
        sentences.append(f"Not settled, for want of seeds or of a clear difference: {left}.")
    return sentences


def _of_the_sweep(evidence: Evidence, found: Sequence[Finding]) -> int:
    """Tests of every other value against the recipe's."""
    return len(_against_the_recipe(evidence))


def _of_each_line(evidence: Evidence, found: Sequence[Finding]) -> int:
    """One test a finding."""
    return len(found)


# --- the studies -----------------------------------------------------------------------------------------------------


_LAMBDAS = tuple(Arm("salt" if x == 0.3 else f"salt-lambda{x:g}", f"{x:g}") for x in (0.03, 0.1, 0.3, 1, 3))
_DIMS = tuple(Arm("salt" if d == 192 else f"salt-d{d}", str(d)) for d in (96, 192, 384))
_KS = tuple(Arm("salt" if k == 5 else f"salt-k{k}", str(k)) for k in (2, 5, 8))
_LONG = (
    Arm("salt", "SALT"),
    Arm("lewm-history3", "LeWM", "lewm"),
    Arm("lewm", "LeWM, one frame", "lewm", is_control=True),
)
_POOLED = (
    "Means are of the training seeds' rates, with their sample deviation; counts are of all seeds together, and the "
    "interval is over tasks. Random acts once, for it learns nothing."
)

STUDIES: tuple[Study, ...] = (
    Study(
        "objective",
        "Transition and objective (Table 3)",
        "Sec. 4.3: LeWM 82.7 to 77.8 %, SALT 84.4 to 92.7 % by rollout training, means of four environments",
        FOUR,
        objective_arms,
        "Rollout training helps SALT more than LeWM",
        "success by rollout training less success by one-step training, SALT's less LeWM's, the equal-weight mean over "
        "the four environments: its 95 % interval, bootstrapped over tasks inside them, is above zero; one test",
        _interaction,
        reference=lambda environment: f"salt{_matched(environment)}",  # of the same windows, as all four
        more=pooled.COLUMNS,
        more_of=pooled.no_column,
        pooled=pooled.over_environments,
        note="The paper's means are of other tasks, as its protocol asks them.",
    ),
    Study(
        "objectives",
        "Other objectives on one backbone (Table 1)",
        "Sec. 4.2 quotes PLDM 79.5, Sub-JEPA 86.1, SD-JEPA 86.8 and SMWM 83.0 % beside LeWM's 82.7 and SALT's 92.7, "
        "each from its own paper: means of four environments",
        FOUR,
        objectives.arms,
        "SALT plans better than other objectives on LeWM's predictor, and those plan better than LeWM's own",
        "exact paired McNemar tests on the same tasks, SALT against each method and each method against LeWM, Holm's p "
        f"over all of them < {ALPHA:g}; same data, windows, steps and encoder, published weights and, where the sweep "
        "chose another, that one too; one seed",
        objectives.against_both,
        tests=_of_each_line,
        more=objectives.COLUMNS,
        more_of=objectives.columns,
        note=f"{objectives.NOTE} DINO-WM needs weights that are not shipped; `{objectives.how_to_fill()}` fills it.",
        more_arms=objectives.chosen_arms,
        instead=objectives.needs_weights,
        sentences=objectives.sentences,
    ),
    Study(
        "objectives-map",
        "Other objectives with an action prior",
        "Sec. 4.2 compares methods that plan without one",
        FOUR,
        with_prior.arms,
        "With an action prior, too, SALT plans better than other objectives on LeWM's predictor, and those plan better "
        "than LeWM's own",
        "exact paired McNemar tests on the same tasks, SALT against each method and each method against LeWM, Holm's p "
        f"over all of them < {ALPHA:g}; one rule with Table 1's, written when SALT's rows were there and before any "
        "other; one seed",
        with_prior.against_both,
        tests=_of_each_line,
        reference=lambda environment: with_prior.REFERENCE,
        more=with_prior.COLUMNS,
        more_of=with_prior.columns,
        note=with_prior.NOTE,
        sentences=with_prior.sentences,
    ),
    Study(
        "modulation",
        "Without action-dependent modulation (Table 8)",
        "App. F.1: 11.3 against 90.7 % on Reacher",
        ("reacher",),
        _fixed(Arm("salt-modes0", "A0 alone"), Arm("salt", "A(c)")),
        "SALT needs a transition matrix that depends on the action",
        f"exact paired McNemar test of SALT against R = 0 on the same tasks, p < {ALPHA:g}; one test",
        partial(_better, a=lambda e: "salt", b=lambda e: "salt-modes0"),
    ),
    Study(
        "spectral",
        "Without the bound on A0",
        "App. C.4: growth of the norm 4.42 without, 4.28 with it, 8.74 for LeWM on PushT",
        ("push-t",),
        _fixed(Arm("salt", "bounded"), Arm("salt-free", "free"), Arm("lewm-history3", "LeWM", "lewm")),
        "The norms of a free A0 also grow less than LeWM's",
        "the largest growth among the free model's measurements is below the smallest among LeWM's; no test",
        _free,
    ),
    Study(
        "lambda",
        "Weight of SIGReg (Figure 7)",
        "App. F.2.1: stable near the default, lower at both ends, on PushT",
        ("two-room", "reacher"),
        _fixed(*_LAMBDAS),
        "Success is stable near the default weight and lower at both ends",
        f"exact paired McNemar tests against the recipe's 0.3, Holm's p over all of them < {ALPHA:g}: lower at both "
        "ends and not next to it; it does not hold where a value next to it is lower, or one at an end higher",
        _extremes,
        tests=_of_the_sweep,
    ),
    Study(
        "dim",
        "Size of the latent (Figure 8)",
        "App. F.2.2: at most about three points over a fourfold range, on Two-Room and Cube",
        ("two-room", "reacher"),
        _fixed(*_DIMS),
        "Success varies by at most three points over a fourfold range of d",
        "largest less smallest rate is at most 3 points; it does not hold where it is more and Holm's p of a paired "
        f"test against d = 192 is < {ALPHA:g}",
        _steady,
        tests=_of_the_sweep,
    ),
    Study(
        "rollout",
        "Length of the training rollout",
        "Sec. 3.5 fixes K = 5 and shows no sweep",
        ("two-room", "reacher"),
        _fixed(*_KS),
        "Success varies by at most three points over K",
        "largest less smallest rate is at most 3 points; it does not hold where it is more and Holm's p of a paired "
        f"test against K = 5 is < {ALPHA:g}",
        _steady,
        tests=_of_the_sweep,
    ),
    Study(
        "horizon",
        "Long horizons (Table 7, Figure 4)",
        "Sec. 4.5: SALT ahead by 4 to 25 points in all twelve combinations",
        FOUR,
        _fixed(*_LONG),
        "SALT keeps its advantage over long horizons",
        f"exact paired McNemar tests on shared tasks, Holm's p over all combinations < {ALPHA:g}; LeWM with three "
        "frames where it was evaluated so, with one otherwise",
        _long,
        tests=_of_each_line,
        protocol="long",
        horizons=(10, 15, 20),
        more=("paper †",),
        more_of=_published,
    ),
    Study(
        "seeds",
        "Training seeds",
        "which trains each model once",
        FOUR,
        _seed_arms,
        "SALT plans better than LeWM over three training seeds",
        f"tasks paired inside training seeds: {SEEDS_SHOW}, and Holm's p over the environments of the pooled exact "
        f"McNemar test, {BY_TASK}, is < {ALPHA:g}",
        _over_training_seeds,
        tests=_of_each_line,
        pooled=pooled.over_training_seeds,
        note=_POOLED,
    ),
    Study(
        "cube-double",
        "Two cubes (Table 4)",
        "Sec. 4.6: SALT 54.0, LeWM 36.0, Random 32.7 %, three training runs of 50 episodes",
        ("cube-double",),
        _seed_arms,
        "SALT plans better than LeWM with two cubes",
        f"tasks paired inside training seeds: {SEEDS_SHOW}, and the p of the pooled exact McNemar test, {BY_TASK}, is "
        f"< {ALPHA:g}; one test",
        _over_training_seeds,
        protocol="paper",
        more=pooled.COLUMNS,
        more_of=pooled.no_column,
        pooled=pooled.over_training_seeds,
        note=_POOLED,
    ),
)
"""In the order of the document."""


def study_reports(findings: Findings) -> list[StudyReport]:
    """Every study of which more than its reference is recorded."""
    reports = [_report(Evidence(study, findings)) for study in STUDIES]
    return [report for report in reports if report is not None]


def _report(evidence: Evidence) -> StudyReport | None:
    study = evidence.study
    begun = {tables.environment_name(environment) for environment in _begun_in(evidence)}
    if not begun:
        return None
    lines, points, missing = _rows(evidence)
    header = ("environment", *(["H"] if len(study.horizons) > 1 else []), "variant", "percent", "reached", "interval")
    note = f"Study `{study.name}`, protocol `{study.protocol}`."
    note += _left_in_words(missing) if missing else ""
    note += f" {study.note}" if study.note else ""
    return StudyReport(
        study.name,
        Table(
            study.title,
            (*header, "against SALT", *study.more),
            (*lines, *study.pooled(evidence)),
            note,
            ("variant", "against SALT", "against LeWM"),
        ),
        _claim(evidence),
        success_by_variant(study.title, [point for point in points if point.group in begun]),
        sum(map(len, missing.values())),
        study.sentences(evidence),
    )


def _rows(evidence: Evidence) -> tuple[list[tuple[Entry | str, ...]], list[Point], dict[str, list[str]]]:
    """A line and a point for each evaluated arm, and by environment the arms that are still to be evaluated."""
    study, points = evidence.study, []
    lines: list[tuple[Entry | str, ...]] = []
    missing: dict[str, list[str]] = {}
    for environment in study.environments:
        instead, found = [], len(lines)
        for horizon, arm in itertools.product(study.horizons, evidence.arms(environment)):
            if reached := outcomes(evidence.cells(environment, arm.method, horizon)):
                rate = wilson(sum(reached), len(reached))
                lines.append(_line(evidence, environment, horizon, arm, rate))
                points.append(_point(study, environment, horizon, arm, rate))
            elif row := study.instead(environment, arm):
                instead.append(row)
            else:
                place = f"{arm.label} at H={horizon}" if len(study.horizons) > 1 else arm.label
                missing.setdefault(tables.environment_name(environment), []).append(place)
        lines += instead if len(lines) > found else []
    return lines, points, missing


def _left_in_words(missing: dict[str, list[str]]) -> str:
    """A sentence on the evaluations that are not there, by environment."""
    count = sum(map(len, missing.values()))
    places = "; ".join(f"{environment}: {', '.join(arms)}" for environment, arms in missing.items())
    return f" {count} evaluation{'s' * (count > 1)} of the study still to be run ({places})."


def _claim(evidence: Evidence) -> Claim:
    study, found = evidence.study, tuple(evidence.study.judge(evidence))
    return Claim(study.sentence, study.place, with_tests(study.rule, study.tests(evidence, found)), found)


def _begun_in(evidence: Evidence) -> list[str]:
    """The environments of which more than the reference is recorded: alone it answers nothing."""
    study = evidence.study
    return [
        environment
        for environment in study.environments
        if any(
            _is_studys_own(study, arm) and evidence.cells(environment, arm.method, horizon)
            for horizon in study.horizons
            for arm in study.arms(environment)
        )
    ]


def _is_studys_own(study: Study, arm: Arm) -> bool:
    """Whether the arm says more than the tables of the shipped models do."""
    return arm.method not in _SHIPPED or study.name == "horizon"


def _line(evidence: Evidence, environment: str, horizon: int, arm: Arm, rate: Rate) -> tuple[Entry | str, ...]:
    reference = evidence.study.reference(environment)
    other = None if arm.method == reference else evidence.difference(environment, arm.method, reference, horizon)
    return (
        tables.environment_name(environment),
        *([str(horizon)] if len(evidence.study.horizons) > 1 else []),
        arm.label,
        Entry(f"{rate.percent:.1f}", strong=True),
        tables.reached(rate),
        tables.interval(rate),
        NONE if other is None else difference_text(other),
        *evidence.study.more_of(evidence, environment, arm, horizon),
    )


def _point(study: Study, environment: str, horizon: int, arm: Arm, rate: Rate) -> Point:
    label, series = (f"H={horizon}", arm.label) if len(study.horizons) > 1 else (arm.label, "")
    where, low, high = tables.environment_name(environment), 100 * rate.low, 100 * rate.high
    return Point(where, label, arm.family, rate.percent, low, high, series, arm.is_control)


def not_begun(findings: Findings, reports: Sequence[StudyReport]) -> list[str]:
    """Studies without a record of their own."""
    begun = {report.name for report in reports} | ({"efficiency"} if findings.efficiency else set())
    return [name for name in ("efficiency", *(study.name for study in STUDIES)) if name not in begun]


def efficiency(findings: Findings) -> Table | None:
    """Table 2: what both predictors cost."""
    record = findings.efficiency
    if record is None:
        return None
    rows = tuple(
        (
            tables.method_title(cost.model),
            f"{cost.parameters:,}",
            f"{cost.forward_ms:.2f}",
            f"{cost.one_step_iterations:.2f}",
            f"{cost.rollout_iterations:.2f}",
            f"{cost.planning_seconds:.1f}",
            " / ".join(map(str, paper_figures.EFFICIENCY[cost.model])),
        )
        for cost in record.predictors
    )
    header = ("predictor", "parameters", "forward ms", "one-step it/s", "rollout it/s", "planning s", "the same †")
    note = f"LeWM over SALT: {', '.join(_ratios(record))}. {record.how} Study `efficiency`."
    return Table("Efficiency (Table 2)", header, rows, note)


def _ratios(record: Efficiency) -> list[str]:
    by_model = {cost.model: cost for cost in record.predictors}
    salt, lewm = by_model["salt"], by_model["lewm"]
    return [
        f"parameters {lewm.parameters / salt.parameters:.1f}",
        f"forward {lewm.forward_ms / salt.forward_ms:.1f}",
        f"planning {lewm.planning_seconds / salt.planning_seconds:.1f}",
    ]

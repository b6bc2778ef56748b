"""What a study is judged by: its arms, their evaluations and diagnoses, and paired tests between them."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from saltwm.disk.records import Cell, Diagnosis, Evaluation
from saltwm.evaluation import lineup
from saltwm.evaluation.contests import is_blind_with, outcomes
from saltwm.evaluation.paired import NOTHING_SHOWN, PairedDifference, holm, paired_difference
from saltwm.evaluation.statistics import ALPHA
from saltwm.report import tables
from saltwm.report.claims import Finding, Verdict
from saltwm.report.findings import Findings, Run
from saltwm.report.table import Entry


@dataclass(frozen=True)
class Arm:
    """One variant of a study: its name in evaluations and on the figure's axis."""

    method: str
    label: str
    family: str = "salt"
    """salt or lewm: the colour."""
    is_control: bool = False
    """Beside what the claim is judged by."""


@dataclass(frozen=True)
class Study:
    """How a study is read: arms by environment, each compared with SALT, and the rule."""

    name: str
    title: str
    place: str
    environments: tuple[str, ...]
    arms: Callable[[str], tuple[Arm, ...]]
    sentence: str
    rule: str
    judge: Callable[["Evidence"], list[Finding]]
    tests: Callable[["Evidence", Sequence[Finding]], int] = lambda evidence, found: 0
    """How many tests the rule makes, where it does not say it itself."""
    protocol: str = "clean"
    horizons: tuple[int, ...] = (5,)
    reference: Callable[[str], str] = lambda environment: "salt"
    """The method that every row is compared with."""
    more: tuple[str, ...] = ()
    """Columns beyond those of every study."""
    more_of: Callable[["Evidence", str, Arm, int], tuple[Entry | str, ...]] = lambda evidence, where, arm, horizon: ()
    note: str = ""
    """What these columns mean."""
    more_arms: Callable[["Evidence", str], dict[Arm, Arm]] = lambda evidence, environment: {}
    """Arms that follow from the records, each by the arm that it stands below."""
    pooled: Callable[["Evidence"], list[tuple[Entry | str, ...]]] = lambda evidence: []
    """Rows below all others that take some of them together."""
    instead: Callable[[str, Arm], tuple[Entry | str, ...] | None] = lambda environment, arm: None
    """The row of an arm that cannot be evaluated yet."""
    sentences: Callable[["Evidence"], tuple[str, ...]] = lambda evidence: ()
    """What the table says."""


@dataclass(frozen=True)
class Evidence:
    """The cells and diagnoses of a study."""

    study: Study
    findings: Findings

    def arms(self, environment: str) -> tuple[Arm, ...]:
        """Those of the study, and those that follow from the records."""
        more = self.study.more_arms(self, environment)
        return tuple(one for arm in self.study.arms(environment) for one in (arm, more.get(arm)) if one is not None)

    def cells(self, environment: str, method: str, horizon: int = 5) -> list[Cell]:
        """Cells of all task seeds, in their order; those whose records say that they are what the name says."""
        found = [
            cell
            for cell in self.findings.cells
            if (cell.evaluation.environment, cell.evaluation.method) == (environment, method)
            and (cell.evaluation.protocol, cell.evaluation.horizon_blocks) == (self.study.protocol, horizon)
            and _is_as_named(cell.evaluation)
        ]
        return sorted(found, key=lambda cell: cell.evaluation.seed)

    def shared(
        self, environment: str, a: str, b: str, horizon: int = 5
    ) -> tuple[list[bool], list[bool], list[tuple[str, int]]]:
        """Outcomes of both on the tasks that both have, in one order, and these tasks."""
        ours, theirs = (
            {cell.evaluation.tasks_sha256: cell for cell in self.cells(environment, m, horizon)} for m in (a, b)
        )
        both = [tasks for tasks in ours if tasks in theirs]
        names = [(tasks, episode.task) for tasks in both for episode in ours[tasks].episodes]
        return outcomes(ours[tasks] for tasks in both), outcomes(theirs[tasks] for tasks in both), names

    def difference(self, environment: str, a: str, b: str, horizon: int = 5) -> PairedDifference | None:
        """a against b on the tasks that both have."""
        a_won, b_won, tasks = self.shared(environment, a, b, horizon)
        return paired_difference(a_won, b_won, tasks=tasks) if a_won else None

    def diagnosis(self, environment: str, method: str) -> Diagnosis | None:
        """The diagnosis of the run that was evaluated under that name."""
        return next((run.diagnosis for run in self.runs(environment, method) if run.diagnosis), None)

    def runs(self, environment: str, method: str) -> list[Run]:
        """What was recorded of the run that was evaluated under that name."""
        names = {tables.run_name(cell.evaluation) for cell in self.cells(environment, method)}
        return [run for run in self.findings.runs if run.name in names and run.environment == environment]


_PLANNER = re.compile(r".+?-(map|cem-map|prior)(-history\d+)?", re.ASCII)


def _is_as_named(evaluation: Evaluation) -> bool:
    """Whether a record is of the model and the planner that its name says, blind; CEM as the paper runs it."""
    named = _PLANNER.fullmatch(evaluation.method)
    return is_blind_with(named[1] if named else "cem", evaluation) and lineup.is_as_named(evaluation)


# --- paired tests ----------------------------------------------------------------------------------------------------


def difference_text(d: PairedDifference, corrected: float | None = None) -> str:
    """A difference with its interval, its p and Holm's."""
    text = f"{d.difference:+.1f} points ({d.low:+.1f} to {d.high:+.1f}), p {tables.p_value(d.p)}"
    return text if corrected is None else f"{text}, Holm {tables.p_value(corrected)}"


def tested(
    evidence: Evidence, pairs: Iterable[tuple[str, str, str, int, str]]
) -> list[tuple[str, str, PairedDifference, float]]:
    """Environment, condition, difference and corrected p of each (environment, a, b, horizon, words) that is there."""
    found = [(e, words, evidence.difference(e, a, b, h)) for e, a, b, h, words in pairs]
    there = [(e, words, d) for e, words, d in found if d is not None]
    corrected = holm([d.p for _, _, d in there])
    return [(e, words, d, p) for (e, words, d), p in zip(there, corrected, strict=True)]


def judged(evidence: Evidence, pairs: Iterable[tuple[str, str, str, int, str]]) -> list[Finding]:
    """Whether a is better than b, for each pair that is there, by Holm's p."""
    return [Finding(e, words, difference_text(d, p), decided(d, p)) for e, words, d, p in tested(evidence, pairs)]


def decided(d: PairedDifference, corrected: float) -> Verdict:
    """A difference above zero holds, below it does not hold, and neither is shown at a corrected p >= 0.05."""
    if corrected >= ALPHA or d.verdict == NOTHING_SHOWN:
        return "not shown"
    return "holds" if d.verdict == "better" else "does not hold"

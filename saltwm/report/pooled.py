"""Rows below a study's table that take others together: means over environments, and over training seeds."""

from collections.abc import Sequence

import numpy as np

from saltwm.evaluation.contests import outcomes
from saltwm.evaluation.statistics import over_seeds, over_tasks
from saltwm.report import paper_figures, tables
from saltwm.report.evidence import Arm, Evidence
from saltwm.report.table import NONE, Entry

COLUMNS = ("paper †",)
"""Beyond those of every study."""


def no_column(evidence: Evidence, environment: str, arm: Arm, horizon: int) -> tuple[Entry | str, ...]:
    """The paper has means alone."""
    return (NONE,)


def over_environments(evidence: Evidence) -> list[tuple[Entry | str, ...]]:
    """The equal-weight mean of each arm that has all environments, beside the paper's (Table 3)."""
    environments = evidence.study.environments
    rows: list[tuple[Entry | str, ...]] = []
    for arms in zip(*map(evidence.study.arms, environments), strict=True):
        of_each = [outcomes(evidence.cells(e, arm.method)) for e, arm in zip(environments, arms, strict=True)]
        if all(of_each):
            label = arms[0].label
            mean = Entry(f"{np.mean([100 * np.mean(reached) for reached in of_each]):g}", strong=True)
            published = f"{paper_figures.OBJECTIVE[label]:.1f}"
            rows.append((f"mean of {len(environments)}", label, mean, NONE, NONE, NONE, published))
    return rows


def over_training_seeds(evidence: Evidence) -> list[tuple[Entry | str, ...]]:
    """SALT and LeWM over their training seeds where all are there, and with them Random, which has no training."""
    rows: list[tuple[Entry | str, ...]] = []
    for environment in evidence.study.environments:
        arms = evidence.study.arms(environment)
        groups = {name: [arm for arm in arms if arm.family == name] for name in ("salt", "lewm")}
        models = [row for name, group in groups.items() for row in _over_seeds(evidence, environment, name, group)]
        random = _over_seeds(evidence, environment, "random", [Arm("random", "Random")])
        rows += [*models, *random] if models else []
    return rows


def _over_seeds(evidence: Evidence, environment: str, name: str, arms: Sequence[Arm]) -> list[tuple[Entry | str, ...]]:
    """One row: mean and sample deviation of the seeds' rates, counts, and the interval over tasks."""
    of_each = [outcomes(evidence.cells(environment, arm.method)) for arm in arms]
    if not all(of_each) or len(set(map(len, of_each))) > 1:
        return []
    together = over_seeds([100 * float(np.mean(reached)) for reached in of_each])
    rate = over_tasks(sum(map(sum, of_each)), sum(map(len, of_each)), len(of_each[0]))
    several = together.std is not None
    published = [str(paper_figures.SUCCESS[environment, name])] if evidence.study.more == COLUMNS else []
    row: tuple[Entry | str, ...] = (
        tables.environment_name(environment),
        tables.METHOD_NAMES[name] + (f", mean of {len(arms)} seeds" if several else ""),
        Entry(f"{together.mean:.1f}" + (f" ± {together.std:.1f}" if several else ""), strong=True),
        tables.reached(rate),
        tables.interval(rate),
        NONE,
        *published,
    )
    return [row]

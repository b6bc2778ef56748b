"""The tables of a results folder, each built once; a document and a page show the same ones.

The paper's comparison is of plain CEM, blind and without a prior. Other planners, priors and closed loops are compared
in a table of their own ("search"), and models that depart from their recipe in another ("variants").
"""

import math
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

from saltwm.disk.records import Cell, Diagnosis, Evaluation, OfRun
from saltwm.evaluation.anatomy import Failure
from saltwm.evaluation.contests import (
    Comparison,
    compare_shared,
    contest_of,
    family,
    is_blind_cem,
    learnt_by,
    training_seed,
)
from saltwm.evaluation.paired import holm
from saltwm.report import paper_figures, tables
from saltwm.report.claims import BY_TASK, Claim, name_in_the_paper
from saltwm.report.elements import ELEMENTS
from saltwm.report.findings import Findings, Run
from saltwm.report.paper_figures import FOUR
from saltwm.report.table import NONE, Entry, Table, table
from saltwm.report.tables import PooledRow

STEPS_SHOWN = (1, 5, 10, 20)
THRESHOLDS = (3.0, 5.0, 10.0)
"""Thresholds of the ratio r: the paper's 5 and two others, to see what hangs on it."""
LOOKED_ON = (
    "Methods that look before a plan is at its end are left out, for c is defined after the whole plan (App. D.1); "
    "what they reached stands with their rates. "
)
NOT_RUN = "not run yet"
FEWER_SEEDS = "A row names its seeds where other methods have more, and has no mean to set beside theirs. "
_TONES = {"better": "better", "worse": "worse", "holds": "better", "does not hold": "worse"}


def _verdict_cell(verdict: str) -> Entry:
    """A verdict in its colour."""
    return Entry(verdict, tone=_TONES.get(verdict, "open"))


# --- who is compared where -------------------------------------------------------------------------------------------


def _is_plain(evaluation: Evaluation) -> bool:
    """Whether it belongs to the paper's comparison: CEM as the paper runs it, blind, or a policy without a planner."""
    return is_blind_cem(evaluation) and not evaluation.departures


def is_papers(cell: Cell) -> bool:
    """Whether a model was evaluated as the paper does."""
    return _is_plain(cell.evaluation) and cell.evaluation.checkpoint_sha256 is not None


# --- success -----------------------------------------------------------------------------------------------------


def main_table(findings: Findings) -> Table | None:
    """Table 1: the four environments under `paper`, the mean over them, and the methods that the paper quotes."""
    rows = [row for row in findings.pooled if (row.protocol, row.horizon_blocks) == ("paper", 5)]
    lines: list[list[Entry | str]] = []
    for label in dict.fromkeys(row.label for row in rows if _is_plain(row.evaluation)):
        mine = {row.environment: row for row in rows if row.label == label}
        method = next(iter(mine.values())).method
        whole = [mine[name] for name in FOUR if name in mine and not mine[name].elsewhere]
        known = [row.percent for row in whole if row.percent is not None]
        mean = f"{sum(known) / len(FOUR):.1f}" if len(known) == len(FOUR) else NONE
        shown = [_percent_and_seeds(mine.get(name)) for name in FOUR]
        lines.append([Entry(label, mark=method), *(Entry(text, strong=text != NONE) for text in shown), mean])
    if not lines:
        return None
    for method in ("salt", "lewm", "random"):
        means = [paper_figures.SUCCESS[name, method] for name in FOUR]
        average = f"{paper_figures.AVERAGES[method]:.1f}"
        lines.append([f"{tables.METHOD_NAMES[method]} †", *map(str, means), average])
    for name, quoted in paper_figures.QUOTED.items():
        lines.append([f"{name} ‡", *(f"{value:g}" for value in quoted)])
    return table(
        "Planning success (the paper's Table 1)",
        ["method", *map(tables.environment_name, FOUR), "mean"],
        lines,
        "Percent of tasks under protocol `paper`, H=5: plain CEM, blind, from one frame where a row names no more. "
        "† the paper's own runs, LeWM from three frames (App. B.5). ‡ quoted by the paper from the literature, under "
        "other protocols and not run here.",
    )


def _percent_and_seeds(row: PooledRow | None) -> str:
    """A rate, with its seeds where other methods have more."""
    if row is None or row.percent is None:
        return NONE
    return f"{row.percent:.1f}" + (f" ({row.fewer_seeds})" if row.elsewhere else "")


def success(findings: Findings, protocol: str) -> Table | None:
    """The paper's comparison under one protocol."""
    rows = [row for row in findings.pooled if row.protocol == protocol and _is_plain(row.evaluation)]
    return table(
        f"Success, protocol `{protocol}`",
        ["environment", "H", "method", "percent", "reached", "interval", "over seeds", "training seeds",
         "median steps", "paper †"],
        (_success_row(findings, row) for row in rows),
        "Percent of all tasks, seeds pooled, with the Wilson interval over tasks; `over seeds` is the mean and sample "
        "deviation of the evaluation seeds' rates, as the paper prints it, `training seeds` that of the training "
        f"seeds' rates. {FEWER_SEEDS if any(row.elsewhere for row in rows) else ''}Median steps are over successful "
        "episodes.",
        ("method",),
        findings.commands(cell for row in rows for cell in row.cells),
    )  # fmt: skip


def _success_row(findings: Findings, row: PooledRow) -> list[Entry | str]:
    published = paper_figures.success(contest_of(row), _name_in_the_paper(findings, row))
    return [
        tables.environment_name(row.environment),
        str(row.horizon_blocks),
        Entry(row.label, mark=row.method),
        *rate_columns(row),
        over_evaluation_seeds(row),
        _training_spread(row),
        NONE if row.median_steps_to_success is None else f"{row.median_steps_to_success:g}",
        str(published or NONE),
    ]


def _name_in_the_paper(findings: Findings, row: PooledRow) -> str:
    """What the paper calls the method of a row; empty for what it does not have."""
    return name_in_the_paper(row.method, (other.method for other in findings.pooled if _meet(other, row)))


def _meet(row: PooledRow, other: PooledRow) -> bool:
    return contest_of(row) == contest_of(other)


def _who(row: PooledRow) -> list[Entry | str]:
    """Environment, protocol with horizon, and method."""
    return [
        tables.environment_name(row.environment),
        tables.protocol_name(row),
        Entry(row.label, mark=row.method),
    ]


def rate_columns(row: PooledRow) -> list[Entry | str]:
    """Percent, counts with the seeds where other methods have more, and interval."""
    rate = row.rate
    if rate is None:
        return [f"seed {', '.join(map(str, row.missing))} missing", NONE, NONE]
    drawn = (100 * rate.low, rate.percent, 100 * rate.high)
    percent = Entry(f"{rate.percent:.1f}", strong=True, mark=row.method, interval=drawn)
    counts = ", ".join(filter(None, (tables.reached(rate), row.fewer_seeds)))
    return [percent, counts, tables.interval(rate)]


def over_evaluation_seeds(row: PooledRow) -> str:
    """Mean and deviation of their rates, as the paper prints it."""
    return NONE if row.mean is None else f"{row.mean:.1f} ± {row.std:.1f}"


def _training_spread(row: PooledRow) -> str:
    if row.over_training is None:
        return str(len(row.training_seeds)) if row.training_seeds else NONE
    return f"{row.over_training.mean:.1f} ± {row.over_training.std:.1f} over {row.over_training.seeds}"


def variants(findings: Findings) -> Table | None:
    """Models that depart from their recipe: ablations and sweeps, never called by the model's name alone."""
    rows = [row for row in findings.pooled if row.evaluation.departures]
    return table(
        "Variants",
        ["environment", "under", "method", "percent", "reached", "interval", "training seeds"],
        (
            [*_who(row), *rate_columns(row), _training_spread(row)]
            for row in rows
        ),
        "Models that depart from the recipe of their environment, as `Studies` judges them.",
        ("under", "method"),
        findings.commands(cell for row in rows for cell in row.cells),
    )  # fmt: skip


def search(findings: Findings) -> Table | None:
    """What finds the plan: priors, planners and closed loops, each against plain blind CEM with the same model."""
    rows = [row for row in findings.pooled if not row.evaluation.departures]
    contests = {_contest(row) for row in rows if not _is_plain(row.evaluation)}
    shown = [row for row in rows if _contest(row) in contests]
    tests = [_against_plain(row, shown) for row in shown]
    corrected = iter(holm([test.p for test in tests if test]))
    columns = [*_FOUND, *(_TESTED if any(tests) else ())]  # a folder without plain CEM has nothing to test against
    lines = [_search_row(row, test, next(corrected) if test else None) for row, test in zip(shown, tests, strict=True)]
    return table(
        "Search",
        columns,
        [line[: len(columns)] for line in lines],
        _searched_in_words(sum(test is not None for test in tests)) + _seen_by_priors(findings, shown),
        ("under", "method", "looks"),
        findings.commands(cell for row in shown for cell in row.cells),
    )


_FOUND = ("environment", "under", "method", "looks", "percent", "reached", "interval", "seconds a task")
_TESTED = ("against blind CEM", "p", "Holm")


def _searched_in_words(tests: int) -> str:
    """What the table of searches holds; of the tests only where there are some."""
    how = (
        ", each against plain blind CEM with the same model on the same tasks (exact McNemar test, tasks paired inside "
        f"training seeds, {BY_TASK})"
    )
    return (
        f"Not the paper's comparison: other planners, action priors and closed loops{how if tests else ''}. Amortised "
        "imitation is the action prior alone: it plans nothing and repeats what the data's policy would do."
        + (f" {tests} tests; Holm's p is for all of them together." if tests else "")
    )


def _seen_by_priors(findings: Findings, rows: Sequence[PooledRow]) -> str:
    """A sentence on the protocols whose tasks come from the very data that a row's action prior was learnt on."""
    data = {run.name: run.training.dataset_sha256 for run in findings.runs if run.training}
    seen = dict.fromkeys(
        row.protocol
        for row in rows
        for e in (cell.evaluation for cell in row.cells)
        if e.prior_sha256 and (tasks := findings.task_sets.get(e.tasks_sha256)) and not tasks.protocol.held_out
        if tasks.dataset_sha256 == data.get(tables.run_name(e) or "")
    )
    if not seen:
        return ""
    return (
        f" Tasks of {' and '.join(f'`{name}`' for name in seen)} were drawn from the data that the action priors were "
        "learnt on, training episodes included: a prior may have seen the very actions that lead to their goals."
    )


def _contest(row: PooledRow) -> tuple[object, ...]:
    """Where a row stands, and the model that plans."""
    return tables.contest_order(row), family(row.evaluation)


def _against_plain(row: PooledRow, rows: Sequence[PooledRow]) -> Comparison | None:
    """The row against plain CEM with the same model; none for that row itself, or where it was not run."""
    for other in rows:
        mine, theirs = (
            (tables.contest_order(e), family(e), learnt_by(e), e.history_frames)
            for e in (row.evaluation, other.evaluation)
        )
        if mine == theirs and _is_plain(other.evaluation) and other is not row:
            return compare_shared(row.cells, other.cells)
    return None


def _search_row(row: PooledRow, test: Comparison | None, corrected: float | None) -> list[Entry | str]:
    e = row.evaluation
    seconds = sum(cell.evaluation.seconds for cell in row.cells) / sum(len(cell.episodes) for cell in row.cells)
    return [
        *_who(row),
        tables.looks(e.look_every),
        *rate_columns(row),
        f"{seconds:.2g}",
        NONE if test is None else f"{test.difference:+.1f} ({test.low:+.1f} to {test.high:+.1f})",
        NONE if test is None else tables.p_value(test.p),
        NONE if corrected is None else tables.p_value(corrected),
    ]


def paired(findings: Findings) -> Table | None:
    """The tests of the paper's comparison."""
    plain_cells = {cell.name for cell in findings.cells if _is_plain(cell.evaluation)}
    tests = [c for c in findings.comparisons if plain_cells.issuperset((*c.cells_a, *c.cells_b))]
    tests.sort(key=tables.contest_order)
    labels = tables.method_labels(findings.cells)
    return table(
        "Paired comparisons",
        ["environment", "under", "methods", "verdict", "points", "interval", "p", "Holm",
         "both / first / second / none", "by training seed"],
        (
            [
                tables.environment_name(c.environment),
                tables.protocol_name(c),
                f"{labels[c.cells_a[0]]} against {labels[c.cells_b[0]]}",
                _verdict_cell(c.verdict),
                f"{c.difference:+.1f}",
                f"{c.low:+.1f} to {c.high:+.1f}",
                tables.p_value(c.p),
                tables.p_value(corrected),
                f"{c.both} / {c.only_a} / {c.only_b} / {c.neither}",
                ", ".join(f"{points:+.1f}" for points in c.by_training_seed) if len(c.by_training_seed) > 1 else NONE,
            ]
            for c, corrected in zip(tests, holm([c.p for c in tests]), strict=True)
        ),
        f"On the same tasks, paired inside training seeds: exact two-sided McNemar test, {BY_TASK}, bootstrap interval "
        f"of the difference over tasks. {len(tests)} tests; p is of one, Holm's for all of them together; the verdict "
        "needs p and the interval, and of several training seeds the same sign and Student's interval of their mean.",
        ("under", "methods", "verdict"),
    )  # fmt: skip


# --- claims --------------------------------------------------------------------------------------------------------


def claims_overview(judged: Sequence[Claim]) -> Table | None:
    """Claims by environments."""
    environments = sorted({f.environment for claim in judged for f in claim.findings}, key=tables.environment_order)
    if not environments:
        return None
    return table(
        "Which of the paper's claims hold here",
        ["claim", *map(tables.environment_name, environments)],
        ([claim.sentence, *(_verdicts(claim, environment) for environment in environments)] for claim in judged),
        f"Computed from the records, each by the rule named with it (`saltwm/report/claims.py`).{_interface(judged)}",
        tuple(map(tables.environment_name, environments)),
    )


def _interface(judged: Sequence[Claim]) -> str:
    """A sentence on the protocols in which LeWM was not planned with as the paper does."""
    found = [f for claim in judged for f in claim.findings if f.one_frame]
    protocols = dict.fromkeys(f"`{f.condition.partition(',')[0]}`" for f in found)
    if not protocols:
        return ""
    return (
        f" Under {' and '.join(protocols)} LeWM planned with one frame, as the authors' code does; the paper's "
        "interface has three (App. B.5)."
    )


def _verdicts(claim: Claim, environment: str) -> Entry:
    mine = [f for f in claim.findings if f.environment == environment]
    if len({f.verdict for f in mine}) > 1:
        return Entry("; ".join(f"{f.condition}: {f.verdict}" for f in mine), tone="open")
    return _verdict_cell(mine[0].verdict if mine else "not measured")


def claim_table(claim: Claim) -> Table | None:
    """What was measured about one claim."""
    return table(
        "",
        ["environment", "under", "measured", "verdict"],
        (
            [tables.environment_name(f.environment), f.condition or NONE, f.measured, _verdict_cell(f.verdict)]
            for f in claim.findings
        ),
        words=("under", "measured", "verdict"),
    )


# --- diagnostics -------------------------------------------------------------------------------------------------


def _diagnosed(findings: Findings) -> list[tuple[Run, Diagnosis]]:
    """Runs with their diagnoses, by environment, method and name."""
    runs = [(run, run.diagnosis) for run in findings.runs if run.diagnosis]

    def place(item: tuple[Run, Diagnosis]) -> tuple[object, ...]:
        run, d = item
        return tables.environment_order(d.environment), tables.method_order(d.method), run.name

    return sorted(runs, key=place)


def _model(run: Run, record: OfRun) -> list[Entry | str]:
    """Environment, run, and the model with what it departs in, or with its objective."""
    d = run.diagnosis
    variant = d.variant if d else None
    departures = variant.departures if variant else ()
    words = [tables.model_title(record.method, variant), *(departures or (record.objective,))]
    return [tables.environment_name(record.environment), run.name, Entry(", ".join(words), mark=record.method)]


def propagation(findings: Findings) -> Table | None:
    """Errors and their propagation, a row per run."""
    runs = _diagnosed(findings)
    shown = [k for k in STEPS_SHOWN if any(len(d.rollout_error) >= k for _, d in runs)]
    steps = " / ".join(map(str, shown))
    return table(
        "Errors and their propagation",
        ["environment", "run", "model", "frames", "one-step error", f"rollout error, k = {steps}",
         f"norm, k = {steps}", "growth of norm", "rho at H = 5 / the end", "rho, whole history", "spread of Jacobian",
         "effective rank"],
        (
            [
                *_model(run, d),
                str(d.history),
                f"{d.one_step_error:.3f}",
                _at(d.rollout_error, shown),
                _at(d.propagation_norm, shown),
                _ratio(d.propagation_norm),
                _rho_at(d.rho),
                _rho_at(d.augmented_rho) if d.history > 1 else "the same",
                f"{run.probes.jacobian_spread:.1e}" if run.probes and run.probes.states else NONE,
                f"{d.effective_rank:.1f}",
            ]
            for run, d in runs
        ),
        f"One-step error of SALT over LeWM: {'; '.join(_one_step_ratios(findings)) or 'not measured'}; † "
        "{} to {}. ".format(*paper_figures.ONE_STEP_RATIO)
        + "Errors are relative to the spread of the model's own latents, on held-out episodes, where the paper samples "
        "its training set (App. C.1). Rollouts start from as many frames as `frames` says. Norm is the geometric mean "
        "of the spectral norm of Phi_{0->k}. Rho takes the "
        "Jacobian by the latest latent as the paper does, or by the whole history. Spread of Jacobian is how much its "
        "largest singular value varies over states, relative to its mean, for fixed actions.",
        ("run", "model"),
        [findings.again([findings.results / "diagnostics" / run.name for run, _ in runs])] if findings.again else [],
    )  # fmt: skip


def _one_step_ratios(findings: Findings) -> list[str]:
    """SALT's one-step error over LeWM's, by environment."""
    ratios = []
    for environment in dict.fromkeys(d.environment for _, d in _diagnosed(findings)):
        salt, lewm = (findings.papers_run(environment, method) for method in ("salt", "lewm"))
        if salt and lewm and salt.diagnosis and lewm.diagnosis and lewm.diagnosis.one_step_error > 0:
            ratio = salt.diagnosis.one_step_error / lewm.diagnosis.one_step_error
            ratios.append(f"{tables.environment_name(environment)} {ratio:.2f}")
    return ratios


def residuals(findings: Findings) -> Table | None:
    """The residual of eq. 3 and its bound."""
    return table(
        "The residual r_t (eq. 3) and its bound (Proposition 1)",
        ["environment", "run", "r, latest latent", "r, whole history", "bound L/2 e²", "L", "within the bound",
         "measurements, trajectories"],
        (
            [
                tables.environment_name(d.environment),
                run.name,
                _largest(d.residual),
                _largest(d.augmented_residual),
                _largest(d.residual_bound),
                f"{d.lipschitz:.2g}",
                f"{100 * d.residual_within_bound:.1f} %",
                f"{len(d.windows)} of {', '.join(map(str, dict.fromkeys(d.windows)))} blocks, {d.trajectories}",
            ]
            for run, d in _diagnosed(findings)
            if d.lipschitz is not None and d.residual_within_bound is not None
        ),
        "Largest over the steps of the mean residual, relative to the spread of the latents. L is the fastest change "
        "of the Jacobian that was found between true and predicted histories of one measurement, a lower bound of the "
        "proposition's constant. The bound's e is the error of the whole history; L and the share are of one "
        "measurement, so the share is nearly sure to be 100 %.",
        ("run",),
    )  # fmt: skip


def one_frame(findings: Findings) -> Table | None:
    """The control of a model that looks back."""
    runs = [(run, d, d.one_frame) for run, d in _diagnosed(findings) if d.one_frame]
    shown = [k for k in STEPS_SHOWN if any(len(d.rollout_error) >= k for _, d, _ in runs)]
    steps = " / ".join(map(str, shown))
    return table(
        "Control: rollouts of LeWM from one frame",
        ["environment", "run", f"rollout error, k = {steps}", "from one frame", "growth of norm", "from one frame"],
        (
            [
                tables.environment_name(d.environment),
                run.name,
                _at(d.rollout_error, shown),
                _at(one.rollout_error, shown),
                _ratio(d.propagation_norm),
                _ratio(one.propagation_norm),
            ]
            for run, d, one in runs
        ),
        "The paper starts them from the full window (App. C.1), as the tables above do.",
        ("run",),
    )


def probes(findings: Findings) -> Table | None:
    """What the latents know."""
    return table(
        "What the latents know",
        ["environment", "run", "model", "part of the state", "R²", "worst to best", "network", "control",
         "cost order", "frames"],
        (
            [
                *_model(run, p),
                probe.field,
                f"{probe.r2:.2f}",
                NONE if probe.worst == probe.best else f"{probe.worst:.2f} to {probe.best:.2f}",
                NONE if probe.network is None else f"{probe.network:.2f}",
                NONE if probe.network_control is None else f"{probe.network_control:.2f}",
                NONE if p.cost_order is None else f"{p.cost_order:.2f}",
                str(p.frames),
            ]
            for run, p in ((run, run.probes) for run, _ in _diagnosed(findings))
            if p
            for probe in p.fields
        ),
        "R² of each part of the state read linearly from z, on episodes the probes were not fitted on (angles as sine "
        "and cosine). Worst to best: that of its coordinates or joints. Network: that of a small network. Control: "
        "that of the network fitted to other frames. A low linear value says that the part is not there on a line, not "
        "that z does not know it. At 0 or below the fit does not carry over to other episodes. Cost order: Spearman's "
        "correlation of the planner's cost, the squared distance of two latents, with the environment's own distance, "
        "over pairs of frames of one held-out episode. Made by the same commands.",
        ("run", "model", "part of the state"),
    )  # fmt: skip


def training(findings: Findings) -> Table | None:
    """What was trained, on what, for how long."""
    return table(
        "Training",
        ["environment", "run", "model", "seed", "preset", "parameters", "steps", "batch", "time", "dataset"],
        (
            [
                *_model(run, t),
                str(t.variant.seed) if t.variant else NONE,
                t.preset,
                f"{t.parameters / 1e6:.2f} M",
                str(t.steps),
                str(t.batch_size),
                NONE if t.seconds is None else tables.duration(t.seconds),
                f"`{t.dataset_sha256[:12]}`",
            ]
            for run, t in ((run, run.training) for run, _ in _diagnosed(findings))
            if t
        ),
        "Wall time on the machine that trained them, all sessions together." + _where_cards_are(findings),
        ("run", "model", "preset", "dataset"),
    )


def _where_cards_are(findings: Findings) -> str:
    folder, own = findings.results / "cards", _not_shipped(findings)
    cards = {card.stem for card in folder.glob("*.md")}
    if not cards:
        return ""
    return (
        f" Of {len(own)} evaluated or diagnosed runs whose weights are not shipped, {len(own & cards)} have a card in "
        f"`{folder}`; of the others there are records alone."
    )


def _not_shipped(findings: Findings) -> set[str]:
    """Names of the runs whose records do not name weights in a checkout's checkpoints/."""
    places = [(tables.run_name(cell.evaluation), cell.evaluation.checkpoint) for cell in findings.cells]
    places += [(run.name, d.run) for run, d in _diagnosed(findings)]
    return {name for name, place in places if name and place and Path(place).parent != Path("checkpoints")}


# --- failures ------------------------------------------------------------------------------------------------------


def anatomy(findings: Findings) -> Table | None:
    """Failures by kind (Table 6), and how the mismatches depend on the threshold."""
    planned = [row for row in findings.pooled if row.rate is not None and row.method != "random"]
    rows = list(filter(has_whole_plans, planned))
    return table(
        "How episodes fail",
        ["environment", "under", "method", "episodes", "mismatch", "unflagged", "unclassified",
         f"r above {' / '.join(f'{r:g}' for r in THRESHOLDS)}", "median r", "paper †"],
        (_anatomy_row(findings, row) for row in rows),
        "Failures as shares of all episodes. ĉ is the mean elite cost at the last iteration of the first plan; c that "
        "at the first iteration of the second plan: the predicted end of a hardly optimised plan, made from what was "
        "then seen. Mismatch: r = c / ĉ is above 5. Unflagged: it is not. Unclassified: there was no second plan. c "
        "and ĉ come from different stages of a search, so r compares no physical distances. The paper chose "
        "5 in a gap of LeWM's ratios on Cube; the counts for 3, 5 and 10 show what hangs on it. "
        f"{LOOKED_ON if len(rows) < len(planned) else ''}† mismatch and unflagged.",
        ("under", "method"),
    )  # fmt: skip


def has_whole_plans(row: PooledRow) -> bool:
    """Whether each plan was carried out whole before the next look: only then r = c / c_hat is defined (App. D.1)."""
    return row.evaluation.look_every is None


def _anatomy_row(findings: Findings, row: PooledRow) -> list[Entry | str]:
    found = findings.anatomy_of(row.cells)
    rates, failures = (found.mismatch, found.unflagged, found.unclassified), found.failures
    place = row.environment, _name_in_the_paper(findings, row)
    published = paper_figures.ANATOMY.get(place) if row.protocol == "paper" else None
    ratios = [f.ratio for f in failures if f.ratio is not None]
    return [
        *_who(row),
        str(found.mismatch.n),
        *(f"{rate.successes} ({rate.percent:.1f} %)" for rate in rates),
        " / ".join(str(sum(_is_above(f, r) for f in failures)) for r in THRESHOLDS),
        f"{statistics.median(ratios):.1f}" if ratios else NONE,
        NONE if published is None else "{} and {} of {}".format(*published),
    ]


def _is_above(failure: Failure, threshold: float) -> bool:
    """Whether c > threshold * c_hat; a promised cost of zero is judged too."""
    predicted, observed = failure.predicted_cost, failure.observed_cost
    return predicted is not None and observed is not None and observed > threshold * predicted


def kinds(findings: Findings) -> Table | None:
    """Success by what the tasks ask for."""
    return table(
        "What the tasks ask for",
        ["environment", "under", "method", "reached"],
        (
            [
                *_who(row),
                ", ".join(f"{kind.kind} {kind.reached.successes}/{kind.reached.n}" for kind in of),
            ]
            for row in findings.pooled
            if row.rate and (of := findings.anatomy_of(row.cells).tasks)
        ),
        "Tasks by what lies between start and goal (`task_kinds` of each environment, docs/environments.md), and how "
        "many of each kind were reached.",
        ("under", "method", "reached"),
    )


# --- time and provenance -------------------------------------------------------------------------------------------


def evaluating(findings: Findings) -> Table | None:
    """How long evaluations took."""
    return table(
        "Evaluating",
        ["environment", "under", "method", "tasks", "time"],
        (
            [
                *_who(row),
                NONE if row.rate is None else str(row.rate.n),
                tables.duration(sum(cell.evaluation.seconds for cell in row.cells)),
            ]
            for row in findings.pooled
        ),
        "Wall time on the machine that evaluated them, all seeds together; other jobs may have shared it.",
        ("under", "method"),
    )


def stages(findings: Findings) -> Table | None:
    """How long a reproduction took."""
    total = sum(stage.seconds for stage in findings.stages)
    return table(
        "How long it took",
        ["environment", "step", "time", "sessions"],
        (
            [
                tables.environment_name(stage.environment),
                f"`{stage.command}`",
                tables.duration(stage.seconds) + ("" if stage.finished else ", unfinished"),
                str(stage.sessions),
            ]
            for stage in findings.stages
        ),
        f"From nothing: {tables.duration(total)} in all.",
        ("step",),
    )


def provenance(findings: Findings) -> Table | None:
    """What a person needs to repeat each evaluation, hashes in full."""
    labels = tables.method_labels(findings.cells)
    sets = findings.task_sets
    rows: list[list[Entry | str]] = []
    for e, name in ((cell.evaluation, cell.name) for cell in findings.cells):
        tasks = sets.get(e.tasks_sha256)
        seed = training_seed(e)
        rows.append(
            [
                tables.environment_name(e.environment),
                f"{e.protocol}, H={e.horizon_blocks}",
                labels[name],
                str(e.seed),
                NONE if seed is None else str(seed),
                _hash(tasks.dataset_sha256 if tasks else None),
                _hash(e.tasks_sha256),
                e.checkpoint or NONE,
                _hash(e.checkpoint_sha256),
                f"{e.seconds:.1f}",
                f"{len(tasks.tasks)} of {tasks.pairs_considered} looked at; {tasks.pairs_solved_at_start} solved at "
                f"the start, {tasks.pairs_too_near} too near"
                if tasks
                else "unknown",
            ]
        )
    header = ["environment", "protocol", "method", "seed", "training seed", "dataset", "task set", "run", "weights"]
    words = ("protocol", "method", "dataset", "task set", "run", "weights", "pairs")
    note = "First twelve digits of each SHA-256; the whole stands in the tooltip and in the JSON beside the results."
    return table("What was run", [*header, "seconds", "pairs"], rows, note, words)


# --- the paper, element by element -----------------------------------------------------------------------------------


def elements(findings: Findings) -> Table | None:
    """Every table and figure of the paper: where it stands here, and the command that makes it.

    Nothing where all worlds are users' own: the paper has no tables of them.
    """
    worlds = {run.environment for run in findings.runs} | {cell.evaluation.environment for cell in findings.cells}
    if not worlds & set(tables.ENVIRONMENT_NAMES):
        return None
    lines = []
    for element in ELEMENTS:
        done = element.there(findings)
        state = element.where if done else NOT_RUN
        lines.append([element.name, element.what, state, element.paper, f"`{element.command}`"])
    return table(
        "The paper's tables and figures",
        ["paper", "what", "here", "paper †", "made by"],
        lines,
        f"`{NOT_RUN}`: there are no records of it, and the command makes them.",
        ("what", "here", "paper †", "made by"),
    )


def transition_parameters(findings: Findings) -> Table | None:
    """Table 5: what the transition stores; ours as it was counted for Table 2."""
    costs = findings.efficiency.predictors if findings.efficiency else ()
    ours = next((cost.parameters for cost in costs if cost.model == "salt"), None)
    if ours is None:
        return None
    parts = paper_figures.TRANSITION
    lines = [
        [what, symbol, " x ".join(map(str, shape)), f"{math.prod(shape):,}", start]
        for symbol, (what, shape, start) in parts.items()
    ]
    total = paper_figures.transition_parameters()
    return table(
        "Parameters of the transition (Table 5)",
        ["component", "symbol", "shape", "parameters †", "initialisation †"],
        [*lines, ["total", NONE, NONE, f"{total:,}", NONE]],
        f"d = 192, R = 16. Ours stores {ours:,}; a test compares each part (`tests/model/test_affine.py`).",
        ("component", "symbol", "initialisation †"),
    )


# --- parts -----------------------------------------------------------------------------------------------------------


def _hash(sha256: str | None) -> Entry:
    return Entry(sha256[:12] if sha256 else NONE, title=sha256 or "")


def _largest(values: Sequence[float]) -> str:
    return f"{max(values):.1e}" if values else NONE


def _rho_at(rho: Sequence[float]) -> str:
    return f"{rho[4]:.1e} / {rho[-1]:.1e}" if len(rho) >= 5 else f"- / {rho[-1]:.1e}" if rho else NONE


def _at(values: Sequence[float], steps: Iterable[int]) -> str:
    return " / ".join(f"{values[k - 1]:.2f}" if k <= len(values) else NONE for k in steps)


def _ratio(values: Sequence[float]) -> str:
    return f"{values[-1] / values[0]:.2f}" if values and values[0] > 0 else NONE

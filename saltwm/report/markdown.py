"""The records as a document: docs/results.md and the README's table, with the command that repeats each figure.

Nothing here depends on a clock or a machine, so the same records give the same text and `--check` can compare.
"""

import re
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

from saltwm.disk import durable
from saltwm.disk.records import Cell, Diagnosis
from saltwm.ground.errors import MismatchError, UsageError
from saltwm.report import paper_figures, tables
from saltwm.report.claims import Claim, claims, comparison_order
from saltwm.report.commands import AGAIN, HOW_TO_COMPARE, evaluation_commands
from saltwm.report.findings import Findings, Run, read_findings
from saltwm.report.tables import PooledRow

BEGIN, END = "<!-- results: made by `saltwm results`, do not edit -->", "<!-- end of results -->"
DOCUMENT = Path("docs/results.md")
"""Where the document goes if nothing else is said."""
STEPS_SHOWN = (1, 5, 10, 20)
_NONE = "-"


def write_results(results: Path, out: Path | None, readme: Path | None) -> list[Path]:
    """Write the document, and the table into the README if one is named; returns what was written."""
    written = []
    for path, text in _texts(results, _document_path(results, out), readme):
        durable.make_folder(path.parent)
        durable.write_text(path, text)
        written.append(path)
    return written


def check_results(results: Path, out: Path | None, readme: Path | None) -> list[Path]:
    """MismatchError if a file is not what the records give; returns what was looked at."""
    checked = []
    out = out or DOCUMENT
    for path, text in _texts(results, out, readme):
        if not path.exists() or durable.read_text(path) != text:
            again = _command(results, out, readme)
            raise MismatchError(f"{path}: not what the records in {results} give; write it again with: {again}")
        checked.append(path)
    return checked


def _document_path(results: Path, out: Path | None) -> Path:
    """The named document, or the usual one; UsageError if that one tells of other records."""
    if out is not None:
        return out
    origin = f"Made from the records in `{results}` by"
    if DOCUMENT.exists() and origin not in durable.read_text(DOCUMENT):
        raise UsageError(f"{DOCUMENT}: not made from the records in {results}; name another document with --out FILE")
    return DOCUMENT


def _texts(results: Path, out: Path, readme: Path | None) -> list[tuple[Path, str]]:
    findings = read_findings(results)
    texts = [(Path(out), document(findings, _command(results, out, readme)))]
    if readme is not None:
        texts.append((Path(readme), with_table(durable.read_text(Path(readme)), readme_table(findings), readme)))
    return texts


def _command(results: Path, out: Path, readme: Path | None) -> str:
    words = ["saltwm", "results", results, "--out", out, *(["--readme", readme] if readme else [])]
    return shlex.join(map(str, words))


def with_table(text: str, table: str, path: Path) -> str:
    """The text with what stands between the two markers replaced."""
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise UsageError(f"{path}: expected one line {BEGIN} and after it one line {END}, to put the table between")
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{table}\n{END}{after}"


# --- the document --------------------------------------------------------------------------------------------------


def document(findings: Findings, command: str) -> str:
    """All of docs/results.md; `command` is what makes it."""
    rows = tables.pooled_rows(findings.cells, findings.planned)
    parts = [
        "# Results",
        f"Made from the records in `{findings.results}` by `{command}`, not by hand; its `--check` says whether this "
        f"is up to date. Columns marked † are {paper_figures.WHAT_IT_IS}. Intervals are 95 %; a difference is claimed "
        "only where the exact paired test has p < 0.05, uncorrected for the number of tests. They speak of tasks and "
        "evaluation seeds; what another training seed would change is not in them. H is the number of action blocks "
        "that are planned, and carried out before the next look. " + HOW_TO_COMPARE,
        *(f"> Unfinished: {_escaped(note)}" for note in findings.unfinished),
        *_claims(claims(findings)),
        *_success(findings, rows),
        *_comparisons(findings),
        *_errors(findings),
        *_probes(findings),
        *_anatomy(findings),
        *_kinds(findings),
        *_training(findings),
        *_evaluating(findings),
        *_stages(findings),
    ]
    return "\n\n".join(parts) + "\n"


def readme_table(findings: Findings) -> str:
    """Success by environment and protocol, the methods of the paper side by side with the paper's figures."""
    rows = [row for row in tables.pooled_rows(findings.cells, findings.planned) if row.protocol in ("paper", "clean")]
    rows.sort(key=_row_order)
    methods = ("salt", "lewm", "random")
    names = [tables.METHOD_NAMES[method] for method in methods]
    lines = []
    for contest in dict.fromkeys((row.environment, row.protocol, row.horizon_blocks) for row in rows):
        here = [row for row in rows if (row.environment, row.protocol, row.horizon_blocks) == contest]
        by_method = {row.method: row for row in here if row.label == tables.METHOD_NAMES.get(row.method)}
        published = [paper_figures.success(*contest, method) for method in methods]
        lines.append(
            [
                tables.environment_name(contest[0]),
                contest[1],
                *(_rate_with_interval(by_method.get(method)) for method in methods),
                " / ".join(f"{rate.mean:.1f}" for rate in published if rate) or _NONE,
            ]
        )
    return table(["environment", "protocol", *names, f"{' / '.join(names)} †"], lines) + (
        "\n\nTasks reached in percent, with counts and 95 % Wilson intervals; several evaluation seeds are pooled.\n"
        f"† {paper_figures.WHAT_IT_IS}."
    )


def _claims(judged: Sequence[Claim]) -> list[str]:
    environments = sorted({f.environment for claim in judged for f in claim.findings}, key=tables.environment_order)
    if not environments:
        return []
    overview = [[claim.sentence, *(_verdicts(claim, environment) for environment in environments)] for claim in judged]
    parts = [
        "## Which of the paper's claims hold here",
        "Computed from the records, each by the rule named with it (`saltwm/report/claims.py`).",
        table(["claim", *map(tables.environment_name, environments)], overview),
    ]
    for claim in judged:
        lines = [
            [tables.environment_name(f.environment), f.condition or _NONE, f.measured, f.verdict]
            for f in claim.findings
        ]
        parts.append(f"**{claim.sentence}.** The paper, {claim.place}. Rule: {claim.rule}.")
        if lines:
            parts.append(table(["environment", "under", "measured", "verdict"], lines))
    return parts


def _verdicts(claim: Claim, environment: str) -> str:
    mine = [f for f in claim.findings if f.environment == environment]
    if len({f.verdict for f in mine}) > 1:
        return "; ".join(f"{f.condition}: {f.verdict}" for f in mine)
    return mine[0].verdict if mine else "not measured"


def _success(findings: Findings, rows: Sequence[PooledRow]) -> list[str]:
    parts = []
    for protocol in sorted({row.protocol for row in rows}, key=tables.protocol_order):
        shown = sorted((row for row in rows if row.protocol == protocol), key=_row_order)
        lines = [
            [
                tables.environment_name(row.environment),
                str(row.horizon_blocks),
                row.label,
                *_rate_columns(row),
                _NONE if row.mean is None else f"{row.mean:.1f} ± {row.std:.1f}",
                _NONE if row.median_steps_to_success is None else f"{row.median_steps_to_success:g}",
                str(paper_figures.success(row.environment, row.protocol, row.horizon_blocks, row.method) or _NONE),
            ]
            for row in shown
        ]
        header = [
            "environment",
            "H",
            "method",
            "percent",
            "reached",
            "interval",
            "over seeds",
            "median steps",
            "paper †",
        ]
        parts += [
            f"## Success, protocol `{protocol}`",
            table(header, lines),
            "Percent of all tasks, seeds pooled, with the Wilson interval; `over seeds` is the mean and sample "
            "deviation of the seeds' rates, as the paper prints it. Median steps are over successful episodes.",
            _code(evaluation_commands(findings.results, [cell for row in shown for cell in _cells(findings, row)])),
        ]
    return parts


def _comparisons(findings: Findings) -> list[str]:
    labels = tables.method_labels(findings.cells)
    lines = [
        [
            tables.environment_name(c.environment),
            tables.protocol_name(c),
            f"{labels[c.cells_a[0]]} against {labels[c.cells_b[0]]}",
            c.verdict,
            f"{c.difference:+.1f}",
            f"{c.low:+.1f} to {c.high:+.1f}",
            tables.p_value(c.p),
            f"{c.both} / {c.only_a} / {c.only_b} / {c.neither}",
        ]
        for c in sorted(findings.comparisons, key=comparison_order)
    ]
    if not lines:
        return []
    header = ["environment", "under", "methods", "verdict", "points", "interval", "p", "both / first / second / none"]
    return [
        "## Paired comparisons",
        table(header, lines),
        "On the same tasks: exact two-sided McNemar test, paired bootstrap interval of the difference. Computed from "
        "the episodes; `saltwm anatomy` shows the episodes behind a pair.",
    ]


def _errors(findings: Findings) -> list[str]:
    runs = _diagnosed(findings)
    if not runs:
        return []
    ratios = []
    for environment in dict.fromkeys(d.environment for _, d in runs):
        salt, lewm = (findings.papers_run(environment, method) for method in ("salt", "lewm"))
        if salt and lewm and salt.diagnosis and lewm.diagnosis and lewm.diagnosis.one_step_error > 0:
            ratio = salt.diagnosis.one_step_error / lewm.diagnosis.one_step_error
            ratios.append(f"{tables.environment_name(environment)} {ratio:.2f}")
    low, high = paper_figures.ONE_STEP_RATIO
    shown = [k for k in STEPS_SHOWN if any(len(d.rollout_error) >= k for _, d in runs)]
    steps = " / ".join(map(str, shown))
    lines = [
        [
            tables.environment_name(d.environment),
            run.name,
            f"{tables.method_name(d.method)}, {d.objective}",
            str(d.history),
            f"{d.one_step_error:.3f}",
            _at(d.rollout_error, shown),
            _at(d.propagation_norm, shown),
            _ratio(d.propagation_norm),
            _rho_at(d.rho),
            _rho_at(d.augmented_rho) if d.history > 1 else "the same",
            f"{run.probes.jacobian_spread:.1e}" if run.probes else _NONE,
            f"{d.effective_rank:.1f}",
        ]
        for run, d in runs
    ]
    header = ["environment", "run", "model", "frames", "one-step error", f"rollout error, k = {steps}"]
    header += [f"norm, k = {steps}", "growth of norm", "rho at H = 5 / the end", "rho, whole history"]
    header += ["spread of Jacobian", "effective rank"]
    return [
        "## Errors and their propagation",
        f"One-step error of SALT over LeWM: {'; '.join(ratios) or 'not measured'}; † {low} to {high}.",
        table(header, lines),
        "Errors relative to the spread of the model's own latents, on held-out episodes; rollouts start from that many "
        "frames; norm is the geometric mean of "
        "the spectral norm of Phi_{0->k}; rho takes the Jacobian by the latest latent as the paper does, or by the "
        "whole history; spread of Jacobian is how much its largest singular value varies over "
        "states, relative to its mean, for fixed actions.",
        *_residuals(runs),
        *_one_frame(runs, shown),
        _code([_diagnose_command(run) for run, _ in runs]),
    ]


def _residuals(runs: Sequence[tuple[Run, Diagnosis]]) -> list[str]:
    lines = [
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
        for run, d in runs
        if d.lipschitz is not None and d.residual_within_bound is not None
    ]
    if not lines:
        return []
    header = ["environment", "run", "r, latest latent", "r, whole history", "bound L/2 e²", "L", "within the bound"]
    header += ["measurements, trajectories"]
    return [
        "### The residual r_t (eq. 3) and its bound (Proposition 1)",
        table(header, lines),
        "Largest over the steps of the mean residual, relative to the spread of the latents. L is the fastest change "
        "of the Jacobian that was found between true and predicted histories of one measurement.",
    ]


def _one_frame(runs: Sequence[tuple[Run, Diagnosis]], shown: Sequence[int]) -> list[str]:
    lines = [
        [
            tables.environment_name(d.environment),
            run.name,
            _at(d.rollout_error, shown),
            _at(d.one_frame.rollout_error, shown),
            _ratio(d.propagation_norm),
            _ratio(d.one_frame.propagation_norm),
        ]
        for run, d in runs
        if d.one_frame
    ]
    if not lines:
        return []
    steps = " / ".join(map(str, shown))
    header = ["environment", "run", f"rollout error, k = {steps}", "from one frame", "growth of norm", "from one frame"]
    return [
        "### Control: rollouts of LeWM from one frame",
        table(header, lines),
        "The paper starts them from the full window (App. C.1), as the tables above do.",
    ]


def _largest(values: Sequence[float]) -> str:
    return f"{max(values):.1e}" if values else _NONE


def _rho_at(rho: Sequence[float]) -> str:
    return f"{rho[4]:.1e} / {rho[-1]:.1e}" if len(rho) >= 5 else f"- / {rho[-1]:.1e}" if rho else _NONE


def _probes(findings: Findings) -> list[str]:
    lines = [
        [
            tables.environment_name(p.environment),
            run.name,
            f"{tables.method_name(p.method)}, {p.objective}",
            ", ".join(f"{probe.field} {tables.probe_scores(probe)}" for probe in p.fields),
            _NONE if p.cost_order is None else f"{p.cost_order:.2f}",
            str(p.frames),
        ]
        for run, p in ((run, run.probes) for run, _ in _diagnosed(findings))
        if p
    ]
    if not lines:
        return []
    return [
        "## What the latents know",
        table(["environment", "run", "model", "R² of linear probes", "cost order", "frames"], lines),
        "R² of each part of the state read linearly from z, on episodes the probes were not fitted on (angles as sine "
        "and cosine), and in brackets that of its worst and best coordinate or joint, of a small network, and of that "
        "network fitted to other frames (control); a low linear value says that it is not "
        "there on a line, not that z does not know it; at 0 or below the fit does not carry over to other episodes. "
        "Cost order: Spearman's correlation of the planner's cost, the squared distance of two latents, "
        "with the environment's own distance, over pairs of frames of one held-out episode. Made by the same commands.",
    ]


def _anatomy(findings: Findings) -> list[str]:
    lines = []
    for row in sorted(tables.pooled_rows(findings.cells, findings.planned), key=_row_order):
        anatomies = [findings.anatomies[name] for name in row.cells if name in findings.anatomies]
        if row.method == "random" or row.rate is None or len(anatomies) < len(row.cells):
            continue
        published = paper_figures.ANATOMY.get((row.environment, row.method)) if row.protocol == "paper" else None
        kinds = ("mismatch", "unflagged", "unclassified")
        counts = [sum(getattr(anatomy, kind).successes for anatomy in anatomies) for kind in kinds]
        lines.append(
            [
                tables.environment_name(row.environment),
                tables.protocol_name(row),
                row.label,
                str(row.rate.n),
                *(f"{count} ({100 * count / row.rate.n:.1f} %)" for count in counts),
                _NONE if published is None else "{} and {} of {}".format(*published),
            ]
        )
    if not lines:
        return []
    header = ["environment", "under", "method", "episodes", "mismatch", "unflagged", "unclassified", "paper †"]
    return [
        "## How episodes fail",
        table(header, lines),
        "Failures as shares of all episodes. Mismatch: the first elite cost of the second plan is more than five times "
        "the last of the first plan. Unflagged: it is not. Unclassified: there was no second plan. † mismatch and "
        "unflagged.",
        _code([f"saltwm anatomy {AGAIN} salt lewm --out {AGAIN.parent / 'anatomy'}"]),
    ]


def _kinds(findings: Findings) -> list[str]:
    rows = sorted(tables.pooled_rows(findings.cells, findings.planned), key=_row_order)
    lines = [
        [
            tables.environment_name(row.environment),
            tables.protocol_name(row),
            row.label,
            ", ".join(f"{kind.kind} {kind.reached.successes}/{kind.reached.n}" for kind in kinds),
        ]
        for row, kinds in tables.task_rows(rows, findings.anatomies)
    ]
    if not lines:
        return []
    return [
        "## What the tasks ask for",
        table(["environment", "under", "method", "reached"], lines),
        "Tasks by what lies between start and goal (`task_kinds` of each environment, docs/environments.md), and how "
        "many of each kind were reached.",
    ]


def _training(findings: Findings) -> list[str]:
    lines = [
        [
            tables.environment_name(t.environment),
            run.name,
            f"{tables.method_name(t.method)}, {t.objective}",
            t.preset,
            f"{t.parameters / 1e6:.2f} M",
            str(t.steps),
            str(t.batch_size),
            _NONE if t.seconds is None else tables.duration(t.seconds),
            f"`{t.dataset_sha256[:12]}`",
        ]
        for run, t in ((run, run.training) for run, _ in _diagnosed(findings))
        if t
    ]
    if not lines:
        return []
    header = ["environment", "run", "model", "preset", "parameters", "steps", "batch", "time", "dataset"]
    return ["## Training", table(header, lines), "Wall time on the machine that trained them, all sessions together."]


def _evaluating(findings: Findings) -> list[str]:
    seconds = {cell.name: cell.evaluation.seconds for cell in findings.cells}
    lines = [
        [
            tables.environment_name(row.environment),
            tables.protocol_name(row),
            row.label,
            _NONE if row.rate is None else str(row.rate.n),
            tables.duration(sum(seconds[name] for name in row.cells)),
        ]
        for row in sorted(tables.pooled_rows(findings.cells, findings.planned), key=_row_order)
    ]
    if not lines:
        return []
    return [
        "## Evaluating",
        table(["environment", "under", "method", "tasks", "time"], lines),
        "Wall time on the machine that evaluated them, all seeds together; other jobs may have shared it.",
    ]


def _stages(findings: Findings) -> list[str]:
    if not findings.stages:
        return []
    lines = [
        [
            tables.environment_name(stage.environment),
            f"`{stage.command}`",
            tables.duration(stage.seconds) + ("" if stage.finished else ", unfinished"),
            str(stage.sessions),
        ]
        for stage in findings.stages
    ]
    total = sum(stage.seconds for stage in findings.stages)
    header = ["environment", "step", "time", "sessions"]
    return [
        "## How long it took",
        table(header, lines),
        f"`saltwm reproduce` from nothing: {tables.duration(total)} in all.",
    ]


# --- commands --------------------------------------------------------------------------------------------------------


def _diagnose_command(run: Run) -> str:
    path = run.diagnosis.run if run.diagnosis else run.name
    data = run.training.data if run.training else "DATA"
    return shlex.join(["saltwm", "diagnose", path, "--data", data, "--out", str(AGAIN)])


# --- parts -----------------------------------------------------------------------------------------------------------


def table(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A Markdown table; what a name holds cannot break it."""
    rows = [header, ["---"] * len(header), *lines]
    return "\n".join("| " + " | ".join(_escaped(cell) for cell in row) + " |" for row in rows)


def _escaped(text: str) -> str:
    printable = "".join(c if c.isprintable() else "\N{WHITE SQUARE}" for c in text)
    return re.sub(r"([|<])", r"\\\1", printable)


def _code(commands: Iterable[str]) -> str:
    printable = ["".join(c if c.isprintable() else "\N{WHITE SQUARE}" for c in command) for command in commands]
    return "\n".join(["```", *dict.fromkeys(printable), "```"])


def _row_order(row: PooledRow) -> tuple[object, ...]:
    contest = tables.environment_order(row.environment), tables.protocol_order(row.protocol), row.horizon_blocks
    return *contest, tables.method_order(row.method), row.label


def _rate_columns(row: PooledRow) -> list[str]:
    rate = row.rate
    if rate is None:
        return [f"seed {', '.join(map(str, row.missing))} missing", _NONE, _NONE]
    percent = f"**{100 * rate.successes / rate.n:.1f}**"
    return [percent, f"{rate.successes}/{rate.n}", f"{100 * rate.low:.1f} to {100 * rate.high:.1f}"]


def _rate_with_interval(row: PooledRow | None) -> str:
    if row is None:
        return _NONE
    percent, counts, interval = _rate_columns(row)
    return percent if row.rate is None else f"{percent} ({counts}; {interval})"


def _cells(findings: Findings, row: PooledRow) -> list[Cell]:
    return [cell for cell in findings.cells if cell.name in row.cells]


def _diagnosed(findings: Findings) -> list[tuple[Run, Diagnosis]]:
    """Runs with their diagnoses, by environment, method and name."""
    runs = [(run, run.diagnosis) for run in findings.runs if run.diagnosis]

    def place(item: tuple[Run, Diagnosis]) -> tuple[object, ...]:
        run, d = item
        return tables.environment_order(d.environment), tables.method_order(d.method), run.name

    return sorted(runs, key=place)


def _at(values: Sequence[float], steps: Sequence[int]) -> str:
    return " / ".join(f"{values[k - 1]:.2f}" if k <= len(values) else _NONE for k in steps)


def _ratio(values: Sequence[float]) -> str:
    return f"{values[-1] / values[0]:.2f}" if values and values[0] > 0 else _NONE

"""Several environments side by side: success, a planned episode, errors, failures and probes, a column for each."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from saltwm.disk.records import Anatomy, Comparison, Diagnosis, Probes
from saltwm.evaluation.statistics import wilson
from saltwm.report import figures, paper_figures, tables
from saltwm.report.claims import salt_against_lewm
from saltwm.report.figures import Drawing, Series
from saltwm.report.findings import Findings, Picture, picture_caption
from saltwm.report.paper_figures import PaperRate
from saltwm.report.tables import PooledRow

_SMALL = (3.1, 2.5)  # inches: a quarter of the page's width
_SHORT = (3.1, 1.75)
_METHODS = ("salt", "lewm")
_PREFERRED = ("clean", "paper", "long")  # where an episode or an anatomy is taken from, if it is there


@dataclass(frozen=True)
class Rated:
    """One cell of the success table."""

    row: PooledRow | None
    published: PaperRate | None


@dataclass(frozen=True)
class RateTable:
    """Methods by environments under one protocol."""

    protocol: str
    columns: tuple[str, ...]
    lines: tuple[tuple[str, str, tuple[Rated, ...]], ...]
    """Method, label (with its horizon where there are several), a cell per column."""


@dataclass(frozen=True)
class Column:
    """One environment's picture in a band; `drawing` and `picture` are none where there is no record."""

    name: str
    drawing: Drawing | None = None
    picture: Picture | None = None
    caption: str = ""
    outcome: str = ""


@dataclass(frozen=True)
class Band:
    """The same picture for each environment."""

    title: str
    columns: tuple[Column, ...]
    caption: str


@dataclass(frozen=True)
class ProbeLine:
    """What the latents of one run know."""

    environment: str
    label: str
    method: str
    probes: Probes


@dataclass(frozen=True)
class Overview:
    """What the page opens with where it shows more than one environment."""

    verdicts: tuple[str, ...]
    rates: tuple[RateTable, ...]
    bands: tuple[Band, ...]
    probes: tuple[ProbeLine, ...]


def overview(findings: Findings, environments: Sequence[str]) -> Overview:
    """The environments side by side, in the order given."""
    bands = (
        _episodes(findings, environments),
        _rollout(findings, environments),
        _propagation(findings, environments),
        _failures(findings, environments),
    )
    return Overview(
        verdicts=tuple(verdicts(findings)),
        rates=tuple(_rates(findings, environments)),
        bands=tuple(band for band in bands if any(column.drawing or column.picture for column in band.columns)),
        probes=tuple(_probes(findings, environments)),
    )


def verdicts(findings: Findings) -> list[str]:
    """What the paired tests of SALT against LeWM say, one sentence for each of their verdicts that occurs."""
    found = salt_against_lewm(findings)
    if not found:
        return ["SALT and LeWM were not evaluated on the same tasks, so nothing is said of one against the other."]
    words = {
        "better": "SALT is better than LeWM",
        "worse": "SALT is worse than LeWM",
        "no difference shown": "No difference between SALT and LeWM is shown",
    }
    counted = {verdict: [c for c in found if c.verdict == verdict] for verdict in words}
    return [
        f"{words[verdict]} in {len(those)} of {len(found)} paired comparisons: {_where(those)}."
        for verdict, those in counted.items()
        if those
    ]


def _where(comparisons: Sequence[Comparison]) -> str:
    """Two-Room (paper H=5; long H=10, 20), Reacher (clean H=5)."""
    places: dict[str, dict[str, list[str]]] = {}
    for c in comparisons:
        horizons = places.setdefault(c.environment, {}).setdefault(c.protocol, [])
        horizons.append(str(c.horizon_blocks))
    return ", ".join(
        f"{tables.environment_name(environment)} "
        + "({})".format("; ".join(f"{protocol} H={', '.join(horizons)}" for protocol, horizons in protocols.items()))
        for environment, protocols in places.items()
    )


# --- success -----------------------------------------------------------------------------------------------------


def _rates(findings: Findings, environments: Sequence[str]) -> list[RateTable]:
    rows = tables.pooled_rows(findings.cells, findings.planned)
    found = []
    for protocol in sorted({row.protocol for row in rows}, key=tables.protocol_order):
        mine = [row for row in rows if row.protocol == protocol]
        columns = [name for name in environments if any(row.environment == name for row in mine)]
        horizons = {row.horizon_blocks for row in mine}
        by_line = {(row.horizon_blocks, tables.method_order(row.method), row.label, row.method) for row in mine}
        lines = []
        for horizon, _, label, method in sorted(by_line):
            cells = tuple(
                Rated(
                    next(
                        (r for r in mine if (r.environment, r.horizon_blocks, r.label) == (name, horizon, label)), None
                    ),
                    paper_figures.success(name, protocol, horizon, method),
                )
                for name in columns
            )
            lines.append((method, label if len(horizons) == 1 else f"{label}, H={horizon}", cells))
        title = f"{protocol}, H={next(iter(horizons))}" if len(horizons) == 1 else protocol
        found.append(RateTable(title, tuple(tables.environment_name(name) for name in columns), tuple(lines)))
    return found


# --- pictures ----------------------------------------------------------------------------------------------------


def _episodes(findings: Findings, environments: Sequence[str]) -> Band:
    return Band(
        "Planned episodes",
        tuple(_episode(findings, name) for name in environments),
        "The first filmed episode of SALT, whether it succeeded or not: the agent beside the goal image it was given.",
    )


def _episode(findings: Findings, environment: str) -> Column:
    name = tables.environment_name(environment)
    for protocol in _PREFERRED:
        cells = {
            cell.name
            for cell in findings.cells
            if (cell.evaluation.environment, cell.evaluation.protocol, cell.evaluation.method)
            == (environment, protocol, "salt")
        }
        moving = [picture for picture in findings.pictures if picture.cell in cells and picture.kind == "gif"]
        if moving:
            caption, outcome = picture_caption(Path(moving[0].name).stem)
            return Column(name, picture=moving[0], caption=f"{name}, {protocol}, {caption}", outcome=outcome)
    return Column(name)


def _diagnoses(findings: Findings, environments: Sequence[str]) -> dict[str, list[tuple[Series, Diagnosis]]]:
    """The paper's two models in each environment, those that were diagnosed."""
    found: dict[str, list[tuple[Series, Diagnosis]]] = {}
    for name in environments:
        runs = [(method, findings.papers_run(name, method)) for method in _METHODS]
        found[name] = [
            (Series(tables.method_name(method), method), run.diagnosis) for method, run in runs if run and run.diagnosis
        ]
    return found


def _rollout(findings: Findings, environments: Sequence[str]) -> Band:
    diagnoses = _diagnoses(findings, environments)
    values = [value for runs in diagnoses.values() for _, d in runs for value in d.rollout_error]
    limits = (0.0, 1.05 * max(values, default=1.0))
    columns = []
    for name, runs in diagnoses.items():
        title = tables.environment_name(name)
        drawing = figures.by_step(title, "rollout_error", runs, limits=limits, size=_SMALL) if runs else None
        columns.append(Column(title, drawing))
    return Band(
        "Rollout error |δₖ|",
        tuple(columns),
        "Mean error of the k-th recursive prediction, relative to the spread of the latents; one scale for all.",
    )


def _propagation(findings: Findings, environments: Sequence[str]) -> Band:
    diagnoses = _diagnoses(findings, environments)
    values = [v for runs in diagnoses.values() for _, d in runs for v in (*d.propagation_low, *d.propagation_high)]
    log = min(values, default=0.0) > 0
    limits = (min(values) / 1.2, max(values) * 1.2) if log else (0.0, 1.05 * max(values, default=1.0))
    columns = []
    for name, runs in diagnoses.items():
        title = tables.environment_name(name)
        band = ("propagation_low", "propagation_high")
        drawing = (
            figures.by_step(title, "propagation_norm", runs, log=log, band=band, limits=limits, size=_SMALL)
            if runs
            else None
        )
        columns.append(Column(title, drawing))
    return Band(
        "Propagation |Φ(0→k)|",
        tuple(columns),
        "Geometric mean of the spectral norm, band: smallest to largest over the batches; "
        f"one {'logarithmic ' if log else ''}scale for all.",
    )


def _failures(findings: Findings, environments: Sequence[str]) -> Band:
    found = {name: _anatomies(findings, name) for name in environments}
    shares = [
        100 * (one.mismatch.successes + one.unflagged.successes + one.unclassified.successes) / one.mismatch.n
        for _, shown in found.values()
        for _, one in shown
    ]
    limit = max(10.0, 1.05 * max(shares, default=0.0))
    columns = []
    for name, (protocol, shown) in found.items():
        title = tables.environment_name(name)
        drawing = figures.failure_bars(f"{title}, {protocol}", shown, limit=limit, size=_SHORT) if shown else None
        columns.append(Column(title, drawing))
    return Band(
        "Failures by kind",
        tuple(columns),
        "Failed episodes as shares of all. Mismatch: the second plan's first elite cost is more than five times what "
        "the first plan promised. Unflagged: it is not. Unclassified: no second plan was made.",
    )


def _anatomies(findings: Findings, environment: str) -> tuple[str, list[tuple[Series, Anatomy]]]:
    """The first protocol with anatomies of SALT or LeWM here, and those, seeds pooled."""
    rows = tables.pooled_rows(findings.cells, findings.planned)
    for protocol in _PREFERRED:
        shown = []
        for method in _METHODS:
            for row in rows:
                whole = row.rate is not None and all(name in findings.anatomies for name in row.cells)
                if (row.environment, row.protocol, row.method) == (environment, protocol, method) and whole:
                    anatomies = [findings.anatomies[name] for name in row.cells]
                    shown.append((Series(row.label, method), pooled_anatomy(anatomies)))
                    break
        if shown:
            return protocol, shown
    return "", []


def pooled_anatomy(anatomies: Sequence[Anatomy]) -> Anatomy:
    """The failures of several evaluations together."""
    n = sum(one.mismatch.n for one in anatomies)
    mismatch, unflagged, unclassified = (
        wilson(sum(getattr(one, kind).successes for one in anatomies), n)
        for kind in ("mismatch", "unflagged", "unclassified")
    )
    return Anatomy(
        mismatch,
        unflagged,
        unclassified,
        tuple(f for one in anatomies for f in one.failures),
        tables.pooled_kinds(anatomies),
    )


def _probes(findings: Findings, environments: Sequence[str]) -> list[ProbeLine]:
    lines = []
    for name in environments:
        for method in _METHODS:
            run = findings.papers_run(name, method)
            if run and run.probes:
                lines.append(ProbeLine(tables.environment_name(name), tables.method_name(method), method, run.probes))
    return lines

"""What a reader wants first: each environment in words, and all of them side by side."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from saltwm.disk.records import Diagnosis
from saltwm.evaluation.anatomy import Anatomy
from saltwm.evaluation.contests import Comparison
from saltwm.report import figures, tables
from saltwm.report.claims import frames_of, papers_lewm, salt_against_lewm
from saltwm.report.figures import Drawing, Series
from saltwm.report.findings import Findings, Picture, picture_caption
from saltwm.report.tables import PooledRow

T = TypeVar("T")

_SMALL = (3.1, 2.5)  # inches: a quarter of the page's width
_SHORT = (3.1, 1.75)
_METHODS = ("salt", "lewm")
_WORDS = (
    (0.9, "plans reliably"),
    (0.7, "plans well on most tasks"),
    (0.4, "plans well on some tasks"),
    (0.0, "rarely plans well"),
)
_NOT_SEEN = ("time", "solver_warm_start", "control")  # what a simulator keeps and no picture shows
_WELL_READ = 0.9
"""R² from which on a part of the state is not worth a sentence."""
_WORTH_A_SENTENCE = 3
"""Failures of one kind of task from which on they are more than chance to a reader."""
_PREFERRED = ("clean", "paper", "long")  # where an episode or an anatomy is taken from, if it is there


@dataclass(frozen=True)
class _Column:
    """One environment's picture in a band; `drawing` and `picture` are none where there is no record."""

    name: str
    drawing: Drawing | None = None
    picture: Picture | None = None
    strip: Picture | None = None
    """The same without motion."""
    caption: str = ""
    outcome: str = ""


@dataclass(frozen=True)
class _Band:
    """The same picture for each environment."""

    title: str
    columns: tuple[_Column, ...]
    caption: str


def bands(findings: Findings, environments: Sequence[str]) -> list[_Band]:
    """The environments side by side, in the order given."""
    found = (
        _episodes(findings, environments),
        _rollout(findings, environments),
        _propagation(findings, environments),
        _failures(findings, environments),
    )
    return [band for band in found if any(column.drawing or column.picture for column in band.columns)]


def verdicts(findings: Findings) -> list[str]:
    """What the paired tests of SALT against LeWM say, one sentence for each of their verdicts that occurs."""
    found = salt_against_lewm(findings)
    if not found:
        return ["SALT and LeWM did not meet on the same tasks with plain CEM, so neither is judged against the other."]
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


# --- in words ----------------------------------------------------------------------------------------------------


def in_words(findings: Findings, environment: str) -> list[str]:
    """Does it plan well there, and if not, which tasks fail and what is known about why: each sentence from records."""
    rows = [row for row in findings.pooled if row.environment == environment and row.rate is not None]
    for protocol in _PREFERRED:
        salt = _first(rows, protocol, "salt")
        if salt is not None:
            same = _on_its_tasks(salt, rows)
            others = [row for row in same if row.method in (papers_lewm(one.method for one in same), "random")]
            reached = [_how_well(salt, others), *_searched_better(salt, same)]
            return [*reached, *_paired(findings, salt), *_hardest(findings, salt), *_why(findings, salt)]
    return _best_in_words(rows)


def _best_in_words(rows: Sequence[PooledRow]) -> list[str]:
    """Where plain SALT was not evaluated: the best of what was, under the first protocol that has any."""
    for protocol in dict.fromkeys([*_PREFERRED, *(row.protocol for row in rows)]):
        methods = [row for row in rows if row.protocol == protocol and row.method != "random"]
        if methods:
            whole = min((row.elsewhere for row in methods), key=len)  # rates over other seeds are of other tasks
            best = max((row for row in methods if row.elsewhere == whole), key=_share)
            there = _on_its_tasks(best, rows)
            chance = [row for row in there if row.method == "random"]
            met = len(there) - len(chance)
            chosen = [f"It is the best of {met} methods here."] if met > 1 else []
            return [_how_well(best, chance), *chosen]
    return ["Only the random policy was evaluated here."] if rows else ["No evaluation here is finished."]


def _on_its_tasks(row: PooledRow, rows: Sequence[PooledRow]) -> list[PooledRow]:
    """Those of its contest that have its evaluation seeds, the row among them."""
    place = tables.contest_order(row), row.elsewhere
    return [other for other in rows if (tables.contest_order(other), other.elsewhere) == place]


def _first(rows: Sequence[PooledRow], protocol: str, method: str) -> PooledRow | None:
    of_protocol = filter(tables.has_own_horizon, rows)
    return next((row for row in of_protocol if (row.protocol, row.method) == (protocol, method)), None)


def _share(row: PooledRow) -> float:
    return row.rate.successes / row.rate.n if row.rate else 0.0


def _in_a_word(row: PooledRow) -> str:
    return next(words for least, words in _WORDS if _share(row) >= least)


def _how_well(row: PooledRow, others: Sequence[PooledRow]) -> str:
    share, words = _share(row), _in_a_word(row)
    under = row.protocol if tables.has_own_horizon(row) else tables.protocol_name(row)
    beside = "".join(f", {other.label.replace(', ', ' with ')} {100 * _share(other):.0f} %" for other in others)
    assert row.rate is not None
    return (
        f"{row.label} {words}: it reaches {row.rate.successes} of {row.rate.n} tasks under {under} "
        f"({100 * share:.0f} %; {100 * row.rate.low:.0f} to {100 * row.rate.high:.0f}){beside}."
    )


def _searched_better(salt: PooledRow, rows: Sequence[PooledRow]) -> list[str]:
    """The best of the other searches with the same model, if it reaches more."""
    weights = {cell.evaluation.checkpoint_sha256 for cell in salt.cells}
    others = [
        row
        for row in rows
        if row.label.startswith(f"{salt.label} with ")
        and {cell.evaluation.checkpoint_sha256 for cell in row.cells} <= weights  # not a model that was trained further
    ]
    best = max(others, key=_share, default=salt)
    if _share(best) <= _share(salt) or best.rate is None:
        return []
    how = "reaches" if _in_a_word(best) == _in_a_word(salt) else f"{_in_a_word(best)}:"
    return [
        f"With another search the same model {how} {best.rate.successes} of {best.rate.n} "
        f"({best.label.removeprefix(f'{salt.label} with ')})."
    ]


def _paired(findings: Findings, salt: PooledRow) -> list[str]:
    for c in salt_against_lewm(findings):
        if set(c.cells_a) <= {cell.name for cell in salt.cells}:
            words = {"better": "better than", "worse": "worse than"}.get(c.verdict)
            other = frames_of(c.method_b) if c.method_b != "lewm" else "LeWM"
            shown = f"It is {words} {other}" if words else f"No difference to {other} is shown"
            return [f"{shown} on the same tasks ({c.difference:+.0f} points, p {tables.p_value(c.p)})."]
    return []


def _hardest(findings: Findings, row: PooledRow) -> list[str]:
    kinds = [kind for kind in findings.anatomy_of(row.cells).tasks if kind.reached.n >= 5]
    if len(kinds) < 2:
        return []
    worst = min(kinds, key=lambda kind: kind.reached.percent)
    if worst.reached.n - worst.reached.successes < _WORTH_A_SENTENCE:
        return []
    return [
        f"Missed most often: tasks of the kind {worst.kind} ({worst.reached.successes} of {worst.reached.n} reached)."
    ]


def _are_mismatches(count: int) -> str:
    return "one is a mismatch" if count == 1 else f"{count} are mismatches"


def _why(findings: Findings, row: PooledRow) -> list[str]:
    failures = findings.anatomy_of(row.cells)
    sentences = []
    if failures.mismatch.successes:
        sentences.append(
            f"Of {len(failures.failures)} failures {_are_mismatches(failures.mismatch.successes)}: the second plan's "
            "first elite cost was more than five times what the first plan had promised."
        )
    elif failures.failures:
        missed = len(failures.failures)
        shown = "its one failure is no mismatch" if missed == 1 else f"none of its {missed} failures is a mismatch"
        sentences.append(f"By the model's own costs {shown}.")
    run = findings.papers_run(row.environment, "salt")
    fields = [probe for probe in run.probes.fields if probe.field not in _NOT_SEEN] if run and run.probes else []
    worst = min(fields, key=lambda probe: probe.r2 if probe.network is None else probe.network, default=None)
    if worst is not None and (worst.r2 if worst.network is None else worst.network) < _WELL_READ:
        name = worst.field.replace("_", " ")
        sentences.append(f"Read worst from its latents: {name} (R² {tables.probe_scores(worst)}).")
    return sentences


# --- pictures ----------------------------------------------------------------------------------------------------


def _episodes(findings: Findings, environments: Sequence[str]) -> _Band:
    return _Band(
        "Planned episodes",
        tuple(_episode(findings, name) for name in environments),
        "The first filmed episode of SALT, whether it succeeded or not: what the agent sees, what its plan expects at "
        "the end of the present block of actions, and the goal that it was given.",
    )


def _episode(findings: Findings, environment: str) -> _Column:
    name = tables.environment_name(environment)
    for protocol in _PREFERRED:
        cells = {
            cell.name
            for cell in findings.cells
            if (cell.evaluation.environment, cell.evaluation.protocol, cell.evaluation.method)
            == (environment, protocol, "salt")
        }
        shown = [picture for picture in findings.pictures if picture.cell in cells]
        moving = next((picture for picture in shown if picture.kind == "gif"), None)
        if moving is not None:
            stem = Path(moving.name).stem
            strip = next((p for p in shown if (p.cell, p.name) == (moving.cell, f"{stem}.png")), None)
            caption, outcome = picture_caption(stem)
            return _Column(name, None, moving, strip, f"{name}, {protocol}, {caption}", outcome)
    return _Column(name)


def _diagnoses(findings: Findings, environments: Sequence[str]) -> dict[str, list[tuple[Series, Diagnosis]]]:
    """The paper's two models in each environment, those that were diagnosed."""
    found: dict[str, list[tuple[Series, Diagnosis]]] = {}
    for name in environments:
        runs = [(method, findings.papers_run(name, method)) for method in _METHODS]
        found[name] = [
            (Series(tables.method_title(method), method), run.diagnosis)
            for method, run in runs
            if run and run.diagnosis
        ]
    return found


def _rollout(findings: Findings, environments: Sequence[str]) -> _Band:
    diagnoses = _diagnoses(findings, environments)
    values = [value for runs in diagnoses.values() for _, d in runs for value in d.rollout_error]
    limits = (0.0, 1.05 * max(values, default=1.0))
    return _band(
        "Rollout error |δₖ|",
        diagnoses,
        lambda title, runs: figures.by_step(title, "rollout_error", runs, limits=limits, size=_SMALL),
        "Mean error of the k-th recursive prediction, relative to the spread of the latents; one scale for all.",
    )


def _propagation(findings: Findings, environments: Sequence[str]) -> _Band:
    diagnoses = _diagnoses(findings, environments)
    values = [v for runs in diagnoses.values() for _, d in runs for v in (*d.propagation_low, *d.propagation_high)]
    log = min(values, default=0.0) > 0
    limits = (min(values) / 1.2, max(values) * 1.2) if log else (0.0, 1.05 * max(values, default=1.0))
    options: dict[str, Any] = {
        "log": log,
        "band": ("propagation_low", "propagation_high"),
        "limits": limits,
        "size": _SMALL,
    }
    return _band(
        "Propagation |Φ(0→k)|",
        diagnoses,
        lambda title, runs: figures.by_step(title, "propagation_norm", runs, **options),
        "Geometric mean of the spectral norm, band: smallest to largest over the batches; "
        f"one {'logarithmic ' if log else ''}scale for all.",
    )


def _failures(findings: Findings, environments: Sequence[str]) -> _Band:
    found = {name: _anatomies(findings, name) for name in environments}
    shares = [
        one.mismatch.percent + one.unflagged.percent + one.unclassified.percent
        for pair in found.values()
        for _, one in (pair[1] if pair else ())
    ]
    limit = max(10.0, 1.05 * max(shares, default=0.0))
    return _band(
        "Failures by kind",
        found,
        lambda title, pair: figures.failure_bars(f"{title}, {pair[0]}", pair[1], limit=limit, size=_SHORT),
        "Failed episodes as shares of all. Mismatch: the second plan's first elite cost is more than five times what "
        "the first plan promised. Unflagged: it is not. Unclassified: no second plan was made.",
    )


def _band(title: str, found: Mapping[str, T | None], draw: Callable[[str, T], Drawing], caption: str) -> _Band:
    """A drawing for each environment of which something was found."""
    names = {environment: tables.environment_name(environment) for environment in found}
    columns = (_Column(names[where], draw(names[where], what) if what else None) for where, what in found.items())
    return _Band(title, tuple(columns), caption)


def _anatomies(findings: Findings, environment: str) -> tuple[str, list[tuple[Series, Anatomy]]] | None:
    """The first protocol with anatomies of SALT or the paper's LeWM here, and those; none if there is none."""
    here = [row for row in findings.pooled if row.rate is not None and row.environment == environment]
    whole = list(filter(tables.has_own_horizon, here))
    for protocol in _PREFERRED:
        lewm = papers_lewm(row.method for row in whole if row.protocol == protocol)
        rows = [_first(whole, protocol, method) for method in ("salt", lewm) if method]
        if any(rows):
            return protocol, [(Series(row.label, row.method), findings.anatomy_of(row.cells)) for row in rows if row]
    return None

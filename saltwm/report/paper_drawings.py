"""The paper's figures drawn from our records, under the paper's own numbers; studies draw 4, 7 and 8."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from saltwm.disk.records import Diagnosis, Probes
from saltwm.report import figures, tables
from saltwm.report.claims import frames_of, papers_lewm
from saltwm.report.figures import MUTED, Drawing, Series, drawn, finish, lines_by_step
from saltwm.report.findings import Findings
from saltwm.report.paper_figures import ANATOMY, FOUR, ONE_STEP_RATIO, PROPAGATION_GROWTH, ROLLOUT_GROWTH

BAND = ("propagation_low", "propagation_high")


@dataclass(frozen=True)
class PaperFigure:
    """A figure of the paper as our records have it."""

    name: str
    """Its number there."""
    drawing: Drawing
    caption: str

    @property
    def file(self) -> str:
        """Beside the document."""
        return f"figures/{self.name.lower().replace(' ', '-')}.svg"


@dataclass(frozen=True)
class _Measured:
    """What is recorded of one of the paper's two models in one environment."""

    environment: str
    method: str
    diagnosis: Diagnosis
    probes: Probes | None

    @property
    def series(self) -> Series:
        """Its colour and marker."""
        return Series(tables.method_title(self.method), self.method)


def paper_drawings(findings: Findings) -> list[PaperFigure]:
    """Those that there are records for, in the paper's order."""
    found = [one for name in FOUR for one in _measured(findings, name)]
    by_place = {name: [one for one in found if one.environment == name] for name in FOUR}
    places = [name for name in FOUR if len(by_place[name]) > 1]
    both = [by_place[name] for name in places]
    figures_found = [_failures(findings)]
    if both:
        wide = (2.6 * len(both) + 0.4, 4.6)
        figures_found += [
            PaperFigure(
                "Figure 1",
                _jacobians(both, size=wide, grid=(2, len(both))),
                "Above: the largest singular value of the Jacobian over states, for 12 fixed action sequences; thin "
                "line: smallest to largest, thick: quartiles, dashed: 1. Below: rho_H, by the latest latent alone and, "
                "dashed, by LeWM's whole history; SALT's is rounding. † rho of LeWM on PushT about 0.10 at H = 5 "
                "and 0.49 at H = 20.",
            ),
            PaperFigure(
                "Figure 6",
                _four(both, size=wide, grid=(2, len(both))),
                "Above: rollout error relative to the spread of the latents, one training each; below: spectral norm "
                "of Phi_{0->k}, geometric mean, band: smallest to largest measurement.",
            ),
        ]
    if "push-t" in places:
        (rates, how), (low, high) = _success(findings), ONE_STEP_RATIO
        figures_found.append(
            PaperFigure(
                "Figure 2",
                _mechanism(found, by_place["push-t"], rates, size=(9.6, 3.0), grid=(1, 3)),
                f"One-step error and success under `clean` ({how}), an arrow from LeWM to SALT in each environment; "
                "rollout error and norm of Phi_{0->k} on PushT. "
                f"† one-step error {low} to {high} times LeWM's; growth over 20 steps {ROLLOUT_GROWTH['salt']} (SALT) "
                f"and {ROLLOUT_GROWTH['lewm']} (LeWM) of the error, {PROPAGATION_GROWTH['salt']} and "
                f"{PROPAGATION_GROWTH['lewm']} of the norm.",
            )
        )
    return sorted((one for one in figures_found if one), key=lambda one: one.name)


def _measured(findings: Findings, environment: str) -> list[_Measured]:
    runs = [(method, findings.papers_run(environment, method)) for method in ("lewm", "salt")]
    return [_Measured(environment, method, run.diagnosis, run.probes) for method, run in runs if run and run.diagnosis]


def _success(findings: Findings) -> tuple[dict[tuple[str, str], float], str]:
    """Percent under `clean`, by environment and model, and how LeWM saw."""
    under_clean = [row for row in findings.pooled if row.protocol == "clean" and tables.has_own_horizon(row)]
    rows = [row for row in under_clean if not row.elsewhere]
    found: dict[tuple[str, str], float] = {}
    seen: set[str] = set()
    for environment in FOUR:
        here = {row.method: row.percent for row in rows if row.environment == environment}
        lewm = papers_lewm(here) or "lewm"
        for method, name in (("salt", "salt"), ("lewm", lewm)):
            percent = here.get(name)
            if percent is not None:
                found[environment, method] = percent
                seen |= {name} - {"salt"}
    how = frames_of(*seen) if len(seen) == 1 else "LeWM with three frames where it was evaluated so"
    return found, how


@drawn
def _jacobians(axes: np.ndarray, places: Sequence[Sequence[_Measured]]) -> str:
    """Figure 1: (a) over (b), an environment a column."""
    for column, models in enumerate(places):
        above, below = axes[0][column], axes[1][column]
        for model in models:
            _spreads(above, model)
            below.plot(range(1, len(model.diagnosis.rho) + 1), model.diagnosis.rho, **_style(model), markersize=3)
            if model.diagnosis.history > 1:
                rho = model.diagnosis.augmented_rho
                below.plot(range(1, len(rho) + 1), rho, color=model.series.colour, linestyle=(0, (4, 2)), linewidth=1.2)
        above.xaxis.set_major_locator(MaxNLocator(integer=True))
        above.axhline(1, color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
        name = tables.environment_name(models[0].environment)
        finish(above, name, "action sequence", "largest singular value" if column == 0 else "", legend=False)
        finish(below, "", "H", "rho" if column == 0 else "", legend=column == 0)
    return "Largest singular values of the Jacobian over states, and rho against H, for LeWM and SALT."


def _spreads(axes: Axes, model: _Measured) -> None:
    for number, row in enumerate(model.probes.sigma_max if model.probes else (), 1):
        low, first, middle, third, high = np.percentile(row, (0, 25, 50, 75, 100))
        axes.plot([number, number], [low, high], color=model.series.colour, linewidth=0.9)
        axes.plot([number, number], [first, third], color=model.series.colour, linewidth=3.5)
        axes.plot(number, middle, model.series.marker, color=model.series.colour, markersize=3)


def _style(model: _Measured) -> dict[str, str]:
    return {"color": model.series.colour, "marker": model.series.marker, "label": model.series.label}


@drawn
def _mechanism(
    axes: np.ndarray, found: Sequence[_Measured], push_t: Sequence[_Measured], rates: dict[tuple[str, str], float]
) -> str:
    """Figure 2: (a), (b) and (c)."""
    first, second, third = axes[0]
    at: dict[str, dict[str, tuple[float, float]]] = {}
    for one in found:
        if (one.environment, one.method) in rates:
            place = one.diagnosis.one_step_error, rates[one.environment, one.method]
            first.plot(*place, one.series.marker, color=one.series.colour)
            at.setdefault(one.environment, {})[one.method] = place
    for environment, ends in at.items():
        if len(ends) > 1:
            first.annotate("", ends["salt"], ends["lewm"], arrowprops={"arrowstyle": "->", "color": MUTED})
        end = next(reversed(ends.values()))
        name = tables.environment_name(environment)
        first.annotate(name, end, xytext=(4, 4), textcoords="offset points", fontsize=8, color=MUTED)
    first.set_ylim(0, 112)
    first.margins(x=0.3)
    finish(first, "(a) success", "one-step error", "% of tasks", legend=False)
    runs = [(one.series, one.diagnosis) for one in push_t]
    lines_by_step(second, "rollout_error", runs)
    finish(second, "(b) rollout error", "rollout step k", "")
    lines_by_step(third, "propagation_norm", runs, band=BAND)
    finish(third, "(c) norm of Φ", "rollout step k", "")
    return "One-step error and success, rollout error and propagation norm on PushT, for LeWM and SALT."


@drawn
def _four(axes: np.ndarray, places: Sequence[Sequence[_Measured]]) -> str:
    """Figure 6: an environment a column."""
    for column, models in enumerate(places):
        runs = [(one.series, one.diagnosis) for one in models]
        lines_by_step(axes[0][column], "rollout_error", runs)
        lines_by_step(axes[1][column], "propagation_norm", runs, band=BAND)
        name = tables.environment_name(models[0].environment)
        finish(axes[0][column], name, "", "|δ|" if column == 0 else "", legend=column == 0)
        finish(axes[1][column], "", "rollout step k", "|Φ|" if column == 0 else "", legend=False)
    return "Rollout error and propagation norm by rollout step in each environment, for LeWM and SALT."


def _failures(findings: Findings) -> PaperFigure | None:
    """Figure 3, its bars; the episodes near the median ratio have pages of their own."""
    rows = [row for row in findings.pooled if (row.environment, row.protocol) == ("cube", "paper") and row.rate]
    rows = list(filter(tables.has_own_horizon, rows))
    lewm = papers_lewm(row.method for row in rows)
    shown = [
        (Series(row.label, row.method), findings.anatomy_of(row.cells)) for row in rows if row.method in ("salt", lewm)
    ]
    if lewm is None or len(shown) < 2:
        return None
    (mismatch, unflagged, n), (salt_mismatch, salt_unflagged, _) = ANATOMY["cube", "lewm"], ANATOMY["cube", "salt"]
    caption = (
        f"Failed episodes of OGBench-Cube under `paper` by kind, {frames_of(lewm)}. "
        f"† LeWM {mismatch} mismatch and {unflagged} unflagged of {n}, SALT {salt_mismatch} and {salt_unflagged}. "
        "The failures whose ratio is nearest to the median have pages of their own."
    )
    return PaperFigure("Figure 3", figures.failure_bars("OGBench-Cube", shown, size=(6.2, 2.0)), caption)

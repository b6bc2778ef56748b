"""One plan as a picture: what the action prior expected, what was planned, and what happened."""

import io
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from saltwm.report.figures import BLUE, GREY, INK, ORANGE

Numbers = NDArray[np.float64]
_SIZE = (8.4, 3.0)
_STYLE: dict[Any, Any] = {
    "svg.hashsalt": "saltwm",  # the same numbers give the same bytes
    "svg.fonttype": "path",
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
}
_ACTION_LINES = ("prior: one deviation", "prior: mean", "plan: posterior mode")
_NO_METADATA = dict.fromkeys(("Date", "Creator", "Format", "Type"))


@dataclass(frozen=True)
class PlanPicture:
    """One blind plan of H blocks. Actions are normalised; distances are squared and per latent dimension."""

    prior_mean: Numbers
    """[steps, A] of single actions."""
    prior_std: Numbers
    """[steps, A]"""
    planned: Numbers
    """[steps, A]"""
    prior_predicted: Numbers
    """[draws, H + 1] distance to the goal after each block, as the model predicts it for draws from the prior."""
    plan_predicted: Numbers
    """[H + 1] the same for the plan."""
    happened: Numbers
    """[executed blocks + 1] distance of the true frames' latents to the goal as the plan was carried out."""


def draw_plan(picture: PlanPicture) -> str:
    """The picture as SVG."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=_SIZE, layout="constrained")
        actions, distances = figure.subplots(1, 2)
        _draw_actions(actions, picture)
        _draw_distances(distances, picture)
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata=_NO_METADATA)
    text = buffer.getvalue()
    return text[text.index("<svg") :]  # without the document type, which names an address


def _draw_actions(axes: Axes, picture: PlanPicture) -> None:
    """The first two numbers of each action, one above the other."""
    steps = np.arange(len(picture.planned))
    shown = min(2, picture.planned.shape[1])
    apart = 2.2 * float(np.abs(np.concatenate([picture.prior_mean, picture.planned])[:, :shown]).max() + 1)
    for number in range(shown):
        base = -number * apart
        mean, std = picture.prior_mean[:, number] + base, picture.prior_std[:, number]
        names = _ACTION_LINES if number == 0 else (None, None, None)  # once in the legend
        axes.fill_between(steps, mean - std, mean + std, color=GREY, alpha=0.3, lw=0, label=names[0])
        axes.plot(steps, mean, color=GREY, lw=1.5, label=names[1])
        axes.plot(steps, picture.planned[:, number] + base, color=ORANGE, lw=1.5, label=names[2])
        axes.axhline(base, color=INK, lw=0.4)
    axes.set_yticks([-number * apart for number in range(shown)], [f"action {number}" for number in range(shown)])
    axes.set_title("What the data expect, and what is planned")
    axes.set_xlabel("environment step")
    axes.legend(loc="center right")


def _draw_distances(axes: Axes, picture: PlanPicture) -> None:
    for draw in picture.prior_predicted:
        axes.plot(draw, color=GREY, lw=0.6, alpha=0.5)
    axes.plot([], [], color=GREY, lw=1, label="draws from the prior, predicted")
    axes.plot(picture.plan_predicted, "o-", color=ORANGE, label="plan, predicted")
    axes.plot(picture.happened, "s--", color=BLUE, label="plan, what happened")
    axes.set_ylim(bottom=0)
    axes.set_xticks(range(len(picture.plan_predicted)))
    axes.set_title("Where it leads")
    axes.set_xlabel("action block")
    axes.set_ylabel("|z - z_g|² per dimension")
    axes.legend(loc="lower left")

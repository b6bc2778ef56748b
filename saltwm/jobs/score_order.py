"""Does the offline score order models as planning does? Scores of the shipped models beside their recorded success."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np

from saltwm.diagnostics.cost_order import rank_correlation
from saltwm.disk.records import Cell, Rate
from saltwm.ground.errors import UsageError
from saltwm.jobs.card import measured
from saltwm.jobs.score import OfflineScore
from saltwm.jobs.shelf import MODELS, Item

MEASURES = ("rank", "error_against_stillness", "prior_nll")
"""Figures of a score; small is good in each. Only models with a prior have the last."""


@dataclass(frozen=True)
class _Scored:
    """One model."""

    model: str
    environment: str
    score: OfflineScore
    success: Rate
    """`clean`, CEM, blind: the one search that every shipped model was evaluated with."""


@dataclass(frozen=True)
class _Order:
    """How well one figure of the score orders models; a good score is a small one, so the sign is turned."""

    measure: str
    correlation: float | None
    """Spearman's, with success, over all models."""
    agreeing: int
    """Pairs of models of one environment that the figure orders as success does; a tie agrees with nothing."""
    pairs: int


@dataclass(frozen=True)
class Ordered:
    """All models, and the verdict on each figure."""

    models: tuple[_Scored, ...]
    orders: tuple[_Order, ...]


def require_success(items: Sequence[Item], cells: Sequence[Cell], results: Path) -> list[tuple[Item, Rate]]:
    """Each model with its rate under `clean` with CEM; UsageError names one that the records do not know."""
    found = []
    for item in items:
        rows = [one.row for one in measured(item.checkpoint, cells)]
        wanted = ("clean", 5, item.model)  # with CEM, and no variation of the model, as with more frames
        mine = [row for row in rows if (row.protocol, row.horizon_blocks, row.method) == wanted]
        if len(mine) != 1 or mine[0].rate is None:
            raise UsageError(f"{results}: expected one evaluation of {item.checkpoint.name}, clean with cem")
        found.append((item, mine[0].rate))
    return found


def ordered(scores: Mapping[str, tuple[OfflineScore, Rate]]) -> Ordered:
    """The verdict on scores that stand beside success; models are called ENVIRONMENT-KIND."""
    models = tuple(_Scored(name, _environment(name), score, rate) for name, (score, rate) in scores.items())
    return Ordered(models, tuple(_order(models, measure) for measure in MEASURES))


def _environment(name: str) -> str:
    """two-room of two-room-salt and of two-room-dino-wm."""
    kinds = [kind for kind in MODELS if name.endswith(f"-{kind}")]
    return name.removesuffix(f"-{max(kinds, key=len)}") if kinds else name


def _order(models: Sequence[_Scored], measure: str) -> _Order:
    models = [model for model in models if getattr(model.score, measure) is not None]
    goodness = np.array([-getattr(model.score, measure) for model in models])
    success = np.array([model.success.successes / model.success.n for model in models])
    pairs = [
        (goodness[a] - goodness[b], success[a] - success[b])
        for a, b in combinations(range(len(models)), 2)
        if models[a].environment == models[b].environment
    ]
    agreeing = sum(bool(by_score * by_success > 0) for by_score, by_success in pairs)
    correlation = rank_correlation(goodness, success) if len(models) > 1 else None
    return _Order(measure, correlation, agreeing, len(pairs))

"""Two methods on the same tasks: a difference with its interval and its test (promise P22).

Differences are in percentage points, intervals are 95 %. A difference is shown where the exact test and the interval
agree on it. Tasks are what both resample: pairs of one task, of several training seeds, are taken together. So they
speak of the models at hand; where there are several trainings of each, these must show the difference too.
A p-value is of one test; `holm` corrects those of several.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from saltwm.evaluation.statistics import ALPHA, over_seeds
from saltwm.ground.errors import MismatchError, UsageError
from saltwm.ground.rng import stream

NOTHING_SHOWN = "no difference shown"
_RESAMPLES = 10_000


@dataclass(frozen=True)
class PairedDifference:
    """a against b on the same tasks: the 2x2 counts, a - b in points, its interval, the exact test and what it says."""

    both: int
    only_a: int
    only_b: int
    neither: int
    difference: float
    """Success of a less success of b, in percentage points."""
    low: float
    """Lower end of its 95 % paired bootstrap interval over tasks, in points."""
    high: float
    p: float
    """Exact two-sided McNemar test, in which the pairs of one task count as one."""
    verdict: str
    """better, worse (a against b) or no difference shown."""


def flip_test(ahead: Iterable[int]) -> float:
    """Exact two-sided p: how often do tasks, each with its methods swapped or not, differ as much by chance?

    `ahead` counts for each task the pairs that only a wins less those that only b wins. With one pair a task this is
    McNemar's test: are the discordant pairs a fair coin? With several there is one coin a task and not one a pair.
    """
    ahead = list(ahead)
    chances = np.ones(1)  # of each sum from -total to total
    for size in filter(None, map(abs, ahead)):
        chances = (np.pad(chances, (2 * size, 0)) + np.pad(chances, (0, 2 * size))) / 2
    observed = abs(sum(ahead))
    return min(1.0, 2 * float(chances[len(chances) // 2 + observed :].sum())) if observed else 1.0


def paired_difference(
    a: Sequence[bool], b: Sequence[bool], tasks: Sequence[Hashable] | None = None
) -> PairedDifference:
    """Compare two methods' outcomes on the same tasks in the same order.

    `tasks` names the task of each pair, where one may be met several times; otherwise each pair has one of its own.
    """
    if len(a) != len(b):
        raise MismatchError(
            f"outcomes of {len(a)} and of {len(b)} tasks cannot be paired; evaluate both on one task set"
        )
    if not a:
        raise UsageError("there is no outcome to compare")
    counts = Counter((bool(x), bool(y)) for x, y in zip(a, b, strict=True))
    both, only_a, only_b, neither = (counts[x, y] for x in (True, False) for y in (True, False))
    ahead, met = Counter[Hashable](), Counter[Hashable]()
    for task, x, y in zip(range(len(a)) if tasks is None else tasks, a, b, strict=True):
        ahead[task] += bool(x) - bool(y)
        met[task] += 1
    difference, p = 100 * (only_a - only_b) / len(a), flip_test(ahead.values())
    low, high = _paired_bootstrap(Counter((ahead[task], met[task]) for task in met))
    return PairedDifference(both, only_a, only_b, neither, difference, low, high, p, _verdict(low, high, p))


def trainings_agree(differences: Sequence[float]) -> bool:
    """Whether the differences of several training seeds show one: all have its sign, and their mean is not zero.

    That is by Student's interval over the seeds, which the tasks' own test knows nothing of: with 3 seeds and a spread
    of 5 points between them it would take one of ten differences of nothing for a real one. A single seed cannot
    disagree.
    """
    if len(differences) == 1:
        return True
    low, high = over_seeds(differences).interval
    return (low > 0 and min(differences) > 0) or (high < 0 and max(differences) < 0)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's p-values, corrected for all of these tests together, in the same order."""
    corrected, largest = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[i]))
        corrected[i] = largest
    return corrected


def _paired_bootstrap(like: Counter[tuple[int, int]]) -> tuple[float, float]:
    """Percentile interval of the difference in points, resampling tasks.

    `like` counts them by (points that a is ahead there, pairs).

    One imagined task that only a wins and one that only b wins join the real ones (Bonett and Price, 2012, do the same
    to Wald's interval): without them an evaluation with no discordant pair would claim a difference of exactly zero.
    """
    most = max(pairs for _, pairs in like)
    counts = Counter({(most, most): 1, (-most, most): 1, (0, most): 0})
    counts.update(like)
    kinds = sorted(counts, key=lambda kind: (-abs(kind[0]), -kind[0], kind[1]))
    tasks = counts.total()
    shares = [counts[kind] / tasks for kind in kinds]
    draws = stream(0, "paired bootstrap").multinomial(tasks, shares, size=_RESAMPLES)
    ahead, pairs = np.array(kinds).T
    low, high = np.quantile((draws @ ahead) / (draws @ pairs), [ALPHA / 2, 1 - ALPHA / 2])
    return float(100 * low), float(100 * high)


def _verdict(low: float, high: float, p: float) -> str:
    if p >= ALPHA or low <= 0 <= high:
        return NOTHING_SHOWN
    return "better" if low > 0 else "worse"

"""Statistics of success rates: a rate with its interval, a mean over seeds with its deviation (promise P22).

Rates are counts with intervals as shares; what is taken over seeds is in percent, as the paper prints it. All
intervals are 95 %.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from saltwm.disk.records import Rate
from saltwm.ground.errors import NonFiniteError, UsageError

CONFIDENCE = 0.95
ALPHA = 1 - CONFIDENCE
"""A difference is claimed where p is below this."""
Z = 1.959963984540054
"""The normal quantile of a two-sided interval of 95 %."""


@dataclass(frozen=True)
class OverSeeds:
    """Mean and sample standard deviation (ddof=1) of one rate per seed; no deviation from a single seed."""

    mean: float
    std: float | None
    seeds: int

    @property
    def interval(self) -> tuple[float, float]:
        """Student's interval of the mean: what these seeds leave room for; all numbers from a single seed."""
        if self.std is None:
            return -math.inf, math.inf
        from scipy.special import stdtrit  # a tenth of a second, for few

        half = float(stdtrit(self.seeds - 1, 1 - ALPHA / 2)) * self.std / math.sqrt(self.seeds)
        return self.mean - half, self.mean + half


def wilson(successes: int, n: int) -> Rate:
    """The rate successes / n with its Wilson score interval, as shares in [0, 1]."""
    return over_tasks(successes, n, n)


def over_tasks(successes: int, n: int, tasks: int) -> Rate:
    """The rate successes / n with the Wilson interval of `tasks` trials (Newcombe, 1998).

    Several training seeds meet the same tasks: n outcomes are then no more independent than there are tasks.
    """
    if not 0 <= successes <= n or n == 0:
        raise UsageError(f"a rate needs 0 <= successes <= n and n > 0, found {successes} of {n}")
    share = successes / n
    denominator = 2 * (tasks + Z**2)
    centre = (2 * tasks * share + Z**2) / denominator
    half = Z / denominator * math.sqrt(4 * tasks * share * (1 - share) + Z**2)
    low = 0.0 if successes == 0 else centre - half
    high = 1.0 if successes == n else centre + half
    return Rate(successes, n, low, high)


def over_seeds(rates: Sequence[float]) -> OverSeeds:
    """Mean and spread of one rate per evaluation seed; a missing seed is the caller's to report, never skipped here."""
    values = np.asarray(rates, dtype=np.float64)
    if values.ndim != 1 or values.size == 0:
        raise UsageError(f"a mean over seeds needs at least one rate, found {list(rates)}")
    if not np.isfinite(values).all():
        raise NonFiniteError(f"a rate over seeds is not a number: {list(rates)}; evaluate the missing seed first")
    std = float(values.std(ddof=1)) if values.size > 1 else None
    return OverSeeds(float(values.mean()), std, values.size)

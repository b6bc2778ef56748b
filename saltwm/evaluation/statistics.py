"""Statistics of success rates: a rate with its interval, a difference with its test (promise P22).

Rates are counts; differences, intervals and seed means are in percent or percentage points, as the paper prints them.
All intervals are 95 %. A verdict follows the exact test, which is stricter than the interval: where the two disagree,
"no difference shown" is printed, as where several training seeds do not agree on the sign of a difference.
A p-value is of one test; `holm` corrects those of several.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from saltwm.disk.records import PairedDifference, Rate
from saltwm.ground.errors import MismatchError, NonFiniteError, UsageError
from saltwm.ground.rng import stream

CONFIDENCE = 0.95
ALPHA = 1 - CONFIDENCE
"""A difference is claimed where p is below this."""
Z = 1.959963984540054
"""The normal quantile of a two-sided interval of 95 %."""
NOTHING_SHOWN = "no difference shown"
_RESAMPLES = 10_000


@dataclass(frozen=True)
class OverSeeds:
    """Mean and sample standard deviation (ddof=1) of one rate per seed; no deviation from a single seed."""

    mean: float
    std: float | None
    seeds: int


def wilson(successes: int, n: int) -> Rate:
    """The rate successes / n with its Wilson score interval, as shares in [0, 1]."""
    return over_tasks(successes, n, n)


def over_tasks(successes: int, n: int, tasks: int) -> Rate:
    """The rate successes / n with the Wilson interval of `tasks` trials (Newcombe, 1998).

    Several training seeds meet the same tasks: n outcomes are then no more independent than there are tasks.
    """
    _check_counts(successes, n)
    share = successes / n
    denominator = 2 * (tasks + Z**2)
    centre = (2 * tasks * share + Z**2) / denominator
    half = Z / denominator * math.sqrt(4 * tasks * share * (1 - share) + Z**2)
    low = 0.0 if successes == 0 else centre - half
    high = 1.0 if successes == n else centre + half
    return Rate(successes, n, low, high)


def mcnemar(only_a: int, only_b: int) -> float:
    """Exact two-sided p of McNemar's test: are the discordant pairs a fair coin? 1 where there are none."""
    if min(only_a, only_b) < 0:
        raise UsageError(f"McNemar: counts cannot be negative, found {only_a} and {only_b}")
    if only_a + only_b == 0:
        return 1.0
    from scipy import stats  # a second of imports, which the workers of an evaluation do without

    return float(stats.binomtest(only_a, only_a + only_b, 0.5).pvalue)


def paired_difference(a: Sequence[bool], b: Sequence[bool], seed: int = 0) -> PairedDifference:
    """Compare two methods' outcomes on the same tasks in the same order."""
    if len(a) != len(b):
        raise MismatchError(
            f"outcomes of {len(a)} and of {len(b)} tasks cannot be paired; evaluate both on one task set"
        )
    counts = Counter((bool(x), bool(y)) for x, y in zip(a, b, strict=True))
    both, only_a, only_b, neither = (counts[x, y] for x in (True, False) for y in (True, False))
    return paired_counts(both, only_a, only_b, neither, seed)


def paired_counts(both: int, only_a: int, only_b: int, neither: int, seed: int = 0) -> PairedDifference:
    """Compare two methods by the 2x2 counts of their paired outcomes."""
    n = both + only_a + only_b + neither
    if min(both, only_a, only_b, neither) < 0 or n == 0:
        raise UsageError(f"paired counts must be non-negative and not all zero: {both}, {only_a}, {only_b}, {neither}")
    difference = 100 * (only_a - only_b) / n
    low, high = _paired_bootstrap(only_a, only_b, n, seed)
    p = mcnemar(only_a, only_b)
    return PairedDifference(both, only_a, only_b, neither, difference, low, high, p, _verdict(difference, p))


def over_seeds(rates: Sequence[float]) -> OverSeeds:
    """Mean and spread of one rate per evaluation seed; a missing seed is the caller's to report, never skipped here."""
    values = np.asarray(rates, dtype=np.float64)
    if values.ndim != 1 or values.size == 0:
        raise UsageError(f"a mean over seeds needs at least one rate, found {list(rates)}")
    if not np.isfinite(values).all():
        raise NonFiniteError(f"a rate over seeds is not a number: {list(rates)}; evaluate the missing seed first")
    std = float(values.std(ddof=1)) if values.size > 1 else None
    return OverSeeds(float(values.mean()), std, values.size)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's p-values, corrected for all of these tests together, in the same order."""
    corrected, largest = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[i]))
        corrected[i] = largest
    return corrected


def _paired_bootstrap(only_a: int, only_b: int, n: int, seed: int) -> tuple[float, float]:
    """Percentile interval of the difference in points, resampling pairs.

    One imagined pair of each discordant kind joins the n real ones (Bonett and Price, 2012, do the same to Wald's
    interval): without them an evaluation with no discordant pair would claim a difference of exactly zero.
    """
    pairs = n + 2
    shares = [(only_a + 1) / pairs, (only_b + 1) / pairs, (n - only_a - only_b) / pairs]
    draws = stream(seed, "paired bootstrap").multinomial(pairs, shares, size=_RESAMPLES)
    low, high = np.quantile((draws[:, 0] - draws[:, 1]) / pairs, [ALPHA / 2, 1 - ALPHA / 2])
    return float(100 * low), float(100 * high)


def _verdict(difference: float, p: float) -> str:
    if p >= ALPHA:
        return NOTHING_SHOWN
    return "better" if difference > 0 else "worse"


def _check_counts(successes: int, n: int) -> None:
    if not 0 <= successes <= n or n == 0:
        raise UsageError(f"a rate needs 0 <= successes <= n and n > 0, found {successes} of {n}")

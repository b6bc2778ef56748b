"""Measuring speed as ratios within one run: jobs take turns, so that a busy machine slows all of them alike."""

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """One measured number, with what is wanted of it if anything is."""

    what: str
    value: float
    unit: str
    """s, x (a ratio), MB, GFLOP/s, frames/s, ..."""
    at_least: float | None = None
    at_most: float | None = None
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the number is what is wanted; none if nothing is."""
        if self.at_least is None and self.at_most is None:
            return None
        above = self.at_least is None or self.value >= self.at_least
        return above and (self.at_most is None or self.value <= self.at_most)


@dataclass(frozen=True)
class Timings:
    """Seconds of each job in each round."""

    seconds: dict[str, list[float]]

    def fastest(self, job: str) -> float:
        """The least disturbed round."""
        return min(self.seconds[job])

    def ratio(self, job: str, other: str) -> float:
        """How many times as long `job` takes as `other`: the median over rounds of their quotient."""
        pairs = zip(self.seconds[job], self.seconds[other], strict=True)
        return statistics.median(a / b for a, b in pairs)


def take_turns(
    jobs: Mapping[str, Callable[[], object]], rounds: int, clock: Callable[[], float] = time.perf_counter
) -> Timings:
    """Run every job once per round, after one round that is not counted (buffers, caches, compiled kernels).

    For jobs of one thread `time.process_time` is the better clock: others on the machine do not slow it down.
    """
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for number in range(rounds + 1):
        for name, job in jobs.items():
            started = clock()
            job()
            if number:
                seconds[name].append(clock() - started)
    return Timings(seconds)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Inside, torch computes with one thread, as the workers of an evaluation do."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)

"""Training batches read ahead of the step that needs them; each of many processes reads its share."""

import time
from collections import deque
from collections.abc import Iterator

from saltwm.data.windows import Batch, BatchLater, Windows
from saltwm.ground.errors import UsageError


class Batches:
    """Iterate once for (step, Batch) of first_step <= step < last_step; `waited` sums the seconds of waiting for them.

    The global batch of a step does not depend on the number of processes: each takes a contiguous slice of it.
    """

    AHEAD = 2
    """Batches being read while the caller works on one."""

    def __init__(
        self,
        windows: Windows,
        seed: int,
        first_step: int,
        last_step: int,
        batch_size: int,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        if batch_size % world_size:
            raise UsageError(f"a batch of {batch_size} windows cannot be shared evenly by {world_size} processes")
        share = batch_size // world_size
        self.waited = 0.0
        self._windows = windows
        self._seed = seed
        self._steps = range(first_step, last_step)
        self._batch_size = batch_size
        self._share = slice(rank * share, (rank + 1) * share)

    def __iter__(self) -> Iterator[tuple[int, Batch]]:
        pending: deque[tuple[int, BatchLater]] = deque()
        for step in self._steps:
            pending.append((step, self._request(step)))
            if len(pending) > self.AHEAD:
                yield self._wait(*pending.popleft())
        while pending:
            yield self._wait(*pending.popleft())

    def _request(self, step: int) -> BatchLater:
        ids = self._windows.training_ids(self._seed, step, self._batch_size)
        return self._windows.batch_later(ids[self._share])

    def _wait(self, step: int, later: BatchLater) -> tuple[int, Batch]:
        started = time.perf_counter()
        batch = later.result()
        self.waited += time.perf_counter() - started
        return step, batch

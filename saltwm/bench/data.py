"""What data cost: frames collected per second in each environment, and random frames read against h5py."""

import tempfile
import time
from pathlib import Path

import numpy as np

from saltwm.bench.timing import Figure, take_turns
from saltwm.disk.dataset import Dataset
from saltwm.envs import env_class
from saltwm.ground.rng import stream
from saltwm.interop.hdf5 import export_hdf5
from saltwm.jobs.collect import Collect

WANTED_RATES = {"two-room": (1, 5000), "push-t": (1, 800), "reacher": (5, 250), "cube": (5, 70)}
"""Environment -> (every n-th frame kept, frames per second wanted of two processes at 64 px, fast)."""
RELEASED_SIZE = 224
FRAMES_PER_BATCH = 768  # 128 windows of 6 frames, App. B.2 and B.4


def collect_figures(seconds_each: float = 20.0) -> list[Figure]:
    """Frames rendered, compressed and written per second by two processes, start-up not counted."""
    return [_collect_rate(name, every, wanted, seconds_each) for name, (every, wanted) in WANTED_RATES.items()]


def _collect_rate(name: str, frame_every: int, wanted: float, seconds: float) -> Figure:
    """Two collections of different length: their difference leaves out what starting the processes costs."""
    steps_per_episode = env_class(name).max_episode_steps
    few = max(4, int(0.1 * seconds * wanted * frame_every / steps_per_episode))
    many = max(3 * few, int(seconds * wanted * frame_every / steps_per_episode))
    timed = [_timed_collection(name, frame_every, episodes) for episodes in (few, many)]
    rate = (timed[1][0] - timed[0][0]) / (timed[1][1] - timed[0][1])
    note = f"{timed[1][0]} frames, every {frame_every}"
    return Figure(f"collect {name}, 64 px, fast, two processes", rate, "frames/s", at_least=wanted, note=note)


def _timed_collection(name: str, frame_every: int, episodes: int) -> tuple[int, float]:
    """Frames stored, seconds taken."""
    with tempfile.TemporaryDirectory() as directory:
        started = time.perf_counter()
        dataset = Collect(name, Path(directory) / "data", episodes, frame_every=frame_every, workers=2).do()
        frames = int((dataset.lengths // frame_every + 1).sum())
        return frames, time.perf_counter() - started


def load_figures(episodes: int = 60, rounds: int = 5) -> list[Figure]:
    """A batch of random 224 px frames from a dataset, against h5py on the released files' layout."""
    with tempfile.TemporaryDirectory() as directory:
        dataset = Collect("push-t", Path(directory) / "data", episodes, image_size=RELEASED_SIZE, workers=2).do()
        file = Path(directory) / "released.h5"
        export_hdf5(dataset, file)
        return _compare_readers(dataset, file, rounds)


def _compare_readers(dataset: Dataset, file: Path, rounds: int) -> list[Figure]:
    import h5py
    import hdf5plugin  # noqa: F401  (registers the released files' compression)

    rng = stream(0, "bench load")
    first_row = np.concatenate([[0], np.cumsum(dataset.lengths + 1)])

    def draw() -> tuple[np.ndarray, np.ndarray]:
        episodes = rng.integers(0, len(dataset.lengths), FRAMES_PER_BATCH)
        return episodes, rng.integers(0, dataset.lengths[episodes] + 1)

    with h5py.File(file, "r", rdcc_nbytes=256 * 2**20) as released:
        pixels = released["pixels"]

        def by_h5py() -> None:
            episodes, steps = draw()
            for row in (first_row[episodes] + steps).tolist():
                pixels[row]

        jobs = {"saltwm": lambda: dataset.read_frames(*draw()), "h5py": by_h5py}
        timings = take_turns(jobs, rounds)
    note = f"{FRAMES_PER_BATCH} random frames of {dataset.lengths.sum()}, 100-frame Blosc-LZ4 chunks, 256 MB cache"
    return [
        Figure("read a batch, saltwm", timings.fastest("saltwm"), "s"),
        Figure("h5py over saltwm, released layout", timings.ratio("h5py", "saltwm"), "x", at_least=3, note=note),
    ]

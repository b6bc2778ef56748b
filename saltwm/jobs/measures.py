"""Diagnose and decode: what is measured of a model apart from any planner, and what its latents show."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from saltwm.jobs.job import Aside, AsJson, Job, Maybe, Memo, Positional

if TYPE_CHECKING:
    from saltwm.jobs.decode import Decoded
    from saltwm.jobs.diagnose import Diagnosed

DecoderWord = Literal["small", "attention"]
IN_FILES: dict[DecoderWord, str] = {"small": "small", "attention": "paper"}
"""Each decoder by the name that records have for it."""


@dataclass(frozen=True)
class Diagnose(Job):
    """Measure how a model's errors propagate (App. C) and what its latents know: probes, costs against distances."""

    VERB = "diagnose"

    run: Positional[Memo[Path]]
    """Run or checkpoint directory."""
    data: Memo[Path]
    """Dataset whose held-out episodes are used."""
    out: Aside[Path] = Path("results")
    """Results directory."""
    horizon: int = 20
    """Rollout steps."""
    windows: tuple[int, ...] = (20, 25, 30)
    """Lengths of the stretches that are measured, in action blocks; shorter where no episode is long enough."""
    trajectories: Maybe[int] = None
    """Trajectories per batch; 40 for SALT and 16 for LeWM, as the paper."""
    batches: int = 3
    """Batches for each of these lengths; the band spans the smallest and largest norm of all of them."""
    seed: int = 0
    """Seed of the stretches that are drawn."""
    frames: int = 2000
    """Held-out frames that the probes are scored on, and pairs of frames whose costs are ranked."""
    json: AsJson = False

    def do(self) -> "Diagnosed":
        """Measure and record."""
        from saltwm.disk.dataset import Dataset
        from saltwm.jobs.diagnose import diagnose_run

        return diagnose_run(
            self.run,
            Dataset.open(self.data, verify="sizes"),
            self.out,
            horizon=self.horizon,
            windows=self.windows,
            trajectories=self.trajectories,
            batches=self.batches,
            frames=self.frames,
            seed=self.seed,
        )


@dataclass(frozen=True)
class Decode(Job):
    """Draw open-loop predictions with a decoder fitted afterwards (App. C.5): for looking, never for planning."""

    VERB = "decode"

    run: Positional[Memo[Path]]
    """Run or checkpoint directory; its model is left as it is."""
    data: Memo[Path]
    """Dataset: training episodes fit the decoder, held-out ones are drawn; of a held-out dataset, one half each."""
    out: Aside[Path] = Path("results")
    """Results directory."""
    decoder: DecoderWord = "small"
    """small: transposed convolutions, minutes on a core; attention: the paper's, in 16 px patches, for a GPU."""
    steps: Maybe[int] = None
    """Steps of the decoder's fit; 1000 for small, 30000 for attention."""
    episodes: int = 3
    """Episodes to draw."""
    frames: int = 10_000
    """Frames to fit the decoder on, held in memory; fewer if there are not as many."""
    seed: int = 0
    """Seed of the decoder and of the choice of episodes."""
    json: AsJson = False

    def do(self) -> "Decoded":
        """Fit, draw and record."""
        from saltwm.disk.dataset import Dataset
        from saltwm.jobs.decode import decode_run

        return decode_run(
            self.run,
            Dataset.open(self.data, verify="sizes"),
            self.out,
            decoder=IN_FILES[self.decoder],
            steps=self.steps,
            episodes=self.episodes,
            frames=self.frames,
            seed=self.seed,
        )

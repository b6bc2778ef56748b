"""Diagnose and decode: what is measured of a model apart from any planner, and what its latents show.

Both fill RESULTS/diagnostics/RUN, each with a file of its own, so that folder is of one model.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from saltwm.disk import durable
from saltwm.disk.claim import require_same
from saltwm.disk.records import name_of_run
from saltwm.ground.checks import at_least
from saltwm.jobs.job import Aside, AsJson, Filed, Maybe, Memo, Positional, ResultsFolder

if TYPE_CHECKING:
    from saltwm.disk.checkpoint import CheckpointInfo
    from saltwm.disk.dataset import Dataset
    from saltwm.jobs.decode import Decoded
    from saltwm.jobs.diagnose import Diagnosed

DecoderWord = Literal["small", "attention"]
IN_FILES: dict[DecoderWord, str] = {"small": "small", "attention": "paper"}
"""Each decoder by the name that records have for it."""


@dataclass(frozen=True)
class Measuring(Filed):
    """A job that measures a model and records what it found under RESULTS/diagnostics/RUN."""

    DEPTH = 2
    RECORD: ClassVar[str]
    """The record that it leaves beside its own file."""

    run: Positional[Memo[Path]]
    """Run or checkpoint directory; its model is left as it is."""
    data: Memo[Path]
    """Dataset: the model is measured on held-out episodes; what is fitted for that is fitted on the others."""
    out: Aside[ResultsFolder] = Path("results")

    @property
    def folder(self) -> Path:
        """RESULTS/diagnostics/RUN, under the name that evaluations of the run have."""
        return self.out / "diagnostics" / name_of_run(Path(os.path.abspath(self.run)))

    def begin(self, dataset: "Dataset") -> Self:
        """The job with the hashes of its inputs; MismatchError if its folder is another job's, or another model's."""
        from saltwm.disk import checkpoint

        path = checkpoint.find_checkpoint(self.run)
        job = self.begun({"run": checkpoint.identity(path), "data": dataset.sha256})
        durable.check_folder(self.folder)
        for kind in (Diagnose, Decode):
            kind._require_same_model(job)
        job.require_own(self.folder)
        return job

    @classmethod
    def _require_same_model(cls, job: "Measuring") -> None:
        """MismatchError if a job of this class left records of another model in the folder of `job`."""
        there = cls.found_in(job.folder)
        if there is not None and there.inputs:
            require_same(job.folder, {"run": job.inputs["run"]}, {"run": there.inputs.get("run")})
        elif there is not None:
            require_same(job.folder, {"run": os.path.abspath(job.run)}, {"run": os.path.abspath(there.run)})

    @classmethod
    def found_in(cls, folder: Path) -> Self | None:
        """The job of the folder; of records from before these jobs left files, one with the usual options."""
        if (folder / cls.FILE).exists() or not (folder / cls.RECORD).exists():
            return super().found_in(folder)
        training = folder / "training.json"
        data = durable.read_json(training)["data"] if training.exists() else "DATA"
        return cls(Path(durable.read_json(folder / cls.RECORD)["run"]), Path(data), folder.parents[1])


@dataclass(frozen=True)
class Diagnose(Measuring):
    """Measure how a model's errors propagate (App. C) and what its latents know: probes, costs against distances."""

    FILE = "diagnose.json"
    RECORD = "diagnosis.json"

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
    device: Aside[str] = "auto"
    """Where frames are encoded: auto takes the best there is; or cpu, gpu, cuda:1, mps, ..."""
    json: AsJson = False

    def do(self) -> "Diagnosed":
        """Measure and record."""
        from saltwm.disk.dataset import Dataset
        from saltwm.jobs.diagnose import diagnose_run

        at_least("the number of windows", len(self.windows))

        return diagnose_run(self, Dataset.open(self.data, verify="sizes"))


@dataclass(frozen=True)
class Decode(Measuring):
    """Draw open-loop predictions with a decoder fitted afterwards (App. C.5): for looking, never for planning."""

    FILE = "decode.json"
    RECORD = "decoded.json"

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
    device: Aside[str] = "auto"
    """Where to encode, fit and draw: auto takes the best there is; or cpu, gpu, cuda:1, mps, ..."""
    json: AsJson = False

    def do(self) -> "Decoded":
        """Fit, draw and record."""
        from saltwm.disk.dataset import Dataset
        from saltwm.jobs.decode import decode_run

        return decode_run(self, Dataset.open(self.data, verify="sizes"))


def warn_if_seen(info: "CheckpointInfo", dataset: "Dataset", path: Path) -> None:
    """A warning and no refusal, as `clean` has: a run that splits as the paper does has no other episodes of its own.

    Its diagnosis still compares transitions with one another; it only says less about new data.
    """
    from saltwm.data.split import why_seen
    from saltwm.ground.progress import note

    seen = why_seen(info, dataset)
    if seen is not None:
        note(f"{path}: measured on episodes that training may have seen: {seen}; saltwm collect has --held-out")

"""Verbs about data."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from saltwm.cli.printing import RESULTS, Maybe, command_line, readable, show
from saltwm.ground.config import RenderQuality, Variant

if TYPE_CHECKING:
    from saltwm.jobs.inspection import DatasetStats


@dataclass(frozen=True)
class Collect:
    """Collect episodes of an environment into a dataset; an interrupted collection goes on."""

    environment: tyro.conf.Positional[str]
    """two-room, push-t, reacher, cube or cube-double."""
    out: Path
    """Dataset directory."""
    episodes: int = 2000
    """Episodes to collect."""
    policy: Maybe[str] = None
    """How to act; by default expert (two-room), pusher (push-t), random (reacher), oracle (cube, cube-double)."""
    seed: int = 0
    """Episode i is a function of (seed, i)."""
    variant: Variant = "clean"
    """Physics: clean, or paper for the public benchmark's."""
    image_size: int = 64
    """Height and width of a frame in pixels."""
    render: RenderQuality = "fast"
    """full looks like the benchmark; fast has no shadows, reflections and multisampling; soft is fast without jags."""
    frame_every: int = 1
    """Keep every n-th frame; 5 keeps just those that windows at the frameskip use."""
    held_out: bool = False
    """Every episode is for evaluation: train refuses the dataset, and tasks may come from all of it."""
    workers: int = 2
    """Processes."""
    json: bool = False
    """Print the result as JSON."""

    def run(self) -> None:
        """Collect and print."""
        from saltwm.jobs.collect import collect

        dataset = collect(
            self.environment,
            self.out,
            self.episodes,
            seed=self.seed,
            policy=self.policy,
            variant=self.variant,
            image_size=self.image_size,
            render=self.render,
            frame_every=self.frame_every,
            held_out=self.held_out,
            workers=self.workers,
        )
        summary = {
            "dataset": str(self.out),
            "episodes": len(dataset.lengths),
            "actions": int(dataset.lengths.sum()),
            "sha256": dataset.sha256,
        }
        show(self.json, summary, self._next())

    def _next(self) -> str:
        run = f"runs/{self.environment}-salt"
        if self.held_out:
            return command_line("saltwm", "evaluate", run, "--data", self.out, "--protocol", "clean", "--out", RESULTS)
        return command_line("saltwm", "train", self.out, "--preset", "quick", "--out", run)


@dataclass(frozen=True)
class DataInfo:
    """Show what a dataset says of itself."""

    dataset: tyro.conf.Positional[Path]
    """Dataset directory."""
    json: bool = False
    """Print as JSON."""

    def run(self) -> None:
        """Print the facts."""
        from saltwm.disk.dataset import Dataset
        from saltwm.jobs.inspection import info

        show(self.json, dataclasses.asdict(info(Dataset.open(self.dataset, verify="sizes"))))


@dataclass(frozen=True)
class DataVerify:
    """Check every hash, shape and value of a dataset."""

    dataset: tyro.conf.Positional[Path]
    """Dataset directory."""
    json: bool = False
    """Print as JSON."""

    def run(self) -> None:
        """Verify; damage is an error with exit code 6."""
        from saltwm.disk.dataset import Dataset

        dataset = Dataset.open(self.dataset, verify="full")
        show(self.json, {"dataset": str(self.dataset), "sha256": dataset.sha256, "verdict": "whole"})


@dataclass(frozen=True)
class DataStats:
    """Show whether the data are worth learning from: solved pairs, motion, coverage, actions; with a picture."""

    dataset: tyro.conf.Positional[Path]
    """Dataset directory."""
    out: Path = Path("stats.png")
    """The picture."""
    json: bool = False
    """Print as JSON."""

    def run(self) -> None:
        """Measure, draw and print."""
        from saltwm.disk.dataset import Dataset
        from saltwm.jobs.inspection import plot_stats, stats

        dataset = Dataset.open(self.dataset, verify="sizes")
        plot_stats(dataset, self.out)
        found = stats(dataset)
        result = dataclasses.asdict(found) if self.json else _in_words(found)
        show(self.json, {**result, "picture": str(self.out)})


def _in_words(found: "DatasetStats") -> dict[str, Any]:
    """Statistics as a person reads them."""
    from saltwm.jobs.inspection import QUANTILES

    quantiles = ", ".join(f"{100 * q:g}" for q in QUANTILES)
    return {
        "episodes": found.episodes,
        "pairs": f"{found.pairs} of a state and the one {found.offset_steps} steps later; five numbers are their "
        f"{quantiles} % quantiles",
        "already solved": f"{found.solved_share:.1%}",
        "distance": f"{readable(found.distance)} success radii",
        **{
            field.name: f"moves {readable(field.motion)} {field.unit}; at all in "
            f"{field.moving_share:.1%} of the steps; visits {field.coverage:.0%} of its range"
            for field in found.fields
        },
        "actions": f"mean {readable(found.action_mean)}; std {readable(found.action_std)}; from "
        f"{readable(found.action_min)} to {readable(found.action_max)}; {found.action_at_bound_share:.1%} at a bound",
    }


@dataclass(frozen=True)
class DataPreview:
    """Draw a contact sheet and a moving picture of some episodes."""

    dataset: tyro.conf.Positional[Path]
    """Dataset directory."""
    out: Path = Path("preview")
    """Directory for the pictures."""
    json: bool = False
    """Print as JSON."""

    def run(self) -> None:
        """Draw and print where."""
        from saltwm.disk.dataset import Dataset
        from saltwm.jobs.inspection import preview

        show(self.json, dataclasses.asdict(preview(Dataset.open(self.dataset, verify="sizes"), self.out)))


@dataclass(frozen=True)
class DataImport:
    """Bring in a benchmark file (.h5, .h5.zst, .tar.zst); an interrupted import goes on."""

    file: tyro.conf.Positional[Path]
    """The file."""
    env: str
    """Environment that it holds."""
    out: Path
    """Dataset directory."""
    image_size: Maybe[int] = None
    """Average the frames down to this size."""
    episodes: Maybe[int] = None
    """Take only the first so many."""
    json: bool = False
    """Print as JSON."""

    def run(self) -> None:
        """Import and print."""
        from saltwm.interop.hdf5 import import_hdf5

        dataset = import_hdf5(self.file, self.env, self.out, self.image_size, self.episodes)
        summary = {"dataset": str(self.out), "episodes": len(dataset.lengths), "sha256": dataset.sha256}
        show(self.json, summary, command_line("saltwm", "data", "preview", self.out))


@dataclass(frozen=True)
class DataExport:
    """Write a dataset as an HDF5 file that stable-worldmodel reads."""

    dataset: tyro.conf.Positional[Path]
    """Dataset directory."""
    out: Path
    """The file."""
    json: bool = False
    """Print as JSON."""

    def run(self) -> None:
        """Export and print."""
        from saltwm.disk.dataset import Dataset
        from saltwm.interop.hdf5 import export_hdf5

        export_hdf5(Dataset.open(self.dataset), self.out)
        show(self.json, {"file": str(self.out), "bytes": self.out.stat().st_size})


DataJob = (
    Annotated[DataInfo, tyro.conf.subcommand("info")]
    | Annotated[DataVerify, tyro.conf.subcommand("verify")]
    | Annotated[DataStats, tyro.conf.subcommand("stats")]
    | Annotated[DataPreview, tyro.conf.subcommand("preview")]
    | Annotated[DataImport, tyro.conf.subcommand("import")]
    | Annotated[DataExport, tyro.conf.subcommand("export")]
)


@dataclass(frozen=True)
class Data:
    """Look at, check, import or export a dataset."""

    job: DataJob

    def run(self) -> None:
        """Do the job."""
        self.job.run()

"""Jobs on datasets that are there: looking, checking, importing and exporting."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Self

import tyro

from saltwm.disk.durable import read_config
from saltwm.ground.checks import at_least
from saltwm.ground.errors import BENCHMARK_FILES, UsageError
from saltwm.jobs.collect import Collect
from saltwm.jobs.job import Aside, AsJson, Job, Maybe, Positional, Some, flag, spell

if TYPE_CHECKING:
    from saltwm.disk.dataset import Dataset, Verify
    from saltwm.disk.layout import Recipe
    from saltwm.jobs.inspection import DatasetInfo, DatasetStats, Preview


@dataclass(frozen=True)
class _OfDataset(Job):
    """A job on one dataset."""

    dataset: Positional[Path]
    """Dataset directory."""

    def opened(self, verify: "Verify" = "sizes") -> "Dataset":
        """The dataset; damage is an error with exit code 6."""
        from saltwm.disk.dataset import Dataset

        return Dataset.open(self.dataset, verify)


@dataclass(frozen=True)
class DataInfo(_OfDataset):
    """Show what a dataset says of itself."""

    VERB = "data info"

    json: AsJson = False

    def do(self) -> "DatasetInfo":
        """The facts."""
        from saltwm.jobs.inspection import info

        return info(self.opened())


@dataclass(frozen=True)
class DataVerify(_OfDataset):
    """Check every hash, shape and value of a dataset."""

    VERB = "data verify"

    json: AsJson = False

    def do(self) -> "Dataset":
        """The dataset, which is whole."""
        return self.opened("full")


@dataclass(frozen=True)
class DataStats(_OfDataset):
    """Show whether the data are worth learning from: solved pairs, motion, coverage, actions; with a picture."""

    VERB = "data stats"

    out: Aside[Path] = Path("stats.png")
    """The picture, NAME.png."""
    json: AsJson = False

    def do(self) -> "DatasetStats":
        """Measure and draw."""
        from saltwm.jobs.inspection import look_at, plot_stats, stats

        if self.out.suffix.lower() != ".png" or self.out.is_dir() or not self.out.parent.is_dir():
            raise UsageError(f"{self.out}: expected a file NAME.png in a folder that is there")
        sample = look_at(self.opened())
        plot_stats(sample, self.out)
        return stats(sample)


@dataclass(frozen=True)
class DataPreview(_OfDataset):
    """Draw a contact sheet and a moving picture of some episodes."""

    VERB = "data preview"

    out: Aside[Path] = Path("preview")
    """Directory for the pictures."""
    only: Some[int] = ()
    """Numbers of the episodes to draw; some that are evenly spaced otherwise."""
    json: AsJson = False

    def do(self) -> "Preview":
        """Draw."""
        from saltwm.jobs.inspection import preview

        return preview(self.opened(), self.out, only=self.only)


@dataclass(frozen=True)
class DataImport(Job):
    """Import recordings: LeRobot v3, Lance, Minari, folders of videos or pictures with a CSV, or a benchmark file.

    Benchmark files are .h5, .h5.zst and .tar.zst; their import goes on where it was interrupted. A dataset grows: the
    same command takes the episodes that came since, or more --episodes of a file; --append adds another folder.
    """

    VERB = "data import"

    file: Positional[Path]
    """The file or folder."""
    out: Aside[Path]
    """Dataset directory."""
    env: Maybe[str] = None
    """Benchmark file: the environment that it holds. Recordings: a name for the robot; the folder's by default."""
    image_size: Maybe[int] = None
    """Average the frames down to this size; 64 for recordings, the file's own for a benchmark file by default."""
    episodes: Maybe[int] = None
    """Take only this many episodes, from the first on."""
    format: Maybe[Literal["hdf5", "lerobot", "lance", "minari", "folder"]] = None
    """What it is; found out by default."""
    camera: Maybe[str] = None
    """Recordings with several cameras: which."""
    fit: Literal["pad", "crop", "stretch"] = "pad"
    """Recordings with oblong frames: black bars, the middle alone, or squeezed."""
    frame_every: int = 1
    """Recordings: keep every n-th frame; 5 keeps just those that windows at the frameskip use."""
    append: Aside[bool] = False
    """Recordings: add these episodes to the dataset, which came from another folder."""
    json: AsJson = False

    def do(self) -> "Dataset":
        """Import; the dataset."""
        from saltwm.envs import introduce
        from saltwm.interop.hdf5 import import_hdf5
        from saltwm.interop.importing import import_recordings

        at_least("image_size", self.image_size)
        if self.format == "hdf5" or (self.format is None and self.file.is_file()):
            if self.env is None and not self.file.name.endswith(BENCHMARK_FILES):
                raise UsageError(
                    f"{self.file}: expected a benchmark file ({', '.join(BENCHMARK_FILES)}) or the folder that holds "
                    "recordings, such as NAME.mp4 beside NAME.csv with a row of actions for each frame"
                )
            if self.env is None:
                raise UsageError(
                    f"{self.file}: a benchmark file does not say what it holds; name its environment with --env. "
                    "Files of another layout are read by a program of yours, which calls saltwm.write_dataset"
                )
            if self.append:
                raise UsageError(f"{self.file}: a benchmark file grows with more --episodes; leave --append out")
            self._require_none_for_recordings()
            return import_hdf5(self.file, introduce(self.env), self.out, self.image_size, self.episodes)
        return import_recordings(
            self.file,
            self.out,
            name=self.env,
            kind=self.format,
            camera=self.camera,
            image_size=64 if self.image_size is None else self.image_size,
            fit=self.fit,
            episodes=self.episodes,
            frame_every=self.frame_every,
            append=self.append,
        )

    def _require_none_for_recordings(self) -> None:
        """UsageError for an option that a benchmark file would not get."""
        for name in ("camera", "fit", "frame_every"):
            if getattr(self, name) != getattr(DataImport, name):
                raise UsageError(f"{self.file}: {flag(name)} is for recordings, found a benchmark file; leave it out")

    @classmethod
    def of(cls, recipe: "Recipe", out: Path) -> Self:
        """The job that makes the dataset of a recipe; its file is looked for in the working directory."""
        from saltwm.disk.layout import Imported

        assert isinstance(recipe.source, Imported)
        world = recipe.world
        return cls(Path(recipe.source.file), out, world.environment, world.image_size, recipe.episodes)


def made(recipe: "Recipe", out: Path) -> Collect | DataImport:
    """The job that makes the dataset of a recipe."""
    if recipe.source.kind == "recorded":
        raise UsageError(f"{out}: was written from recordings; import them again, or run the program that wrote it")
    job = (DataImport if recipe.source.kind == "import" else Collect).of(recipe, out)
    if ":" in recipe.world.environment:  # such a word of a person's own would be imported
        raise UsageError(f"{out}: a file does not run code; name its environment yourself: {spell(job)}")
    return job


def maker(dataset: Path) -> Collect | DataImport | None:
    """The job of a dataset, finished or not; None where there is none."""
    from saltwm.disk.layout import RECIPE_FILE, Recipe

    file = dataset / RECIPE_FILE
    return made(read_config(Recipe, file), dataset) if file.exists() else None


@dataclass(frozen=True)
class DataExport(_OfDataset):
    """Write a dataset as an HDF5 file that stable-worldmodel reads."""

    VERB = "data export"

    out: Aside[Path]
    """The file."""
    json: AsJson = False

    def do(self) -> None:
        """Write the file."""
        from saltwm.interop.hdf5 import export_hdf5

        export_hdf5(self.opened("full"), self.out)


@dataclass(frozen=True)
class Data:
    """Look at, check, import or export a dataset."""

    VERB = "data"

    job: (
        Annotated[DataInfo, tyro.conf.subcommand("info")]
        | Annotated[DataVerify, tyro.conf.subcommand("verify")]
        | Annotated[DataStats, tyro.conf.subcommand("stats")]
        | Annotated[DataPreview, tyro.conf.subcommand("preview")]
        | Annotated[DataImport, tyro.conf.subcommand("import")]
        | Annotated[DataExport, tyro.conf.subcommand("export")]
    )

"""Jobs on datasets that are there: looking, checking, importing and exporting."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Self

import tyro

from saltwm.disk.durable import read_config
from saltwm.jobs.collect import Collect
from saltwm.jobs.job import Aside, AsJson, Job, Maybe, Positional

if TYPE_CHECKING:
    from saltwm.disk.dataset import Dataset
    from saltwm.disk.layout import Recipe
    from saltwm.jobs.inspection import DatasetInfo, DatasetStats, Preview


@dataclass(frozen=True)
class DataInfo(Job):
    """Show what a dataset says of itself."""

    VERB = "data info"

    dataset: Positional[Path]
    """Dataset directory."""
    json: AsJson = False

    def do(self) -> "DatasetInfo":
        """The facts."""
        from saltwm.disk.dataset import Dataset
        from saltwm.jobs.inspection import info

        return info(Dataset.open(self.dataset, verify="sizes"))


@dataclass(frozen=True)
class DataVerify(Job):
    """Check every hash, shape and value of a dataset."""

    VERB = "data verify"

    dataset: Positional[Path]
    """Dataset directory."""
    json: AsJson = False

    def do(self) -> "Dataset":
        """The dataset, which is whole; damage is an error with exit code 6."""
        from saltwm.disk.dataset import Dataset

        return Dataset.open(self.dataset, verify="full")


@dataclass(frozen=True)
class DataStats(Job):
    """Show whether the data are worth learning from: solved pairs, motion, coverage, actions; with a picture."""

    VERB = "data stats"

    dataset: Positional[Path]
    """Dataset directory."""
    out: Aside[Path] = Path("stats.png")
    """The picture."""
    json: AsJson = False

    def do(self) -> "DatasetStats":
        """Measure and draw."""
        from saltwm.disk.dataset import Dataset
        from saltwm.jobs.inspection import plot_stats, stats

        dataset = Dataset.open(self.dataset, verify="sizes")
        plot_stats(dataset, self.out)
        return stats(dataset)


@dataclass(frozen=True)
class DataPreview(Job):
    """Draw a contact sheet and a moving picture of some episodes."""

    VERB = "data preview"

    dataset: Positional[Path]
    """Dataset directory."""
    out: Aside[Path] = Path("preview")
    """Directory for the pictures."""
    only: tuple[int, ...] = ()
    """Numbers of the episodes to draw; some that are evenly spaced otherwise."""
    json: AsJson = False

    def do(self) -> "Preview":
        """Draw."""
        from saltwm.disk.dataset import Dataset
        from saltwm.jobs.inspection import preview

        return preview(Dataset.open(self.dataset, verify="sizes"), self.out, only=self.only)


@dataclass(frozen=True)
class DataImport(Job):
    """Bring in a benchmark file (.h5, .h5.zst, .tar.zst); an interrupted import goes on."""

    VERB = "data import"

    file: Positional[Path]
    """The file."""
    env: str
    """Environment that it holds."""
    out: Aside[Path]
    """Dataset directory."""
    image_size: Maybe[int] = None
    """Average the frames down to this size."""
    episodes: Maybe[int] = None
    """Take only this many episodes, from the first on."""
    json: AsJson = False

    def do(self) -> "Dataset":
        """Import what is missing; the dataset."""
        from saltwm.interop.hdf5 import import_hdf5

        return import_hdf5(self.file, self.env, self.out, self.image_size, self.episodes)

    @classmethod
    def of(cls, recipe: "Recipe", out: Path) -> Self:
        """The job that makes the dataset of a recipe; its file is looked for in the working directory."""
        from saltwm.disk.layout import Imported

        assert isinstance(recipe.source, Imported)
        world = recipe.world
        return cls(Path(recipe.source.file), world.environment, out, world.image_size, recipe.episodes)


def made(recipe: "Recipe", out: Path) -> Collect | DataImport:
    """The job that makes the dataset of a recipe."""
    return (DataImport if recipe.source.kind == "import" else Collect).of(recipe, out)


def maker(dataset: Path) -> Collect | DataImport | None:
    """The job of a dataset, finished or not; None where there is none."""
    from saltwm.disk.layout import RECIPE_FILE, Recipe

    file = dataset / RECIPE_FILE
    return made(read_config(Recipe, file), dataset) if file.exists() else None


@dataclass(frozen=True)
class DataExport(Job):
    """Write a dataset as an HDF5 file that stable-worldmodel reads."""

    VERB = "data export"

    dataset: Positional[Path]
    """Dataset directory."""
    out: Aside[Path]
    """The file."""
    json: AsJson = False

    def do(self) -> None:
        """Write the file."""
        from saltwm.disk.dataset import Dataset
        from saltwm.interop.hdf5 import export_hdf5

        export_hdf5(Dataset.open(self.dataset), self.out)


@dataclass(frozen=True)
class Data:
    """Look at, check, import or export a dataset."""

    job: (
        Annotated[DataInfo, tyro.conf.subcommand("info")]
        | Annotated[DataVerify, tyro.conf.subcommand("verify")]
        | Annotated[DataStats, tyro.conf.subcommand("stats")]
        | Annotated[DataPreview, tyro.conf.subcommand("preview")]
        | Annotated[DataImport, tyro.conf.subcommand("import")]
        | Annotated[DataExport, tyro.conf.subcommand("export")]
    )

"""Jobs about shipped models: making one, describing it, and planning with it at once."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from saltwm.disk.shipped import named, spoken
from saltwm.ground.checks import at_least, one_of
from saltwm.ground.errors import UsageError
from saltwm.ground.progress import note
from saltwm.jobs.again import spell_again
from saltwm.jobs.collect import Collect
from saltwm.jobs.data import made
from saltwm.jobs.evaluate import Evaluate, Played, play_task
from saltwm.jobs.job import Aside, AsJson, Job, Maybe, Positional, ResultsFolder, RunFolder, naming_models, spell
from saltwm.jobs.train import Train

if TYPE_CHECKING:
    from saltwm.disk.layout import Recipe
    from saltwm.jobs.shelf import Item
    from saltwm.jobs.shipment import Learnt, Precision, Shipment

CARD_FILE = "README.md"
SHIPPED = Path("checkpoints")
"""Where shipped models are by custom."""


class Shipped(NamedTuple):
    """A shipped checkpoint, its card, and what makes the held-out data that it still lacks."""

    shipment: "Shipment"
    card: Path
    environment: str
    held_out: Path | None
    """None where there are none and nothing collects them: they are of a benchmark's file or of recordings."""
    lacking: Collect | None


@dataclass(frozen=True)
class Ship(Job):
    """Make a small checkpoint of a finished run that others can plan with: weights alone, hashed, with a card."""

    run: Positional[RunFolder]
    out: Aside[Path]
    """Where it goes, checkpoints/ENV-MODEL by custom; a shipped checkpoint there is replaced."""
    precision: Literal["half", "full"] = "half"
    """half: matrices in float16, widened when loaded; full: float32."""
    data: Maybe[Path] = None
    """The training dataset, if it is no longer where it was."""
    results: Maybe[Path] = None
    """Results directory whose evaluations of this run go on the card."""
    max_megabytes: float = 10.0
    """Largest size."""
    json: AsJson = False

    def do(self) -> Shipped:
        """Ship, and write the card."""
        from saltwm.disk.checkpoint import find_checkpoint, read_info
        from saltwm.jobs.shelf import held_out_data
        from saltwm.jobs.shipment import how_learnt, ship

        _require_evaluations(self.results)
        source = find_checkpoint(self.run)
        # Before anything is published: what cannot be spelled leaves no shipment without its card.
        making = _shipping(source, how_learnt(source, self.data), self.out, self.precision)
        shipment = ship(self.run, self.out, self.precision, data=self.data, most_megabytes=self.max_megabytes)
        card = _write_card(self.out, self.results, self.out / CARD_FILE, making)
        world = read_info(self.out).world
        held_out = self.out.parent / f"{world.environment}-data"
        if held_out.is_dir() or world.renderer in ("imported", "recorded"):  # nothing collects such pictures
            return Shipped(shipment, card, world.environment, held_out if held_out.is_dir() else None, None)
        lacking = held_out_data(world.environment, world.image_size, world.render, held_out)
        return Shipped(shipment, card, world.environment, held_out, lacking)


@dataclass(frozen=True)
class Card(Job):
    """Write the card of a shipped checkpoint, or of a run that stays here, with the rates that evaluations measured."""

    run: Positional[RunFolder]
    results: ResultsFolder = Path("results")
    out: Maybe[Path] = None
    """Where it goes; README.md in a shipped checkpoint and RESULTS/cards/RUN.md of a run by default."""
    json: AsJson = False

    def do(self) -> Path:
        """Write it."""
        run = named(self.run)
        if self.out is not None and self.results == Card.results and not self.results.exists():
            note(f"no folder {self.results} is here: the card has no rates; --results names another")
            return _write_card(run, None, self.out, _making_of(run))
        _require_evaluations(self.results)
        return _write_card(run, self.results, self.out or self._usual_place(run), _making_of(run))

    def _usual_place(self, run: Path) -> Path:
        from saltwm.disk import durable
        from saltwm.jobs.shipment import SHIPMENT_FILE, how_learnt

        if (run / SHIPMENT_FILE).exists():
            return run / CARD_FILE
        place = card_of_run(self.results, how_learnt(run).run)
        durable.make_folder(place.parent)
        return place


def card_of_run(results: Path, run: str) -> Path:
    """Where the card of a run that is not shipped is by custom."""
    return results / "cards" / f"{run}.md"


class Shelf(NamedTuple):
    """What is shipped, with the facts of each; nothing was planned."""

    directory: Path
    items: "list[Item]"
    facts: list[dict[str, Any]]


class Shown(NamedTuple):
    """Models that planned, and environments that could not be drawn here."""

    shown: "list[tuple[Item, Played]]"
    not_drawn: list[str]


@dataclass(frozen=True)
class Demo(Job):
    """Plan with a shipped model towards a goal that nobody trained on, and film it; without a name: what is shipped."""

    environment: Positional[Maybe[str]] = None
    """two-room, push-t, reacher, cube or cube-double; or all."""
    model: str = "salt"
    """salt: state-affine transition; lewm: transformer predictor; or another that is shipped, such as salt-memory,
    which remembers, or salt-two-stage, which was trained to see first."""
    task: int = 0
    """Number of the held-out task."""
    out: Aside[Path] = Path("work/shipped")
    """Where the pictures go."""
    checkpoints: Maybe[Path] = None
    """Directory of shipped models; the repository's by default."""
    json: AsJson = False

    def do(self) -> Shelf | Shown:
        """Plan, act and film."""
        from saltwm.jobs.shelf import HERE, IN_RECIPES, shelf, take

        directory = self.checkpoints or HERE
        if self.environment not in (None, "all"):
            return self._show([take(directory, self.environment, self.model)])
        items = shelf(directory)
        mine = [item for item in items if item.model == self.model]
        if items:
            one_of("model", self.model, dict.fromkeys((*IN_RECIPES, *(item.model for item in items))))
        if self.environment == "all" and items and not mine:
            raise UsageError(f"no {self.model} model under {spoken(directory)}; saltwm demo lists what is shipped")
        if self.environment == "all" and mine:
            return self._show(
                [item for item in mine if _can_draw(item)], [i.environment for i in mine if not _can_draw(i)]
            )
        return _described(directory, items)

    def _show(self, items: "list[Item]", not_drawn: list[str] | None = None) -> Shown:
        at_least("task", self.task, 0)
        shown = []
        for item in items:
            job = Evaluate(str(item.checkpoint), data=item.data)
            shown.append((item, play_task(job, self.task, self.out / item.checkpoint.name)))
        return Shown(shown, not_drawn or [])


def _described(directory: Path, items: "list[Item]") -> Shelf:
    """The items with their facts; one that cannot be read without its author's code is left out and named."""
    from saltwm.disk.checkpoint import card

    facts: dict[Item, dict[str, Any]] = {}
    for item in items:
        try:
            facts[item] = card(item.checkpoint)
        except UsageError as error:
            note(str(error))
    return Shelf(directory, list(facts), list(facts.values()))


def _can_draw(item: "Item") -> bool:
    """Whether its world can be drawn here; a machine without OpenGL still sees Two-Room and PushT."""
    from saltwm.disk.checkpoint import read_info
    from saltwm.jobs.doctor import has_renderer

    return read_info(item.checkpoint).world.renderer == "numpy" or has_renderer()


# --- the commands on a card -------------------------------------------------------------------------------------------


def _require_evaluations(results: Path | None) -> None:
    """UsageError for a results directory of nothing: the card would be without the rates that were asked for."""
    if results is not None and not (results / "evaluations").is_dir():
        raise UsageError(f"{results}: no evaluations; make some with: saltwm evaluate RUN --data DATA --out {results}")


def _write_card(run: Path, results: Path | None, out: Path, making: list[str]) -> Path:
    """Write the card of a run or checkpoint whose weights the commands `making` make again."""
    from saltwm.disk.records import read_cells, read_plan
    from saltwm.jobs.card import measured, write_card
    from saltwm.report.findings import can_be_repeated

    rates = [] if results is None else measured(run, read_cells(results), read_plan(results))
    repeatable = dict.fromkeys(cell.name for rate in rates for cell in rate.cells if can_be_repeated(cell))
    folders = [results / "evaluations" / name for name in repeatable] if results else []
    write_card(run, out, [*making, *([spell_again(folders)] if folders else [])], rates)
    return out


def _making_of(run: Path) -> list[str]:
    """What makes a shipped checkpoint, or the weights of a run, again."""
    from saltwm.jobs.shipment import Shipment, how_learnt

    learnt = how_learnt(run)
    if isinstance(learnt, Shipment):
        return _shipping(run, learnt, run, learnt.precision)
    return _training(run, learnt, run, _data_of(run))


def _data_of(run: Path) -> Path:
    """The dataset of a run, as it was given."""
    from saltwm.disk.checkpoint import find_checkpoint, read_run

    return Path(read_run(find_checkpoint(run).parent.parent).dataset)


def _training(checkpoint: Path, learnt: "Learnt", run: Path, data: Path) -> list[str]:
    """What learns the same again into the folder `run`: collect, train."""
    from saltwm.disk.checkpoint import find_checkpoint, read_info

    info = read_info(find_checkpoint(checkpoint))
    job = Train.of(info.run, data, run) if info.lineage is None else None
    unspoken = "# trained with values that no option of saltwm train has; see checkpoint.json"
    if info.lineage:
        unspoken = f"# trained --from checkpoint {info.lineage[-1].checkpoint_sha256[:12]}; see checkpoint.json"
    return [*([_making(learnt.data, data)] if learnt.data else []), spell(job) if job else unspoken]


def _making(recipe: "Recipe", data: Path) -> str:
    """What makes a dataset; a comment where only the author of an environment or who has the recordings can."""
    from saltwm.disk.layout import Recorded
    from saltwm.envs import has_simulator

    environment = recipe.world.environment
    if isinstance(recipe.source, Recorded):
        return f"# written from recordings, {recipe.source.file or 'by a program'}, which their owner has"
    if recipe.source.kind == "collect" and not has_simulator(environment):
        return f"# collected with the environment {environment}, which its author has"
    return spell(made(recipe, data))


def _shipping(checkpoint: Path, learnt: "Learnt", shipped: Path, precision: "Precision") -> list[str]:
    """What makes such a checkpoint as `shipped` and the held-out data beside it again: collect, train, ship, collect.

    `checkpoint` is that one, or the one that it is to be made of.
    """
    from saltwm.disk.checkpoint import read_info
    from saltwm.disk.dataset import Dataset

    environment = read_info(checkpoint).world.environment
    run, held_out = Path("runs") / shipped.name, shipped.parent / f"{environment}-data"
    return [
        *_training(checkpoint, learnt, run, Path("data") / environment),
        naming_models(spell(Ship(run, SHIPPED / shipped.name, precision))),
        *(
            [_making(Dataset.open(held_out, verify="sizes").recipe, SHIPPED / held_out.name)]
            if held_out.is_dir()
            else []
        ),
    ]

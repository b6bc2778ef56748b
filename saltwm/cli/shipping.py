"""Verbs about shipped models: making one, describing it, and planning with it at once."""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from saltwm.cli.printing import Maybe, command_line, next_command, say, show, spell
from saltwm.ground.config import ModelName, WorldSpec
from saltwm.ground.errors import UsageError
from saltwm.jobs.collect import Collect
from saltwm.jobs.data import made
from saltwm.jobs.train import Train

if TYPE_CHECKING:
    from saltwm.disk.records import Cell
    from saltwm.jobs.demo import Demo as Demonstrated
    from saltwm.jobs.shelf import Item

SHIPPED = Path("checkpoints")
"""Where shipped models are by custom."""


@dataclass(frozen=True)
class Ship:
    """Make a small checkpoint of a finished run that others can plan with: weights alone, hashed, with a card."""

    run_: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(name="run")]
    """Run or checkpoint directory."""
    out: Path
    """Where it goes, checkpoints/ENV-MODEL by custom; a shipped checkpoint there is replaced."""
    precision: Literal["half", "full"] = "half"
    """half: matrices in float16, widened when loaded; full: float32."""
    data: Maybe[Path] = None
    """The training dataset, if it is no longer where it was."""
    results: Maybe[Path] = None
    """Results directory whose evaluations of this run go on the card."""
    max_megabytes: float = 10.0
    """Largest size."""
    json: bool = False
    """Print the result as JSON."""

    def run(self) -> None:
        """Ship, write the card, and print."""
        from saltwm.disk.checkpoint import read_info
        from saltwm.jobs.ship import ship

        _require_evaluations(self.results)
        shipment = ship(self.run_, self.out, self.precision, data=self.data, most_megabytes=self.max_megabytes)
        card = _write_card(self.out, self.results)
        summary = {
            "shipped": str(self.out),
            "precision": shipment.precision,
            "bytes": sum(file.stat().st_size for file in self.out.rglob("*") if file.is_file()),
            "card": str(card),
            "recipe_of_the_data": "known" if shipment.data else "not at hand; name the training dataset with --data",
        }
        world = read_info(self.out).world
        held_out = self.out.parent / f"{world.environment}-data"
        there = held_out.is_dir() or world.renderer == "imported"  # a benchmark's file cannot be collected
        show(self.json, summary, _evaluation(self.out, held_out) if there else spell(_held_out(world, held_out)))


@dataclass(frozen=True)
class Card:
    """Write a shipped checkpoint's README.md again, with the rates that its evaluations measured."""

    checkpoint: tyro.conf.Positional[Path]
    """Shipped checkpoint."""
    results: Path = Path("results")
    """Results directory."""
    json: bool = False
    """Print the result as JSON."""

    def run(self) -> None:
        """Write and print where."""
        _require_evaluations(self.results)
        card = _write_card(self.checkpoint, self.results)
        show(self.json, {"card": str(card)}, command_line("saltwm", "info", self.checkpoint))


@dataclass(frozen=True)
class Demo:
    """Plan with a shipped model towards a goal that nobody trained on, and film it; without a name: what is shipped."""

    environment: tyro.conf.Positional[str | None] = None
    """two-room, push-t, reacher, cube or cube-double; or all."""
    model: ModelName = "salt"
    """salt: state-affine transition; lewm: transformer predictor."""
    task: int = 0
    """Number of the held-out task."""
    out: Path = Path("work/shipped")
    """Where the pictures go."""
    checkpoints: Maybe[Path] = None
    """Directory of shipped models; the repository's by default."""
    json: bool = False
    """Print the result as JSON."""

    def run(self) -> None:
        """Plan, act, film and print."""
        from saltwm.jobs.shelf import HERE, shelf, take

        directory = self.checkpoints or _near(HERE)
        if self.environment is None:
            self._list(directory, shelf(directory))
        elif self.environment == "all":
            items = [item for item in shelf(directory) if item.model == self.model]
            self._show_all(items) if items else self._list(directory, items)
        else:
            self._show(take(directory, self.environment, self.model))

    def _list(self, directory: Path, items: "list[Item]") -> None:
        from saltwm.disk.checkpoint import card

        facts = [card(item.checkpoint) for item in items]
        if self.json:
            print(json.dumps(facts))
            return
        if not items:
            say(f"nothing is shipped under {directory}")
            next_command("saltwm reproduce two-room --preset quick --out work/demo")
            return
        from rich.table import Table

        table = Table("environment", "model", "parameters", "MB", "pictures", box=None, pad_edge=False)
        table.add_column("checkpoint", overflow="fold")
        for item, fact in zip(items, facts, strict=True):
            parameters, size = f"{fact['parameters'] / 1e6:.2f} M", f"{fact['bytes'] / 1e6:.1f}"
            pixels = f"{fact['image_size']} px"
            table.add_row(item.environment, item.model, parameters, size, pixels, str(item.checkpoint))
        say(table)
        next_command(spell(dataclasses.replace(self, environment=items[0].environment)))

    def _show(self, item: "Item") -> None:
        from saltwm.jobs.demo import demonstrate

        shown = demonstrate(item, self.task, self.out / item.checkpoint.name)
        result = dataclasses.asdict(shown) if self.json else _in_words(shown)
        show(self.json, result, _evaluation(item.checkpoint, item.data))

    def _show_all(self, items: "list[Item]") -> None:
        """Each that can be drawn here; a machine without OpenGL still sees Two-Room and PushT."""
        from saltwm.disk.checkpoint import read_info
        from saltwm.jobs.doctor import BACKENDS, renderer

        can_draw = None
        for item in items:
            if read_info(item.checkpoint).world.renderer != "numpy":
                if can_draw is None:
                    can_draw = any(not renderer(backend).remedy for backend in BACKENDS)
                if not can_draw:
                    say(f"{item.environment}: not shown, MuJoCo has no renderer here; saltwm doctor says what to do")
                    continue
            self._show(item)


def _in_words(shown: "Demonstrated") -> dict[str, Any]:
    """A demonstration as a person reads it."""
    verdict = "reached" if shown.reached else "not reached"
    return {
        shown.environment: f"{shown.model}, held-out task {shown.task}",
        "goal": f"{verdict} after {shown.steps} of {shown.budget_steps} steps",
        "distance": f"{shown.start_distance:.2f} success radii at the start, {shown.final_distance:.2f} at the end "
        f"(1 is {shown.success_radius})",
        "predicted cost": f"{shown.cost_before_search:.3g} before the search, {shown.cost_after_search:.3g} after it, "
        f"{shown.cost_at_the_end:.3g} by the last plan",
        "moving": shown.moving,
        "strip": shown.strip,
        "seconds": round(shown.seconds, 1),
    }


def _evaluation(checkpoint: Path, held_out: Path) -> str:
    """What evaluates a shipped checkpoint on held-out data; in `results`, where it is done, nothing would happen."""
    from saltwm.report.commands import AGAIN

    return command_line("saltwm", "evaluate", checkpoint, "--data", held_out, "--protocol", "clean", "--out", AGAIN)


def _held_out(world: WorldSpec, out: Path) -> Collect:
    """What collects the held-out data that belong beside a shipped model of this world."""
    from saltwm.jobs.shelf import HELD_OUT_FRAME_EVERY, HELD_OUT_SEED

    return Collect(
        world.environment,
        out,
        seed=HELD_OUT_SEED,
        image_size=world.image_size,
        render=world.render,
        frame_every=HELD_OUT_FRAME_EVERY,
        held_out=True,
    )


def _near(path: Path) -> Path:
    """The path as seen from here, if it lies below."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


# --- the commands on a card -------------------------------------------------------------------------------------------


def _require_evaluations(results: Path | None) -> None:
    """UsageError for a results directory of nothing: the card would be without the rates that were asked for."""
    if results is not None and not (results / "evaluations").is_dir():
        raise UsageError(f"{results}: no evaluations; make some with: saltwm evaluate RUN --data DATA --out {results}")


def _write_card(checkpoint: Path, results: Path | None) -> Path:
    from saltwm.disk.records import read_cells
    from saltwm.jobs.card import measured, write_card
    from saltwm.jobs.ship import read_shipment
    from saltwm.report.commands import evaluation_commands

    read_shipment(checkpoint)  # or the error that says what is shipped
    cells = () if results is None else read_cells(results)
    rates = measured(checkpoint, cells)
    shown = {name for rate in rates for name in rate.cells}
    commands = _making(checkpoint)
    if results is not None:
        commands += evaluation_commands(results, [_named(cell, checkpoint) for cell in cells if cell.name in shown])
    return write_card(checkpoint, commands, rates)


def _making(checkpoint: Path) -> list[str]:
    """What makes a shipped checkpoint and the held-out data beside it again: collect, train, ship, collect."""
    from saltwm.disk.checkpoint import read_info
    from saltwm.disk.dataset import Dataset
    from saltwm.jobs.ship import read_shipment

    info, shipment = read_info(checkpoint), read_shipment(checkpoint)
    environment = info.world.environment
    data, run = Path("data") / environment, Path("runs") / checkpoint.name
    held_out = checkpoint.parent / f"{environment}-data"
    learnt = Train.of(info.run, data, run)
    return [
        *([spell(made(shipment.data, data))] if shipment.data else []),
        spell(learnt) if learnt else "# trained with values that no option of saltwm train has; see checkpoint.json",
        spell(Ship(run, SHIPPED / checkpoint.name, shipment.precision)),
        *(
            [spell(made(Dataset.open(held_out, verify="sizes").recipe, SHIPPED / held_out.name))]
            if held_out.is_dir()
            else []
        ),
    ]


def _named(cell: "Cell", checkpoint: Path) -> "Cell":
    """The cell with these weights called by the name that they are shipped under; others as they are."""
    from saltwm.disk.checkpoint import identity

    if cell.evaluation.checkpoint_sha256 != identity(checkpoint):
        return cell
    shipped = str(SHIPPED / checkpoint.name)
    return dataclasses.replace(cell, evaluation=dataclasses.replace(cell.evaluation, checkpoint=shipped))

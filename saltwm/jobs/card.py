"""The model card of a shipped checkpoint: one screen of Markdown, written from the checkpoint and from records."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saltwm.disk import checkpoint, durable
from saltwm.disk.checkpoint import CheckpointInfo
from saltwm.disk.records import Cell, Rate
from saltwm.evaluation.contests import method_key
from saltwm.evaluation.protocols import PROTOCOLS
from saltwm.evaluation.statistics import over_seeds, wilson
from saltwm.ground.strict_json import to_plain
from saltwm.jobs.ship import Shipment, read_shipment
from saltwm.model.traits import traits_of
from saltwm.report.findings import HOW_TO_COMPARE
from saltwm.report.table import code, markdown, one_per_line, table
from saltwm.report.tables import PLANNER_NAMES, environment_name

CARD_FILE = "README.md"
TRAINED = {"rollout": "trained by recursive rollout", "one-step": "trained by one-step prediction"}


def _how(objective: str) -> str:
    return TRAINED.get(objective, f"trained with the objective `{objective}`")


@dataclass(frozen=True)
class Measured:
    """The model under one protocol, horizon, planner and name; the seeds of the evaluations are pooled."""

    protocol: str
    horizon_blocks: int
    planner: str
    method: str
    seeds: tuple[int, ...]
    tasks: int
    """Per seed."""
    pooled: Rate
    mean: float
    """Over seeds, in percent."""
    std: float | None
    random: Rate | None
    """The random policy on the same tasks."""
    before_rounding: bool
    """Measured with the weights that the shipped ones were rounded from."""
    cells: tuple[str, ...]
    """The evaluations behind all this, the random policy's too."""


def write_card(path: Path, commands: Sequence[str], rates: Sequence[Measured] = ()) -> Path:
    """Write the card of the shipped checkpoint at `path`, with the rates that its evaluations measured."""
    checkpoint.verify(path)
    text = card_text(checkpoint.card(path), checkpoint.read_info(path), read_shipment(path), rates, commands)
    durable.write_text(path / CARD_FILE, text)
    return path / CARD_FILE


def measured(path: Path, cells: Iterable[Cell]) -> list[Measured]:
    """What the evaluations of this checkpoint say; those of its source, where it has none of its own."""
    cells = list(cells)
    mine = checkpoint.identity(path)
    own = [cell for cell in cells if cell.evaluation.checkpoint_sha256 == mine]
    source = read_shipment(path).source_sha256
    chosen = own or [cell for cell in cells if cell.evaluation.checkpoint_sha256 == source]
    groups: dict[tuple[str, int, tuple[str, str, str]], list[Cell]] = {}
    for cell in chosen:
        e = cell.evaluation
        if e.protocol not in PROTOCOLS:  # a variation of one, as clean-hold3: no row of a card
            continue
        groups.setdefault((e.protocol, e.horizon_blocks, method_key(e)), []).append(cell)
    return [_measured(groups[key], cells, before_rounding=not own) for key in sorted(groups)]


def _measured(mine: list[Cell], cells: list[Cell], *, before_rounding: bool) -> Measured:
    mine = sorted(mine, key=lambda cell: cell.evaluation.seed)
    first = mine[0].evaluation
    sets = [cell.evaluation.tasks_sha256 for cell in mine]
    randoms = [
        cell
        for cell in cells
        if (cell.evaluation.method, cell.evaluation.horizon_blocks) == ("random", first.horizon_blocks)
        and cell.evaluation.tasks_sha256 in sets
    ]
    randoms = randoms if len(randoms) == len(mine) else []
    spread = over_seeds([100 * cell.evaluation.success.successes / cell.evaluation.success.n for cell in mine])
    return Measured(
        protocol=first.protocol,
        horizon_blocks=first.horizon_blocks,
        planner=first.planner["kind"],
        method=first.method,
        seeds=tuple(cell.evaluation.seed for cell in mine),
        tasks=first.success.n,
        pooled=_pooled(mine),
        mean=spread.mean,
        std=spread.std,
        random=_pooled(randoms) if randoms else None,
        before_rounding=before_rounding,
        cells=tuple(cell.name for cell in (*mine, *randoms)),
    )


def _pooled(cells: list[Cell]) -> Rate:
    rates = [cell.evaluation.success for cell in cells]
    return wilson(sum(rate.successes for rate in rates), sum(rate.n for rate in rates))


# --- the text --------------------------------------------------------------------------------------------------------


def card_text(
    facts: dict[str, Any], info: CheckpointInfo, shipment: Shipment, rates: Sequence[Measured], commands: Sequence[str]
) -> str:
    """The card as Markdown."""
    model, environment = facts["model"], environment_name(facts["environment"])
    stored = "matrices in float16" if shipment.precision == "half" else "float32"
    memory = " with memory" if info.run.model.affine.memory else ""
    paragraphs = [
        f"# {traits_of(model).title}{memory} on {environment}",
        f"{traits_of(model).what}, {_how(facts['objective'])}: {facts['parameters'] / 1e6:.2f} M parameters (preset "
        f"`{facts['preset']}`), pictures of {facts['image_size']} px, latents of {info.run.model.latent_dim} numbers"
        f"{', a state of two latents and the action between them' if memory else ''}. "
        f"Weights alone, {stored}, {facts['bytes'] / 1e6:.1f} MB.",
        "## Measured",
        *_rates(rates, model),
        "## Data and training",
        _data(info, shipment),
        *_history(info),
        f"{info.step} steps of {info.run.train.batch_size} windows, objective `{info.run.objective.word}`, "
        f"{_time(shipment.training_seconds)} on a machine of {shipment.machine}; torch {info.versions['torch']}.",
        code(commands),
        *([HOW_TO_COMPARE] if rates else []),
        "## Use and limits",
        "For planning towards a goal picture in this simulated world, as a baseline for other world models, and for "
        "studying how prediction errors propagate. " + _limits(info),
    ]
    return "\n\n".join(part if part.startswith(("|", "```")) else one_per_line(part) for part in paragraphs) + "\n"


def _rates(rates: Sequence[Measured], model: str) -> list[str]:
    if not rates:
        return ["Nothing yet: no evaluation of these weights was at hand when this card was written."]
    note = "Wilson intervals over all tasks; ± is the deviation over evaluation seeds."
    if any(rate.before_rounding for rate in rates):
        note += " Measured with the float32 weights that these were rounded from."
    header = ["protocol", "planner", "reached", "percent", "95 % interval", "Random"]
    return markdown(table("", header, [_row(rate, model) for rate in rates], note))


def _row(rate: Measured, model: str) -> list[str]:
    seeds = f", seeds {' '.join(map(str, rate.seeds))}" if len(rate.seeds) > 1 else ""
    deviation = "" if rate.std is None else f" ± {rate.std:.1f}"
    random = "" if rate.random is None else f"{rate.random.successes}/{rate.random.n}"
    planner = PLANNER_NAMES.get(rate.planner, rate.planner.upper())
    return [
        f"{rate.protocol}, H={rate.horizon_blocks}{seeds}",
        planner if rate.method in (model, f"{model}-{rate.planner}") else f"{planner} ({rate.method})",
        f"{rate.pooled.successes}/{rate.pooled.n}",
        f"{rate.mean:.1f}{deviation}",
        f"{100 * rate.pooled.low:.1f} to {100 * rate.pooled.high:.1f}",
        random,
    ]


def _data(info: CheckpointInfo, shipment: Shipment) -> str:
    named = f"SHA-256 `{info.dataset_sha256}`"
    recipe = shipment.data
    if recipe is None:
        return f"A dataset of {environment_name(info.world.environment)}, {named}."
    how = ", ".join(f"{key} {value}" for key, value in to_plain(recipe.source).items() if key != "kind")
    return (
        f"{recipe.episodes} episodes of {environment_name(recipe.world.environment)} ({how}; physics "
        f"`{recipe.variant}`, every {recipe.frame_every}th frame), {named}."
    )


def _history(info: CheckpointInfo) -> list[str]:
    """How the run came about, where that is not one run from fresh weights on data of one piece."""
    lines = []
    if info.dataset_lineage:
        lines.append(f"Before the dataset grew, its SHA-256 was {_hashes(info.dataset_lineage)}.")
    if info.lineage:
        frozen = ", and its encoder stayed as it was" if info.lineage[-1].encoder_frozen else ""
        named = _hashes([origin.checkpoint_sha256 for origin in info.lineage])
        lines.append(f"The run started from a checkpoint{frozen}; its lineage, oldest first: {named}.")
    if info.run.train.restarts:
        steps = ", ".join(map(str, info.run.train.restarts))
        lines.append(f"The run was prolonged: its learning rate ended at 0 and warmed up again at step {steps}.")
    return [" ".join(lines)] if lines else []


def _hashes(values: Sequence[str]) -> str:
    return ", ".join(f"`{value}`" for value in values)


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "in an unrecorded time"
    return f"{seconds:.0f} seconds" if seconds < 120 else f"{seconds / 60:.0f} minutes"


def _limits(info: CheckpointInfo) -> str:
    world = info.world
    return (
        f"It has seen nothing but {world.image_size} px pictures of `{world.environment}` as `{world.renderer}` draws "
        f"them at `{world.render}` quality; another world is refused. Goals were 25 steps away unless a row above says "
        "`long`. It is small, and trained on this project's own data: its rates are not the paper's. Nothing here was "
        "tried on a real robot."
    )

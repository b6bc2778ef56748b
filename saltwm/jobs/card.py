"""The model card of a shipped checkpoint or of a run: one screen of Markdown, from the checkpoint and from records."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from saltwm.disk import checkpoint, durable
from saltwm.disk.checkpoint import CheckpointInfo
from saltwm.disk.records import Cell, PlannedCell
from saltwm.evaluation.protocols import PROTOCOLS
from saltwm.ground.strict_json import to_plain
from saltwm.jobs.presets import PRESETS
from saltwm.jobs.shipment import Learnt, Shipment, how_learnt
from saltwm.jobs.variants import departures_in_words
from saltwm.model.traits import traits_of
from saltwm.report.findings import HOW_TO_COMPARE
from saltwm.report.sections import over_evaluation_seeds, rate_columns
from saltwm.report.table import NONE, code, markdown, one_per_line, table
from saltwm.report.tables import PooledRow, contest_order, environment_name, pooled_rows, protocol_name, reached

TRAINED = {"rollout": "trained by recursive rollout", "one-step": "trained by one-step prediction"}


class Measured(NamedTuple):
    """The model with one search under one protocol and horizon, its evaluation seeds pooled."""

    row: PooledRow
    random: PooledRow | None
    """The random policy on the same tasks."""
    before_rounding: bool
    """Measured with the weights that the shipped ones were rounded from."""

    @property
    def cells(self) -> tuple[Cell, ...]:
        """The evaluations behind all this."""
        return (*self.row.cells, *(self.random.cells if self.random else ()))


def write_card(path: Path, out: Path, commands: Sequence[str], rates: Sequence[Measured] = ()) -> None:
    """Write the card of what is at `path` into `out`, with the rates that its evaluations measured."""
    found = checkpoint.find_checkpoint(path)
    checkpoint.verify(found)
    text = card_text(checkpoint.card(found), checkpoint.read_info(found), how_learnt(path), rates, commands)
    durable.write_text(out, text)


def measured(path: Path, cells: Iterable[Cell], planned: Iterable[PlannedCell] = ()) -> list[Measured]:
    """What the evaluations of this checkpoint say; those of its source, where it has none of its own.

    As in every table, there is no rate where a seed is missing that a suite planned.
    """
    cells = list(cells)
    mine = checkpoint.identity(checkpoint.find_checkpoint(path))
    own = [cell for cell in cells if cell.evaluation.checkpoint_sha256 == mine]
    source = how_learnt(path).source_sha256
    chosen = own or [cell for cell in cells if cell.evaluation.checkpoint_sha256 == source]
    usual = [cell for cell in chosen if cell.evaluation.protocol in PROTOCOLS]  # no variation, as clean-hold3
    rows = sorted(pooled_rows(usual, planned), key=lambda row: (contest_order(row), row.label))
    return [Measured(row, _random(row, cells), before_rounding=not own) for row in rows]


def _random(row: PooledRow, cells: list[Cell]) -> PooledRow | None:
    """The random policy on the tasks of a row; none unless it met all of them."""
    sets = [(cell.evaluation.tasks_sha256, row.horizon_blocks) for cell in row.cells]
    randoms = [cell for cell in cells if cell.evaluation.method == "random"]
    met = [cell for cell in randoms if (cell.evaluation.tasks_sha256, cell.evaluation.horizon_blocks) in sets]
    return pooled_rows(met)[0] if len(met) == len(sets) else None


# --- the text --------------------------------------------------------------------------------------------------------


def card_text(
    facts: dict[str, Any], info: CheckpointInfo, learnt: Learnt, rates: Sequence[Measured], commands: Sequence[str]
) -> str:
    """The card as Markdown."""
    model, environment = facts["model"], environment_name(facts["environment"])
    how = TRAINED.get(facts["objective"], f"trained with the objective `{facts['objective']}`")
    memory = " with memory" if info.run.model.affine.memory else ""
    paragraphs = [
        f"# {', '.join([f'{traits_of(model).title}{memory} on {environment}', *_otherwise(info)])}",
        f"{traits_of(model).what}, {how}: {facts['parameters'] / 1e6:.2f} M parameters (preset "
        f"`{facts['preset']}`), pictures of {facts['image_size']} px, latents of {info.run.model.latent_dim} numbers"
        f"{', a state of two latents and the action between them' if memory else ''}. "
        f"{_weights(learnt, facts['bytes'])}",
        "## Measured",
        *_rates(rates),
        "## Data and training",
        _data(info, learnt),
        *_history(info),
        f"{info.step} steps of {info.run.train.batch_size} windows, objective `{info.run.objective.word}`, "
        f"seed {info.run.train.seed}, {_time(learnt.training_seconds)} on a machine of {learnt.machine}; torch "
        f"{info.versions['torch']}.",
        code(commands),
        *([HOW_TO_COMPARE] if rates else []),
        "## Use and limits",
        "For planning towards a goal picture in this simulated world, as a baseline for other world models, and for "
        "studying how prediction errors propagate. " + _limits(info),
    ]
    return "\n\n".join(part if part.startswith(("|", "```")) else one_per_line(part) for part in paragraphs) + "\n"


def _rates(rates: Sequence[Measured]) -> list[str]:
    if not rates:
        return ["Nothing yet: no evaluation of these weights was at hand when this card was written."]
    note = "Wilson intervals over all tasks. `over seeds` is the mean and deviation of the evaluation seeds' rates."
    if any(rate.before_rounding for rate in rates):
        note += " Measured with the float32 weights that these were rounded from."
    header = ["under", "method", "percent", "reached", "interval", "over seeds", "Random"]
    lines = (
        [
            protocol_name(row),
            row.label,
            *rate_columns(row),
            over_evaluation_seeds(row),
            reached(random.rate) if random and random.rate else NONE,
        ]
        for row, random, _ in rates
    )
    return markdown(table("", header, lines, note))


def _otherwise(info: CheckpointInfo) -> list[str]:
    """What a study changed in a preset, for the title, which says already whether it has a memory."""
    changed = departures_in_words(info.run, info.world.environment) if info.run.preset in PRESETS else []
    return [
        *(words for words in changed if words != "memory yes"),
        *([f"seed {info.run.train.seed}"] if info.run.train.seed else []),
    ]


def _weights(learnt: Learnt, size: int) -> str:
    if not isinstance(learnt, Shipment):
        return "Its weights are not shipped; the commands below make them again."
    stored = "matrices in float16" if learnt.precision == "half" else "float32"
    return f"Weights alone, {stored}, {size / 1e6:.1f} MB."


def _data(info: CheckpointInfo, learnt: Learnt) -> str:
    named = f"SHA-256 `{info.dataset_sha256}`"
    recipe = learnt.data
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

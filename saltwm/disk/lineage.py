"""How a run goes on beyond its end, and how one starts from another's weights.

A prolonged run keeps its steps: the learning rate, which ended at 0, warms up again and takes a second cosine to 0 over
the new ones. A run that starts from a checkpoint takes all of its weights and its scaling of actions, and nothing of
its optimiser; its schedule is its own.
"""

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from saltwm.disk import checkpoint
from saltwm.disk.checkpoint import Origin, RunInfo
from saltwm.ground.config import ModelConfig, RunConfig, WorldSpec
from saltwm.ground.errors import MismatchError, UsageError
from saltwm.ground.strict_json import differing_fields
from saltwm.model.world_model import WorldModel


def prolonged(config: RunConfig, out: Path, total_steps: int) -> RunConfig:
    """The config with which the run in `out` goes on: with a restart where it ended, if it is asked for more steps."""
    if config.train.restarts is not None or not (out / checkpoint.RUN_FILE).exists():
        return config
    found = checkpoint.read_run(out)
    restarts = found.run.train.restarts
    if total_steps > found.total_steps:
        restarts = (*(restarts or ()), found.total_steps)
    return dataclasses.replace(config, train=dataclasses.replace(config.train, restarts=restarts))


def check_restarts(config: RunConfig, total_steps: int) -> None:
    """UsageError unless the restarts are ascending steps before the end."""
    steps = (0, *(config.train.restarts or ()), total_steps)
    if sorted(set(steps)) != list(steps):
        words = " ".join(map(str, steps[1:-1]))
        raise UsageError(f"`restarts` {words}: expected ascending steps between 0 and the end at {total_steps}")


@dataclass(frozen=True)
class Start:
    """What a new run starts from."""

    checkpoint: Path
    """Run or checkpoint; its newest checkpoint."""
    freeze_encoder: bool = False
    """Pictures are encoded as the checkpoint does; only the action encoder and the transition learn."""

    def lineage(self, model: ModelConfig, world: WorldSpec) -> tuple[Origin, ...]:
        """The checkpoint and those that it came from, oldest first; MismatchError if a run cannot start there."""
        path = checkpoint.find_checkpoint(self.checkpoint)
        checkpoint.verify(path)
        info = checkpoint.read_info(path)
        different = differing_fields(model, info.run.model)
        if different:
            raise MismatchError(f"{path}: holds another model than the run is to train ({'; '.join(different)})")
        checkpoint.require_same_world(info.world, world, path)
        origin = Origin(
            checkpoint_sha256=checkpoint.identity(path),
            step=info.step,
            run=info.run,
            dataset_sha256=info.dataset_sha256,
            dataset_source=info.dataset_source,
            dataset_lineage=info.dataset_lineage,
            encoder_frozen=self.freeze_encoder,
        )
        return (*(info.lineage or ()), origin)


def is_frozen(info: RunInfo) -> bool:
    """Whether the run leaves its encoder as it found it."""
    return bool(info.lineage and info.lineage[-1].encoder_frozen)


def load_origin(model: WorldModel, info: RunInfo) -> None:
    """Give the model the weights that the run starts from; MismatchError if another checkpoint is there now."""
    assert info.origin is not None, "the run starts from a checkpoint"
    assert info.lineage, "and says from which"
    path = checkpoint.find_checkpoint(Path(info.origin))
    if checkpoint.identity(path) != info.lineage[-1].checkpoint_sha256:
        raise MismatchError(f"{path}: altered while the run was about to start from it; repeat the command")
    checkpoint.load_weights(model, checkpoint.read_weights(path)[1], path)

"""An action prior on disk: RUN/prior or CHECKPOINT/prior, whole or absent, beside the checkpoint and no part of it.

    prior/prior.json           a PriorInfo: which checkpoint and data it belongs to, its sizes, how good it is
    prior/prior.safetensors    matrices in float16
    prior/manifest.json        hashes of both

A checkpoint is known by the hash of its manifest, which does not list the prior: a model that is given one stays what
it was, and evaluations that name it still do.
"""

from dataclasses import dataclass
from pathlib import Path

from saltwm.disk import checkpoint, durable
from saltwm.disk.checkpoint import CheckpointInfo, identity
from saltwm.disk.durable import read_config, write_config
from saltwm.ground.config import PriorConfig, WorldSpec
from saltwm.ground.errors import DamagedError, MismatchError, SaltError, UsageError
from saltwm.ground.strict_json import differing_fields
from saltwm.planning.prior import ActionPrior
from saltwm.planning.prior_learning import Figures

FOLDER = checkpoint.PRIOR_FOLDER
INFO_FILE = "prior.json"
WEIGHTS_FILE = "prior.safetensors"
FORMAT = 1
MOST_BYTES = 3_000_000


@dataclass(frozen=True)
class PriorInfo:
    """What a prior is besides its tensors."""

    format: int
    prior: PriorConfig
    latent_dim: int
    block_dim: int
    """Numbers in an action block."""
    world: WorldSpec
    checkpoint_sha256: str
    """Of the manifest of the checkpoint that it belongs to."""
    learnt_on_sha256: str
    """The same of the checkpoint whose latents it was learnt on; another one if that was shipped since."""
    dataset_sha256: str
    held_out: Figures
    versions: dict[str, str]


def place_for(path: Path) -> Path:
    """Where the prior of a run or checkpoint goes."""
    return Path(path) / FOLDER


def find_prior(path: Path) -> Path | None:
    """The prior of a checkpoint: in it, or in the run that it is one of; None if neither has one."""
    places = [path / FOLDER]
    if (path.parent.parent / checkpoint.RUN_FILE).exists():
        places.append(path.parent.parent / FOLDER)
    return next((place for place in places if place.is_dir()), None)


def require_prior(path: Path) -> Path:
    """The same; UsageError with the command that makes one where there is none."""
    found = find_prior(path)
    if found is None:
        raise UsageError(f"{path}: has no action prior yet", remedy="learn a prior", path=path)
    return found


def load_prior(path: Path | str) -> ActionPrior:
    """The action prior of a run or checkpoint, ready to propose; refused if it is another model's."""
    model = checkpoint.find_checkpoint(Path(path))
    folder = require_prior(model)
    info = read_info(folder)
    require_own(info, model, folder)
    prior = _blueprint(info, folder)
    weights = checkpoint.read_tensors(folder / WEIGHTS_FILE)
    checkpoint.load_weights(prior, weights, folder / WEIGHTS_FILE)
    sick = [name for name, tensor in prior.state_dict().items() if not tensor.isfinite().all()]
    if sick or not (prior.latent_std > 0).all():
        raise DamagedError(
            f"{folder / WEIGHTS_FILE}: {sick[0] if sick else 'latent_std'} holds NaN, infinities or a deviation that "
            "is not above 0; remove the folder",
            remedy="learn a prior",
            path=model,
        )
    prior.checkpoint_sha256 = info.checkpoint_sha256
    return prior.eval()


def read_info(folder: Path) -> PriorInfo:
    """The prior's description, after checking every hash."""
    if folder.is_symlink():
        raise DamagedError(f"{folder}: is a link; a prior never is one")
    durable.verify_directory(folder)
    info = read_config(PriorInfo, folder / INFO_FILE)
    if info.format != FORMAT:
        raise DamagedError(f"{folder / INFO_FILE}: format {info.format}, this version reads {FORMAT}")
    return info


def require_own(info: PriorInfo, model: Path, folder: Path) -> None:
    """MismatchError naming each difference unless the prior was made for the checkpoint `model`."""
    if different := differences(info, checkpoint.read_info(model), identity(model)):
        raise MismatchError(
            f"{folder}: is the prior of another model than {model} ({'; '.join(different)})",
            remedy="learn a prior",
            path=model,
        )


def differences(info: PriorInfo, model: CheckpointInfo, model_sha256: str) -> list[str]:
    """In what a prior and a checkpoint do not belong together."""
    facts = [
        ("latent size", model.run.model.latent_dim, info.latent_dim),
        ("numbers in an action block", model.run.model.frameskip * model.world.action_dim, info.block_dim),
        ("dataset", model.dataset_sha256[:12], info.dataset_sha256[:12]),
        ("checkpoint", model_sha256[:12], info.checkpoint_sha256[:12]),
    ]
    found = [f"{name}: expected {expected}, found {there}" for name, expected, there in facts if expected != there]
    return [*differing_fields(model.world, info.world), *found]


def publish(folder: Path, info: PriorInfo, weights: bytes) -> None:
    """Make `folder` this prior, whole or absent, in the place of one that is there; hold `durable.only_replacer`."""
    if len(weights) > MOST_BYTES:
        raise UsageError(
            f"{folder}: the prior would be {len(weights) / 1e6:.1f} MB, more than {MOST_BYTES / 1e6:g}; give it a "
            "smaller `width` or `depth`"
        )
    with durable.publish_directory(folder, replace=True) as directory:
        write_config(directory / INFO_FILE, info)
        durable.write_bytes(directory / WEIGHTS_FILE, weights)


def _blueprint(info: PriorInfo, folder: Path) -> ActionPrior:
    """The untrained prior that the file describes; absurd sizes are refused before memory is asked for."""
    config, size = info.prior, (folder / WEIGHTS_FILE).stat().st_size
    inputs = 2 * info.latent_dim + config.farthest_blocks
    outputs = 2 * config.horizon_blocks * info.block_dim
    numbers = (inputs, outputs, config.width, config.depth)
    parameters = config.width * (inputs + outputs + (config.depth - 1) * config.width)
    if min(numbers) < 1 or not parameters <= size <= 2 * MOST_BYTES:
        raise DamagedError(f"{folder / INFO_FILE}: sizes {numbers} are not those of a file of {size} bytes")
    try:
        return ActionPrior(config, info.latent_dim, info.block_dim)
    except (SaltError, ArithmeticError, RuntimeError, TypeError, ValueError) as error:
        raise DamagedError(f"{folder / INFO_FILE}: no prior of such sizes can be built: {error}") from error

"""Import and export of the field's checkpoint layout: DIR/weights.pt, a plain state dict, beside DIR/config.json.

The public LeWM and SALT models come so (303 and 220 tensors). What a model is follows from the sizes of its tensors;
config.json confirms it and supplies what sizes cannot tell (attention heads, dropout). The layout lacks the action
scaling; on import a dataset supplies it, on export it is written beside.
"""

import dataclasses
import io
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from saltwm.disk import checkpoint, durable
from saltwm.disk.checkpoint import CheckpointInfo, RunInfo
from saltwm.disk.claim import claim, require_unused
from saltwm.disk.durable import read_config
from saltwm.ground.checks import one_of
from saltwm.ground.config import ModelConfig, ObjectiveConfig, RunConfig, TrainConfig, WorldSpec
from saltwm.ground.errors import DamagedError, MismatchError, NonFiniteError, UsageError
from saltwm.ground.identity import Memo
from saltwm.interop.weights.config_json import CONFIG_FILE, PublicModel, public_config, read_stated
from saltwm.interop.weights.names import ACTION_MEAN, ACTION_STD, VitNames, canonical, from_public, to_public
from saltwm.interop.weights.pt_file import read_pt
from saltwm.interop.weights.sizes import infer
from saltwm.model.actions import ActionEncoder
from saltwm.model.traits import traits_of

if TYPE_CHECKING:
    from saltwm.disk.dataset import Dataset

WEIGHTS_FILE = "weights.pt"
SCALING_FILE = "action_scaling.json"
IMPORT_FILE = "import.json"
MOST_LISTED = 40
"""Tensors that an error names."""
ENVIRONMENT_NAMES = {"tworoom": "two-room", "tworooms": "two-room", "pusht": "push-t", "cube-single": "cube"}
"""What the public files call our environments, where it differs."""


@dataclass(frozen=True)
class Imported:
    """Where an imported run came from; RUN/import.json."""

    source: Memo[str]
    weights_sha256: str
    model: str
    tensors: int
    """All of the file's, each with its place in the model."""


# --- import -------------------------------------------------------------------------------------------------------


def import_weights(source: Path, environment: str, dataset: "Dataset", out: Path) -> Imported:
    """Make RUN `out` of the public checkpoint in `source`, for the world and with the action scaling of `dataset`."""
    _require_environment(environment, dataset)
    file = source / WEIGHTS_FILE
    stated = read_stated(source / CONFIG_FILE)
    tensors = read_public(source)
    public = infer(tensors, stated, file)
    model = _for_world(public, dataset.world, source)
    _require_all_fit(tensors, model, dataset.world, file)
    weights = from_public(tensors) | _scaling(model, dataset)
    imported = Imported(str(source), durable.sha256(file), model.model, len(tensors))
    _write_run(out, imported, _run_config(model), dataset, weights)
    return imported


def read_public(source: Path) -> dict[str, Tensor]:
    """The tensors of a public checkpoint under canonical names; float32 and finite, or an error that names them."""
    file = source / WEIGHTS_FILE
    if not file.is_file():
        others = sorted(other.name for other in source.glob("*.pt"))
        hint = f"; it has {', '.join(others)}: rename the one you mean" if others else ""
        raise UsageError(f"{source}: no {WEIGHTS_FILE} in it{hint}")
    tensors = canonical(read_pt(file), str(file))
    for name, tensor in tensors.items():
        expected = torch.int64 if name.endswith("num_batches_tracked") else torch.float32
        if tensor.dtype != expected or tensor.numel() == 0:
            raise DamagedError(f"{file}: {name}: expected {expected} values, found {tensor.dtype} {list(tensor.shape)}")
        if not torch.isfinite(tensor).all():
            raise NonFiniteError(f"{file}: {name} holds values that are not finite")
    return tensors


def _require_environment(environment: str, dataset: "Dataset") -> None:
    from saltwm.envs import ENVIRONMENTS

    name = ENVIRONMENT_NAMES.get(environment, environment)
    one_of("environment", name, ENVIRONMENTS)
    if dataset.world.environment != name:
        raise MismatchError(
            f"{dataset.path}: environment: data of {dataset.world.environment}, but the weights are said to be {name}'s"
        )


def _for_world(public: PublicModel, world: WorldSpec, source: Path) -> ModelConfig:
    """The model with its frameskip, if this world's frames and actions are those that it expects."""
    if public.image_size != world.image_size:
        raise MismatchError(
            f"{source}: image_size: the weights expect {public.image_size} px frames, the dataset has "
            f"{world.image_size} px; collect with an `image_size` of {public.image_size}"
        )
    frameskip, rest = divmod(public.block_dim, world.action_dim)
    if rest:
        raise MismatchError(
            f"{source}: action_dim: action blocks of {public.block_dim} numbers are not a multiple of "
            f"{world.environment}'s actions of {world.action_dim}"
        )
    return dataclasses.replace(public.model, frameskip=frameskip)


def _require_all_fit(tensors: dict[str, Tensor], model: ModelConfig, world: WorldSpec, file: Path) -> None:
    """DamagedError that lists every tensor that is missing, left over or of another size."""
    blueprint = checkpoint.blueprint(model, world, len(tensors), file)
    expected = {name: tensor.shape for name, tensor in to_public(blueprint, "transformers-5").items()}
    fitting = [name for name, tensor in tensors.items() if expected.get(name) == tensor.shape]
    problems = [f"{name} is missing" for name in expected.keys() - tensors.keys()]
    problems += [f"{name} has no place" for name in tensors.keys() - expected.keys()]
    problems += [
        f"{name} is {list(tensors[name].shape)} instead of {list(expected[name])}"
        for name in (tensors.keys() & expected.keys()) - set(fitting)
    ]
    if problems:
        listed = "; ".join(sorted(problems)[:MOST_LISTED])
        more = f"; and {len(problems) - MOST_LISTED} more" if len(problems) > MOST_LISTED else ""
        raise DamagedError(
            f"{file}: {len(fitting)} of {len(tensors)} tensors fit a {model.model} model, which has {len(expected)}: "
            f"{listed}{more}"
        )


def _scaling(model: ModelConfig, dataset: "Dataset") -> dict[str, Tensor]:
    actions = ActionEncoder(dataset.world.action_dim, model.frameskip, model.smoothed_dim, model.latent_dim)
    actions.set_scaling(torch.from_numpy(dataset.action_mean), torch.from_numpy(dataset.action_std))
    return {ACTION_MEAN: actions.action_mean, ACTION_STD: actions.action_std}


def _run_config(model: ModelConfig) -> RunConfig:
    """What is known of how it was trained: the paper's recipe, with each model's own objective."""
    objective = ObjectiveConfig("rollout" if traits_of(model.model).objective == "rollout" else "one-step")
    return RunConfig("imported", model, objective, TrainConfig(split="window"))


def _write_run(out: Path, imported: Imported, run: RunConfig, dataset: "Dataset", weights: dict[str, Tensor]) -> None:
    form, world, sha256, versions = checkpoint.FORMAT, dataset.world, dataset.sha256, checkpoint.package_versions()
    with durable.only_writer(out, "import-weights"):
        require_unused(out, IMPORT_FILE)
        claim(out / IMPORT_FILE, imported, partial(read_config, Imported))
        durable.remove_leftovers(out / "checkpoints")
        checkpoint.start_run(out, RunInfo(form, run, world, str(dataset.path), sha256, 0, versions))
        info = CheckpointInfo(form, 0, run, world, sha256, {}, versions, dataset.recipe.source)
        checkpoint.save(out, info, weights, {}, keep=1)


# --- export ---------------------------------------------------------------------------------------------------------


def export_weights(run: Path, out: Path, names: VitNames = "transformers-4") -> int:
    """Write a run in the public layout, with the action scaling beside it; the number of tensors."""
    if out.exists():
        raise UsageError(f"{out}: exists already; choose another folder")
    info, weights = checkpoint.read_weights(checkpoint.find_checkpoint(run))
    model, world = info.run.model, info.world
    if model.encoder.kind != "vit":
        raise UsageError(
            f"{run}: its encoder is {model.encoder.kind!r}, and the public layout has only 'vit'; "
            "export it in the `format` onnx, or train the `preset` full-size"
        )
    public = PublicModel(model, world.image_size, model.frameskip * world.action_dim)
    # Cloned, because torch would save the whole of what a tensor is a part of.
    tensors = {name: tensor.clone() for name, tensor in to_public(weights, names).items()}
    with durable.publish_directory(out) as directory:
        # As bytes, because torch's own errors do not tell a full disk from anything else.
        durable.write_bytes(directory / WEIGHTS_FILE, _pt_bytes(tensors))
        durable.write_json(directory / CONFIG_FILE, public_config(public))
        scaling = {"mean": weights[ACTION_MEAN].tolist(), "std": weights[ACTION_STD].tolist()}
        durable.write_json(directory / SCALING_FILE, scaling)
    return len(tensors)


def _pt_bytes(tensors: dict[str, Tensor]) -> bytes:
    buffer = io.BytesIO()
    torch.save(tensors, buffer)
    return buffer.getvalue()

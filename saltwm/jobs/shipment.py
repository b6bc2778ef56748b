"""A shipped checkpoint: what a run learnt, small enough for a repository, and what is known of how it was learnt.

    checkpoints/ENV-MODEL/checkpoint.json        as in every checkpoint
    checkpoints/ENV-MODEL/weights.safetensors    matrices in float16, unless shipped in full
    checkpoints/ENV-MODEL/shipment.json          a Shipment
    checkpoints/ENV-MODEL/metrics.jsonl          the run's curves, and timing.jsonl its speed
    checkpoints/ENV-MODEL/manifest.json          hashes of all of the above
    checkpoints/ENV-MODEL/README.md              the card, written last and again when there is more to say; not hashed
    checkpoints/ENV-MODEL/prior/                 its action prior, if it has one; no part of what the manifest hashes

It loads like any checkpoint, and training refuses to go on from it.
"""

import dataclasses
import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from saltwm.disk import checkpoint, durable, journal
from saltwm.disk.checkpoint import RunInfo
from saltwm.disk.claim import require_unused
from saltwm.disk.dataset import Dataset
from saltwm.disk.durable import read_config
from saltwm.disk.layout import Recipe
from saltwm.ground.errors import DamagedError, MismatchError, NonFiniteError, UsageError
from saltwm.ground.strict_json import to_plain
from saltwm.planning import prior_files
from saltwm.planning.prior_files import PriorInfo

SHIPMENT_FILE = "shipment.json"
FORMAT = 1
MOST_MEGABYTES = 10.0

Precision = Literal["half", "full"]


@dataclass(frozen=True)
class Learnt:
    """How weights were learnt, besides what their CheckpointInfo says."""

    run: str
    """Name of the run's folder; only a memory aid."""
    source_sha256: str
    """Hash of the manifest of the checkpoint that the weights were taken from."""
    total_steps: int
    training_seconds: float | None
    """Wall time of all sessions; none where the run does not say."""
    machine: str
    """Where this was written down, which is where it was trained unless somebody moved the run."""
    data: Recipe | None
    """How the training data were made; none where they were not at hand."""


@dataclass(frozen=True)
class Shipment(Learnt):
    """What a shipped checkpoint says of itself besides its CheckpointInfo."""

    format: int
    precision: Precision


@dataclass(frozen=True)
class _Source:
    """A checkpoint of a run, and the run."""

    run: Path
    checkpoint: Path
    info: RunInfo


def ship(
    run: Path,
    out: Path,
    precision: Precision = "half",
    *,
    data: Path | None = None,
    most_megabytes: float = MOST_MEGABYTES,
) -> Shipment:
    """Ship the newest checkpoint of a finished run, or the checkpoint that `run` names, replacing what is in `out`.

    `data` is the training dataset, where it is no longer at the path that the run remembers.
    """
    out = Path(out)
    source = _find_source(Path(run))
    info, weights = checkpoint.read_weights(source.checkpoint)
    sick = [name for name, tensor in weights.items() if not tensor.isfinite().all()]
    if sick:
        raise NonFiniteError(f"{source.checkpoint}: {sick[0]} is not finite; ship an earlier checkpoint of the run")
    shipment = Shipment(**vars(_learnt(source, data)), format=FORMAT, precision=precision)
    files = {name: durable.read_bytes(source.run / name) for name in journal.FILES if (source.run / name).exists()}
    files[SHIPMENT_FILE] = durable.json_bytes(to_plain(shipment))
    files[checkpoint.WEIGHTS_FILE] = checkpoint.to_bytes(checkpoint.halved(weights) if precision == "half" else weights)
    _require_small(out, sum(map(len, files.values())), most_megabytes)
    prior = _read_prior(source.checkpoint)
    with durable.only_replacer(out, "ship"):
        require_unused(out, SHIPMENT_FILE)
        checkpoint.publish(out, info, files, replace=True)
        if prior is not None:
            _publish_prior(prior, out)
    return shipment


def how_learnt(path: Path, data: Path | None = None) -> Learnt:
    """How the weights of a shipped checkpoint, of a finished run or of one of its checkpoints came about.

    `data` as in `ship`.
    """
    return read_shipment(path) if (path / SHIPMENT_FILE).exists() else _learnt(_find_source(path), data)


def _learnt(source: _Source, data: Path | None = None) -> Learnt:
    return Learnt(
        run=Path(os.path.abspath(source.run)).name,  # `.` has no name of its own
        source_sha256=checkpoint.identity(source.checkpoint),
        total_steps=source.info.total_steps,
        training_seconds=journal.total_seconds(source.run),
        machine=_machine(),
        data=_training_data(source.info, data),
    )


def _read_prior(source: Path) -> tuple[PriorInfo, bytes] | None:
    """The action prior of a checkpoint; None if it has none, MismatchError if it is another's."""
    found = prior_files.find_prior(source)
    if found is None:
        return None
    info = prior_files.read_info(found)
    prior_files.require_own(info, source, found)
    return info, durable.read_bytes(found / prior_files.WEIGHTS_FILE)


def _publish_prior(prior: tuple[PriorInfo, bytes], out: Path) -> None:
    """Make it the prior of the shipped checkpoint `out`, whose rounded weights are another checkpoint."""
    info, weights = prior
    place = prior_files.place_for(out)
    with durable.only_replacer(place, "ship"):
        shipped = dataclasses.replace(info, checkpoint_sha256=prior_files.identity(out))
        prior_files.publish(place, shipped, weights)


def read_shipment(path: Path) -> Shipment:
    """The shipment's description; UsageError if `path` is not a shipped checkpoint."""
    if not (path / SHIPMENT_FILE).exists():
        raise UsageError(f"{path}: not a shipped checkpoint (no {SHIPMENT_FILE}); make one with: saltwm ship RUN")
    shipment = read_config(Shipment, path / SHIPMENT_FILE)
    if shipment.format != FORMAT:
        raise DamagedError(f"{path / SHIPMENT_FILE}: format {shipment.format}, this version reads {FORMAT}")
    return shipment


def _machine() -> str:
    """Cores and processor of this machine."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{os.cpu_count()} cores, {models[0] if models else platform.processor() or platform.machine()}"


def _find_source(path: Path) -> _Source:
    found = checkpoint.find_checkpoint(path)
    if (found / SHIPMENT_FILE).exists():
        raise UsageError(f"{path}: shipped already; name the run that it was made of")
    run = found.parent.parent
    info = checkpoint.read_run(run)
    step = checkpoint.read_info(found).step
    if path == run and step < info.total_steps:
        raise UsageError(
            f"{path}: at step {step} of {info.total_steps}; finish it with the same `saltwm train` command, "
            f"or name {found} as it is"
        )
    return _Source(run, found, info)


def _training_data(info: RunInfo, given: Path | None) -> Recipe | None:
    """The recipe of the dataset with the run's hash; a given one must have it, a remembered one may be gone."""
    path = given or Path(info.dataset)
    if given is None and not path.is_dir():
        return None
    dataset = Dataset.open(path, verify="sizes").as_of(info.dataset_sha256)
    if dataset.sha256 == info.dataset_sha256:
        return dataset.recipe
    if given is not None:
        raise MismatchError(
            f"{path}: its hash is {dataset.sha256[:12]}, and the run was trained on {info.dataset_sha256[:12]}"
        )
    return None


def _require_small(out: Path, size: int, most_megabytes: float) -> None:
    if size > most_megabytes * 1e6:
        raise UsageError(
            f"{out}: would be {size / 1e6:.1f} MB, more than {most_megabytes:g}; ship in half precision or raise "
            "--max-megabytes"
        )

"""Learn the action prior of a model: encode its data once, learn, publish; goes on where it was stopped.

RUN/prior/                         the prior, when it is done
RUN/prior.work/job.json            what is being learnt
RUN/prior.work/step-001000/        weights and optimiser, to go on from; gone when the prior is done
"""

import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from saltwm.disk import checkpoint, durable
from saltwm.disk.checkpoint import CheckpointInfo
from saltwm.disk.claim import claim, is_own
from saltwm.disk.dataset import Dataset
from saltwm.disk.durable import read_config
from saltwm.ground.checks import at_least
from saltwm.ground.config import PriorConfig
from saltwm.ground.errors import DamagedError, MismatchError, NonFiniteError, SaltError, Stopped, UsageError
from saltwm.ground.progress import note, progress
from saltwm.ground.strict_json import differing_fields
from saltwm.planning import prior_files
from saltwm.planning.prior import ActionPrior
from saltwm.planning.prior_files import PriorInfo
from saltwm.planning.prior_learning import (
    Figures,
    Journeys,
    blocks_of,
    build_prior,
    encode,
    make_optimizer,
    measure,
    take_step,
)
from saltwm.processes.device import device_named
from saltwm.processes.stopping import stop_signal

JOB_FILE = "job.json"


@dataclass(frozen=True)
class PriorJob:
    """What decides a prior; two that are equal end with the same bytes."""

    prior: PriorConfig
    checkpoint_sha256: str
    dataset_sha256: str


@dataclass(frozen=True)
class PriorResult:
    """Where the prior is and how good it is on held-out pairs."""

    prior: str
    held_out: Figures
    seconds: float


def learn_prior(run: Path, dataset: Dataset, config: PriorConfig | None = None, *, device: str = "auto") -> PriorResult:
    """Learn the prior of a run's newest checkpoint, or of a checkpoint, or go on learning it."""
    config = config or PriorConfig()
    check_options(config)
    device = device_named(device)
    started = time.perf_counter()
    model = checkpoint.find_checkpoint(Path(run))
    info = checkpoint.read_info(model)
    dataset = dataset.as_of(info.dataset_sha256)
    _require_its_data(info, dataset, model)
    blocks_of(dataset, info.run.model.frameskip)
    out = prior_files.place_for(Path(run))
    job = PriorJob(config, prior_files.identity(model), dataset.sha256)
    with durable.only_replacer(out, "prior"), durable.only_replacer(_work(out), "prior"):
        if not _is_done(out, job):
            _learn(job, model, info, dataset, out, device)
        if _work(out).is_dir():
            durable.discard_directory(_work(out))
    figures = prior_files.read_info(out).held_out
    return PriorResult(str(out), figures, time.perf_counter() - started)


def check_options(config: PriorConfig) -> None:
    """UsageError for a value that no prior can have."""
    for name in ("horizon_blocks", "farthest_blocks", "width", "depth", "batch_size", "steps", "save_every"):
        at_least(name.removesuffix("_blocks").replace("_", "-"), getattr(config, name))  # as the options are called
    shares = {"dropout": config.dropout, "near_share": config.near_share, "beta": config.beta}
    for name, share in shares.items():
        if not 0 <= share <= 1:
            raise UsageError(f"{name} {share}: expected a share from 0 to 1")
    if not 0 < config.learning_rate < float("inf") or not 0 <= config.weight_decay < float("inf"):
        raise UsageError(
            f"learning rate {config.learning_rate} and weight decay {config.weight_decay} must be finite, "
            "the first above 0 and the other not below"
        )


def _require_its_data(info: CheckpointInfo, dataset: Dataset, model: Path) -> None:
    """MismatchError unless the model was trained on this dataset: its held-out episodes are held out for both."""
    different = differing_fields(info.world, dataset.world)
    if dataset.sha256 != info.dataset_sha256:
        different.append(f"dataset: expected {info.dataset_sha256[:12]}, found {dataset.sha256[:12]}")
    if different:
        there = prior_files.find_prior(model)
        hint = f"; it has a prior already: {there}" if there else ""
        raise MismatchError(f"{dataset.path}: not the data that {model} was trained on ({'; '.join(different)}){hint}")


def _is_done(out: Path, job: PriorJob) -> bool:
    """Whether `out` holds the prior that the job would learn; one of another model, data or settings makes room."""
    if not out.is_dir():
        return False
    try:
        info = prior_files.read_info(out)
    except SaltError as error:
        note(f"{error}; it is made again")
        return False
    return PriorJob(info.prior, info.learnt_on_sha256, info.dataset_sha256) == job


# --- learning ---------------------------------------------------------------------------------------------------------


def _learn(job: PriorJob, model: Path, info: CheckpointInfo, dataset: Dataset, out: Path, device: str) -> None:
    config, work = job.prior, _work(out)
    _claim(work, job)
    journeys = _encoded(model, dataset, device)
    prior = build_prior(config, journeys)
    optimizer = make_optimizer(prior, config)
    done = _resume(work, prior, optimizer)
    with stop_signal() as stopping, progress(f"prior {out.parent.name}", config.steps, done) as advance:
        for step in range(done, config.steps):
            loss = take_step(prior, optimizer, journeys, config, step)
            is_stop = bool(stopping()) and step + 1 < config.steps
            if is_stop or (step + 1) % config.save_every == 0:
                _save(work, step + 1, prior, optimizer)
            advance(1, f"loss {loss:.3f}")
            if is_stop:
                message = f"stopped at step {step + 1} of {config.steps}, saved; the same command goes on"
                raise Stopped(message, stopping())
    weights = checkpoint.halved(prior.state_dict())
    prior.load_state_dict(weights)  # what is measured is what is stored
    described = PriorInfo(
        format=prior_files.FORMAT,
        prior=config,
        latent_dim=prior.latent_dim,
        block_dim=prior.block_dim,
        world=info.world,
        checkpoint_sha256=job.checkpoint_sha256,
        learnt_on_sha256=job.checkpoint_sha256,
        dataset_sha256=job.dataset_sha256,
        held_out=measure(prior, journeys, config),
        versions=checkpoint.package_versions(),
    )
    prior_files.publish(out, described, checkpoint.to_bytes(weights))


def _encoded(model: Path, dataset: Dataset, device: str) -> Journeys:
    """Latents of all block boundaries, in memory; a stop waits for a batch of frames at most."""
    with stop_signal() as stopping:  # from here on: an interrupt in the middle of reading would look like damage

        def advance_or_stop(count: int) -> None:
            advance(count)
            if stopping():
                raise Stopped("stopped while encoding; the same command begins again", stopping())

        loaded = checkpoint.load(model, world=dataset.world).to(device)
        frames = int((blocks_of(dataset, loaded.config.frameskip) + 1).sum())
        with progress(f"encode {dataset.path.name}", frames) as advance:
            return encode(loaded, dataset, advance_or_stop)


# --- stopping and resuming --------------------------------------------------------------------------------------------


def _work(out: Path) -> Path:
    return out.with_name(f"{out.name}.work")


def _claim(work: Path, job: PriorJob) -> None:
    """Take the work folder for this job; what another job left there is of no use and goes."""
    read = partial(read_config, PriorJob)
    if work.is_dir() and not is_own(work / JOB_FILE, job, read):
        durable.discard_directory(work)
    durable.make_folder(work)
    durable.remove_leftovers(work)
    claim(work / JOB_FILE, job, read)


def _save(work: Path, step: int, prior: ActionPrior, optimizer: torch.optim.Optimizer) -> None:
    """Publish WORK/step-N, then remove those before it."""
    weights = prior.state_dict()
    if not all(tensor.isfinite().all() for tensor in weights.values()):
        raise NonFiniteError(f"prior, step {step}: weights are not finite; not saved, the last save is intact")
    older = _saves(work)
    path = work / checkpoint.directory_name(step)
    with durable.publish_directory(path, replace=True) as directory:
        state = checkpoint.optimizer_tensors(optimizer, _names(prior))
        durable.write_bytes(directory / checkpoint.WEIGHTS_FILE, checkpoint.to_bytes(weights))
        durable.write_bytes(directory / checkpoint.OPTIMIZER_FILE, checkpoint.to_bytes(state))
    for old in older:
        if old != path:
            durable.discard_directory(old)


def _resume(work: Path, prior: ActionPrior, optimizer: torch.optim.Optimizer) -> int:
    """Load the newest readable save and return its step; 0 if there is none."""
    for path in reversed(_saves(work)):
        try:
            durable.verify_directory(path)
            checkpoint.load_weights(
                prior, checkpoint.read_tensors(path / checkpoint.WEIGHTS_FILE), path / checkpoint.WEIGHTS_FILE
            )
        except DamagedError as error:
            note(f"skipping {path.name}: {error}")
            continue
        state = checkpoint.read_tensors(path / checkpoint.OPTIMIZER_FILE)
        checkpoint.restore_optimizer(optimizer, _names(prior), state)
        return int(path.name.removeprefix("step-"))
    return 0


def _saves(work: Path) -> list[Path]:
    return sorted(path for path in work.glob("step-*") if path.is_dir())


def _names(prior: ActionPrior) -> list[str]:
    return [name for name, _ in prior.named_parameters()]

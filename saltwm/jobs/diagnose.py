"""A model measured on held-out episodes: error propagation as the paper does (App. C.1-C.3, C.6), and its latents."""

import copy
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from saltwm.data.split import held_out
from saltwm.data.stretches import CONTEXT, read_stretches
from saltwm.diagnostics.cost_order import cost_order
from saltwm.diagnostics.jacobians import in_float64, state_dependence
from saltwm.diagnostics.probe import fit_and_test_episodes, probe
from saltwm.diagnostics.propagation import Propagation, history_errors, lipschitz, measure
from saltwm.disk import checkpoint, durable, journal
from saltwm.disk.dataset import Dataset
from saltwm.disk.durable import write_config
from saltwm.disk.records import Diagnosis, OneFrameStart, Probes, Training
from saltwm.ground.checks import at_least
from saltwm.ground.errors import UsageError
from saltwm.ground.progress import note, progress
from saltwm.ground.rng import stream
from saltwm.jobs.measures import Diagnose, warn_if_seen
from saltwm.jobs.shipment import SHIPMENT_FILE, read_shipment
from saltwm.jobs.variants import variant_of
from saltwm.model.traits import model_key
from saltwm.model.transition import Transition
from saltwm.model.world_model import WorldModel
from saltwm.monitors import effective_rank
from saltwm.processes.device import device_named

ACTION_SEQUENCES = 12  # Figure 1a
"""With each of which the Jacobian is taken at every state."""
WIDEST = 1024
"""Numbers in a latent up to which Jacobians are taken: one of 6,144 would take 300 MB, and there are thousands."""
STATES = 48
"""At which the Jacobian is taken, at most."""


@dataclass(frozen=True)
class Diagnosed:
    """The records that a diagnosis leaves in `folder`."""

    folder: Path
    diagnosis: Diagnosis
    probes: Probes
    training: Training


def diagnose_run(job: Diagnose, dataset: Dataset) -> Diagnosed:
    """Measure a run and record it in the job's folder, with its training curves beside it.

    A measurement is a batch of `trajectories` from stretches of one length: 40 for SALT, 16 for LeWM (App. C.3). There
    are `batches` for each of the `windows`.
    """
    _check_counts(job)
    job = job.begin(dataset)
    path = checkpoint.find_checkpoint(job.run)
    info = checkpoint.read_info(path)
    fit_and_test_episodes(dataset)  # refuses a dataset that is too small, before anything is measured
    warn_if_seen(info, dataset, path)
    model = checkpoint.load(path, world=dataset.world)
    transition = copy.deepcopy(model.transition)  # Jacobians want float64, which not every accelerator has
    model.to(device_named(job.device))
    trajectories = job.trajectories or (40 if transition.has_matrix else 16)  # App. C.3
    lengths, horizon = _measurable(dataset, model.config.frameskip, job.windows, job.batches, job.horizon)
    is_wide = transition.dim > WIDEST
    start = min(model.window, CONTEXT)  # a model that looks back further than any context frame starts from all of them
    how, measured, stretches = _measure_errors if is_wide else measure, [], []
    identity: dict[str, Any] = {
        "environment": dataset.world.environment,
        "method": model_key(info.run.model.model),
        "objective": info.run.objective.word,
        "run": str(job.run),
    }
    with progress(f"diagnose {job.folder.name}", len(lengths) + 3) as advance:  # minutes where Jacobians are not known
        for i, length in enumerate(lengths):
            z, c = encode_stretches(model, dataset, length, trajectories, job.seed, i)
            stretches.append((z[:, : CONTEXT + horizon], c[:, : CONTEXT - 1 + horizon]))
            measured.append(how(transition, *_from_start(start, *stretches[-1]), start=start))
            advance(note="rollouts")
        z = torch.cat([z for z, _ in stretches])
        few = [stretches[lengths.index(length)] for length in dict.fromkeys(lengths)]  # one measurement of each length
        has_bound = not is_wide and start == model.window
        bound = _residual_bound(transition, *stretches[0], measured[0], _spread(z)) if has_bound else {}
        advance(note="rollouts from one frame")
        one_frame = None if model.window == 1 or is_wide else _one_frame_start(transition, stretches, few, _spread(z))
        advance(note="probes")
        at = _states_and_actions(start, *few[0], *few[-1])
        sigma = None if is_wide else state_dependence(transition, *at)
        probes = _probes(identity, model, dataset, job.frames, sigma)
        advance()
    diagnosis = Diagnosis(
        **identity,
        trajectories=len(z),
        sigma_max_base=_sigma_max_base(transition),
        history=start,
        seed=job.seed,
        windows=lengths,
        variant=variant_of(info),
        **_summarise(measured, z),
        **bound,
        one_frame=one_frame,
    )
    training = _training(identity, info, model, str(dataset.path), training_seconds(job.run))
    found = Diagnosed(job.folder, diagnosis, probes, training)
    _write(job, found, curves=job.run / journal.METRICS_FILE)
    return found


def _check_counts(job: Diagnose) -> None:
    for name in ("horizon", "trajectories", "batches", "frames"):
        at_least(name, getattr(job, name))
    for window in job.windows:
        at_least("windows", window)


def _probes(
    identity: dict[str, Any], model: WorldModel, dataset: Dataset, frames: int, sigma: torch.Tensor | None
) -> Probes:
    """What the latents know; `sigma` [actions, states] are the Jacobian's largest singular values, if it was taken."""
    return Probes(
        **identity,
        frames=frames,
        fields=tuple(probe(model, dataset, frames)),
        pairs=frames,
        cost_order=cost_order(model, dataset, frames),
        states=0 if sigma is None else sigma.shape[1],
        jacobian_spread=0.0 if sigma is None else float((sigma.std(dim=1, correction=0) / sigma.mean(dim=1)).mean()),
        sigma_max=() if sigma is None else _rows(sigma),
    )


def _training(
    identity: dict[str, Any], info: checkpoint.CheckpointInfo, model: WorldModel, data: str, seconds: float | None
) -> Training:
    """How the model came about."""
    return Training(
        **identity,
        preset=info.run.preset,
        steps=info.step,
        batch_size=info.run.train.batch_size,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        data=data,
        dataset_sha256=info.dataset_sha256,
        seconds=seconds,
        variant=variant_of(info),
    )


def _measurable(
    dataset: Dataset, skip: int, windows: tuple[int, ...], batches: int, horizon: int
) -> tuple[tuple[int, ...], int]:
    """The stretch length of each measurement and the steps measured, as far as held-out episodes are long enough.

    A window that no episode holds becomes the longest that one does; the number of measurements stays the same.
    """
    longest = int(dataset.lengths[held_out(dataset)].max()) // skip - (CONTEXT - 1)
    if longest < 1:
        raise UsageError(
            f"{dataset.path}: no held-out episode has {CONTEXT} action blocks, {CONTEXT - 1} before a rollout and 1 of "
            "it; collect longer episodes"
        )
    lengths = tuple(dict.fromkeys(min(window, longest) for window in windows))
    steps = min(horizon, *lengths)
    if steps < horizon:
        note(f"{dataset.path}: {steps} steps are measured, not {horizon}: there is no longer stretch")
    count = batches * len(windows)
    return tuple(lengths[i % len(lengths)] for i in range(count)), steps


def _write(job: Diagnose, found: Diagnosed, curves: Path) -> None:
    """Replace what an earlier diagnosis left, all of it; a crash leaves files missing, never those of two together."""
    durable.make_folder(found.folder)
    job.claim(found.folder)
    for name in ("diagnosis.json", "probes.json", "training.json", journal.METRICS_FILE):
        (found.folder / name).unlink(missing_ok=True)
    if curves.exists():
        durable.write_file(found.folder / journal.METRICS_FILE, lambda file: shutil.copyfile(curves, file))
    write_config(found.folder / "training.json", found.training)
    write_config(found.folder / "probes.json", found.probes)
    write_config(found.folder / "diagnosis.json", found.diagnosis)


@torch.inference_mode()
def encode_stretches(
    model: WorldModel, dataset: Dataset, length: int, count: int, seed: int, index: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Latents [N, CONTEXT + L, D] and conditions [N, CONTEXT - 1 + L, C] of held-out stretches."""
    skip, unseen, blocks = model.config.frameskip, held_out(dataset), CONTEXT - 1 + length
    long_enough = unseen[dataset.lengths[unseen] >= blocks * skip]
    stretches = read_stretches(dataset, long_enough, blocks, skip, count, stream(seed, "diagnose", index))
    z = model.encode(torch.from_numpy(stretches.frames))
    return z.cpu(), model.condition(torch.from_numpy(stretches.blocks)).cpu()


def _from_start(start: int, z: torch.Tensor, c: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The stretch as a rollout from the last `start` context frames wants it; every model predicts the same frames."""
    return z[:, CONTEXT - start :], c[:, CONTEXT - start :]


def _spread(latents: torch.Tensor) -> float:
    """Mean distance of latents [N, T, D] from their mean: the unit of all errors."""
    flat = latents.double().flatten(0, 1)
    return float((flat - flat.mean(dim=0)).norm(dim=1).mean())


def _summarise(measured: list[Propagation], latents: torch.Tensor) -> dict[str, Any]:
    """The numbers of a Diagnosis that come from measurements; errors are relative to the latents' spread."""
    unit = _spread(latents)
    epsilon = torch.cat([m.epsilon for m in measured])
    delta = torch.cat([m.delta for m in measured])
    errors = torch.stack([m.delta.norm(dim=-1).mean(dim=0) for m in measured]) / unit
    return {
        "one_step_error": float(epsilon.norm(dim=-1).mean()) / unit,
        "rollout_error": _row(delta.norm(dim=-1).mean(dim=0) / unit),
        "rollout_low": _row(errors.amin(dim=0)),
        "rollout_high": _row(errors.amax(dim=0)),
        "rollout_measured": _rows(errors),
        "effective_rank": effective_rank(latents.double().flatten(0, 1)),
        **_of_jacobians(measured, unit),
    }


def _of_jacobians(measured: list[Propagation], unit: float) -> dict[str, Any]:
    """What Jacobians say; nothing where they were not taken."""
    if not measured[0].propagation_norms.numel():
        return dict.fromkeys(("propagation_norm", "propagation_low", "propagation_high", "rho"), ())
    norms = torch.stack([_geometric_mean(m.propagation_norms) for m in measured])  # App. C.3
    return {
        "propagation_norm": _row(_geometric_mean(norms)),
        "propagation_low": _row(norms.amin(dim=0)),
        "propagation_high": _row(norms.amax(dim=0)),
        "propagation_measured": _rows(norms),
        "rho": _row(torch.cat([m.rho for m in measured]).mean(dim=0)),
        "residual": _row(torch.cat([m.residual for m in measured]).norm(dim=-1).mean(dim=0) / unit),
        "augmented_residual": _row(torch.cat([m.augmented_residual for m in measured]).norm(dim=-1).mean(dim=0) / unit),
        "augmented_rho": _row(torch.cat([m.augmented_rho for m in measured]).mean(dim=0)),
        "augmented_norm": _row(_geometric_mean(torch.cat([m.augmented_norms for m in measured]))),
    }


@torch.no_grad()
def _measure_errors(
    transition: Transition, latents: torch.Tensor, conditions: torch.Tensor, *, start: int
) -> Propagation:
    """One-step and rollout errors without Jacobians, in the precision of the transition and its latents."""
    epsilon = transition.predict(latents[:, :-1], conditions)[:, start - 1 :] - latents[:, start:]
    delta = transition.rollout(latents[:, :start], conditions) - latents[:, start:]
    none = torch.empty(0)
    return Propagation(epsilon.double(), delta.double(), none, none, none, none, none, none, none)


def _residual_bound(
    transition: Transition, z: torch.Tensor, c: torch.Tensor, found: Propagation, unit: float
) -> dict[str, Any]:
    """Proposition 1's bound beside the residuals of one measurement; L costs three more Jacobians a step."""
    constants = lipschitz(transition, *_from_start(transition.window, z, c), found)
    largest = float(constants.max()) if constants.numel() else 0.0
    errors = history_errors(found, transition.window).flatten(2).norm(dim=-1)
    bound = largest / 2 * errors.square()  # |r_t| <= L / 2 |e_{t-1}|^2, Proposition 1
    size = found.augmented_residual.norm(dim=-1)
    return {
        "lipschitz": largest,
        "residual_bound": _row(bound.mean(dim=0) / unit),
        "residual_within_bound": float((size <= bound + 1e-9 * unit).double().mean()),
    }


def _one_frame_start(
    transition: Transition,
    stretches: list[tuple[torch.Tensor, torch.Tensor]],
    few: list[tuple[torch.Tensor, torch.Tensor]],
    unit: float,
) -> OneFrameStart:
    """The control: rollouts over the same frames that know the last context frame only; Jacobians on a few of them."""
    exact = in_float64(transition)
    measured = [_measure_errors(exact, *_from_start(1, z.double(), c.double()), start=1) for z, c in stretches]
    with_jacobians = [measure(transition, *_from_start(1, z, c), start=1) for z, c in few]
    errors = [m.delta.norm(dim=-1) / unit for m in measured]
    return OneFrameStart(
        trajectories=sum(map(len, errors)),
        one_step_error=float(torch.cat([m.epsilon for m in measured]).norm(dim=-1).mean()) / unit,
        rollout_error=_row(torch.cat(errors).mean(dim=0)),
        rollout_measured=_rows(torch.stack([some.mean(dim=0) for some in errors])),
        propagation_norm=_row(_geometric_mean(torch.cat([m.propagation_norms for m in with_jacobians]))),
        rho=_row(torch.cat([m.rho for m in with_jacobians]).mean(dim=0)),
    )


def _states_and_actions(
    start: int, z: torch.Tensor, c: torch.Tensor, more_z: torch.Tensor, more_c: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """States with their histories [M, S, D] and the action sequences [12, S, C] that each of them is met with.

    The first windows of the trajectories, and their last ones: far apart in time, so that they differ.
    """
    histories = torch.cat([z[:, CONTEXT - start : CONTEXT], more_z[:, -start:]])[:STATES]
    actions = torch.cat([c[:, CONTEXT - start : CONTEXT], more_c[:, -start:]])[:ACTION_SEQUENCES]
    return histories, actions


def _geometric_mean(values: torch.Tensor) -> torch.Tensor:
    """Over the first dimension."""
    return values.log().mean(dim=0).exp()


def _row(values: torch.Tensor) -> tuple[float, ...]:
    return tuple(values.tolist())


def _rows(values: torch.Tensor) -> tuple[tuple[float, ...], ...]:
    return tuple(_row(row) for row in values)


def training_seconds(run: Path) -> float | None:
    """Total training time of a run, or of the run that a shipped checkpoint was taken from."""
    return read_shipment(run).training_seconds if (run / SHIPMENT_FILE).exists() else journal.total_seconds(run)


def _sigma_max_base(transition: Transition) -> float | None:
    with torch.no_grad():
        base = transition.base_matrix()
        return None if base is None else float(torch.linalg.matrix_norm(base.double(), 2))

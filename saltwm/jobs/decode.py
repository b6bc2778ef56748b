"""Open-loop predictions as pictures (App. C.5): what a model's latents show of the world, and for how long.

The decoder is fitted afterwards, on encoded true frames alone. It is for looking: no model is trained with it and no
plan is made with it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from saltwm.data.stretches import CONTEXT, Stretches, read_stretches
from saltwm.diagnostics.decoder import DECODERS, fit_decoder
from saltwm.diagnostics.probe import encode_pictures, fit_and_test_episodes
from saltwm.disk import checkpoint, durable
from saltwm.disk.dataset import Dataset
from saltwm.disk.durable import write_config
from saltwm.disk.layout import frame_counts
from saltwm.disk.records import Decoding
from saltwm.ground.checks import at_least, check, one_of
from saltwm.ground.errors import UsageError
from saltwm.ground.rng import stream
from saltwm.jobs.measures import IN_FILES, Decode, warn_if_seen
from saltwm.model.traits import model_key
from saltwm.model.world_model import WorldModel
from saltwm.processes.device import device_named

PREDICTIONS = 7
BLOCKS = CONTEXT - 1 + PREDICTIONS
STRETCHES = 64
"""Held-out stretches, one of an episode, that the errors are means over; the first few are drawn."""

Frames = NDArray[np.uint8]


@dataclass(frozen=True)
class Decoded:
    """What `decode_run` leaves in `folder`."""

    folder: Path
    picture: Path
    record: Decoding


def decode_run(job: Decode, dataset: Dataset) -> Decoded:
    """Fit a decoder to a frozen model and record its pictures and their errors in the job's folder."""
    one_of("decoder", job.decoder, IN_FILES)
    decoder = IN_FILES[job.decoder]
    steps = DECODERS[decoder].steps if job.steps is None else job.steps
    for option, value in (("steps", steps), ("episodes", job.episodes), ("frames", job.frames)):
        at_least(option, value)
    path = checkpoint.find_checkpoint(job.run)
    info = checkpoint.read_info(path)
    model = checkpoint.load(path, world=dataset.world).to(device_named(job.device))
    job = job.begin(dataset)
    warn_if_seen(info, dataset, path)
    fit_episodes, test_episodes = fit_and_test_episodes(dataset)
    stretches = held_out_stretches(dataset, test_episodes, model.config.frameskip, job.episodes, job.seed)
    fit_frames = dataset.read_frames(*choose_frames(dataset, fit_episodes, job.frames, job.seed))
    drawn = _fit_and_draw(model, stretches, fit_frames, decoder=decoder, steps=steps, seed=job.seed)
    times = [model.config.frameskip * block for block in range(BLOCKS + 1)]
    image = draw_rollouts(stretches, drawn.true, drawn.predicted, times, job.episodes)
    durable.make_folder(job.folder)
    job.claim(job.folder)
    picture = job.folder / "decoded.png"
    durable.write_file(picture, partial(image.save, format="PNG"))
    record = Decoding(
        environment=dataset.world.environment,
        method=model_key(info.run.model.model),
        objective=info.run.objective.word,
        run=str(job.run),
        decoder=decoder,
        steps=steps,
        seed=job.seed,
        frames=len(fit_frames),
        stretches=len(stretches.frames),
        context=CONTEXT,
        times=tuple(times),
        **_pixel_errors(stretches, drawn, fit_frames),
        picture_sha256=durable.sha256(picture),
    )
    write_config(job.folder / job.RECORD, record)
    return Decoded(job.folder, picture, record)


@dataclass(frozen=True)
class _Drawn:
    """Held-out stretches as a decoder draws them."""

    true: Frames
    """[N, BLOCKS + 1, H, W, 3], the true frames, encoded and decoded."""
    predicted: Frames
    """[N, PREDICTIONS, H, W, 3], decoded predictions of those after the context."""


def _fit_and_draw(
    model: WorldModel, stretches: Stretches, fit_frames: Frames, *, decoder: str, steps: int, seed: int
) -> _Drawn:
    """Fit a decoder to the model's latents of `fit_frames` [F, H, W, 3], and draw the stretches with it."""
    fit_latents = encode_pictures(model, fit_frames)
    fitted = fit_decoder(DECODERS[decoder], model.encoder, fit_latents, fit_frames, steps=steps, seed=seed)
    latents, predicted = predict(model, stretches)
    return _Drawn(fitted.draw(latents), fitted.draw(predicted))


def _pixel_errors(stretches: Stretches, drawn: _Drawn, fit_frames: Frames) -> dict[str, tuple[float, ...]]:
    """The errors of a Decoding by frame, under their names there."""
    mean_picture = np.broadcast_to(fit_frames.mean(axis=0), stretches.frames.shape)
    return {
        "true_mse": pixel_mse(stretches.frames, drawn.true),
        "predicted_mse": pixel_mse(stretches.frames[:, CONTEXT:], drawn.predicted),
        "mean_mse": pixel_mse(stretches.frames, mean_picture),
    }


def held_out_stretches(
    dataset: Dataset, episodes: NDArray[np.int64], frameskip: int, wanted: int, seed: int
) -> Stretches:
    """One stretch each of as many of these episodes as are long enough, up to STRETCHES or what is `wanted`."""
    long_enough = episodes[dataset.lengths[episodes] >= BLOCKS * frameskip]
    if len(long_enough) < wanted:
        raise UsageError(
            f"{dataset.path}: {len(long_enough)} held-out episodes have {BLOCKS * frameskip} steps, expected at least "
            f"{wanted}; lower --episodes, or collect more and longer ones"
        )
    count = min(len(long_enough), max(STRETCHES, wanted))
    return read_stretches(dataset, long_enough, BLOCKS, frameskip, count, stream(seed, "decode"))


def choose_frames(
    dataset: Dataset, episodes: NDArray[np.int64], count: int, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Episodes [N] and steps [N] of `count` stored frames of these episodes, each at most once; or of all of them."""
    stored = frame_counts(dataset.lengths[episodes], dataset.frame_every)
    which = np.repeat(episodes, stored)
    steps = dataset.frame_every * np.concatenate([np.arange(n) for n in stored])
    chosen = stream(seed, "decoder frames").permutation(len(which))[:count]
    return which[chosen], steps[chosen]


@torch.inference_mode()
def predict(model: WorldModel, stretches: Stretches) -> tuple[torch.Tensor, torch.Tensor]:
    """Latents of the true frames [N, BLOCKS + 1, D], and predictions from the context on [N, PREDICTIONS, D]."""
    latents = encode_pictures(model, stretches.frames.reshape(-1, *stretches.frames.shape[2:]))
    latents = latents.unflatten(0, (-1, BLOCKS + 1))
    first = CONTEXT - min(model.window, CONTEXT)
    conditions = model.condition(torch.from_numpy(stretches.blocks))
    return latents, model.rollout(latents[:, first:CONTEXT].to(model.device), conditions[:, first:])


def pixel_mse(truth: Frames, guess: NDArray[np.uint8] | NDArray[np.float64]) -> tuple[float, ...]:
    """Mean squared error by frame, of pixels in 0 .. 1: [N, T, H, W, 3] twice -> T values."""
    sizes = check("pictures", truth, "N T H W 3")
    check("guessed pictures", guess, "N T H W 3", dtype=None, **sizes)
    return tuple(float(np.mean((truth[:, t] / 255 - guess[:, t] / 255) ** 2)) for t in range(sizes["T"]))


# --- the picture ----------------------------------------------------------------------------------------------------

LEAST_SIDE = 128
GAP, APART, BELOW = 3, 15, 18
LABELS_WIDTH, HEADER_HEIGHT = 108, 20
INK, QUIET, PAPER = (29, 33, 39), (105, 111, 119), (236, 238, 241)
ROWS = ("true", "context, then\npredicted", "true, encoded\nand decoded")


def draw_rollouts(
    stretches: Stretches, decoded: Frames, decoded_predictions: Frames, times: Sequence[int], episodes: int
) -> Image.Image:
    """Three rows for each of the first stretches: true frames, context and predictions, decoded true latents."""
    size = stretches.frames.shape[2]
    side = size * max(1, LEAST_SIDE // size)
    lefts = [LABELS_WIDTH + i * (side + GAP) + (APART if i >= CONTEXT else 0) for i in range(len(times))]
    height = len(ROWS) * (side + GAP) + BELOW
    image = Image.new("RGB", (lefts[-1] + side + GAP, HEADER_HEIGHT + episodes * height - BELOW), PAPER)
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(size=13)
    for left, time in zip(lefts, times, strict=True):
        draw.text((left + side / 2, HEADER_HEIGHT / 2), f"t = {time}", fill=INK, font=font, anchor="mm")
    for e in range(episodes):
        truth, place = stretches.frames[e], f"episode {stretches.episodes[e]}\nfrom step {stretches.starts[e]}"
        draw.multiline_text((4, HEADER_HEIGHT + e * height + 40), place, fill=QUIET, font=font)
        rows = (truth, np.concatenate([truth[:CONTEXT], decoded_predictions[e]]), decoded[e])
        for r, (row, label) in enumerate(zip(rows, ROWS, strict=True)):
            top = HEADER_HEIGHT + e * height + r * (side + GAP)
            draw.multiline_text((4, top + 4), label, fill=INK, font=font)
            for left, frame in zip(lefts, row, strict=True):
                enlarged = Image.fromarray(frame).resize((side, side), Image.Resampling.NEAREST)
                image.paste(enlarged, (left, top))
    line = lefts[CONTEXT] - (APART + GAP) / 2
    draw.line([(line, 0), (line, image.height)], fill=QUIET, width=1)
    return image

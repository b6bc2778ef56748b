"""What the worker keeps at hand: models, environments, datasets, galleries. All of it can be made again."""

import contextlib
import functools
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from saltwm.disk.dataset import Dataset
from saltwm.disk.layout import frame_counts
from saltwm.envs import has_simulator, make_env
from saltwm.envs.base import Frame, PlanningEnv, State
from saltwm.explore.folders import Kind, Place, require_no_links
from saltwm.ground.checks import check
from saltwm.ground.config import Variant, WorldSpec
from saltwm.ground.errors import SaltError, UsageError

if TYPE_CHECKING:
    from torch import Tensor

    from saltwm.diagnostics.decoder import Decoder
    from saltwm.disk.checkpoint import CheckpointInfo
    from saltwm.model.world_model import WorldModel
    from saltwm.planning.prior import ActionPrior

GALLERY_FRAMES = 1024
DECODER_STEPS = 1000
DRAWN_SIZE, RENDERED_SIZE = 192, 128
"""Side of a shown picture: of worlds that are drawn with arrays, and of those that MuJoCo renders."""


@dataclass(frozen=True)
class Gallery:
    """Stored frames with their latents: a latent is shown as the frame whose latent is nearest."""

    dataset: str
    frames: Frame
    """[N, H, W, 3]"""
    states: NDArray[np.float64]
    """[N, S]"""
    episodes: NDArray[np.int64]
    steps: NDArray[np.int64]
    latents: "Tensor"
    """[N, D]"""

    @property
    def spread(self) -> float:
        """Mean |z - mean z|: the unit of latent errors, as in a diagnosis."""
        return float((self.latents - self.latents.mean(dim=0)).norm(dim=1).mean())

    def nearest(self, latents: "Tensor") -> list[int]:
        """Index of the frame whose latent is nearest, for each latent [K, D]."""
        import torch

        return torch.cdist(latents, self.latents).argmin(dim=1).tolist()


@dataclass(frozen=True)
class Moment:
    """What was seen of a world after a block of actions."""

    state: tuple[float, ...]
    picture: bytes
    """PNG, for people."""
    latent: "Tensor"
    """phi of the model's own frame [D]; each is encoded alone, as an agent does."""


class Desk:
    """The places by name, and what was read from them."""

    def __init__(self, places: list[Place]) -> None:
        self.places = {place.name: place for place in places}
        self.model = functools.lru_cache(maxsize=8)(self._model)
        self.prior = functools.lru_cache(maxsize=8)(self._prior)
        self.info = functools.lru_cache(maxsize=None)(self._info)
        self.dataset = functools.lru_cache(maxsize=None)(self._dataset)
        self.has_simulator = functools.lru_cache(maxsize=None)(has_simulator)
        self.env = functools.lru_cache(maxsize=8)(self._env)
        self.gallery = functools.lru_cache(maxsize=8)(self._gallery)
        self.latent = functools.lru_cache(maxsize=1024)(self._latent)
        self.after = functools.lru_cache(maxsize=512)(self._after)
        self.stored = functools.lru_cache(maxsize=512)(self._stored)
        self._looked: dict[str, bool] = {}
        self._fits: dict[str, Iterator[tuple[Decoder, float]]] = {}
        self._decoders: dict[str, tuple[int, Decoder]] = {}

    def path(self, name: str, kind: Kind) -> Path:
        """The folder of that name; UsageError if nothing of this kind has it."""
        place = self.places.get(name)
        if place is None or place.kind != kind:
            raise UsageError(f"no {kind} is called {name!r:.80}")
        return Path(place.path)

    def names(self, kind: Kind) -> list[str]:
        """Everything of a kind, in the order in which it was given."""
        return [name for name, place in self.places.items() if place.kind == kind]

    # --- reading -----------------------------------------------------------------------------------------------------

    def checkpoint(self, name: str) -> Path:
        """The checkpoint's folder, the newest of a run."""
        from saltwm.disk.checkpoint import find_checkpoint

        path = self.path(name, "model")
        require_no_links(path)
        return find_checkpoint(path)

    def _info(self, name: str) -> "CheckpointInfo":
        from saltwm.disk.checkpoint import read_info

        return read_info(self.checkpoint(name))

    def _model(self, name: str) -> "WorldModel":
        from saltwm.disk.checkpoint import load

        return load(self.checkpoint(name)).eval().requires_grad_(False)

    def has_prior(self, name: str) -> bool:
        """Whether an action prior lies beside the model."""
        from saltwm.planning.prior_files import find_prior

        return find_prior(self.checkpoint(name)) is not None

    def _prior(self, name: str) -> "ActionPrior":
        from saltwm.planning.prior_files import load_prior

        return load_prior(self.checkpoint(name))

    def _dataset(self, name: str) -> Dataset:
        path = self.path(name, "dataset")
        require_no_links(path)
        return Dataset.open(path, verify="sizes")

    def _env(self, world: WorldSpec, variant: Variant) -> PlanningEnv:
        """The simulator of a world, built once: Cube's takes two seconds."""
        if not self.has_simulator(world.environment):
            raise UsageError(f"{world.environment!r:.80}: there is no simulator of this environment here")
        return make_env(world.environment, variant=variant, image_size=world.image_size, render_quality=world.render)

    def env_of(self, model: str, variant: Variant = "clean") -> PlanningEnv:
        """The simulator of the world that a model learnt; its pictures are the same in each variant."""
        return self.env(self.info(model).world, variant)

    def is_simulated(self, model: str) -> bool:
        """Whether there is a simulator that draws what the model learnt from; recordings have none."""
        world = self.info(model).world
        return self.has_simulator(world.environment) and world.renderer != "imported"

    def data_of(self, model: str) -> str | None:
        """The dataset of a model's world, a held-out one if there is one."""
        world, found = self.info(model).world, []
        for name in self.names("dataset"):
            try:
                dataset = self.dataset(name)
            except SaltError:
                continue  # the catalogue says what is wrong with it
            if dataset.world == world:
                found.append((not dataset.recipe.is_held_out, name))
        return min(found)[1] if found else None

    # --- pictures and latents ----------------------------------------------------------------------------------------

    def state(self, env: PlanningEnv, numbers: tuple[float, ...]) -> State:
        """Numbers from the page as a state of this environment."""
        state = np.array(numbers, np.float64)
        check("state", state, "S", S=env.state_dim)
        return state

    def _latent(self, model: str, numbers: tuple[float, ...]) -> "Tensor":
        """phi(x) [D] of the picture of a state; each is encoded alone, as an agent does."""
        env = self.env_of(model)
        env.restore(self.state(env, numbers))
        return self.encode(model, env.render()[None])[0]

    def _after(self, model: str, numbers: tuple[float, ...], block: tuple[float, ...]) -> Moment:
        """What the simulator makes of one block. A slider changes one, so that those before it are at hand."""
        env = self.env_of(model)
        env.restore(self.state(env, numbers))
        for action in np.array(block, np.float32).reshape(-1, env.action_dim):
            env.step(action)
        frame = env.render()
        # A rendered picture costs as much as a decision, and these are small: the model's own frame will do.
        shown = env.draw(shown_size(env)) if env.renderer == "numpy" else frame
        return Moment(tuple(env.state().tolist()), png(shown), self.encode(model, frame[None])[0])

    def _stored(self, model: str, episode: int, step: int) -> Moment:
        """One stored moment of the model's dataset."""
        name = self.data_of(model)
        if name is None:
            raise UsageError(f"{model}: no dataset of its world is among the folders")
        dataset = self.dataset(name)
        (frame,) = dataset.read_frames(np.array([episode]), np.array([step]))
        state = tuple(dataset.states(episode)[step].tolist())
        return Moment(state, png(frame), self.encode(model, frame[None])[0])

    def encode(self, model: str, frames: Frame) -> "Tensor":
        """Frames [N, H, W, 3] -> latents [N, D]."""
        from saltwm.diagnostics.probe import encode_pictures

        return encode_pictures(self.model(model), np.ascontiguousarray(frames))

    def _gallery(self, model: str) -> Gallery:
        name = self.data_of(model)
        if name is None:
            world = self.info(model).world
            raise UsageError(
                f"{model}: no dataset of its world ({world.environment}, {world.image_size} px) is among the folders; "
                "give one to see what it imagines"
            )
        dataset = self.dataset(name)
        episodes, steps = spread_frames(dataset, GALLERY_FRAMES)
        frames = dataset.read_frames(episodes, steps)
        states = np.stack([dataset.states(int(e))[s] for e, s in zip(episodes, steps, strict=True)])
        return Gallery(name, frames, states, episodes, steps, self.encode(model, frames))

    # --- what is done while nobody asks for anything -----------------------------------------------------------------

    def expect(self, model: str) -> None:
        """Somebody has opened this model: its first look is made in an idle moment, before it is asked for."""
        if self.is_simulated(model):
            self._looked.setdefault(model, False)

    def expect_first(self) -> None:
        """The page opens with the first model that can act, unless its address names another."""
        for name in self.names("model"):
            with contextlib.suppress(SaltError):  # the catalogue says what is wrong with it
                self.expect(name)
            if self._looked:
                return

    def _first_look(self, model: str) -> None:
        """Open the renderer at the model's own size, and run its encoder once: the first time takes longest."""
        env = self.env_of(model)
        env.reset(seed=0)  # any state will do: every question brings its own
        self.encode(model, env.render()[None])

    def decoder(self, model: str) -> "Decoder | None":
        """The model's decoder, if it is fitted."""
        steps, decoder = self._decoders.get(model, (0, None))
        return decoder if steps == DECODER_STEPS else None

    def fit_decoder(self, model: str) -> int:
        """Begin to fit a decoder unless it was begun; steps done so far."""
        from saltwm.diagnostics.decoder import DECODERS, fitting

        if model not in self._fits:
            gallery, encoder = self.gallery(model), self.model(model).encoder
            self._fits[model] = fitting(
                DECODERS["small"], encoder, gallery.latents, gallery.frames, steps=DECODER_STEPS, seed=0
            )
        return self._decoders.get(model, (0, None))[0]

    def idle(self) -> bool:
        """A first look, or one step of a decoder's fit; False if there is nothing to do."""
        for model, done in self._looked.items():
            if not done:
                self._looked[model] = True
                with contextlib.suppress(Exception):  # what is wrong with it is said to whoever asks
                    self._first_look(model)
                return True
        for model, fit in self._fits.items():
            steps = self._decoders.get(model, (0, None))[0]
            if steps < DECODER_STEPS:
                self._decoders[model] = (steps + 1, next(fit)[0].eval())
                return True
        return False


def spread_frames(dataset: Dataset, most: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Episode and step of evenly spaced stored frames, at most `most` of them."""
    counts = frame_counts(dataset.lengths, dataset.frame_every)
    ends = np.cumsum(counts)
    rows = np.unique(np.linspace(0, ends[-1] - 1, min(most, int(ends[-1]))).round().astype(np.int64))
    episodes = np.searchsorted(ends, rows, side="right")
    return episodes, (rows - (ends - counts)[episodes]) * dataset.frame_every


def shown_size(env: PlanningEnv) -> int:
    """Side of a picture for people."""
    return DRAWN_SIZE if env.renderer == "numpy" else RENDERED_SIZE


def png(frame: NDArray[np.uint8]) -> bytes:
    """A picture [H, W, 3] as PNG, written fast."""
    buffer = io.BytesIO()
    Image.fromarray(frame).save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()


def plain(value: Any, digits: int | None = None) -> Any:
    """Numbers for JSON: arrays as lists, what is not finite as null; rounded to `digits` if they are only looked at."""
    if isinstance(value, dict):
        return {key: plain(entry, digits) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry, digits) for entry in value]
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist(), digits)
    if not isinstance(value, float):
        return value
    if not np.isfinite(value):
        return None
    return value if digits is None else float(f"{value:.{digits}g}")

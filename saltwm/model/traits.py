"""The closed table of transitions: a config's `model` chooses the row. Needs no torch.

A new transition is one file beside this one and one row here; every job then takes its name as `model`. A user's own
needs neither: own.py finds the class that a person named.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from saltwm.ground.checks import one_of
from saltwm.ground.config import ModelConfig, RunConfig
from saltwm.ground.errors import UsageError
from saltwm.ground.own_code import is_place

if TYPE_CHECKING:
    from saltwm.model.transition import Transition


@dataclass(frozen=True)
class Traits:
    """What the rest of the house may want to know of a transition before, or without, building it."""

    title: str
    """As people write it."""
    what: str
    """As a model card begins."""
    objective: str
    """Its own, unless another is chosen: a prediction loss, or a row of losses/table.py."""
    build: Callable[[ModelConfig], "Transition"]
    window: Callable[[ModelConfig], int] = lambda config: 1
    """Latents that it looks back at, at most."""
    frames: Callable[[ModelConfig], int] = lambda config: 1
    """Frames that an agent shows it by default; the authors' evaluation shows LeWM one."""
    layers: Callable[[ModelConfig], int] = lambda config: 0
    """How many layers its sizes claim, each with tensors of its own."""
    condition_dim: Callable[[ModelConfig], int] = lambda config: config.latent_dim
    """Size of the action condition c."""
    is_frozen: bool = False
    """Whether its encoder brings weights of its own and never learns."""
    has_matrix: bool = False
    """Whether it is affine in its state, so that Gauss-Newton can plan with it."""
    on_other_processes: str = "summed in another order, so equal up to rounding"
    """What the same batches give on another number of training processes."""


def _salt(config: ModelConfig) -> "Transition":
    from saltwm.model.affine import StateAffine

    affine = config.affine
    return StateAffine(config.latent_dim, config.latent_dim, affine.modes, affine.spectral, affine.memory)


def _lewm(config: ModelConfig) -> "Transition":
    from saltwm.model.transformer import TransformerPredictor

    return TransformerPredictor(config.latent_dim, config.latent_dim, config.transformer)


def _dino_wm(config: ModelConfig) -> "Transition":
    from saltwm.model.patches import PatchPredictor

    encoder = config.encoder
    patches = (encoder.grid or 0) ** 2
    if encoder.kind != "dinov2" or config.latent_dim != patches * encoder.width:
        raise UsageError(
            f"dino-wm: expected an encoder dinov2 and a `latent_dim` of {patches} patches of {encoder.width}, found "
            f"{encoder.kind} and {config.latent_dim}"
        )
    return PatchPredictor(patches, encoder.width, config.smoothed_dim, config.transformer)


def _remembered(config: ModelConfig) -> int:
    return 2 if config.affine.memory else 1


_DROPOUT = "but each process draws dropout masks of its own, so alike in distribution only"

TRANSITIONS: dict[str, Traits] = {
    "salt": Traits(
        title="SALT",
        what="A state-affine latent world model",
        objective="rollout",
        build=_salt,
        window=_remembered,
        frames=_remembered,
        has_matrix=True,
    ),
    "lewm": Traits(
        title="LeWM",
        what="A latent world model with a transformer predictor, the baseline of SALT",
        objective="one-step",
        build=_lewm,
        window=lambda config: config.transformer.window,
        layers=lambda config: config.transformer.depth,
        on_other_processes=_DROPOUT,
    ),
    "dino-wm": Traits(
        title="DINO-WM",
        what="A world model over the patches of a frozen DINOv2, a baseline of SALT",
        objective="forward-only",
        build=_dino_wm,
        window=lambda config: config.transformer.window,
        layers=lambda config: config.transformer.depth,
        condition_dim=lambda config: config.smoothed_dim,
        is_frozen=True,
        on_other_processes=_DROPOUT,
    ),
}


def traits_of(model: str) -> Traits:
    """The row of a transition; UsageError with the nearest name if there is none, or for a class that nobody named."""
    if is_place(model):
        from saltwm.model import own

        return own.traits(model)
    one_of("model", model, TRANSITIONS, beside="module:Class of your own")
    return TRANSITIONS[model]


def model_key(model: str) -> str:
    """The word for a model in records and folders: its own, or for a user's module:Class the name of the class."""
    return model.rpartition(":")[2].lower() if is_place(model) else model


def model_name(config: ModelConfig) -> str:
    """What a model is called in tables and folders: salt, lewm, or salt-memory."""
    return f"{model_key(config.model)}-memory" if config.affine.memory else model_key(config.model)


def learnt_name(run: RunConfig) -> str:
    """The model's name with its objective, where that is not SIGReg's: lewm-pldm."""
    regulariser = run.objective.regulariser
    name = model_name(run.model)
    if regulariser is None or regulariser == traits_of(run.model.model).objective:
        return name
    return f"{name}-{regulariser.replace(':', '-')}"

"""Named configurations as plain Python: the paper's, one for two CPU cores, one for a few minutes.

`paper` is the paper's to the letter. `cpu` and `quick` keep the method (objective, transition, planner, window) and
shrink the pictures, the encoder and the steps; their sizes were chosen by measurement, see LAB.md.
"""

import dataclasses
from typing import cast, get_args

from saltwm.ground.checks import one_of
from saltwm.ground.config import (
    EncoderConfig,
    ModelConfig,
    ModelName,
    ObjectiveConfig,
    ObjectiveName,
    RunConfig,
    TrainConfig,
    TransformerConfig,
)
from saltwm.losses.table import OBJECTIVES, SIGREG, is_own
from saltwm.model.traits import traits_of

PAPER = RunConfig(  # every default of the config classes is the paper's and says where
    preset="paper",
    train=TrainConfig(
        split="window",  # App. B.1
        precision="bf16-mixed",  # App. B.2
        validate_every=1000,
        save_every=2000,
    ),
)

# Four strided convolutions instead of 256 patches and 12 blocks: 64 px, 2.2 M parameters in all.
_SMALL_ENCODER = EncoderConfig(kind="conv", channels=(16, 32, 64, 128))
# LeWM's predictor shrunk in proportion, so that planning with it stays affordable on a CPU.
_SMALL_TRANSFORMER = TransformerConfig(depth=3, heads=4, head_dim=48, mlp_dim=384, projection_dim=1024)
_SMALL_MODEL = ModelConfig(encoder=_SMALL_ENCODER, transformer=_SMALL_TRANSFORMER)

CPU = RunConfig(
    preset="cpu",
    model=_SMALL_MODEL,
    # At small batches the statistic, which grows with the batch, is too weak at 0.09 to spread the latents.
    # Encoding is 84 % of a step: windows of 12 frames, each encoded once and rolled out from seven of them, give 1,120
    # predictions a step where 64 windows of 6 frames give 320.
    objective=ObjectiveConfig(starts=7, sigreg_weight=0.3, sigreg_projections=256),
    train=TrainConfig(batch_size=32, steps=2000, learning_rate=1e-3, validate_every=200, save_every=400),
)

QUICK = dataclasses.replace(
    CPU, preset="quick", train=dataclasses.replace(CPU.train, steps=250, validate_every=50, save_every=125)
)

PRESETS: dict[str, RunConfig] = {preset.preset: preset for preset in (PAPER, CPU, QUICK)}
OTHER_NAMES = {"full-size": "paper"}
"""What a command calls a preset -> its name in configs and files."""


def run_config(preset: str, model: ModelName = "salt", objective: str | None = None) -> RunConfig:
    """The preset with a model and an objective; without one, the model's own: rollout for SALT, one-step for LeWM."""
    preset = OTHER_NAMES.get(preset, preset)
    one_of("preset", preset, PRESETS, beside="full-size, which is paper")
    base = PRESETS[preset]
    prediction, regulariser = objective_parts(model, objective)
    return dataclasses.replace(
        base,
        model=dataclasses.replace(base.model, model=model),
        objective=dataclasses.replace(base.objective, objective=prediction, regulariser=regulariser),
    )


def objective_parts(model: ModelName, objective: str | None) -> tuple[ObjectiveName, str | None]:
    """Prediction loss and regulariser of an objective's name; no regulariser is SIGReg, which eq. 10 has.

    The name is one of the two prediction losses, a row of losses/table.py, or a user's own module:name.
    """
    own = traits_of(model).objective
    own_prediction: ObjectiveName = "rollout" if own == "rollout" else "one-step"
    if is_own(objective):
        return own_prediction, objective
    objective = objective or own
    if objective in get_args(ObjectiveName):
        return cast(ObjectiveName, objective), None
    one_of("objective", objective, (*get_args(ObjectiveName), *OBJECTIVES), beside="module:name of your own")
    row = OBJECTIVES[objective]
    return row.prediction or own_prediction, None if row.terms == (SIGREG,) else objective

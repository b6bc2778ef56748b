"""Values that no training run can have."""

import math
from typing import get_args

from saltwm.ground.checks import at_least, one_of
from saltwm.ground.config import PrecisionName, RunConfig
from saltwm.ground.errors import UsageError


def check_options(config: RunConfig) -> None:
    """UsageError for a value that no run can have."""
    model, objective, options = config.model, config.objective, config.train
    at_least_one = {
        "`batch_size`": options.batch_size,
        "`steps`": options.steps,
        "`projections`": objective.sigreg_projections,
        "`starts`": objective.starts,
        "`rollout_steps`": objective.rollout_steps,
        "`latent_dim`": model.latent_dim,
        "`validate_every`": options.validate_every,
        "`save_every`": options.save_every,
        "`keep`": options.keep,
        "validation_batches": options.validation_batches,
    }
    not_negative = {"`modes`": model.affine.modes, "`lambda`": objective.sigreg_weight}
    for limits, least in ((at_least_one, 1), (not_negative, 0)):
        for option, value in limits.items():
            at_least(option, value, least)
    one_of("`precision`", options.precision, get_args(PrecisionName))
    for option, rate in (("`learning_rate`", options.learning_rate), ("`epochs`", options.epochs)):
        if not 0 < rate < math.inf:
            raise UsageError(f"{option} {rate}: must be more than 0 and finite")
    if model.affine.memory and objective.starts < 2:
        raise UsageError("`memory`: rollouts start from two frames, so that motion is seen; give `starts` of 2 or more")
    if model.model == "lewm" and objective.objective == "rollout" and options.batch_size * objective.starts == 1:
        raise UsageError("`batch_size` 1: must be 2 or more for rollouts of lewm, whose head normalises over a batch")
    if (model.encoder.kind == "dinov2") != (model.model == "dino-wm"):
        raise UsageError(f"model {model.model}: a frozen dinov2 is the encoder of dino-wm and of no other model")
    if model.encoder.kind == "vit" and model.encoder.channels:
        raise UsageError(f"`channels`: the encoder of the preset {config.preset!r} has no convolutions; leave it out")
    if min(model.encoder.channels, default=1) < 1:
        raise UsageError(f"`channels` {' '.join(map(str, model.encoder.channels))}: each must be at least 1")

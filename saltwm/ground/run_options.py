"""Values that no training run can have."""

import dataclasses
import math
from typing import Any, Literal, get_args, get_origin

import numpy as np

from saltwm.ground.checks import at_least, one_of
from saltwm.ground.config import RunConfig
from saltwm.ground.errors import UsageError


def check_options(config: RunConfig) -> RunConfig:
    """The config in Python's own numbers; UsageError for a value that no run can have."""
    checked: RunConfig = _of_its_kind(config, RunConfig)
    _check_numbers(checked)
    _check_together(checked)
    return checked


# --- kinds -----------------------------------------------------------------------------------------------------------


def _of_its_kind(value: Any, kind: Any, *place: str) -> Any:
    """The value, or that of each field of a dataclass, if it is of the kind that the field is annotated with."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type) and kind is type(value):
        kinds = {f.name: f.type for f in dataclasses.fields(value)}
        parts = {name: _of_its_kind(getattr(value, name), kinds[name], *place, name) for name in kinds}
        return dataclasses.replace(value, **parts)
    name, value = ".".join(place[1:] or place), _without_numpy(value)
    if get_origin(kind) is Literal and isinstance(value, str):
        one_of(f"`{name}`", value, get_args(kind))
    return _validated(name, value, kind)


def _validated(name: str, value: Any, kind: Any) -> Any:
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(kind).validate_python(value, strict=True)
    except ValidationError as error:
        message = error.errors()[0]["msg"].replace("Input should be", "must be")
        raise UsageError(f"`{name}` {value!r:.80}: {message}") from error


def _without_numpy(value: Any) -> Any:
    """NumPy's numbers, which a sweep over np.arange has and no file can hold, as Python's; a list as a tuple."""
    if isinstance(value, list | tuple):
        return tuple(map(_without_numpy, value))
    if isinstance(value, dict):
        return {name: _without_numpy(entry) for name, entry in value.items()}
    return value.item() if isinstance(value, np.generic) else value


# --- values ----------------------------------------------------------------------------------------------------------


def _check_numbers(config: RunConfig) -> None:
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
        "frameskip": model.frameskip,
        "smoothed_dim": model.smoothed_dim,
        **_sizes("encoder", model.encoder, "patch_size", "width", "heads", "mlp_dim", "projection_dim"),
        **_sizes("transformer", model.transformer, "window", "heads", "head_dim", "mlp_dim", "projection_dim"),
    }
    depths = _sizes("encoder", model.encoder, "depth") | _sizes("transformer", model.transformer, "depth")
    not_negative = {"`modes`": model.affine.modes, **depths}
    for limits, least in ((at_least_one, 1), ({"sigreg_knots": objective.sigreg_knots}, 2), (not_negative, 0)):
        for option, value in limits.items():
            at_least(option, value, least)
    _check_rates(config)


def _sizes(part: str, config: Any, *names: str) -> dict[str, int]:
    return {f"{part}.{name}": getattr(config, name) for name in names}


def _check_rates(config: RunConfig) -> None:
    options, dropout = config.train, config.model.transformer.dropout
    for option, rate in (("`learning_rate`", options.learning_rate), ("`epochs`", options.epochs)):
        if not 0 < rate < math.inf:
            raise UsageError(f"{option} {rate}: must be more than 0 and finite")
    if not 0 < options.gradient_clip < math.inf:
        remedy = "a gradient is never clipped by a large one, such as 1e9"
        raise UsageError(f"`gradient_clip` {options.gradient_clip}: must be more than 0 and finite; {remedy}")
    for option, weight in (("`lambda`", config.objective.sigreg_weight), ("`weight_decay`", options.weight_decay)):
        if not 0 <= weight < math.inf:
            raise UsageError(f"{option} {weight}: must be at least 0 and finite")
    for option, share in (("`warmup_fraction`", options.warmup_fraction), ("transformer.dropout", dropout)):
        if not 0 <= share <= 1:
            raise UsageError(f"{option} {share}: must be a share from 0 to 1")


def _check_together(config: RunConfig) -> None:
    model, objective, options = config.model, config.objective, config.train
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

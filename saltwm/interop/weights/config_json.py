"""config.json of the public layout: read as data, never executed, and written as the public files have it.

It is a tree that names a class at each node; here those names are compared with a closed list and mean nothing more.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saltwm.disk import durable
from saltwm.ground.config import EncoderConfig, ModelConfig, TransformerConfig
from saltwm.ground.errors import DamagedError, MismatchError, UsageError
from saltwm.model.traits import model_name

CONFIG_FILE = "config.json"
_VIT = "stable_pretraining.backbone.utils.vit_hf"
_BATCH_NORM = "torch.nn.BatchNorm1d"
_LEWM = {
    "": "stable_worldmodel.wm.lewm.LeWM",
    "predictor": "stable_worldmodel.wm.lewm.module.Predictor",
    "action_encoder": "stable_worldmodel.wm.lewm.module.Embedder",
    "projector": "stable_worldmodel.wm.lewm.module.MLP",
    "pred_proj": "stable_worldmodel.wm.lewm.module.MLP",
}
_OLDER_LEWM = {
    "": "jepa.JEPA",
    "predictor": "module.ARPredictor",
    "action_encoder": "module.Embedder",
    "projector": "module.MLP",
    "pred_proj": "module.MLP",
}
_SALT = {
    "": "salt.models.JEPA",
    "predictor": "salt.models.StateAffineTransition",
    "action_encoder": "salt.models.ActionEncoder",
    "projector": "salt.models.MLP",
}
_LEWM_BY_SALT = {**_SALT, "predictor": "salt.models.TransformerPredictor", "pred_proj": "salt.models.MLP"}
_OLDER_SALT = {**_OLDER_LEWM, "predictor": "koopman.KoopmanPredictor"}
_KINDS = {"lewm": (_LEWM, _OLDER_LEWM, _LEWM_BY_SALT), "salt": (_SALT, _OLDER_SALT)}
KNOWN_TARGETS: dict[str, set[str]] = {
    "encoder": {_VIT},
    "projector.norm_fn": {_BATCH_NORM},
    "pred_proj.norm_fn": {_BATCH_NORM},
    **{place: {names[place] for kind in _KINDS.values() for names in kind if place in names} for place in _LEWM},
}
"""The names that a config.json may give, by place; they are compared, never imported."""

_VIT_SIZES = {"tiny": (192, 12, 3), "small": (384, 12, 6), "base": (768, 12, 12), "large": (1024, 24, 16)}
"""Width, depth and heads; the feed-forward width is four times the width."""
_VIT_FIELDS = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
_PRE_RELEASE = {"predictor.gate_rank": "predictor.num_modes"}
_NOT_STRUCTURE = {"_target_", "_partial_", "size", "pretrained", "use_mask_token", "dropout", "emb_dropout", "s_init"}


@dataclass(frozen=True)
class PublicModel:
    """What a public checkpoint is; its frameskip needs an environment's action size besides."""

    model: ModelConfig
    image_size: int
    block_dim: int
    """Numbers in one action block."""


# --- reading --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stated:
    """What a config.json says about a model."""

    values: dict[str, Any]
    """By place, e.g. encoder.patch_size; empty if there is no such file."""
    where: Path

    def heads(self, place: str) -> int | None:
        """A number of attention heads, which tensors cannot tell."""
        value = self.values.get(place)
        if value is not None and (type(value) is not int or value < 1):
            raise DamagedError(f"{self.where}: {place}: expected a positive whole number, found {value!r:.80}")
        return value

    def dropout(self) -> float:
        """The predictor's; it matters only if training goes on."""
        value = self.values.get("predictor.dropout", TransformerConfig.dropout)
        if type(value) not in (int, float) or not 0 <= value < 1:
            raise DamagedError(f"{self.where}: predictor.dropout: expected a share below 1, found {value!r:.80}")
        return float(value)

    def confirm(self, public: PublicModel) -> None:
        """MismatchError with each number, and the kind of model, that the tensors contradict."""
        expected = _by_place(public_config(public))
        different = [
            f"{place} is {self.values[place]!r:.80}, its tensors say {value}"
            for place, value in expected.items()
            if place.rpartition(".")[2] not in _NOT_STRUCTURE and self.values.get(place, value) != value
        ]
        named = self.values.get("predictor._target_")
        if named is not None and named not in [names["predictor"] for names in _KINDS[public.model.model]]:
            different.append(f"the predictor is {named}, its tensors are {public.model.model}'s")
        if different:
            raise MismatchError(f"{self.where} describes another model than the weights: {'; '.join(different)}")


def read_stated(path: Path) -> Stated:
    """A config.json as values by place, every name of a class on the closed list; nothing stated if it is missing."""
    if not path.exists():
        return Stated({}, path)
    config = durable.read_json(path)
    if not isinstance(config, dict):
        raise DamagedError(f"{path}: expected an object, found {type(config).__name__}")
    for place, value in _leaves(config):
        part, named, _ = place.rpartition("_target_")
        if named and value not in KNOWN_TARGETS.get(part.removesuffix("."), ()):
            raise DamagedError(f"{path}: {place}: {value!r:.80} is not a name that a LeWM or SALT model has there")
    return Stated(_by_place(config), path)


def _by_place(config: dict[str, Any]) -> dict[str, Any]:
    """Values by place, pre-release names renewed and the word for an encoder's size spelt out."""
    found = {_PRE_RELEASE.get(place, place): value for place, value in _leaves(config)}
    size = found.get("encoder.size")
    if not isinstance(size, str) or size not in _VIT_SIZES:
        return found
    width, depth, heads = _VIT_SIZES[size]
    numbers = zip(_VIT_FIELDS, (width, depth, heads, 4 * width), strict=True)
    return {f"encoder.{field}": number for field, number in numbers} | found


def _leaves(config: dict[str, Any]) -> list[tuple[str, Any]]:
    """(place, value) for every value that is not an object; lists are looked into, since they may hide objects."""
    found: list[tuple[str, Any]] = []
    waiting: list[tuple[str, Any]] = [("", config)]
    while waiting:  # not by recursion: the file may be as deep as the parser allows
        place, value = waiting.pop()
        if isinstance(value, dict | list):
            inner = value.items() if isinstance(value, dict) else enumerate(value)
            waiting += [(f"{place}.{key}" if place else str(key), child) for key, child in inner]
        else:
            found.append((place, value))
    return found


# --- writing --------------------------------------------------------------------------------------------------------


def public_config(public: PublicModel) -> dict[str, Any]:
    """config.json for a model, as the public files of its kind have it."""
    model = public.model
    if model.model not in _KINDS or model.affine.memory:
        raise UsageError(
            f"the public format knows {' and '.join(sorted(_KINDS))} without memory, and this is {model_name(model)}"
        )
    names = _KINDS[model.model][0]
    actions = {"_target_": names["action_encoder"], "input_dim": public.block_dim, "emb_dim": model.latent_dim}
    if model.smoothed_dim != ModelConfig.smoothed_dim:
        actions["smoothed_dim"] = model.smoothed_dim
    config: dict[str, Any] = {
        "_target_": names[""],
        "encoder": _vit(model.encoder, public.image_size),
        "predictor": {"_target_": names["predictor"], **_PREDICTORS[model.model](model)},
        "action_encoder": actions,
        "projector": _head(names["projector"], model.encoder.width, model.encoder.projection_dim, model.latent_dim),
        "pred_proj": None,
    }
    if "pred_proj" in names:
        hidden_dim = model.transformer.projection_dim
        config["pred_proj"] = _head(names["pred_proj"], model.latent_dim, hidden_dim, model.latent_dim)
    return config


def _vit(encoder: EncoderConfig, image_size: int) -> dict[str, Any]:
    """A published size by its name; any other as a name with the numbers that override it."""
    numbers = (encoder.width, encoder.depth, encoder.heads, encoder.mlp_dim)
    published = {(width, depth, heads, 4 * width): name for name, (width, depth, heads) in _VIT_SIZES.items()}
    config = {
        "_target_": _VIT,
        "size": published.get(numbers, "tiny"),
        "patch_size": encoder.patch_size,
        "image_size": image_size,
        "pretrained": False,
        "use_mask_token": False,
    }
    return config if numbers in published else config | dict(zip(_VIT_FIELDS, numbers, strict=True))


def _affine(model: ModelConfig) -> dict[str, Any]:
    return {
        "dim": model.latent_dim,
        "cond_dim": model.latent_dim,
        "num_modes": model.affine.modes,
        "spectral": model.affine.spectral,
        "s_init": 3.0,
    }


def _lewm(model: ModelConfig) -> dict[str, Any]:
    transformer = model.transformer
    return {
        "num_frames": transformer.window,
        "input_dim": model.latent_dim,
        "hidden_dim": model.latent_dim,
        "output_dim": model.latent_dim,
        "depth": transformer.depth,
        "heads": transformer.heads,
        "mlp_dim": transformer.mlp_dim,
        "dim_head": transformer.head_dim,
        "dropout": transformer.dropout,
        "emb_dropout": 0.0,
    }


_PREDICTORS = {"salt": _affine, "lewm": _lewm}


def _head(target: str, in_dim: int, hidden_dim: int, out_dim: int) -> dict[str, Any]:
    return {
        "_target_": target,
        "input_dim": in_dim,
        "output_dim": out_dim,
        "hidden_dim": hidden_dim,
        "norm_fn": {"_target_": _BATCH_NORM, "_partial_": True},
    }

"""The three names of each tensor: a public file's, one canonical spelling of those, and ours.

Files differ in the generation of transformers whose ViT they hold, in the letters of SALT's transition before and
after its release, and in what wrapping modules put before every name.
"""

import re
from collections.abc import Iterable
from typing import Literal

import torch
from torch import Tensor

from saltwm.ground.errors import DamagedError

VitNames = Literal["transformers-4", "transformers-5"]

PATCH_EMBED = "action_encoder.patch_embed.weight"
ACTION_MEAN, ACTION_STD = "action_encoder.action_mean", "action_encoder.action_std"
_PREFIXES = ("model.module.", "model.", "module.")

# In each pair '#' stands for a layer's number, and a name for itself and for all that it contains.
_TRANSFORMERS_4 = tuple(  # to transformers 5, which is the canonical spelling
    (f"encoder.encoder.layer.#.{old}", f"encoder.layers.#.{new}")
    for old, new in (
        ("attention.attention.query", "attention.q_proj"),
        ("attention.attention.key", "attention.k_proj"),
        ("attention.attention.value", "attention.v_proj"),
        ("attention.output.dense", "attention.o_proj"),
        ("intermediate.dense", "mlp.fc1"),
        ("output.dense", "mlp.fc2"),
        ("layernorm_before", "layernorm_before"),
        ("layernorm_after", "layernorm_after"),
    )
)
_PRE_RELEASE = (  # letters of SALT's code before its release
    ("predictor.skew_u", "predictor.W_u"),
    ("predictor.skew_v", "predictor.W_v"),
    ("predictor.G_c", "predictor.W_g"),
    ("predictor.C", "predictor.N"),
)
_TRUNK, _LAYER = "encoder.trunk", "encoder.trunk.blocks.layers.#"
_OURS = (  # from the canonical spelling
    ("encoder.embeddings.cls_token", f"{_TRUNK}.blocks.class_token"),
    ("encoder.embeddings.position_embeddings", f"{_TRUNK}.blocks.positions"),
    ("encoder.embeddings.patch_embeddings.projection", f"{_TRUNK}.patches"),
    ("encoder.layers.#.layernorm_before", f"{_LAYER}.norm_attention"),
    ("encoder.layers.#.attention.q_proj", f"{_LAYER}.q"),
    ("encoder.layers.#.attention.k_proj", f"{_LAYER}.k"),
    ("encoder.layers.#.attention.v_proj", f"{_LAYER}.v"),
    ("encoder.layers.#.attention.o_proj", f"{_LAYER}.out"),
    ("encoder.layers.#.layernorm_after", f"{_LAYER}.norm_mlp"),
    ("encoder.layers.#.mlp.fc1", f"{_LAYER}.mlp_in"),
    ("encoder.layers.#.mlp.fc2", f"{_LAYER}.mlp_out"),
    ("encoder.layernorm", f"{_TRUNK}.blocks.norm"),
    ("projector", "encoder.head"),
    ("pred_proj", "transition.pred_proj"),
    ("predictor", "transition"),
)


def canonical(tensors: dict[str, Tensor], where: str) -> dict[str, Tensor]:
    """A file's tensors under their names in the newest public spelling."""
    pairs = (*_TRANSFORMERS_4, *_PRE_RELEASE)
    renamed = {_rename(name, pairs): tensor for name, tensor in _without_prefix(tensors).items()}
    if len(renamed) != len(tensors):
        raise DamagedError(f"{where}: {len(tensors) - len(renamed)} tensors are there twice, in two spellings")
    return renamed


def from_public(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Canonical tensors as our state dict, but for the action scaling, which the public files lack."""
    ours = {_rename(name, _OURS): tensor for name, tensor in tensors.items()}
    ours[PATCH_EMBED] = ours[PATCH_EMBED].squeeze(-1)  # theirs is a convolution over one step
    return _join_qkv(ours)


def to_public(weights: dict[str, Tensor], names: VitNames) -> dict[str, Tensor]:
    """Our state dict of a model with a ViT as the public files have it; the inverse of `from_public`."""
    ours = _split_qkv({name: tensor for name, tensor in weights.items() if name not in (ACTION_MEAN, ACTION_STD)})
    ours[PATCH_EMBED] = ours[PATCH_EMBED].unsqueeze(-1)
    pairs = _reverse(_OURS)
    public = {_rename(name, pairs): tensor for name, tensor in ours.items()}
    if names == "transformers-5":
        return public
    older = _reverse(_TRANSFORMERS_4)
    return {_rename(name, older): tensor for name, tensor in public.items()}


def _rename(name: str, pairs: Iterable[tuple[str, str]]) -> str:
    """The name by the first pair that fits it; itself if none does."""
    for old, new in pairs:
        fits = re.fullmatch(re.escape(old).replace(r"\#", r"(?P<layer>[0-9]+)") + r"(?P<rest>(\..*)?)", name)
        if fits:
            return new.replace("#", fits.groupdict().get("layer", "")) + fits["rest"]
    return name


def _reverse(pairs: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    return tuple((new, old) for old, new in pairs)


def _without_prefix(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Names without what wrapping modules put before all of them."""
    for prefix in _PREFIXES:
        if tensors and all(name.startswith(prefix) for name in tensors):
            return {name.removeprefix(prefix): tensor for name, tensor in tensors.items()}
    return tensors


def _join_qkv(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Queries, keys and values of each encoder layer as the one product that ours is."""
    joined = dict(weights)
    for name in weights:
        fits = re.fullmatch(r"(encoder\.trunk\.blocks\.layers\.[0-9]+\.)q(\..*)", name)
        if fits:
            joined[f"{fits[1]}qkv{fits[2]}"] = torch.cat([joined.pop(f"{fits[1]}{part}{fits[2]}") for part in "qkv"])
    return joined


def _split_qkv(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    split: dict[str, Tensor] = {}
    for name, tensor in weights.items():
        before, found, rest = name.partition(".qkv.")
        if found and before.startswith(_TRUNK):
            split |= {f"{before}.{part}.{rest}": piece for part, piece in zip("qkv", tensor.chunk(3), strict=True)}
        else:
            split[name] = tensor
    return split

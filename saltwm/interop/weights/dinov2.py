"""A DINOv2 in the layout of transformers: config.json and model.safetensors, read as data into our own encoder.

Nothing is downloaded and nothing is unpickled. The factor on what a layer adds (layer scale) is multiplied into that
layer's weights, and the position embeddings are brought to the grid that is used, as transformers does it.
"""

import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from saltwm.disk import checkpoint, durable
from saltwm.ground.config import EncoderConfig
from saltwm.ground.errors import DamagedError, MismatchError, UsageError

CONFIG_FILE, WEIGHTS_FILE = "config.json", "model.safetensors"
_SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "mlp_ratio", "patch_size")
_EXPECTED: dict[str, tuple[Any, Any]] = {  # what our encoder is, and transformers' default
    "model_type": ("dinov2", None),
    "hidden_act": ("gelu", "gelu"),
    "layer_norm_eps": (1e-6, 1e-6),
    "num_channels": (3, 3),
    "qkv_bias": (True, True),
    "use_swiglu_ffn": (False, False),
}


def encoder_config(folder: Path, grid: int) -> EncoderConfig:
    """The encoder that a folder holds, with `grid` patches along a side; refused if it is not a DINOv2 that we know."""
    require_safetensors(folder)
    stated = durable.read_json(folder / CONFIG_FILE)
    if not isinstance(stated, dict):
        raise DamagedError(f"{folder / CONFIG_FILE}: expected an object, found {type(stated).__name__}")
    for name, (expected, default) in _EXPECTED.items():
        if (found := stated.get(name, default)) != expected:
            raise MismatchError(f"{folder / CONFIG_FILE}: {name}: expected {expected!r}, found {found!r:.80}")
    for name in _SIZES:
        found = stated.get(name)
        if not isinstance(found, int | float) or not 1 <= found == int(found) <= 2**16:
            raise DamagedError(f"{folder / CONFIG_FILE}: {name}: expected a whole number above 0, found {found!r:.80}")
    width, depth, heads, ratio, patch_size = (int(stated[name]) for name in _SIZES)
    return EncoderConfig(
        kind="dinov2",
        patch_size=patch_size,
        width=width,
        depth=depth,
        heads=heads,
        mlp_dim=width * ratio,
        grid=grid,
        weights_sha256=durable.sha256(folder / WEIGHTS_FILE),
    )


def require_safetensors(folder: Path) -> None:
    """UsageError unless both files are there; a pickle, which could run code, is not read."""
    for name in (CONFIG_FILE, WEIGHTS_FILE):
        if (folder / name).is_file():
            continue
        pickles = sorted(file.name for pattern in ("*.bin", "*.pt", "*.pth") for file in folder.glob(pattern))
        instead = f"; {pickles[0]} could run code and is not read: save it with safe_serialization" if pickles else ""
        raise UsageError(f"{folder / name}: no such file; expected a DINOv2 as transformers saves it{instead}")


def read_weights(folder: Path, config: EncoderConfig) -> dict[str, Tensor]:
    """The weights by the names of our encoder; MismatchError if they are not the ones that `config` means."""
    file = folder / WEIGHTS_FILE
    if (found := durable.sha256(file)) != config.weights_sha256:
        raise MismatchError(f"{file}: expected weights {(config.weights_sha256 or '')[:12]}, found {found[:12]}")
    tensors = _Tensors(checkpoint.read_tensors(file), file)
    width = config.width
    conv = "embeddings.patch_embeddings.projection"
    weights = {
        "trunk.patches.weight": tensors.take(f"{conv}.weight", width, 3, config.patch_size, config.patch_size),
        "trunk.patches.bias": tensors.take(f"{conv}.bias", width),
        "trunk.blocks.class_token": tensors.take("embeddings.cls_token", 1, 1, width),
        "trunk.blocks.positions": _positions(tensors, config),
        **_pair("trunk.blocks.norm", tensors, "layernorm", width),
    }
    for layer in range(config.depth):
        weights |= _layer(tensors, layer, config)
    tensors.require_all_taken(besides=("embeddings.mask_token",))
    return weights


def _layer(tensors: "_Tensors", layer: int, config: EncoderConfig) -> dict[str, Tensor]:
    ours, theirs, width = f"trunk.blocks.layers.{layer}", f"encoder.layer.{layer}", config.width
    qkv = [
        _pair("", tensors, f"{theirs}.attention.attention.{name}", width, width) for name in ("query", "key", "value")
    ]
    attention = tensors.take(f"{theirs}.layer_scale1.lambda1", width)
    mlp = tensors.take(f"{theirs}.layer_scale2.lambda1", width)
    return {
        **{f"{ours}.qkv{kind}": torch.cat([part[kind] for part in qkv]) for kind in (".weight", ".bias")},
        **_scaled(_pair(f"{ours}.out", tensors, f"{theirs}.attention.output.dense", width, width), attention),
        **_pair(f"{ours}.norm_attention", tensors, f"{theirs}.norm1", width),
        **_pair(f"{ours}.norm_mlp", tensors, f"{theirs}.norm2", width),
        **_pair(f"{ours}.mlp_in", tensors, f"{theirs}.mlp.fc1", config.mlp_dim, width),
        **_scaled(_pair(f"{ours}.mlp_out", tensors, f"{theirs}.mlp.fc2", width, config.mlp_dim), mlp),
    }


def _pair(ours: str, tensors: "_Tensors", theirs: str, *shape: int) -> dict[str, Tensor]:
    """A layer's weight of this shape and its bias."""
    weight, bias = tensors.take(f"{theirs}.weight", *shape), tensors.take(f"{theirs}.bias", shape[0])
    return {f"{ours}.weight": weight, f"{ours}.bias": bias}


def _scaled(pair: dict[str, Tensor], factor: Tensor) -> dict[str, Tensor]:
    """factor * (W x + b) as one layer."""
    return {name: factor[:, None] * part if part.ndim == 2 else factor * part for name, part in pair.items()}


def _positions(tensors: "_Tensors", config: EncoderConfig) -> Tensor:
    """Position embeddings of the class token and of grid x grid patches [1, 1 + grid^2, width]."""
    name = "embeddings.position_embeddings"
    stored = tensors.take(name, 1, None, config.width)
    side = math.isqrt(max(0, stored.shape[1] - 1))
    if side < 1 or side**2 != stored.shape[1] - 1:
        raise DamagedError(f"{tensors.where}: {name}: {stored.shape[1]} are not a square of patches and a class token")
    of_class, of_patches = stored[:, :1], stored[:, 1:]
    grid = config.grid or side
    if side != grid:
        image = of_patches.unflatten(1, (side, side)).permute(0, 3, 1, 2)
        image = functional.interpolate(image, size=(grid, grid), mode="bicubic", align_corners=False)
        of_patches = image.permute(0, 2, 3, 1).flatten(1, 2)
    return torch.cat([of_class, of_patches], dim=1)


class _Tensors:
    """Tensors of a file, each taken once, with errors that say which."""

    def __init__(self, tensors: dict[str, Tensor], where: Path) -> None:
        # A model with a head on top has the encoder's tensors under its name.
        self._left = {name.removeprefix("dinov2."): tensor for name, tensor in tensors.items()}
        self.where = where

    def take(self, name: str, *shape: int | None) -> Tensor:
        """A tensor in float32; DamagedError unless it is there, of this shape, and finite."""
        if name not in self._left:
            raise DamagedError(f"{self.where}: no tensor {name}: not a DINOv2 of the sizes in {CONFIG_FILE}")
        tensor = self._left.pop(name)
        if tensor.ndim != len(shape) or any(n not in (None, m) for n, m in zip(shape, tensor.shape, strict=True)):
            raise DamagedError(f"{self.where}: {name}: expected {list(shape)}, found {list(tensor.shape)}")
        if not tensor.isfinite().all():
            raise DamagedError(f"{self.where}: {name}: expected finite numbers, found NaN or an infinity")
        return tensor.float()

    def require_all_taken(self, besides: tuple[str, ...]) -> None:
        """DamagedError for a tensor of an encoder that is not ours; a classifier on top may be there."""
        strangers = sorted(name for name in self._left if name not in besides and not name.startswith("classifier."))
        if strangers:
            raise DamagedError(f"{self.where}: not expected: {', '.join(strangers[:3])}")

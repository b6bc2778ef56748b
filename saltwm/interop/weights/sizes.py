"""A public model's configuration, derived from the sizes of its tensors."""

import dataclasses
import math
import re
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from saltwm.ground.config import AffineConfig, EncoderConfig, ModelConfig, TransformerConfig
from saltwm.ground.errors import DamagedError, MismatchError
from saltwm.interop.weights.config_json import CONFIG_FILE, PublicModel, Stated
from saltwm.interop.weights.names import PATCH_EMBED


def infer(tensors: dict[str, Tensor], stated: Stated, where: Path) -> PublicModel:
    """The model that the canonical tensors of file `where` belong to; MismatchError if another one is stated."""
    shapes = _Shapes({name: tuple(tensor.shape) for name, tensor in tensors.items()}, where)
    latent_dim, _ = shapes.of("projector.net.3.weight", 2)
    smoothed_dim, block_dim, _ = shapes.of(PATCH_EMBED, 3)
    encoder, image_size = _encoder(shapes, stated)
    model = ModelConfig(latent_dim=latent_dim, smoothed_dim=smoothed_dim, encoder=encoder)
    if "predictor.B.weight" in shapes:
        model = dataclasses.replace(model, model="salt", affine=_affine(shapes))
    elif "predictor.pos_embedding" in shapes:
        model = dataclasses.replace(model, model="lewm", transformer=_transformer(shapes, stated))
    else:
        raise DamagedError(f"{where}: neither SALT's transition nor LeWM's predictor is in it")
    public = PublicModel(model, image_size, block_dim)
    stated.confirm(public)
    return public


def _encoder(shapes: "_Shapes", stated: Stated) -> tuple[EncoderConfig, int]:
    width, _, patch_size, _ = shapes.of("encoder.embeddings.patch_embeddings.projection.weight", 4)
    positions = shapes.of("encoder.embeddings.position_embeddings", 3)[1]
    grid = math.isqrt(positions - 1)
    if grid**2 != positions - 1:
        raise DamagedError(f"{shapes.where}: {positions} position embeddings are not a square of patches and a token")
    encoder = EncoderConfig(
        patch_size=patch_size,
        width=width,
        depth=shapes.layers("encoder.layers"),
        heads=stated.heads("encoder.num_attention_heads") or _heads(width, shapes.where),
        mlp_dim=shapes.of("encoder.layers.0.mlp.fc1.weight", 2)[0],
        projection_dim=shapes.of("projector.net.0.weight", 2)[0],
    )
    return encoder, grid * patch_size


def _affine(shapes: "_Shapes") -> AffineConfig:
    modes = shapes.of("predictor.N", 3)[0] if "predictor.N" in shapes else 0
    return AffineConfig(modes=modes, spectral="predictor.A_free" not in shapes)


def _transformer(shapes: "_Shapes", stated: Stated) -> TransformerConfig:
    layers = "predictor.transformer.layers"
    inner = shapes.of(f"{layers}.0.attn.to_out.0.weight", 2)[1]
    heads = stated.heads("predictor.heads") or _heads(inner, shapes.where)
    if inner % heads:
        raise MismatchError(f"{stated.where}: predictor.heads: {heads} heads cannot share {inner} features")
    return TransformerConfig(
        window=shapes.of("predictor.pos_embedding", 3)[1],
        depth=shapes.layers(layers),
        heads=heads,
        head_dim=inner // heads,
        mlp_dim=shapes.of(f"{layers}.0.mlp.net.1.weight", 2)[0],
        dropout=stated.dropout(),
        projection_dim=shapes.of("pred_proj.net.0.weight", 2)[0],
    )


HEAD_DIM = 64
"""Features of an attention head in every published size, for files whose config.json is missing or silent."""


def _heads(features: int, where: Path) -> int:
    if features % HEAD_DIM:
        raise MismatchError(
            f"{where}: {features} features are not heads of {HEAD_DIM}, and tensors cannot tell how many they are; "
            f"say it in {CONFIG_FILE} (encoder.num_attention_heads, predictor.heads)"
        )
    return features // HEAD_DIM


@dataclass(frozen=True)
class _Shapes:
    """Shapes by canonical name, with errors that say which file."""

    known: dict[str, tuple[int, ...]]
    where: Path

    def __contains__(self, name: str) -> bool:
        return name in self.known

    def of(self, name: str, dimensions: int) -> tuple[int, ...]:
        """The tensor's sizes."""
        if name not in self.known:
            raise DamagedError(f"{self.where}: no tensor {name} among {len(self.known)}: not a LeWM or SALT model")
        if len(self.known[name]) != dimensions:
            raise DamagedError(f"{self.where}: {name}: expected {dimensions} axes, found {list(self.known[name])}")
        return self.known[name]

    def layers(self, prefix: str) -> int:
        """How many layers have a tensor; counted, so that no number in a name can ask for more than there are."""
        fits = (re.match(re.escape(prefix) + r"\.([0-9]+)\.", name) for name in self.known)
        return len({found[1] for found in fits if found})

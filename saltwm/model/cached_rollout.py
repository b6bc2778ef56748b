"""LeWM's rollout for planning: what came before is remembered, and only the newest position is carried to the end.

While the window still fills, the keys and values of earlier positions stay as they are (attention is causal), so each
step computes one position. Once it slides, every latent changes its position embedding and the window is computed
again. In the last block earlier positions need only keys and values; only the newest is computed in full. Modulations
depend on a condition alone and are computed once. History that all candidates share is computed once for all of them.
"""

from collections import deque
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional

from saltwm.model.transformer import ConditionalBlock, TransformerPredictor

Modulation = tuple[Tensor, ...]
"""Shift, scale and gate of attention, then of the feed-forward, each [1 or S, D]."""


@dataclass
class _Remembered:
    """Keys and values of one block for the positions seen so far, each [1 or S, heads, head_dim]."""

    keys: list[Tensor] = field(default_factory=list)
    values: list[Tensor] = field(default_factory=list)

    def add(self, key: Tensor, value: Tensor) -> None:
        """Remember one position more."""
        self.keys.append(key)
        self.values.append(value)


@dataclass(frozen=True)
class _Position:
    """A latent [1 or S, D] and what its condition does in each block."""

    latent: Tensor
    modulations: list[Modulation]


def last_latent(predictor: TransformerPredictor, history: Tensor, past: Tensor, future: Tensor) -> Tensor:
    """z_H [S, D] of one task: history [W, D], past conditions [W-1, D], each candidate's conditions [S, H, D].

    The same numbers as `predictor.rollout` up to rounding.
    """
    window: deque[_Position] = deque(maxlen=predictor.window)
    for z, c in zip(history[:-1, None], past[:, None], strict=True):
        window.append(_Position(z, _modulations(predictor, c)))
    z, memory = history[-1:], _memory(predictor)
    for c in future.unbind(dim=1):
        slides = len(window) == predictor.window
        window.append(_Position(z, _modulations(predictor, c)))
        if slides:
            memory = _memory(predictor)
        for place in range(len(memory[0].keys), len(window) - 1):
            _remember(predictor, memory, window[place], place)
        z = _finish(predictor, memory, window[-1], len(window) - 1)
    return z


def next_latent(predictor: TransformerPredictor, history: Tensor, conditions: Tensor) -> Tensor:
    """The prediction after the last latents of histories [S, W, D] with their conditions [S, W, D] -> [S, D].

    The same numbers as the last of `predictor.predict` in evaluation mode up to rounding, and as differentiable.
    """
    positions = [
        _Position(z, _modulations(predictor, c)) for z, c in zip(history.unbind(1), conditions.unbind(1), strict=True)
    ]
    memory = _memory(predictor)
    for place, position in enumerate(positions[:-1]):
        _remember(predictor, memory, position, place)
    return _finish(predictor, memory, positions[-1], len(positions) - 1)


def _memory(predictor: TransformerPredictor) -> list[_Remembered]:
    return [_Remembered() for _ in predictor.transformer.layers]


def _modulations(predictor: TransformerPredictor, c: Tensor) -> list[Modulation]:
    """What a condition [1 or S, D] does in each block."""
    return [layer.adaLN_modulation(c).chunk(6, dim=-1) for layer in _blocks(predictor)]


def _blocks(predictor: TransformerPredictor) -> list[ConditionalBlock]:
    return list(predictor.transformer.layers)  # type: ignore[arg-type]


def _remember(predictor: TransformerPredictor, memory: list[_Remembered], position: _Position, place: int) -> None:
    """Add an earlier position's keys and values to the memory; nobody asks for what the last block makes of it."""
    blocks = _blocks(predictor)
    x = position.latent + predictor.pos_embedding[0, place]
    for block, remembered, modulation in zip(blocks[:-1], memory, position.modulations, strict=False):
        x = _through(block, remembered, x, modulation)
    attn = blocks[-1].attn
    keys_and_values = attn.to_qkv.weight[attn.to_qkv.out_features // 3 :]
    projected = functional.linear(_attention_input(blocks[-1], x, position.modulations[-1]), keys_and_values)
    memory[-1].add(*projected.unflatten(-1, (2, attn.heads, -1)).unbind(dim=1))


def _finish(predictor: TransformerPredictor, memory: list[_Remembered], position: _Position, place: int) -> Tensor:
    """The next latent [S, D] from the newest position, whose keys and values join the memory."""
    x = position.latent + predictor.pos_embedding[0, place]
    for block, remembered, modulation in zip(_blocks(predictor), memory, position.modulations, strict=True):
        x = _through(block, remembered, x, modulation)
    return predictor.pred_proj(predictor.transformer.norm(x))


def _through(block: ConditionalBlock, remembered: _Remembered, x: Tensor, modulation: Modulation) -> Tensor:
    """One position through one block: x [1 or S, D] -> [1 or S, D]."""
    _, _, attn_gate, mlp_shift, mlp_scale, mlp_gate = modulation
    projected = block.attn.to_qkv(_attention_input(block, x, modulation))
    query, key, value = projected.unflatten(-1, (3, block.attn.heads, -1)).unbind(dim=1)
    remembered.add(key, value)
    x = x + attn_gate * block.attn.to_out(_attend(query, remembered))
    return x + mlp_gate * block.mlp(block.norm2(x) * (1 + mlp_scale) + mlp_shift)


def _attention_input(block: ConditionalBlock, x: Tensor, modulation: Modulation) -> Tensor:
    shift, scale = modulation[:2]
    return block.attn.norm(block.norm1(x) * (1 + scale) + shift)


def _attend(query: Tensor, remembered: _Remembered) -> Tensor:
    """Softmax attention of one position over all remembered ones: query [S, heads, head_dim] -> [S, heads * head_dim].

    At most three keys: products and sums by hand are faster than a kernel made for many.
    """
    scores = torch.stack([(query * key).sum(dim=-1) for key in remembered.keys], dim=-1)
    weights = torch.softmax(scores * query.shape[-1] ** -0.5, dim=-1).unbind(dim=-1)
    mixed = sum(
        (w[..., None] * value for w, value in zip(weights, remembered.values, strict=True)), query.new_zeros(())
    )
    return mixed.flatten(1)

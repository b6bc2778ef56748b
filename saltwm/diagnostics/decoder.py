"""Latents back to pictures: decoders fitted afterwards to a frozen model, for looking only (App. C.5)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from saltwm.ground.checks import check
from saltwm.ground.errors import NonFiniteError, UsageError
from saltwm.ground.progress import progress
from saltwm.ground.rng import derive, stream
from saltwm.model.encoder import Encoder

BATCH_SIZE = 64
LATENTS_PER_PASS = 256


class Convolutions(nn.Module):
    """A linear layer to a small grid, and transposed convolutions that each double it: [N, D] -> [N, 3, H, W]."""

    def __init__(self, latent_dim: int, image_size: int, *, channels: int) -> None:
        super().__init__()
        doublings = 0
        while image_size >> doublings > 4 and (image_size >> doublings) % 2 == 0:
            doublings += 1
        if not doublings:
            raise UsageError(f"decoder: frames must have an even side of more than 4 px, found {image_size}")
        self.grid = image_size >> doublings
        self.flat = nn.Linear(latent_dim, channels * self.grid**2)
        widths = [max(16, channels >> level) for level in range(doublings)]
        layers: list[nn.Module] = []
        for before, after in zip((channels, *widths[1:]), (*widths[1:], 3), strict=True):
            layers += [nn.GELU(), nn.ConvTranspose2d(before, after, 4, stride=2, padding=1)]
        self.layers = nn.Sequential(*layers)

    def forward(self, latents: Tensor) -> Tensor:
        """Latents [N, D] -> normalised pixels [N, 3, H, W]."""
        return self.layers(self.flat(latents).unflatten(1, (-1, self.grid, self.grid)))


class CrossAttention(nn.Module):
    """The paper's: a learnt query for each patch looks at the latent: [N, D] -> [N, 3, H, W]."""

    def __init__(
        self, latent_dim: int, image_size: int, *, patch_size: int, width: int, depth: int, heads: int
    ) -> None:
        super().__init__()
        if image_size % patch_size:
            raise UsageError(
                f"decoder: {image_size} px frames cannot be drawn in patches of {patch_size} px; use the decoder small"
            )
        self.patch_size, self.grid = patch_size, image_size // patch_size
        self.queries = nn.Parameter(0.02 * torch.randn(1, self.grid**2, width))
        self.memory = nn.Linear(latent_dim, width)
        self.blocks = nn.ModuleList(CrossAttentionBlock(width, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, 3 * patch_size**2)

    def forward(self, latents: Tensor) -> Tensor:
        """Latents [N, D] -> normalised pixels [N, 3, H, W]."""
        x, memory = self.queries.expand(len(latents), -1, -1), self.memory(latents)[:, None]
        for block in self.blocks:
            x = block(x, memory)
        patches = self.out(self.norm(x)).transpose(1, 2).unflatten(2, (self.grid, self.grid))
        return F.pixel_shuffle(patches, self.patch_size)


class CrossAttentionBlock(nn.Module):
    """Pre-norm attention of queries [N, L, width] to a memory [N, 1, width], then a feed-forward layer."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm_attention = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.norm_mlp = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        """Queries [N, L, width] -> [N, L, width]."""
        x = x + self.attention(self.norm_attention(x), memory, memory, need_weights=False)[0]
        return x + self.mlp(self.norm_mlp(x))


@dataclass(frozen=True)
class DecoderKind:
    """A decoder's network, made from (latent_dim, image_size), and how it is fitted."""

    network: Callable[[int, int], nn.Module]
    steps: int
    learning_rate: float


DECODERS = {
    # App. C.5, at 224 px 196 queries; the paper gives neither batch size nor learning rate.
    "paper": DecoderKind(partial(CrossAttention, patch_size=16, width=512, depth=4, heads=8), 30_000, 3e-4),
    "small": DecoderKind(partial(Convolutions, channels=128), 1000, 2e-3),
}


class Decoder(nn.Module):
    """D: the mean picture of the fitted frames and what a latent changes in it."""

    def __init__(self, network: nn.Module, encoder: Encoder, latents: Tensor, frames: NDArray[np.uint8]) -> None:
        super().__init__()
        size = encoder.image_size
        count = check("frames", frames, "N H W 3", H=size, W=size, dtype="uint8")["N"]
        check("latents", latents, "N D", N=count, dtype="float")
        self.network = network
        # One scale for all dimensions: those that hardly vary stay quiet. A collapsed encoder has none to divide by.
        spread = (latents - latents.mean(dim=0)).std(correction=0)
        self.register_buffer("latent_mean", latents.mean(dim=0))
        self.register_buffer("latent_spread", torch.where(spread > 0, spread, 1.0))
        scale, shift = encoder.get_buffer("pixel_scale"), encoder.get_buffer("pixel_shift")
        self.register_buffer("scale", scale.clone())
        self.register_buffer("shift", shift.clone())
        mean = torch.from_numpy(frames.mean(axis=0)).permute(2, 0, 1).to(scale)
        self.register_buffer("mean_picture", mean * scale + shift)

    def forward(self, latents: Tensor) -> Tensor:
        """Latents [N, D] -> pixels [N, 3, H, W] as the encoder normalises them."""
        centred = latents - self.get_buffer("latent_mean")
        return self.get_buffer("mean_picture") + self.network(centred / self.get_buffer("latent_spread"))

    @torch.inference_mode()
    def draw(self, latents: Tensor) -> NDArray[np.uint8]:
        """Latents [..., D] -> pictures [..., H, W, 3]."""
        scale, shift = self.get_buffer("scale"), self.get_buffer("shift")
        parts = []
        for part in latents.flatten(0, -2).split(LATENTS_PER_PASS):
            pixels = (self(part.to(scale)) - shift) / scale
            parts.append(pixels.round().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1).cpu())
        return torch.cat(parts).unflatten(0, latents.shape[:-1]).numpy()


def fit_decoder(
    kind: DecoderKind, encoder: Encoder, latents: Tensor, frames: NDArray[np.uint8], *, steps: int, seed: int
) -> Decoder:
    """Pixel MSE on encoded true frames: latents [N, D], frames [N, H, W, 3]; on the encoder's device."""
    with progress("fit decoder", steps) as advance:
        for fitted, loss in fitting(kind, encoder, latents, frames, steps=steps, seed=seed):
            decoder = fitted
            advance(note=f"MSE {loss:.4f}")
    return decoder.eval()


def fitting(
    kind: DecoderKind, encoder: Encoder, latents: Tensor, frames: NDArray[np.uint8], *, steps: int, seed: int
) -> Iterator[tuple[Decoder, float]]:
    """The same step by step: the decoder after each, and the loss before it, for whoever fits in spare moments."""
    count, dim = check("latents", latents, "N D", dtype="float").values()
    if not torch.isfinite(latents).all():
        raise NonFiniteError("decoder: the model's latents are not finite, so there is nothing to decode")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(seed, "decoder weights"))
        network = kind.network(dim, encoder.image_size)
    device = encoder.get_buffer("pixel_scale").device
    decoder = Decoder(network, encoder, latents, frames).to(device)
    optimizer = torch.optim.AdamW(decoder.parameters(), kind.learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for step in range(steps):
        chosen = stream(seed, "decoder batch", step).integers(0, count, BATCH_SIZE)
        pixels = encoder.normalise(torch.from_numpy(frames[chosen]).to(device))
        loss = F.mse_loss(decoder(latents[chosen].to(device)), pixels)
        if not torch.isfinite(loss):
            raise NonFiniteError(f"decoder: the loss is {loss.item()} at step {step}; try another `seed`")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        yield decoder, loss.item()

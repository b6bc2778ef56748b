"""The world model: three verbs on raw frames and raw actions, one interface for both transitions."""

import torch
from torch import Tensor, nn

from saltwm.ground.checks import check_tensor
from saltwm.ground.config import ModelConfig, WorldSpec
from saltwm.model.actions import ActionEncoder
from saltwm.model.encoder import Encoder
from saltwm.model.traits import traits_of


class WorldModel(nn.Module):
    """Encoder phi, action encoder psi and transition F (Sec. 3.1); frames and actions go to where the weights are."""

    checkpoint_sha256: str | None = None  # of the checkpoint that it was read from
    encoder_sum_when_read: float | None = None  # a model may have been trained since

    def __init__(self, config: ModelConfig, world: WorldSpec) -> None:
        super().__init__()
        traits = traits_of(config.model)
        self.config = config
        self.world = world
        self.encoder = Encoder(config.encoder, world.image_size, config.latent_dim)
        self.action_encoder = ActionEncoder(
            world.action_dim, config.frameskip, config.smoothed_dim, traits.condition_dim(config)
        )
        self.transition = traits.build(config)

    @property
    def window(self) -> int:
        """Latents that the transition looks back at: 1 for SALT, 2 if it has a memory, 3 for LeWM."""
        return self.transition.window

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.action_encoder.action_mean.device

    def encode(self, frames: Tensor) -> Tensor:
        """Raw frames uint8 [B, T, H, W, 3] -> latents [B, T, D]."""
        size = self.world.image_size
        sizes = check_tensor("frames", frames, "B T H W 3", H=size, W=size, dtype="uint8")
        latents = self.encoder(frames.flatten(0, 1).to(self.device))
        return self._full_precision(latents).unflatten(0, (sizes["B"], sizes["T"]))

    def encoder_sum(self) -> float:
        """A number that changes with each step of the encoder's training, and with no device."""
        return sum(float(tensor.double().cpu().sum()) for tensor in self.encoder.state_dict().values())

    def latents_of(self, seen: Tensor) -> Tensor:
        """Latents [B, T, D] of raw frames, or of what a frozen encoder made of them before [B, T, D]."""
        return self._full_precision(seen) if seen.is_floating_point() else self.encode(seen)

    def condition(self, action_blocks: Tensor) -> Tensor:
        """Raw action blocks [B, K, frameskip * action_dim] -> conditions [B, K, C]."""
        check_tensor("action blocks", action_blocks, "B K F", F=self.action_encoder.block_dim, dtype="float")
        return self._full_precision(self.action_encoder(action_blocks))

    def rollout(self, history: Tensor, conditions: Tensor) -> Tensor:
        """Latents after each action block: history [B, W, D], conditions [B, W-1+K, C] -> [B, K, D]."""
        return self.transition.rollout(history, conditions)

    def _full_precision(self, latents: Tensor) -> Tensor:
        """Latents are compared, averaged and fed back, so they leave autocast in the precision of the weights."""
        return latents.to(self.action_encoder.action_mean)

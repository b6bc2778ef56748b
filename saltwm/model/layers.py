"""Layers that encoder and predictor share: batch normalisation over all processes, and the projection head (App. B.2).

Torch's SyncBatchNorm works on accelerators only. The statistics of a part of the batch would be other statistics, and
a model trained on two processes another model.
"""

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from saltwm.ground.checks import check
from saltwm.model.processes import process_count, sum_over_processes


class BatchNorm(_BatchNorm):
    """torch.nn.BatchNorm for [N, C] and [N, C, H, W]; in training its statistics are those of the global batch."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalised, scaled and shifted: [N, C] or [N, C, H, W] -> the same shape."""
        check("batch normalisation", x, "N C" if x.ndim == 2 else "N C H W", C=self.num_features)
        if self.training and process_count() > 1:
            return self._normalise_globally(x)
        return super().forward(x)

    def _check_input_dim(self, x: Tensor) -> None:
        """Checked in `forward`."""

    def _normalise_globally(self, x: Tensor) -> Tensor:
        over = [axis for axis in range(x.ndim) if axis != 1]
        per_channel = [1, -1] + [1] * (x.ndim - 2)
        wide = x.to(self.running_mean.dtype)  # type: ignore[union-attr]
        count = sum_over_processes(torch.full((), wide.numel() / self.num_features, dtype=wide.dtype, device=x.device))
        mean = sum_over_processes(wide.sum(over)) / count
        centred = wide - mean.view(per_channel)
        variance = sum_over_processes(centred.square().sum(over)) / count
        self._remember(mean.detach(), variance.detach() * count / (count - 1))
        scale = (self.weight * torch.rsqrt(variance + self.eps)).view(per_channel)
        return (centred * scale + self.bias.view(per_channel)).to(x.dtype)

    @torch.no_grad()
    def _remember(self, mean: Tensor, unbiased_variance: Tensor) -> None:
        """Running statistics for evaluation, as torch keeps them."""
        assert self.num_batches_tracked is not None
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.momentum is not None
        self.num_batches_tracked += 1
        self.running_mean.lerp_(mean, self.momentum)
        self.running_var.lerp_(unbiased_variance, self.momentum)


class ProjectionHead(nn.Module):
    """Linear, batch normalisation, GELU, Linear: [N, in] -> [N, out]."""

    def __init__(self, in_dim: int, hidden_dim: int, out_dim: int) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(in_dim, hidden_dim), BatchNorm(hidden_dim), nn.GELU(), nn.Linear(hidden_dim, out_dim)
        )

    def forward(self, features: Tensor) -> Tensor:
        """Features [N, in] -> [N, out]."""
        return self.net(features)

"""The projection head that follows the encoder and LeWM's predictor (App. B.2)."""

from torch import Tensor, nn

from saltwm.model.norm import BatchNorm


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

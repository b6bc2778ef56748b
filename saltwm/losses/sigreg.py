"""SIGReg: latents that look Gaussian along every direction do not collapse (App. B.2)."""

import torch
import torch.nn.functional as F
from torch import Tensor

from saltwm.ground.checks import check
from saltwm.ground.errors import ShapeError
from saltwm.losses.sigreg_kernel import characteristic_sums
from saltwm.model.processes import process_count, sum_over_processes

LARGEST_KNOT = 3.0  # SIGReg's integral runs over [-3, 3]


def draw_projections(dim: int, count: int, generator: torch.Generator) -> Tensor:
    """Random unit directions [dim, count]; drawn on the CPU, so that every device and process has the same."""
    return F.normalize(torch.randn(dim, count, generator=generator), dim=0)


def sigreg(latents: Tensor, projections: Tensor, knots: int = 17) -> Tensor:
    """Distance of the latents' distribution from N(0, I): latents [B, T, D], unit projections [D, M] -> scalar.

    Epps and Pulley's statistic of each frame's projections over the batch of all processes:
    N * integral over [-3, 3] of |mean exp(i t x) - exp(-t^2 / 2)|^2 exp(-t^2 / 2) dt, averaged over frames and
    projections.
    """
    sizes = check("latents", latents, "B T D", dtype="float")
    check("projections", projections, "D M", D=sizes["D"], dtype="float")
    if knots < 2:
        raise ShapeError(f"SIGReg: expected at least 2 knots, found {knots}")
    with torch.autocast(latents.device.type, enabled=False):
        x = (latents.to(projections.dtype) @ projections).flatten(1)  # [B, T M]
        t = torch.linspace(0, LARGEST_KNOT, knots, dtype=x.dtype, device=x.device)
        gaussian = torch.exp(-t.square() / 2)
        weights = torch.full_like(t, 2 * LARGEST_KNOT / (knots - 1))  # trapezoids, both halves of the integral
        weights[:: knots - 1] /= 2  # the ends
        sums = sum_over_processes(characteristic_sums(x, LARGEST_KNOT / (knots - 1), knots))  # [2, knots, T M]
        samples = _global_batch(x)
        real, imaginary = sums / samples
        distance = (real - gaussian[:, None]).square() + imaginary.square()
        return samples * ((weights * gaussian) @ distance).mean()


def _global_batch(x: Tensor) -> float | Tensor:
    """Samples over all processes."""
    return sum_over_processes(x.new_full((), len(x))) if process_count() > 1 else float(len(x))

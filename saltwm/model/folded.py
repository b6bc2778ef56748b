"""A state-affine model rearranged for planning: the same numbers up to rounding, in fewer products."""

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional

from saltwm.model.actions import ActionEncoder


@dataclass(frozen=True)
class FoldedAffine:
    """Action encoder and state-affine transition as one.

    Between the action encoder's only non-linearity and the transition everything is linear in the hidden features h:
    (W_g c)_r and B c + b are one product with h. The modes are stacked so that A(c) x is one product of
    [g_0 x, g_1 x, ..., g_R x] (g_0 = 1) with [A0; N_1; ...; N_R]: no matrix per candidate, and no pass over R+1 results
    per candidate either. The state x [X] is the latent, or with memory [z_t, z_t - z_{t-1}, c_{t-1}].
    """

    hidden_weight: Tensor
    """[A, hidden]"""
    hidden_bias: Tensor
    """[hidden]"""
    effect_weight: Tensor
    """[hidden, R+1 + D (+ C)]: the gates g (the first is constant), the update B c + b, and with memory c itself."""
    effect_bias: Tensor
    """[R+1 + D (+ C)]"""
    modes: Tensor
    """[(R+1) X, D]: A0^T, N_1^T, ..., N_R^T one below the other."""
    modes_beside: Tensor
    """[X, (R+1) D]: the same, side by side; a transposed view."""
    memory: bool = False
    _first: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict, repr=False, compare=False)

    @staticmethod
    def of(encoder: ActionEncoder, modes: Tensor, gates: Tensor, update: nn.Linear, memory: bool) -> "FoldedAffine":
        """Fold once per plan, a few products of the size of one step: modes [R+1, D, X], gates W_g [R, C], update B."""
        first, hidden, last = encoder.linear_layers
        bias = update.bias
        constant = torch.zeros(1, update.in_features, dtype=bias.dtype, device=bias.device)
        itself = [torch.eye(update.in_features, dtype=bias.dtype, device=bias.device)] if memory else []
        effect = torch.cat([constant, gates, update.weight, *itself])
        silent = [torch.zeros_like(last.bias)] if memory else []
        offset = torch.cat([torch.ones_like(bias[:1]), torch.zeros_like(gates[:, 0]), bias, *silent])
        return FoldedAffine(
            hidden_weight=(hidden.weight @ first.weight).T.contiguous(),
            hidden_bias=hidden.weight @ first.bias + hidden.bias,
            effect_weight=(effect @ last.weight).T.contiguous(),
            effect_bias=effect @ last.bias + offset,
            modes=modes.mT.flatten(0, 1).contiguous(),
            modes_beside=modes.flatten(0, 1).mT,
            memory=memory,
        )

    @property
    def dim(self) -> int:
        """D, the size of a latent."""
        return self.modes.shape[1]

    @property
    def state_dim(self) -> int:
        """X, the size of a state."""
        return self.modes_beside.shape[0]

    def first_state(self, history: Tensor, past: Tensor) -> Tensor:
        """x [X] from one task's last latents [W, D] and the conditions between them [W-1, C]."""
        z = history[-1]
        if not self.memory:
            return z
        if len(history) == 1:
            return functional.pad(z, (0, self.state_dim - self.dim))
        return torch.cat([z, z - history[-2], past[-1]])

    def moved(self, x: Tensor) -> Tensor:
        """A0 x, N_1 x, ..., N_R x: x [P, X] -> [P, R+1, D]."""
        return (x @ self.modes_beside).unflatten(1, (-1, self.dim))

    def parts(self, effects: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Gates [..., R+1], updates [..., D] and conditions [..., C or 0] of effects."""
        gates = len(self.modes) // self.state_dim
        return (
            effects[..., :gates],
            effects[..., gates : gates + self.dim],
            effects[..., gates + self.dim :],
        )

    # --- the Jacobian of the last latent -----------------------------------------------------------------------------

    def last_latent_and_jacobian(self, x: Tensor, plans: Tensor) -> tuple[Tensor, Tensor]:
        """z_H [P, D] and d z_H / d a as rows [P, H * A, D] from one state x [X] under normalised plans [P, H, A].

        The columns d x_k / d a are carried forward through A(c_k) one step at a time; no product Phi is ever formed.
        """
        count, horizon, block = plans.shape
        dim = self.dim
        effects, slopes = self._effects_and_slopes(plans.flatten(0, 1))
        gates, updates, conditions = self.parts(effects.view(count, horizon, -1))
        gate_slopes, update_slopes, condition_slopes = self.parts(slopes.view(count, horizon, block, -1))
        modes = self.modes.view(-1, self.state_dim * dim)
        rows, carried = plans.new_zeros(2, count, horizon * block, self.state_dim).unbind()
        states = x.expand(count, -1)
        for k in range(horizon):
            moved = self._moved_first(x, count) if k == 0 else self.moved(states)
            done, here = slice(0, k * block), slice(k * block, (k + 1) * block)
            if k > 0:
                # A(c_k)^T [P, X, D]: a handful of plans has up to H * A columns each to carry: building it is cheap.
                matrices = (gates[:, k] @ modes).view(count, self.state_dim, dim)
                torch.bmm(rows[:, done], matrices, out=carried[:, done, :dim])
            # d z_{k+1} / d a_k: through each gate, (N_r x_k) W_g[r], and through the update B c.
            torch.baddbmm(update_slopes[:, k], gate_slopes[:, k], moved, out=carried[:, here, :dim])
            latents = torch.baddbmm(updates[:, k, None], gates[:, k, None], moved).squeeze(1)
            if self.memory:
                torch.sub(carried[..., :dim], rows[..., :dim], out=carried[..., dim : 2 * dim])
                carried[:, done, 2 * dim :] = 0
                carried[:, here, 2 * dim :] = condition_slopes[:, k]
                states = torch.cat([latents, latents - states[:, :dim], conditions[:, k]], dim=1)
            else:
                states = latents
            rows, carried = carried, rows
        return latents, rows[..., :dim]

    def _moved_first(self, x: Tensor, count: int) -> Tensor:
        """`moved` of one state for `count` plans, kept while the state is the same: every iteration starts from it."""
        known = self._first.get(count)
        if known is None or known[0] is not x:
            known = self._first[count] = x, self.moved(x.expand(count, -1))
        return known[1]

    def _effects_and_slopes(self, blocks: Tensor) -> tuple[Tensor, Tensor]:
        """Effects [M, E] of action blocks [M, A], and their derivatives [M, A, E]."""
        before = torch.addmm(self.hidden_bias, blocks, self.hidden_weight)
        sigmoid = torch.sigmoid(before)
        hidden = before * sigmoid
        slope = sigmoid + hidden * (1 - sigmoid)  # derivative of SiLU
        effects = torch.addmm(self.effect_bias, hidden, self.effect_weight)
        return effects, (slope[:, None] * self.hidden_weight) @ self.effect_weight


class FoldedRollout:
    """The last latent of one task's plans; buffers are kept from one call to the next."""

    def __init__(self, folded: FoldedAffine) -> None:
        self._folded = folded
        self._buffers: dict[int, StepBuffers] = {}

    @torch.no_grad()
    def __call__(self, history: Tensor, past: Tensor, plans: Tensor) -> Tensor:
        """z_H [S, D], shapes as in FastRollout; it lies in a buffer that the next call fills again."""
        folded, count = self._folded, len(plans)
        if count not in self._buffers:
            self._buffers[count] = StepBuffers.of(folded, count)
        buffers = self._buffers[count]
        hidden, weighted, states, latents = buffers.hidden, buffers.weighted, buffers.states, buffers.latents
        gates, updates, conditions = folded.parts(buffers.effects)
        x, dim = folded.first_state(history, past), folded.dim
        for step, blocks in enumerate(plans.unbind(dim=1)):
            functional.silu(torch.addmm(folded.hidden_bias, blocks, folded.hidden_weight, out=hidden), inplace=True)
            torch.addmm(folded.effect_bias, hidden, folded.effect_weight, out=buffers.effects)
            if step == 0:
                # The first step starts from one x for all candidates: R+1 products of it serve them all.
                torch.addmm(updates, gates, folded.moved(x[None])[0], out=latents)
            else:
                torch.mul(gates[:, :, None], states[:, None], out=weighted)
                torch.addmm(updates, weighted.flatten(1), folded.modes, out=latents)  # eq. 8
            if folded.memory:
                before = x[:dim] if step == 0 else states[:, :dim]
                torch.sub(latents, before, out=states[:, dim : 2 * dim])
                states[:, :dim] = latents
                states[:, 2 * dim :] = conditions
        return latents


@dataclass(frozen=True)
class StepBuffers:
    """Where one step's results for S candidates go. Fresh memory would cost as much time as the arithmetic on it."""

    hidden: Tensor
    """[S, hidden]"""
    effects: Tensor
    """[S, R+1 + D (+ C)]"""
    weighted: Tensor
    """[S, R+1, X]: each candidate's state times each of its gates."""
    states: Tensor
    """[S, X]"""
    latents: Tensor
    """[S, D]; the states themselves without memory."""

    @staticmethod
    def of(folded: FoldedAffine, candidates: int) -> "StepBuffers":
        """Buffers for plans of `candidates` at a time."""
        modes = len(folded.modes) // folded.state_dim
        shapes = (
            (len(folded.hidden_bias),),
            (len(folded.effect_bias),),
            (modes, folded.state_dim),
            (folded.state_dim,),
        )
        hidden, effects, weighted, states = (folded.modes.new_empty(candidates, *shape) for shape in shapes)
        latents = folded.modes.new_empty(candidates, folded.dim) if folded.memory else states
        return StepBuffers(hidden, effects, weighted, states, latents)

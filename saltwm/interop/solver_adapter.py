"""A world model as stable-worldmodel's solvers call it, in both generations of that interface.

Today's evaluator calls `encode` and `rollout` and scores with an objective of its own; the release on PyPI calls
`get_cost`, which is `encode` of the goal, `rollout` and `criterion`. Everything travels in one dictionary, `info`; what
is encoded once per solve is kept in it, because the same dictionary comes back at every iteration. What is kept has no
history for autograd: a solver that descends gradients goes backward once per iteration, to the candidates alone.
"""

from typing import Any

import torch
from torch import Tensor, nn

from saltwm.ground.checks import check
from saltwm.ground.errors import MismatchError
from saltwm.model.world_model import WorldModel

Info = dict[str, Any]


class SolverAdapter(nn.Module):
    """`SolverAdapter(model)` goes where those solvers expect a model or a cost.

    Frames are float [.., 3, h, w] normalised with ImageNet's mean and deviation, or raw uint8; h = w = the model's
    image size. Action blocks are normalised: fit the solver's scaler on the data that the model was trained on, whose
    mean and deviation are `model.action_encoder.action_mean` and `.action_std`.
    """

    def __init__(self, model: WorldModel) -> None:
        super().__init__()
        self.model = model

    def encode(self, info: Info) -> Info:
        """Latents `emb` [B, T, D] of `pixels` [B, T, 3, h, w], and `act_emb` of `action` blocks [B, T, A] if given."""
        info["emb"] = self._latents(info["pixels"])
        if "action" in info:
            check("action", info["action"], "B T A", B=len(info["emb"]), A=self.model.action_encoder.block_dim)
            info["act_emb"] = self.model.action_encoder.encode_normalised(info["action"])
        return info

    def rollout(self, info: Info, action_candidates: Tensor) -> Info:
        """`predicted_emb`: the context's latents and the predictions after them, for each candidate.

        `pixels` [B, S, C, 3, h, w] are C context frames, the same for all S. With `action_history` [B, S, C-1, A]
        the candidates [B, S, H, A] are all to come: [B, S, C + H, D]. Without it (the PyPI release) their first C-1
        blocks lie between the context frames: [B, S, H + 1, D]. For one context frame both are the same.
        """
        sizes = check("candidates", action_candidates, "B S H A", A=self.model.action_encoder.block_dim, dtype="float")
        context = self._context(info, sizes["B"])
        frames = context.shape[1]
        blocks = action_candidates
        if frames > 1 and "action_history" in info:
            history = info["action_history"]
            check("action history", history, "B S C A", B=sizes["B"], S=sizes["S"], C=frames - 1, A=sizes["A"])
            blocks = torch.cat([history.to(blocks), blocks], dim=2)
        context = context[:, None].expand(-1, sizes["S"], -1, -1)
        predicted = self._predict(context.flatten(0, 1), blocks.flatten(0, 1))
        info["predicted_emb"] = torch.cat([context, predicted.unflatten(0, (sizes["B"], sizes["S"]))], dim=2)
        return info

    def criterion(self, info: Info, action_candidates: Tensor | None = None) -> Tensor:
        """Costs [B, S]: summed squared distance of the last prediction to the last latent of `goal_emb` [B, T, D].

        The candidates are part of the call but not of this cost.
        """
        predicted, goal = info["predicted_emb"], info["goal_emb"]
        sizes = check("predicted_emb", predicted, "B S T D")
        if goal.ndim == 4:  # expanded over candidates on the way
            goal = goal[:, 0]
        check("goal_emb", goal, "B T D", B=sizes["B"], D=sizes["D"])
        return (predicted[:, :, -1] - goal[:, None, -1]).square().sum(dim=-1)

    def get_cost(self, info: Info, action_candidates: Tensor) -> Tensor:
        """Costs [B, S] of candidates [B, S, H, A] towards the frames `goal` [B, S, T, 3, h, w]."""
        self._encode_goal(info)
        return self.criterion(self.rollout(info, action_candidates), action_candidates)

    def _encode_goal(self, info: Info) -> None:
        """`goal_emb` of `goal`, encoded once and again when another goal is there; a caller's own is left alone."""
        if "goal" not in info and "goal_emb" not in info:
            raise MismatchError(f"solver adapter: no goal or goal_emb in info, found {', '.join(sorted(info))}")
        is_old = "goal" in info and info.get("goal_of", info["goal"]) is not info["goal"]
        if "goal_emb" not in info or is_old:
            info["goal_emb"], info["goal_of"] = self._latents(info["goal"][:, 0]), info["goal"]

    def _context(self, info: Info, batch: int) -> Tensor:
        """Latents [B, C, D] of the context frames, encoded once for all candidates and iterations of a solve."""
        pixels = info["pixels"]
        if info.get("context_of") is not pixels:
            info["context_emb"], info["context_of"] = self._latents(pixels[:, 0]), pixels
        check("context", info["context_emb"], "B C D", B=batch)
        return info["context_emb"]

    def _predict(self, context: Tensor, blocks: Tensor) -> Tensor:
        """Latents [N, K, D] after the context [N, C, D] under blocks [N, C-1+K, A]; older frames than the window go."""
        unseen = max(0, context.shape[1] - self.model.window)
        conditions = self.model.action_encoder.encode_normalised(blocks[:, unseen:].to(context))
        return self.model.rollout(context[:, unseen:], conditions)

    @torch.no_grad()  # not inference_mode: what comes of these latents may need a gradient
    def _latents(self, pixels: Tensor) -> Tensor:
        """Frames [B, T, 3, h, w], raw uint8 or normalised -> [B, T, D]."""
        size = self.model.world.image_size
        sizes = check("pixels", pixels, "B T 3 h w", h=size, w=size)
        frames = pixels.flatten(0, 1).to(self.model.device)
        encoder = self.model.encoder
        if frames.dtype == torch.uint8:
            latents = encoder(frames.permute(0, 2, 3, 1))
        else:
            latents = encoder.head(encoder.trunk(frames))
        return latents.unflatten(0, (sizes["B"], sizes["T"]))

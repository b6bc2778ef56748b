"""Imagining: action blocks by hand, what a model expects of them, what happens, and where its error comes from."""

from typing import TYPE_CHECKING, Any

import numpy as np

from saltwm.envs.base import State
from saltwm.explore.acting import decoded, pictures_of
from saltwm.explore.catalogue import rolls_out_in_the_page
from saltwm.explore.desk import GALLERY_FRAMES, Desk, plain, png, shown_size
from saltwm.explore.messages import Answer, DecoderOf, Decompose, GalleryOf, Imagine, WeightsOf
from saltwm.ground.checks import check
from saltwm.ground.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor

    from saltwm.model.transition import Transition

COMPONENTS = 6
"""Principal components that the map can show."""
ATLAS_COLUMNS = 32


def imagine(desk: Desk, ask: Imagine) -> Answer:
    """Predicted latents of each block with their pictures, the simulator's pictures, and the errors between them."""
    import torch

    blocks = _blocks(desk, ask)
    states, pictures, frames = _happens(desk, ask, blocks)
    with torch.inference_mode():
        model = desk.model(ask.model)
        start = desk.latent(ask.model, ask.state)
        path = model.rollout(start[None, None], model.condition(blocks[None]))[0]
        seen = desk.encode(ask.model, frames)
    spread = desk.gallery(ask.model).spread if desk.data_of(ask.model) is not None else float(seen.std())
    header = {
        "states": states,
        "errors": ((path - seen).norm(dim=1) / spread).tolist(),
        "moved": ((seen - start).norm(dim=1) / spread).tolist(),
        "pictures": len(pictures),
        **pictures_of(desk, ask.model, path),
    }
    blobs = [start.numpy().astype("<f4").tobytes(), path.numpy().astype("<f4").tobytes()]
    return Answer(plain(header), [*blobs, *map(png, pictures), *decoded(desk, ask.model, path)])


def _blocks(desk: Desk, ask: Imagine | Decompose) -> "Tensor":
    import torch

    try:
        blocks = torch.tensor(ask.blocks, dtype=torch.float32)
    except ValueError as error:
        raise UsageError("blocks: every block needs the same number of actions") from error
    check("blocks", blocks, "K F", F=desk.model(ask.model).action_encoder.block_dim)
    return blocks


def _happens(desk: Desk, ask: Imagine | Decompose, blocks: "Tensor") -> tuple[State, np.ndarray, np.ndarray]:
    """What the simulator makes of the blocks: states after each, pictures for people, frames for the model."""
    env = desk.env_of(ask.model)
    env.restore(desk.state(env, ask.state))
    states, pictures, frames = [], [], []
    for block in blocks.numpy():
        for action in block.reshape(-1, env.action_dim):
            env.step(action)
        states.append(env.state())
        frames.append(env.render())
        pictures.append(env.draw(shown_size(env)))
    return np.stack(states), np.stack(pictures), np.stack(frames)


def decompose(desk: Desk, ask: Decompose) -> Answer:
    """delta_H = sum_k Phi_{k->H} epsilon_k + remainder (eq. 5), term by term, in float64."""
    import torch

    from saltwm.diagnostics.jacobians import in_float64

    blocks = _blocks(desk, ask)
    _, _, frames = _happens(desk, ask, blocks)
    with torch.no_grad():
        model = desk.model(ask.model)
        start = desk.latent(ask.model, ask.state)
        latents = torch.cat([start[None], desk.encode(ask.model, frames)])[None].double()
        conditions = model.condition(blocks[None]).double()
        exact = in_float64(model.transition)
        epsilon = (exact.predict(latents[:, :-1], conditions) - latents[:, 1:])[0]
        delta = (exact.rollout(latents[:, :1], conditions) - latents[:, 1:])[0]
        products = _propagators(exact, latents, conditions)
        terms = torch.stack([product @ error for product, error in zip(products, epsilon, strict=True)])
        end = delta[-1]
        shares = terms @ end / end.square().sum()
        header = {
            "epsilon": epsilon.norm(dim=1).tolist(),
            "delta": delta.norm(dim=1).tolist(),
            "terms": terms.norm(dim=1).tolist(),
            "shares": shares.tolist(),
            "remainder": float(1 - shares.sum()),
            "rho": float((end - terms.sum(dim=0)).norm() / end.norm()),
            "phi": [float(torch.linalg.matrix_norm(product, ord=2)) for product in products],
        }
    return Answer(plain(header))


def _propagators(transition: "Transition", latents: "Tensor", conditions: "Tensor") -> "list[Tensor]":
    """Phi_{k->H} [D, D] for k = 1 .. H: what an error made at step k becomes at the end, along the encoded latents.

    Through every latent that a step sees: an error reaches LeWM's prediction by its whole window.
    """
    import torch

    from saltwm.diagnostics.propagation import step_jacobians

    horizon, dim = conditions.shape[1], latents.shape[2]
    jacobians = {t: step_jacobians(transition, latents, conditions, t)[0] for t in range(2, horizon + 1)}
    products = []
    for k in range(1, horizon + 1):
        became = {k: torch.eye(dim, dtype=latents.dtype)}
        for t in range(k + 1, horizon + 1):
            seen = range(t - len(jacobians[t]), t)  # the latents that the prediction of step t looks at
            parts = [jacobians[t][place] @ became[at] for place, at in enumerate(seen) if at in became]
            became[t] = torch.stack(parts).sum(dim=0)
        products.append(became[horizon])
    return products


def gallery(desk: Desk, ask: GalleryOf) -> Answer:
    """Stored frames as one sheet, their latents, states, and principal components of the latents."""
    import torch

    found = desk.gallery(ask.model)
    centred = found.latents - found.latents.mean(dim=0)
    _, singular, axes = torch.linalg.svd(centred, full_matrices=False)
    axes = axes[:COMPONENTS]
    rows = -(-len(found.frames) // ATLAS_COLUMNS)
    size = found.frames.shape[1]
    atlas = np.zeros((rows * size, ATLAS_COLUMNS * size, 3), np.uint8)
    for place, frame in enumerate(found.frames):
        top, left = place // ATLAS_COLUMNS * size, place % ATLAS_COLUMNS * size
        atlas[top : top + size, left : left + size] = frame
    header = {
        "dataset": found.dataset,
        "frames": len(found.frames),
        "most": GALLERY_FRAMES,
        "size": size,
        "columns": ATLAS_COLUMNS,
        "dim": found.latents.shape[1],
        "spread": found.spread,
        "episodes": found.episodes,
        "steps": found.steps,
        "state_dim": found.states.shape[1],
        "explained": (singular.square() / singular.square().sum())[:COMPONENTS].tolist(),
    }
    arrays = [found.latents.numpy(), found.latents.mean(dim=0).numpy(), axes.numpy(), found.states]
    return Answer(plain(header), [png(atlas), *(np.ascontiguousarray(a).astype("<f4").tobytes() for a in arrays)])


def weights(desk: Desk, ask: WeightsOf) -> Answer:
    """The folded transition of a state-affine model: all that the page needs to roll out eq. 8 itself."""
    import torch

    model = desk.model(ask.model)
    encoder = model.action_encoder
    if not rolls_out_in_the_page(model.config):
        raise UsageError(f"{ask.model}: only a state-affine transition without memory is rolled out in the page")
    with torch.no_grad():
        folded = model.transition.folded(encoder)
    names = ("hidden_weight", "hidden_bias", "effect_weight", "effect_bias", "modes")
    fields = {name: getattr(folded, name) for name in names}
    fields |= {"action_mean": encoder.action_mean, "action_std": encoder.action_std}
    header: dict[str, Any] = {
        "fields": [{"name": name, "shape": list(tensor.shape)} for name, tensor in fields.items()],
        "frameskip": encoder.frameskip,
        "action_dim": encoder.action_dim,
    }
    return Answer(header, [tensor.contiguous().numpy().astype("<f4").tobytes() for tensor in fields.values()])


def decoder(desk: Desk, ask: DecoderOf) -> Answer:
    """How far the decoder is; it is fitted while nobody asks for anything else."""
    from saltwm.explore.desk import DECODER_STEPS

    return Answer({"steps": desk.fit_decoder(ask.model), "of": DECODER_STEPS})

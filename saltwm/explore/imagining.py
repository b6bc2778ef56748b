"""Imagining: action blocks by hand, what a model expects of them, what happens, and where its error comes from."""

from typing import TYPE_CHECKING, Any

import numpy as np

from saltwm.explore.acting import decoded, pictures_of
from saltwm.explore.catalogue import rolls_out_in_the_page
from saltwm.explore.desk import DECODER_STEPS, Desk, Moment, plain, png
from saltwm.explore.messages import Answer, Imagine, OfModel
from saltwm.ground.checks import check
from saltwm.ground.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor

    from saltwm.model.transition import Transition

COMPONENTS = 6
"""Principal components that the map can show."""
ATLAS_COLUMNS = 32


def imagine(desk: Desk, ask: Imagine) -> Answer:
    """Predicted latents of each block with their pictures, the pictures of what happens, and the errors between them.

    What happens is known as far as the simulator, or the stored episode, goes.
    """
    import torch

    blocks, happens = _blocks(desk, ask), _happens(desk, ask)
    with torch.inference_mode():
        model, start = desk.model(ask.model), _start(desk, ask)
        path = model.rollout(start[None, None], model.condition(blocks[None]))[0]
        seen = torch.stack([moment.latent for moment in happens]) if happens else path[:0]
    spread = desk.gallery(ask.model).spread if desk.data_of(ask.model) is not None else float(start.std())
    header = {
        "states": [moment.state for moment in happens],
        "errors": ((path[: len(seen)] - seen).norm(dim=1) / spread).tolist(),
        "moved": ((seen - start).norm(dim=1) / spread).tolist(),
        "pictures": len(happens),
        **pictures_of(desk, ask.model, path),
    }
    blobs = [start.numpy().astype("<f4").tobytes(), path.numpy().astype("<f4").tobytes()]
    pictures = [moment.picture for moment in happens]
    return Answer(plain(header), [*blobs, *pictures, *decoded(desk, ask.model, path)])


def _blocks(desk: Desk, ask: Imagine) -> "Tensor":
    import torch

    try:
        blocks = torch.tensor(ask.blocks, dtype=torch.float32)
    except ValueError as error:
        raise UsageError("blocks: every block needs the same number of actions") from error
    check("blocks", blocks, "K F", F=desk.model(ask.model).action_encoder.block_dim)
    return blocks


def _start(desk: Desk, ask: Imagine) -> "Tensor":
    """phi of the first picture [D]."""
    if desk.is_simulated(ask.model):
        return desk.latent(ask.model, ask.state)
    return desk.stored(ask.model, ask.episode, ask.step).latent


def _happens(desk: Desk, ask: Imagine) -> list[Moment]:
    """What is known of the world after each block: all of it from a simulator, else what the episode holds."""
    if not desk.is_simulated(ask.model):
        return _recorded(desk, ask)
    moments: list[Moment] = []
    state = ask.state
    for block in ask.blocks:
        moments.append(desk.after(ask.model, state, block))
        state = moments[-1].state
    return moments


def _recorded(desk: Desk, ask: Imagine) -> list[Moment]:
    """The stored moments after the first blocks, as long as their actions are the recorded ones."""
    name = desk.data_of(ask.model)
    if name is None:
        raise UsageError(f"{ask.model}: there is neither a simulator nor a dataset of its world")
    dataset, skip = desk.dataset(name), desk.info(ask.model).run.model.frameskip
    actions = dataset.actions(ask.episode)
    moments: list[Moment] = []
    for place, block in enumerate(ask.blocks):
        begin, end = ask.step + place * skip, ask.step + (place + 1) * skip
        given = np.array(block, np.float32)
        is_stored = end <= len(actions) and end % dataset.frame_every == 0
        if not is_stored or not np.array_equal(actions[begin:end].astype(np.float32).reshape(-1), given):
            break
        moments.append(desk.stored(ask.model, ask.episode, end))
    return moments


def decompose(desk: Desk, ask: Imagine) -> Answer:
    """delta_H = sum_k Phi_{k->H} epsilon_k + remainder (eq. 4), term by term, in float64, as far as truth is known."""
    import torch

    from saltwm.diagnostics.jacobians import in_float64

    blocks, happens = _blocks(desk, ask), _happens(desk, ask)
    if not happens:
        return Answer({"blocks": 0})
    with torch.no_grad():
        model = desk.model(ask.model)
        latents = torch.stack([_start(desk, ask), *(moment.latent for moment in happens)])[None].double()
        conditions = model.condition(blocks[None, : len(happens)]).double()
        exact = in_float64(model.transition)
        epsilon = (exact.predict(latents[:, :-1], conditions) - latents[:, 1:])[0]
        delta = (exact.rollout(latents[:, :1], conditions) - latents[:, 1:])[0]
        products = _propagators(exact, latents, conditions)
        terms = torch.stack([product @ error for product, error in zip(products, epsilon, strict=True)])
        end = delta[-1]
        shares = terms @ end / end.square().sum()
        header = {
            "blocks": len(happens),
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


def gallery(desk: Desk, ask: OfModel) -> Answer:
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
        "size": size,
        "columns": ATLAS_COLUMNS,
        "dim": found.latents.shape[1],
        "episodes": found.episodes,
        "steps": found.steps,
        "state_dim": found.states.shape[1],
        "explained": (singular.square() / singular.square().sum())[:COMPONENTS].tolist(),
    }
    arrays = [found.latents.numpy(), found.latents.mean(dim=0).numpy(), axes.numpy(), found.states]
    return Answer(plain(header), [png(atlas), *(np.ascontiguousarray(a).astype("<f4").tobytes() for a in arrays)])


def weights(desk: Desk, ask: OfModel) -> Answer:
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


def decoder(desk: Desk, ask: OfModel) -> Answer:
    """How far the decoder is; it is fitted while nobody asks for anything else."""
    return Answer({"steps": desk.fit_decoder(ask.model), "of": DECODER_STEPS})

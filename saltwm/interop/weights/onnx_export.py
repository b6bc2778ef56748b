"""A run as three ONNX files, for planning without torch: encoder.onnx, action_encoder.onnx, transition.onnx.

    encoder:         frames uint8 [N, H, W, 3]                    -> latents [N, D]
    action_encoder:  raw action blocks [N, frameskip * A]         -> conditions [N, D]
    transition:      latents [N, T, D], conditions [N, T, D]      -> next_latent [N, D];  1 <= T <= window

Normalisation of pixels and actions is inside, as it is in the model. A0 is written as its value: ONNX knows no matrix
exponential, and a plan needs none.
"""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from saltwm.disk import checkpoint, durable
from saltwm.ground.errors import MismatchError, UsageError
from saltwm.ground.extras import require
from saltwm.ground.rng import torch_stream
from saltwm.ground.strict_json import to_plain
from saltwm.model.world_model import WorldModel

OPSET = 18
TOLERANCE = 1e-4
MODEL_FILE = "model.json"


def export_onnx(run: Path, out: Path) -> dict[str, float] | None:
    """Write a run as ONNX; largest difference from torch by file, or None where onnxruntime is not installed."""
    if out.exists():
        raise UsageError(f"{out}: exists already; choose another folder")
    require("export", "an ONNX export", "onnx")
    model = checkpoint.load(run)
    with durable.publish_directory(out) as directory:
        for name, (module, axes) in _parts(model).items():
            _write(directory / f"{name}.onnx", module, _inputs(name, model, 2, model.window), axes)
        durable.write_json(directory / MODEL_FILE, _description(model))
        return _compare(directory, model)


Axes = tuple[dict[str, dict[int, str]], str]
"""Names of each input's and the output's variable axes, and the output's name."""


def _parts(model: WorldModel) -> dict[str, tuple[nn.Module, Axes]]:
    batch, history = {0: "N"}, {0: "N", 1: "T"}
    return {
        "encoder": (model.encoder, ({"frames": batch, "latents": batch}, "latents")),
        "action_encoder": (model.action_encoder, ({"action_blocks": batch, "conditions": batch}, "conditions")),
        "transition": (
            model.transition.exportable(),
            ({"latents": history, "conditions": history, "next_latent": batch}, "next_latent"),
        ),
    }


def _inputs(name: str, model: WorldModel, batch: int, history: int) -> tuple[Tensor, ...]:
    """Random inputs of a part."""
    draw = torch_stream(0, "onnx", name, batch)
    size, latents = model.world.image_size, (batch, history, model.config.latent_dim)
    if name == "encoder":
        return (torch.randint(0, 256, (batch, size, size, 3), generator=draw, dtype=torch.uint8),)
    if name == "action_encoder":
        return (torch.randn(batch, model.action_encoder.block_dim, generator=draw),)
    conditions = (batch, history, model.transition.condition_dim)
    return torch.randn(latents, generator=draw), torch.randn(conditions, generator=draw)


def _write(path: Path, module: nn.Module, inputs: tuple[Tensor, ...], axes: Axes) -> None:
    variable, output = axes
    with warnings.catch_warnings(), torch.no_grad():
        # Our shape checks compare sizes with numbers, which a tracer must warn about; they leave nothing in the graph,
        # and `_compare` runs it at other sizes. The exporter that needs no tracer needs onnxscript.
        warnings.simplefilter("ignore", torch.jit.TracerWarning)
        torch.onnx.export(
            module.eval(),
            inputs,
            str(path),
            dynamo=False,
            opset_version=OPSET,
            input_names=[name for name in variable if name != output],
            output_names=[output],
            dynamic_axes=variable,
        )


def _description(model: WorldModel) -> dict[str, Any]:
    actions = model.action_encoder
    return {
        "world": to_plain(model.world),
        "model": to_plain(model.config),
        "window": model.window,
        "action_mean": actions.action_mean.tolist(),
        "action_std": actions.action_std.tolist(),
    }


def _compare(directory: Path, model: WorldModel) -> dict[str, float] | None:
    """Run the files at other sizes than they were traced with; MismatchError if one differs by over 1e-4."""
    try:
        import onnxruntime
    except ImportError:
        return None
    differences = {}
    for name, (module, _) in _parts(model).items():
        session = onnxruntime.InferenceSession(directory / f"{name}.onnx", providers=["CPUExecutionProvider"])
        differences[name] = max(
            _difference(session, module, _inputs(name, model, batch, history))
            for batch, history in ((3, model.window), (1, 1))
        )
        if not differences[name] <= TOLERANCE:
            raise MismatchError(f"{name}.onnx differs from torch by {differences[name]:g}; nothing was written")
    return differences


@torch.no_grad()
def _difference(session: Any, module: nn.Module, inputs: tuple[Tensor, ...]) -> float:
    named = {node.name: tensor.numpy() for node, tensor in zip(session.get_inputs(), inputs, strict=True)}
    return float(np.abs(session.run(None, named)[0] - module(*inputs).numpy()).max())

"""ONNX files: what onnxruntime computes with them is what torch computes with the run."""

import dataclasses
import json

import numpy as np
import onnxruntime
import pytest
import torch
from small_runs import SMALL, VIT, write_run

from saltwm.disk import checkpoint
from saltwm.ground.errors import MismatchError, UsageError
from saltwm.interop.weights import onnx_export
from saltwm.interop.weights.onnx_export import export_onnx

MODELS = {
    "salt": SMALL,
    "salt without modes": dataclasses.replace(SMALL, affine=dataclasses.replace(SMALL.affine, modes=0)),
    "salt with a free A0": dataclasses.replace(SMALL, affine=dataclasses.replace(SMALL.affine, spectral=False)),
    "lewm": dataclasses.replace(SMALL, model="lewm"),
    "conv": dataclasses.replace(SMALL, encoder=dataclasses.replace(VIT, kind="conv", channels=(4, 6))),
    "conv-vit": dataclasses.replace(SMALL, encoder=dataclasses.replace(VIT, kind="conv-vit", channels=(4, 6))),
}


def run_onnx(file, *inputs):
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    return session.run(None, {node.name: value.numpy() for node, value in zip(session.get_inputs(), inputs)})[0]


@torch.no_grad()
@pytest.mark.parametrize("name", MODELS)
def test_onnxruntime_encodes_conditions_and_rolls_out_as_torch_does(name, tmp_path):
    write_run(tmp_path / "run", MODELS[name])
    model = checkpoint.load(tmp_path / "run")
    differences = export_onnx(tmp_path / "run", tmp_path / "onnx")
    assert set(differences) == {"encoder", "action_encoder", "transition"}
    files = tmp_path / "onnx"
    draw = torch.Generator().manual_seed(1)
    frames = torch.randint(0, 256, (5, 16, 16, 3), generator=draw, dtype=torch.uint8)
    blocks = torch.randn(5, 4, 10, generator=draw)
    z = run_onnx(files / "encoder.onnx", frames)
    assert np.abs(z - model.encode(frames[:, None])[:, 0].numpy()).max() <= 1e-4
    c = run_onnx(files / "action_encoder.onnx", blocks.flatten(0, 1)).reshape(5, 4, -1)
    assert np.abs(c - model.condition(blocks).numpy()).max() <= 1e-4
    latents = [torch.from_numpy(z)]
    for step in range(4):  # the rollout, as a program without torch would write it
        start = max(0, step + 1 - model.window)
        history, conditions = torch.stack(latents[start:], 1), torch.from_numpy(c[:, start : step + 1])
        latents.append(torch.from_numpy(run_onnx(files / "transition.onnx", history, conditions)))
    expected = model.rollout(torch.from_numpy(z)[:, None], torch.from_numpy(c))
    assert (torch.stack(latents[1:], 1) - expected).abs().max() <= 1e-4


def test_the_description_beside_the_files_has_world_and_scaling(tmp_path):
    write_run(tmp_path / "run", SMALL)
    export_onnx(tmp_path / "run", tmp_path / "onnx")
    description = json.loads((tmp_path / "onnx" / "model.json").read_text())
    assert description["world"]["environment"] == "two-room"
    assert description["action_mean"] == pytest.approx([-0.2, 0.3])
    assert description["window"] == 1


def test_an_export_that_differs_from_torch_is_not_kept(tmp_path, monkeypatch):
    write_run(tmp_path / "run", SMALL)
    monkeypatch.setattr(onnx_export, "TOLERANCE", -1.0)
    with pytest.raises(MismatchError, match=r"encoder.onnx differs from torch"):
        export_onnx(tmp_path / "run", tmp_path / "onnx")
    assert not (tmp_path / "onnx").exists()


def test_an_onnx_export_overwrites_nothing(tmp_path):
    with pytest.raises(UsageError, match="exists already"):
        export_onnx(tmp_path / "run", tmp_path)

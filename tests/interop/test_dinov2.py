"""A DINOv2 is read as data: our encoder makes of a frame what transformers' own makes of it."""

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_dinov2 import save_tiny_dinov2
from torch.nn import functional

from saltwm.ground.errors import DamagedError, MismatchError, UsageError
from saltwm.interop.weights import dinov2
from saltwm.model.encoder import Encoder


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dinov2")
    return folder, save_tiny_dinov2(folder)


@pytest.fixture
def copy(saved, tmp_path):
    shutil.copytree(saved[0], tmp_path / "copy")
    return tmp_path / "copy"


@pytest.mark.parametrize("grid", [5, 3, 7])  # its own positions, fewer, more
def test_our_encoder_gives_the_patch_features_of_transformers(saved, grid):
    folder, theirs = saved
    config = dinov2.encoder_config(folder, grid)
    ours = Encoder(config, 16, grid**2 * 12).eval()
    ours.load_state_dict(dinov2.read_weights(folder, config))
    frames = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (3, 16, 16, 3), dtype=np.uint8))
    with torch.no_grad():
        found = ours(frames)
        resized = functional.interpolate(
            ours.normalise(frames), size=(4 * grid, 4 * grid), mode="bilinear", antialias=True
        )
        expected = theirs(resized).last_hidden_state[:, 1:].flatten(1)
    # float32 through two layers; the layer scales are multiplied in another order
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert expected.std() > 0.1


def test_a_layer_scale_that_is_forgotten_would_be_seen(saved):
    folder, _ = saved
    config = dinov2.encoder_config(folder, 5)
    weights = dinov2.read_weights(folder, config)
    plain = load_file(folder / "model.safetensors")["encoder.layer.0.attention.output.dense.weight"]
    assert (weights["trunk.blocks.layers.0.out.weight"] - plain).abs().max() > 0.1


def test_nothing_of_the_encoder_learns(saved):
    config = dinov2.encoder_config(saved[0], 5)
    assert not any(p.requires_grad for p in Encoder(config, 16, 300).parameters())


def edited(folder, **changes):
    stated = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**stated, **changes}))
    return folder


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"model_type": "dinov2_with_registers"}, MismatchError, "model_type: expected 'dinov2', found 'dinov2_with"),
        ({"use_swiglu_ffn": True}, MismatchError, "use_swiglu_ffn: expected False, found True"),
        ({"hidden_act": "relu"}, MismatchError, "hidden_act: expected 'gelu', found 'relu'"),
        ({"hidden_size": "12"}, DamagedError, "hidden_size: expected a whole number above 0, found '12'"),
        ({"patch_size": 0}, DamagedError, "patch_size: expected a whole number above 0, found 0"),
        ({"num_hidden_layers": 10**9}, DamagedError, "num_hidden_layers: expected a whole number"),
    ],
)
def test_another_kind_of_encoder_is_refused_by_its_field(copy, changes, error, words):
    with pytest.raises(error, match=words):
        dinov2.encoder_config(edited(copy, **changes), 5)


def test_a_pickle_is_named_and_not_read(copy):
    (copy / "model.safetensors").rename(copy / "pytorch_model.bin")
    with pytest.raises(UsageError, match=r"model.safetensors: no such file.*pytorch_model.bin could run code"):
        dinov2.encoder_config(copy, 5)
    with pytest.raises(UsageError, match=r"config.json: no such file; expected a DINOv2"):
        dinov2.encoder_config(copy.parent / "nowhere", 5)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.pop("layernorm.weight"), "no tensor layernorm.weight"),
        (lambda t: t.update({"layernorm.weight": torch.ones(13)}), r"layernorm.weight: expected \[12\], found \[13\]"),
        (lambda t: t.update({"layernorm.weight": torch.full((12,), torch.nan)}), "layernorm.weight: expected finite"),
        (lambda t: t.update({"embeddings.register_tokens": torch.ones(1, 4, 12)}), "not expected: embeddings.register"),
        (lambda t: t.update({"embeddings.position_embeddings": torch.ones(1, 8, 12)}), "are not a square of patches"),
    ],
)
def test_tensors_that_do_not_fit_are_named(copy, change, words):
    tensors = load_file(copy / "model.safetensors")
    change(tensors)
    save_file(tensors, copy / "model.safetensors")
    with pytest.raises(DamagedError, match=words):
        dinov2.read_weights(copy, dinov2.encoder_config(copy, 5))


def test_weights_that_changed_since_they_were_named_are_refused(saved, copy):
    config = dinov2.encoder_config(saved[0], 5)
    save_tiny_dinov2(copy, seed=1)
    with pytest.raises(MismatchError, match=r"expected weights [0-9a-f]{12}, found [0-9a-f]{12}"):
        dinov2.read_weights(copy, config)

"""Public checkpoints: every spelling imports, the numbers are theirs, and what came in goes out bit for bit."""

import json
import resource

import pytest
import torch
from public_files import (
    PUBLISHED,
    PublicModel,
    Sizes,
    config_json,
    pre_release_names,
    transformers_4_names,
    write_public,
)
from small_runs import write_run

from saltwm.disk import checkpoint
from saltwm.ground.errors import DamagedError, DiskError, MismatchError, NonFiniteError, UsageError
from saltwm.interop.weights import public
from saltwm.interop.weights.public import export_weights, import_weights
from saltwm.jobs.collect import Collect


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Two-Room at the small public models' image size."""
    return Collect(
        "two-room", tmp_path_factory.mktemp("data") / "rooms", 3, image_size=28, frame_every=5, workers=1
    ).do()


@pytest.fixture(scope="module")
def models():
    return {kind: PublicModel(kind) for kind in ("salt", "lewm")}


@pytest.fixture
def no_child(monkeypatch):
    """Read .pt files here: for tests about names and sizes, which need no second process each."""

    def read(path):
        loaded = torch.load(path, weights_only=True)
        return loaded.get("state_dict", loaded.get("model", loaded))

    monkeypatch.setattr(public, "read_pt", read)


# --- the same numbers -----------------------------------------------------------------------------------------------


@torch.no_grad()
@pytest.mark.parametrize("kind", ["salt", "lewm"])
def test_an_imported_model_gives_the_same_numbers(kind, models, data, tmp_path):
    theirs = models[kind]
    write_public(tmp_path / "public", theirs.state_dict(), config_json(kind))
    imported = import_weights(tmp_path / "public", "tworoom", data, tmp_path / "run")
    assert imported.tensors == len(theirs.state_dict())
    ours = checkpoint.load(tmp_path / "run", world=data.world)
    draw = torch.Generator().manual_seed(1)
    frames = torch.randint(0, 256, (2, 3, 28, 28, 3), generator=draw, dtype=torch.uint8)
    blocks = torch.randn(2, 7, 10, generator=draw)
    mean, std = (torch.tensor(x, dtype=torch.float32).repeat(5) for x in (data.action_mean, data.action_std))
    z, c = ours.encode(frames), ours.condition(blocks)
    assert (z - theirs.encode(frames.flatten(0, 1)).view_as(z)).abs().max() <= 1e-5
    assert (c - theirs.action_encoder((blocks - mean) / std)).abs().max() <= 1e-5
    assert (ours.transition.predict(z, c[:, :3]) - theirs.predict(z, c[:, :3])).abs().max() <= 1e-5
    history = z[:, : ours.window]
    conditions = c[:, : ours.window + 4]
    assert (ours.rollout(history, conditions) - theirs.rollout(history, conditions)).abs().max() <= 1e-5


@torch.no_grad()
def test_a_control_model_with_one_other_tensor_gives_other_numbers(models, data, tmp_path, no_child):
    state = {name: tensor.clone() for name, tensor in models["salt"].state_dict().items()}
    query, key = (f"encoder.layers.1.attention.{part}_proj.weight" for part in "qk")
    state[query], state[key] = state[key], state[query]
    write_public(tmp_path / "public", state, config_json("salt"))
    import_weights(tmp_path / "public", "two-room", data, tmp_path / "run")
    frames = torch.randint(0, 256, (1, 1, 28, 28, 3), generator=torch.Generator().manual_seed(1), dtype=torch.uint8)
    ours = checkpoint.load(tmp_path / "run").encode(frames)
    assert (ours[0] - models["salt"].encode(frames[0])).abs().max() > 1e-4


def test_an_imported_run_is_a_run_like_any_other(models, data, tmp_path, no_child):
    write_public(tmp_path / "public", models["salt"].state_dict(), config_json("salt"))
    import_weights(tmp_path / "public", "two-room", data, tmp_path / "run")
    info = checkpoint.read_run(tmp_path / "run")
    assert (info.world, info.dataset_sha256) == (data.world, data.sha256)
    card = checkpoint.card(tmp_path / "run")
    assert (card["step"], card["preset"], card["model"]) == (0, "imported", "salt")
    import_weights(tmp_path / "public", "two-room", data, tmp_path / "run")  # the same again changes nothing
    assert len(checkpoint.list_checkpoints(tmp_path / "run")) == 1


# --- every spelling -------------------------------------------------------------------------------------------------

SPELLINGS = {
    "transformers-5": lambda state: state,
    "transformers-4": transformers_4_names,
    "pre-release letters": pre_release_names,
    "state_dict wrapper": lambda state: {"state_dict": state, "epoch": 10},
    "model wrapper": lambda state: {"model": state},
    "both wrappers": lambda state: {"state_dict": {"model": state}},
    "model. prefix": lambda state: {f"model.{name}": tensor for name, tensor in state.items()},
    "model.module. prefix": lambda state: {
        "state_dict": {f"model.module.{name}": tensor for name, tensor in transformers_4_names(state).items()}
    },
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_every_spelling_imports_to_the_same_weights(spelling, models, data, tmp_path, monkeypatch):
    from saltwm.interop.weights import pt_child

    monkeypatch.setattr(public, "read_pt", lambda path: pt_child.unwrap(torch.load(path, weights_only=True)))
    state = models["salt"].state_dict()
    write_public(tmp_path / "plain", state, config_json("salt"))
    write_public(tmp_path / "spelt", SPELLINGS[spelling](state), config_json("salt"))
    for name in ("plain", "spelt"):
        import_weights(tmp_path / name, "two-room", data, tmp_path / f"run-{name}")
    plain, spelt = (_weights(tmp_path / f"run-{name}") for name in ("plain", "spelt"))
    assert plain.keys() == spelt.keys()
    assert all(torch.equal(plain[name], spelt[name]) for name in plain)


@pytest.mark.parametrize("sizes", [Sizes(modes=0), Sizes(spectral=False), Sizes(smoothed=10), Sizes(block=20)])
def test_sizes_are_told_from_the_tensors(sizes, data, tmp_path, no_child):
    state = PublicModel("salt", sizes).state_dict()
    write_public(tmp_path / "public", state, config_json("salt", sizes))
    import_weights(tmp_path / "public", "two-room", data, tmp_path / "run")
    model = checkpoint.read_run(tmp_path / "run").run.model
    assert (model.affine.modes, model.affine.spectral) == (sizes.modes, sizes.spectral)
    assert (model.smoothed_dim, model.frameskip * 2) == (sizes.smoothed, sizes.block)


def test_without_config_json_heads_of_64_are_assumed(data, tmp_path, no_child):
    sizes = Sizes(width=128, heads=2, predictor_heads=1, predictor_head_dim=64)
    write_public(tmp_path / "public", PublicModel("lewm", sizes).state_dict(), None)
    import_weights(tmp_path / "public", "two-room", data, tmp_path / "run")
    model = checkpoint.read_run(tmp_path / "run").run.model
    assert (model.encoder.heads, model.transformer.heads, model.transformer.head_dim) == (2, 1, 64)


# --- full size ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "count", "parameters"), [("salt", 220, None), ("lewm", 303, 18_034_478)])
def test_all_tensors_of_the_published_sizes_are_mapped(kind, count, parameters, tmp_path):
    data = Collect("two-room", tmp_path / "data", 1, image_size=224, frame_every=50, workers=1).do()
    state = transformers_4_names(PublicModel(kind, PUBLISHED).state_dict())
    assert len(state) == count
    assert parameters in (None, sum(t.numel() for name, t in state.items() if _is_parameter(name)))
    config = config_json(kind, PUBLISHED)
    write_public(tmp_path / "public", state, config)
    imported = import_weights(tmp_path / "public", "tworoom", data, tmp_path / "run")
    assert imported.tensors == count
    model = checkpoint.read_run(tmp_path / "run").run.model
    assert (model.encoder.width, model.encoder.depth, model.encoder.heads) == (192, 12, 3)
    assert export_weights(tmp_path / "run", tmp_path / "back") == count
    _assert_same_files(tmp_path / "public", tmp_path / "back")


def _is_parameter(name):
    return not name.endswith(("running_mean", "running_var", "num_batches_tracked"))


# --- back out -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["salt", "lewm"])
@pytest.mark.parametrize("names", ["transformers-4", "transformers-5"])
def test_what_was_imported_comes_out_bit_for_bit(kind, names, models, data, tmp_path, no_child):
    state = models[kind].state_dict()
    if names == "transformers-4":
        state = transformers_4_names(state)
    write_public(tmp_path / "public", state, config_json(kind))
    import_weights(tmp_path / "public", "two-room", data, tmp_path / "run")
    export_weights(tmp_path / "run", tmp_path / "back", names)
    _assert_same_files(tmp_path / "public", tmp_path / "back")
    scaling = json.loads((tmp_path / "back" / "action_scaling.json").read_text())
    assert scaling["mean"] == pytest.approx(data.action_mean.tolist(), rel=1e-6)


def _assert_same_files(theirs, ours):
    expected, found = (torch.load(folder / "weights.pt", weights_only=True) for folder in (theirs, ours))
    assert type(found) is dict
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor), name
    configs = [json.loads((folder / "config.json").read_text()) for folder in (theirs, ours)]
    assert configs[0] == configs[1]


def test_a_run_without_a_vit_is_not_exported_to_the_public_layout(run, tmp_path):
    with pytest.raises(UsageError, match=r"'conv'.*in the `format` onnx"):
        export_weights(run, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_export_overwrites_nothing(run, tmp_path):
    with pytest.raises(UsageError, match="exists already"):
        export_weights(run, tmp_path)


def test_an_export_onto_a_full_disk_is_a_disk_error_and_leaves_nothing(tmp_path):
    write_run(tmp_path / "run")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
    try:
        with pytest.raises(DiskError, match=r"weights\.pt: cannot write \d+ bytes"):
            export_weights(tmp_path / "run", tmp_path / "out")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


# --- what does not fit ----------------------------------------------------------------------------------------------


@pytest.fixture
def refused(models, data, tmp_path, no_child):
    """refused(error, match, state=..., config=...): the import fails so, and leaves no run."""

    def check(error, match, *, kind="salt", state=None, config=None, environment="two-room"):
        write_public(tmp_path / "public", state or models[kind].state_dict(), config or config_json(kind))
        with pytest.raises(error, match=match):
            import_weights(tmp_path / "public", environment, data, tmp_path / "run")
        assert not (tmp_path / "run").exists()

    return check


def test_tensors_that_do_not_fit_are_listed(models, refused):
    state = dict(models["salt"].state_dict())
    del state["encoder.layers.1.mlp.fc2.bias"]
    state["encoder.pooler.dense.weight"] = torch.zeros(2, 2)
    state["predictor.s"] = torch.zeros(7)
    refused(
        DamagedError,
        "encoder.layers.1.mlp.fc2.bias is missing; encoder.pooler.dense.weight has no place; "
        r"predictor.s is \[7\] instead of \[16\]",
        state=state,
    )


def test_a_long_list_is_cut_and_says_so(models, refused):
    extra = {f"surplus.{number:03d}": torch.zeros(1) for number in range(60)}
    refused(DamagedError, r"surplus\.039 has no place; and 20 more$", state={**models["salt"].state_dict(), **extra})


def test_the_same_tensor_in_two_spellings_is_refused(models, refused):
    state = dict(models["salt"].state_dict())
    state["predictor.C"] = state["predictor.N"]
    refused(DamagedError, "there twice", state=state)


def test_values_that_are_not_finite_are_refused(models, refused):
    state = dict(models["salt"].state_dict())
    state["predictor.s"] = torch.full((16,), float("nan"))
    refused(NonFiniteError, "predictor.s", state=state)


def test_other_precisions_are_refused_because_they_would_not_come_out_again(models, refused):
    state = dict(models["salt"].state_dict())
    state["predictor.s"] = state["predictor.s"].half()
    refused(DamagedError, r"predictor.s: expected torch.float32 values, found torch.float16 \[16\]", state=state)


@pytest.mark.parametrize(
    ("part", "key", "value"),
    [("encoder", "patch_size", 14), ("predictor", "num_modes", 16), ("action_encoder", "input_dim", 25)],
)
def test_a_config_json_of_another_model_is_refused(part, key, value, refused):
    config = config_json("salt")
    config[part][key] = value
    refused(MismatchError, f"{part}.{key} is {value}, its tensors say", config=config)


def test_a_config_json_of_the_other_kind_is_refused(refused):
    refused(MismatchError, "its tensors are salt's", config=config_json("lewm"))


@pytest.mark.parametrize("place", [(), ("predictor",), ("projector", "norm_fn")])
@pytest.mark.parametrize("target", ["os.system", "salt.models.Unheard", 7])
def test_an_unknown_target_is_refused(place, target, refused):
    config = config_json("salt")
    node = config
    for key in place:
        node = node[key]
    node["_target_"] = target
    refused(DamagedError, r"_target_: .* is not a name", config=config)


def test_a_target_where_none_belongs_is_refused(refused):
    config = config_json("salt")
    config["encoder"]["extra"] = [{"deeper": {"_target_": "salt.models.MLP"}}]
    refused(DamagedError, "encoder.extra.0.deeper._target_", config=config)


def test_another_environment_than_the_dataset_s_is_refused(refused):
    refused(MismatchError, "data of two-room, but the weights are said to be push-t's", environment="pusht")
    refused(UsageError, "did you mean 'two-room'", environment="two-rom")


def test_another_image_size_than_the_dataset_s_is_refused(data, tmp_path, no_child):
    sizes = Sizes(image=14)
    write_public(tmp_path / "public", PublicModel("salt", sizes).state_dict(), config_json("salt", sizes))
    with pytest.raises(MismatchError, match="image_size: the weights expect 14 px frames, the dataset has 28 px"):
        import_weights(tmp_path / "public", "two-room", data, tmp_path / "run")


def test_action_blocks_that_are_no_multiple_of_the_action_are_refused(data, tmp_path, no_child):
    sizes = Sizes(block=25)
    write_public(tmp_path / "public", PublicModel("salt", sizes).state_dict(), config_json("salt", sizes))
    with pytest.raises(MismatchError, match="action_dim: action blocks of 25"):
        import_weights(tmp_path / "public", "two-room", data, tmp_path / "run")


def test_a_missing_weights_file_names_those_that_are_there(models, data, tmp_path):
    folder = write_public(tmp_path / "public", models["salt"].state_dict(), None)
    (folder / "weights.pt").rename(folder / "weights_epoch_10.pt")
    with pytest.raises(UsageError, match=r"no weights.pt in it; it has weights_epoch_10.pt"):
        import_weights(folder, "two-room", data, tmp_path / "run")


def test_other_weights_never_take_the_place_of_an_import(data, models, tmp_path, no_child):
    write_public(tmp_path / "a", models["salt"].state_dict(), config_json("salt"))
    write_public(tmp_path / "b", PublicModel("salt", seed=1).state_dict(), config_json("salt"))
    import_weights(tmp_path / "a", "two-room", data, tmp_path / "run")
    with pytest.raises(MismatchError, match=r"run: belongs to another job .weights_sha256"):
        import_weights(tmp_path / "b", "two-room", data, tmp_path / "run")


def test_an_import_never_takes_the_place_of_a_training_run(data, models, run, tmp_path, no_child):
    write_public(tmp_path / "a", models["salt"].state_dict(), config_json("salt"))
    with pytest.raises(UsageError, match="not empty"):
        import_weights(tmp_path / "a", "two-room", data, run)


def _weights(run):
    return checkpoint.read_checkpoint(checkpoint.find_checkpoint(run))[1]

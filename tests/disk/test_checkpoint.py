"""Checkpoints: bit for bit, whole or absent, the previous one when the newest is damaged, strict when loaded."""

import dataclasses
import itertools
import os
import shutil
import time

import pytest
import torch
from power_cuts import power_cut
from small_runs import SMALL, WORLD, checkpoint_info, run_info, small_model, write_run

import saltwm
from saltwm.disk import checkpoint, durable
from saltwm.ground.config import ObjectiveConfig
from saltwm.ground.errors import DamagedError, MismatchError, SaltError, UsageError


def save(run, step, *, keep=9, seed=None, **metrics):
    weights = small_model(seed=step if seed is None else seed).state_dict()
    return checkpoint.save(run, checkpoint_info(step, **metrics), weights, {}, keep)


def steps(run):
    return [int(path.name.removeprefix("step-")) for path in checkpoint.list_checkpoints(run)]


# --- round trip -----------------------------------------------------------------------------------------------------


def test_every_tensor_comes_back_bit_for_bit(tmp_path):
    weights = {"half": torch.randn(3, 2).bfloat16(), "turned": torch.randn(4, 5).T, "none": torch.zeros(0, 3)}
    optimizer = {"step/a": torch.tensor(7.0), "exp_avg/a": torch.randn(2) * 1e-38, "count/a": torch.tensor(2**40)}
    info = checkpoint_info(3, validation_rollout=0.1)
    path = checkpoint.save(tmp_path, info, weights, optimizer, keep=1)
    found_info, found_weights, found_optimizer = checkpoint.read_checkpoint(path)
    assert found_info == info
    for expected, found in ((weights, found_weights), (optimizer, found_optimizer)):
        assert expected.keys() == found.keys()
        for name, tensor in expected.items():
            assert (found[name].dtype, found[name].shape) == (tensor.dtype, tensor.shape)
            assert torch.equal(found[name], tensor)


@torch.no_grad()
def test_a_loaded_model_plans_with_the_saved_numbers_and_without_the_dataset(tmp_path):
    write_run(tmp_path / "run")
    model, loaded = small_model().eval(), saltwm.load(tmp_path / "run")
    assert not loaded.training
    frames = torch.randint(0, 256, (2, 1, 16, 16, 3), dtype=torch.uint8)
    blocks = torch.randn(2, 3, 10)
    expected = model.rollout(model.encode(frames), model.condition(blocks))
    assert torch.equal(loaded.rollout(loaded.encode(frames), loaded.condition(blocks)), expected)


def test_an_optimiser_comes_back_with_its_state(tmp_path):
    def stepped(seed):
        model = small_model(seed=seed)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        sum(p.square().sum() for p in model.parameters()).backward()
        optimizer.step()
        return optimizer, [name for name, _ in model.named_parameters()]

    optimizer, names = stepped(0)
    tensors = checkpoint.optimizer_tensors(optimizer, names)
    other, _ = stepped(1)
    assert not _equal(checkpoint.optimizer_tensors(other, names), tensors)
    checkpoint.restore_optimizer(other, names, tensors)
    assert _equal(checkpoint.optimizer_tensors(other, names), tensors)


def _equal(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_the_newest_of_very_many_steps_is_the_newest(tmp_path):
    for step in (999_999, 1_000_000):
        save(tmp_path, step, seed=0)
    assert steps(tmp_path) == [999_999, 1_000_000]


# --- whole or absent ------------------------------------------------------------------------------------------------


def test_a_crash_before_any_durable_step_leaves_each_checkpoint_whole_or_absent(tmp_path):
    for at in itertools.count():
        run = tmp_path / f"run-{at}"
        write_run(run, steps=(1,))
        with power_cut(at) as cut:
            save(run, 2)
        if not cut:
            break
        assert steps(run) == [1]
        for path in checkpoint.list_checkpoints(run):
            checkpoint.read_checkpoint(path)
        save(run, 2)  # and the next attempt is not in the way of the first
        assert steps(run) == [1, 2]
        saltwm.load(run)
    assert at > 5


def test_a_save_that_fails_leaves_no_temporary_file(tmp_path):
    write_run(tmp_path, steps=(1,))
    with power_cut("publish", tidied=True) as cut:
        save(tmp_path, 2)
    assert cut
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-000001"]


# --- damage ---------------------------------------------------------------------------------------------------------


def truncate(path):
    file = path / checkpoint.WEIGHTS_FILE
    file.write_bytes(file.read_bytes()[:-9])


def flip_a_bit(path):
    file = path / checkpoint.WEIGHTS_FILE
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 4
    file.write_bytes(data)


def swap(path):
    shutil.copy(path / checkpoint.OPTIMIZER_FILE, path / checkpoint.WEIGHTS_FILE)


def lose_a_file(path):
    (path / checkpoint.OPTIMIZER_FILE).unlink()


def lose_the_manifest(path):
    (path / durable.MANIFEST).unlink()


def add_a_file(path):
    (path / "extra").write_bytes(b"")


def edit_the_info(path):
    file = path / checkpoint.INFO_FILE
    file.write_text(file.read_text().replace('"step": 2', '"step": 3'))


DAMAGES = (truncate, flip_a_bit, swap, lose_a_file, lose_the_manifest, add_a_file, edit_the_info)


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_damaged_newest_checkpoint_is_said_aloud_and_the_previous_one_is_used(damage, tmp_path):
    newest = write_run(tmp_path, steps=(1, 2))
    damage(newest)
    said = []
    assert checkpoint.find_checkpoint(tmp_path, said.append).name == "step-000001"
    assert len(said) == 1
    assert said[0].startswith("skipping step-000002: ")


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_damaged_checkpoint_asked_for_by_its_own_path_is_refused(damage, tmp_path):
    newest = write_run(tmp_path, steps=(1, 2))
    damage(newest)
    with pytest.raises(SaltError, match="step-000002"):
        saltwm.load(newest)


def test_no_readable_checkpoint_is_an_error_and_no_checkpoint_a_hint(tmp_path):
    truncate(write_run(tmp_path / "lost", steps=(1,)))
    with pytest.raises(DamagedError, match="none of its 1 checkpoints is readable; nothing was changed"):
        checkpoint.find_checkpoint(tmp_path / "lost", say=lambda message: None)
    checkpoint.start_run(tmp_path / "young", run_info())
    with pytest.raises(UsageError, match="no checkpoint yet"):
        saltwm.load(tmp_path / "young")
    with pytest.raises(UsageError, match=r"not a training run or checkpoint \(no run.json\); .*(lost|young) is one"):
        saltwm.load(tmp_path)
    (tmp_path / "zarr.json").touch()
    with pytest.raises(UsageError, match="a dataset, not a training run"):
        saltwm.load(tmp_path)


def test_a_checkpoint_of_another_format_is_refused(tmp_path):
    path = checkpoint.save(tmp_path, dataclasses.replace(checkpoint_info(), format=2), {}, {}, keep=1)
    with pytest.raises(DamagedError, match="format 2, this version reads 1"):
        saltwm.load(path)
    checkpoint.start_run(tmp_path, run_info(format=2))
    with pytest.raises(DamagedError, match="format 2, this version reads 1"):
        checkpoint.read_run(tmp_path)


# --- which are kept -------------------------------------------------------------------------------------------------


@pytest.fixture
def hashed(monkeypatch):
    """The files that were hashed since."""
    names, sha256 = [], durable.sha256
    monkeypatch.setattr(durable, "sha256", lambda path: names.append(path.name) or sha256(path))
    return names


def test_a_checkpoint_that_nobody_touched_is_hashed_once_to_find_it_and_again_to_load_it(tmp_path, monkeypatch, hashed):
    newest = write_run(tmp_path, steps=(1, 2))
    hashed.clear()
    monkeypatch.setattr(checkpoint, "_SETTLED_NS", 0)
    for _ in range(3):
        assert checkpoint.find_checkpoint(tmp_path) == newest
    assert hashed.count(checkpoint.WEIGHTS_FILE) == 1
    saltwm.load(tmp_path)
    assert hashed.count(checkpoint.WEIGHTS_FILE) == 2


def test_damage_after_a_checkpoint_was_found_is_noticed_though_size_and_date_stay(tmp_path, monkeypatch):
    newest = write_run(tmp_path, steps=(1, 2))
    monkeypatch.setattr(checkpoint, "_SETTLED_NS", 0)
    assert checkpoint.find_checkpoint(tmp_path) == newest
    file, said = newest / checkpoint.WEIGHTS_FILE, []
    before, data = file.stat(), bytearray(file.read_bytes())
    data[-1] ^= 1
    time.sleep(0.02)  # the clock of a file system ticks every few milliseconds
    file.write_bytes(data)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    for _ in range(2):
        assert checkpoint.find_checkpoint(tmp_path, said.append).name == "step-000001"
    assert len(said) == 2


def test_a_checkpoint_that_is_just_written_is_hashed_each_time(tmp_path, hashed):
    newest = write_run(tmp_path)
    hashed.clear()
    for _ in range(2):
        assert checkpoint.find_checkpoint(tmp_path) == newest
    assert hashed.count(checkpoint.WEIGHTS_FILE) == 2


def test_the_newest_and_the_best_are_kept(tmp_path):
    for step, error in ((1, 0.5), (2, 0.1), (3, 0.4), (4, 0.3), (5, 0.2)):
        save(tmp_path, step, keep=2, validation_rollout=error)
    assert steps(tmp_path) == [2, 4, 5]


def test_a_checkpoint_that_was_not_validated_is_never_the_best(tmp_path):
    for step in (1, 2, 3):
        save(tmp_path, step, keep=2)
    assert steps(tmp_path) == [2, 3]


def test_pruning_does_not_stumble_over_a_damaged_checkpoint(tmp_path):
    lose_the_manifest(save(tmp_path, 1, keep=1))
    (tmp_path / "checkpoints" / "step-000001" / checkpoint.INFO_FILE).write_text("{")
    save(tmp_path, 2, keep=1)
    assert steps(tmp_path) == [2]


# --- one run per directory ------------------------------------------------------------------------------------------


def test_another_run_in_the_same_directory_is_refused_and_each_differing_field_named(tmp_path):
    checkpoint.start_run(tmp_path, run_info())
    checkpoint.start_run(tmp_path, run_info())
    other = run_info(
        dataclasses.replace(SMALL, latent_dim=24), dataclasses.replace(WORLD, image_size=32), dataset_sha256="b" * 64
    )
    other = dataclasses.replace(other, run=dataclasses.replace(other.run, objective=ObjectiveConfig("one-step")))
    with pytest.raises(MismatchError) as error:
        checkpoint.start_run(tmp_path, other)
    for part in ("latent_dim", "objective", "image_size", "dataset_sha256: expected bbbbbbbbbbbb, found aaaaaaaaaaaa"):
        assert part in str(error.value)
    assert checkpoint.read_run(tmp_path) == run_info()


# --- strictness -----------------------------------------------------------------------------------------------------


def test_weights_of_another_structure_are_refused_by_name(tmp_path):
    model = small_model()
    weights = model.state_dict()
    name = "action_encoder.embed.0.bias"
    cases = {
        rf"missing \['{name}'\]": {key: value for key, value in weights.items() if key != name},
        r"not expected \['surplus'\]": {**weights, "surplus": torch.zeros(1)},
        rf"of another shape \['{name}'\]": {**weights, name: torch.zeros(1)},
        rf"of another shape.*\['{name}'\]": {**weights, name: weights[name].long()},
    }
    for message, changed in cases.items():
        with pytest.raises(DamagedError, match=message):
            checkpoint.load_weights(small_model(seed=1), changed, tmp_path / "weights.safetensors")
    checkpoint.load_weights(model, weights, tmp_path / "weights.safetensors")


ABSURD = {
    "depth": {"encoder": dataclasses.replace(SMALL.encoder, depth=10**9)},
    "width": {"encoder": dataclasses.replace(SMALL.encoder, width=3 * 10**9)},
    "no heads": {"encoder": dataclasses.replace(SMALL.encoder, heads=0)},
    "no patches": {"encoder": dataclasses.replace(SMALL.encoder, patch_size=0)},
    "latents": {"latent_dim": 10**12},
    "negative": {"latent_dim": -1},
    "frameskip": {"frameskip": 10**15},
    "modes": {"affine": dataclasses.replace(SMALL.affine, modes=10**15)},
    "layers": {"model": "lewm", "transformer": dataclasses.replace(SMALL.transformer, depth=10**9)},
    "dropout": {"model": "lewm", "transformer": dataclasses.replace(SMALL.transformer, dropout=7.0)},
}


@pytest.mark.parametrize("case", ABSURD)
def test_a_checkpoint_that_describes_an_absurd_model_is_refused_at_once(case, tmp_path):
    """A hostile file with the right hashes: it may not have the memory or the time that it asks for."""
    info = checkpoint_info(0, dataclasses.replace(SMALL, **ABSURD[case]))
    path = checkpoint.save(tmp_path, info, small_model().state_dict(), {}, keep=1)
    started = time.process_time()
    with pytest.raises(SaltError):
        saltwm.load(path)
    assert time.process_time() - started < 1


@pytest.mark.parametrize("spectral", [True, False])
def test_a_blueprint_has_the_names_and_sizes_of_the_model(spectral, tmp_path):
    config = dataclasses.replace(SMALL, affine=dataclasses.replace(SMALL.affine, spectral=spectral))
    expected, found = small_model(config).state_dict(), checkpoint.blueprint(config, WORLD, 99, tmp_path)
    assert {name: tensor.shape for name, tensor in found.items()} == {k: v.shape for k, v in expected.items()}
    assert all(tensor.is_meta for tensor in found.values())


def test_the_card_says_what_it_is_and_what_it_was_trained_on(tmp_path):
    checkpoint.start_run(tmp_path, run_info())
    save(tmp_path, 5, validation_rollout=0.25)
    card = checkpoint.card(tmp_path)
    assert card["step"] == 5
    assert card["environment"] == "two-room"
    assert card["metrics"] == {"validation_rollout": 0.25}
    assert card["dataset_sha256"] == "a" * 64
    assert (card["model"], card["objective"], card["image_size"]) == ("salt", "rollout", 16)
    assert card["parameters"] == sum(p.numel() for p in small_model().parameters())


def test_there_is_no_card_of_damaged_weights(tmp_path):
    saved = write_run(tmp_path)
    weights = saved / checkpoint.WEIGHTS_FILE
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    with pytest.raises(DamagedError, match="altered since it was written"):
        checkpoint.card(saved)


def test_a_run_of_another_format_is_not_gone_on_with(tmp_path):
    checkpoint.start_run(tmp_path, run_info(format=0))
    with pytest.raises(DamagedError, match="format 0, this version reads 1"):
        checkpoint.start_run(tmp_path, run_info())

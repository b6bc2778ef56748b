"""Learning a prior: beside the checkpoint and no part of it, whole or absent, the same bytes after any kill."""

import dataclasses
import errno
import itertools
import json
import math
import shutil
import signal

import numpy as np
import pytest
import torch
from power_cuts import PowerCut, power_cut
from trainers import command, leftovers, wait_until

import saltwm
from saltwm.data.split import held_out
from saltwm.disk import checkpoint, durable
from saltwm.disk.durable import read_config, write_config
from saltwm.ground.config import ImitationConfig, MapConfig, PriorConfig
from saltwm.ground.errors import DamagedError, DiskError, LockedError, MismatchError, Stopped, UsageError
from saltwm.jobs.chunks import Chunks, _make_policy, prepare_sent, surroundings
from saltwm.jobs.evaluate import Evaluate, settle
from saltwm.jobs.prior_learner import learn_prior
from saltwm.jobs.shipment import ship
from saltwm.planning import prior_files
from saltwm.planning.prior_files import PriorInfo, load_prior
from saltwm.planning.prior_learning import encode

SMALL = PriorConfig(width=24, depth=2, batch_size=64, steps=12, save_every=4)


@pytest.fixture(scope="module")
def learnt(run, dataset, tmp_path_factory):
    """A run with a prior."""
    path = tmp_path_factory.mktemp("learnt") / "run"
    shutil.copytree(run, path)
    learn_prior(path, dataset, SMALL)
    return path


@pytest.fixture
def mine(learnt, tmp_path):
    """The same to break."""
    shutil.copytree(learnt, tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def bare(run, tmp_path):
    """A run without a prior."""
    shutil.copytree(run, tmp_path / "run")
    return tmp_path / "run"


def prior_bytes(run):
    return {file.name: file.read_bytes() for file in sorted((run / "prior").iterdir())}


def rewritten(run, **changes):
    """The prior's description with other values, its manifest renewed: not damage, but another prior."""
    folder = run / "prior"
    write_config(folder / prior_files.INFO_FILE, dataclasses.replace(prior_files.read_info(folder), **changes))
    durable.write_json(folder / durable.MANIFEST, durable.file_hashes(folder))


# --- what it leaves --------------------------------------------------------------------------------------------------


def test_a_prior_is_three_files_beside_the_checkpoints_and_nothing_else_stays(run, learnt):
    assert sorted(path.name for path in (learnt / "prior").iterdir()) == [
        "manifest.json",
        "prior.json",
        "prior.safetensors",
    ]
    assert {path.name for path in learnt.iterdir()} - {path.name for path in run.iterdir()} == {"prior"}
    info = read_config(PriorInfo, learnt / "prior" / "prior.json")
    model = checkpoint.find_checkpoint(learnt)
    assert info.checkpoint_sha256 == durable.sha256(model / "manifest.json")
    assert info.dataset_sha256 == checkpoint.read_info(model).dataset_sha256
    assert math.isfinite(info.held_out.nll)


def test_matrices_are_stored_in_half_precision(learnt):
    stored = checkpoint.read_tensors(learnt / "prior" / "prior.safetensors")
    assert {tensor.dtype for tensor in stored.values() if tensor.ndim > 1} == {torch.float16}


def test_the_default_prior_of_the_largest_world_is_smaller_than_three_megabytes():
    from saltwm.planning.prior import ActionPrior

    weights = ActionPrior(PriorConfig(), latent_dim=192, block_dim=25).state_dict()
    assert len(checkpoint.to_bytes(checkpoint.halved(weights))) < prior_files.MOST_BYTES


def test_repeating_it_repeats_every_byte_and_another_seed_does_not(learnt, bare, dataset):
    learn_prior(bare, dataset, SMALL)
    assert prior_bytes(bare) == prior_bytes(learnt)
    learn_prior(bare, dataset, dataclasses.replace(SMALL, seed=1))
    assert prior_bytes(bare)["prior.safetensors"] != prior_bytes(learnt)["prior.safetensors"]


def test_a_finished_prior_is_not_learnt_again(mine, dataset, monkeypatch):
    monkeypatch.setattr("saltwm.jobs.prior_learner.encode", lambda *_: pytest.fail("it was encoded again"))
    learn_prior(mine, dataset, SMALL)


def test_a_checkpoint_stays_what_it_was(run, tmp_path, dataset):
    """Evaluations name a checkpoint by the hash of its manifest."""
    ship(run, tmp_path / "shipped")
    before = durable.sha256(tmp_path / "shipped" / "manifest.json")
    learn_prior(tmp_path / "shipped", dataset, SMALL)
    assert durable.sha256(tmp_path / "shipped" / "manifest.json") == before
    checkpoint.verify(tmp_path / "shipped")
    assert saltwm.load(tmp_path / "shipped").config.latent_dim == load_prior(tmp_path / "shipped").latent_dim
    (tmp_path / "shipped" / "priory").write_text("not a prior's")
    with pytest.raises(DamagedError, match="priory"):
        checkpoint.verify(tmp_path / "shipped")


def test_held_out_episodes_stay_out(run, dataset):
    journeys = encode(saltwm.load(run), dataset, lambda _: None)
    boundaries = np.repeat(np.arange(len(dataset)), dataset.lengths // 5 + 1)
    assert set(boundaries[journeys.training]) == set(range(len(dataset))) - set(held_out(dataset).tolist())
    assert set(boundaries[journeys.held_out]) == set(held_out(dataset).tolist())


def test_latents_and_blocks_are_those_of_the_episodes(run, dataset):
    model = saltwm.load(run)
    journeys = encode(model, dataset, lambda _: None)
    blocks = int(dataset.lengths[0]) // 5
    frames = dataset.read_frames(np.zeros(blocks + 1, np.int64), np.arange(blocks + 1) * 5)
    with torch.no_grad():
        latents = model.encode(torch.from_numpy(frames)[None])[0]
        actions = torch.from_numpy(dataset.actions(0)[: blocks * 5].reshape(blocks, -1))
        normalised = model.action_encoder.normalise(actions)
    torch.testing.assert_close(journeys.latents[: blocks + 1], latents, rtol=0, atol=1e-5)
    assert torch.equal(journeys.blocks[:blocks], normalised)


# --- whose it is -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"checkpoint_sha256": "b" * 64}, "checkpoint: expected .*, found bbbbbbbbbbbb"),
        ({"dataset_sha256": "b" * 64}, "dataset: expected .*, found bbbbbbbbbbbb"),
        ({"latent_dim": 17}, "latent size: expected 16, found 17"),
        ({"block_dim": 25}, "numbers in an action block: expected 10, found 25"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_prior_of_another_model_is_refused_and_the_difference_named(mine, changes, named):
    rewritten(mine, **changes)
    with pytest.raises(MismatchError, match=named):
        load_prior(mine)


def test_a_prior_of_another_world_is_refused(mine):
    world = prior_files.read_info(mine / "prior").world
    rewritten(mine, world=dataclasses.replace(world, environment="push-t"))
    with pytest.raises(MismatchError, match="environment: expected 'two-room', found 'push-t'"):
        load_prior(mine)


def test_data_that_the_model_was_not_trained_on_are_refused(bare, learnt, dataset, tmp_path):
    from saltwm.jobs.collect import Collect

    other = Collect("two-room", tmp_path / "other", 4, image_size=16, frame_every=5, workers=1, seed=5).do()
    with pytest.raises(MismatchError, match=r"dataset: expected .*, found [0-9a-f]{12}\)$"):
        learn_prior(bare, other, SMALL)
    assert not (bare / "prior").exists()
    with pytest.raises(MismatchError, match=f"it has a prior already: {learnt}/prior"):
        learn_prior(learnt, other, SMALL)


def test_without_a_prior_the_command_that_makes_one_is_named(bare, dataset, tmp_path):
    with pytest.raises(UsageError, match="has no action prior yet"):
        load_prior(bare)
    job = Evaluate(str(bare), data=dataset.path, tasks=2, planner=MapConfig(), out=tmp_path / "results", workers=1)
    with pytest.raises(UsageError, match="has no action prior yet"):
        job.do()


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_weights_that_are_not_numbers_are_refused(mine, value):
    edited(mine, "head.bias", lambda tensor: tensor.index_fill_(0, torch.tensor([2]), value))
    with pytest.raises(DamagedError, match=r"head\.bias"):
        load_prior(mine)


def test_a_deviation_of_zero_is_refused(mine):
    edited(mine, "latent_std", lambda tensor: tensor.zero_())
    with pytest.raises(DamagedError, match=r"latent_std .*not above 0"):
        load_prior(mine)


def edited(run, name, edit):
    folder = run / "prior"
    weights = checkpoint.read_tensors(folder / "prior.safetensors")
    edit(weights[name])
    durable.write_bytes(folder / "prior.safetensors", checkpoint.to_bytes(weights))
    durable.write_json(folder / durable.MANIFEST, durable.file_hashes(folder))


@pytest.mark.parametrize("name", ["prior.json", "prior.safetensors", "manifest.json"])
def test_a_damaged_prior_is_refused_and_made_again(mine, learnt, dataset, name):
    file = mine / "prior" / name
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(DamagedError):
        load_prior(mine)
    learn_prior(mine, dataset, SMALL)
    assert prior_bytes(mine) == prior_bytes(learnt)


def test_absurd_sizes_are_refused_before_memory_is_asked_for(mine):
    config = prior_files.read_info(mine / "prior").prior
    rewritten(mine, prior=dataclasses.replace(config, width=10**9))
    with pytest.raises(DamagedError, match="sizes"):
        load_prior(mine)


def test_a_link_is_no_prior(mine, tmp_path):
    (mine / "prior").rename(tmp_path / "elsewhere")
    (mine / "prior").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DamagedError, match="is a link"):
        load_prior(mine)


# --- shipped ---------------------------------------------------------------------------------------------------------


def test_shipping_a_run_ships_its_prior(learnt, tmp_path):
    ship(learnt, tmp_path / "shipped")
    info = prior_files.read_info(tmp_path / "shipped" / "prior")
    source = checkpoint.find_checkpoint(learnt)
    assert info.checkpoint_sha256 == durable.sha256(tmp_path / "shipped" / "manifest.json")
    assert info.learnt_on_sha256 == durable.sha256(source / "manifest.json")
    carried, original = load_prior(tmp_path / "shipped").state_dict(), load_prior(learnt).state_dict()
    assert all(torch.equal(carried[name], tensor) for name, tensor in original.items())
    ship(learnt, tmp_path / "shipped")  # again, over what is there
    load_prior(tmp_path / "shipped")


def test_a_prior_of_another_checkpoint_is_not_shipped(mine, tmp_path):
    rewritten(mine, checkpoint_sha256="b" * 64)
    with pytest.raises(MismatchError, match="is the prior of another model"):
        ship(mine, tmp_path / "shipped")
    assert not (tmp_path / "shipped").exists()


# --- stopped and killed ----------------------------------------------------------------------------------------------


def test_a_job_that_crashes_before_each_durable_step_in_turn_ends_with_the_same_bytes(learnt, bare, dataset):
    for at in itertools.count():
        with power_cut(at, tidied=True) as cut:
            learn_prior(bare, dataset, SMALL)
        if not cut:
            break
        if (bare / "prior").exists():
            load_prior(bare)  # whole or absent
    assert at > 10
    assert prior_bytes(bare) == prior_bytes(learnt)
    assert leftovers(bare) == []
    assert not (bare / "prior.work").exists()


@pytest.mark.parametrize("writes", [1, 4, 7, 10])
def test_a_full_disk_costs_nothing_that_was_saved(learnt, bare, dataset, monkeypatch, writes):
    left = writes

    def full(step, path):
        nonlocal left
        left -= step == "write"
        if left == 0:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(durable, "_before_step", full)
    with pytest.raises(DiskError, match="what was saved is intact"):
        learn_prior(bare, dataset, SMALL)
    assert not (bare / "prior").exists()
    assert leftovers(bare) == []
    for save in (bare / "prior.work").glob("step-*"):
        durable.verify_directory(save)
    monkeypatch.undo()
    learn_prior(bare, dataset, SMALL)
    assert prior_bytes(bare) == prior_bytes(learnt)


def words(run, dataset):
    return ["prior", run, "--data", dataset.path, "--width", 24, "--depth", 2, "--batch-size", 64]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_stopped_or_killed_command_goes_on_to_the_same_bytes(bare, tmp_path, dataset, number):
    steps = ["--steps", 200]
    shutil.copytree(bare, tmp_path / "undisturbed")
    stopped = command(bare, *words(bare, dataset), *steps)
    wait_until((bare / "prior.work" / "job.json").exists)
    stopped.send(number)
    code = stopped.wait()
    assert code == (-signal.SIGKILL if number == signal.SIGKILL else 128 + number), stopped.errors
    assert not (bare / "prior").exists()
    if number != signal.SIGKILL:
        assert "stopped" in stopped.errors
        assert "the same command" in stopped.errors
    again = command(bare, *words(bare, dataset), *steps)
    assert again.wait() == 0, again.errors
    undisturbed = command(tmp_path / "undisturbed", *words(tmp_path / "undisturbed", dataset), *steps)
    assert undisturbed.wait() == 0, undisturbed.errors
    assert prior_bytes(bare) == prior_bytes(tmp_path / "undisturbed")
    assert leftovers(bare) == []


def test_a_stop_saves_at_once(bare, dataset, monkeypatch):
    import contextlib

    @contextlib.contextmanager
    def stopped_already():
        yield lambda: signal.SIGTERM

    monkeypatch.setattr("saltwm.jobs.prior_learner.stop_signal", stopped_already)
    monkeypatch.setattr(
        "saltwm.jobs.prior_learner._encoded",
        lambda model, data, _: encode(checkpoint.load(model), data, lambda _: None),
    )
    with pytest.raises(Stopped, match="stopped at step 1 of 12, saved"):
        learn_prior(bare, dataset, SMALL)
    assert [path.name for path in (bare / "prior.work").glob("step-*")] == ["step-000001"]


def test_one_job_at_a_time(bare, dataset):
    with durable.only_replacer(bare / "prior", "prior"), pytest.raises(LockedError, match="saltwm prior"):
        learn_prior(bare, dataset, SMALL)


def test_what_another_job_left_in_the_work_folder_is_not_gone_on_with(learnt, bare, dataset, monkeypatch):
    monkeypatch.setattr("saltwm.jobs.prior_learner.measure", lambda *_: (_ for _ in ()).throw(PowerCut()))
    with pytest.raises(PowerCut):
        learn_prior(bare, dataset, dataclasses.replace(SMALL, seed=3))
    assert (bare / "prior.work").exists()
    monkeypatch.undo()
    learn_prior(bare, dataset, SMALL)
    assert prior_bytes(bare) == prior_bytes(learnt)


# --- evaluated -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("planner", [MapConfig(), ImitationConfig()], ids=lambda planner: planner.kind)
def test_an_evaluation_names_the_prior_it_used(learnt, dataset, tmp_path, planner):
    options = {"tasks": 2, "workers": 1, "pictures": 0, "out": tmp_path / "results"}
    evaluation = Evaluate(str(learnt), data=dataset.path, planner=planner, **options).do()
    assert evaluation.method == f"salt-{planner.kind}"
    assert evaluation.prior_sha256 == durable.sha256(learnt / "prior" / "manifest.json")


def test_the_prior_of_a_run_goes_to_another_machine_with_its_checkpoint(learnt, dataset, tmp_path):
    here = {"data": dataset.path, "tasks": 2, "out": tmp_path / "results"}
    job, _, _ = settle(Evaluate(str(learnt), planner=ImitationConfig(), **here), tmp_path / "results")
    item = (job, 0, tmp_path / "chunk.json")
    for name, file in Chunks().files(item).items():
        (tmp_path / "there" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, tmp_path / "there" / name)
    order, start = Chunks().order(item)
    assert [outcome["record"]["task"] for outcome in prepare_sent(order, tmp_path / "there")(start)] == [0, 1]
    plain, _, _ = settle(Evaluate(str(learnt), **here), tmp_path / "results")
    assert not any("prior" in name for name in Chunks().files((plain, 0, tmp_path / "chunk.json")))


def test_a_prior_that_changed_after_an_evaluation_was_planned_is_not_used(learnt, dataset, tmp_path):
    options = {"tasks": 2, "workers": 1, "pictures": 0, "out": tmp_path / "results"}
    asked = Evaluate(str(learnt), data=dataset.path, planner=MapConfig(), **options)
    here = settle(asked, asked.out)
    env, _ = surroundings(here.job, here.tasks)
    assert _make_policy(here.job, here.tasks, env)[0].prior is not None
    job = dataclasses.replace(here.job, inputs={**here.job.inputs, "prior": "0" * 64})
    with pytest.raises(MismatchError, match="its action prior changed since this evaluation was planned"):
        _make_policy(job, here.tasks, env)


def test_the_command_prints_how_good_the_prior_is(mine, dataset, capsys):
    from saltwm.cli import main

    main([str(word) for word in ["prior", mine, "--data", dataset.path, "--width", 24, "--steps", 3, "--json"]])
    found = json.loads(capsys.readouterr().out)
    assert found["prior"] == str(mine / "prior")


def test_a_run_may_be_named_by_a_link_to_it(learnt, bare, dataset, tmp_path):
    (tmp_path / "newest").symlink_to(bare, target_is_directory=True)
    learn_prior(tmp_path / "newest", dataset, SMALL)
    assert prior_bytes(bare) == prior_bytes(learnt)

"""Runs that go on: prolonged beyond their end, or started from another's weights; the bytes as promised."""

import dataclasses
import json
import random
import shutil
import signal
import time

import pytest
import torch
from trainers import command, leftovers, result_bytes, trainer, wait_until

from saltwm.cli import main, parse
from saltwm.data.split import why_seen
from saltwm.disk import checkpoint, durable
from saltwm.disk.lineage import Start
from saltwm.ground.errors import MismatchError, UsageError
from saltwm.jobs.card import write_card
from saltwm.jobs.collect import Collect
from saltwm.jobs.job import spell
from saltwm.jobs.shipment import ship
from saltwm.jobs.train import Train
from saltwm.jobs.variants import variant_of
from saltwm.train import learning_rate, train


def change(config, **options):
    return dataclasses.replace(config, train=dataclasses.replace(config.train, **options))


def newest(run):
    return checkpoint.find_checkpoint(run)


@pytest.fixture
def six(run, tmp_path):
    """A copy of the shared run, which ended at step 6."""
    shutil.copytree(run, tmp_path / "run")
    return tmp_path / "run"


# --- more steps ------------------------------------------------------------------------------------------------------


def test_the_learning_rate_of_a_restart_is_that_of_a_run_of_its_own(tiny):
    config = change(tiny, steps=300, restarts=(100,), warmup_fraction=0.05)
    rates = [learning_rate(config, step, 300) for step in range(300)]
    plain = change(tiny, warmup_fraction=0.05)
    assert rates[:100] == [learning_rate(plain, step, 100) for step in range(100)]
    assert rates[100:] == [learning_rate(plain, step, 200) for step in range(200)]


def test_a_run_prolonged_after_its_end_equals_one_that_knew_of_its_restart(six, tiny, dataset, tmp_path):
    before = {name: entry for name, entry in durable.file_hashes(six).items() if "step-000006" in name}
    result = train(change(tiny, steps=11), dataset, six)
    assert result.step == 11
    assert checkpoint.read_run(six).run.train.restarts == (6,)
    after = durable.file_hashes(six)
    assert all(after.get(name, entry) == entry for name, entry in before.items())
    train(change(tiny, steps=11, restarts=(6,)), dataset, tmp_path / "knew")
    assert result_bytes(six) == result_bytes(tmp_path / "knew")
    # The control: eleven steps with one schedule are another run.
    train(change(tiny, steps=11), dataset, tmp_path / "straight")
    assert result_bytes(six) != result_bytes(tmp_path / "straight")


def test_a_prolonged_run_is_prolonged_again_and_repeated_by_its_own_command(six, tiny, dataset, tmp_path):
    train(change(tiny, steps=8), dataset, six)
    train(change(tiny, steps=8), dataset, six)  # finds nothing to do
    train(change(tiny, steps=9), dataset, six)
    info = checkpoint.read_run(six)
    assert (info.total_steps, info.run.train.restarts) == (9, (6, 8))
    assert checkpoint.card(six)["restarts"] == [6, 8]
    assert "prolonged at step 6 and 8" in variant_of(checkpoint.read_info(newest(six))).departures


def test_a_run_stopped_on_its_way_and_asked_for_more_ends_its_first_schedule_first(six, tiny, dataset, tmp_path):
    shutil.copytree(six, tmp_path / "stopped")
    shutil.rmtree(tmp_path / "stopped" / "checkpoints" / "step-000006")
    for path in (six, tmp_path / "stopped"):
        train(change(tiny, steps=9), dataset, path)
    assert result_bytes(six) == result_bytes(tmp_path / "stopped")


def test_a_prolonged_run_crashed_again_and_again_ends_with_the_same_bytes(six, tiny, dataset, tmp_path):
    config, crashes = change(tiny, steps=9, save_every=1, keep=1), 0
    train(change(tiny, steps=6, save_every=1, keep=1), dataset, tmp_path / "calm")
    shutil.copytree(tmp_path / "calm", tmp_path / "killed")
    train(config, dataset, tmp_path / "calm")
    while True:
        process = trainer(config, dataset, tmp_path / "killed", crash_at=crashes + 1, half_written=crashes % 2 == 1)
        code = process.wait()
        if code == 0:
            break
        assert code == 99, process.errors
        crashes += 1
    assert crashes > 12
    assert result_bytes(tmp_path / "killed") == result_bytes(tmp_path / "calm")
    assert leftovers(tmp_path / "killed") == []


@pytest.mark.full
def test_a_prolonged_run_killed_at_random_times_ends_with_the_same_bytes(tiny, dataset, tmp_path):
    first, more = (change(tiny, steps=steps, validate_every=3, save_every=4) for steps in (20, 60))
    train(first, dataset, tmp_path / "begun")
    for name in ("calm", "killed"):
        shutil.copytree(tmp_path / "begun", tmp_path / name)
    train(more, dataset, tmp_path / "calm")
    times, kills = random.Random(0), 0
    while kills < 20:
        process = trainer(more, dataset, tmp_path / "killed")
        time.sleep(times.uniform(0.0, 0.6))
        if process.kill() == -signal.SIGKILL:
            kills += 1
        else:  # it came to its end before
            assert result_bytes(tmp_path / "killed") == result_bytes(tmp_path / "calm"), process.errors
            shutil.rmtree(tmp_path / "killed")
            shutil.copytree(tmp_path / "begun", tmp_path / "killed")
    train(more, dataset, tmp_path / "killed")
    assert result_bytes(tmp_path / "killed") == result_bytes(tmp_path / "calm")


def test_a_run_is_not_shortened_nor_changed_by_prolonging_it(six, tiny, dataset):
    before = durable.file_hashes(six)
    with pytest.raises(MismatchError, match=r"run.train.steps: expected 4, found 6"):
        train(change(tiny, steps=4), dataset, six)
    with pytest.raises(MismatchError, match=r"run.train.learning_rate: expected 0.5, found 0.001"):
        train(change(tiny, steps=9, learning_rate=0.5), dataset, six)
    with pytest.raises(UsageError, match=r"`restarts` 9 3: expected ascending steps between 0 and the end at 12"):
        train(change(tiny, steps=12, restarts=(9, 3)), dataset, six)
    assert {name: e for name, e in durable.file_hashes(six).items() if name != ".lock"} == {
        name: e for name, e in before.items() if name != ".lock"
    }


def test_the_command_of_a_prolonged_run_names_its_restarts(dataset, tmp_path):
    words = ["--preset", "quick", "--batch-size", "8", "--save-every", "5", "--validate-every", "5", "--out"]
    for steps in ("1", "2"):
        main(["train", str(dataset.path), "--steps", steps, *words, str(tmp_path / "run"), "--json"])
    job = Train.found_in(tmp_path / "run")
    assert spell(job).endswith("--restarts 1")
    assert parse(spell(job).split()[1:]) == job


# --- from a checkpoint -----------------------------------------------------------------------------------------------


def test_a_run_starts_from_the_weights_of_a_checkpoint(run, tiny, dataset, tmp_path):
    """A step that learns nothing leaves what it started from."""
    still = change(tiny, steps=1, learning_rate=1e-30, seed=7, weight_decay=0.0)
    train(still, dataset, tmp_path / "run", start=Start(run, freeze_encoder=True))
    before, after = (checkpoint.read_weights(newest(path))[1] for path in (run, tmp_path / "run"))
    assert all(torch.equal(before[name], after[name]) for name in before)
    train(still, dataset, tmp_path / "fresh")  # the control
    fresh = checkpoint.read_weights(newest(tmp_path / "fresh"))[1]
    assert any(not torch.equal(before[name], fresh[name]) for name in before)


def test_a_frozen_encoder_keeps_every_bit_and_the_rest_learns(run, tiny, dataset, tmp_path):
    train(tiny, dataset, tmp_path / "frozen", start=Start(run, freeze_encoder=True))
    train(tiny, dataset, tmp_path / "free", start=Start(run))
    before, frozen, free = (
        checkpoint.read_weights(newest(path))[1] for path in (run, tmp_path / "frozen", tmp_path / "free")
    )
    for name in before:
        if name.startswith("encoder."):
            assert torch.equal(before[name], frozen[name]), name
    assert any(not torch.equal(before[name], frozen[name]) for name in before if name.startswith("transition."))
    assert any(not torch.equal(before[name], free[name]) for name in before if name.startswith("encoder."))


@pytest.mark.parametrize(
    ("freeze", "every"),
    [(False, 5), (True, 3), *(pytest.param(freeze, 1, marks=pytest.mark.full) for freeze in (False, True))],
)
def test_a_run_from_a_checkpoint_crashed_again_and_again_ends_with_the_same_bytes(
    run, tiny, dataset, tmp_path, freeze, every
):
    config, crashes = change(tiny, steps=3, save_every=1, keep=1), 0
    train(config, dataset, tmp_path / "calm", start=Start(run, freeze))
    while True:
        options = {"crash_at": crashes + 1, "half_written": crashes % 2 == 1, "start": Start(run, freeze)}
        code = trainer(config, dataset, tmp_path / "killed", **options).wait()
        if code == 0:
            break
        assert code == 99
        crashes += every  # odd: every other crash leaves a half-written file
    assert result_bytes(tmp_path / "killed") == result_bytes(tmp_path / "calm")


def test_the_lineage_is_in_run_checkpoint_and_card_and_is_handed_on(run, tiny, dataset, tmp_path):
    train(tiny, dataset, tmp_path / "child", start=Start(run))
    train(tiny, dataset, tmp_path / "grandchild", start=Start(tmp_path / "child", freeze_encoder=True))
    hashes = [checkpoint.identity(newest(path)) for path in (run, tmp_path / "child")]
    info = checkpoint.read_info(newest(tmp_path / "grandchild"))
    assert [origin.checkpoint_sha256 for origin in info.lineage] == hashes
    assert [origin.encoder_frozen for origin in info.lineage] == [False, True]
    assert checkpoint.read_run(tmp_path / "grandchild").lineage == info.lineage
    ship(tmp_path / "grandchild", tmp_path / "shipped", data=dataset.path)
    write_card(tmp_path / "shipped", tmp_path / "card.md", [])
    text = (tmp_path / "card.md").read_text()
    assert f"its encoder stayed as it was; its lineage, oldest first: `{hashes[0]}`, `{hashes[1]}`" in text
    shown = checkpoint.card(tmp_path / "grandchild")["lineage"]
    assert [origin["checkpoint_sha256"] for origin in shown] == hashes
    assert f"from {hashes[1][:12]} with its encoder frozen" in variant_of(info).departures
    assert variant_of(info).recipe_sha256 != variant_of(dataclasses.replace(info, lineage=None)).recipe_sha256


def test_what_an_ancestor_has_seen_counts_as_seen(tiny, dataset, tmp_path):
    other = Collect("two-room", tmp_path / "other", 60, seed=9, image_size=16, frame_every=5, workers=1).do()
    train(change(tiny, split="window"), other, tmp_path / "parent")
    train(tiny, dataset, tmp_path / "child", start=Start(tmp_path / "parent"))
    info = checkpoint.read_info(newest(tmp_path / "child"))
    assert "saw frames of every episode" in why_seen(info, other)
    assert why_seen(info, dataset) is None
    assert "seed 9" in why_seen(dataclasses.replace(info, lineage=None, dataset_source=other.recipe.source), other)


def test_another_model_world_or_checkpoint_is_refused(run, lewm_run, tiny, dataset, tmp_path):
    wide = dataclasses.replace(tiny, model=dataclasses.replace(tiny.model, latent_dim=8))
    with pytest.raises(
        MismatchError, match=r"another model than the run is to train \(latent_dim: expected 8, found 16"
    ):
        train(wide, dataset, tmp_path / "run", start=Start(run))
    reacher = Collect("reacher", tmp_path / "reacher", 12, image_size=16, frame_every=5, workers=1).do()
    with pytest.raises(MismatchError, match="was trained for another world: environment"):
        train(tiny, reacher, tmp_path / "run", start=Start(run))
    assert not (tmp_path / "run").exists()
    train(change(tiny, steps=1), dataset, tmp_path / "run", start=Start(run))
    with pytest.raises(MismatchError, match=r"started from checkpoint \w{12}, found fresh weights"):
        train(change(tiny, steps=1), dataset, tmp_path / "run")
    older = checkpoint.list_checkpoints(run)[0]
    with pytest.raises(MismatchError, match=r"started from checkpoint \w{12}, found checkpoint \w{12}"):
        train(change(tiny, steps=1), dataset, tmp_path / "run", start=Start(older))


def test_the_command_line_starts_from_a_checkpoint_of_any_size(run, lewm_run, dataset, tmp_path, capsys):
    """The model's sizes come from the checkpoint; no option has to repeat them."""
    words = ["--preset", "quick", "--steps", "1", "--batch-size", "8", "--json", "--out"]
    main(["train", str(dataset.path), "--from", str(run), "--freeze-encoder", *words, str(tmp_path / "run")])
    assert json.loads(capsys.readouterr().out)["step"] == 1
    job = Train.found_in(tmp_path / "run")
    assert (job.from_, job.freeze_encoder) == (run, True)
    assert parse(spell(job).split()[1:]) == job
    refused = command(tmp_path / "a", "train", dataset.path, "--from", lewm_run, *words, tmp_path / "b")
    assert refused.wait() == 2
    assert "holds lewm; say --model lewm" in refused.errors
    refused = command(tmp_path / "a", "train", dataset.path, "--freeze-encoder", *words, tmp_path / "b")
    assert refused.wait() == 2
    assert "give --from CHECKPOINT" in refused.errors
    wait_until(lambda: not (tmp_path / "b").exists())

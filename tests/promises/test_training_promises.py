"""P01-P03, P05-P07 and P10 of docs/promises.md: killed, damaged, starved, stopped and diverging training."""

import dataclasses
import errno
import os
import random
import shutil
import signal
import time

import pytest
from trainers import command, leftovers, measured_rows, result_bytes, trainer, wait_until

from saltwm.disk import checkpoint, durable
from saltwm.ground.errors import DamagedError, DiskError
from saltwm.train import train


def change(config, **options):
    return dataclasses.replace(config, train=dataclasses.replace(config.train, **options))


def assert_every_checkpoint_loads(run):
    """P02: whole or absent."""
    for path in checkpoint.list_checkpoints(run):
        checkpoint.read_checkpoint(path)
        checkpoint.load(path)


# --- P01 and P02: killed anywhere ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def three_steps(tiny):
    """Saved after each; the first is the best by validation and stays, the second is discarded for the third."""
    return change(tiny, steps=3, save_every=1, keep=1)


@pytest.fixture(scope="module")
def undisturbed(three_steps, dataset, tmp_path_factory):
    run = tmp_path_factory.mktemp("undisturbed") / "run"
    train(three_steps, dataset, run)
    return run


@pytest.fixture(scope="module")
def durable_steps(three_steps, dataset, tmp_path_factory):
    """Every durable step of an undisturbed run, in order."""
    taken = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(durable, "_before_step", lambda step, path: taken.append(step))
        train(three_steps, dataset, tmp_path_factory.mktemp("counted") / "run")
    return taken


def test_durable_steps_of_every_kind_are_counted(durable_steps):
    assert set(durable_steps) >= {"write", "replace", "append", "publish", "hide", "remove"}
    assert len(durable_steps) > 25


def test_a_run_crashed_again_and_again_at_a_later_durable_step_ends_with_the_same_bytes(
    undisturbed, three_steps, dataset, tmp_path
):
    """Each process crashes one durable step further into its work, leaving a half-written file every other time."""
    run, crashes = tmp_path / "run", 0
    while True:
        process = trainer(three_steps, dataset, run, crash_at=crashes + 1, half_written=crashes % 2 == 1)
        code = process.wait()
        assert_every_checkpoint_loads(run)
        if code == 0:
            break
        assert code == 99, process.errors
        crashes += 1
    assert crashes > 12
    assert result_bytes(run) == result_bytes(undisturbed)
    assert leftovers(run) == []


@pytest.mark.full
@pytest.mark.parametrize("half_written", [False, True])
def test_a_crash_before_any_durable_step_changes_no_byte(
    undisturbed, durable_steps, three_steps, dataset, tmp_path, half_written
):
    for at in range(1, len(durable_steps) + 1):
        run = tmp_path / f"crashed-{at}"
        crashed = trainer(three_steps, dataset, run, crash_at=at, half_written=half_written)
        assert crashed.wait() == 99, crashed.errors
        assert_every_checkpoint_loads(run)
        again = trainer(three_steps, dataset, run)
        assert again.wait() == 0, again.errors
        assert result_bytes(run) == result_bytes(undisturbed), f"crash before step {at} ({durable_steps[at - 1]})"
        assert leftovers(run) == []


@pytest.mark.parametrize("kills", [4, pytest.param(20, marks=pytest.mark.full)])
def test_training_killed_at_random_times_ends_with_the_same_bytes(tiny, dataset, tmp_path, kills):
    config = change(tiny, steps=60, validate_every=3, save_every=4)
    train(config, dataset, tmp_path / "undisturbed")
    times = random.Random(kills)
    killed, number = 0, 0
    while killed < kills:
        run = tmp_path / f"run-{number}"
        process = trainer(config, dataset, run)
        wait_until((run / "run.json").exists)
        time.sleep(times.uniform(0.0, 0.4))
        was_killed = process.kill() == -signal.SIGKILL
        killed += was_killed
        assert_every_checkpoint_loads(run)
        if not was_killed:  # it had finished
            assert result_bytes(run) == result_bytes(tmp_path / "undisturbed")
            number += 1
    train(config, dataset, run)
    assert result_bytes(run) == result_bytes(tmp_path / "undisturbed")


# --- P03: damaged checkpoints ----------------------------------------------------------------------------------------


@pytest.fixture
def finished(run, tmp_path):
    """A run of the checkpoints 4 and 6, to be damaged."""
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    for path in checkpoint.list_checkpoints(copy)[:-2]:
        shutil.rmtree(path)
    return copy


def damages(older, newer, flips):
    """(name, function that damages `newer`) for every file and kind of damage."""
    places = random.Random(0)
    for name in sorted(path.name for path in newer.iterdir()):
        file, size = newer / name, (newer / name).stat().st_size
        for keep in (0, size // 2, size - 2):  # the manifest's last byte is a line end, which nobody would miss
            yield f"{name} cut to {keep}", lambda file=file, keep=keep: os.truncate(file, keep)
        for _ in range(flips):
            byte, bit = places.randrange(size), places.randrange(8)
            yield f"{name}: bit {bit} of byte {byte}", lambda f=file, at=byte, bit=bit: flip(f, at, bit)
        yield f"{name} of the other checkpoint", lambda file=file: shutil.copy(older / file.name, file)
        yield f"{name} missing", lambda file=file: file.unlink()
    yield "a file too many", lambda: (newer / "more").write_text("x")
    yield "the other checkpoint in its place", lambda: [shutil.copy(f, newer) for f in older.iterdir()]


def flip(file, at, bit):
    data = bytearray(file.read_bytes())
    data[at] ^= 1 << bit
    file.write_bytes(data)


@pytest.mark.parametrize("flips", [5, pytest.param(200, marks=pytest.mark.full)])
def test_a_damaged_newest_checkpoint_is_always_found_and_the_previous_one_taken_aloud(finished, flips):
    older, newer = checkpoint.list_checkpoints(finished)
    whole = {path.name: path.read_bytes() for path in newer.iterdir()}
    count = 0
    for name, damage in damages(older, newer, flips):
        damage()
        said = []
        assert checkpoint.newest_readable(finished, said.append) == older, name
        assert said[0].startswith("skipping step-000006"), name
        shutil.rmtree(newer)
        newer.mkdir()
        for file, data in whole.items():
            (newer / file).write_bytes(data)
        assert checkpoint.newest_readable(finished, said.append) == newer, f"a false alarm after {name}"
        count += 1
    assert count == 4 * (5 + flips) + 2


def test_without_a_readable_checkpoint_training_refuses_to_start_afresh(finished, tiny, dataset):
    for path in checkpoint.list_checkpoints(finished):
        os.truncate(path / checkpoint.WEIGHTS_FILE, 100)
    before = sorted(finished.rglob("*"))
    with pytest.raises(DamagedError, match="none of its 2 checkpoints is readable; nothing was changed"):
        train(tiny, dataset, finished)
    assert sorted(finished.rglob("*")) == before


# --- P05: a full disk ------------------------------------------------------------------------------------------------


@pytest.fixture
def at_step_4(finished):
    shutil.rmtree(checkpoint.list_checkpoints(finished)[-1])
    return finished


@pytest.mark.parametrize("limits", [6, pytest.param(40, marks=pytest.mark.full)])
def test_a_full_disk_costs_nothing_that_was_saved(run, at_step_4, tiny, dataset, limits):
    """The largest file that may be written grows from nothing to one byte less than is needed."""
    largest = max(file.stat().st_size for file in checkpoint.list_checkpoints(run)[-1].iterdir())
    for index in range(limits):
        limit = round((largest - 1) * (index / (limits - 1)) ** 2)
        process = trainer(tiny, dataset, at_step_4, file_bytes=limit)
        assert process.wait() == 7, (limit, process.errors)
        assert str(at_step_4) in process.errors
        assert "bytes" in process.errors
        assert "Traceback" not in process.errors
        assert leftovers(at_step_4) == []
        assert [path.name for path in checkpoint.list_checkpoints(at_step_4)] == ["step-000004"]
        assert_every_checkpoint_loads(at_step_4)
    train(tiny, dataset, at_step_4)
    assert result_bytes(at_step_4) == result_bytes(run)


def test_a_disk_that_is_full_at_any_durable_step_ends_the_run_cleanly(
    undisturbed, durable_steps, three_steps, dataset, tmp_path, monkeypatch
):
    run = tmp_path / "run"
    for at in range(1, len(durable_steps), 3):
        left = at

        def fail(step, path):
            nonlocal left
            left -= 1
            if left == 0:
                raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(durable, "_before_step", fail)
        with pytest.raises(DiskError, match=r"No space left on device; what was saved is intact"):
            train(three_steps, dataset, run)
        monkeypatch.setattr(durable, "_before_step", lambda step, path: None)
        assert [path for path in leftovers(run) if "-old-" not in path.name] == []
        assert_every_checkpoint_loads(run)
        shutil.rmtree(run)


# --- P06: stopped ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("signals", [4, pytest.param(20, marks=pytest.mark.full)])
def test_a_stopped_run_saves_within_a_step_and_ends_with_the_same_bytes(dataset, tmp_path, signals):
    words = ("--preset", "quick", "--latent-dim", 16, "--batch-size", 8, "--verify", "sizes")
    words += ("--validate-every", 1, "--save-every", 50, "--steps", 12 * signals)
    undisturbed = command(tmp_path / "undisturbed", "train", dataset.path, "--out", tmp_path / "undisturbed", *words)
    assert undisturbed.wait(400) == 0, undisturbed.errors
    times, run = random.Random(signals), tmp_path / "run"
    for index in range(signals):
        number = (signal.SIGINT, signal.SIGTERM)[index % 2]
        before = measured_rows(run)
        process = command(run, "train", dataset.path, "--out", run, *words)
        wait_until(lambda before=before: measured_rows(run) > before + times.randrange(4))
        seen = measured_rows(run)
        process.send(number)
        assert process.wait() == 128 + number, process.errors
        assert "saved; the same command goes on" in process.errors
        step = checkpoint.read_info(checkpoint.newest_readable(run, print)).step
        assert seen <= step <= seen + 2, "one step was under way, and one may have begun before the signal came"
    last = command(run, "train", dataset.path, "--out", run, *words)
    assert last.wait(400) == 0, last.errors
    assert result_bytes(run) == result_bytes(tmp_path / "undisturbed")


def test_a_stop_before_the_first_step_leaves_a_run_that_can_be_started(undisturbed, three_steps, dataset, tmp_path):
    words = ("train", dataset.path, "--out", tmp_path / "run", "--preset", "quick", "--steps", 2, "--batch-size", 8)
    process = command(tmp_path / "run", *words)
    wait_until((tmp_path / "run").exists)
    process.send(signal.SIGTERM)
    assert process.wait() in (143, 0), process.errors
    assert "Traceback" not in process.errors
    again = command(tmp_path / "run", *words)
    assert again.wait() == 0, again.errors


# --- P07: one writer -------------------------------------------------------------------------------------------------


def test_a_second_trainer_is_refused_by_name_and_after_a_kill_the_next_just_works(
    undisturbed, tiny, three_steps, dataset, tmp_path
):
    run = tmp_path / "run"
    endless = change(tiny, steps=100_000, save_every=100_000)
    first = trainer(endless, dataset, run)
    wait_until(lambda: measured_rows(run) >= 1)
    second = trainer(endless, dataset, run)
    assert second.wait() == 5
    assert f"in use by saltwm train (process {first.pid} on " in second.errors
    assert first.process.is_alive()
    first.send(signal.SIGKILL)
    first.wait()
    third = trainer(endless, dataset, run)
    rows = measured_rows(run)
    wait_until(lambda: measured_rows(run) > rows or not third.process.is_alive())
    third.send(signal.SIGTERM)
    assert third.wait() == 143, third.errors


# --- P10: sick runs --------------------------------------------------------------------------------------------------


def test_an_infinity_at_step_37_stops_there_with_the_last_checkpoint_intact(tiny, dataset, tmp_path):
    config = change(tiny, steps=60, validate_every=20, save_every=4)
    train(config, dataset, tmp_path / "healthy")
    process = trainer(config, dataset, tmp_path / "run", infinite_at=37)
    assert process.wait() == 4
    assert "step 37: loss is inf" in process.errors
    assert [path.name for path in checkpoint.list_checkpoints(tmp_path / "run")][-1] == "step-000036"
    assert_every_checkpoint_loads(tmp_path / "run")
    train(config, dataset, tmp_path / "run")  # the infinity was a fault of the moment
    assert result_bytes(tmp_path / "run") == result_bytes(tmp_path / "healthy")


def test_a_learning_rate_of_a_million_ends_with_exit_code_4_and_no_sick_checkpoint(dataset, tmp_path):
    words = ("--preset", "quick", "--latent-dim", 16, "--batch-size", 8, "--steps", 200, "--save-every", 1)
    process = command(
        tmp_path / "run", "train", dataset.path, "--out", tmp_path / "run", *words, "--learning-rate", "1e6"
    )
    assert process.wait() == 4
    assert "the last checkpoint is intact" in process.errors
    for path in checkpoint.list_checkpoints(tmp_path / "run"):
        _, weights, _ = checkpoint.read_checkpoint(path)
        assert all(tensor.isfinite().all() for tensor in weights.values())


def test_a_run_without_sigreg_collapses_and_warns_while_one_with_it_does_not(tiny, dataset, tmp_path, capsys):
    config = change(tiny, batch_size=16, steps=60, validate_every=20, save_every=60, learning_rate=3e-3)
    train(config, dataset, tmp_path / "healthy")
    assert "collapsing" not in capsys.readouterr().err
    alone = dataclasses.replace(config, objective=dataclasses.replace(config.objective, sigreg_weight=0.0))
    train(alone, dataset, tmp_path / "collapsed")
    assert capsys.readouterr().err.count("collapsing") == 1

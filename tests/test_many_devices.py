"""Training on two real processes: the same curve as one, one writer, and a dead or silent process ends the run."""

import contextlib
import dataclasses
import os
import signal
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from commands import saltwm
from processes import children_of, is_gone
from trainers import measured_rows, pair, trainer, wait_until

from saltwm.disk import checkpoint, durable
from saltwm.ground.errors import UsageError
from saltwm.ground.rng import torch_stream
from saltwm.losses.sigreg import draw_projections
from saltwm.model.world_model import WorldModel
from saltwm.objective import training_loss
from saltwm.processes.launch import Devices, Siblings
from saltwm.train import make_windows, train


def change(config, **options):
    return dataclasses.replace(config, train=dataclasses.replace(config.train, **options))


def losses(run):
    return [row["loss"] for row in durable.read_json_lines(run / "metrics.jsonl")]


# --- the same training -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def twenty_steps(tiny):
    """Every step measured; in float64, so that only a difference in what is computed would show."""
    return change(tiny, steps=20, validate_every=1, save_every=10, precision="64-true")


@pytest.fixture(scope="module")
def one(twenty_steps, dataset, tmp_path_factory):
    """Twenty steps on one process."""
    run = tmp_path_factory.mktemp("one") / "run"
    train(twenty_steps, dataset, run)
    return run


@pytest.fixture(scope="module")
def two(twenty_steps, dataset, tmp_path_factory):
    """The same on two."""
    run = tmp_path_factory.mktemp("two") / "run"
    both = pair(twenty_steps, dataset, run)
    assert [process.wait() for process in both] == [0, 0], both[0].errors
    return run


def test_two_processes_train_to_the_loss_curve_of_one(one, two):
    """1e-4 is promised; the order of sums alone leaves the last digit of the float32 that Fabric returns."""
    assert losses(two) == pytest.approx(losses(one), rel=1e-6)
    assert len(losses(one)) == 20
    assert losses(one)[-1] < 0.95 * losses(one)[0], "nothing was learnt, so nothing was compared"


def test_every_measured_value_is_that_of_the_global_batch(one, two):
    alone, shared = (durable.read_json_lines(run / "metrics.jsonl") for run in (one, two))
    for row, expected in zip(shared, alone, strict=True):
        assert row == pytest.approx(expected, rel=1e-5)


def test_two_processes_leave_the_weights_of_one(one, two):
    found, expected = (
        checkpoint.read_tensors(checkpoint.list_checkpoints(run)[-1] / "weights.safetensors") for run in (two, one)
    )
    assert all((found[name] - expected[name]).abs().max() < 1e-9 for name in expected)


def test_in_single_precision_the_curves_agree_at_the_papers_learning_rate(tiny, dataset, tmp_path):
    """At larger rates AdamW turns rounding into steps of full size where a gradient is nearly zero."""
    config = change(tiny, steps=20, validate_every=1, save_every=20, learning_rate=5e-5)
    train(config, dataset, tmp_path / "one")
    assert [process.wait() for process in pair(config, dataset, tmp_path / "two")] == [0, 0]
    assert losses(tmp_path / "two") == pytest.approx(losses(tmp_path / "one"), rel=1e-4)


def test_another_number_of_processes_goes_on_with_a_run_and_says_so(one, twenty_steps, dataset, tmp_path, capsys):
    """Cut after 10 steps by two processes, finished by one."""
    run = tmp_path / "handed-over"
    both = pair(twenty_steps, dataset, run)
    wait_until((run / "checkpoints" / "step-000010").exists)
    for process in both:
        process.send(signal.SIGKILL)
    assert [process.wait() for process in both] == [-signal.SIGKILL] * 2
    train(twenty_steps, dataset, run)
    assert "resuming on 1 process(es) what 2 began" in capsys.readouterr().err
    assert losses(run) == pytest.approx(losses(one), rel=1e-6)


@pytest.mark.parametrize("model", ["salt", "lewm"])
@pytest.mark.parametrize("objective", ["rollout", "one-step"])
def test_every_parameter_has_a_gradient_so_that_processes_can_average_them(tiny, dataset, model, objective):
    """Data-parallel training fails on a parameter that a forward pass leaves out."""
    windows = make_windows(tiny, dataset)
    batch = windows.batch(windows.train[:4])
    world_model = WorldModel(dataclasses.replace(tiny.model, model=model), dataset.world)
    aim = dataclasses.replace(tiny.objective, objective=objective)
    projections = draw_projections(tiny.model.latent_dim, 8, torch_stream(0, "projections", 0))
    frames, actions = torch.from_numpy(batch.frames), torch.from_numpy(batch.actions)
    training_loss(world_model, frames, actions, aim, projections).total.backward()
    assert [name for name, parameter in world_model.named_parameters() if parameter.grad is None] == []


# --- what goes wrong -------------------------------------------------------------------------------------------------


@pytest.fixture
def endless(tiny):
    return change(tiny, steps=100_000, validate_every=5, save_every=5)


def test_a_silent_process_ends_the_run_after_the_timeout(endless, dataset, tmp_path):
    """As if the cable had been pulled: connected, alive, and never answering."""
    main, other = pair(endless, dataset, tmp_path / "run", timeout_seconds=3.0)
    wait_until(lambda: measured_rows(tmp_path / "run") >= 2)
    other.send(signal.SIGSTOP)
    assert main.wait(30) == 1
    assert "a process stopped answering, so training ended; what was saved is intact" in main.errors
    other.send(signal.SIGKILL)
    other.wait()


def test_when_the_main_process_dies_the_others_end_with_one_line(endless, dataset, tmp_path):
    main, other = pair(endless, dataset, tmp_path / "run")
    wait_until(lambda: measured_rows(tmp_path / "run") >= 2)
    main.send(signal.SIGKILL)
    assert other.wait(30) == 1
    assert other.errors.strip() == "process 1 lost the others and ends"
    assert checkpoint.newest_readable(tmp_path / "run", print) or measured_rows(tmp_path / "run") < 3


def test_a_divergence_ends_all_processes_at_the_same_step_and_is_reported_once(endless, dataset, tmp_path):
    main, other = pair(change(endless, learning_rate=1e6), dataset, tmp_path / "run")
    assert (main.wait(), other.wait()) == (4, 0)
    assert "the last checkpoint is intact" in main.errors
    assert other.errors == ""


def test_two_processes_are_one_writer(endless, dataset, tmp_path):
    first = pair(endless, dataset, tmp_path / "run")
    wait_until(lambda: measured_rows(tmp_path / "run") >= 1)
    second = trainer(endless, dataset, tmp_path / "run")
    assert second.wait() == 5
    assert f"in use by saltwm train (process {first[0].pid}" in second.errors
    first[1].send(signal.SIGTERM)  # a signal to any one of them stops all
    assert (first[0].wait(), first[1].wait()) == (143, 0)
    assert first[0].errors.count("stopped at step") == 1


# --- as a user starts it ---------------------------------------------------------------------------------------------

SMALL = "--preset quick --latent-dim 16 --batch-size 8 --validate-every 5 --verify sizes --accelerator cpu".split()  # noqa: SIM905


def start(dataset, out, *options, launcher=("-m", "saltwm")):
    words = [sys.executable, *launcher, "train", dataset.path, "--out", out, *SMALL, *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(list(map(str, words)), env=environment, start_new_session=True, **pipes)


def finish(process, seconds=120):
    """Exit code, output and errors; what is left of its group is ended."""
    try:
        out, err = process.communicate(timeout=seconds)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    return process.returncode, out, err


@pytest.fixture
def two_devices(dataset, tmp_path):
    """`saltwm train --devices 2`, some steps into a run of hours."""
    process = start(dataset, tmp_path / "run", "--steps", 100_000, "--save-every", 5, "--devices", 2)
    try:
        wait_until(lambda: measured_rows(tmp_path / "run") >= 3 or process.poll() is not None, seconds=200)
        assert process.poll() is None, process.communicate()[1]
        yield tmp_path / "run", process, children_of(process.pid)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        finish(process, 10)


def test_a_killed_process_ends_the_run_with_its_name(two_devices):
    run, process, (child,) = two_devices
    os.kill(child, signal.SIGKILL)
    code, _, err = finish(process)  # the main process has GRACE_SECONDS to notice it by itself
    assert code == 1
    assert err == (
        "saltwm: process 1 was killed by SIGKILL, so training ended; what was saved is intact, "
        "the same command goes on from there\n"
    )
    assert checkpoint.read_info(checkpoint.newest_readable(run, print)).step >= 5


def test_nothing_listens_beyond_this_machine_and_ctrl_c_stops_all_processes_together(two_devices):
    run, process, (child,) = two_devices
    addresses = [address for pid in (process.pid, child) for address in listening_addresses(pid)]
    assert addresses, "connected processes must listen somewhere"
    assert set(addresses) <= {"127.0.0.1", "::1"}
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    code, _, err = finish(process)
    assert code == 130
    assert err.count("\n") == err.count("stopped at step") == 1
    assert is_gone(child)
    assert checkpoint.newest_readable(run, print) is not None


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.full)])
def test_a_stop_while_the_processes_are_starting_is_one_line(dataset, tmp_path, number):
    """The signal hits the second process among its imports, where it would end with a traceback of its own."""
    process = start(dataset, tmp_path / "run", "--steps", 100_000, "--devices", 2)
    try:
        wait_until(lambda: children_of(process.pid) or process.poll() is not None, seconds=120)
        (child,) = children_of(process.pid)
        os.killpg(process.pid, number)  # as a terminal does, or a cluster
        wait_until(lambda: process.poll() is not None)
        assert is_gone(child)
    finally:
        code, _, err = finish(process, 60)
    assert code == 128 + number
    assert err == "saltwm: stopped; nothing that was finished is lost, the same command goes on\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.full)])
def test_a_wait_for_machines_that_never_come_can_be_stopped(dataset, tmp_path, number):
    process = start(dataset, tmp_path / "run", "--steps", 5, "--num-nodes", 2, "--timeout", 300)
    try:
        wait_until(lambda: any(listening_addresses(process.pid)) or process.poll() is not None, seconds=120)
        process.send_signal(number)
    finally:
        code, _, err = finish(process, 60)
    assert code == 128 + number
    assert err == "saltwm: stopped while waiting for the other processes\n"


def test_a_stop_before_the_command_is_imported_is_one_line():
    """`raise_signal` in a module that the command line imports stands for a Ctrl-C at that moment."""
    program = (
        "import signal, sys\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'saltwm.cli': signal.raise_signal(signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "from saltwm.__main__ import main\n"
        "main()\n"
    )
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert process.returncode == 130
    assert process.stderr == "saltwm: stopped before it began\n"


@pytest.mark.full
def test_a_process_that_dies_while_starting_is_named(dataset, tmp_path):
    process = start(dataset, tmp_path / "run", "--steps", 100_000, "--devices", 2)
    wait_until(lambda: children_of(process.pid) or process.poll() is not None, seconds=120)
    os.kill(children_of(process.pid)[0], signal.SIGKILL)
    code, _, err = finish(process)
    assert code == 1
    assert err.startswith("saltwm: process 1 was killed by SIGKILL, so training ended")
    assert err.count("\n") == 1


def listening_addresses(pid):
    """Addresses of a process's sockets in state LISTEN, by the kernel's tables."""
    inodes = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile: the process is running
            target = os.readlink(descriptor)
            if target.startswith("socket:["):
                inodes.add(target[8:-1])
    for table, family, words in (("tcp", socket.AF_INET, 1), ("tcp6", socket.AF_INET6, 4)):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                packed = struct.pack(f"<{words}I", *(int(fields[1][8 * i : 8 * i + 8], 16) for i in range(words)))
                yield socket.inet_ntop(family, packed)


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf"), 1e300])
def test_a_time_that_nobody_can_wait_is_refused_before_anything_starts(tiny, dataset, tmp_path, seconds):
    with pytest.raises(UsageError, match=r"`timeout` .*: seconds above 0 are needed"):
        train(tiny, dataset, tmp_path / "run", Devices("cpu", timeout_seconds=seconds))
    assert not (tmp_path / "run").exists()


def test_a_batch_that_cannot_be_shared_is_refused_before_anything_starts(dataset, tmp_path):
    words = ["train", dataset.path, "--out", tmp_path / "run", *SMALL, "--batch-size", 9, "--devices", 2]
    code, _, err = saltwm(*words, check=False)
    assert code == 2
    assert err == "saltwm: a batch of 9 windows cannot be shared evenly by 2 processes\n"
    assert not (tmp_path / "run").exists()


@pytest.mark.full
def test_torchrun_decides_the_number_of_processes(dataset, tmp_path):
    launcher = ("-m", "torch.distributed.run", "--nproc_per_node", "2", "-m", "saltwm")
    code, out, err = finish(start(dataset, tmp_path / "run", "--steps", 5, "--json", launcher=launcher))
    assert code == 0, err
    assert out.count('"step": 5') == 1
    assert durable.read_json_lines(tmp_path / "run" / "timing.jsonl")[-1]["processes"] == 2


def test_the_main_process_is_ended_if_it_does_not_notice_a_death_itself():
    """It may be waiting for a connection that will never come."""
    program = (
        "import subprocess, sys, time\n"
        "from saltwm.processes.launch import Siblings\n"
        "Siblings({1: subprocess.Popen([sys.executable, '-c', 'raise SystemExit(3)'])}, grace_seconds=0.2)\n"
        "time.sleep(100)\n"
    )
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert process.returncode == 1
    assert "process 1 ended with exit code 3, so training ended" in process.stderr


def test_siblings_that_end_well_are_not_dead():
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    siblings = Siblings({1: process})
    assert siblings.dead() is None
    siblings.end(wait_seconds=1.0)

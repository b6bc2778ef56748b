"""Trainers as processes of their own, for tests that kill, stop, starve or connect them."""

import itertools
import os
import resource
import socket
import sys
import time

from forked import FORKSERVER, hear_signals

from saltwm.disk import checkpoint, durable
from saltwm.ground.errors import SaltError

_numbers = itertools.count()


class Trainer:
    """A training process; `errors` is what it wrote to standard error."""

    def __init__(self, target, arguments, folder, environment=None):
        folder.mkdir(exist_ok=True)
        self._log = folder / f"{next(_numbers)}.txt"
        self.process = FORKSERVER.Process(target=_enter, args=(self._log, environment or {}, target, arguments))
        self.process.start()
        self.pid = self.process.pid

    @property
    def errors(self):
        return self._log.read_text() if self._log.exists() else ""

    def wait(self, seconds=60.0):
        """Exit code; negative for a signal."""
        self.process.join(seconds)
        if self.process.exitcode is None:
            self.process.kill()
            self.process.join()
            raise AssertionError(f"still running after {seconds} s: {self.errors}")
        return self.process.exitcode

    def send(self, number):
        os.kill(self.pid, number)

    def kill(self):
        """Kill it unless it has ended; its exit code."""
        self.process.kill()
        return self.wait()


def trainer(config, dataset, out, **options):
    """`saltwm.train.train` in a process; SaltErrors become exit codes as on the command line."""
    return Trainer(_train, (config, dataset.path, out, options), _logs(out))


def command(out, *words):
    """`saltwm ...` in a process, through the command line's own entry."""
    return Trainer(_command, ([str(word) for word in words],), _logs(out))


def pair(config, dataset, out, timeout_seconds=60.0):
    """Two processes of one training, told of each other as torchrun tells them."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    shared |= {"TORCHELASTIC_RUN_ID": "test", "GLOO_SOCKET_IFNAME": "lo", "GROUP_RANK": "0"}
    options = {"timeout_seconds": timeout_seconds}
    arguments = (config, dataset.path, out, options)
    return [
        Trainer(_train, arguments, _logs(out), shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)})
        for rank in range(2)
    ]


def _logs(out):
    out.parent.mkdir(parents=True, exist_ok=True)
    return out.parent / f"{out.name}-errors"


# --- inside the process ----------------------------------------------------------------------------------------------


def _enter(log, environment, target, arguments):
    import torch

    torch.set_num_threads(1)
    os.environ.update(environment)
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    hear_signals()
    target(*arguments)


def _command(words):
    from saltwm.cli import main

    sys.argv = ["saltwm", *words]
    main(words)


def _train(config, data, out, options):
    from saltwm.disk.dataset import Dataset
    from saltwm.processes.launch import Devices
    from saltwm.train import train

    dataset = Dataset.open(data, verify="sizes")
    _arm(options)
    devices = Devices("cpu", timeout_seconds=options.get("timeout_seconds", 600.0))
    try:
        train(config, dataset, out, devices, start=options.get("start"))
    except SaltError as error:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        print(error, file=sys.stderr, flush=True)  # into a file, which the limit must not keep from being written
        sys.exit(error.exit_code)


def _arm(options):
    """Prepare the fault that a test asks for."""
    if "crash_at" in options:
        durable._before_step = Crash(options["crash_at"], options["half_written"])
    if "infinite_at" in options:
        _make_a_loss_infinite(options["infinite_at"])
    if "file_bytes" in options:  # writing beyond it fails as on a full disk; the signal is ignored by Python
        resource.setrlimit(resource.RLIMIT_FSIZE, (options["file_bytes"], resource.RLIM_INFINITY))


def _make_a_loss_infinite(step):
    from saltwm import train

    original, calls = train.training_loss, itertools.count(1)

    def training_loss(*arguments):
        losses = original(*arguments)
        return losses._replace(total=losses.total * float("inf")) if next(calls) == step else losses

    train.training_loss = training_loss


class Crash:
    """Ends the process before its n-th durable step, leaving a half-written file if asked to."""

    def __init__(self, at, half_written):
        self.left = at
        self.half_written = half_written

    def __call__(self, step, path):
        self.left -= 1
        if self.left:
            return
        if self.half_written:
            _write_half(step, path)
        os._exit(99)


def _write_half(step, path):
    temporary = next(path.parent.glob(f"{durable.TMP_PREFIX}*-{path.name}"), durable.temporary_beside(path))
    if step == "append":
        with open(path, "a") as file:
            file.write('{"step": 3, "lo')
    elif step == "write":
        temporary.write_bytes(b"half of wh")
    elif step == "replace":
        os.truncate(temporary, temporary.stat().st_size // 2)
    elif step == "publish":
        file = temporary / checkpoint.WEIGHTS_FILE
        os.truncate(file, file.stat().st_size // 2)


# --- looking at runs -------------------------------------------------------------------------------------------------


def result_bytes(run):
    """Hashes of weights, optimiser and metrics of a finished run."""
    newest = checkpoint.list_checkpoints(run)[-1]
    files = [newest / checkpoint.WEIGHTS_FILE, newest / checkpoint.OPTIMIZER_FILE, run / "metrics.jsonl"]
    return [durable.sha256(file) for file in files]


def measured_rows(run):
    """Whole lines of the run's metrics."""
    file = run / "metrics.jsonl"
    return file.read_text().count("\n") if file.exists() else 0


def leftovers(run):
    """Files that only a crash may leave."""
    return list(run.rglob(f"{durable.TMP_PREFIX}*"))


def wait_until(condition, seconds=60.0):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "waited too long"
        time.sleep(0.01)

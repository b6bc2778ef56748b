"""Two processes that share one batch, as two devices do."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np


@contextlib.contextmanager
def joined(rank, store):
    """In one of the processes: both know each other, until the end."""
    from torch import distributed

    distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    yield distributed
    distributed.destroy_process_group()


def results_of_two(script, folder):
    """The arrays [{name: array}] * 2 that two processes of `script RANK STORE OUT` save, which share one batch."""
    # Whoever tests a copy of the package has it on the path: it must come along, or the installed one is tested.
    paths = os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": paths}
    command = [sys.executable, str(Path(script).resolve())]
    started = [
        subprocess.Popen([*command, str(rank), str(folder / "store"), str(folder / f"{rank}.npz")], env=environment)
        for rank in range(2)
    ]
    try:
        assert [process.wait(timeout=120) for process in started] == [0, 0]
    finally:
        for process in started:
            process.kill()
            process.wait()
    return [dict(np.load(folder / f"{rank}.npz")) for rank in range(2)]

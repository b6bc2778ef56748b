"""Memory that the system refuses ends a verb with one line that names what was asked for."""

import resource
import subprocess
import sys

import numpy as np
import pytest

from saltwm.ground.errors import out_of_memory

LIMIT = 6 * 2**30


def limited(*words):
    """`saltwm ...` in a process that may not have more than LIMIT bytes of addresses."""
    return subprocess.run(
        [sys.executable, "-m", "saltwm", *words],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (LIMIT, LIMIT)),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_worker_that_is_refused_memory_says_how_much_it_wanted_and_shows_no_traceback(run, dataset, tmp_path):
    planner = ["--planner", "cem,candidates=100000000,elites=10"]
    tasks = ["--data", dataset.path, "--protocol", "paper", "--tasks", "1", "--workers", "1", "--pictures", "0"]
    ended = limited("evaluate", run, *tasks, *planner, "--out", tmp_path / "results")
    assert ended.returncode == 1
    (line,) = [line for line in ended.stderr.splitlines() if line.startswith("saltwm: ")]
    assert line.startswith("saltwm: out of memory: a request of 20000000000 bytes was refused; ask for less")
    assert "Traceback" not in ended.stderr


def test_numpy_and_python_are_understood_too():
    with pytest.raises(MemoryError) as refused:
        np.empty((10**6, 10**9))
    assert "a request of 7.11 PiB was refused" in str(out_of_memory(refused.value))
    assert "a request was refused" in str(out_of_memory(MemoryError()))


def test_another_error_is_not_taken_for_a_lack_of_memory():
    assert out_of_memory(RuntimeError("shapes do not fit")) is None

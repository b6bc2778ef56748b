import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "report"))
sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))
from exploring import ROOT, exploring

from saltwm.explore.desk import Desk
from saltwm.explore.folders import find_places

SHIPPED = [ROOT / "checkpoints" / name for name in ("two-room-salt", "two-room-lewm", "two-room-data")]


@pytest.fixture(scope="session")
def results(tmp_path_factory):
    """Three cells of the shipped results: SALT and LeWM on the same tasks, and SALT on the authors'."""
    import shutil

    root = tmp_path_factory.mktemp("shipped") / "results"
    for name in ("two-room-salt-clean-seed1", "two-room-lewm-clean-seed1", "two-room-salt-paper-seed1"):
        shutil.copytree(ROOT / "results/evaluations" / name, root / "evaluations" / name)
    (root / "tasks").mkdir()
    for protocol in ("clean", "paper"):
        shutil.copy(ROOT / f"results/tasks/two-room-{protocol}-seed1.json", root / "tasks")
    return root


@pytest.fixture(scope="session")
def desk(results):
    """The worker's desk in this process, for what needs no server."""
    return Desk(find_places([*SHIPPED, results]))


@pytest.fixture(scope="session")
def running(results):
    """A server for all tests that leave it as they found it."""
    with exploring(*SHIPPED, results) as server:
        yield server

import shutil
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
    """Two cells of the shipped results: SALT and LeWM on the same tasks."""
    root = tmp_path_factory.mktemp("shipped") / "results"
    return shipped_cells(root, "clean", "two-room-salt-clean-seed1", "two-room-lewm-clean-seed1")


@pytest.fixture(scope="session")
def authors(tmp_path_factory):
    """One cell of the shipped results: SALT under the authors' protocol."""
    return shipped_cells(tmp_path_factory.mktemp("shipped") / "authors", "paper", "two-room-salt-paper-seed1")


def shipped_cells(root, protocol, *names):
    """A results folder with these cells and their tasks."""
    for name in names:
        shutil.copytree(ROOT / "results/evaluations" / name, root / "evaluations" / name)
    (root / "tasks").mkdir()
    shutil.copy(ROOT / f"results/tasks/two-room-{protocol}-seed1.json", root / "tasks")
    return root


@pytest.fixture(scope="session")
def desk(results, authors):
    """The worker's desk in this process, for what needs no server."""
    return Desk(find_places([*SHIPPED, results, authors]))


@pytest.fixture(scope="session")
def running(results, authors):
    """A server for all tests that leave it as they found it."""
    with exploring(*SHIPPED, results, authors) as server:
        yield server

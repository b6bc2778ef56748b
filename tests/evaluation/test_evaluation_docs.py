"""The code in docs/evaluation.md runs as it stands there."""

import re
from pathlib import Path

import numpy as np
import pytest

from saltwm import Agent, load
from saltwm.disk.records import read_cells
from saltwm.planning.own import name_planner

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs" / "evaluation.md"
BLOCKS = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, dataset, run):
    """A folder laid out as the page assumes."""
    root = tmp_path_factory.mktemp("docs")
    (root / "data").mkdir()
    (root / "runs").mkdir()
    (root / "data" / "two-room").symlink_to(dataset.path)
    (root / "runs" / "two-room-salt").symlink_to(run)
    return root


def test_the_policy_s_example_runs_and_its_method_is_in_the_records(folder, monkeypatch):
    monkeypatch.chdir(folder)
    exec(compile(BLOCKS[0], str(DOCS), "exec"), {})
    found = {cell.evaluation.method: cell.evaluation for cell in read_cells(folder / "work" / "results")}
    assert found["still"].success.n == 20


def test_the_planner_s_example_is_found_by_its_name_and_acts(folder, monkeypatch):
    monkeypatch.chdir(folder)
    (folder / "shooting.py").write_text(BLOCKS[1])
    agent = Agent(load("runs/two-room-salt"), name_planner("shooting:shooting"), look_every=1)
    frame = np.zeros((agent.model.world.image_size,) * 2 + (3,), np.uint8)
    agent.reset(frame)
    assert agent.act(frame).shape == (2,)


def test_the_adapter_s_example_gives_a_cost_per_candidate(monkeypatch):
    monkeypatch.chdir(ROOT)
    names = {}
    exec(compile(BLOCKS[2], str(DOCS), "exec"), names)
    assert names["costs"].shape == (1, 300)


def test_the_page_has_no_other_code():
    assert len(BLOCKS) == 3

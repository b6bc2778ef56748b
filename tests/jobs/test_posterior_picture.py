"""The picture of a plan shows the numbers that planning used and the world gave."""

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "pictures"))

from draw_posterior import picture_plan

from saltwm.ground.config import MapConfig, PriorConfig
from saltwm.ground.errors import UsageError
from saltwm.jobs.evaluate import Evaluate, settle
from saltwm.jobs.prior_learner import learn_prior


@pytest.fixture(scope="module")
def planned(run, dataset, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pictured")
    shutil.copytree(run, folder / "run")
    learn_prior(folder / "run", dataset, PriorConfig(width=24, depth=1, batch_size=64, steps=5))
    settled = settle(Evaluate("random", data=dataset.path, tasks=2), folder / "results")
    return folder / "run", settled.job.task_set


def test_it_shows_the_prior_the_plan_and_what_happened(planned, tmp_path):
    run, tasks = planned
    found = picture_plan(run, tasks, 1, tmp_path / "plan.svg")
    assert found.prior_mean.shape == found.prior_std.shape == found.planned.shape == (25, 2)
    assert found.prior_predicted.shape == (40, 6)
    # All of them begin at the same frame, and a plan is better than most draws by the model's own account.
    np.testing.assert_allclose(found.prior_predicted[:, 0], found.plan_predicted[0], rtol=1e-5)
    np.testing.assert_allclose(found.happened[0], found.plan_predicted[0], rtol=1e-4)
    assert found.plan_predicted[-1] <= np.median(found.prior_predicted[:, -1])
    text = (tmp_path / "plan.svg").read_text()
    assert text.startswith("<svg")
    assert "<script" not in text


def test_the_same_plan_is_the_same_picture_and_another_price_is_not(planned, tmp_path):
    run, tasks = planned
    for name, config in (("a", None), ("b", None), ("c", MapConfig(w=1e9))):
        picture_plan(run, tasks, 0, tmp_path / name, config)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert (tmp_path / "a").read_bytes() != (tmp_path / "c").read_bytes()


def test_a_task_that_is_not_there_is_refused(planned, tmp_path):
    run, tasks = planned
    with pytest.raises(UsageError, match="tasks 0 to 1"):
        picture_plan(run, tasks, 2, tmp_path / "plan.svg")

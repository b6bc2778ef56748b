"""Protocols: what varies is in the name, the paper's draw and its fix differ, long tasks end within their budget."""

import dataclasses

import numpy as np
import pytest

from saltwm.disk.records import read_cell, read_tasks
from saltwm.evaluation.protocols import PROTOCOLS, protocol_for
from saltwm.evaluation.tasks import choose_tasks
from saltwm.ground.config import CEMConfig, GaussNewtonConfig
from saltwm.ground.errors import UsageError
from saltwm.jobs.evaluate import Evaluate, evaluate_policy, settle
from saltwm.planning.names import planner_named, planner_text
from saltwm.planning.policy import RandomPolicy


def test_a_variation_has_a_name_of_its_own():
    assert protocol_for("clean") == PROTOCOLS["clean"]
    held = protocol_for("clean", hold_steps=3)
    assert (held.name, held.hold_steps) == ("clean-hold3", 3)
    assert protocol_for("paper", last_start=True, hold_steps=2).name == "paper-len-hold2"


def test_variations_that_mean_nothing_are_refused():
    with pytest.raises(UsageError, match="for paper and long"):
        protocol_for("clean", last_start=True)
    with pytest.raises(UsageError, match="at least 1 step"):
        protocol_for("clean", hold_steps=0)
    with pytest.raises(UsageError, match="cannot be held for 51 steps: protocol 'clean' ends an episode after 50"):
        protocol_for("clean", hold_steps=51)
    with pytest.raises(UsageError, match="did you mean 'paper'"):
        protocol_for("papr")


def test_the_later_fix_draws_among_one_start_more(dataset):
    """The same seed then picks other rows: the two variants' results are not comparable task by task."""
    rows = [(e, s) for e, length in enumerate(dataset.lengths.tolist()) for s in range(length + 1 - 25)]
    drawn = np.sort(np.random.default_rng(3).choice(len(rows), size=12, replace=False))
    fixed = choose_tasks(dataset, protocol_for("paper", last_start=True), 12, 3)
    assert [(task.episode, task.start_step) for task in fixed.tasks] == [rows[index] for index in drawn]
    as_published = choose_tasks(dataset, protocol_for("paper"), 12, 3)
    assert fixed.sha256 != as_published.sha256


def test_only_the_fix_can_draw_the_last_start(dataset):
    total = int((dataset.lengths + 1 - 25).clip(min=0).sum())
    assert len(choose_tasks(dataset, protocol_for("paper", last_start=True), total, 1).tasks) == total
    with pytest.raises(UsageError, match=f"{total - 1} possible starts are too few for {total}"):
        choose_tasks(dataset, protocol_for("paper"), total, 1)


@pytest.mark.parametrize("horizon", [10, 15, 20])
def test_long_plans_are_executed_to_their_end_within_the_budget(dataset, tmp_path, monkeypatch, horizon):
    """The long protocol with goals 40 steps on, because the episodes here are short."""
    short = dataclasses.replace(PROTOCOLS["long"], goal_offset_steps=40, budget_steps=120)
    monkeypatch.setitem(PROTOCOLS, "long", short)
    job = Evaluate("own", data=dataset.path, protocol="long", tasks=3, horizon=horizon, method="slow", out=tmp_path)
    policy = RandomPolicy([0, 0], [1e-3, 1e-3], steps=5 * horizon)
    evaluation = evaluate_policy(policy, dataclasses.replace(job, pictures=0))
    cell = settle(job, tmp_path).folder
    assert (evaluation.protocol, evaluation.horizon_blocks) == ("long", horizon)
    assert cell.name == "two-room-slow-long-seed1" + ("" if horizon == 10 else f"-h{horizon}")
    tasks = read_tasks(tmp_path / evaluation.tasks_file).tasks
    for task in tasks:
        assert task.goal == tuple(dataset.states(task.episode)[task.start_step + 40])
    for episode in read_cell(cell).episodes:
        if episode.reason == "budget":
            assert episode.steps_taken == 120
            assert [plan.step for plan in episode.plans] == list(range(0, 120, 5 * horizon))


def test_horizons_share_their_tasks(dataset, tmp_path):
    jobs = [Evaluate("random", data=dataset.path, protocol="paper", tasks=3, horizon=h) for h in (None, 7)]
    settled = [settle(job, tmp_path) for job in jobs]
    assert len({one.tasks.sha256 for one in settled}) == 1
    assert len({one.folder for one in settled}) == 2


def test_planners_are_named():
    assert planner_named("cem") == CEMConfig()
    assert planner_named("gauss-newton") == GaussNewtonConfig()
    with pytest.raises(UsageError, match="did you mean 'mppi'"):
        planner_named("mpi")


@pytest.mark.parametrize(
    "text", ["cem", "cem,candidates=100,elites=10", "gauss-newton,mu=0.05", "icem,kept_elites=0", "icem,noise_beta=0.0"]
)
def test_a_planner_is_a_text_and_back(text):
    assert planner_text(planner_named(text)) == text


def test_only_settings_that_the_planner_has_are_taken_and_only_sound_ones():
    assert planner_named("gauss-newton,mu=0.1") == GaussNewtonConfig(mu=0.1)
    with pytest.raises(UsageError, match="cem: elites is given twice"):
        planner_named("cem,elites=10,elites=20")
    with pytest.raises(UsageError, match="prior has no settings, found 'w=1'"):
        planner_named("prior,w=1")
    with pytest.raises(UsageError, match="cem-prior: initial_std must be above 0"):
        planner_named("cem-prior,initial_std=0")
    with pytest.raises(UsageError, match="unknown setting of cem 'mu'"):
        planner_named("cem,mu=0.1")
    for bad in ("-0.1", "inf", "nan"):
        with pytest.raises(UsageError, match="mu must be a finite number of at least 0"):
            planner_named(f"gauss-newton,mu={bad}")
    with pytest.raises(UsageError, match="candidates must be a finite number of at least 1, found 0"):
        planner_named("cem,candidates=0")
    with pytest.raises(UsageError, match="candidates must be a number, found 'many'"):
        planner_named("cem,candidates=many")

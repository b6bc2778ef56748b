"""A planner of one's own is one function: in Python, and named on the command line."""

import dataclasses
import sys

import numpy as np
import pytest
import torch
from own_planners import SHOOTING
from planning_models import SMALL, generators, shaken, situation

from saltwm.ground.config import CEMConfig, GaussNewtonConfig, OwnPlannerConfig
from saltwm.ground.errors import NonFiniteError, ShapeError, UsageError
from saltwm.planning import own, planners
from saltwm.planning.agent import Agent
from saltwm.planning.cem import Plan, cem
from saltwm.planning.gauss_newton import gauss_newton
from saltwm.planning.policy import View

TOO_MANY = """
def too_many(a, b, c):
    pass
"""


@pytest.fixture
def shooting(tmp_path, monkeypatch):
    (tmp_path / "my_planners.py").write_text(SHOOTING + TOO_MANY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(own, "_NAMED", set())
    return "my_planners:shooting"


def view():
    frames = np.zeros((2, 1, 16, 16, 3), np.uint8)
    return View(frames, np.empty((2, 0, 10), np.float32), frames[:, 0])


def test_an_agent_takes_the_name_of_a_planner_with_settings_as_the_command_line_does():
    assert Agent(shaken(SMALL), "gauss-newton,mu=0.1").planner == GaussNewtonConfig(mu=0.1)
    with pytest.raises(UsageError, match="unknown planner 'gaus-newton'; did you mean 'gauss-newton'"):
        Agent(shaken(SMALL), "gaus-newton")


@pytest.mark.parametrize("planner", [3, GaussNewtonConfig])
def test_what_can_be_no_planner_is_refused_before_the_first_act(planner):
    with pytest.raises(UsageError, match="expected a config such as MapConfig"):
        Agent(shaken(SMALL), planner)


def test_an_agent_takes_a_function_that_searches_a_cost_or_plans_with_the_model():
    model = shaken(SMALL)
    for function, same in ((cem, CEMConfig()), (gauss_newton, None)):
        agent = Agent(model, function, horizon_blocks=2)
        found = agent.decide(view(), [(0,), (1,)])
        assert found.actions.shape == (2, 10, 2)
        if same is not None:
            expected = Agent(model, same, horizon_blocks=2).decide(view(), [(0,), (1,)])
            np.testing.assert_array_equal(found.actions, expected.actions)


def test_a_function_gets_the_options_that_it_has_arguments_for():
    seen = {}

    def planner(model, situation, *, horizon, **more):
        seen.update(more, horizon=horizon)
        actions = torch.zeros(len(situation.goal), horizon, model.action_encoder.block_dim)
        return Plan(actions, actions, torch.zeros(len(actions), 1))

    at = situation(shaken(SMALL), 2)
    planners.planner_of(planner)(shaken(SMALL), at, horizon=3, generators=generators(0, 1), bounds=None)
    assert seen["horizon"] == 3
    assert set(seen) == {"horizon", "generators", "bounds"}


def test_a_planner_that_fails_is_one_line_with_its_name_and_place():
    """In a worker of an evaluation anything else would be three tracebacks and a word about memory."""

    def divides(cost, *, horizon, generators):
        return horizon / 0

    def forgets(cost, *, generators):
        return None

    def confused(cost, horizon):
        raise AssertionError("is never called: the horizon comes by name")

    here = r"\(test_own_planner.py, line [0-9]+\)"
    for function, message in (
        (divides, rf"planner divides {here}: ZeroDivisionError: division by zero"),
        (forgets, "planner forgets: expected a saltwm.Plan, found None"),
        (confused, "planner confused: TypeError: .* multiple values for argument 'horizon'"),
    ):
        with pytest.raises(UsageError, match=message):
            Agent(shaken(SMALL), function, horizon_blocks=2).decide(view(), [(0,), (1,)])


@pytest.mark.parametrize(
    ("actions", "error", "message"),
    [
        (
            torch.zeros(2, 1, 10),
            ShapeError,
            r"planner wrong: actions: expected shape \[N=2, H=2, A=10\], found \[2, 1, 10\]",
        ),
        (
            np.zeros((2, 2, 10), np.float32),
            ShapeError,
            "planner wrong: actions: expected a torch tensor, found ndarray; make it one with torch.as_tensor",
        ),
        (torch.zeros(2, 2, 10, dtype=torch.int64), ShapeError, "planner wrong: actions: expected float values"),
        (
            torch.stack([torch.zeros(2, 10), torch.full((2, 10), torch.nan)]),
            NonFiniteError,
            "planner wrong: the plan of task 1 has actions that are not finite",
        ),
    ],
)
def test_a_plan_that_is_not_what_was_asked_for_is_refused(actions, error, message):
    def wrong(cost, *, horizon, generators):
        return Plan(actions, actions, torch.zeros(2, 1))

    with pytest.raises(error, match=message):
        Agent(shaken(SMALL), wrong, horizon_blocks=2).decide(view(), [(0,), (1,)])


def test_a_search_begins_with_the_rest_of_the_last_plan_if_it_can():
    seen = {}

    def search(cost, *, horizon, generators, initial=None, bounds=None):
        seen["initial"] = initial
        actions = torch.zeros(len(generators), horizon, 10)
        return Plan(actions, actions, cost(actions[:, None]))

    rest = torch.randn(1, 2, 10)
    at = dataclasses.replace(situation(shaken(SMALL), 1), rest_of_plan=rest)
    planners.planner_of(search)(shaken(SMALL), at, horizon=2, generators=generators(0))
    assert torch.equal(seen["initial"].mean, rest)


def test_a_planner_is_named_as_module_and_function(shooting):
    config = own.name_planner(shooting)
    assert config == OwnPlannerConfig(shooting)
    at = situation(shaken(SMALL), 2)
    found = planners.planner_of(config)(shaken(SMALL), at, horizon=3, generators=generators(0, 1))
    assert found.actions.shape == (2, 3, 10)
    own.require_named(config)


def test_what_a_planner_imports_while_it_plans_is_found_beside_it_after_what_is_installed(tmp_path, monkeypatch):
    (tmp_path / "late_neighbour.py").write_text("DEVIATION = 0.5\n")
    text = SHOOTING.replace("    plans =", "    from late_neighbour import DEVIATION\n    plans =", 1)
    (tmp_path / "late_planner.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(own, "_NAMED", set())
    monkeypatch.setattr(sys, "path", [*sys.path])
    for _ in range(2):
        config = own.name_planner("late_planner:shooting")
    found = planners.planner_of(config)(shaken(SMALL), situation(shaken(SMALL), 1), horizon=3, generators=generators(0))
    assert found.actions.shape == (1, 3, 10)
    assert sys.path.count(str(tmp_path)) == 1
    assert sys.path[-1] == str(tmp_path)


def test_a_planner_that_only_a_file_names_is_refused(shooting):
    with pytest.raises(UsageError, match="name it yourself, as the `planner` my_planners:shooting"):
        own.require_named(OwnPlannerConfig(shooting))
    own.require_named(CEMConfig())


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("no_such_module:f", "No module named 'no_such_module'"),
        ("my_planners:nothing", "has no function or class 'nothing'"),
        ("my_planners:too_many", r"needs 3 positional arguments; expected 1 \(cost\) or 2"),
    ],
)
def test_a_name_that_leads_to_no_planner_is_refused(shooting, place, message):
    with pytest.raises(UsageError, match=message):
        own.name_planner(place)

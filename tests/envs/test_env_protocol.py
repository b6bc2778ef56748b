"""What every environment promises, whatever it simulates."""

import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from saltwm.envs import ENVIRONMENTS, env_class, make_env, register
from saltwm.envs.base import Action, PlanningEnv, State
from saltwm.envs.check import check_environment
from saltwm.ground.errors import NonFiniteError, ShapeError, UsageError
from saltwm.ground.rng import stream

STEPS = 60


class Recorded:
    """One environment and an episode collected in it: states [STEPS + 1, S], actions [STEPS, A]."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.env = make_env(name, image_size=32)
        self.states, self.actions = collect(self.env, 7, STEPS)


def collect(env: PlanningEnv, seed: int, steps: int) -> tuple[State, Action]:
    """An episode of the default policy."""
    state, _ = env.reset(seed=seed)
    act = env.policy(env.policies[0], stream(seed, "policy"))
    states, actions = [state], []
    for _ in range(steps):
        actions.append(act())
        states.append(env.step(actions[-1])[0])
    return np.array(states), np.array(actions)


def assert_replays(env: PlanningEnv, states: State, actions: Action, starts: list[int], length: int) -> None:
    """Restoring each start and repeating the stored actions gives the stored states, bit for bit."""
    for start in starts:
        env.restore(states[start])
        np.testing.assert_array_equal(env.state(), states[start])
        for step in range(start, min(start + length, len(actions))):
            env.step(actions[step])
            np.testing.assert_array_equal(env.state(), states[step + 1], err_msg=f"start {start}, step {step}")


@pytest.fixture(scope="module", params=ENVIRONMENTS)
def recorded(request: pytest.FixtureRequest) -> Iterator[Recorded]:
    record = Recorded(request.param)
    yield record
    record.env.close()


@pytest.mark.parametrize("name", ENVIRONMENTS)
@pytest.mark.parametrize("every_render_mode", [False, pytest.param(True, marks=pytest.mark.full)])
def test_gymnasium_accepts_it(name: str, every_render_mode: bool) -> None:
    register()
    env = gymnasium.make(f"saltwm/{env_class(name).__name__}-v0", image_size=16, disable_env_checker=True)
    with warnings.catch_warnings():
        # The observation is a simulation state, which has no natural bounds.
        warnings.filterwarnings("ignore", message=".*Box observation space m.*imum value is .*infinity")
        check_env(env.unwrapped, skip_render_check=not every_render_mode)  # it builds the environment once per mode
    env.close()


def test_fields_name_every_number_of_the_state_once(recorded: Recorded) -> None:
    ends = [0, *(field.stop for field in recorded.env.state_fields)]
    assert [field.start for field in recorded.env.state_fields] == ends[:-1]
    assert ends[-1] == recorded.env.state_dim


def test_a_used_instance_replays_stored_actions_bit_for_bit(recorded: Recorded) -> None:
    starts = stream(0, "starts", recorded.name).integers(0, STEPS, 6).tolist()
    assert_replays(recorded.env, recorded.states, recorded.actions, starts, 10)


def test_a_fresh_instance_replays_stored_actions_bit_for_bit(recorded: Recorded) -> None:
    env = make_env(recorded.name)
    starts = stream(1, "starts", recorded.name).integers(0, STEPS, 4).tolist()
    assert_replays(env, recorded.states, recorded.actions, starts, 10)
    env.close()


def test_replay_with_another_action_is_noticed(recorded: Recorded) -> None:
    other = recorded.actions.copy()
    other[20:22] = -other[20:22] + 0.1
    with pytest.raises(AssertionError, match="start 20"):
        assert_replays(recorded.env, recorded.states, other, [20], 10)


def test_an_episode_is_a_function_of_its_seed(recorded: Recorded) -> None:
    states, actions = collect(recorded.env, 7, 15)
    np.testing.assert_array_equal(actions, recorded.actions[:15])
    np.testing.assert_array_equal(states, recorded.states[:16])
    assert not np.array_equal(collect(recorded.env, 8, 1)[0][0], states[0])


def test_the_goal_of_a_pair_is_reached_by_its_own_actions(recorded: Recorded) -> None:
    env, offset = recorded.env, 25
    for start in (0, 17, STEPS - offset):
        env.reset(seed=0, options={"state": recorded.states[start], "goal": recorded.states[start + offset]})
        for action in recorded.actions[start : start + offset]:
            _, reward, terminated, truncated, info = env.step(action)
        assert terminated
        assert reward == 1.0
        assert info["success"]
        assert not truncated
        assert env.goal_distance(env.state()[None], recorded.states[None, start + offset])[0] == 0


def test_distance_depends_on_states_alone(recorded: Recorded) -> None:
    goals = np.roll(recorded.states, 7, axis=0)
    before = recorded.env.goal_distance(recorded.states, goals)
    recorded.env.reset(seed=99)
    np.testing.assert_array_equal(recorded.env.goal_distance(recorded.states, goals), before)
    assert before.shape == (STEPS + 1,)
    assert (before >= 0).all()
    one_by_one = [recorded.env.goal_distance(s[None], g[None])[0] for s, g in zip(recorded.states, goals, strict=True)]
    np.testing.assert_array_equal(one_by_one, before)


def test_pictures_depend_on_state_and_size_alone(recorded: Recorded) -> None:
    env, some = recorded.env, recorded.states[[0, 30, 60]]
    frames = env.draw_many(some, 24)
    assert frames.shape == (3, 24, 24, 3)
    assert frames.dtype == np.uint8
    env.draw(40)  # another size in between must not show
    env.reset(seed=3, options={"state": some[1], "goal": some[2]})
    np.testing.assert_array_equal(env.draw(24), frames[1])
    assert env.render().shape == (32, 32, 3)
    assert not np.array_equal(frames[0], frames[2])


def test_actions_and_states_are_checked_at_the_door(recorded: Recorded) -> None:
    env = recorded.env
    with pytest.raises(NonFiniteError, match="not finite"):
        env.step(np.full(env.action_dim, np.nan, np.float32))
    with pytest.raises(ShapeError, match="action"):
        env.step(np.zeros(env.action_dim + 1, np.float32))
    with pytest.raises(NonFiniteError, match="not finite"):
        env.restore(np.full(env.state_dim, np.inf))
    with pytest.raises(ShapeError, match="state"):
        env.restore(np.zeros(env.state_dim + 1))
    with pytest.raises(ShapeError, match="goals"):
        env.goal_distance(recorded.states[:3], recorded.states[:1])
    with pytest.raises(ShapeError, match="states"):
        env.goal_distance(recorded.states[0], recorded.states[0])
    with pytest.raises(UsageError, match="policy"):
        env.policy("telepathy", stream(0))


@pytest.mark.full
@pytest.mark.parametrize("fresh", [True, False])
def test_a_hundred_points_replay_bit_for_bit(recorded: Recorded, fresh: bool) -> None:
    env = make_env(recorded.name) if fresh else recorded.env
    for episode in range(10):
        states, actions = collect(recorded.env, 100 + episode, 100)
        starts = stream(episode, "starts").integers(0, 100, 10).tolist()
        assert_replays(env, states, actions, starts, 25)
    if fresh:
        env.close()


@pytest.mark.full
def test_a_hundred_pairs_are_reached_by_their_own_actions(recorded: Recorded) -> None:
    env = recorded.env
    for episode in range(10):
        states, actions = collect(env, 200 + episode, 100)
        for start in stream(episode, "pairs").integers(0, 75, 10).tolist():
            env.reset(seed=0, options={"state": states[start], "goal": states[start + 25]})
            reached = [env.step(action)[2] for action in actions[start : start + 25]]
            assert reached[-1]


def test_the_example_in_the_docs_is_an_environment() -> None:
    page = (Path(__file__).parents[2] / "docs" / "environments.md").read_text()
    code = next(block for block in page.split("```python\n") if "class Slide" in block).split("```")[0]
    names: dict[str, Any] = {}
    exec(code, names)
    env: PlanningEnv = names["Slide"](image_size=16)
    states, actions = collect(env, 0, 20)
    assert_replays(env, states, actions, [0, 5, 11], 5)
    assert env.goal_distance(states, states).max() == 0
    assert env.render().shape == (16, 16, 3)


def test_the_adapted_example_in_the_docs_is_an_environment() -> None:
    page = (Path(__file__).parents[2] / "docs" / "environments.md").read_text()
    names: dict[str, Any] = {}
    exec(page.split("```python\n")[-1].split("```")[0], names)
    assert check_environment(names["GymReacher"], 16).plans


def test_gymnasium_makes_them_by_name() -> None:
    """In a process that imports gymnasium alone: it finds the room, which enters its names."""
    code = (
        "import gymnasium; gymnasium.make('saltwm.envs:saltwm/TwoRoom-v0').reset(seed=0);"
        "print(sorted(name for name in gymnasium.registry if name.startswith('saltwm/')))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    names = ["Cube", "CubeDouble", "PushT", "Reacher", "TwoRoom"]
    assert found.strip() == str([f"saltwm/{name}-v0" for name in names])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"variant": "papr"}, "unknown two-room variant 'papr'; did you mean 'paper'"),
        ({"render_quality": "best"}, "unknown render quality 'best'"),
        ({"image_size": 0}, "image_size must be at least 1, found 0"),
    ],
)
def test_options_that_no_environment_has_are_refused_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make_env("two-room", **options)

"""Cube and Cube-Double: OGBench's dynamics, the success rule, the variants, the oracle's data, coarse meshes."""

from collections.abc import Iterator

import numpy as np
import pytest

from saltwm.envs.cube import Cube, CubeDouble
from saltwm.ground.rng import stream


@pytest.fixture(scope="module")
def cube() -> Iterator[Cube]:
    env = Cube(image_size=32)
    yield env
    env.close()


@pytest.fixture(scope="module")
def double() -> Iterator[CubeDouble]:
    env = CubeDouble(image_size=32)
    yield env
    env.close()


def hand(env: Cube) -> np.ndarray:
    env.refresh()
    return env.simulation.compute_ob_info()["proprio/effector_pos"]


def test_dynamics_are_ogbenchs_but_for_two_milliseconds_of_staleness(cube: Cube) -> None:
    # OGBench steers from where the hand was 2 ms before a step's end; here it is where it is, so that a state suffices.
    actions = np.repeat(stream(0, "actions").uniform(-1, 1, (6, 5)), 5, axis=0).astype(np.float32)
    ends = []
    for theirs in (True, False):
        cube.reset(seed=4)
        start = hand(cube)
        for action in actions:
            if theirs:
                cube.simulation.step(action)
            else:
                cube.step(action)
        ends.append(hand(cube))
    assert np.linalg.norm(ends[0] - start) > 0.05
    np.testing.assert_allclose(ends[0], ends[1], atol=0.02)


def test_restoring_needs_the_hand_to_follow_the_joints(cube: Cube, monkeypatch: pytest.MonkeyPatch) -> None:
    action = np.array([1, 0, 0, 0, 0], np.float32)
    cube.reset(seed=0)
    before = cube.state()
    cube.step(action)
    after = cube.state()
    for _ in range(5):
        cube.step(-action)
    monkeypatch.setattr(cube, "refresh", lambda: None)
    cube.restore(before)
    cube.step(action)
    assert not np.array_equal(cube.state(), after)


def test_success_is_four_centimetres_whatever_the_turn(cube: Cube) -> None:
    cube.reset(seed=1)
    goal = cube.state()[None]
    near, far, turned = goal.copy(), goal.copy(), goal.copy()
    near[0, 15] += 0.0399
    far[0, 17] += 0.0401
    turned[0, 18:22] = [0, 1, 0, 0]
    assert cube.goal_distance(near, goal)[0] < 1 < cube.goal_distance(far, goal)[0]
    assert cube.goal_distance(turned, goal)[0] == 0


def test_two_cubes_both_count(double: CubeDouble) -> None:
    double.reset(seed=1)
    goal = double.state()[None]
    for start in (15, 22):
        moved = goal.copy()
        moved[0, start] += 0.06
        assert double.goal_distance(moved, goal)[0] == pytest.approx(1.5)


def test_only_clean_actions_are_bounded(cube: Cube, monkeypatch: pytest.MonkeyPatch) -> None:
    cube.reset(seed=2)
    start = cube.state()
    towards = np.array([0, -1 if hand(cube)[1] > 0 else 1, 0, 0, 0], np.float32)
    moved = {}
    for variant in ("clean", "paper"):
        monkeypatch.setattr(cube, "variant", variant)
        for size in (1, 4):
            cube.restore(start)
            before = hand(cube)
            cube.step(size * towards)
            moved[variant, size] = np.linalg.norm(hand(cube) - before)
    assert moved["clean", 4] == moved["clean", 1] == moved["paper", 1]
    assert moved["paper", 4] > 2 * moved["paper", 1]


def test_random_goals_move_cubes_apart_and_leave_the_arm(double: CubeDouble) -> None:
    double.reset(seed=3)
    goal = double.goal
    assert goal is not None
    assert np.linalg.norm(goal[15:17] - goal[22:24]) >= 0.08
    np.testing.assert_array_equal(goal[:15], double.state()[:15])


@pytest.mark.parametrize("name", ["cube", "double"])
def test_oracle_grasps_lifts_and_carries(name: str, request: pytest.FixtureRequest) -> None:
    env: Cube = request.getfixturevalue(name)
    solved, lifted, carried = [], [], []
    for seed in (0, 2, 5):
        state, _ = env.reset(seed=seed)
        act = env.policy("oracle", stream(seed, "oracle"))
        states = [state]
        for _ in range(120):
            action = act()
            assert np.abs(action).max() <= 1
            states.append(env.step(action)[0])
        trace = np.array(states)
        solved.append(env.goal_distance(trace[:-25], trace[25:]) < 1)
        places = trace[:, 15 : 15 + 7 * env.cubes].reshape(len(trace), env.cubes, 7)[..., :3]
        lifted.append(places[..., 2].max() > 0.08)
        carried.append(np.linalg.norm(places[-1] - places[0], axis=-1).max() > 0.05)
    assert sum(lifted) >= 2
    assert sum(carried) >= 2
    assert np.mean(solved) < 0.6  # of 120 steps: the first approach to the cube weighs more than in 200


def closings(env: Cube, kind: str, seed: int) -> tuple[bool, np.ndarray, np.ndarray]:
    """Whether the policy errs in this episode, its actions, and how far beside a lying cube its low hand closes [m]."""
    state, _ = env.reset(seed=seed)
    act = env.policy(kind, stream(seed, "policy"))
    actions, beside = [], []
    for _ in range(150):
        hand = env.simulation._data.site_xpos[env.simulation._pinch_site_id].copy()
        actions.append(act())
        if actions[-1][4] > 0.5 and hand[2] < 0.06 and state[17] < 0.03:
            beside.append(np.linalg.norm(hand[:2] - state[15:17]))
        state = env.step(actions[-1])[0]
    return getattr(act, "errs", False), np.array(actions), np.array(beside)


def test_a_clumsy_oracle_closes_its_hand_beside_cubes_and_is_the_oracle_itself_half_the_time(cube: Cube) -> None:
    erred = 0
    for seed in range(19, 25):
        _, actions_of_oracle, by_oracle = closings(cube, "oracle", seed)
        errs, actions, by_clumsy = closings(cube, "clumsy", seed)
        assert np.array_equal(actions, actions_of_oracle) != errs
        assert np.quantile(by_oracle, 0.9) < 0.02  # fingers that far off would still hold it
        erred += errs and np.quantile(by_clumsy, 0.9) > 0.025
    assert 2 <= erred < 6


def test_tasks_are_told_apart_by_where_the_cube_is(cube: Cube, double: CubeDouble) -> None:
    table, air = np.zeros(69), np.zeros(69)
    table[15:18], air[15:18] = (0.4, 0.1, 0.02), (0.4, 0.0, 0.15)
    states, goals = np.stack([table, table, air, air]), np.stack([table, air, table, air])
    assert cube.task_kinds(states, goals) == ["move on the table", "lift", "put down", "carry"]
    far = np.zeros(88)
    start = far.copy()
    far[22:25] = 0.3, 0.3, 0.2  # the second cube has farther to go
    assert double.task_kinds(start[None], far[None]) == ["lift"]


def test_oracle_ignores_numpys_global_generator(cube: Cube) -> None:
    runs = []
    for noise in (1, 2):
        np.random.seed(noise)  # noqa: NPY002
        cube.reset(seed=0)
        act = cube.policy("oracle", stream(0, "oracle"))
        runs.append([act() for _ in range(3)] + [act.oracle._final_pos])  # type: ignore[attr-defined]
    np.testing.assert_array_equal(runs[0][-1], runs[1][-1])
    np.testing.assert_array_equal(runs[0][:3], runs[1][:3])


def test_coarse_meshes_show_the_cube_where_it_is(cube: Cube) -> None:
    cube.reset(seed=6)
    full = Cube(render_quality="full")
    full.restore(cube.state())
    centres = []
    for env in (cube, full):
        frame = env.draw(96).astype(int)
        red = (frame[..., 0] > 100) & (frame[..., 1] < 90) & (frame[..., 2] < 110)
        assert red.sum() > 4
        centres.append(np.argwhere(red).mean(0))
    np.testing.assert_allclose(centres[0], centres[1], atol=1.0)
    many, few = (env._camera._model.mesh_facenum.sum() for env in (full, cube))
    assert few < 0.1 * many
    assert cube._model.mesh_facenum.sum() == many  # the simulated model keeps its meshes
    full.close()

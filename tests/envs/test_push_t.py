"""PushT: the benchmark's constants, the success rule, the variants and the pusher's data."""

import numpy as np
import pymunk
import pytest

from saltwm.envs.push_t import ANGLE_RADIUS, BAR, CENTRE_OF_MASS, INERTIA, STEM, PushT, _corners, gaps
from saltwm.ground.rng import stream


def pose(agent: tuple[float, float], block: tuple[float, float], angle: float = 0.0) -> np.ndarray:
    return np.array([*agent, *block, angle, 0, 0, 0, 0, 0], np.float64)


def test_block_is_the_benchmarks_t() -> None:
    bar, stem = _corners(BAR), _corners(STEM)
    np.testing.assert_array_equal((bar.mean(0) + stem.mean(0)) / 2, CENTRE_OF_MASS)
    assert 2 * pymunk.moment_for_poly(1, bar.tolist()) == INERTIA


def test_agent_follows_its_target_like_the_critically_damped_pd_controller() -> None:
    env = PushT()
    env.reset(seed=0, options={"state": pose((100, 400), (300, 150))})
    env.step(np.array([0.5, -0.25], np.float32))
    position, velocity = np.array([100.0, 400.0]), np.zeros(2)
    target = position + np.array([50, -25])
    for _ in range(10):
        velocity += (100 * (target - position) - 20 * velocity) * 0.01
        position += velocity * 0.01
    np.testing.assert_allclose(env.state()[:2], position, rtol=1e-12)
    np.testing.assert_allclose(env.state()[5:7], velocity, rtol=1e-12)


def test_untouched_block_stays_and_pushed_block_moves_along() -> None:
    env = PushT()
    env.reset(seed=0, options={"state": pose((256, 150), (256, 200))})
    env.step(np.array([0.0, -0.3], np.float32))
    np.testing.assert_allclose(env.state()[2:5], [256, 200, 0], atol=1e-9)
    for _ in range(8):
        env.step(np.array([0.0, 0.3], np.float32))
    x, y, angle = env.state()[2:5]
    assert y > 220  # pushed through its centre of mass: down, without turning
    assert abs(x - 256) < 1
    assert min(angle, 2 * np.pi - angle) < 0.02


def test_off_centre_push_turns_the_block() -> None:
    env = PushT()
    env.reset(seed=0, options={"state": pose((305, 160), (256, 200))})
    for _ in range(6):
        env.step(np.array([0.0, 0.3], np.float32))
    assert 0.2 < env.state()[4] < np.pi


@pytest.mark.parametrize("variant", ["paper", "clean"])
def test_success_needs_agent_block_and_angle(variant: str) -> None:
    env = PushT(variant=variant)
    goal = pose((100, 100), (300, 300), 0.1)
    cases = {
        "near": (pose((110, 100), (300, 310), 0.1), True),
        "agent away": (pose((121, 100), (300, 300), 0.1), False),
        "together away": (pose((115, 100), (300, 315), 0.1), False),  # each within 20, both together not
        "across the cut": (pose((100, 100), (300, 300), 2 * np.pi - 0.1), True),
        "turned": (pose((100, 100), (300, 300), 0.1 + ANGLE_RADIUS + 1e-6), False),
    }
    for name, (state, reached) in cases.items():
        assert (env.goal_distance(state[None], goal[None])[0] < 1) == reached, name


def test_only_the_clean_agent_stays_in_the_picture() -> None:
    outward = np.array([1.0, 0.0], np.float32)
    where = {}
    for variant in ("paper", "clean"):
        env = PushT(variant=variant)
        env.reset(seed=0, options={"state": pose((450, 450), (200, 150))})
        for _ in range(10):
            env.step(outward)
        where[variant] = env.state()[0]
    assert where["paper"] > 512
    assert 480 < where["clean"] <= 497


def test_only_clean_actions_are_bounded() -> None:
    moved = {}
    for variant in ("paper", "clean"):
        env = PushT(variant=variant)
        for size in (1.0, 2.0):
            env.restore(pose((100, 400), (300, 150)))
            env.step(np.array([size, 0.0], np.float32))
            moved[variant, size] = env.state()[0] - 100
    assert moved["clean", 2.0] == moved["clean", 1.0] == moved["paper", 1.0]
    assert moved["paper", 2.0] == pytest.approx(2 * moved["paper", 1.0])


def test_picture_shows_block_and_agent_where_they_are() -> None:
    env = PushT()
    env.restore(pose((128, 384), (256, 128)))
    frame = env.draw(128).astype(int)
    assert frame[96, 32, 2] > frame[96, 32, 0] + 100  # the agent is blue
    np.testing.assert_array_equal(frame[40, 64], [143, 163, 184])  # the bar, one pixel under the block's origin
    np.testing.assert_array_equal(frame[64, 100], [255, 255, 255])
    inside = (env.draw(512) == [143, 163, 184]).all(-1).sum()
    assert abs(inside - (116 * 26 + 26 * 86)) < 250  # bar and stem without their rims of two pixels


def test_small_picture_is_the_large_one_averaged() -> None:
    env = PushT()
    env.reset(seed=5)
    large = env.draw(512).reshape(64, 8, 64, 8, 3).mean((1, 3))
    assert np.abs(env.draw(64) - large).mean() < 1.0


def test_pusher_makes_goal_directed_contact_rich_data() -> None:
    env = PushT()
    states, actions = [], []
    for episode in range(12):
        state, _ = env.reset(seed=episode)
        act = env.policy("pusher", stream(0, "pusher", episode))
        trace = [state]
        for _ in range(env.max_episode_steps):
            actions.append(act())
            trace.append(env.step(actions[-1])[0])
        states.append(np.array(trace))
    pairs = [(s[:-25], s[25:]) for s in states]
    solved = np.concatenate([env.goal_distance(a, b) < 1 for a, b in pairs])
    moved = np.concatenate([np.linalg.norm(b[:, 2:4] - a[:, 2:4], axis=1) for a, b in pairs])
    touching = np.concatenate([[gaps(s[None, :2], s)[0] < 1 for s in trace] for trace in states])
    assert solved.mean() < 0.05
    assert 20 < np.median(moved) < 50  # about as fast as a person
    assert touching.mean() > 0.25
    assert np.abs(actions).max() <= 1
    assert 0.05 < np.std(actions) < 0.2


def test_pusher_gives_the_same_data_in_both_variants() -> None:
    paper, clean = PushT(variant="paper"), PushT(variant="clean")
    for episode in range(5):
        clean.reset(seed=episode)
        paper.restore(clean.state())
        act = clean.policy("pusher", stream(2, "pusher", episode))
        for _ in range(clean.max_episode_steps):
            action = act()
            clean.step(action)
            paper.step(action)
        np.testing.assert_array_equal(paper.state(), clean.state())


def test_pusher_brings_the_block_nearer_to_its_target() -> None:
    nearer = 0
    for episode in range(10):
        env = PushT()
        env.reset(seed=50 + episode)
        goal = env.goal
        assert goal is not None
        act = env.policy("pusher", stream(1, "pusher", episode))
        start = env.state()
        best = np.linalg.norm(start[2:4] - goal[2:4])
        first = best
        for _ in range(env.max_episode_steps):
            env.step(act())
            best = min(best, np.linalg.norm(env.state()[2:4] - goal[2:4]))
        nearer += best < 0.5 * first
    assert nearer >= 7


def test_tasks_are_told_apart_by_what_becomes_of_the_block() -> None:
    states, goals = np.zeros((4, 10)), np.zeros((4, 10))
    goals[0, 0] = 90  # the agent
    goals[1, 2] = 25  # the block
    goals[2, 4] = 0.5
    goals[3, 4] = 2 * np.pi - 0.1  # nearly a whole turn is no turn
    kinds = PushT.task_kinds(states, goals)
    assert kinds == ["move the agent", "move the block", "turn the block", "move the agent"]

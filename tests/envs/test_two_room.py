"""Two-Room: geometry, the two physics, the expert and the pictures."""

import math

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st

from saltwm.envs import register, two_room
from saltwm.envs.two_room import DOOR, HIGH, LOW, RADIUS, WALLS, Point, TwoRoom, draw_discs, end_point_move, swept_move
from saltwm.ground import rng
from saltwm.ground.errors import NonFiniteError, ShapeError, UsageError


def clearance(position, box):
    """Distance from a point to a box."""
    dx = max(box.left - position.x, 0.0, position.x - box.right)
    dy = max(box.top - position.y, 0.0, position.y - box.bottom)
    return math.hypot(dx, dy)


def is_free(position, tolerance=1e-6):
    inside = LOW - tolerance <= position.x <= HIGH + tolerance and LOW - tolerance <= position.y <= HIGH + tolerance
    return inside and all(clearance(position, wall) >= RADIUS - tolerance for wall in WALLS)


def collect_episode(env, seed, index):
    env.reset(seed=rng.derive(seed, "episode", index))
    policy = env.policy("expert", rng.stream(seed, "policy", index))
    states = [env.state()]
    for _ in range(env.max_episode_steps):
        state, _, reached, _, _ = env.step(policy())
        states.append(state)
        if reached:
            break
    return np.array(states), reached


@pytest.mark.filterwarnings("ignore:.*observation space (minimum|maximum) value is")  # a state has no bounds by kind
@pytest.mark.parametrize("variant", ["paper", "clean"])
def test_it_passes_gymnasiums_checker(variant):
    register()
    check_env(gymnasium.make("saltwm/TwoRoom-v0", variant=variant).unwrapped)


free_points = st.builds(Point, st.floats(LOW, HIGH), st.floats(LOW, HIGH)).filter(lambda p: is_free(p, 0.0))
steps = st.builds(Point, st.floats(-5, 5), st.floats(-5, 5))


@given(free_points, st.lists(steps, min_size=1, max_size=40))
@settings(max_examples=150, deadline=None)
def test_in_clean_physics_the_disc_never_overlaps_a_wall(start, moves):
    position = start
    for move in moves:
        position = swept_move(position, move)
        assert is_free(position), position


@given(free_points, steps)
@settings(max_examples=300, deadline=None)
def test_a_clean_step_equals_many_tiny_end_point_tests(start, move):
    """Independent reference: where no contact happens on a fine sampling of the path, the step is a translation."""
    path = [Point(start.x + t * move.x, start.y + t * move.y) for t in np.linspace(0, 1, 200)]
    if all(is_free(p, -1e-3) for p in path):
        end = swept_move(start, move)
        assert math.dist(end, path[-1]) < 1e-9


def test_a_clean_step_through_the_wall_stops_at_its_face_and_slides_along_it():
    end = swept_move(Point(98.0, 120.0), Point(5.0, 5.0))
    assert end == pytest.approx((100.0, 125.0))


def test_a_clean_step_cannot_cut_the_doors_corner_and_a_paper_step_can():
    start, move = Point(99.0, 66.0), Point(5.0, -3.0)  # ends beside the door's edge, where the disc overlaps the wall
    assert is_free(swept_move(start, move))
    assert not is_free(end_point_move(start, move))


def test_a_paper_step_into_the_wall_is_pushed_back_half_a_unit():
    assert end_point_move(Point(98.0, 120.0), Point(5.0, 5.0)) == (99.5, 125.0)
    assert end_point_move(Point(126.0, 120.0), Point(-5.0, 0.0)) == (124.5, 120.0)


@pytest.mark.parametrize("move", [end_point_move, swept_move])
def test_the_door_lets_the_disc_through_and_the_wall_does_not(move):
    through, blocked = Point(90.0, 49.0), Point(90.0, 130.0)
    for _ in range(10):
        through, blocked = move(through, Point(5.0, 0.0)), move(blocked, Point(5.0, 0.0))
    assert through == pytest.approx((140.0, 49.0))
    assert blocked.x <= 100.0


@pytest.mark.parametrize("move", [end_point_move, swept_move])
def test_the_border_holds_the_disc(move):
    position = Point(25.0, 200.0)
    for _ in range(5):
        position = move(position, Point(-5.0, 5.0))
    assert position == (LOW, HIGH)


def test_a_disc_that_overlaps_a_wall_can_leave_it_and_go_no_deeper():
    """A state from `paper` data may overlap the door's corner."""
    start = Point(104.0, 64.0)
    out, deeper = swept_move(start, Point(-5.0, 0.0)), swept_move(start, Point(5.0, 5.0))
    assert out == (99.0, 64.0)
    assert clearance(deeper, WALLS[1]) >= clearance(start, WALLS[1]) - 1e-9


def test_actions_are_clamped_to_the_action_space():
    ends = []
    for action in ([9.0, -9.0], [1.0, -1.0]):
        env = TwoRoom()
        env.reset(options={"state": np.array([60.0, 112.0]), "goal": np.array([160.0, 112.0])})
        ends.append(env.step(np.array(action, np.float32))[0])
    assert np.array_equal(ends[0], ends[1])
    assert np.array_equal(ends[0], [65.0, 107.0])


def test_success_is_a_distance_below_16_units():
    env = TwoRoom()
    goal = np.array([[60.0, 112.0]] * 3)
    states = goal + np.array([[0.0, 0.0], [15.99, 0.0], [0.0, 16.0]])
    assert (env.goal_distance(states, goal) < 1).tolist() == [True, True, False]


@pytest.mark.parametrize("variant", ["paper", "clean"])
def test_random_starts_and_goals_lie_in_different_rooms_outside_the_wall(variant):
    env = TwoRoom(variant=variant)
    for seed in range(200):
        start, _ = env.reset(seed=seed)
        xs = np.array([start[0], env.goal[0]])
        assert not ((xs >= two_room.WALL_LEFT) & (xs <= two_room.WALL_RIGHT)).any()
        assert (xs[0] > 112) != (xs[1] > 112)
        assert np.linalg.norm(start - DOOR) + np.linalg.norm(env.goal - DOOR) >= 125
        assert not env.succeeded()
        if variant == "clean":
            assert is_free(Point(*start))
            assert is_free(Point(*env.goal))


@pytest.mark.parametrize("variant", ["paper", "clean"])
def test_the_expert_behaves_like_the_released_data(variant):
    """Released file: 40 % of the episodes reach the goal within 100 steps, 91 steps on average, never under 30."""
    env = TwoRoom(variant=variant)
    episodes = [collect_episode(env, 0, index) for index in range(120)]
    lengths = np.array([len(states) - 1 for states, _ in episodes])
    assert 0.25 < np.mean([reached for _, reached in episodes]) < 0.55
    assert 87 < lengths.mean() < 95
    assert lengths.min() >= 25
    crossed = np.mean([(s[0, 0] > 112) != (s[-1, 0] > 112) for s, _ in episodes])
    assert crossed > 0.7


def test_without_noise_the_expert_reaches_every_goal_in_clean_physics(monkeypatch):
    monkeypatch.setattr(two_room, "EXPERT_NOISE_STD", 0.0)
    env = TwoRoom(variant="clean")
    assert all(collect_episode(env, 1, index)[1] for index in range(60))


@pytest.mark.parametrize("variant", ["paper", "clean"])
def test_a_restored_state_replays_to_the_same_bits(variant):
    env, fresh = TwoRoom(variant=variant), TwoRoom(variant=variant)
    states, _ = collect_episode(env, 2, 0)
    actions = rng.stream(0, "replay").uniform(-1, 1, (30, 2)).astype(np.float32)
    for start in states[::10]:
        paths = []
        for world in (env, fresh):
            world.restore(start)
            paths.append(np.array([world.step(a)[0] for a in actions]))
        assert np.array_equal(paths[0], paths[1])


def test_a_picture_at_224_pixels_has_the_benchmarks_walls_and_dot():
    frame = draw_discs(np.array([[60.0, 112.0]]), 224)[0]
    black, white = [0, 0, 0], [255, 255, 255]
    for y, x, colour in [(112, 107, black), (112, 117, black), (112, 106, white), (112, 118, white)]:
        assert frame[y, x].tolist() == colour
    assert frame[35, 112].tolist() == white
    assert frame[34, 112].tolist() == black
    assert [frame[100, x].tolist() for x in (9, 10, 13, 14)] == [white, black, black, white]
    assert frame[112, 60].tolist() == [255, 0, 0]
    assert frame[112, 67, 1] == math.floor(255 * (1 - math.exp(-0.5)))


@pytest.mark.parametrize("size", [32, 64, 96, 224])
def test_the_dot_stands_where_the_state_says_at_any_size(size):
    position = np.array([[151.3, 88.8]])
    redness = draw_discs(position, size)[0].astype(float) @ [1.0, -0.5, -0.5]
    pixels = (np.arange(size) + 0.5) * 224 / size - 0.5
    centre = np.array([redness.sum(0) @ pixels, redness.sum(1) @ pixels]) / redness.sum()
    assert np.abs(centre - position[0]).max() < 0.35


def test_drawing_many_equals_drawing_each_and_never_shows_the_goal():
    env = TwoRoom()
    env.reset(seed=3)
    states = rng.stream(0, "states").uniform(LOW, HIGH, (5, 2))
    many = env.draw_many(states, 48)
    for state, frame in zip(states, many, strict=True):
        env.restore(state)
        env.set_goal(states[0])
        assert np.array_equal(env.draw(48), frame)


def test_wrong_actions_states_and_policies_are_refused():
    env = TwoRoom()
    env.reset(seed=0)
    with pytest.raises(NonFiniteError):
        env.step(np.array([np.nan, 0.0], np.float32))
    with pytest.raises(ShapeError):
        env.step(np.zeros(3, np.float32))
    with pytest.raises(ShapeError):
        env.goal_distance(np.zeros((3, 2)), np.zeros((2, 2)))
    with pytest.raises(UsageError, match="did you mean 'expert'"):
        env.policy("exprt", rng.stream(0))


def test_tasks_are_told_apart_by_the_door() -> None:
    states = np.array([[50.0, 50.0], [50.0, 50.0], [180.0, 20.0]])
    goals = np.array([[60.0, 180.0], [180.0, 50.0], [30.0, 20.0]])
    assert TwoRoom.task_kinds(states, goals) == ["within a room", "through the door", "through the door"]

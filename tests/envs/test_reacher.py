"""Reacher: dm_control's dynamics, the success rule, the variants, pictures."""

import os
import subprocess
import sys

import numpy as np
import pytest

from saltwm.envs.mujoco_render import choose_backend
from saltwm.envs.reacher import Reacher
from saltwm.ground.rng import stream


def at(shoulder: float, wrist: float) -> np.ndarray:
    return np.array([0, shoulder, wrist, 0, 0, 0, 0, 0, 0], np.float64)


def test_dynamics_are_dm_controls() -> None:
    env = Reacher()
    env.reset(seed=0, options={"state": at(0.3, -1.0)})
    from dm_control.suite import reacher

    physics = reacher.Physics.from_xml_string(*reacher.get_model_and_assets())
    with physics.reset_context():
        physics.data.qpos[:] = [0.3, -1.0]
    rng = stream(0, "torques")
    for _ in range(25):
        action = rng.uniform(-1, 1, 2).astype(np.float32)
        env.step(action)
        physics.set_control(action)
        physics.step(2)
        np.testing.assert_allclose(env.state()[1:3], physics.data.qpos, atol=1e-9)
    env.close()


def test_only_the_clean_shoulder_is_periodic_and_the_wrist_never() -> None:
    paper, clean = Reacher(variant="paper"), Reacher(variant="clean")
    state, turned = at(0.2, 1.0)[None], at(0.2 + 2 * np.pi + 0.01, 1.0)[None]
    assert paper.goal_distance(state, turned)[0] == pytest.approx((2 * np.pi + 0.01) / 0.05)
    assert clean.goal_distance(state, turned)[0] == pytest.approx(0.2)
    across = at(0.2, -np.pi + 0.6)[None], at(0.2, np.pi - 0.6)[None]
    assert clean.goal_distance(*across)[0] > 1
    for env in (paper, clean):
        assert env.goal_distance(state, at(0.2, 1.0499)[None])[0] < 1
        assert env.goal_distance(state, at(0.2, 1.0501)[None])[0] > 1


def test_distance_leaves_its_arguments_alone() -> None:
    state, goal = at(7.0, 0.0)[None], at(0.0, 0.0)[None]
    Reacher(variant="clean").goal_distance(state, goal)
    assert state[0, 1] == 7.0


def test_picture_shows_the_arm_turned_and_no_target() -> None:
    env = Reacher()
    frames = env.draw_many(np.stack([at(0.0, 0.0), at(np.pi / 2, 0.0)]), 64).astype(int)
    arm = (frames[..., 0] - frames[..., 2]) > 30  # the arm is sand-coloured, the floor blue
    (y0, x0), (y1, x1) = (np.argwhere(a).mean(0) for a in arm)
    assert abs(y0 - 32) < 3 < x0 - 32  # pointing right
    assert abs(x1 - 32) < 3 < 32 - y1  # pointing up
    assert 20 < arm[0].sum() < 400
    env.close()


def test_qualities_differ_in_light_but_not_in_where_the_arm_is() -> None:
    arms, frames = {}, {}
    for quality in ("fast", "full"):
        env = Reacher(render_quality=quality)
        env.restore(at(0.5, 1.0))
        frames[quality] = env.draw(96).astype(int)
        arms[quality] = np.argwhere(frames[quality][..., 0] - frames[quality][..., 2] > 30).mean(0)
        env.close()
    assert np.abs(frames["fast"] - frames["full"]).max() > 20
    np.testing.assert_allclose(arms["fast"], arms["full"], atol=1.0)


def test_soft_pictures_are_fast_ones_of_twice_the_size_averaged() -> None:
    frames = {}
    for quality, size in (("fast", 64), ("soft", 32)):
        env = Reacher(render_quality=quality)
        env.restore(at(0.5, 1.0))
        frames[quality] = env.draw(size)
        env.close()
    assert frames["soft"].shape == (32, 32, 3)
    averaged = frames["fast"].reshape(32, 2, 32, 2, 3).mean(axis=(1, 3))
    assert np.abs(frames["soft"] - averaged).max() <= 0.5
    assert not np.array_equal(frames["soft"], frames["fast"][::2, ::2])


def test_smooth_torques_move_the_arm_farther_than_white_noise() -> None:
    env = Reacher()
    spread = {}
    for kind in env.policies:
        moves = []
        for episode in range(5):
            env.reset(seed=episode)
            act = env.policy(kind, stream(0, kind, episode))
            angles = np.array([env.step(act())[0][1:3] for _ in range(100)])
            moves.append(np.abs(angles[25:] - angles[:-25]).max(1))
        spread[kind] = np.median(np.concatenate(moves))
    assert spread["smooth"] > 1.3 * spread["random"]


def test_an_opengl_is_found_here() -> None:
    assert choose_backend() in ("egl", "osmesa", "cgl", "wgl")


def test_a_backend_that_the_user_names_is_respected_and_the_process_ends_quietly() -> None:
    code = (
        "import numpy as np; from saltwm.envs import make_env; env = make_env('reacher'); env.reset(seed=0);"
        "assert env.renderer == 'osmesa' == env.world.renderer; assert env.render().any()"
    )
    run = python(code, MUJOCO_GL="osmesa")
    assert run.returncode == 0, run.stderr
    assert run.stderr == ""


def test_an_opengl_that_cannot_be_loaded_is_named() -> None:
    code = "from saltwm.envs import make_env; env = make_env('reacher'); env.reset(seed=0); env.render()"
    run = python(code, MUJOCO_GL="osmesa", PYOPENGL_PLATFORM="egl")
    assert "UsageError: MuJoCo cannot draw with MUJOCO_GL=osmesa (PYOPENGL_PLATFORM is egl)" in run.stderr


def test_a_backend_that_there_is_not_is_one_line_and_a_usage_error() -> None:
    run = python("from saltwm.cli import main; main(['env', 'check', 'reacher'])", MUJOCO_GL="nonsense")
    assert run.returncode == 2
    assert run.stderr.splitlines() == [
        "saltwm: invalid value for environment variable MUJOCO_GL: nonsense; unset it to have one chosen"
    ]


def python(code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """The result of running `code` in an interpreter whose OpenGL is not yet chosen."""
    chosen = ("MUJOCO_GL", "PYOPENGL_PLATFORM")
    environment = {key: value for key, value in os.environ.items() if key not in chosen}
    return subprocess.run(
        [sys.executable, "-c", code],
        env=environment | variables,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

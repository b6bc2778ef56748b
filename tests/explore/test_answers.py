"""What the page shows is what the library computes."""

import numpy as np
import pytest
import torch
from conftest import SHIPPED

from saltwm.disk.records import Task, read_tasks
from saltwm.envs import make_env
from saltwm.envs.base import PlanningEnv
from saltwm.explore.desk import Desk
from saltwm.explore.folders import find_places
from saltwm.explore.worker import answer
from saltwm.ground.config import CEMConfig, CEMMapConfig, GaussNewtonConfig
from saltwm.jobs.chunks import read_outcomes
from saltwm.planning.agent import Agent
from saltwm.planning.names import planner_text
from saltwm.planning.policy import View

NO_PAST = {"history_frames": 1, "past": [], "past_actions": []}
BLOCKS = [[0.3, -0.2] * 5, [0.1, 0.4] * 5, [-0.5, 0.2] * 5]


@pytest.fixture(scope="module")
def task(results):
    return read_tasks(results / "tasks/two-room-clean-seed1.json").tasks[0]


def ask(desk, ask_, **options):
    found = answer(desk, ask_, options)
    assert "error" not in found.header, found.header["error"]
    return found


def decide(desk, on, **options):
    usual = {"model": "two-room-salt", "state": on.state, "goal": on.goal, "planner": "gauss-newton"}
    usual |= {"horizon_blocks": 5, "seed": 1, "number": 0, "task": 0, "bounded": True}
    return ask(desk, "decide", **{**usual, "look_every": None, "executed_blocks": 0, "rest": [], **NO_PAST, **options})


@pytest.mark.parametrize("planner", [GaussNewtonConfig(), GaussNewtonConfig(mu=0.05), CEMConfig()])
def test_a_live_decision_is_the_agents_own_to_the_last_bit(desk, task, planner):
    env = make_env("two-room")
    frames = env.draw_many(np.array([task.state, task.goal]), 64)
    agent = Agent(desk.model("two-room-salt"), planner, action_low=[-1, -1], action_high=[1, 1], seed=1)
    view = View(frames[:1, None], np.empty((1, 0, 10), np.float32), frames[1:])
    expected = agent.decide(view, [(0, 0)]).actions[0]
    found = decide(desk, task, planner=planner_text(planner)).header
    assert np.array_equal(np.array(found["actions"], np.float32), expected)


@pytest.mark.parametrize(
    ("planner", "told"),
    [
        ("cem,candidates=1000,iterations=51", "51,000 rollouts"),
        ("gauss-newton,starts=100000,iterations=1", "100,000 rollouts"),
        ("cem,hurry=1", "hurry"),
        ("cem,candidates=many", "must be a number"),
    ],
)
def test_a_planner_that_cannot_be_waited_for_or_is_misspelt_is_refused(desk, task, planner, told):
    asked = {"model": "two-room-salt", "state": task.state, "goal": task.goal, "planner": planner, "horizon_blocks": 5}
    asked |= {"seed": 1, "number": 0, "task": 0, "bounded": True, "look_every": None, "executed_blocks": 0, "rest": []}
    assert told in answer(desk, "decide", asked | NO_PAST).header["error"]


def test_a_recorded_episode_is_repeated_by_deciding_and_advancing_live(desk, results, task):
    recorded = read_outcomes(results / "evaluations/two-room-salt-clean-seed1")[0]
    plan = decide(desk, task, planner="cem").header
    went = ask(desk, "advance", model="two-room-salt", state=task.state, goal=task.goal, actions=plan["actions"]).header
    assert went["reached"] == recorded.record.success
    assert len(went["states"]) == recorded.record.steps_taken
    # The record is of another processor, which rounds otherwise.
    assert went["distances"][-1] == pytest.approx(recorded.record.final_distance, rel=1e-4)


def test_a_way_ends_where_the_world_ends_the_episode(desk, task, monkeypatch):
    asked = {"model": "two-room-salt", "state": task.state, "goal": task.goal, "actions": [[0.5, 0.5]] * 4}
    went = ask(desk, "advance", **asked).header
    assert (len(went["states"]), went["reached"], went["ended"]) == (4, False, False)
    monkeypatch.setattr(PlanningEnv, "over", property(lambda env: True))
    went = ask(desk, "advance", **asked).header
    assert (len(went["states"]), went["reached"], went["ended"]) == (1, False, True)
    at_the_goal = ask(desk, "advance", **asked | {"state": task.goal}).header
    assert (at_the_goal["reached"], at_the_goal["ended"]) == (True, False)


def test_a_task_of_the_authors_is_planned_as_recorded_with_its_own_bounds_and_number(desk, authors):
    cell = "two-room-salt-paper-seed1"
    recorded = read_outcomes(authors / "evaluations" / cell)[3].actions
    shown = ask(desk, "episode", results="authors", cell=cell, task=3).header
    assert (shown["bounded"], shown["variant"], shown["goal_steps"]) == (False, "paper", 25)
    lone = Task(3, 0, 0, tuple(shown["state"]), tuple(shown["goal"]), 0.0)

    def error(**options):
        asked = {"planner": "cem", "bounded": shown["bounded"], "variant": shown["variant"], "task": 3, **options}
        planned = np.array(decide(desk, lone, **asked).header["actions"])[: len(recorded)]
        return np.abs(planned - recorded[: len(planned)]).max()

    assert error() < 1e-4  # the record is of another processor
    assert error(bounded=True) > 1  # the controls
    assert error(task=0) > 1e-2


def test_the_authors_physics_are_asked_for_by_name(desk):
    at_the_wall = {"model": "two-room-salt", "state": [98.0, 150.0], "goal": [20.0, 20.0], "actions": [[1.0, 0.5]] * 8}
    ends = {name: ask(desk, "advance", **at_the_wall, variant=name).header["states"] for name in ("paper", "clean")}
    for name, states in ends.items():
        env = make_env("two-room", variant=name)
        env.restore(np.array([98.0, 150.0]))
        assert states == [env.step(np.array([1.0, 0.5], np.float32))[0].tolist() for _ in range(8)]
    assert ends["paper"] != ends["clean"]
    assert ask(desk, "advance", **at_the_wall).header["states"] == ends["clean"]


def test_a_goal_is_due_when_the_protocol_says(desk, task):
    looks = {"look_every": 1, "executed_blocks": 3}
    assert len(decide(desk, task, **looks).header["actions"]) == 10  # of five blocks
    assert len(decide(desk, task, **looks, goal_blocks=20).header["actions"]) == 25


def test_a_model_that_looks_back_decides_live_with_what_it_saw_and_did_before(desk, task):
    """LeWM with three frames, as `evaluate --history 3` plans from the third block on."""
    done = np.random.default_rng(0).uniform(-1, 1, (10, 2)).astype(np.float32)
    start = {"model": "two-room-lewm", "goal": task.goal}
    went = ask(desk, "advance", **start, state=task.state, actions=done.tolist()).header["states"]
    seen = {"past": [task.state, went[4]], "past_actions": done.tolist(), "history_frames": 3}
    asked = {**start, "state": went[9], "planner": "cem-map", "number": 2, "executed_blocks": 2}
    live, alone = (decide(desk, task, **asked, **past).header["actions"] for past in (seen, NO_PAST))
    frames = make_env("two-room").draw_many(np.array([task.state, went[4], went[9], task.goal]), 64)
    options = {"action_low": [-1, -1], "action_high": [1, 1], "seed": 1, "history_frames": 3}
    agent = Agent(desk.model("two-room-lewm"), CEMMapConfig(), prior=desk.prior("two-room-lewm"), **options)
    view = View(frames[None, :3], done.reshape(1, 2, 10), frames[3:], np.array([2]))
    expected = agent.decide(view, [(0, 2)]).actions[0]
    assert np.array_equal(np.array(live, np.float32), expected)
    assert not np.array_equal(np.array(alone, np.float32), expected)  # the control: one frame makes another plan


def test_a_model_with_one_frame_ignores_what_the_page_knows_of_the_past_and_a_gap_is_refused(desk, task):
    known = {"past": [task.goal], "past_actions": [[0.5, 0.5]] * 5}
    assert decide(desk, task, **known).header["actions"] == decide(desk, task).header["actions"]
    asked = {"model": "two-room-salt", "state": task.state, "goal": task.goal, "planner": "cem", "horizon_blocks": 5}
    asked |= {"seed": 1, "number": 0, "task": 0, "bounded": True, "look_every": None, "executed_blocks": 0, "rest": []}
    found = answer(desk, "decide", {**asked, "history_frames": 3, **known, "past_actions": [[0.5, 0.5]] * 4})
    assert "past_actions: expected 5 actions of 2 numbers from each of 1 past states, found 8" in found.header["error"]


def test_the_replay_of_every_kind_of_episode_ends_where_the_record_says(desk, results):
    outcomes = read_outcomes(results / "evaluations/two-room-lewm-clean-seed1")
    for outcome in (next(o for o in outcomes if o.record.success), next(o for o in outcomes if not o.record.success)):
        shown = ask(desk, "episode", results="results", cell="two-room-lewm-clean-seed1", task=outcome.record.task)
        assert shown.header["distances"][-1] == outcome.record.final_distance
        assert len(shown.blobs) == len(shown.header["steps"]) + 1 + len(shown.header["imagined"])


def test_an_episode_is_seen_again_without_a_dataset_of_its_world(desk, results):
    """What was imagined needs stored frames; the simulator needs none."""
    alone = Desk(find_places([SHIPPED[0], results]))
    episode = {"results": "results", "cell": "two-room-salt-clean-seed1", "task": 0}
    found, whole = ask(alone, "episode", **episode), ask(desk, "episode", **episode)
    assert found.header["imagined"] == []
    shown = len(found.header["steps"]) + 1
    assert found.blobs == whole.blobs[:shown]
    assert whole.header["imagined"]  # the control: with a dataset it is there


def test_a_look_after_one_block_plans_for_what_is_left(desk, task):
    first = decide(desk, task, look_every=1).header["actions"]
    later = decide(desk, task, look_every=1, executed_blocks=1, rest=first[5:], number=1).header["actions"]
    assert (len(first), len(later)) == (25, 20)


def test_expected_costs_are_those_of_the_models_rollout(desk, task):
    found = decide(desk, task)
    path = torch.from_numpy(np.frombuffer(found.blobs[0], "<f4").reshape(5, -1).copy())
    goal = desk.latent("two-room-salt", tuple(task.goal))
    assert found.header["expected_costs"] == pytest.approx((path - goal).square().mean(1).tolist(), rel=1e-3)


def test_shares_of_one_step_errors_add_up_for_an_affine_model_and_not_for_lewm(desk, task):
    affine, other = (
        ask(desk, "decompose", model=f"two-room-{name}", state=task.state, episode=0, step=0, blocks=BLOCKS).header
        for name in ("salt", "lewm")
    )
    assert abs(affine["remainder"]) < 1e-9
    assert affine["rho"] < 1e-9
    assert sum(affine["shares"]) == pytest.approx(1)
    assert other["rho"] > 1e-3  # the control: what no linear propagation explains
    assert abs(other["remainder"]) > 1e-4


def test_the_terms_are_the_propagated_one_step_errors(desk, task):
    from saltwm.diagnostics.propagation import measure

    model = desk.model("two-room-salt")
    found = ask(desk, "imagine", model="two-room-salt", state=task.state, episode=0, step=0, blocks=BLOCKS).header
    latents = torch.stack([desk.latent("two-room-salt", tuple(s)) for s in [task.state, *found["states"]]])
    measured = measure(model.transition, latents[None], model.condition(torch.tensor(BLOCKS)[None]))
    taken = ask(desk, "decompose", model="two-room-salt", state=task.state, episode=0, step=0, blocks=BLOCKS).header
    # Encoding pictures together or one by one differs in the last bits.
    assert taken["delta"] == pytest.approx(measured.delta[0].norm(dim=1).tolist(), rel=1e-4)
    assert taken["terms"][-1] == pytest.approx(float(measured.epsilon[0, -1].norm()), rel=1e-4)


def test_the_nearest_frame_to_a_stored_latent_is_that_frame(desk):
    gallery = desk.gallery("two-room-salt")
    places = [0, 17, 500]
    assert gallery.nearest(gallery.latents[places]) == places


def test_a_goal_in_the_wall_is_put_beside_it(desk):
    drawn = ask(desk, "draw", model="two-room-salt", state=[110.0, 150.0]).header["state"]
    assert drawn == [100.0, 150.0]
    assert ask(desk, "draw", model="two-room-salt", state=[110.0, 49.0]).header["state"] == [110.0, 49.0]  # the door


def test_push_t_trails_are_the_agents_own_way():
    from saltwm.explore.scenes import scene_of

    env = make_env("push-t")
    env.reset(seed=3)
    state = env.state()
    state[2:4] = (440.0, 440.0)  # the block is out of the way
    actions = np.random.default_rng(0).uniform(-1, 1, (1, 6, 2)).astype(np.float32)
    env.restore(state)
    way = np.stack([state[:2], *(env.step(action)[0][:2] for action in actions[0])])
    # Actions are float32 here and there, but not multiplied in the same order.
    assert scene_of("push-t").trails(env, state, actions)[0] == pytest.approx(way / 512, abs=1e-7)


def test_imagined_frames_are_labelled_decoded_only_when_a_decoder_is_fitted(desk, task, monkeypatch):
    monkeypatch.setattr("saltwm.explore.desk.DECODER_STEPS", 3)
    assert decide(desk, task).header["decoded"] == 0
    assert ask(desk, "decoder", model="two-room-salt").header["steps"] == 0
    while desk.idle():
        pass
    found = decide(desk, task)
    assert found.header["decoded"] == 5
    assert len(found.blobs) == 6
    assert all(blob.startswith(b"\x89PNG") for blob in found.blobs[1:])


def test_flags_are_a_command_that_draws_just_those_episodes(tmp_path):
    from saltwm import cli

    cli.main(["data", "preview", "checkpoints/two-room-data", "--only", "3", "17", "--out", str(tmp_path / "flagged")])
    assert (tmp_path / "flagged/contact-sheet.png").exists()


def test_no_action_is_no_step(desk, task):
    found = ask(desk, "advance", model="two-room-salt", state=task.state, goal=task.goal, actions=[])
    assert found.header["states"] == []
    assert not found.header["reached"]

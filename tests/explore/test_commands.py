"""A copied command does in the terminal what was seen in the page."""

import dataclasses
import shlex

import numpy as np
import pytest

from saltwm import cli
from saltwm.explore.worker import answer
from saltwm.ground.errors import UsageError
from saltwm.jobs.by_hand import task_by_hand
from saltwm.jobs.chunks import read_outcomes
from saltwm.jobs.evaluate import Play

START, GOAL = [60.0, 130.0], [75.5, 100.25]


def ask(desk, question, **options):
    found = answer(desk, question, options)
    assert "error" not in found.header, found.header["error"]
    return found.header


def seen_in_the_page(desk, planner, look_every):
    """Look, plan, act and look again as the page does; the states on the way."""
    state, queue, states, plans, since = START, [], [], 0, 0
    every = 25 if look_every is None else 5 * look_every
    while len(states) < 200:
        if not queue or since >= every:
            options = {"state": state, "goal": GOAL, "planner": planner, "horizon_blocks": 5, "seed": 4}
            options |= {"number": plans, "task": 0, "bounded": True, "look_every": look_every}
            options |= {"executed_blocks": len(states) // 5, "rest": queue if look_every else []}
            options |= {"history_frames": 1, "past": [], "past_actions": []}
            queue, since, plans = ask(desk, "decide", model="two-room-salt", **options)["actions"], 0, plans + 1
        now, queue = queue[:5], queue[5:]
        done = ask(desk, "advance", model="two-room-salt", state=state, goal=GOAL, actions=now)
        states += done["states"]
        state, since = states[-1], since + 5
        if done["reached"]:
            break
    return np.array(states)


@pytest.mark.parametrize(("planner", "look_every"), [("map", 1), ("gauss-newton,mu=0.1", None), ("prior", 2)])
def test_a_goal_that_was_set_by_hand_is_reached_in_the_terminal_by_the_same_states(desk, tmp_path, planner, look_every):
    options = {"model": "two-room-salt", "start": START, "goal": GOAL, "planner": planner, "horizon_blocks": 5}
    command = ask(desk, "command", **options, look_every=look_every, history_frames=1, seed=4, bounded=True)["command"]
    program, verb, *words = shlex.split(command)
    assert (program, verb) == ("saltwm", "play")
    played = dataclasses.replace(cli.parse([verb, *words]), out=tmp_path).do()
    assert played.outcome.record.success
    expected = seen_in_the_page(desk, planner, look_every)
    assert len(played.outcome.actions) == len(expected)
    env = desk.env_of("two-room-salt")
    env.restore(np.array(START))
    assert np.array_equal(np.stack([env.step(action)[0] for action in played.outcome.actions]), expected)


def test_the_command_of_a_recorded_episode_repeats_it(desk, results, tmp_path):
    cell = "two-room-salt-clean-seed1"
    command = ask(desk, "episode", results="results", cell=cell, task=2)["command"]
    played = dataclasses.replace(cli.parse(shlex.split(command)[1:]), out=tmp_path).do()
    recorded = read_outcomes(results / "evaluations" / cell)[2]
    assert played.outcome.record.steps_taken == recorded.record.steps_taken
    # The record is of another processor, which rounds otherwise; another seed's actions differ in their first digit.
    assert np.allclose(played.outcome.actions, recorded.actions, atol=1e-4)


def recorded_command(desk, **options):
    """The command of Act on a recorded task of the authors' protocol, with the settings of its record."""
    cell = {"results": "authors", "cell": "two-room-salt-paper-seed1", "task": 3}
    shown = ask(desk, "episode", **cell)
    settings = {"planner": "cem", "horizon_blocks": 5, "look_every": None, "history_frames": 1, "seed": 1}
    settings |= {"bounded": False, "start": shown["state"], "goal": shown["goal"]}
    return answer(desk, "command", {"model": "two-room-salt", **settings, "recorded": cell, **options}).header


def test_the_command_of_act_on_a_recorded_task_repeats_it(desk, authors, tmp_path):
    command = recorded_command(desk)["command"]
    played = dataclasses.replace(cli.parse(shlex.split(command)[1:]), out=tmp_path).do()
    assert played.tasks.protocol.name == "paper"
    recorded = read_outcomes(authors / "evaluations/two-room-salt-paper-seed1")[3].actions
    assert np.allclose(played.outcome.actions, recorded, atol=1e-4)  # the record is of another processor


@pytest.mark.parametrize("options", [{"bounded": True}, {"seed": 2}])
def test_what_a_protocol_fixes_is_not_left_out_of_a_command_silently(desk, options):
    said = recorded_command(desk, **options)["error"]
    assert said.startswith("command: task 3 of two-room-paper-seed1.json has seed 1 and actions that are free")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"start": "[1, 2]"}, "together"),
        ({"goal": "[1, 2]"}, "together"),
        ({"start": "[1, 2]", "goal": "[1, 2]", "task": 3}, "together"),
        ({"unbounded": True}, "--unbounded"),
        ({"start": "[1, 2", "goal": "[1, 2]"}, "JSON list"),
        ({"start": "[1, true]", "goal": "[1, 2]"}, "JSON list"),
        ({"start": "[1, NaN]", "goal": "[1, 2]"}, "JSON list"),
        ({"start": '{"a": 1}', "goal": "[1, 2]"}, "JSON list"),
        ({"start": f"[1{400 * '0'}, 2]", "goal": "[1, 2]"}, "--start: a number is too large"),
    ],
)
def test_half_a_task_and_nonsense_are_refused(options, why):
    with pytest.raises(UsageError, match=why):
        task_by_hand(Play("checkpoints/two-room-salt", **options))

"""The commands beside the figures evaluate exactly the recorded cells again: these tasks, these settings, no more."""

import shlex
from pathlib import Path

import pytest

from saltwm.disk import durable
from saltwm.disk.records import Cell, Evaluation, Rate
from saltwm.ground.config import CEMConfig, GaussNewtonConfig
from saltwm.ground.strict_json import to_plain
from saltwm.report.commands import evaluation_commands

CEM, GAUSS_NEWTON = to_plain(CEMConfig()), to_plain(GaussNewtonConfig())


def cell(method="salt", seed=1, protocol="clean", horizon=5, run="c/x-salt", planner=CEM):
    run, planner = (None, {}) if method == "random" else (run, planner)
    tasks = f"tasks/x-{protocol}-seed{seed}.json"
    rate = Rate(5, 10, 0.2, 0.8)
    e = Evaluation("x", method, protocol, horizon, planner, tasks, tasks, run, run and "ab", seed, rate, None, 1.0)
    return Cell(f"x-{method}-{protocol}-seed{seed}-h{horizon}", e, ())


def commands(*cells, results=Path("r")):
    return evaluation_commands(results, cells)


def test_models_on_the_same_tasks_are_one_suite_and_bring_the_random_policy():
    cells = [cell(method, seed, run=f"c/x-{method}") for method in ("salt", "lewm", "random") for seed in (1, 2)]
    (line,) = commands(*cells)
    tasks = "r/tasks/x-clean-seed1.json r/tasks/x-clean-seed2.json"
    assert line == f"saltwm suite c/x-salt c/x-lewm --task-sets {tasks} --out work/again"


def test_nothing_is_evaluated_that_was_not():
    lewm = {"method": "lewm", "run": "c/x-lewm"}
    lines = commands(cell(seed=1), cell(seed=2), cell(**lewm, seed=1), cell("random", seed=2))
    assert lines == [
        "saltwm suite c/x-salt --task-sets r/tasks/x-clean-seed1.json r/tasks/x-clean-seed2.json --no-random "
        "--out work/again",
        "saltwm suite c/x-lewm --task-sets r/tasks/x-clean-seed1.json --no-random --out work/again",
        "saltwm evaluate random --task-set r/tasks/x-clean-seed2.json --out work/again",
    ]


def test_horizons_are_named_unless_they_are_the_protocol_s_own():
    lines = commands(*(cell(protocol="long", horizon=h) for h in (10, 15, 20)), cell(protocol="clean-hold3"))
    assert [line.split(" --no-random")[0].split(".json ")[1:] for line in lines] == [
        ["--horizons 10 15 20"],
        ["--horizons 5"],
    ]
    assert "--horizons" not in commands(cell())[0]


def test_another_planner_has_a_suite_of_its_own():
    lines = commands(cell(), cell("salt-gauss-newton", planner=GAUSS_NEWTON))
    assert ["--planners gauss-newton" in line for line in lines] == [False, True]


@pytest.mark.parametrize(
    ("changes", "options"),
    [
        (
            {"method": "mu-0.5", "planner": GAUSS_NEWTON | {"mu": 0.5}},
            "--planner gauss-newton,mu=0.5 --method mu-0.5",
        ),
        ({"method": "salt-gauss-newton", "planner": GAUSS_NEWTON | {"mu": 2}}, "--planner gauss-newton,mu=2"),
        ({"method": "my-salt", "horizon": 7}, "--horizon 7 --method my-salt"),
    ],
)
def test_what_no_suite_says_is_a_single_evaluation(changes, options):
    assert commands(cell(**changes)) == [
        f"saltwm evaluate c/x-salt --task-set r/tasks/x-clean-seed1.json {options} --out work/again"
    ]


def test_a_longer_history_is_read_from_the_job(tmp_path):
    looked_back = cell("lewm")
    folder = tmp_path / "evaluations" / looked_back.name
    folder.mkdir(parents=True)
    for frames, option in ((1, "--no-random"), (3, "--history 3")):
        durable.write_json(folder / "job.json", {"history_frames": frames})
        (line,) = commands(looked_back, results=tmp_path)
        assert option in line


def test_what_only_python_can_say_is_no_command():
    lines = commands(cell(planner={"kind": "theirs"}), cell("mine", run=None, planner={}))
    assert [line.split(":")[0] for line in lines] == ["# x-salt-clean-seed1-h5", "# x-mine-clean-seed1-h5"]


def test_the_command_line_takes_every_command():
    import tyro

    from saltwm.jobs.evaluate import Evaluate
    from saltwm.jobs.suite import Suite

    cells = [cell(protocol="long", horizon=15), cell("random"), cell("salt-gauss-newton", planner=GAUSS_NEWTON)]
    cells.append(cell("mu-0.5", horizon=7, planner=GAUSS_NEWTON | {"mu": 0.5}))
    for line in commands(*cells):
        words = shlex.split(line)
        verb = tyro.cli({"suite": Suite, "evaluate": Evaluate}[words[1]], args=words[2:])
        assert verb.out == Path("work/again")
        assert (verb.task_set if words[1] == "evaluate" else verb.task_sets[0]).parent == Path("r/tasks")


def test_a_path_with_a_space_is_quoted():
    (line,) = commands(cell(run="my runs/salt"))
    assert shlex.split(line)[2] == "my runs/salt"

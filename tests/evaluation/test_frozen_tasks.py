"""Frozen task sets: evaluated as they are, without the data that they were chosen from."""

import dataclasses
import json

import pytest

from saltwm.cli import main
from saltwm.disk import durable
from saltwm.disk.records import read_plan
from saltwm.evaluation.tasks import read_frozen
from saltwm.ground.config import CEMConfig
from saltwm.ground.errors import DamagedError, MismatchError, UsageError
from saltwm.ground.strict_json import to_plain
from saltwm.jobs.chunks import run_one
from saltwm.jobs.evaluate import Evaluate, settle
from saltwm.jobs.suite import Suite

FAST = CEMConfig(candidates=12, iterations=2, elites=4)


@pytest.fixture(scope="module")
def chosen(dataset, run, tmp_path_factory):
    """Results of SALT and the random policy on tasks chosen from the dataset."""
    results = tmp_path_factory.mktemp("chosen")
    options = {"planners": (FAST,), "tasks": 6, "workers": 1, "pictures": 0}
    Suite((run,), (dataset.path,), out=results, protocols=("paper",), seeds=(2,), **options).do()
    return results


@pytest.fixture
def tasks_file(chosen):
    return chosen / "tasks" / "two-room-paper-seed2.json"


def files(results, names=("episodes.jsonl", "actions.npy")):
    return {path.relative_to(results): path.read_bytes() for name in names for path in results.rglob(name)}


def test_a_suite_on_the_frozen_set_gives_the_same_bytes_and_freezes_the_same_set(chosen, tasks_file, run, tmp_path):
    Suite((run,), task_sets=(tasks_file,), out=tmp_path, planners=(FAST,), workers=1, pictures=0).do()
    assert files(tmp_path) == files(chosen)
    assert (tmp_path / "tasks" / tasks_file.name).read_bytes() == tasks_file.read_bytes()
    assert read_plan(tmp_path) == read_plan(chosen)


def test_the_verbs_take_a_frozen_set_in_place_of_data(chosen, tasks_file, run, tmp_path, capsys):
    words = ["--out", str(tmp_path), "--workers", "1", "--pictures", "0", "--json"]
    main(["evaluate", "random", "--task-set", str(tasks_file), *words])
    cell = "evaluations/two-room-random-paper-seed2/episodes.jsonl"
    assert (tmp_path / cell).read_bytes() == (chosen / cell).read_bytes()
    capsys.readouterr()
    main(["suite", "--task-sets", str(tasks_file), "--horizons", "7", *words])
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [(row["method"], row["horizon_blocks"]) for row in rows] == [("random", 5), ("random", 7)]
    main(["play", "random", "--task-set", str(tasks_file), "--task", "1", "--out", str(tmp_path / "play"), "--json"])
    assert "two-room-random-paper-seed2-task-001-" in json.loads(capsys.readouterr().out)["moving"]


@pytest.mark.parametrize(
    "words",
    [
        ["evaluate", "random"],
        ["evaluate", "random", "--data", "DATA", "--task-set", "SET"],
        ["suite"],
        ["suite", "--data", "DATA", "--task-sets", "SET"],
        ["suite", "--task-sets", "SET", "--seeds", "3"],
        ["suite", "--task-sets", "SET", "--tasks", "3"],
        ["play", "random"],
        *[
            ["evaluate", "random", "--task-set", "SET", *option]
            for option in (
                ["--protocol", "paper"],
                ["--seed", "2"],
                ["--tasks", "6"],
                ["--last-start"],
                ["--hold", "1"],
            )
        ],
    ],
)
def test_tasks_come_from_one_place_and_options_that_choose_them_go_with_data(
    words, dataset, tasks_file, tmp_path, capsys
):
    places = {"DATA": str(dataset.path), "SET": str(tasks_file)}
    with pytest.raises(SystemExit) as stopped:
        main([places.get(word, word) for word in words] + ["--out", str(tmp_path / "out")])
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "give one of the two" in error or "leave" in error
    assert not (tmp_path / "out").exists()


def test_edited_sets_and_sets_of_other_rules_are_refused(tasks_file, tmp_path):
    tasks = read_frozen(tasks_file)
    path = tmp_path / "tasks.json"

    def freeze(**changes):
        changed = dataclasses.replace(tasks, **changes)
        durable.write_json(path, {"sha256": changed.sha256, **to_plain(changed)})
        return path

    path.write_text(tasks_file.read_text().replace('"start_step": ', '"start_step": 1'))
    with pytest.raises(DamagedError, match="edited"):
        read_frozen(path)
    with pytest.raises(MismatchError, match=r"not that of this version \(budget_steps: expected 50, found 60\)"):
        read_frozen(freeze(protocol=dataclasses.replace(tasks.protocol, budget_steps=60)))
    with pytest.raises(UsageError, match="protocol"):
        read_frozen(freeze(protocol=dataclasses.replace(tasks.protocol, name="../paper")))
    with pytest.raises(UsageError, match="environment"):
        read_frozen(freeze(world=dataclasses.replace(tasks.world, environment="../two-room")))
    for bad in ({"tasks": ()}, {"tasks": tasks.tasks[1:]}, {"seed": -1}):
        with pytest.raises(DamagedError, match="numbered from 0 and a seed"):
            read_frozen(freeze(**bad))
    with pytest.raises(UsageError, match="no such file"):
        read_frozen(tmp_path / "nothing.json")


@pytest.fixture
def elsewhere(tasks_file, tmp_path):
    """Writes the task set as of another world."""

    def freeze(**changes):
        tasks = read_frozen(tasks_file)
        changed = dataclasses.replace(tasks, world=dataclasses.replace(tasks.world, **changes))
        durable.write_json(tmp_path / "elsewhere.json", {"sha256": changed.sha256, **to_plain(changed)})
        return tmp_path / "elsewhere.json"

    return freeze


def test_a_set_of_another_world_is_refused_and_one_of_imported_pictures_wants_its_data(elsewhere, run, tmp_path):
    larger, out = elsewhere(image_size=24), tmp_path / "out"
    with pytest.raises(MismatchError, match="image_size: expected 16, found 24"):
        Evaluate(str(run), task_set=larger, out=out).do()
    with pytest.raises(MismatchError, match="no task set given with --task-sets is of"):
        Suite((run,), task_sets=(larger,), out=out).do()
    with pytest.raises(UsageError, match="give that dataset with --data"):
        settle(Evaluate("random", task_set=elsewhere(renderer="imported")), out)
    with pytest.raises(UsageError, match=r"give the suite that dataset with --data, or evaluate one method at a time"):
        Suite((), task_sets=(elsewhere(renderer="imported"),), out=out).do()
    assert not out.exists()


def test_records_come_from_the_renderer_that_the_tasks_name_and_a_look_says_which(
    tasks_file, elsewhere, tmp_path, capsys
):
    drawn_by_egl = Evaluate("random", task_set=elsewhere(renderer="egl"), out=tmp_path / "refused", workers=1)
    with pytest.raises(MismatchError, match=r"drawn with numpy here, .* with egl; set MUJOCO_GL=egl, or collect"):
        drawn_by_egl.do()
    outcome = run_one(settle(drawn_by_egl, tmp_path / "looked-at"), 0)
    assert "pictures are drawn with numpy here" in capsys.readouterr().err
    assert outcome.record.task == 0

    run_one(settle(Evaluate("random", task_set=tasks_file), tmp_path / "at-home"), 0)
    assert capsys.readouterr().err == ""

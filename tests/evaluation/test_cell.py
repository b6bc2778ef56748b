"""Evaluations: the same records whatever the workers, resumed without repeating, never averaged over holes."""

import dataclasses
import os
import re
import shutil
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from saltwm.cli import main, parse
from saltwm.cli.advice import advice
from saltwm.disk import checkpoint, durable
from saltwm.disk.checkpoint import FORMAT, CheckpointInfo, RunInfo
from saltwm.disk.records import read_cell, read_cells, read_tasks
from saltwm.evaluation.contests import comparisons
from saltwm.ground.config import (
    CEMConfig,
    EncoderConfig,
    GaussNewtonConfig,
    ModelConfig,
    PriorPlanner,
    RunConfig,
    TrainConfig,
)
from saltwm.ground.errors import DamagedError, MismatchError, UsageError
from saltwm.ground.identity import filed
from saltwm.jobs import cell as cells
from saltwm.jobs.chunks import chunk_writer, read_chunk, read_outcomes
from saltwm.jobs.collect import Collect
from saltwm.jobs.evaluate import Evaluate, evaluate_policy, settle
from saltwm.jobs.job import spell
from saltwm.model.world_model import WorldModel
from saltwm.planning.policy import Decision

FAST = CEMConfig(candidates=12, iterations=2, elites=4)
ROOT = Path(__file__).parents[2]


@pytest.fixture
def asked(dataset, undisturbed):
    """Twelve tasks of the paper's protocol, into the results that are there unless it is said otherwise."""
    return lambda run, out=undisturbed, **options: evaluation_of(run, dataset, out, **options)


def evaluation_of(run, dataset, out, **options):
    planner = {} if run in ("random", "own") else {"planner": FAST}
    options = {"protocol": "paper", "tasks": 12, "workers": 1, "pictures": 0} | planner | options
    return Evaluate(str(run), data=dataset.path, out=out, **options)


def settled(job):
    return settle(job, job.out)


def records(results):
    return {path.parent.name: path.read_bytes() for path in sorted(results.glob("evaluations/*/episodes.jsonl"))}


@pytest.fixture(scope="module")
def undisturbed(run, dataset, tmp_path_factory):
    results = tmp_path_factory.mktemp("undisturbed")
    evaluation_of(run, dataset, results, pictures=1).do()
    return results


def test_records_do_not_depend_on_the_number_of_workers(undisturbed, run, asked, tmp_path):
    asked(run, tmp_path, workers=2).do()
    assert records(tmp_path) == records(undisturbed)


def test_an_evaluation_is_complete_and_counts_its_episodes(undisturbed):
    cell = read_cell(undisturbed / "evaluations" / "two-room-salt-paper-seed1")
    assert cell.evaluation.success.n == len(cell.episodes) == 12
    assert all(len(plan.elite_costs) == FAST.iterations for e in cell.episodes for plan in e.plans)
    pictures = sorted(path.suffix for path in (undisturbed / "evaluations" / cell.name / "pictures").iterdir())
    assert pictures == [".gif", ".png"]


def compared(results):
    """Pairs of methods, each by its own name without what its small size adds to it in tables."""
    pairs = comparisons(read_cells(results))
    return {(pair.method_a.partition("-")[0], pair.method_b.partition("-")[0]) for pair in pairs}


class NoPool:
    """A pool for evaluations that must not need one."""

    busy, free = False, True

    def assign(self, item):
        pytest.fail("it was run again")


def test_a_finished_evaluation_is_not_repeated(run, asked):
    assert cells.evaluate(settled(asked(run)), NoPool()).success.n == 12


def test_another_checkpoint_or_planner_is_refused_its_place_and_told_how_to_get_one(undisturbed, run, asked):
    before = records(undisturbed)
    other = asked(run, planner=CEMConfig(candidates=13, iterations=2, elites=4))
    with pytest.raises(MismatchError, match=r"planner.candidates: expected 13, found 12") as error:
        other.do()
    assert advice(error.value).endswith("with --method NAME")
    here = settled(asked(run))
    retrained = dataclasses.replace(here.job, inputs={**here.job.inputs, "run": "0" * 64})
    with pytest.raises(MismatchError, match=r"inputs.run: expected 000000000000, found \w{12}\)"):
        cells.evaluate(here._replace(job=retrained), NoPool())
    assert records(undisturbed) == before
    assert settled(dataclasses.replace(other, method="wide")).folder.name == "two-room-wide-paper-seed1"
    with pytest.raises(UsageError, match="folders bear it"):
        settled(asked(run, method="../elsewhere"))


def test_the_same_run_by_another_path_is_the_same_job(run, asked, monkeypatch):
    monkeypatch.chdir(run.parent)
    here = settled(asked(Path(run.name)))
    assert not Path(here.job.run).is_absolute()
    assert cells.evaluate(here, NoPool()).success.n == 12


def test_a_cell_s_file_is_its_command(undisturbed, run, asked, tmp_path):
    folder = undisturbed / "evaluations" / "two-room-salt-paper-seed1"
    job = Evaluate.found_in(folder)
    assert settled(job).job == dataclasses.replace(settled(asked(run)).job, workers=2, pictures=4)
    words = spell(dataclasses.replace(job, out=tmp_path)).split()
    assert f"--task-set {undisturbed}/tasks/two-room-paper-seed1.json" in " ".join(words)
    assert "--planner cem,candidates=12,iterations=2,elites=4" in " ".join(words)
    main([*words[1:], "--workers", "1", "--pictures", "0"])
    assert records(tmp_path) == records(undisturbed)
    retrained = dataclasses.replace(job, inputs={**job.inputs, "run": "0" * 64}, out=tmp_path)
    with pytest.raises(MismatchError, match=r"not those of the first time \(run: expected 000000000000"):
        retrained.do()


SHIPPED_CELLS = sorted(cell for root in ("results", "search") for cell in (ROOT / root / "evaluations").iterdir())


@pytest.mark.parametrize("cell", SHIPPED_CELLS, ids=lambda path: path.name)
def test_every_shipped_cell_is_the_job_that_its_command_asks_for(cell, monkeypatch):
    monkeypatch.chdir(ROOT)
    job = Evaluate.found_in(cell.relative_to(ROOT))
    words = spell(job)
    again = parse(words.split()[1:])
    assert dataclasses.replace(again, inputs=job.inputs) == job
    if job.run != "random" and not Path(job.run).is_relative_to("checkpoints"):
        return  # its model is not shipped; LAB.md has the command that trains it
    assert job.inputs == {
        "run": "random" if job.run == "random" else durable.sha256(Path(job.run) / durable.MANIFEST),
        "task_set": read_tasks(job.task_set).sha256,
        **({"prior": durable.sha256(Path(job.run) / "prior" / durable.MANIFEST)} if "prior" in job.inputs else {}),
    }
    assert ("prior" in job.inputs) == isinstance(job.planner, PriorPlanner)


def test_an_interrupted_evaluation_goes_on_with_the_chunks_that_are_left(
    undisturbed, run, asked, tmp_path, monkeypatch
):
    written = []

    def interrupting(self, seconds=0.1):
        found = original(self, seconds)
        written.extend(event.item[1] for event in found if event.kind == "done")
        if len(written) == 1:
            written.append(None)
            raise KeyboardInterrupt
        return found

    original = cells.Workers.events
    monkeypatch.setattr(cells.Workers, "events", interrupting)
    with pytest.raises(KeyboardInterrupt):
        asked(run, tmp_path).do()
    assert records(tmp_path) == {}
    (clock,) = tmp_path.glob(f"evaluations/*/chunks/{cells.SECONDS_FILE}")
    assert durable.read_json(clock) > 0
    durable.write_json(clock, 1e6)  # as if the first session had been long
    asked(run, tmp_path).do()
    assert written == [0, None, 5, 10]
    (cell,) = read_cells(tmp_path)
    assert cell.evaluation.seconds > 1e6  # its time is that of both sessions
    assert records(tmp_path) == records(undisturbed)


def children():
    return {int(pid) for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()}


@pytest.mark.usefixtures("spawned_workers")
def test_a_killed_worker_costs_a_retry_and_changes_nothing(undisturbed, run, asked, tmp_path, capsys):
    before, killed = children(), []

    def kill_one():
        while not killed:
            time.sleep(0.05)
            for pid in children() - before:
                if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)
                    return

    killer = threading.Thread(target=kill_one, daemon=True)
    killer.start()
    asked(run, tmp_path, workers=2).do()
    killer.join()
    assert killed
    assert "a worker died (signal SIGKILL); its work is tried again" in capsys.readouterr().err
    assert records(tmp_path) == records(undisturbed)


def test_a_worker_tells_of_each_round_of_plans(run, asked, tmp_path):
    reports = []
    chunk_writer()((settled(asked(run)).job, 0, tmp_path / "chunk.json"), lambda: reports.append(1))
    assert len(reports) == max(len(outcome.record.plans) for outcome in read_chunk(tmp_path / "chunk.json")) > 1


def test_recorded_actions_come_back_with_their_episodes_and_damage_is_told(undisturbed, tmp_path):
    folder = shutil.copytree(undisturbed / "evaluations" / "two-room-salt-paper-seed1", tmp_path / "cell")
    outcomes = read_outcomes(folder)
    assert [len(outcome.actions) for outcome in outcomes] == [outcome.record.steps_taken for outcome in outcomes]
    data = (folder / "actions.npy").read_bytes()
    np.save(folder / "actions.npy", outcomes[0].actions)
    with pytest.raises(DamagedError, match="expected float32 actions of"):
        read_outcomes(folder)
    absurd = re.sub(rb"\((\d+), 2\), \}", rb"(10000000000000, 2), }", data)
    for bad in (data[:20], b"not an array", data[:-8], absurd):
        (folder / "actions.npy").write_bytes(bad)
        with pytest.raises(DamagedError, match="not an array of actions"):
            read_outcomes(folder)
    (folder / "actions.npy").unlink()
    os.mkfifo(folder / "actions.npy")
    with pytest.raises(DamagedError, match=r"actions\.npy: is a pipe or a device"):
        read_outcomes(folder)


class Still:
    """A user's own policy: stays where it is."""

    window = 1

    def decide(self, view, keys):
        return Decision(np.zeros((len(keys), 25, 2), np.float32), np.empty((len(keys), 0)))


def test_ones_own_policy_is_a_row_like_any_other(undisturbed, asked):
    evaluation = evaluate_policy(Still(), asked("own", method="still"))
    solved_at_start = sum(task.distance < 1 for task in read_tasks(undisturbed / evaluation.tasks_file).tasks)
    assert evaluation.success.successes == solved_at_start
    assert ("still", "salt") in compared(undisturbed)
    with pytest.raises(MismatchError, match="belongs to another job"):
        evaluate_policy(Still(), asked("own", method="salt"))
    shutil.rmtree(undisturbed / "evaluations" / "two-room-still-paper-seed1")


def test_random_and_lewm_are_rows_on_the_same_tasks(undisturbed, lewm_run, asked):
    asked("random").do()
    asked(lewm_run, history=3).do()
    found = [read_cell(undisturbed / "evaluations" / name).evaluation for name in records(undisturbed)]
    assert {evaluation.method for evaluation in found} == {"salt", "lewm-history3", "random"}
    assert len({evaluation.tasks_sha256 for evaluation in found}) == 1
    assert compared(undisturbed) == {("salt", "lewm"), ("salt", "random"), ("lewm", "random")}


def test_a_model_that_cannot_look_back_is_offered_what_it_can_use(run, lewm_run, asked):
    assert settled(asked(run, history=1)) == settled(asked(run, history=3))
    job = settled(asked(lewm_run, history=9)).job
    assert (job.history, job.method) == (3, "lewm-history3")
    assert settled(asked(lewm_run)).job.method == "lewm"  # never one row with the other


def test_a_policy_of_ones_own_is_never_taken_for_the_random_one(asked, tmp_path):
    evaluate_policy(Still(), asked("own", tmp_path, method="still", tasks=2))
    with pytest.raises(MismatchError, match=r"inputs.run: expected 'random', found 'own'"):
        asked("random", tmp_path, method="still", tasks=2).do()
    for job in (asked("own", tmp_path, method="random"), asked("own", tmp_path), asked("random", tmp_path)):
        with pytest.raises(UsageError, match="under another name than random"):
            evaluate_policy(Still(), job)


@pytest.mark.parametrize("changed", ["tasks", "model"])
def test_what_changed_after_an_evaluation_was_planned_is_not_recorded_under_the_old_hash(asked, run, tmp_path, changed):
    model = tmp_path / "model"
    shutil.copytree(checkpoint.find_checkpoint(run), model)
    here = settled(asked(model, tmp_path))
    name = {"tasks": "task_set", "model": "run"}[changed]
    job = dataclasses.replace(here.job, inputs={**here.job.inputs, name: "0" * 64})
    with (
        cells.evaluation_workers(1) as pool,
        pytest.raises(MismatchError, match="changed since this evaluation was planned"),
    ):
        cells.evaluate(here._replace(job=job), pool, pictures=0)
    assert not (here.folder / "evaluation.json").exists()


def test_a_method_without_a_name_is_refused(asked, tmp_path):
    with pytest.raises(UsageError, match="method ''"):
        settled(asked("random", tmp_path, method=""))
    assert not (tmp_path / "tasks").exists()


def test_a_closed_loop_evaluation_bears_its_looks_in_name_and_record(asked, run, tmp_path):
    closed = asked(run, tmp_path, look_every=1).do()
    assert (closed.method, closed.look_every) == ("salt-look1", 1)
    cell = read_cell(tmp_path / "evaluations" / "two-room-salt-look1-paper-seed1")
    assert [plan.step for plan in cell.episodes[0].plans][:3] == [0, 5, 10]
    here = settled(asked(run, tmp_path, look_every=1))
    with pytest.raises(MismatchError, match="look_every: expected 2, found 1"):
        dataclasses.replace(here.job, look_every=2).require_own(here.folder)


def test_an_agent_that_looks_counts_down_from_the_distance_of_the_protocol(asked, run, tmp_path, monkeypatch):
    from saltwm.jobs import chunks
    from saltwm.planning import agent

    given = {}
    monkeypatch.setattr(agent, "Agent", lambda *_, **options: given.update(options))
    job, tasks, _ = settled(asked(run, tmp_path, look_every=1, horizon=4))
    env, _ = chunks.surroundings(job, tasks)
    for offset, blocks in ((25, 5), (50, 10), (51, 11)):
        protocol = dataclasses.replace(tasks.protocol, goal_offset_steps=offset)
        chunks._make_policy(job, dataclasses.replace(tasks, protocol=protocol), env)
        assert (given["goal_blocks"], given["horizon_blocks"], given["look_every"]) == (blocks, 4, 1)


def test_a_job_written_before_there_were_looks_is_the_blind_job(asked, run, tmp_path):
    job, _, folder = settled(asked(run, tmp_path))
    old = filed(job)
    del old["look_every"]
    durable.make_folder(folder)
    durable.write_json(folder / "job.json", old)
    job.require_own(folder)


def test_the_random_policy_takes_no_planner_and_no_history(asked, tmp_path):
    for options in ({"planner": FAST}, {"history": 3}):
        with pytest.raises(UsageError, match="neither plans nor looks back"):
            asked("random", tmp_path / "results", **options).do()
    assert not (tmp_path / "results").exists()


def test_gauss_newton_is_refused_before_anything_is_written_where_it_cannot_plan(lewm_run, asked, tmp_path):
    with pytest.raises(UsageError, match=r"needs a state-affine model \(salt\), and this is lewm"):
        asked(lewm_run, tmp_path / "results", planner=GaussNewtonConfig()).do()
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("changes", "held_out"),
    [
        ({"split": "window"}, "it held out windows of this dataset"),
        ({"split_seed": 1}, "its split of this dataset has seed 1 and fraction 0.1"),
    ],
)
def test_clean_refuses_a_run_that_saw_the_episodes(dataset, asked, tmp_path, changes, held_out):
    train = dataclasses.replace(TrainConfig(), **changes)
    path = write_run(tmp_path / "run", dataset.world, dataset.sha256, train)
    clean = asked(path, tmp_path / "results", protocol="clean", tasks=2)
    with pytest.raises(MismatchError, match=f"{held_out}.*--held-out"):
        settled(clean)
    frozen = settled(asked("random", tmp_path / "others", protocol="clean", tasks=2)).job.task_set
    with pytest.raises(MismatchError, match=held_out):
        settled(Evaluate(str(path), task_set=frozen, out=tmp_path / "results"))
    assert not (tmp_path / "results").exists()
    settled(dataclasses.replace(clean, protocol="paper"))  # which says so itself
    other = dataclasses.replace(dataset.recipe.source, seed=99)
    elsewhere = write_run(tmp_path / "elsewhere", dataset.world, "a" * 64, train, other)
    settled(dataclasses.replace(clean, run=str(elsewhere)))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({}, "it was trained on episodes of seed"),  # another number of episodes, or other versions of packages
        ({"policy": "another"}, "it was trained on episodes of seed"),
        (None, "nothing says which episodes it was trained on"),
    ],
)
def test_clean_refuses_the_same_episodes_under_another_hash(dataset, asked, tmp_path, changed, message):
    source = None if changed is None else dataclasses.replace(dataset.recipe.source, **changed)
    path = write_run(tmp_path / "run", dataset.world, "a" * 64, TrainConfig(), source)
    with pytest.raises(MismatchError, match=f"{message}.*--held-out"):
        settled(asked(path, tmp_path / "results", protocol="clean", tasks=2))


def write_run(path, world, dataset_sha256, train, source=None):
    """An untrained SALT that says what it was trained on and how that was split."""
    model = ModelConfig(latent_dim=8, encoder=EncoderConfig("conv", channels=(4,), width=8, projection_dim=8))
    run = RunConfig("test", model, train=train)
    checkpoint.start_run(path, RunInfo(FORMAT, run, world, "data", dataset_sha256, 1, {}))
    weights = WorldModel(model, world).state_dict()
    info = CheckpointInfo(FORMAT, 0, run, world, dataset_sha256, {}, {}, source)
    return checkpoint.save(path, info, weights, {}, keep=1)


def test_a_checkpoint_of_another_world_is_refused(run, dataset, tmp_path):
    from saltwm.jobs.collect import Collect

    other = Collect("two-room", tmp_path / "data", 20, image_size=24, frame_every=5, workers=1).do()
    with pytest.raises(MismatchError, match="image_size: expected 16, found 24"):
        evaluation_of(run, other, tmp_path / "results").do()


def test_a_missing_run_says_how_to_make_one(asked, tmp_path):
    with pytest.raises(UsageError, match="no training run is there") as error:
        asked(tmp_path / "nothing", tmp_path / "results").do()
    assert "saltwm train DATASET --out" in advice(error.value)


@pytest.mark.parametrize(("protocol", "bounded"), [("clean", True), ("paper", False)])
def test_planned_actions_are_bounded_under_clean_and_free_under_paper(
    undisturbed, run, asked, tmp_path, monkeypatch, protocol, bounded
):
    from saltwm.jobs import chunks
    from saltwm.planning import agent

    given = {}
    monkeypatch.setattr(agent, "Agent", lambda *_, **options: given.update(options))
    held_out = Collect(
        "two-room", tmp_path / "held-out", 8, image_size=16, frame_every=5, held_out=True, workers=1
    ).do()
    job, tasks, _ = settled(evaluation_of(run, held_out, tmp_path, protocol=protocol, tasks=2))
    env, _ = chunks.surroundings(job, tasks)
    chunks._make_policy(job, tasks, env)
    assert (
        {"action_low", "action_high"} <= given.keys() if bounded else not {"action_low", "action_high"} & given.keys()
    )


def test_the_median_counts_steps_of_successes_alone(undisturbed, dataset, tmp_path):
    cell = read_cell(next((undisturbed / "evaluations").iterdir()))
    steps = [e.steps_to_success for e in cell.episodes if e.success]
    failed = [e for e in cell.episodes if not e.success]
    assert steps, "a pin needs a success"
    assert failed, "and a failure"
    assert all(e.steps_to_success is None for e in failed)
    assert (
        cell.evaluation.median_steps_to_success
        == np.median(steps)
        != np.median([*steps, *(e.steps_taken for e in failed)])
    )

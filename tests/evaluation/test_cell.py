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

from saltwm.disk import checkpoint, durable
from saltwm.disk.checkpoint import FORMAT, CheckpointInfo, RunInfo
from saltwm.disk.records import read_cell, read_cells, read_tasks
from saltwm.evaluation.statistics import comparisons
from saltwm.ground.config import CEMConfig, EncoderConfig, GaussNewtonConfig, ModelConfig, RunConfig, TrainConfig
from saltwm.ground.errors import DamagedError, MismatchError, SaltError, UsageError
from saltwm.ground.strict_json import from_plain, to_plain
from saltwm.jobs import cell as cells
from saltwm.jobs.chunks import Job, chunk_writer, read_chunk, read_outcomes
from saltwm.jobs.evaluate import Request, evaluate_policy, evaluate_run, make_job
from saltwm.model.world_model import WorldModel
from saltwm.planning.policy import Decision
from saltwm.processes.pool import Event

FAST = CEMConfig(candidates=12, iterations=2, elites=4)


def request(run, **options):
    return Request(run=run, protocol="paper", tasks=12, planner=None if run is None else FAST, **options)


def records(results):
    return {path.parent.name: path.read_bytes() for path in sorted(results.glob("evaluations/*/episodes.jsonl"))}


@pytest.fixture(scope="module")
def undisturbed(run, dataset, tmp_path_factory):
    results = tmp_path_factory.mktemp("undisturbed")
    evaluate_run(request(run), dataset, results, workers=1, pictures=1)
    return results


def test_records_do_not_depend_on_the_number_of_workers(undisturbed, run, dataset, tmp_path):
    evaluate_run(request(run), dataset, tmp_path, workers=2, pictures=0)
    assert records(tmp_path) == records(undisturbed)


def test_an_evaluation_is_complete_and_counts_its_episodes(undisturbed):
    cell = read_cell(undisturbed / "evaluations" / "two-room-salt-paper-seed1")
    assert cell.evaluation.success.n == len(cell.episodes) == 12
    assert all(len(plan.elite_costs) == FAST.iterations for e in cell.episodes for plan in e.plans)
    pictures = sorted(path.suffix for path in (undisturbed / "evaluations" / cell.name / "pictures").iterdir())
    assert pictures == [".gif", ".png"]


class NoPool:
    """A pool for evaluations that must not need one."""

    busy, free = False, True

    def assign(self, item):
        pytest.fail("it was run again")


def test_a_finished_evaluation_is_not_repeated(undisturbed, run, dataset):
    job, folder = make_job(request(run), dataset, undisturbed)
    assert cells.evaluate(job, folder, NoPool()).success.n == 12


def test_another_checkpoint_or_planner_is_refused_its_place_and_told_how_to_get_one(undisturbed, run, dataset):
    before = records(undisturbed)
    other = dataclasses.replace(request(run), planner=CEMConfig(candidates=13, iterations=2, elites=4))
    with pytest.raises(MismatchError, match=r"planner: .* there, .* here.*--method NAME"):
        evaluate_run(other, dataset, undisturbed)
    job, folder = make_job(request(run), dataset, undisturbed)
    retrained = dataclasses.replace(job, checkpoint_sha256="0" * 64)
    with pytest.raises(MismatchError, match=r"checkpoint_sha256: \w{12} there, 000000000000 here.*--method NAME"):
        cells.evaluate(retrained, folder, NoPool())
    assert records(undisturbed) == before
    _, own_place = make_job(dataclasses.replace(other, method="wide"), dataset, undisturbed)
    assert own_place.name == "two-room-wide-paper-seed1"
    with pytest.raises(UsageError, match="folders bear it"):
        make_job(request(run, method="../elsewhere"), dataset, undisturbed)


def test_the_same_run_by_another_path_is_the_same_job(undisturbed, run, dataset, monkeypatch):
    monkeypatch.chdir(run.parent)
    job, folder = make_job(request(Path(run.name)), dataset, undisturbed)
    assert not Path(job.checkpoint).is_absolute()
    assert cells.evaluate(job, folder, NoPool()).success.n == 12


def test_an_interrupted_evaluation_goes_on_with_the_chunks_that_are_left(
    undisturbed, run, dataset, tmp_path, monkeypatch
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
        evaluate_run(request(run), dataset, tmp_path, workers=1, pictures=0)
    assert records(tmp_path) == {}
    (clock,) = tmp_path.glob(f"evaluations/*/chunks/{cells.SECONDS_FILE}")
    assert durable.read_json(clock) > 0
    durable.write_json(clock, 1e6)  # as if the first session had been long
    evaluate_run(request(run), dataset, tmp_path, workers=1, pictures=0)
    assert written == [0, None, 5, 10]
    (cell,) = read_cells(tmp_path)
    assert cell.evaluation.seconds > 1e6  # its time is that of both sessions
    assert records(tmp_path) == records(undisturbed)


def children():
    return {int(pid) for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()}


def test_a_killed_worker_costs_a_retry_and_changes_nothing(undisturbed, run, dataset, tmp_path, capsys):
    before, killed = children(), []

    def kill_one():
        while not killed:
            time.sleep(0.05)
            for pid in children() - before:
                if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)
                    return

    killer = threading.Thread(target=kill_one)
    killer.start()
    evaluate_run(request(run), dataset, tmp_path, workers=2, pictures=0)
    killer.join()
    assert killed
    assert "a worker died (signal SIGKILL); its tasks are tried again" in capsys.readouterr().err
    assert records(tmp_path) == records(undisturbed)


@pytest.mark.parametrize(
    ("lost", "hint"),
    [
        (Event("lost", None, "died (signal SIGKILL)"), "is memory short?"),
        (
            Event("lost", None, "hung (nothing finished for 9 s) and was stopped", hung=True),
            "go on with fewer --workers",
        ),
    ],
)
def test_a_chunk_that_keeps_losing_its_worker_ends_the_evaluation(capsys, lost, hint):
    for losses in range(1, cells.RETRIES + 1):
        cells._say_loss(5, losses, lost)
    assert capsys.readouterr().err.count("tried again") == cells.RETRIES
    with pytest.raises(SaltError, match=re.escape(f"tasks 5...: their worker {lost.why}, 3 times in a row; {hint}")):
        cells._say_loss(5, cells.RETRIES + 1, lost)


def test_a_worker_tells_of_each_round_of_plans(undisturbed, run, dataset, tmp_path):
    job, _ = make_job(request(run), dataset, undisturbed)
    reports = []
    chunk_writer()((job, 0, tmp_path / "chunk.json"), lambda: reports.append(1))
    assert len(reports) == max(len(outcome.record.plans) for outcome in read_chunk(tmp_path / "chunk.json")) > 1


def test_recorded_actions_come_back_with_their_episodes_and_damage_is_told(undisturbed, tmp_path):
    folder = shutil.copytree(undisturbed / "evaluations" / "two-room-salt-paper-seed1", tmp_path / "cell")
    outcomes = read_outcomes(folder)
    assert [len(outcome.actions) for outcome in outcomes] == [outcome.record.steps_taken for outcome in outcomes]
    data = (folder / "actions.npy").read_bytes()
    np.save(folder / "actions.npy", outcomes[0].actions)
    with pytest.raises(DamagedError, match="expected float32 actions of"):
        read_outcomes(folder)
    for bad in (data[:20], b"not an array", data[:-8]):
        (folder / "actions.npy").write_bytes(bad)
        with pytest.raises(DamagedError, match="not an array of actions"):
            read_outcomes(folder)


class Still:
    """A user's own policy: stays where it is."""

    window = 1

    def decide(self, view, keys):
        return Decision(np.zeros((len(keys), 25, 2), np.float32), np.empty((len(keys), 0)))


def test_ones_own_policy_is_a_row_like_any_other(undisturbed, dataset):
    evaluation = evaluate_policy(Still(), "still", dataset, undisturbed, request(None), pictures=0)
    solved_at_start = sum(task.distance < 1 for task in read_tasks(undisturbed / evaluation.tasks_file).tasks)
    assert evaluation.success.successes == solved_at_start
    assert ("still", "salt") in {(c.method_a, c.method_b) for c in comparisons(read_cells(undisturbed))}
    with pytest.raises(MismatchError, match="--method NAME"):
        evaluate_policy(Still(), "salt", dataset, undisturbed, request(None))
    shutil.rmtree(undisturbed / "evaluations" / "two-room-still-paper-seed1")


def test_random_and_lewm_are_rows_on_the_same_tasks(undisturbed, lewm_run, dataset):
    evaluate_run(request(None), dataset, undisturbed, workers=1, pictures=0)
    evaluate_run(request(lewm_run, history_frames=3), dataset, undisturbed, workers=1, pictures=0)
    found = [read_cell(undisturbed / "evaluations" / name).evaluation for name in records(undisturbed)]
    assert {evaluation.method for evaluation in found} == {"salt", "lewm-history3", "random"}
    assert len({evaluation.tasks_sha256 for evaluation in found}) == 1
    pairs = {(c.method_a, c.method_b) for c in comparisons(read_cells(undisturbed))}
    assert pairs == {("lewm-history3", "salt"), ("salt", "random"), ("lewm-history3", "random")}


def test_a_model_that_cannot_look_back_is_offered_what_it_can_use(undisturbed, run, lewm_run, dataset):
    (plain, place), (offered, same_place) = (
        make_job(request(run, history_frames=frames), dataset, undisturbed) for frames in (1, 3)
    )
    assert (plain, place) == (offered, same_place)
    job, _ = make_job(request(lewm_run, history_frames=9), dataset, undisturbed)
    assert (job.history_frames, job.method) == (3, "lewm-history3")
    assert make_job(request(lewm_run), dataset, undisturbed)[0].method == "lewm"  # never one row with the other


def test_a_policy_of_ones_own_is_never_taken_for_the_random_one(dataset, tmp_path):
    asked = Request(run=None, protocol="paper", tasks=2)
    evaluate_policy(Still(), "still", dataset, tmp_path, asked, pictures=0)
    with pytest.raises(MismatchError, match=r"policy: own there, None here"):
        evaluate_run(dataclasses.replace(asked, method="still"), dataset, tmp_path, workers=1, pictures=0)
    with pytest.raises(UsageError, match="give your own another name"):
        evaluate_policy(Still(), "random", dataset, tmp_path, asked)


@pytest.mark.parametrize("changed", ["tasks", "model"])
def test_what_changed_after_an_evaluation_was_planned_is_not_recorded_under_the_old_hash(
    dataset, run, tmp_path, changed
):
    model = tmp_path / "model"
    shutil.copytree(checkpoint.find_checkpoint(run), model)
    job, cell = make_job(request(model), dataset, tmp_path)
    if changed == "tasks":
        job = dataclasses.replace(job, tasks_sha256="0" * 64)
    else:
        job = dataclasses.replace(job, checkpoint_sha256="0" * 64)
    with (
        cells.evaluation_workers(1) as pool,
        pytest.raises(MismatchError, match="changed since this evaluation was planned"),
    ):
        cells.evaluate(job, cell, pool, pictures=0)
    assert not (cell / "evaluation.json").exists()


def test_a_method_without_a_name_is_refused(dataset, tmp_path):
    with pytest.raises(UsageError, match="method ''"):
        make_job(Request(run=None, protocol="paper", tasks=3, method=""), dataset, tmp_path)


def test_a_closed_loop_evaluation_bears_its_looks_in_name_and_record(dataset, run, tmp_path):
    closed = evaluate_run(request(run, look_every=1), dataset, tmp_path, workers=1, pictures=0)
    assert (closed.method, closed.look_every) == ("salt-look1", 1)
    cell = read_cell(tmp_path / "evaluations" / "two-room-salt-look1-paper-seed1")
    assert [plan.step for plan in cell.episodes[0].plans][:3] == [0, 5, 10]
    job, folder = make_job(request(run, look_every=1), dataset, tmp_path)
    with pytest.raises(MismatchError, match="look_every: 1 there, 2 here"):
        cells.require_own_folder(dataclasses.replace(job, look_every=2), folder)


def test_a_job_written_before_there_were_looks_is_the_blind_job(dataset, run, tmp_path):
    job, folder = make_job(request(run), dataset, tmp_path)
    old = to_plain(job)
    del old["look_every"]
    durable.make_folder(folder)
    durable.write_json(folder / "job.json", old)
    cells.require_own_folder(job, folder)
    assert from_plain(Job, old, "job.json") == job


def test_the_random_policy_takes_no_planner_and_no_history(dataset, tmp_path):
    for options in ({"planner": FAST}, {"history_frames": 3}):
        with pytest.raises(UsageError, match="neither plans nor looks back"):
            evaluate_run(Request(run=None, protocol="paper", tasks=3, **options), dataset, tmp_path / "results")
    assert not (tmp_path / "results").exists()


def test_gauss_newton_is_refused_before_anything_is_written_where_it_cannot_plan(lewm_run, dataset, tmp_path):
    asked = Request(run=lewm_run, protocol="paper", tasks=3, planner=GaussNewtonConfig())
    with pytest.raises(UsageError, match=r"needs a state-affine model \(salt\), and this is lewm"):
        evaluate_run(asked, dataset, tmp_path / "results")
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("changes", "held_out"),
    [
        ({"split": "window"}, "it held out windows of this dataset"),
        ({"split_seed": 1}, "its split of this dataset has seed 1 and fraction 0.1"),
    ],
)
def test_clean_refuses_a_run_that_saw_the_episodes(dataset, tmp_path, changes, held_out):
    train = dataclasses.replace(TrainConfig(), **changes)
    path = write_run(tmp_path / "run", dataset.world, dataset.sha256, train)
    asked = Request(run=path, protocol="clean", tasks=2)
    with pytest.raises(MismatchError, match=f"{held_out}.*--held-out"):
        make_job(asked, dataset, tmp_path / "results")
    frozen, _ = make_job(Request(run=None, protocol="clean", tasks=2), dataset, tmp_path / "others")
    with pytest.raises(MismatchError, match=held_out):
        make_job(Request(run=path), read_tasks(Path(frozen.tasks_file)), tmp_path / "results")
    assert not (tmp_path / "results").exists()
    make_job(dataclasses.replace(asked, protocol="paper"), dataset, tmp_path / "results")  # which says so itself
    other = dataclasses.replace(dataset.recipe.source, seed=99)
    elsewhere = write_run(tmp_path / "elsewhere", dataset.world, "a" * 64, train, other)
    make_job(dataclasses.replace(asked, run=elsewhere), dataset, tmp_path / "results")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({}, "it was trained on episodes of seed"),  # another number of episodes, or other versions of packages
        ({"policy": "another"}, "it was trained on episodes of seed"),
        (None, "nothing says which episodes it was trained on"),
    ],
)
def test_clean_refuses_the_same_episodes_under_another_hash(dataset, tmp_path, changed, message):
    source = None if changed is None else dataclasses.replace(dataset.recipe.source, **changed)
    path = write_run(tmp_path / "run", dataset.world, "a" * 64, TrainConfig(), source)
    with pytest.raises(MismatchError, match=f"{message}.*--held-out"):
        make_job(Request(run=path, protocol="clean", tasks=2), dataset, tmp_path / "results")


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

    other = Collect("two-room", tmp_path / "data", 20, image_size=24, frame_every=5, workers=1).run()
    with pytest.raises(MismatchError, match="image_size: expected 16, found 24"):
        evaluate_run(request(run), other, tmp_path / "results")


def test_a_missing_run_says_how_to_make_one(dataset, tmp_path):
    with pytest.raises(UsageError, match="saltwm train"):
        evaluate_run(request(tmp_path / "nothing"), dataset, tmp_path / "results")

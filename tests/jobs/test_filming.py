"""Films show now, what the plan in force expected, and the goal; what was expected is the model's own rollout."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from saltwm.cli import main
from saltwm.disk.checkpoint import load
from saltwm.disk.records import EpisodeRecord, PlanRecord, read_tasks
from saltwm.envs import make_env
from saltwm.evaluation.rollout import Outcome
from saltwm.ground.errors import UsageError
from saltwm.jobs.chunks import read_outcomes
from saltwm.jobs.filming import film_recorded, recorded_folders
from saltwm.jobs.imagined import Imagination, expected, repeated

ROOT = Path(__file__).parents[2]
CELLS = ("two-room-salt-clean-seed1", "two-room-random-clean-seed1")


@pytest.fixture(scope="module")
def tasks():
    return read_tasks(ROOT / "results/tasks/two-room-clean-seed1.json")


@pytest.fixture(scope="module")
def outcomes():
    return read_outcomes(ROOT / "results/evaluations" / CELLS[0])


@pytest.fixture(scope="module")
def salt():
    return load(ROOT / "checkpoints/two-room-salt").requires_grad_(False)


@pytest.fixture
def results(tmp_path, monkeypatch):
    """Two shipped evaluations without their films, where their jobs find their model."""
    monkeypatch.chdir(ROOT)
    root = tmp_path / "results"
    for cell in CELLS:
        shutil.copytree(ROOT / "results/evaluations" / cell, root / "evaluations" / cell)
        shutil.rmtree(root / "evaluations" / cell / "pictures")
    (root / "tasks").mkdir()
    shutil.copy(ROOT / "results/tasks/two-room-clean-seed1.json", root / "tasks")
    return root


def panels(path):
    """Square pictures side by side in a film."""
    with Image.open(path) as film:
        return film.size[0] // film.size[1]


def failed(outcomes):
    return next(outcome for outcome in outcomes if not outcome.record.success)


def test_what_is_expected_is_the_rollout_from_each_look_under_the_executed_actions(tasks, outcomes, salt):
    outcome, env = failed(outcomes), make_env("two-room")
    states = repeated(env, tasks.tasks[outcome.record.task], outcome)
    frames = torch.from_numpy(env.draw_many(states, 64))
    with torch.no_grad():
        latents = salt.encode(frames[None])[0]
        begin = outcome.record.plans[1].step
        actions = torch.from_numpy(outcome.actions[begin : begin + 25]).reshape(1, 5, -1)
        path = salt.rollout(latents[None, begin : begin + 1], salt.condition(actions))[0]
    found = {one.step: one.latent for one in expected(salt, outcome, lambda step: latents[step])}
    assert sorted(found) == list(range(5, len(outcome.actions) + 1, 5))
    assert torch.allclose(torch.stack([found[begin + 5 * k] for k in range(1, 6)]), path, atol=1e-5)


def test_a_model_that_looks_back_expects_what_follows_from_all_that_it_saw(outcomes):
    lewm = load(ROOT / "checkpoints/two-room-lewm").requires_grad_(False)
    outcome = failed(outcomes)
    latents = torch.randn(len(outcome.actions) + 1, lewm.config.latent_dim, generator=torch.Generator().manual_seed(0))
    begin = outcome.record.plans[1].step
    blocks = torch.from_numpy(outcome.actions[begin - 10 : begin + 5]).reshape(1, 3, -1)
    with torch.no_grad():
        history = latents[[begin - 10, begin - 5, begin]]
        wanted = lewm.rollout(history[None], lewm.condition(blocks))[0, 0]
    with_past, without = (
        next(one.latent for one in expected(lewm, outcome, latents.__getitem__, frames) if one.step == begin + 5)
        for frames in (3, 1)
    )
    assert torch.allclose(with_past, wanted, atol=1e-5)
    assert not torch.allclose(without, wanted, atol=1e-2)


def test_every_step_shows_the_end_of_its_block_and_no_plan_shows_nothing(tasks, outcomes, salt):
    outcome, env = failed(outcomes), make_env("two-room")
    states = repeated(env, tasks.tasks[outcome.record.task], outcome)
    known = np.array([task.goal for task in tasks.tasks[:40]])
    seen = Imagination(salt, 1, env, known).during(states, outcome)
    assert len(seen) == len(states)
    assert all(np.array_equal(seen[1], seen[step]) for step in (0, 2, 3, 4, 5))
    assert not np.array_equal(seen[1], seen[25])
    record = EpisodeRecord(0, True, 2, 2, "reached", 2.0, 0.5, 0.5, (PlanRecord(0, (1.0,)),))
    short = Outcome(record, outcome.actions[:2])  # shorter than a block: the plan said nothing of it
    assert Imagination(salt, 1, env, known).during(states[:3], short) == [None] * 3


def test_film_shows_three_pictures_for_a_model_and_two_for_a_random_policy(results, capsys):
    model, chance = (results / "evaluations" / cell for cell in CELLS)
    main(["film", str(model), str(chance), "--tasks", "1", "--json"])
    films = [Path(film) for film in json.loads(capsys.readouterr().out)["filmed"]]
    assert [film.parents[1] for film in films] == [model, chance]
    assert [panels(film) for film in films] == [3, 2]
    assert recorded_folders([results]) == [chance, model]  # a results directory stands for what is filmed in it


def test_film_leaves_the_records_as_they_are_when_it_is_told_where_to_go(results, tmp_path, capsys):
    before = {path: path.stat().st_mtime_ns for path in results.rglob("*")}
    main(["film", str(results / "evaluations" / CELLS[0]), "--tasks", "1", "--out", str(tmp_path / "films"), "--json"])
    (film,) = map(Path, json.loads(capsys.readouterr().out)["filmed"])
    assert film.parent == tmp_path / "films" / CELLS[0]
    assert {path: path.stat().st_mtime_ns for path in results.rglob("*")} == before


def test_a_model_that_is_another_now_is_not_asked_what_it_imagines(results):
    folder = results / "evaluations" / CELLS[0]
    job = json.loads((folder / "job.json").read_text())
    text = (folder / "job.json").read_text()
    sha256 = json.loads((folder / "evaluation.json").read_text())["checkpoint_sha256"]
    assert sha256 in text, job
    (folder / "job.json").write_text(text.replace(sha256, "0" * 64))
    film, _ = film_recorded(folder, [0], folder / "pictures")
    assert panels(film) == 2


def test_what_was_never_recorded_is_refused(results, tmp_path):
    with pytest.raises(UsageError, match="no task 100; there are tasks 0 to 99"):
        film_recorded(results / "evaluations" / CELLS[0], [0, 100], tmp_path)
    with pytest.raises(UsageError, match="neither an evaluation nor a results directory"):
        recorded_folders([tmp_path])
    with pytest.raises(UsageError, match=r"results: nothing is filmed yet; name the evaluations to film: \S+/\*"):
        recorded_folders([results])

"""Suites: every combination once, on the dataset of its world, planned before it is run."""

import dataclasses
import shutil

import pytest

from saltwm.disk.records import read_cells, read_plan
from saltwm.evaluation.contests import comparisons
from saltwm.ground.config import CEMConfig, GaussNewtonConfig
from saltwm.ground.errors import MismatchError, UsageError
from saltwm.jobs import cell as cells
from saltwm.jobs.suite import Suite

FAST = CEMConfig(candidates=12, iterations=2, elites=4)


@pytest.fixture(scope="module")
def finished(dataset, run, tmp_path_factory):
    results = tmp_path_factory.mktemp("suite")
    suite = Suite((run,), (dataset.path,), out=results, protocols=("paper",), seeds=(1, 2), planners=(FAST,), tasks=6)
    suite = dataclasses.replace(suite, workers=1, pictures=0)
    return suite, results, suite.do()


def test_every_combination_is_evaluated_and_random_is_a_method_like_any_other(finished):
    _, results, evaluations = finished
    assert [(e.method, e.seed) for e in evaluations] == [("random", 1), ("salt", 1), ("random", 2), ("salt", 2)]
    assert {(cell.evaluation.method, cell.evaluation.seed) for cell in read_cells(results)} == {
        (planned.method, planned.seed) for planned in read_plan(results)
    }
    (comparison,) = comparisons(read_cells(results))
    assert (comparison.method_a.partition("-")[0], comparison.method_b) == ("salt", "random")
    assert len(comparison.cells_a) == 2


def test_a_finished_suite_repeats_nothing_and_a_larger_one_keeps_the_plan(finished, monkeypatch):
    suite, results, _ = finished
    before = {path: path.read_bytes() for path in results.glob("evaluations/*/evaluation.json")}
    suite.do()
    assert before == {path: path.read_bytes() for path in results.glob("evaluations/*/evaluation.json")}

    def stop(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(cells, "evaluate", stop)
    with pytest.raises(KeyboardInterrupt):
        dataclasses.replace(suite, seeds=(1, 2, 3)).do()
    assert {planned.seed for planned in read_plan(results)} == {1, 2, 3}


def test_runs_of_one_model_are_told_apart_by_their_folders(dataset, run, tmp_path):
    other = shutil.copytree(run, tmp_path / "other")
    planners = (FAST, GaussNewtonConfig())
    suite = Suite((run, other), (dataset.path,), protocols=("paper",), planners=planners, no_random=True)
    names = [cell.method for cell in suite.cells()]
    assert names == ["salt", "salt-gauss-newton", "other", "other-gauss-newton"]


def test_only_a_model_that_looks_back_is_given_history_and_its_name_says_so(dataset, run, lewm_run):
    suite = Suite((run, lewm_run), (dataset.path,), protocols=("paper",), no_random=True, history=5)
    assert [(cell.method, cell.history) for cell in suite.cells()] == [("salt", 1), ("lewm-history3", 3)]


def test_gauss_newton_is_left_out_for_models_that_it_cannot_plan_with_and_one_line_says_so(
    dataset, run, lewm_run, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(cells, "evaluate", lambda settled, pool, pictures: settled.job.method)
    planners = (FAST, GaussNewtonConfig())
    suite = Suite((run, lewm_run), (dataset.path,), out=tmp_path, planners=planners, tasks=2, no_random=True)
    methods = suite.do()
    assert methods == ["salt", "salt-gauss-newton", "lewm"] * 2
    assert {planned.method for planned in read_plan(tmp_path)} == set(methods)
    said = capsys.readouterr().err
    assert said.count("left out: gauss-newton and map with") == 1
    assert str(lewm_run) in said


def test_runs_that_would_bear_one_name_are_refused_at_once(dataset, run, tmp_path):
    other = shutil.copytree(run, tmp_path / "other" / run.name)
    with pytest.raises(UsageError, match=r"would both be 'salt'.*--method NAME"):
        Suite((run, other), (dataset.path,), out=tmp_path / "results", protocols=("paper",), tasks=3).do()
    assert not (tmp_path / "results").exists()


def test_a_place_that_another_model_has_taken_is_found_before_anything_runs(finished, dataset, run, lewm_run):
    _, results, _ = finished
    plan = read_plan(results)
    other = CEMConfig(candidates=13, iterations=2, elites=4)
    suite = Suite((lewm_run, run), (dataset.path,), out=results, protocols=("paper",), planners=(other,), tasks=6)
    with pytest.raises(MismatchError, match="belongs to another job"):
        suite.do()
    assert read_plan(results) == plan


def test_a_run_without_a_dataset_of_its_world_is_refused(dataset, run, tmp_path):
    from saltwm.jobs.collect import Collect

    larger = Collect("two-room", tmp_path / "data", 20, image_size=24, frame_every=5, workers=1).do()
    with pytest.raises(MismatchError, match=r"no dataset given with --data.*image_size: expected 16, found 24"):
        Suite((run,), (larger.path,), out=tmp_path / "results", protocols=("paper",), tasks=3).do()

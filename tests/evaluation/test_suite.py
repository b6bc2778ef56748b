"""Suites: every combination once, on the dataset of its world, planned before it is run."""

import dataclasses
import shutil

import pytest

from saltwm import durable
from saltwm.config import CEMConfig, GaussNewtonConfig
from saltwm.errors import MismatchError
from saltwm.evaluation import suite as suites
from saltwm.evaluation.suite import Suite, run_suite
from saltwm.records import read_cells, read_plan

FAST = CEMConfig(candidates=12, iterations=2, elites=4)


@pytest.fixture(scope="module")
def finished(dataset, run, tmp_path_factory):
    results = tmp_path_factory.mktemp("suite")
    suite = Suite((run,), ("paper",), seeds=(1, 2), planners=(FAST,), tasks=6)
    evaluations = run_suite(suite, [dataset], results, workers=1, pictures=0)
    return suite, results, evaluations


def test_every_combination_is_evaluated_and_random_is_a_method_like_any_other(finished):
    _, results, evaluations = finished
    assert [(e.method, e.seed) for e in evaluations] == [("random", 1), ("salt", 1), ("random", 2), ("salt", 2)]
    assert {(cell.evaluation.method, cell.evaluation.seed) for cell in read_cells(results)} == {
        (planned.method, planned.seed) for planned in read_plan(results)
    }
    comparison = durable.read_json(results / "comparisons.json")[0]
    assert (comparison["method_a"], comparison["method_b"]) == ("salt", "random")
    assert len(comparison["cells_a"]) == 2


def test_a_finished_suite_repeats_nothing_and_a_larger_one_keeps_the_plan(finished, dataset, monkeypatch):
    suite, results, _ = finished
    before = {path: path.read_bytes() for path in results.glob("evaluations/*/evaluation.json")}
    run_suite(suite, [dataset], results)
    assert before == {path: path.read_bytes() for path in results.glob("evaluations/*/evaluation.json")}

    def stop(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(suites, "evaluate", stop)
    with pytest.raises(KeyboardInterrupt):
        run_suite(dataclasses.replace(suite, seeds=(1, 2, 3)), [dataset], results)
    assert {planned.seed for planned in read_plan(results)} == {1, 2, 3}


def test_runs_of_one_model_are_told_apart_by_their_folders(dataset, run, tmp_path):
    other = shutil.copytree(run, tmp_path / "other")
    suite = Suite((run, other), ("paper",), planners=(FAST, GaussNewtonConfig()), random=False)
    names = [request.method for request in suites._requests(suite, dataset)]
    assert names == ["salt", "salt-gauss-newton", "other", "other-gauss-newton"]


def test_a_run_without_a_dataset_of_its_world_is_refused(dataset, run, tmp_path):
    from saltwm.data.collect import collect

    larger = collect("two-room", tmp_path / "data", 20, image_size=24, frame_every=5, workers=1)
    with pytest.raises(MismatchError, match=r"no dataset given with --data.*image_size: expected 16, found 24"):
        run_suite(Suite((run,), ("paper",), tasks=3), [larger], tmp_path / "results")

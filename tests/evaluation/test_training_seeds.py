"""Training seeds: pooled only inside one recipe, paired with their own kind, and never hiding an ablation."""

import dataclasses

import pytest
from small_records import small_cell

from saltwm.disk.records import Cell, ModelVariant
from saltwm.evaluation.contests import by_contest, comparisons, has_usual_planner, method_of
from saltwm.evaluation.paired import holm
from saltwm.evaluation.statistics import over_tasks, wilson
from saltwm.ground.config import CEMConfig, MapConfig
from saltwm.ground.strict_json import to_plain
from saltwm.report.tables import label_of, pooled_rows

SALT = ModelVariant("salt", "rollout", 16, True, 0.3, 192, 5, 1, 0, (), "aa" * 32)
LEWM = dataclasses.replace(SALT, model="lewm", objective="one-step", modes=None, spectral=None, recipe_sha256="bb" * 32)


def cell(variant: ModelVariant | None, outcomes: str, training: int = 0, tasks: str = "t" * 64, **changes) -> Cell:
    reached, recipe = [letter == "x" for letter in outcomes], variant.recipe_sha256[:1] if variant else "-"
    name = "random" if variant is None else variant.model
    learnt = (
        {}
        if variant is None
        else {
            "planner": to_plain(CEMConfig()),
            "checkpoint": f"runs/{name}-{training}",
            "checkpoint_sha256": f"{name}-{training}",
            "variant": dataclasses.replace(variant, seed=training),
        }
    )
    made = {"environment": "reacher", "planner": {}, "tasks_sha256": tasks} | learnt | changes
    return small_cell(f"{name}-{training}-{tasks[:1]}-{recipe}", name, reached, **made)


def test_tasks_are_paired_inside_training_seeds():
    salt = [cell(SALT, "xxxx....", seed) for seed in (0, 1)]
    lewm = [cell(LEWM, "xx......", 0), cell(LEWM, "x.......", 1)]
    (found,) = comparisons([*salt, *lewm])
    assert (found.both, found.only_a, found.only_b, found.neither) == (3, 5, 0, 8)
    assert found.by_training_seed == (25.0, 37.5)
    assert [name[-5] for name in found.cells_a] == [name[-5] for name in found.cells_b]


def test_seeds_that_disagree_show_no_difference_whatever_the_pooled_p():
    salt = [cell(SALT, "x" * 40, 0), cell(SALT, "." * 9 + "x", 1, tasks="u" * 64)]
    lewm = [cell(LEWM, "." * 40, 0), cell(LEWM, "x" * 10, 1, tasks="u" * 64)]
    (found,) = comparisons([*salt, *lewm])
    assert found.p < 0.05
    assert found.verdict == "no difference shown"
    (control,) = comparisons([salt[0], lewm[0]])
    assert control.verdict == "better"


def test_a_task_that_two_training_seeds_met_counts_once():
    salt, lewm = (
        [cell(one, outcomes, seed) for seed in (0, 1)] for one, outcomes in ((SALT, "xxxxx"), (LEWM, "....."))
    )
    (found,) = comparisons([*salt, *lewm])
    (of_one_seed,) = comparisons([salt[0], lewm[0]])
    assert (found.only_a, found.p, found.verdict) == (10, of_one_seed.p, "no difference shown")
    assert (found.low, found.high) == (of_one_seed.low, of_one_seed.high)
    (on_ten_tasks,) = comparisons([cell(SALT, "x" * 10), cell(LEWM, "." * 10)])
    assert on_ten_tasks.verdict == "better"


@pytest.mark.parametrize("first", ["x", "."])
def test_a_seed_without_a_difference_has_no_sign_whichever_method_is_ahead(first):
    other = "." if first == "x" else "x"
    salt = [cell(SALT, first * 12, 0), cell(SALT, "xx", 1, tasks="u" * 64)]
    lewm = [cell(LEWM, other * 12, 0), cell(LEWM, "xx", 1, tasks="u" * 64)]
    (found,) = comparisons([*salt, *lewm])
    assert (found.p < 0.05, found.verdict) == (True, "no difference shown")


def test_the_random_policy_meets_every_training_seed():
    (found,) = comparisons([cell(SALT, "xx", 0), cell(SALT, "x.", 1), cell(None, "..")])
    assert found.by_training_seed == (100.0, 50.0)


def test_another_recipe_or_an_ablation_is_another_method():
    ablation = dataclasses.replace(SALT, modes=0, departures=("R 0",), recipe_sha256="cc" * 32)
    cells = [cell(SALT, "xx", 0), cell(ablation, "..", 0)]
    assert [method_of(c.evaluation) for c in cells] == ["salt", "salt-R-0"]
    assert [label_of(c.evaluation) for c in cells] == ["SALT", "SALT, R 0"]
    assert [row.label for row in pooled_rows(cells)] == ["SALT", "SALT, R 0"]
    mine = cell(SALT, "xx", planner={"kind": "own", "function": "mine:shooting"})
    assert label_of(mine.evaluation) == "SALT with shooting (salt)"


def test_two_action_priors_of_one_model_are_two_methods_also_on_different_tasks():
    planner = {"planner": to_plain(MapConfig())}
    first = cell(SALT, "xx", prior_sha256="p", **planner)
    other, same = (cell(SALT, "..", tasks="u" * 64, prior_sha256=prior, **planner) for prior in "qp")
    assert [row.rate.n for row in pooled_rows([first, other])] == [2, 2]
    assert [row.rate.n for row in pooled_rows([first, same])] == [4]
    assert [len(methods) for methods in by_contest([first, other]).values()] == [2]
    assert [len(methods) for methods in by_contest([first, same]).values()] == [1]
    seeds = [cell(SALT, "xx", seed, prior_sha256=prior, **planner) for seed, prior in enumerate("pq")]
    assert [row.training_seeds for row in pooled_rows(seeds)] == [(0, 1)]  # each seed has a prior of its own


def test_an_evaluation_seed_that_one_training_has_is_due_for_the_others():
    cells = [
        cell(SALT, "xxxx", training, seed=seed, tasks=str(seed) * 64) for training, seed in ((1, 1), (0, 1), (0, 2))
    ]
    (row,) = pooled_rows(cells)
    assert (row.training_seeds, row.seeds, row.missing) == ((0,), (1, 2), ())
    (row,) = pooled_rows([cells[0], cells[2]])
    assert (row.rate, row.missing) == (None, (2,))  # of the first training, which lacks no more than the other


def test_the_usual_planners_are_spelled_once(monkeypatch):
    evaluation = cell(SALT, "xx").evaluation
    assert has_usual_planner(evaluation)
    monkeypatch.setattr("saltwm.evaluation.contests.to_plain", lambda value: pytest.fail("spelled again"))
    assert has_usual_planner(evaluation)
    assert not has_usual_planner(dataclasses.replace(evaluation, planner=evaluation.planner | {"elites": 7}))


def test_a_row_over_training_seeds_shows_both_spreads():
    (row,) = pooled_rows([cell(SALT, "xxxxxxxx..", 0), cell(SALT, "xxxx......", 1)])
    assert (row.rate.successes, row.rate.n, row.training_seeds) == (12, 20, (0, 1))
    assert (row.over_training.mean, row.over_training.std) == (60.0, pytest.approx(28.28, abs=0.01))
    assert (row.rate.low, row.rate.high) == pytest.approx((wilson(6, 10).low, wilson(6, 10).high))


def test_the_interval_over_tasks_is_wilson_s_of_as_many_trials_as_there_are_tasks():
    assert over_tasks(7, 10, 10) == wilson(7, 10)
    assert over_tasks(21, 30, 10).low == pytest.approx(wilson(7, 10).low)
    assert over_tasks(21, 30, 10).low < wilson(21, 30).low


def test_holm_multiplies_the_smallest_by_the_number_of_tests_and_never_falls():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []

"""Failure anatomy: the paper's counts come out of episodes that have them, and odd episodes are named, not dropped."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_records import small_cell, small_episode

from saltwm.disk.records import Cell, EpisodeRecord, PlanRecord
from saltwm.evaluation.anatomy import anatomy, dissect, examples, paired_anatomy
from saltwm.ground.errors import MismatchError, NonFiniteError


def episode(task: int, *, ratio: float | None = None, success: bool = False, plans=None) -> EpisodeRecord:
    """A success, or a failure whose second plan starts at `ratio` times what the first one promised."""
    if plans is None:
        plans = (PlanRecord(0, (0.9, 0.4, 0.2)), PlanRecord(25, (0.2 * ratio, 0.1))) if ratio is not None else ()
    return small_episode(task, success, plans)


def cell(method: str, episodes: list[EpisodeRecord], tasks: str = "c" * 64) -> Cell:
    made = {"environment": "cube", "protocol": "paper", "checkpoint": f"runs/{method}", "checkpoint_sha256": "d" * 64}
    return small_cell(method, method, episodes, tasks_sha256=tasks, **made)


def papers_cube() -> tuple[Cell, Cell]:
    """150 episodes per model with the outcomes of App. D: 98 both, 43 only SALT, 0 only LeWM, 9 neither."""
    salt = [episode(i, success=True) for i in range(141)]
    salt += [episode(141 + i, ratio=12.0 if i < 3 else 1.5) for i in range(9)]
    lewm = [episode(i, success=True) for i in range(98)]
    lewm += [episode(98 + i, ratio=30.0 if i < 35 else 2.0) for i in range(52)]
    return cell("salt", salt), cell("lewm", lewm)


def test_the_papers_failure_table_comes_out_of_its_counts():
    result = paired_anatomy(*([side] for side in papers_cube()))
    rows = [(a.mismatch.successes, a.unflagged.successes, a.unclassified.successes) for a in (result.b, result.a)]
    assert rows == [(35, 17, 0), (3, 6, 0)]
    shares = [round(100 * k / 150, 1) for row in rows for k in row[:2]]
    assert shares == [23.3, 11.3, 2.0, 4.0]
    assert result.a.mismatch.n == 150
    outcomes = result.outcomes
    assert (outcomes.both, outcomes.only_a, outcomes.only_b, outcomes.neither) == (98, 43, 0, 9)
    assert outcomes.verdict == "better"


def test_a_ratio_of_exactly_five_is_unflagged():
    plans = (PlanRecord(0, (3.0, 1.0)), PlanRecord(25, (5.0, 0.1)))
    assert dissect(episode(0, plans=plans)).kind == "unflagged"


def test_the_costs_are_the_last_of_the_first_plan_and_the_first_of_the_second():
    plans = (PlanRecord(0, (8.0, 4.0, 2.0)), PlanRecord(25, (16.0, 1.0)), PlanRecord(50, (99.0,)))
    failure = dissect(episode(0, plans=plans))
    assert (failure.predicted_cost, failure.observed_cost, failure.ratio) == (2.0, 16.0, 8.0)


@pytest.mark.parametrize("plans", [(), (PlanRecord(0, (1.0,)),), (PlanRecord(0, ()), PlanRecord(25, ()))])
def test_a_failure_without_two_priced_plans_is_counted_as_unclassified(plans):
    result = anatomy([episode(0, plans=plans), episode(1, success=True)])
    assert result.failures[0].kind == "unclassified"
    assert (result.unclassified.successes, result.unclassified.n) == (1, 2)


def test_a_promise_of_zero_cost_that_is_not_kept_is_a_mismatch_without_a_ratio():
    failure = dissect(episode(0, plans=(PlanRecord(0, (0.0,)), PlanRecord(25, (0.1,)))))
    assert (failure.kind, failure.ratio) == ("mismatch", None)


def test_a_cost_that_is_not_a_number_is_refused_with_its_task():
    with pytest.raises(NonFiniteError, match="task 7"):
        dissect(episode(7, plans=(PlanRecord(0, (float("nan"),)), PlanRecord(25, (0.1,)))))


@given(ratios=st.lists(st.one_of(st.none(), st.floats(0, 1e6)), min_size=1, max_size=40))
@settings(max_examples=50, deadline=None)
def test_every_failure_has_exactly_one_kind(ratios):
    result = anatomy([episode(i, ratio=ratio) for i, ratio in enumerate(ratios)])
    assert sum(r.successes for r in (result.mismatch, result.unflagged, result.unclassified)) == len(ratios)
    assert [f.task for f in result.failures] == list(range(len(ratios)))


def test_negative_control_a_model_whose_promises_hold_has_no_mismatch():
    result = anatomy([episode(i, ratio=1.0) for i in range(20)])
    assert (result.mismatch.successes, result.unflagged.successes) == (0, 20)


def test_anatomies_of_different_tasks_are_not_paired():
    salt, lewm = papers_cube()
    with pytest.raises(MismatchError):
        paired_anatomy([salt], [cell("lewm", list(lewm.episodes), tasks="e" * 64)])


def test_examples_are_failures_near_the_median_ratio_of_their_method_and_kind():
    ratios = [6.0, 7.0, 8.0, 9.0, 100.0]
    lewm = cell("lewm", [episode(i, ratio=ratio) for i, ratio in enumerate(ratios)])
    salt = cell("salt", [episode(i, success=True, ratio=1.0) for i in range(5)])
    pair = paired_anatomy([salt], [lewm])
    ((first, *_),) = examples([pair], {c.name: c for c in (salt, lewm)}, 2)
    assert first.failure.ratio == pytest.approx(8.0)


def test_success_is_counted_by_what_the_tasks_ask_for():
    episodes = [episode(i, success=i % 3 == 0, ratio=1.0) for i in range(12)]
    kinds = ["lift" if i % 2 else "put down" for i in range(12)]
    counted = {kind.kind: (kind.reached.successes, kind.reached.n) for kind in anatomy(episodes, kinds).tasks}
    assert counted == {"lift": (2, 6), "put down": (2, 6)}


def test_tasks_that_are_all_alike_are_not_told_apart():
    episodes = [episode(i, success=True) for i in range(3)]
    assert anatomy(episodes, ["", "", ""]).tasks == ()
    assert anatomy(episodes).tasks == ()
    (only,) = anatomy(episodes, ["lift"] * 3).tasks  # a set that happens to ask for one kind still counts it
    assert (only.kind, only.reached.n) == ("lift", 3)

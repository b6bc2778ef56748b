"""A rate comes with its n and interval, a difference with a paired test (P22)."""

import dataclasses
import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from small_records import small_cell, write_cell

from saltwm.disk.records import Cell, read_cell, read_cells
from saltwm.evaluation.contests import compare, comparisons, method_key
from saltwm.evaluation.paired import flip_test, paired_difference, trainings_agree
from saltwm.evaluation.statistics import over_seeds, wilson
from saltwm.ground.errors import DamagedError, MismatchError, NonFiniteError, UsageError

SIMULATIONS = 10_000


def make_cell(method: str, outcomes: list[bool], *, tasks: str = "a" * 64, **changes: object) -> Cell:
    return small_cell(f"{method}-{tasks[:1]}", method, outcomes, tasks_sha256=tasks, **{"seed": 0} | changes)


def paired_counts(both, only_a, only_b, neither):
    """The difference of outcomes with these 2x2 counts, each pair on a task of its own."""
    a, b = [True] * (both + only_a) + [False] * (only_b + neither), [True] * both + [False] * only_a
    return paired_difference(a, b + [True] * only_b + [False] * neither)


# --- the paper's own counts ----------------------------------------------------------------------------------------


def test_the_papers_cube_counts_print_better_with_p_below_one_in_a_million():
    cube = paired_counts(both=98, only_a=43, only_b=0, neither=9)  # App. D: SALT against LeWM
    assert cube.verdict == "better"
    assert cube.p < 1e-6
    assert cube.difference == pytest.approx(100 * 43 / 150)
    assert 0 < cube.low < cube.difference < cube.high


@pytest.mark.parametrize("only_lewm", range(19))
def test_no_pairing_of_the_papers_pusht_rates_shows_a_difference(only_lewm):
    # The paper gives only the margins (132 and 131 of 150), so every 2x2 table with these margins is tried.
    only_salt = only_lewm + 1
    table = paired_counts(132 - only_salt, only_salt, only_lewm, 150 - 132 - only_lewm)
    assert table.verdict == "no difference shown"


def test_swapping_the_methods_turns_better_into_worse():
    forth, back = paired_counts(98, 43, 0, 9), paired_counts(98, 0, 43, 9)
    assert (forth.verdict, back.verdict) == ("better", "worse")
    assert forth.difference == -back.difference
    assert forth.p == back.p


@pytest.mark.parametrize(
    ("rates", "mean", "std"),
    [((96, 98, 100), 98.00, 2.00), ((64, 66, 72), 67.33, 4.16), ((88, 88, 96), 90.67, 4.62)],  # Table 1
)
def test_mean_and_deviation_over_seeds_are_the_papers(rates, mean, std):
    result = over_seeds(rates)
    assert (round(result.mean, 2), round(result.std, 2)) == (mean, std)


# --- intervals hold what they promise ----------------------------------------------------------------------------


@pytest.mark.parametrize("n", [50, 100, 150])
def test_wilson_intervals_cover_the_truth_in_95_percent_of_simulations(n):
    # At one fixed p the coverage of any binomial interval jumps with p, by up to 3 points at these n; the promise is
    # about the average over a spread of p, which is what a table of many cells meets.
    rng = np.random.default_rng(n)
    truth = rng.uniform(0.02, 0.98, SIMULATIONS)
    rates = [wilson(k, n) for k in range(n + 1)]
    low, high = np.array([r.low for r in rates]), np.array([r.high for r in rates])
    k = rng.binomial(n, truth)
    assert 0.94 <= np.mean((low[k] <= truth) & (truth <= high[k])) <= 0.965


@pytest.mark.parametrize("n", [50, pytest.param(150, marks=pytest.mark.full)])
def test_paired_intervals_cover_the_true_difference_in_95_percent_of_simulations(n):
    rng = np.random.default_rng(n)
    # Truths as evaluations meet them: few to many discordant pairs, leaning one way or neither.
    discordant, lean = rng.uniform(0.04, 0.5, 40), rng.uniform(0.1, 0.9, 40)
    shares = np.stack([discordant * lean, discordant * (1 - lean), 1 - discordant], axis=1)
    interval: dict[tuple[int, int], tuple[float, float]] = {}
    covered = 0
    for share in shares:
        truth = 100 * (share[0] - share[1])
        for only_a, only_b, _ in rng.multinomial(n, share, size=SIMULATIONS // len(shares)):
            key = int(only_a), int(only_b)
            if key not in interval:
                result = paired_counts(n - sum(key), *key, 0)
                interval[key] = result.low, result.high
            covered += interval[key][0] <= truth <= interval[key][1]
    assert 0.94 <= covered / SIMULATIONS <= 0.965


def test_negative_control_the_plain_bootstrap_without_imagined_pairs_covers_too_little():
    # Two methods that differ on 2 % of 50 tasks: a third of the plain intervals are [0, 0] and miss.
    rng, n, share = np.random.default_rng(1), 50, (0.015, 0.005, 0.98)
    draws = rng.multinomial(n, share, size=400)
    resampled = rng.multinomial(n, draws / n, size=(1000, 400))
    low, high = np.quantile((resampled[..., 0] - resampled[..., 1]) / n, [0.025, 0.975], axis=0)
    assert np.mean((low <= 0.01) & (high >= 0.01)) < 0.9


# --- each number against its definition ----------------------------------------------------------------------------


def test_wilson_intervals_are_scipy_s_to_the_last_bit():
    for n in (1, 2, 12, 50, 150, 400):
        for k in range(n + 1):
            expected = stats.binomtest(k, n).proportion_ci(0.95, method="wilson")
            assert (wilson(k, n).low, wilson(k, n).high) == (expected.low, expected.high)


@given(n=st.integers(1, 300), share=st.floats(0, 1))
@settings(max_examples=60, deadline=None)
def test_wilson_interval_ends_solve_the_score_equation(n, share):
    k = round(share * n)
    rate = wilson(k, n)
    z = stats.norm.ppf(0.975)
    for end in (rate.low, rate.high):
        assert (k / n - end) ** 2 * n == pytest.approx(z**2 * end * (1 - end), abs=1e-9)
    assert 0 <= rate.low <= k / n <= rate.high <= 1


@given(a=st.integers(0, 40), b=st.integers(0, 40))
@settings(max_examples=60, deadline=None)
def test_with_one_pair_a_task_the_test_is_mcnemar_s_the_doubled_tail_of_a_fair_coin(a, b):
    tail = sum(stats.binom.pmf(k, a + b, 0.5) for k in range(min(a, b) + 1))
    assert flip_test([1] * a + [-1] * b) == pytest.approx(min(1.0, 2 * tail))
    assert paired_counts(1, a, b, 0).p == flip_test([1] * a + [-1] * b)


@given(ahead=st.lists(st.integers(-3, 3), max_size=7))
@settings(max_examples=60, deadline=None)
def test_the_test_counts_every_way_to_swap_the_methods_task_by_task(ahead):
    sums = [sum(map(math.prod, zip(ahead, signs, strict=True))) for signs in product((1, -1), repeat=len(ahead))]
    assert flip_test(ahead) == pytest.approx(np.mean(np.abs(sums) >= abs(sum(ahead))))


def test_three_training_seeds_that_agree_on_every_task_say_no_more_than_one():
    a, b, tasks = [True] * 12 + [False] * 28, [False] * 10 + [True] * 5 + [False] * 25, list(range(40))
    one, three = paired_difference(a, b), paired_difference(3 * a, 3 * b, tasks=3 * tasks)
    assert (three.p, three.low, three.high) == (one.p, one.low, one.high)
    as_if_independent = paired_difference(3 * a, 3 * b)
    assert as_if_independent.p < one.p / 10


def test_false_alarms_over_training_seeds_are_as_rare_as_promised():
    # Neither method is better. Which tasks one of them reaches hardly depends on its training seed.
    rng, tasks = np.random.default_rng(0), list(range(60)) * 3
    together, apart = [], []
    for _ in range(600):
        a, b = (np.tile(np.where(rng.random(60) < 0.5, 0.9, 0.1), 3) > rng.random(180) for _ in range(2))
        ahead = a.astype(int) - b
        together.append(flip_test(np.bincount(tasks, ahead).astype(int)) < 0.05)
        apart.append(flip_test(ahead) < 0.05)
    assert np.mean(together) < 0.06
    assert np.mean(apart) > 0.1  # negative control: what counting pairs would claim


def test_trainings_agree_whichever_method_stands_first():
    for differences in ([3.0, 5.0, 4.0], [-3.0, -5.0, -4.0], [2.0]):
        assert trainings_agree(differences)
    # Another sign, a zero, and one sign that two or three so different trainings have by chance.
    for differences in ([3.0, -5.0, 4.0], [0.0, 5.0, 5.0], [3.0, 5.0], [1.0, 9.0, 2.0], [-1.0, -9.0, -2.0]):
        assert not trainings_agree(differences)


def test_trainings_that_differ_by_chance_show_no_difference_of_methods():
    """Two methods alike, three trainings each, whose own rates spread by eight points, on the same hundred tasks."""
    rng, by_tasks, by_both = np.random.default_rng(3), [], []
    for _ in range(400):
        a, b = (rng.random((3, 100)) < np.clip(0.5 + 0.08 * rng.standard_normal((3, 1)), 0, 1) for _ in range(2))
        ahead = a.astype(int) - b
        differences = ahead.mean(axis=1)
        shown = flip_test(ahead.sum(axis=0)) < 0.05
        by_tasks.append(shown and len(set(np.sign(differences))) == 1)
        by_both.append(shown and trainings_agree(list(differences)))
    assert np.mean(by_both) < 0.05
    assert np.mean(by_tasks) > 0.1  # negative control: what tasks and one sign would claim


def test_the_interval_over_seeds_is_students():
    low, high = over_seeds([1.0, 2.0, 3.0]).interval
    assert (low, high) == pytest.approx((2 - 4.302653 / 3**0.5, 2 + 4.302653 / 3**0.5), abs=1e-6)
    assert over_seeds([1.0]).interval == (-float("inf"), float("inf"))


def test_a_difference_whose_interval_reaches_zero_is_not_shown():
    """Three seeds on a hundred tasks: the exact test alone would show some of these."""
    ahead, found = [1] * 20 + [-1] * 36 + [0] * 244, []
    for order in range(10):
        tasks = list(np.random.default_rng(order).permutation(np.repeat(np.arange(100), 3)))
        found.append(paired_difference([x > 0 for x in ahead], [x < 0 for x in ahead], tasks))
    assert all((d.verdict == "worse") == (d.p < 0.05 and d.high < 0) for d in found)
    assert any(d.p < 0.05 and d.high >= 0 for d in found)


@given(counts=st.tuples(*[st.integers(0, 40)] * 4).filter(any))
@settings(max_examples=60, deadline=None)
def test_a_paired_interval_holds_its_own_estimate_and_has_a_width(counts):
    result = paired_counts(*counts)
    assert result.low <= result.difference <= result.high
    assert result.low < result.high


def test_paired_outcomes_are_counted_into_the_right_cells():
    result = paired_difference([True, True, True, False], [True, False, False, False])
    assert (result.both, result.only_a, result.only_b, result.neither) == (1, 2, 0, 1)


def test_the_same_outcomes_give_the_same_interval():
    assert paired_counts(10, 8, 3, 29) == paired_counts(10, 8, 3, 29)


# --- what is refused -----------------------------------------------------------------------------------------------


def test_impossible_counts_are_refused():
    for successes, n in [(-1, 5), (6, 5), (0, 0)]:
        with pytest.raises(UsageError):
            wilson(successes, n)
    with pytest.raises(UsageError):
        paired_difference([], [])


def test_outcomes_of_different_length_are_not_paired():
    with pytest.raises(MismatchError, match="3 and of 2"):
        paired_difference([True] * 3, [True] * 2)


def test_no_mean_over_a_missing_seed():
    with pytest.raises(NonFiniteError, match="missing seed"):
        over_seeds([90.0, float("nan"), 88.0])
    with pytest.raises(UsageError):
        over_seeds([])
    assert over_seeds([90.0]).std is None


def test_results_on_different_task_sets_refuse_to_be_paired():
    a, b = make_cell("salt", [True] * 4), make_cell("lewm", [True] * 4, tasks="b" * 64)
    with pytest.raises(MismatchError, match="same tasks"):
        compare([a], [b])
    assert comparisons([a, b]) == []


def test_one_method_twice_on_the_same_tasks_is_not_pooled():
    twice = [make_cell("salt", [True] * 4, seed=seed) for seed in (0, 1)]
    with pytest.raises(MismatchError, match="twice"):
        compare(twice, [make_cell("lewm", [False] * 4)])


# --- over a results folder -------------------------------------------------------------------------------------------


def test_every_pair_on_shared_tasks_is_compared_with_seeds_pooled():
    cells = [
        make_cell(method, [method != "random"] * 10 + [method == "salt"] * 10, tasks=tasks * 64, seed=seed)
        for seed, tasks in enumerate("ab")
        for method in ("random", "lewm", "salt")
    ]
    found = comparisons(cells)
    assert [(c.method_a, c.method_b) for c in found] == [("salt", "lewm"), ("salt", "random"), ("lewm", "random")]
    assert (found[0].both, found[0].only_a, found[0].only_b, found[0].neither) == (20, 20, 0, 0)
    assert found[0].cells_a == ("salt-a", "salt-b")


def test_blind_and_closed_loop_results_are_never_paired_and_both_meet_the_random_policy():
    planner = {"kind": "cem"}
    cells = [
        make_cell("salt", [True, False], planner=planner),
        make_cell("salt-look1", [True, True], planner=planner, look_every=1),
        make_cell("lewm-look1", [False, True], planner=planner, look_every=1),
        make_cell("random", [False, False], planner={}),
    ]
    pairs = [(c.method_a, c.method_b) for c in comparisons(cells)]
    assert sorted(pairs) == [
        ("lewm-look1", "random"),
        ("lewm-look1", "salt-look1"),
        ("salt", "random"),
        ("salt-look1", "random"),
    ]


def test_one_name_for_a_blind_and_a_closed_loop_evaluation_is_two_methods():
    blind, closed = (make_cell("mine", [True], look_every=every).evaluation for every in (None, 1))
    assert method_key(blind) != method_key(closed)


def test_weights_are_one_method_wherever_they_lie_and_other_weights_are_another():
    def salt(tasks, checkpoint, sha256):
        return make_cell("salt", [True] * 4, tasks=tasks * 64, checkpoint=checkpoint, checkpoint_sha256=sha256)

    randoms = [make_cell("random", [False] * 4, tasks=tasks * 64) for tasks in "ab"]
    (moved,) = comparisons([salt("a", "runs/x", "aa"), salt("b", "/abs/runs/x", "aa"), *randoms])
    assert moved.cells_a == ("salt-a", "salt-b")
    renewed = comparisons([salt("a", "checkpoints/x", "aa"), salt("b", "checkpoints/x", "bb"), *randoms])
    assert [c.cells_a for c in renewed] == [("salt-a",), ("salt-b",)]


def test_comparisons_of_cells_on_disk_are_those_of_the_cells(tmp_path):
    cells = (make_cell("salt", [True] * 20), make_cell("random", [False] * 20))
    for cell in cells:
        write_cell(tmp_path, cell)
    (read,) = comparisons(read_cells(tmp_path))
    assert [read] == comparisons(cells)
    assert read.verdict == "better"


def test_a_summary_that_its_episodes_do_not_support_is_damage(tmp_path):
    cell = make_cell("salt", [True] * 20)
    write_cell(tmp_path, dataclasses.replace(cell, episodes=cell.episodes[:-1]))
    with pytest.raises(DamagedError, match="19 successes in 19 episodes"):
        read_cell(tmp_path / "evaluations" / cell.name)

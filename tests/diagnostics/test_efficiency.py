"""The planning benchmark: what it compares computes the same thing, and its figures say what is wanted of them."""

import dataclasses
import functools
import json

import pytest
import torch

from saltwm.bench import efficiency as efficiency_table
from saltwm.bench import planning as efficiency
from saltwm.bench.planning import bare_products, contraction_cost, matrix_cost, paper_model
from saltwm.bench.timing import Figure, Timings, take_turns
from saltwm.cli.telling import perform
from saltwm.disk.records import Efficiency
from saltwm.ground.errors import UsageError
from saltwm.ground.strict_json import from_plain, to_plain
from saltwm.jobs.bench import BENCHES, Bench
from saltwm.planning.costs import Situation, terminal_cost
from saltwm.report.paper_figures import FOUR


def test_every_way_of_stepping_that_is_timed_gives_the_same_costs():
    model = paper_model("salt").double()
    generator = torch.Generator().manual_seed(0)
    at = Situation(
        torch.randn(1, 1, 192, dtype=torch.float64, generator=generator),
        torch.empty(1, 0, 192, dtype=torch.float64),
        torch.randn(1, 192, dtype=torch.float64, generator=generator),
    )
    plans = torch.randn(1, 3, 4, 10, dtype=torch.float64, generator=generator)
    with torch.inference_mode():
        ours, matrices, contraction = (
            make(model, at)(plans) for make in (terminal_cost, matrix_cost, contraction_cost)
        )
    torch.testing.assert_close(ours, matrices, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(ours, contraction, rtol=1e-10, atol=1e-10)


def test_the_benchmark_s_models_have_the_paper_s_sizes():
    assert sum(p.numel() for p in paper_model("salt").transition.parameters()) == 703_872
    assert sum(p.numel() for p in paper_model("lewm").transition.parameters()) == 11_584_128


def test_bare_products_do_the_multiplications_of_a_solve(monkeypatch):
    """Counted: 2 S (A h + h (R+1+D)) per step, 2 S (R+1) D for the shared first step, 2 S (R+1) D^2 for the others."""
    counted = []
    real = torch.mm

    def counting(a, b, *, out):
        counted.append(2 * a.shape[0] * a.shape[1] * b.shape[1])
        return real(a, b, out=out)

    run = bare_products(paper_model("salt"), horizon=3, iterations=2)
    monkeypatch.setattr(efficiency.torch, "mm", counting)
    with torch.inference_mode():
        run()
    per_step = 10 * 768 + 768 * (17 + 192)
    assert sum(counted) == 2 * 2 * 300 * (3 * per_step + 17 * 192 + 2 * 17 * 192 * 192)


def test_ratios_are_medians_over_rounds_and_times_are_the_least_disturbed():
    timings = Timings({"a": [2.0, 30.0, 4.0], "b": [1.0, 1.0, 2.0]})
    assert timings.ratio("a", "b") == 2.0
    assert timings.fastest("a") == 2.0


def test_jobs_take_turns_after_a_round_that_is_not_counted():
    order = []
    timings = take_turns({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, rounds=2)
    assert order == ["a", "b"] * 3
    assert len(timings.seconds["a"]) == 2


@pytest.mark.parametrize(
    ("figure", "met"),
    [
        (Figure("x", 1.2, "x", at_most=1.25), True),
        (Figure("x", 1.3, "x", at_most=1.25), False),
        (Figure("x", 9.0, "x", at_least=10), False),
        (Figure("x", 9.0, "x"), None),
    ],
)
def test_a_figure_says_whether_it_is_what_was_wanted(figure, met):
    assert figure.met is met


def test_bench_writes_and_prints_what_was_measured(monkeypatch, tmp_path, capsys):
    figure = Figure("speed", 2.0, "x", at_least=1.0, note="once")
    monkeypatch.setitem(BENCHES, "plan", lambda quick: [figure])
    perform(Bench("plan", out=tmp_path / "bench"))
    assert "speed" in capsys.readouterr().out
    expected = [dataclasses.asdict(figure) | {"met": True}]
    assert json.loads((tmp_path / "bench" / "plan.json").read_text()) == expected
    perform(Bench("plan", json=True))
    assert json.loads(capsys.readouterr().out) == {"plan": expected}
    with pytest.raises(UsageError, match="did you mean 'plan'"):
        Bench("plam").do()


@pytest.mark.full
def test_the_planning_benchmark_runs_at_the_paper_s_sizes():
    figures = efficiency.plan_figures(horizons=(5,), rounds=1, iterations=2)
    assert all(figure.value > 0 for figure in figures)
    assert any(figure.unit == "MB" and figure.met for figure in figures)


def test_table_2_is_one_record_with_the_papers_parameters_and_an_unweighted_mean(monkeypatch):
    """At a size that takes seconds; parameters are those of the paper's predictors whatever is timed."""
    monkeypatch.setattr(efficiency_table, "paper_model", functools.cache(paper_model))
    monkeypatch.setattr(efficiency_table, "_iterations_per_second", lambda rounds: RATES)
    record = efficiency_table.efficiency(horizons=(1, 2), rounds=1)
    salt, lewm = record.predictors
    assert (salt.parameters, lewm.parameters) == (703_872, 11_584_128)
    assert salt.forward_ms < lewm.forward_ms
    for row in record.predictors:
        assert {(p.environment, p.horizon_blocks) for p in row.planning} == {
            (environment, horizon) for environment in FOUR for horizon in (1, 2)
        }
        assert row.planning_seconds == pytest.approx(sum(p.seconds for p in row.planning) / 8)
    assert from_plain(Efficiency, to_plain(record), "here") == record


RATES = {(model, objective): 1.0 for model in ("salt", "lewm") for objective in ("one-step", "rollout")}

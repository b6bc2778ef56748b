"""The paper's figures are drawn from the records that are there, and not from others."""

import dataclasses

import pytest
from fake_results import make_results

from saltwm.evaluation.protocols import CLEAN_PROTOCOL, PAPER_PROTOCOL
from saltwm.report.findings import read_findings
from saltwm.report.page import render
from saltwm.report.paper_drawings import paper_drawings

PLACES = ("push-t", "cube")


@pytest.fixture(scope="module")
def findings(tmp_path_factory):
    root = tmp_path_factory.mktemp("figures")
    return read_findings(
        make_results(root, environments=PLACES, protocols=(CLEAN_PROTOCOL, PAPER_PROTOCOL), n=20, pictures=0)
    )


def without(findings, environment, method):
    runs = tuple(run for run in findings.runs if (run.environment, run.method) != (environment, method))
    return dataclasses.replace(findings, runs=runs)


def changed(findings, part, **values):
    """LeWM's records on PushT with other values."""
    return dataclasses.replace(
        findings,
        runs=tuple(
            dataclasses.replace(run, **{part: dataclasses.replace(getattr(run, part), **values)})
            if (run.environment, run.method) == ("push-t", "lewm")
            else run
            for run in findings.runs
        ),
    )


def drawings(findings):
    return {one.name: one.drawing.light for one in paper_drawings(findings)}


def test_four_figures_are_drawn_and_bear_the_paper_s_numbers(findings):
    assert [one.name for one in paper_drawings(findings)] == ["Figure 1", "Figure 2", "Figure 3", "Figure 6"]
    assert paper_drawings(findings)[0].file == "figures/figure-1.svg"
    page = render(findings)
    assert all(page.count(f"<h3>{one.name}</h3>") == 1 for one in paper_drawings(findings))


def test_each_figure_follows_its_record(findings):
    before = drawings(findings)
    lewm = next(r for r in findings.runs if (r.environment, r.method) == ("push-t", "lewm"))
    doubled = tuple(2 * x for x in lewm.diagnosis.rho)
    changes = {
        "Figure 1": [("probes", {"sigma_max": ((1.0, 2.0, 3.0),) * 12}), ("diagnosis", {"rho": doubled})],
        "Figure 2": [("diagnosis", {"one_step_error": 9.0})],
        "Figure 6": [("diagnosis", {"propagation_high": tuple(9.0 for _ in lewm.diagnosis.propagation_high)})],
    }
    for name, some in changes.items():
        for part, values in some:
            after = drawings(changed(findings, part, **values))
            assert after[name] != before[name], (name, part)
            assert after["Figure 3"] == before["Figure 3"]


def test_a_model_alone_is_no_comparison(findings):
    assert set(drawings(without(findings, "push-t", "lewm"))) == {"Figure 1", "Figure 3", "Figure 6"}

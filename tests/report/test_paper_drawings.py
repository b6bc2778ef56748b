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


def test_lewm_is_drawn_with_the_frames_it_was_evaluated_with_and_the_captions_name_them(findings, tmp_path):
    before = {one.name: one.caption for one in paper_drawings(findings)}
    assert "LeWM with one frame" in before["Figure 3"]
    assert "(LeWM with one frame)" in before["Figure 2"]
    cells = tuple(seen_with(cell, 3) if cell.evaluation.method == "lewm" else cell for cell in findings.cells)
    three = {one.name: one for one in paper_drawings(dataclasses.replace(findings, cells=cells))}
    assert "LeWM with three frames" in three["Figure 3"].caption
    assert "LeWM, 3 frames" in three["Figure 3"].drawing.alt
    assert "(LeWM with three frames)" in three["Figure 2"].caption
    assert three["Figure 2"].drawing.light == drawings(findings)["Figure 2"]
    both = tuple(seen_with(cell, 3) for cell in findings.cells if cell.evaluation.method == "lewm")
    found = {one.name: one for one in paper_drawings(dataclasses.replace(findings, cells=(*findings.cells, *both)))}
    assert found["Figure 3"].drawing.light == three["Figure 3"].drawing.light


def test_evaluations_with_another_horizon_change_no_figure(findings):
    nearer = tuple(
        dataclasses.replace(
            cell,
            name=f"{cell.name}-h3",
            evaluation=dataclasses.replace(cell.evaluation, horizon_blocks=3),
            episodes=tuple(dataclasses.replace(episode, success=False) for episode in cell.episodes),
        )
        for cell in findings.cells
        if cell.evaluation.method != "random"
    )
    # First as files may be; tables put the smaller horizon first.
    assert drawings(dataclasses.replace(findings, cells=(*nearer, *findings.cells))) == drawings(findings)


def seen_with(cell, frames):
    """The evaluation as if LeWM had been planned with more frames."""
    record = dataclasses.replace(cell.evaluation, method=f"lewm-history{frames}", history_frames=frames)
    return dataclasses.replace(cell, name=f"{cell.name}-history{frames}", evaluation=record)

"""What LeWM's three frames change is told from the records, and nothing where they change nothing."""

import dataclasses

import pytest
from fake_results import make_results

from saltwm.disk.records import OneFrameStart
from saltwm.evaluation.contests import comparisons
from saltwm.evaluation.protocols import CLEAN_PROTOCOL
from saltwm.report.claims import claims
from saltwm.report.findings import read_findings
from saltwm.report.frames import changed_by_frames
from saltwm.report.sections import claims_overview

GROWS = "SALT's rollout error grows more slowly"


@pytest.fixture(scope="module")
def findings(tmp_path_factory):
    root = tmp_path_factory.mktemp("frames")
    return read_findings(make_results(root, environments=("cube",), protocols=(CLEAN_PROTOCOL,), n=60, pictures=0))


def with_control(findings, growth):
    """LeWM's rollout error grows so many times from one frame."""

    def controlled(run):
        d = run.diagnosis
        if run.method != "lewm":
            return run
        errors = (1.0, *(growth for _ in d.rollout_error[1:]))
        one = OneFrameStart(4, d.one_step_error, errors, d.propagation_norm, d.rho)
        return dataclasses.replace(run, diagnosis=dataclasses.replace(d, history=3, one_frame=one))

    return dataclasses.replace(findings, runs=tuple(map(controlled, findings.runs)))


def rows(findings):
    found = changed_by_frames(findings, claims(findings))
    return {(row[0], row[1]): row[2:] for row in found.rows}


def test_without_a_control_nothing_is_said(findings):
    assert changed_by_frames(findings, claims(findings)) is None


def test_a_verdict_that_one_frame_turns_is_listed_and_one_that_it_does_not_turn_is_not(findings):
    (grows,) = (claim for claim in claims(findings) if claim.sentence == GROWS)
    assert [f.verdict for f in grows.findings] == ["holds"]
    assert rows(with_control(findings, growth=1.0))[GROWS, "OGBench-Cube"] == ("-", "does not hold", "holds")
    assert (GROWS, "OGBench-Cube") not in rows(with_control(findings, growth=1e6))


def test_planning_with_three_frames_is_judged_and_its_gain_is_named(findings):
    lewm = next(c for c in findings.cells if c.evaluation.method == "lewm")
    all_reached = tuple(dataclasses.replace(episode, success=True) for episode in lewm.episodes)
    record = dataclasses.replace(lewm.evaluation, method="lewm-history3", history_frames=3)
    cells = (*findings.cells, dataclasses.replace(lewm, name="three", evaluation=record, episodes=all_reached))
    both = dataclasses.replace(findings, cells=cells, comparisons=tuple(comparisons(cells)))
    judged = claims(both)
    plans = "SALT nevertheless plans better"
    assert rows(both)[plans, "OGBench-Cube"] == ("clean, H=5", "holds", "not shown")
    lost = 100 * sum(not episode.success for episode in lewm.episodes) / len(lewm.episodes)
    assert f"OGBench-Cube, clean {-lost:+.1f} points" in changed_by_frames(both, judged).note
    assert "LeWM planned with one frame" in claims_overview(claims(findings)).note
    assert "LeWM planned with one frame" not in claims_overview(judged).note

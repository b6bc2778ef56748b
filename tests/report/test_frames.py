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
PLANS = "SALT nevertheless plans better"


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


def with_frames(cell, name, frames, reached, **changes):
    """LeWM planned with so many frames, and how many tasks it then reaches."""
    method = "lewm" if frames == 1 else f"lewm-history{frames}"
    record = dataclasses.replace(cell.evaluation, method=method, history_frames=frames, **changes)
    episodes = [dataclasses.replace(e, success=place < reached) for place, e in enumerate(cell.episodes)]
    return dataclasses.replace(cell, name=name, evaluation=record, episodes=tuple(episodes))


def test_a_verdict_that_more_tasks_turn_is_not_credited_to_three_frames(findings):
    salt, lewm = (next(c for c in findings.cells if c.evaluation.method == m) for m in ("salt", "lewm"))
    # 3 tasks ahead of 60 are not shown, with one frame and with three; on three task sets they are.
    tasks = ("a", "b", "c")
    won = [
        dataclasses.replace(
            salt,
            name=f"salt-{t}",
            evaluation=dataclasses.replace(salt.evaluation, tasks_sha256=t, seed=place),
            episodes=tuple(dataclasses.replace(e, success=i < 25) for i, e in enumerate(salt.episodes)),
        )
        for place, t in enumerate(tasks)
    ]
    three = [with_frames(lewm, f"three-{t}", 3, 22, tasks_sha256=t, seed=place) for place, t in enumerate(tasks)]
    one = with_frames(lewm, "one", 1, 22, tasks_sha256="a", seed=0)
    cells = (*won, *three, one)
    more = dataclasses.replace(findings, cells=cells, comparisons=tuple(comparisons(cells)))
    judged = claims(more)
    (plans,) = (claim for claim in judged if claim.sentence == PLANS)
    assert [f.verdict for f in plans.findings] == ["holds"]
    assert (PLANS, "OGBench-Cube") not in rows(more)
    assert "on all that is recorded, as above, 1 of the verdicts with three frames differs" in (
        changed_by_frames(more, judged).note
    )


def test_planning_with_three_frames_is_judged_and_its_gain_is_named(findings):
    lewm = next(c for c in findings.cells if c.evaluation.method == "lewm")
    cells = (*findings.cells, with_frames(lewm, "three", 3, len(lewm.episodes)))
    both = dataclasses.replace(findings, cells=cells, comparisons=tuple(comparisons(cells)))
    judged = claims(both)
    assert rows(both)[PLANS, "OGBench-Cube"] == ("clean, H=5", "holds", "not shown")
    lost = 100 * sum(not episode.success for episode in lewm.episodes) / len(lewm.episodes)
    assert f"OGBench-Cube, clean, H=5 {-lost:+.1f} points" in changed_by_frames(both, judged).note
    assert "LeWM planned with one frame" in claims_overview(claims(findings)).note
    assert "LeWM planned with one frame" not in claims_overview(judged).note

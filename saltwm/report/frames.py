"""What LeWM's three frames change: the claims judged once more with the one-frame control in their place."""

import dataclasses

from saltwm.disk.records import Diagnosis
from saltwm.report import tables
from saltwm.report.claims import PAPERS_LEWM, Claim, Verdict, claims
from saltwm.report.findings import Findings
from saltwm.report.table import NONE, Table, table


def changed_by_frames(findings: Findings, judged: list[Claim]) -> Table | None:
    """Verdicts of `judged` that one frame would turn; nothing where no control is recorded."""
    control = from_one_frame(findings)
    if control == findings:
        return None
    with_one, with_three = _verdicts(claims(control)), _verdicts(judged)
    lines = [
        [sentence, tables.environment_name(environment), under or NONE, with_one[key], verdict]
        for key, verdict in with_three.items()
        for sentence, environment, under in [key]
        if key in with_one and with_one[key] != verdict
    ]
    shared = sum(key in with_one for key in with_three)
    note = (
        f"{len(lines)} of {shared} verdicts. The paper plans and measures with three frames (App. B.5, C.1), the "
        "authors' code plans with one; the verdicts above are those with three where both are recorded. Norms from "
        "one frame have no ranges and are judged as above. "
        f"LeWM with one frame less LeWM with three: {'; '.join(_gains(findings)) or 'not measured'}."
    )
    header = ["claim", "environment", "under", "with one frame", "with three"]
    return table("What LeWM's three frames change", header, lines or [["none", *[NONE] * 4]], note, tuple(header))


def from_one_frame(findings: Findings) -> Findings:
    """The same records as if LeWM had been planned with and measured from one frame alone."""
    runs = tuple(
        dataclasses.replace(run, diagnosis=_control(run.diagnosis)) if run.diagnosis else run for run in findings.runs
    )
    met = tuple(c for c in findings.comparisons if PAPERS_LEWM[0] not in (c.method_a, c.method_b))
    return dataclasses.replace(findings, runs=runs, comparisons=met)


def _control(d: Diagnosis) -> Diagnosis:
    one = d.one_frame
    if one is None:
        return d
    return dataclasses.replace(
        d,
        one_step_error=one.one_step_error,
        rollout_error=one.rollout_error,
        rollout_measured=one.rollout_measured,
        rollout_low=one.rollout_low,
        rollout_high=one.rollout_high,
        rho=one.rho,
        augmented_rho=(),
        history=1,
    )


def _verdicts(judged: list[Claim]) -> dict[tuple[str, str, str], Verdict]:
    return {(claim.sentence, f.environment, f.condition): f.verdict for claim in judged for f in claim.findings}


def _gains(findings: Findings) -> list[str]:
    """The paired difference of one frame to three, by environment and protocol."""
    return [
        f"{tables.environment_name(c.environment)}, {c.protocol} {c.difference:+.1f} points "
        f"({c.low:+.1f} to {c.high:+.1f}), p {tables.p_value(c.p)}"
        for c in sorted(findings.comparisons, key=tables.contest_order)
        if (c.method_a, c.method_b) == PAPERS_LEWM[::-1]
    ]

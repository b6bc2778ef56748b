"""What LeWM's three frames change: the claims judged once more with the one-frame control in their place."""

import dataclasses

from saltwm.disk.records import Cell, Diagnosis
from saltwm.evaluation.contests import comparisons, contest_of, method_of
from saltwm.report import tables
from saltwm.report.claims import PAPERS_LEWM, Claim, Verdict, claims
from saltwm.report.findings import Findings
from saltwm.report.table import NONE, Table, table


def changed_by_frames(findings: Findings, judged: list[Claim]) -> Table | None:
    """Verdicts that one frame would turn, plans of both on shared evidence; `judged` are the claims on all evidence.

    Nothing where no control is recorded.
    """
    shared = on_shared_evidence(findings)
    control = from_one_frame(shared)
    if control == shared:
        return None
    with_one, with_three, above = map(_verdicts, (claims(control), claims(shared), judged))
    asked = [key for key in with_three if key in with_one]
    turned = [key for key in asked if with_one[key] != with_three[key]]
    lines = [
        [sentence, tables.environment_name(environment), under or NONE, with_one[key], with_three[key]]
        for key in turned
        for sentence, environment, under in [key]
    ]
    by_more = sum(above.get(key, with_three[key]) != with_three[key] for key in asked)
    note = (
        f"{len(lines)} of {len(asked)} verdicts. The paper plans and measures with three frames (App. B.5, C.1), the "
        "authors' code plans with one. Plans are judged here on the tasks and training seeds of which both are "
        f"recorded; on all that is recorded, as above, {by_more} of the verdicts with three frames "
        f"{'differs' if by_more == 1 else 'differ'}. Norms from one frame have no ranges and are judged as above. "
        f"LeWM with one frame less LeWM with three: {'; '.join(_gains(findings)) or 'not measured'}."
    )
    header = ["claim", "environment", "under", "with one frame", "with three"]
    return table("What LeWM's three frames change", header, lines or [["none", *[NONE] * 4]], note, tuple(header))


def on_shared_evidence(findings: Findings) -> Findings:
    """The same with LeWM's plans from three frames only where it planned the same with one, and the reverse."""
    both = [c for c in findings.comparisons if (c.method_a, c.method_b) == PAPERS_LEWM[::-1]]
    kept = {name for c in both for name in (*c.cells_a, *c.cells_b)}
    met = {contest_of(c) for c in both}

    def is_shared(cell: Cell) -> bool:
        method = method_of(cell.evaluation)
        # Where one frame alone is recorded, it is judged on both sides.
        return method == "salt" or cell.name in kept or (method == "lewm" and contest_of(cell.evaluation) not in met)

    return dataclasses.replace(findings, comparisons=tuple(comparisons(filter(is_shared, findings.cells))))


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
        f"{tables.environment_name(c.environment)}, {tables.protocol_name(c)} {c.difference:+.1f} points "
        f"({c.low:+.1f} to {c.high:+.1f}), p {tables.p_value(c.p)}"
        for c in sorted(findings.comparisons, key=tables.contest_order)
        if (c.method_a, c.method_b) == PAPERS_LEWM[::-1]
    ]

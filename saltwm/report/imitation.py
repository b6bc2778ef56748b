"""What planning adds to imitation: an action prior alone, a planner alone, and both, with one model on the same tasks.

Blind and closed loops never meet in one row or one test, nor do two sets of weights.
"""

from collections.abc import Sequence

from saltwm.disk.records import Cell, Evaluation
from saltwm.evaluation.contests import Comparison, compare_shared, contest_of, family, outcomes
from saltwm.evaluation.paired import holm
from saltwm.evaluation.statistics import ALPHA, wilson
from saltwm.report import tables
from saltwm.report.findings import Findings
from saltwm.report.table import NONE, Entry, Table, markdown_table, table

TITLE = "What planning adds to imitation"
ALONE = {"map": "gauss-newton", "cem-map": "cem", "cem-prior": "cem", "icem-prior": "icem", "mppi-prior": "mppi"}
"""The planner without the prior, by the planner with it."""


def imitation(findings: Findings) -> Table | None:
    """A row for each model, protocol and look for which the prior was evaluated alone and with a planner."""
    rows = _rows(findings.cells)
    corrected = _corrected(rows)
    return table(
        TITLE,
        ["environment", "under", "model", "both is", "looks", "prior alone", "planner alone", "both",
         "both against prior", "p", "Holm", "both against planner", "p", "Holm"],
        (
            [
                *_who(sides["both"][0].evaluation),
                *(_share(sides[side]) for side in ("prior", "planner", "both")),
                *(word for test in (more, better) for word in _test(test, corrected)),
            ]
            for sides, more, better in rows
        ),
        "Percent of the same tasks with the same weights. The prior alone is amortised imitation: it repeats what the "
        "actor of the data would do and plans nothing. CEM and prior: the prior draws CEM's first candidates. Points "
        "with their interval; exact McNemar test, "
        f"{len(corrected)} tests, Holm's p is for all of them together.",
        ("under", "model", "both is", "looks"),
    )  # fmt: skip


def in_short(findings: Findings) -> list[str]:
    """By planner, how many of these rows show a difference: a table and its note; nothing where there are no rows."""
    rows = _rows(findings.cells)
    corrected = _corrected(rows)
    tests: dict[str, list[tuple[Comparison | None, Comparison | None]]] = {}
    for sides, *of_row in rows:
        tests.setdefault(str(sides["both"][0].evaluation.planner["kind"]), []).append((of_row[0], of_row[1]))
    lines = [
        [tables.PLANNER_NAMES[kind], *(_verdicts(against, corrected) for against in zip(*of_kind, strict=True))]
        for kind, of_kind in tests.items()
    ]
    note = (
        f"Rows of [{TITLE}](#{TITLE.lower().replace(' ', '-')}): the same model on the same tasks, better or worse by "
        f"Holm's p < {ALPHA:g} over all tests of that table."
    )
    return (
        [markdown_table([TITLE, "against the prior alone", "against the planner alone"], lines), note] if lines else []
    )


Sides = dict[str, list[Cell]]
Row = tuple[Sides, Comparison | None, Comparison | None]


def _corrected(rows: Sequence[Row]) -> dict[int, float]:
    """Holm's p of every test of the rows, by its identity."""
    tests = [test for _, *of_row in rows for test in of_row if test]
    return dict(zip((id(test) for test in tests), holm([test.p for test in tests]), strict=True))


def _verdicts(tests: Sequence[Comparison | None], corrected: dict[int, float]) -> str:
    done = [test for test in tests if test]
    better = [test.difference > 0 for test in done if corrected[id(test)] < ALPHA]
    counts = f"better in {sum(better)}, worse in {len(better) - sum(better)}, not shown in {len(done) - len(better)}"
    return counts if done else NONE


def _rows(cells: Sequence[Cell]) -> list[Row]:
    """(prior, planner and both; both against the prior; both against the planner), in the order of every table."""
    rows = []
    for of_model in _by_model(cells).values():
        for both, alone in ALONE.items():
            sides = {"prior": of_model.get("prior", []), "planner": of_model.get(alone, []), "both": of_model.get(both)}
            if sides["prior"] and sides["both"]:
                found = _on_shared_tasks({name: side or [] for name, side in sides.items()})
                if not found["both"]:
                    continue
                more, better = (compare_shared(found["both"], found[other]) for other in ("prior", "planner"))
                rows.append((found, more, better))
    return sorted(rows, key=lambda row: _order(row[0]["both"][0].evaluation))


def _on_shared_tasks(sides: Sides) -> Sides:
    """The sides on the task sets that the prior and both have; the planner alone if it has them all."""
    sets = [{cell.evaluation.tasks_sha256 for cell in sides[side]} for side in ("prior", "both", "planner")]
    shared = sets[0] & sets[1]
    found = {name: [c for c in side if c.evaluation.tasks_sha256 in shared] for name, side in sides.items()}
    return found if shared <= sets[2] else found | {"planner": []}


def _by_model(cells: Sequence[Cell]) -> dict[tuple[object, ...], dict[str, list[Cell]]]:
    """{what a row is of: {kind of planner: its cells}}; of several settings of a planner, or priors, the first."""
    found: dict[tuple[object, ...], dict[str, list[Cell]]] = {}
    priors: dict[str | None, str] = {}
    for cell in sorted(cells, key=lambda cell: cell.name):
        e = cell.evaluation
        prior = priors.setdefault(e.checkpoint_sha256, e.prior_sha256) if e.prior_sha256 else None
        if e.checkpoint_sha256 is not None and prior == e.prior_sha256:
            key = (contest_of(e), e.checkpoint_sha256, e.history_frames, e.look_every)
            same = found.setdefault(key, {}).setdefault(str(e.planner.get("kind", "cem")), [])
            if not same or same[0].evaluation.planner == e.planner:
                same.append(cell)
    return found


def _order(e: Evaluation) -> tuple[object, ...]:
    return tables.contest_order(e), tables.method_order(family(e)), e.checkpoint or "", e.look_every or 0


def _who(e: Evaluation) -> list[Entry | str]:
    frames = "" if e.history_frames == 1 else f", {e.history_frames} frames"
    return [
        tables.environment_name(e.environment),
        tables.protocol_name(e),
        Entry(f"{tables.run_name(e)}{frames}", mark=family(e)),
        tables.PLANNER_NAMES[str(e.planner["kind"])],
        tables.looks(e.look_every),
    ]


def _share(cells: Sequence[Cell]) -> str:
    reached = outcomes(cells)
    if not reached:
        return NONE
    rate = wilson(sum(reached), len(reached))
    return f"{rate.percent:.1f} ({tables.reached(rate)})"


def _test(test: Comparison | None, corrected: dict[int, float]) -> list[str]:
    if test is None:
        return [NONE, NONE, NONE]
    points = f"{test.difference:+.1f} ({test.low:+.1f} to {test.high:+.1f})"
    return [points, tables.p_value(test.p), tables.p_value(corrected[id(test)])]

"""What planning adds to imitation is read from the same weights on the same tasks, blind apart from closed."""

from dataclasses import replace

import pytest
from fake_results import make_results

from saltwm.disk.records import read_cells
from saltwm.evaluation.paired import flip_test
from saltwm.evaluation.protocols import CLEAN_PROTOCOL
from saltwm.report.findings import read_findings
from saltwm.report.imitation import imitation, in_short
from saltwm.report.table import plain


@pytest.fixture(scope="module")
def findings(tmp_path_factory):
    root = tmp_path_factory.mktemp("imitation")
    return read_findings(make_results(root, ("two-room",), ("salt",), protocols=(CLEAN_PROTOCOL,), n=20, pictures=0))


def cell_of(findings, kind, reached, **changes):
    """An evaluation with planner `kind` that reached the first `reached` tasks."""
    cell = findings.cells[0]
    episodes = tuple(replace(episode, success=i < reached) for i, episode in enumerate(cell.episodes))
    evaluation = replace(cell.evaluation, planner={"kind": kind}, **changes)
    return replace(cell, name=f"{kind}-{changes}", evaluation=evaluation, episodes=episodes)


def rows(findings, *cells):
    found = imitation(replace(findings, cells=cells))
    return [] if found is None else [[plain(cell) for cell in row] for row in found.rows]


def test_prior_planner_and_both_stand_in_one_row_with_their_tests(findings):
    kinds = {"prior": 10, "gauss-newton": 4, "map": 18}
    [row] = rows(findings, *(cell_of(findings, kind, reached) for kind, reached in kinds.items()))
    assert row[3:8] == ["MAP", "blind", "50.0 (10/20)", "20.0 (4/20)", "90.0 (18/20)"]
    assert row[8].startswith("+40.0")
    assert float(row[9]) == pytest.approx(flip_test([1] * 8), abs=1e-3)
    assert row[11].startswith("+70.0")
    assert float(row[10]) == pytest.approx(float(row[9]), abs=1e-3)


def test_in_short_counts_the_rows_that_show_a_difference(findings):
    kinds = {"prior": 10, "gauss-newton": 4, "map": 18, "cem-prior": 1}
    cells = [cell_of(findings, kind, reached) for kind, reached in kinds.items()]
    counted, _ = in_short(replace(findings, cells=tuple(cells)))
    assert counted.splitlines()[2:] == [
        "| MAP | better in 1, worse in 0, not shown in 0 | better in 1, worse in 0, not shown in 0 |",
        "| CEM and prior | better in 0, worse in 1, not shown in 0 | - |",
    ]
    assert in_short(replace(findings, cells=tuple(cells[:2]))) == []


def test_blind_and_closed_never_meet(findings):
    cells = cell_of(findings, "prior", 10), cell_of(findings, "map", 18, look_every=1)
    assert rows(findings, *cells) == []
    both = rows(findings, *cells, cell_of(findings, "map", 12), cell_of(findings, "prior", 9, look_every=1))
    assert [(row[4], row[5], row[7]) for row in both] == [
        ("blind", "50.0 (10/20)", "60.0 (12/20)"),
        ("each block", "45.0 (9/20)", "90.0 (18/20)"),
    ]


def test_other_weights_are_another_model(findings):
    assert (
        rows(findings, cell_of(findings, "prior", 10), cell_of(findings, "map", 18, checkpoint_sha256="cd" * 32)) == []
    )


def test_another_prior_is_another_model_and_only_shared_tasks_are_counted(findings):
    prior, both = (cell_of(findings, kind, 10, prior_sha256="p") for kind in ("prior", "map"))
    assert rows(findings, cell_of(findings, "prior", 10, prior_sha256="q"), both) == []
    more = cell_of(findings, "map", 20, prior_sha256="p", tasks_sha256="u" * 64)
    alone = cell_of(findings, "gauss-newton", 4, tasks_sha256="u" * 64)
    [row] = rows(findings, prior, both, more, alone)
    assert row[5:8] == ["50.0 (10/20)", "-", "50.0 (10/20)"]
    assert rows(findings, prior, more) == []


def test_a_transformer_is_planned_for_by_sampling(findings):
    cells = [cell_of(findings, kind, n) for kind, n in {"prior": 10, "cem": 8, "cem-prior": 15}.items()]
    [row] = rows(findings, *cells)
    assert row[3:8] == ["CEM and prior", "blind", "50.0 (10/20)", "40.0 (8/20)", "75.0 (15/20)"]


def test_a_folder_without_priors_has_no_such_table(findings):
    assert imitation(findings) is None
    assert read_cells(findings.results)

"""The table of objectives on synthetic records: what is there is told, and nothing where there is nothing."""

import dataclasses
from types import SimpleNamespace

import pytest
from test_studies import cell, findings, report

from saltwm.disk.journal import COLLAPSE_RANK
from saltwm.disk.records import ModelVariant
from saltwm.evaluation.statistics import wilson
from saltwm.jobs.study_plans import OTHERS, Variant
from saltwm.losses.table import OBJECTIVES
from saltwm.report import objectives
from saltwm.report.evidence import Arm
from saltwm.report.objectives import OTHER_OBJECTIVES

COLUMN = {
    name: i for i, name in enumerate(("environment", "variant", "percent", "reached", "interval", "against SALT"))
}
COLUMN |= {name: len(COLUMN) + i for i, name in enumerate(objectives.COLUMNS)}


def diagnosed(environment, method, one_step=0.1, rank=40.0, order=0.8):
    """What is recorded of a run: errors that double every step up to k = 20."""
    d = SimpleNamespace(
        one_step_error=one_step, rollout_error=tuple(0.01 * k for k in range(1, 21)), effective_rank=rank
    )
    probes = SimpleNamespace(cost_order=order)
    return SimpleNamespace(name=f"{environment}-{method}", environment=environment, diagnosis=d, probes=probes)


def tuned(environment, method, weight, reached, model="lewm", regulariser="pldm", term="variance"):
    """A tuning cell: so many of 50 tasks with this weight."""
    weights = None if regulariser is None else {term: weight, "covariance": 12.0}
    variant = ModelVariant(
        model, "one-step", None, None, weight if weights is None else 0.3, 192, 5, 7, 0, (), "r", regulariser, weights
    )
    found = cell(environment, method, range(reached), seed=7)
    evaluation = dataclasses.replace(found.evaluation, variant=variant, success=wilson(reached, 50))
    return dataclasses.replace(found, evaluation=evaluation)


def rows_of(found):
    return {(str(row[0]), str(row[1])): [getattr(x, "text", x) for x in row] for row in found.table.rows}


TWO_ROOM = (
    cell("two-room", "salt", range(96)),
    cell("two-room", "lewm", range(48)),
    cell("two-room", "lewm-pldm", range(90)),
    cell("two-room", "lewm-smwm", range(20)),
    cell("two-room", "salt-pldm", range(80)),
)


def test_the_report_and_the_study_name_the_same_objectives():
    assert tuple(OTHER_OBJECTIVES) == OTHERS
    assert {name: OBJECTIVES[name].title for name in OTHERS} == OTHER_OBJECTIVES


def test_methods_are_tested_against_salt_and_lewm_in_one_family_with_holms_correction():
    found = report("objectives", findings(*TWO_ROOM))
    judged = {f.condition: f.verdict for f in found.claim.findings}
    assert judged == {
        "SALT less PLDM": "holds",  # 6 tasks of 100: p 0.03, and Holm leaves the largest p of a family as it is
        "PLDM less LeWM": "holds",
        "SALT less SMWM": "holds",
        "SMWM less LeWM": "does not hold",
    }
    assert all("Holm" in f.measured for f in found.claim.findings)


def test_outside_two_room_lewms_predictor_plans_with_the_papers_three_frames():
    blind, seeing = cell("reacher", "lewm", range(78)), cell("reacher", "lewm-history3", range(89))
    found = report(
        "objectives",
        findings(cell("reacher", "salt", range(81)), blind, seeing, cell("reacher", "lewm-smwm-history3", ())),
    )
    shown = rows_of(found)
    assert shown["Reacher", "LeWM"][COLUMN["reached"]] == "89/100"
    assert shown["Reacher", "LeWM"][COLUMN["published †"]] == "85.33"
    assert shown["Reacher", "SMWM"][COLUMN["against LeWM"]].startswith("-89.0 points")
    assert "elsewhere those on LeWM's predictor plan with three" in found.table.note


def test_a_difference_that_one_test_shows_and_holm_does_not_is_not_claimed():
    reached = {"salt": 60, "lewm": 60, "lewm-pldm": 54, "lewm-smwm": 54, "lewm-sub-jepa": 54, "lewm-sd-jepa": 54}
    found = report("objectives", findings(*(cell("two-room", name, range(n)) for name, n in reached.items())))
    assert all("p 0.031" in f.measured for f in found.claim.findings)
    assert {f.verdict for f in found.claim.findings} == {"not shown"}
    assert "0 of 8 paired tests show a difference" in found.sentences[0]


def test_the_table_has_rates_errors_rank_order_time_and_what_was_published_in_a_marked_column():
    runs = (diagnosed("two-room", "lewm-pldm", 0.123), diagnosed("two-room", "lewm-smwm", rank=COLLAPSE_RANK - 0.1))
    found = report("objectives", findings(*TWO_ROOM, runs=runs))
    assert found.table.header == tuple(COLUMN)
    pldm = dict(zip(COLUMN, rows_of(found)["Two-Room", "PLDM"], strict=True))
    interval = wilson(90, 100)
    assert pldm["percent"] == "90.0"
    assert pldm["interval"] == f"{100 * interval.low:.1f} to {100 * interval.high:.1f}"
    assert [pldm[f"rollout k={k}"] for k in (5, 20)] == ["0.050", "0.200"]
    assert [pldm[name] for name in ("one-step error", "effective rank", "cost order")] == ["0.123", "40.0", "0.80"]
    assert pldm["s per task"] == "0.0"  # 1 s for 100 tasks
    shown = rows_of(found)
    published = [shown["Two-Room", name][-1] for name in ("SALT", "LeWM", "PLDM", "PLDM, affine", "DINO-WM")]
    assert published == ["98", "90.67", "97", "-", "100"]
    assert "† another data set, protocol and size, quoted and not measured" in found.table.note


def test_a_rollout_that_the_data_end_early_says_after_how_many_steps():
    run = diagnosed("two-room", "lewm-pldm")
    run.diagnosis.rollout_error = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
    found = report("objectives", findings(*TWO_ROOM, runs=(run,)))
    pldm = dict(zip(COLUMN, rows_of(found)["Two-Room", "PLDM"], strict=True))
    assert [pldm[f"rollout k={k}"] for k in (5, 20)] == ["0.500", "0.600 (k=6)"]


def test_a_collapse_is_named_in_the_table_and_in_the_sentence_and_a_spread_latent_is_not():
    sick = report(
        "objectives", findings(*TWO_ROOM, runs=(diagnosed("two-room", "lewm-smwm", rank=COLLAPSE_RANK - 0.1),))
    )
    well = report("objectives", findings(*TWO_ROOM, runs=(diagnosed("two-room", "lewm-smwm", rank=COLLAPSE_RANK + 1),)))
    rank = COLUMN["effective rank"]
    assert "collapse warned" in rows_of(sick)["Two-Room", "SMWM"][rank]
    assert "training warned of a collapse: SMWM on Two-Room." in sick.sentences[0]
    assert "collapse warned" not in rows_of(well)["Two-Room", "SMWM"][rank]
    assert "training warned of a collapse in none." in well.sentences[0]


def test_dino_wm_says_that_it_needs_weights_and_which_command_fills_it_until_it_was_evaluated():
    before = report("objectives", findings(*TWO_ROOM))
    assert rows_of(before)["Two-Room", "DINO-WM"][2] == "needs weights"
    assert ("Reacher", "DINO-WM") not in rows_of(before)  # nothing of Reacher was run
    assert "saltwm study objectives --dino WEIGHTS" in before.table.note
    after = report("objectives", findings(*TWO_ROOM, cell("two-room", "dino-wm", range(70))))
    assert rows_of(after)["Two-Room", "DINO-WM"][2] == "70.0"
    assert "SALT less DINO-WM" in {f.condition for f in after.claim.findings}
    assert before.missing == after.missing


# --- the sweep -------------------------------------------------------------------------------------------------------


def sweep_cells(*reached):
    names = ("lewm-pldm-variance6", "lewm-pldm", "lewm-pldm-variance54")
    return [tuned("two-room", *of) for of in zip(names, (6.0, 18.0, 54.0), reached, strict=True)]


def test_tried_and_chosen_weights_stand_in_the_table_and_a_chosen_one_has_a_row_and_tests_of_its_own():
    better = cell("two-room", "lewm-pldm-variance54", range(94))
    found = report("objectives", findings(*TWO_ROOM, better, tuning=sweep_cells(30, 40, 44)))
    shown = rows_of(found)
    pldm, chosen = shown["Two-Room", "PLDM"], shown["Two-Room", "PLDM, variance 54"]
    assert pldm[COLUMN["weight"]] == "variance 18"
    assert chosen[COLUMN["weight"]] == "variance 54, chosen"
    assert pldm[COLUMN["tried ‡"]] == chosen[COLUMN["tried ‡"]] == "6: 30, 18: 40, 54: 44 of 50"
    assert chosen[-1] == "-"  # nobody published that weight
    assert "PLDM, variance 54 less LeWM" in {f.condition for f in found.claim.findings}


def test_a_tie_keeps_the_published_weight_and_half_a_sweep_chooses_nothing():
    tie = report("objectives", findings(*TWO_ROOM, tuning=sweep_cells(30, 44, 44)))
    assert rows_of(tie)["Two-Room", "PLDM"][COLUMN["weight"]] == "variance 18, chosen"
    assert ("Two-Room", "PLDM, variance 54") not in rows_of(tie)
    half = report("objectives", findings(*TWO_ROOM, tuning=sweep_cells(30, 40, 44)[1:]))
    assert rows_of(half)["Two-Room", "PLDM"][COLUMN["weight"]] == "-"
    assert half.missing == tie.missing
    unevaluated = report("objectives", findings(*TWO_ROOM, tuning=sweep_cells(30, 40, 44)))
    assert unevaluated.missing == tie.missing + 1


def test_a_sweep_of_lambda_is_of_its_own_model_and_tuning_tasks_are_no_result():
    names = {"lewm-lambda0.1": 0.1, "lewm": 0.3, "lewm-lambda0.9": 0.9}
    mine = [tuned("two-room", name, w, 10, regulariser=None) for name, w in names.items()]
    others = sweep_cells(30, 40, 44)
    found = report("objectives", findings(*TWO_ROOM, tuning=[*mine, *others]))
    assert rows_of(found)["Two-Room", "LeWM"][COLUMN["tried ‡"]] == "0.1: 10, 0.3: 10, 0.9: 10 of 50"
    assert rows_of(found)["Two-Room", "LeWM"][COLUMN["reached"]] == "48/100"


@pytest.mark.parametrize("factor", [1 / 3, 3.0])
def test_the_names_of_the_sweep_are_those_of_the_study(factor):
    variant = Variant("two-room", "lewm", "pldm", scale=factor, one_frame=True)
    assert variant.method in {c.evaluation.method for c in sweep_cells(1, 1, 1)}


# --- three sentences -------------------------------------------------------------------------------------------------


def test_the_three_sentences_say_what_is_shown_where_print_differs_and_what_cannot_be_said():
    says, order, cannot = report("objectives", findings(*TWO_ROOM)).sentences
    assert "SMWM worse than LeWM on Two-Room (-28 points)" in says
    assert "PLDM better than LeWM on Two-Room (+42 points)" in says
    # In print SMWM (99) is above SALT (98), PLDM (97) and LeWM (90.67): here it is below all three.
    assert "Of 6 pairs" in order
    assert "3 the other order" in order
    assert "SMWM above LeWM on Two-Room: 99 against 90.67 in print, -28 points here" in order
    # 4 tests: 2 / 2^n * 4 < 0.05 needs n = 8.
    assert "100 tasks show no difference below 8 of them" in cannot
    assert all(text.endswith(".") and text.count(". ") == 0 for text in (says, order, cannot))


def test_where_all_are_alike_the_sentences_claim_nothing():
    same = [cell("two-room", name, range(50)) for name in ("salt", "lewm", "lewm-pldm", "lewm-smwm")]
    says, order, _ = report("objectives", findings(*same)).sentences
    assert says.startswith("0 of 4 paired tests show a difference by Holm's p < 0.05; ")
    assert "0 have the published order here" in order
    assert "0 the other order, and 6 are not decided." in order


def test_published_rates_are_of_named_methods_alone():
    assert objectives.published_rate("cube", Arm("lewm-smwm", "SMWM")) == 84
    assert objectives.published_rate("cube", Arm("salt-smwm", "SMWM, affine")) is None

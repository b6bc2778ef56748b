"""The table of objectives on synthetic records: what is there is told, and nothing where there is nothing."""

import dataclasses
from types import SimpleNamespace

import pytest
from test_studies import cell, findings, report

from saltwm.disk.journal import COLLAPSE_RANK
from saltwm.disk.records import ModelVariant
from saltwm.evaluation import lineup
from saltwm.evaluation.statistics import wilson
from saltwm.jobs.study_plans import PLANS, Variant
from saltwm.losses.table import OBJECTIVES
from saltwm.report import objectives
from saltwm.report.evidence import Arm

COLUMN = {
    name: i for i, name in enumerate(("environment", "variant", "percent", "reached", "interval", "against SALT"))
}
COLUMN |= {name: len(COLUMN) + i for i, name in enumerate(objectives.COLUMNS)}


def diagnosed(environment, method, one_step=0.1, rank=40.0, order=0.8, spread=0.9, weights=None):
    """What is recorded of a run: errors that grow every step up to k = 20, latents at the end of its training."""
    d = SimpleNamespace(
        one_step_error=one_step, rollout_error=tuple(0.01 * k for k in range(1, 21)), effective_rank=rank
    )
    probes = SimpleNamespace(cost_order=order)
    metrics = tuple({"step": step, "effective_rank": rank, "latent_std": spread} for step in (1, 400))
    name = f"{environment}-{method}"
    return SimpleNamespace(
        name=name, environment=environment, diagnosis=d, probes=probes, metrics=metrics, weights=weights
    )


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


def test_the_report_calls_objectives_what_their_table_calls_them():
    assert {name: OBJECTIVES[name].title for name in lineup.OTHERS} == lineup.OTHERS


@pytest.mark.parametrize(
    ("model", "environment", "frames"),
    [("salt", "reacher", 1), ("lewm", "reacher", 3), ("lewm", "two-room", 1), ("dino-wm", "push-t", 3)],
)
def test_a_predictor_that_looks_back_plans_with_three_frames_but_in_two_room(model, environment, frames):
    (variant,) = {
        v for v in PLANS["objectives"].variants if (v.environment, v.model, v.objective) == (environment, model, None)
    }
    assert variant.history == lineup.frames(model, environment) == frames


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
    assert "elsewhere those whose predictor looks back, all but SALT, plan with three" in found.table.note


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


@pytest.mark.parametrize(("weights", "told"), [("0", "0.100"), ("1", "0.100 §"), (None, "0.100")])
def test_errors_of_another_training_than_the_evaluated_one_are_marked(weights, told):
    found = report("objectives", findings(*TWO_ROOM, runs=(diagnosed("two-room", "lewm-pldm", weights=weights),)))
    assert dict(zip(COLUMN, rows_of(found)["Two-Room", "PLDM"], strict=True))["one-step error"] == told


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
    assert "training warned of a collapse: on Two-Room SMWM." in sick.sentences[0]
    assert "collapse warned" not in rows_of(well)["Two-Room", "SMWM"][rank]
    assert "training warned of no collapse." in well.sentences[0]


def test_latents_that_shrink_to_a_point_are_a_collapse_whatever_their_rank_and_a_frozen_encoders_are_not():
    shrunk = diagnosed("two-room", "lewm-smwm", spread=0.05)
    frozen = diagnosed("two-room", "dino-wm", rank=1.5, spread=0.01)
    found = report("objectives", findings(*TWO_ROOM, cell("two-room", "dino-wm", range(70)), runs=(shrunk, frozen)))
    rank = COLUMN["effective rank"]
    assert rows_of(found)["Two-Room", "SMWM"][rank] == "40.0, collapse warned"
    assert rows_of(found)["Two-Room", "DINO-WM"][rank] == "1.5"


def test_a_training_that_recovered_is_not_called_a_collapse():
    run = diagnosed("two-room", "lewm-smwm")
    early = {"step": 200, "effective_rank": 2.0, "latent_std": 0.9}
    run.metrics = (run.metrics[0], early, run.metrics[-1])
    found = report("objectives", findings(*TWO_ROOM, runs=(run,)))
    assert "collapse" not in rows_of(found)["Two-Room", "SMWM"][COLUMN["effective rank"]]


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
    assert rows_of(found)["Two-Room", "LeWM"][COLUMN["weight"]] == "lambda 0.3, chosen"


def test_sigregs_weight_is_called_lambda_in_every_row_and_a_chosen_weight_stands_below_its_method():
    names = ("lewm-sub-jepa-lambda0.1", "lewm-sub-jepa", "lewm-sub-jepa-lambda0.9")
    swept = [
        tuned("two-room", name, weight, reached, regulariser="sub-jepa", term="sigreg")
        for name, weight, reached in zip(names, (0.1, 0.3, 0.9), (9, 5, 5), strict=True)
    ]
    evaluated = [cell("two-room", name, range(50)) for name in names[:2]]
    shown = list(rows_of(report("objectives", findings(*TWO_ROOM, *evaluated, tuning=swept))))
    below = shown.index(("Two-Room", "Sub-JEPA, lambda 0.1"))
    assert shown[below - 1] == ("Two-Room", "Sub-JEPA")


@pytest.mark.parametrize("factor", [1 / 3, 3.0])
def test_the_names_of_the_sweep_are_those_of_the_study(factor):
    variant = Variant("two-room", "lewm", "pldm", scale=factor, one_frame=True)
    assert variant.method in {c.evaluation.method for c in sweep_cells(1, 1, 1)}


# --- three sentences -------------------------------------------------------------------------------------------------


def test_the_three_sentences_say_what_is_shown_where_print_differs_and_what_cannot_be_said():
    says, order, cannot = report("objectives", findings(*TWO_ROOM)).sentences
    assert says.startswith(
        "4 of 4 paired tests show a difference by Holm's p < 0.05: on Two-Room SALT is better than PLDM by 6 and SMWM "
        "by 76 points, LeWM is better than SMWM by 28 points, LeWM is worse than PLDM by 42 points; "
    )
    # In print SMWM (99) is above SALT (98), PLDM (97) and LeWM (90.67): here it is below all three.
    assert order == (
        "Of 6 pairs of methods whose published rates differ, tests by Holm's p < 0.05 leave 0 undecided, show the "
        "published order for 3 and the other order for 3: on Two-Room SALT 76 points above SMWM (in print 1 below), "
        "LeWM 28 points above SMWM (in print 8.33 below) and PLDM 70 points above SMWM (in print 2 below)."
    )
    # All four are shown: Holm's last step multiplies by 1, and 2 / 2^n < 0.05 needs n = 6.
    assert "fewer than 6 of the 100 tasks" in cannot
    assert all(text.endswith(".") and text.count(". ") == 0 for text in (says, order, cannot))


def test_several_environments_are_told_one_after_the_other_and_labels_without_their_commas():
    reacher = [cell("reacher", name, range(n)) for name, n in (("salt", 80), ("lewm-history3", 80))]
    worse = cell("reacher", "lewm-delta-jepa-history3", range(30))
    chosen = cell("two-room", "lewm-pldm-variance54", range(10))
    runs = [diagnosed(*of, rank=2.0) for of in (("two-room", "salt-pldm"), ("reacher", "lewm-delta-jepa-history3"))]
    found = report("objectives", findings(*TWO_ROOM, chosen, *reacher, worse, runs=runs, tuning=sweep_cells(1, 2, 3)))
    says, order, _ = found.sentences
    assert "PLDM with variance 54 by 86" in says.partition("; on Reacher")[0]
    assert (
        "; on Reacher SALT is better than Delta-JEPA by 50 points, LeWM is better than Delta-JEPA by 50 points;" in says
    )
    assert says.endswith(
        "training warned of a collapse: on Two-Room PLDM with an affine transition; on Reacher Delta-JEPA."
    )
    assert order.count("on Two-Room") == 1


def test_where_all_are_alike_the_sentences_claim_nothing():
    same = [cell("two-room", name, range(50)) for name in ("salt", "lewm", "lewm-pldm", "lewm-smwm")]
    says, order, _ = report("objectives", findings(*same)).sentences
    assert says.startswith("0 of 4 paired tests show a difference by Holm's p < 0.05; ")
    assert order.endswith("leave 6 undecided, show the published order for 0 and the other order for none.")


def test_published_rates_are_of_named_methods_alone():
    assert objectives.published_rate("cube", Arm("lewm-smwm", "SMWM")) == 84
    assert objectives.published_rate("cube", Arm("salt-smwm", "SMWM, affine")) is None

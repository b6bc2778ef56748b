"""The methods of Table 1 with an action prior, on synthetic records of both outcomes."""

import dataclasses

import pytest
from test_studies import cell, findings, report

from saltwm.ground.config import CEMMapConfig, ImitationConfig, MapConfig
from saltwm.ground.strict_json import to_plain
from saltwm.report import with_prior

PLANNERS = {"map": MapConfig(), "cem-map": CEMMapConfig(), "prior": ImitationConfig()}
HEADER = ("environment", "variant", "percent", "reached", "interval", "against SALT", *with_prior.COLUMNS)


def planned(environment, method, reached, planner, weights="0"):
    """An evaluation by a planner with a prior."""
    found = cell(environment, method, range(reached))
    changes = {"planner": to_plain(PLANNERS[planner]), "checkpoint_sha256": weights}
    changes |= {"history_frames": 3} if "history3" in method else {}
    return dataclasses.replace(found, evaluation=dataclasses.replace(found.evaluation, **changes))


def push_t(salt=85, lewm=60, smwm=80, alone=70):
    return [
        cell("push-t", "salt", range(70)),
        cell("push-t", "lewm-history3", range(27)),
        cell("push-t", "lewm-smwm-history3", range(71)),
        planned("push-t", "salt-map", salt, "map"),
        planned("push-t", "lewm-cem-map-history3", lewm, "cem-map"),
        planned("push-t", "lewm-smwm-cem-map-history3", smwm, "cem-map"),
        planned("push-t", "lewm-smwm-prior-history3", alone, "prior"),
    ]


def row_of(found, variant):
    rows = [[getattr(entry, "text", entry) for entry in row] for row in found.table.rows]
    return dict(zip(HEADER, next(row for row in rows if row[1] == variant), strict=True))


def test_a_row_has_the_posterior_mode_the_prior_alone_and_the_plain_search_of_one_model():
    found = report("objectives-map", findings(*push_t()))
    assert found.table.header == HEADER
    smwm = row_of(found, "SMWM")
    assert (smwm["percent"], smwm["prior alone"], smwm["plain CEM"]) == ("80.0", "70.0", "71.0")
    assert smwm["against SALT"].startswith("-5.0 points")
    assert smwm["against LeWM"].startswith("+20.0 points")
    assert smwm["against its prior"].startswith("+10.0 points")
    salt = row_of(found, "SALT")
    assert (salt["percent"], salt["plain CEM"], salt["prior alone"]) == ("85.0", "70.0", "-")


@pytest.mark.parametrize(("smwm", "verdicts"), [(60, ("holds", "not shown")), (99, ("does not hold", "holds"))])
def test_the_rule_is_that_of_table_1(smwm, verdicts):
    found = report("objectives-map", findings(*push_t(smwm=smwm)))
    judged = {f.condition: f.verdict for f in found.claim.findings}
    assert judged == dict(zip(("SALT less SMWM", "SMWM less LeWM"), verdicts, strict=True))
    assert "2 tests" in found.claim.rule


def test_the_sentences_say_what_is_left_of_the_differences_and_what_planning_adds():
    left, spread, beyond = report("objectives-map", findings(*push_t(smwm=84, alone=60))).sentences
    assert left.startswith("1 of 2 paired tests show a difference by Holm's p < 0.05: on PushT LeWM is worse than SMWM")
    assert spread.endswith("the worst method with plain CEM and with the prior: on PushT 44 and 25.")
    assert "Of 1 models the posterior mode is shown to be better in 1 (SMWM on PushT) and worse in 0 than" in beyond
    nothing = report("objectives-map", findings(*push_t(alone=80))).sentences[-1]
    assert "better in 0 and worse in 0 than the prior alone" in nothing


def test_plain_cem_of_another_training_is_marked_and_of_the_same_is_not():
    marked = [planned("push-t", "lewm-smwm-cem-map-history3", 80, "cem-map", weights="1")]
    others = [one for one in push_t() if one.evaluation.method != "lewm-smwm-cem-map-history3"]
    found = report("objectives-map", findings(*others, *marked))
    assert row_of(found, "SMWM")["plain CEM"] == "71.0 §"
    assert row_of(found, "LeWM")["plain CEM"] == "27.0"


def test_a_prior_of_another_training_is_marked_and_no_test_is_made_of_it():
    def found(**changes):
        name = "lewm-smwm-prior-history3"
        alone = planned("push-t", name, 60, "prior")
        alone = dataclasses.replace(alone, evaluation=dataclasses.replace(alone.evaluation, **changes))
        others = [one for one in push_t(smwm=84) if one.evaluation.method != name]
        return report("objectives-map", findings(*others, alone))

    same = found()
    assert row_of(same, "SMWM")["prior alone"] == "60.0"
    assert "Of 1 models" in same.sentences[-1]
    for changes in ({"checkpoint_sha256": "1"}, {"prior_sha256": "1"}):
        other = found(**changes)
        row = row_of(other, "SMWM")
        assert (row["prior alone"], row["against its prior"], row["plain CEM"]) == ("60.0 §", "-", "71.0")
        assert "Of 0 models" in other.sentences[-1]


def test_the_shipped_models_alone_are_no_study_of_objectives():
    shipped = [one for one in push_t() if "smwm" not in one.evaluation.method]
    assert report("objectives-map", findings(*shipped)) is None


def test_a_record_of_another_planner_than_its_name_says_is_not_read():
    wrong = planned("push-t", "lewm-smwm-cem-map-history3", 99, "prior")
    looking = planned("push-t", "lewm-smwm-cem-map-history3", 99, "cem-map")
    looking = dataclasses.replace(looking, evaluation=dataclasses.replace(looking.evaluation, look_every=1))
    others = [one for one in push_t() if "smwm" not in one.evaluation.method]
    for other in (wrong, looking):
        assert report("objectives-map", findings(*others, other)) is None

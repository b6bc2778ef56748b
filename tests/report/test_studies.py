"""Studies are judged by their rules: what was made to be there is found, and nothing where there is nothing."""

import dataclasses
import itertools
from types import SimpleNamespace
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure
from small_records import small_cell

from saltwm.disk.records import ModelVariant
from saltwm.evaluation.paired import holm
from saltwm.ground.config import CEMConfig, MapConfig
from saltwm.ground.strict_json import to_plain
from saltwm.report import figures, studies, study_figure
from saltwm.report.studies import STUDIES, study_reports
from saltwm.report.study_figure import Point, success_by_variant

BY_NAME = {study.name: study for study in STUDIES}
TASKS = 100


def cell(environment, method, reached, protocol="clean", horizon=5, seed=1):
    """An evaluation of 100 tasks of which the numbered ones were reached."""
    made = {"environment": environment, "protocol": protocol, "horizon_blocks": horizon, "seed": seed, "planner": {}}
    made |= {"tasks_sha256": f"{environment}-{protocol}-{seed}", "checkpoint": f"runs/{environment}-{method}"}
    done = [task in set(reached) for task in range(TASKS)]
    return small_cell(f"{environment}-{method}-{protocol}-seed{seed}", method, done, checkpoint_sha256="0", **made)


def findings(*cells, runs=(), tuning=()):
    return SimpleNamespace(cells=cells, runs=runs, tuning=tuning)


def report(name, found):
    reports = {one.name: one for one in study_reports(found)}
    return reports.get(name)


def verdicts(name, found):
    one = report(name, found)
    return {f.environment: f.verdict for f in one.claim.findings}


def test_a_study_of_which_only_the_shipped_models_are_there_is_not_shown():
    assert study_reports(findings(cell("reacher", "salt", range(80)))) == []


def test_a_matrix_without_modulation_that_plans_worse_is_found_and_one_that_does_not_is_not():
    salt = cell("reacher", "salt", range(80))
    assert verdicts("modulation", findings(salt, cell("reacher", "salt-modes0", range(20)))) == {"reacher": "holds"}
    assert verdicts("modulation", findings(salt, cell("reacher", "salt-modes0", range(78)))) == {"reacher": "not shown"}
    assert verdicts("modulation", findings(salt, cell("reacher", "salt-modes0", range(99)))) == {
        "reacher": "does not hold"
    }


def test_a_name_is_not_believed_where_the_record_says_something_else():
    salt, other = cell("reacher", "salt", range(80)), cell("reacher", "salt-modes0", range(20))
    recipe = ModelVariant("salt", "rollout", 16, True, 0.3, 192, 5, 7, 0, (), "aa" * 32)

    def found(**changes):
        record = dataclasses.replace(salt.evaluation, **{"variant": recipe, **changes})
        return verdicts("modulation", findings(dataclasses.replace(salt, evaluation=record), other))

    assert found() == {"reacher": "holds"}
    assert found(look_every=1) == {}
    assert found(planner=to_plain(MapConfig())) == {}
    assert found(planner=to_plain(CEMConfig(candidates=9))) == {}
    assert found(history_frames=3) == {}
    assert found(variant=dataclasses.replace(recipe, departures=("d 96",))) == {}
    assert found(variant=dataclasses.replace(recipe, seed=1)) == {}
    assert found(variant=dataclasses.replace(recipe, model="lewm")) == {}


def test_a_name_of_several_words_is_believed_where_the_record_says_each_of_them():
    recipe = ModelVariant("salt", "rollout", 0, True, 0.3, 192, 5, 7, 0, ("R 0",), "aa" * 32)

    def found(**changes):
        other = cell("reacher", "salt-modes0", range(20))
        record = dataclasses.replace(other.evaluation, variant=dataclasses.replace(recipe, **changes))
        salt = cell("reacher", "salt", range(80))
        return verdicts("modulation", findings(salt, dataclasses.replace(other, evaluation=record)))

    assert found() == {"reacher": "holds"}
    for wrong in ({"departures": ()}, {"departures": ("R 2",)}, {"departures": ("R 0", "d 96")}, {"seed": 1}):
        with pytest.raises(AttributeError):  # no report of a study that has no row but SALT's
            found(**wrong)


def table_3(gains):
    """Cells of all environments in which rollout training adds these many tasks to SALT and to LeWM."""
    for environment in studies.FOUR:
        one, roll, lewm_one, lewm_roll = (arm.method for arm in studies.objective_arms(environment))
        yield cell(environment, one, range(50))
        yield cell(environment, roll, range(50 + gains[0]))
        yield cell(environment, lewm_one, range(50))
        yield cell(environment, lewm_roll, range(50 + gains[1]))


@pytest.mark.parametrize(
    ("gains", "verdict"), [((20, -10), "holds"), ((0, 0), "not shown"), ((-10, 20), "does not hold")]
)
def test_the_interaction_of_table_3_is_the_mean_over_environments(gains, verdict):
    found = report("objective", findings(*table_3(gains)))
    last = found.claim.findings[-1]
    assert last.environment == "mean of 4"
    assert last.verdict == verdict
    assert f"{gains[0] - gains[1]:+.1f} points" in last.measured
    assert found.missing == 0


def pooled_rows(name, found):
    """What each pooled row of a table shows, by its environment and variant."""
    texts = [[getattr(entry, "text", entry) for entry in row] for row in report(name, found).table.rows]
    return {(row[0], row[1]): row[2:] for row in texts if "mean of" in row[0] + row[1] or row[1] == "Random"}


def test_table_3_has_the_four_means_beside_the_papers_and_none_with_a_hole():
    cells = [*table_3((20, -10))]
    assert pooled_rows("objective", findings(*cells)) == {
        ("mean of 4", "SALT one-step"): ["50", "-", "-", "-", "84.4"],
        ("mean of 4", "SALT rollout"): ["70", "-", "-", "-", "92.7"],
        ("mean of 4", "LeWM one-step"): ["50", "-", "-", "-", "82.7"],
        ("mean of 4", "LeWM rollout"): ["40", "-", "-", "-", "77.8"],
    }
    left = pooled_rows("objective", findings(*(c for c in cells if c.name != "cube-salt-one-step-clean-seed1")))
    assert ("mean of 4", "SALT one-step") not in left
    assert len(left) == 3


def seeds_of(environment, counts, protocol="clean"):
    """Both models with as many training seeds, and how many tasks each reaches."""
    for seed, (salt, lewm) in enumerate(counts):
        end = f"-s{seed}" if seed else ""
        yield cell(environment, f"salt{end}", range(salt), protocol)
        yield cell(environment, f"lewm{end}-history3", range(lewm), protocol)


def test_training_seeds_are_pooled_where_all_are_there_and_random_stands_beside_them():
    counts, random = [(50, 40), (60, 40), (70, 40)], cell("cube-double", "random", range(30), "paper")
    found = pooled_rows("cube-double", findings(*seeds_of("cube-double", counts, "paper"), random))
    assert found == {
        ("OGBench-Cube-Double", "SALT, mean of 3 seeds"): ["60.0 ± 10.0", "180/300", "50.2 to 69.1", "-", "54.0 ± 3.5"],
        ("OGBench-Cube-Double", "LeWM, mean of 3 seeds"): ["40.0 ± 0.0", "120/300", "30.9 to 49.8", "-", "36.0 ± 5.3"],
        ("OGBench-Cube-Double", "Random"): ["30.0", "30/100", "21.9 to 39.6", "-", "32.7 ± 4.2"],
    }
    assert pooled_rows("cube-double", findings(*seeds_of("cube-double", counts[:2], "paper"), random)) == {}
    of_clean = pooled_rows("seeds", findings(*seeds_of("push-t", counts)))
    assert of_clean["PushT", "SALT, mean of 3 seeds"] == ["60.0 ± 10.0", "180/300", "50.2 to 69.1", "-"]


@pytest.mark.parametrize("gains", [(20, -10), (-10, 20)])
def test_an_environment_with_a_hole_is_left_out_of_the_mean_and_leaves_the_claim_open(gains):
    cells = [c for c in table_3(gains) if c.name != "cube-lewm-rollout-history3-clean-seed1"]
    found = report("objective", findings(*cells))
    last = found.claim.findings[-1]
    assert (last.environment, last.verdict) == ("mean of 3", "not shown")
    assert last.measured.endswith("3 of 4 environments")
    assert found.missing == 1


def test_the_cells_of_table_3_are_compared_with_salt_of_the_same_windows():
    of_the_recipe = cell("two-room", "salt", range(100))
    found = report("objective", findings(of_the_recipe, *table_3((20, -10))))
    against = {line[1]: line[5] for line in found.table.rows if line[0] == "Two-Room"}
    assert against["SALT rollout"] == "-"
    assert against["SALT one-step"].startswith("-20.0 points")
    assert against["LeWM rollout"].startswith("-30.0 points")


def test_three_seeds_hold_only_together():
    rng = np.random.default_rng(0)

    def seeds(counts):
        for seed, (salt, lewm) in enumerate(counts):
            end = f"-s{seed}" if seed else ""
            yield cell("push-t", f"salt{end}", rng.permutation(TASKS)[:salt])
            yield cell("push-t", f"lewm{end}-history3", rng.permutation(TASKS)[:lewm])

    assert verdicts("seeds", findings(*seeds([(70, 30), (60, 30), (65, 40)]))) == {"push-t": "holds"}
    assert verdicts("seeds", findings(*seeds([(90, 30), (90, 30), (40, 45)]))) == {
        "push-t": "not shown"
    }  # signs differ
    assert verdicts("seeds", findings(*seeds([(70, 30), (60, 30)]))) == {"push-t": "not shown"}  # a seed is missing


def test_what_is_settled_over_training_seeds_is_said_in_words():
    seeds = seeds_of
    ahead, behind = [(70, 30), (60, 30), (65, 40)], [(30, 70), (30, 60), (40, 65)]
    found = findings(*seeds("two-room", ahead), *seeds("reacher", behind), *seeds("push-t", ahead[:2]))
    settled, left = studies.settled_in_words(found)
    assert "SALT plans better on Two-Room (+40.0, +30.0, +25.0), and worse on Reacher (-40.0, -30.0, -25.0);" in settled
    assert left.endswith(": PushT (+40.0, +30.0).")
    (one,) = studies.settled_in_words(findings(*seeds("two-room", ahead), *seeds("reacher", ahead)))
    assert "better on Two-Room (+40.0, +30.0, +25.0) and Reacher (+40.0, +30.0, +25.0);" in one
    _, two = studies.settled_in_words(findings(*seeds("two-room", ahead), *seeds("cube-double", ahead[:2], "paper")))
    assert two.endswith(": OGBench-Cube-Double under `paper` (+40.0, +30.0).")
    none, _ = studies.settled_in_words(findings(*seeds("cube", ahead[:1])))
    assert "neither SALT nor LeWM is shown to plan better" in none
    assert studies.settled_in_words(findings()) == []


def test_a_sweep_that_falls_at_both_ends_is_told_from_a_flat_and_from_a_ragged_one():
    def sweep(*counts):
        return findings(
            *(cell("two-room", arm.method, range(n)) for arm, n in zip(studies._LAMBDAS, counts, strict=True))
        )

    assert verdicts("lambda", sweep(20, 88, 90, 89, 30)) == {"two-room": "holds"}
    assert verdicts("lambda", sweep(90, 90, 90, 90, 90)) == {"two-room": "not shown"}
    assert verdicts("lambda", sweep(20, 40, 90, 89, 30)) == {"two-room": "does not hold"}


def test_a_spread_of_three_points_is_steady_and_one_of_thirty_is_not():
    def sweep(*counts):
        return findings(*(cell("two-room", arm.method, range(n)) for arm, n in zip(studies._DIMS, counts, strict=True)))

    assert verdicts("dim", sweep(89, 90, 92)) == {"two-room": "holds"}
    assert verdicts("dim", sweep(60, 90, 92)) == {"two-room": "does not hold"}
    assert verdicts("dim", sweep(86, 90, 90)) == {"two-room": "not shown"}


def test_a_rule_says_how_many_tests_it_makes():
    def rule(name, *methods):
        return report(name, findings(*(cell("two-room", method, range(90)) for method in methods))).claim.rule

    assert rule("lambda", "salt", "salt-lambda1").endswith("; 1 test")
    assert rule("lambda", "salt", "salt-lambda1", "salt-lambda3").endswith("; 2 tests")
    assert rule("dim", "salt", "salt-d96").endswith("; 1 test")
    assert rule("objectives", "salt", "lewm", "lewm-pldm").endswith("; 2 tests")
    assert rule("seeds", "salt", "lewm-history3", "salt-s1", "lewm-s1-history3").endswith("; 1 test")
    assert rule("objective", "salt-starts1", "lewm-starts1-history3").endswith("; one test")
    long = [cell("reacher", m, range(9), "long", h) for m in ("salt", "lewm") for h in (10, 15, 20)]
    assert report("horizon", findings(*long)).claim.rule.endswith("; 3 tests")


def test_what_is_left_of_a_study_is_named():
    found = report("dim", findings(cell("two-room", "salt", ()), cell("two-room", "salt-d96", ())))
    left = "4 evaluations of the study still to be run (Two-Room: 384; Reacher: 96, 192, 384)."
    assert found.table.note.endswith(left)
    assert found.missing == 4
    three = [cell("reacher", method, (), "long", 10) for method in ("salt", "lewm", "lewm-history3")]
    assert "Reacher: SALT at H=15, LeWM at H=15, LeWM, one frame at H=15, SALT at H=20" in (
        report("horizon", findings(*three)).table.note
    )


def test_growth_of_a_free_base_matrix_is_compared_with_lewm():
    def diagnosed(method, growths, steps=2):
        norms = tuple((1.0,) * (steps - 1) + (growth,) for growth in growths)
        mean = (1.0,) * (steps - 1) + (float(np.mean(growths)),)
        d = SimpleNamespace(
            propagation_measured=norms, propagation_norm=mean, propagation_low=mean, propagation_high=mean
        )
        return SimpleNamespace(name=f"push-t-{method}", environment="push-t", diagnosis=d)

    cells = [cell("push-t", method, range(9)) for method in ("salt", "salt-free", "lewm-history3")]
    salt, lewm = diagnosed("salt", (4, 5)), diagnosed("lewm-history3", (8, 9))
    for growths, verdict in (((4, 6), "holds"), ((4, 8.5), "not shown"), ((10, 11), "does not hold")):
        found = findings(*cells, runs=(salt, diagnosed("salt-free", growths), lewm))
        assert verdicts("spectral", found) == {"push-t": verdict}
    longer = findings(*cells, runs=(salt, diagnosed("salt-free", (4, 6), steps=3), lewm))
    assert verdicts("spectral", longer) == {"push-t": "not shown"}
    assert "over different numbers of steps" in report("spectral", longer).claim.findings[0].measured


def test_long_horizons_are_corrected_for_the_number_of_tests():
    cells = []
    for horizon in (10, 15, 20):
        cells += [
            cell("reacher", "salt", range(13), "long", horizon),
            cell("reacher", "lewm", range(6), "long", horizon),
        ]
    found = report("horizon", findings(*cells))
    assert all("LeWM with one frame" in f.condition for f in found.claim.findings)
    assert {f.verdict for f in found.claim.findings} == {"holds" if min(holm([1 / 64] * 3)) < 0.05 else "not shown"}


def test_table_7_has_the_papers_rates_beside_lewm_with_three_frames_or_beside_one_where_these_are_not():
    def published(*methods):
        cells = [cell("cube", method, range(5), "long", horizon) for method in methods for horizon in (10, 20)]
        table = report("horizon", findings(*cells)).table
        assert table.header[-1] == "paper †"
        return {(line[1], line[2]): line[-1] for line in table.rows}

    three = published("salt", "lewm", "lewm-history3")
    assert (three["10", "SALT"], three["20", "SALT"]) == ("78.0", "65.0")
    assert [three["10", name] for name in ("LeWM", "LeWM, one frame")] == ["53.0", "-"]
    assert published("salt", "lewm")["20", "LeWM, one frame"] == "48.0"


def test_a_figure_leaves_out_an_environment_of_which_only_the_reference_is_there():
    both = [cell(environment, "salt", range(90)) for environment in ("two-room", "reacher")]
    smaller = [cell(environment, "salt-d96", range(80)) for environment in ("two-room", "reacher")]
    assert report("dim", findings(*both, smaller[0])).drawing.alt == (
        "Size of the latent (Figure 8): Two-Room, 96 80 %; Two-Room, 192 90 %."
    )
    assert "Reacher, 192 90 %" in report("dim", findings(*both, *smaller)).drawing.alt


def drawn_axes(points):
    with mpl.rc_context(figures._STYLE):
        figure = Figure(figsize=(7.5, 3.0), layout="constrained")
        axes = figure.subplots()
        study_figure.side_by_side.__wrapped__(axes, "A study", points)
        figure.draw_without_rendering()
    return axes


def labels_of(points):
    """Each label below the axis, and its corners in pixels."""
    return [(label, label.get_window_extent()) for label in drawn_axes(points).get_xticklabels()]


@pytest.mark.parametrize("n", [1, 2, 4, 6, 8, 12])
@pytest.mark.parametrize("name", ["{}", "H={}", "SALT one-step {}"])
def test_labels_that_would_touch_below_the_axis_stand_in_the_margin(n, name):
    points = [Point("Two-Room", name.format(i), "salt", 90.0, 80.0, 95.0) for i in range(n)]
    touch = any(left.x1 + 2 >= right.x0 for (_, left), (_, right) in itertools.pairwise(labels_of(points)))
    height = success_by_variant("A study", points).size[1]
    assert height == round(72 * (0.9 + 0.2 * n)) or (height == 72 * 3.0 and not touch)


def margin_of(points):
    """The labels in the margin with their corners in pixels, and the columns."""
    groups = list(dict.fromkeys(point.group for point in points))
    with mpl.rc_context(figures._STYLE):
        figure = Figure(figsize=(7.5, 0.9 + 0.2 * len({point.name for point in points})), layout="constrained")
        columns = figure.subplots(1, len(groups), squeeze=False)
        study_figure.row_by_row.__wrapped__(columns, "A study", points)
        figure.draw_without_rendering()
    return [(label, label.get_window_extent()) for label in columns[0][0].get_yticklabels()], columns[0]


def test_labels_in_the_margin_touch_neither_each_other_nor_the_points():
    names = [f"Sub-JEPA, lambda 0.{i}, and more" for i in range(17)]
    labels, columns = margin_of([Point("Two-Room", name, "lewm", 1.0, 0.0, 5.0) for name in names])
    for (_, above), (_, below) in itertools.pairwise(labels):
        assert below.y1 <= above.y0
    assert all(box.x0 >= 0 and box.x1 <= columns[0].get_window_extent().x0 for _, box in labels)


def test_a_variant_has_one_row_in_all_environments_and_stands_below_its_neighbour():
    points = [
        Point(place, name, "salt", 50.0, 40.0, 60.0)
        for place, names in (("Two-Room", ("SALT", "PLDM")), ("Reacher", ("SALT", "SALT, lambda 1", "PLDM")))
        for name in names
    ]
    labels, (two_room, reacher) = margin_of(points)
    assert [label.get_text() for label, _ in labels] == ["SALT", "SALT, lambda 1", "PLDM"]
    heights = [
        [y for line in axes.lines if line.get_marker() == "s" for y in line.get_ydata()] for axes in (two_room, reacher)
    ]
    assert heights == [[0, 2], [0, 1, 2]]


def test_two_points_stand_beside_each_other_and_not_at_the_ends_of_the_page():
    (_, left), (_, right) = labels_of([Point("Reacher", label, "salt", 9.0, 8.0, 10.0) for label in "ab"])
    assert right.x0 - left.x1 < 750 / 4


def test_two_methods_of_one_name_share_its_label():
    points = [
        Point(place, f"H={horizon}", method, 50.0, 40.0, 60.0)
        for place in ("Two-Room", "Reacher")
        for horizon in (10, 15)
        for method in ("salt", "lewm")
    ]
    assert [label.get_text() for label, _ in labels_of(points)] == ["H=10", "H=15", "H=10", "H=15"]


def test_a_control_is_hollow_and_named_in_the_legend_and_in_the_words():
    ours, control = (
        Point("Reacher", "H=10", "lewm", 90.0, 80.0, 95.0, name, name != "LeWM") for name in ("LeWM", "LeWM, one frame")
    )
    legend = drawn_axes([ours, control]).get_legend()
    assert [text.get_text() for text in legend.get_texts()] == ["LeWM", "LeWM, one frame"]
    assert [mark.get_markerfacecolor() for mark in legend.get_lines()] == [figures.BLUE, "none"]
    drawing = success_by_variant("A study", [ours, control])
    assert drawing.alt.endswith("Reacher, LeWM, H=10 90 %; Reacher, LeWM, one frame, H=10 90 %.")


def test_a_document_s_figure_has_a_ground_of_its_own():
    drawing = success_by_variant("A study", [Point("Two-Room", "A0", "salt", 90.0, 80.0, 95.0)])
    first = next(iter(ElementTree.fromstring(figures.on_white(drawing.light))))
    assert (first.tag.rpartition("}")[2], first.get("fill"), first.get("width")) == ("rect", "#ffffff", "100%")

"""The page shows what is on disk, names what is missing, and is the same every time."""

import dataclasses
import json
import re
import shutil

import pytest
from fake_results import make_results

from saltwm import durable
from saltwm.config import CLEAN_PROTOCOL, to_plain, write_config
from saltwm.errors import DamagedError, UsageError
from saltwm.records import Rate, read_cells
from saltwm.report import build_report
from saltwm.report.findings import read_findings
from saltwm.report.page import picture_caption, render


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    root = tmp_path_factory.mktemp("results")
    return make_results(root, environments=("two-room",), protocols=(CLEAN_PROTOCOL,), n=20, pictures=2)


@pytest.fixture(scope="module")
def page(results, tmp_path_factory):
    return build_report(results, tmp_path_factory.mktemp("report") / "deep" / "er").read_text()


@pytest.fixture
def copy(results, tmp_path):
    return shutil.copytree(results, tmp_path / "results")


def words(page: str) -> str:
    """The page's text without tags."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page))


def test_every_rate_is_printed_with_its_counts_and_interval(page, results):
    for path in results.glob("evaluations/*/evaluation.json"):
        rate = json.loads(path.read_text())["success"]
        assert f"{rate['successes']}/{rate['n']}" in page
        assert f"{100 * rate['low']:.1f} to {100 * rate['high']:.1f}" in page


def test_paired_tests_are_printed_with_verdict_and_p(page, results):
    text = words(page)
    for comparison in json.loads((results / "comparisons.json").read_text()):
        assert comparison["verdict"] in text
        assert f"{comparison['difference']:+.1f}" in text
    assert "SALT against LeWM" in text


def test_the_page_says_what_was_run(page, results):
    tasks = json.loads(next(results.glob("tasks/*.json")).read_text())
    evaluation = json.loads(next(results.glob("evaluations/*/evaluation.json")).read_text())
    for expected in ("Two-Room", "64 px", tasks["dataset_sha256"], evaluation["tasks_sha256"], "Python", "saltwm"):
        assert expected in page


def test_every_picture_has_an_alternative_text_and_a_source_in_the_page(page):
    images = re.findall(r"<img [^>]*>", page)
    assert len(images) > 10
    for image in images:
        assert re.search(r'alt="[^"]{10,}"', image), image[:80]
        assert 'src="data:image/' in image


def test_planned_episodes_are_captioned_from_their_file_names(page):
    assert picture_caption("task-007-reached") == ("task 7", "reached")
    assert picture_caption("anything else") == ("anything else", "")
    assert 'task 0 <span class="outcome' in page


def test_the_same_records_give_the_same_page(page, results):
    assert render(read_findings(results)) == page


def test_several_environments_stand_side_by_side(tmp_path):
    results = make_results(tmp_path / "r", protocols=(CLEAN_PROTOCOL,), methods=("salt", "random"), n=6, pictures=0)
    shutil.rmtree(results / "diagnostics")
    text = words(build_report(results, tmp_path / "page").read_text())
    assert "All environments" in text
    assert text.index("Two-Room") < text.index("Reacher")


def test_a_user_s_own_method_is_a_row_like_any_other(tmp_path):
    results = make_results(
        tmp_path / "r",
        environments=("maze",),
        protocols=(CLEAN_PROTOCOL,),
        methods=("_mine", "random"),
        n=6,
        pictures=0,
    )
    assert "_mine against Random" in words(build_report(results, tmp_path / "page").read_text())


# --- what is missing is said ---------------------------------------------------------------------------------------


def test_an_empty_or_missing_folder_names_the_command_that_fills_it(tmp_path):
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(UsageError, match="saltwm evaluate"):
            build_report(folder, tmp_path / "page")
    assert not (tmp_path / "page").exists()


def test_an_unfinished_evaluation_is_named_and_in_no_table(copy):
    cell = sorted(copy.glob("evaluations/*"))[0]
    lines = (cell / "episodes.jsonl").read_text().splitlines()
    for name in ("evaluation.json", "episodes.jsonl"):
        (cell / name).unlink()
    (cell / "chunks").mkdir()
    durable.write_json(cell / "chunks" / "00000.json", [{"record": json.loads(line)} for line in lines[:7]])
    findings = read_findings(copy)
    assert cell.name not in {c.name for c in findings.cells}
    assert any(cell.name in note and "7 episodes" in note for note in findings.unfinished)
    assert all(cell.name not in c.cells_a + c.cells_b for c in findings.comparisons)


def test_comparisons_and_anatomies_older_than_their_episodes_are_left_out_and_named(copy):
    cell = next(c for c in read_cells(copy) if c.evaluation.method == "salt")
    folder = copy / "evaluations" / cell.name
    episodes = tuple(dataclasses.replace(e, success=False, steps_to_success=None) for e in cell.episodes)
    durable.write_text(folder / "episodes.jsonl", "".join(json.dumps(to_plain(e)) + "\n" for e in episodes))
    write_config(folder / "evaluation.json", dataclasses.replace(cell.evaluation, success=Rate(0, 20, 0.0, 0.17)))
    findings = read_findings(copy)
    assert cell.name not in findings.anatomies
    assert [(c.method_a, c.method_b) for c in findings.comparisons] == [("lewm", "random")]
    assert sum("older than" in note for note in findings.unfinished) == 3


def test_a_run_without_a_diagnosis_keeps_its_curves_and_is_named(copy):
    run = copy / "diagnostics" / "two-room-salt"
    (run / "diagnosis.json").unlink()
    findings = read_findings(copy)
    assert "Run two-room-salt has training curves but no diagnosis" in " ".join(findings.unfinished)
    assert [(r.environment, r.method) for r in findings.runs if r.name == run.name] == [("two-room", "salt")]


def test_diagnostics_alone_make_a_page(copy):
    shutil.rmtree(copy / "evaluations")
    (copy / "comparisons.json").unlink()
    text = words(render(read_findings(copy)))
    assert "Nothing was evaluated yet" in text
    assert "Error propagation" in text


def test_evaluations_alone_make_a_page(copy):
    shutil.rmtree(copy / "diagnostics")
    shutil.rmtree(copy / "tasks")
    for path in copy.glob("evaluations/*/anatomy.json"):
        path.unlink()
    text = words(render(read_findings(copy)))
    assert "are not among the files in tasks/" in text
    assert "Error propagation" not in text


# --- what is damaged is refused ------------------------------------------------------------------------------------


def damage_metrics(results):
    path = next(results.glob("diagnostics/*/metrics.jsonl"))
    path.write_text('{"loss": 1.0}\n')


def damage_picture(results):
    next(results.glob("evaluations/*/pictures/*.png")).write_text("<svg onload='x'/>")


def damage_tasks(results):
    path = next(results.glob("tasks/*.json"))
    durable.write_json(path, durable.read_json(path) | {"seed": 77})


def damage_comparisons(results):
    durable.write_json(results / "comparisons.json", {"a": 1})


def damage_count(results):
    path = next(results.glob("evaluations/*/evaluation.json"))
    evaluation = durable.read_json(path)
    evaluation["success"]["successes"] = 0
    evaluation["success"]["n"] = 1000
    durable.write_json(path, evaluation)


def damage_episodes(results):
    path = next(results.glob("evaluations/*/episodes.jsonl"))
    path.write_text(path.read_text().replace('"reason"', '"excuse"', 1))


@pytest.mark.parametrize(
    "damage",
    [damage_metrics, damage_picture, damage_tasks, damage_comparisons, damage_count, damage_episodes],
)
def test_damaged_records_stop_the_report_with_the_file_s_name(copy, damage):
    damage(copy)
    with pytest.raises(DamagedError, match=str(copy)):
        read_findings(copy)

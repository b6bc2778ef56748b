"""docs/results.md and the README's table are what the records give, no more and no less."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from fake_results import make_decoding, make_results

from saltwm.cli import main
from saltwm.disk import durable
from saltwm.disk.records import ModelVariant, PlannedCell, PlanRecord, read_cells
from saltwm.evaluation.protocols import CLEAN_PROTOCOL, PAPER_PROTOCOL
from saltwm.evaluation.statistics import wilson
from saltwm.ground.config import GaussNewtonConfig, MapConfig
from saltwm.ground.errors import MismatchError, UsageError
from saltwm.ground.strict_json import to_plain
from saltwm.jobs.again import spell_again
from saltwm.jobs.pages import Results
from saltwm.jobs.shipping import Card
from saltwm.report import sections
from saltwm.report.findings import read_findings
from saltwm.report.markdown import BEGIN, END, _search_table, document, readme_table, with_table
from saltwm.report.page import _anatomy
from saltwm.report.table import markdown_table, plain
from saltwm.report.tables import duration, pooled_rows

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    root = tmp_path_factory.mktemp("document")
    make_results(root, ("two-room", "cube"), protocols=(PAPER_PROTOCOL,), seeds=(1, 2, 3), n=10, pictures=0)
    shutil.rmtree(root / "diagnostics")
    return make_results(root, ("two-room", "cube"), protocols=(CLEAN_PROTOCOL,), n=10, pictures=0, prefix="clean")


@pytest.fixture(scope="module")
def text(results):
    return document(read_findings(results, spell_again), "saltwm results results").text


def test_every_pooled_rate_stands_in_the_document_with_counts_and_interval(text, results):
    rows = pooled_rows(read_cells(results))
    assert len(rows) == 2 * 2 * 3
    for row in rows:
        rate = row.rate
        assert f"{rate.successes}/{rate.n} | {100 * rate.low:.1f} to {100 * rate.high:.1f}" in text
    assert {row.rate.n for row in rows if row.protocol == "paper"} == {30}


def test_the_paper_s_figures_stand_beside_and_are_marked(text):
    line = next(line for line in text.splitlines() if line.startswith("| OGBench-Cube | 5 | SALT |"))
    assert line.endswith("94.0 ± 2.0 |")
    assert "† are the paper's own: another data set, another size, another machine" in text


def test_the_papers_lewm_stands_beside_three_frames_and_beside_one_only_where_these_are_not(results):
    findings = read_findings(results)
    seen = tuple(
        replace(c, name=f"{c.name}-3", evaluation=replace(c.evaluation, method="lewm-history3", history_frames=3))
        for c in findings.cells
        if c.evaluation.method == "lewm" and c.evaluation.environment == "cube"
    )
    both = replace(findings, cells=(*findings.cells, *seen))
    rate = {(row[0], plain(row[2])): row[-1] for row in sections.success(both, "paper").rows}
    failed = {(row[0], plain(row[2])): row[-1] for row in sections.anatomy(both).rows if row[1] == "paper, H=5"}
    assert rate["Two-Room", "LeWM"] == "90.7 ± 4.6"
    assert (rate["OGBench-Cube", "LeWM, 3 frames"], rate["OGBench-Cube", "LeWM"]) == ("67.3 ± 4.2", "-")
    assert (failed["OGBench-Cube", "LeWM, 3 frames"], failed["OGBench-Cube", "LeWM"]) == ("35 and 17 of 150", "-")
    assert failed["OGBench-Cube", "SALT"] == "3 and 6 of 150"


def test_each_table_has_commands_that_repeat_it_elsewhere_on_the_same_tasks(text, results):
    cells = {cell.name: cell.evaluation for cell in read_cells(results)}
    row = [name for name, e in cells.items() if (e.environment, e.method, e.protocol) == ("cube", "salt", "paper")]
    of_row = [results / "evaluations" / name for name in row]
    assert len(of_row) == 3
    lines = [line for line in text.replace(" \\\n  ", " ").splitlines() if line.startswith("saltwm again ")]
    assert any(all(f" {folder} " in line for folder in of_row) for line in lines)
    assert all(line.endswith(" --out work/again") for line in lines)
    assert any(f"{results}/diagnostics/two-room-lewm " in line for line in lines)
    assert f"--out {results}\n" not in text  # there a finished evaluation would only be found finished


def test_sections_are_there(text):
    for title in (
        "Which of the paper's claims hold here",
        "Success, protocol `paper`",
        "Paired comparisons",
        "Errors and their propagation",
        "What the latents know",
        "How episodes fail",
        "Training",
        "Evaluating",
        "How long it took",
    ):
        assert f"## {title}\n" in text


def test_cards_of_runs_are_named_where_there_are_some(text, results, tmp_path):
    assert "have a card" not in text
    copy = shutil.copytree(results, tmp_path / "results")
    durable.make_folder(copy / "cards")
    for name in ("two-room-salt", "of-no-record"):
        (copy / "cards" / f"{name}.md").write_text(f"# {name}\n")
    path = copy / "diagnostics" / "cube-salt" / "diagnosis.json"
    durable.write_json(path, durable.read_json(path) | {"run": "checkpoints/cube-salt"})
    for path in copy.glob("evaluations/*/evaluation.json"):
        record = durable.read_json(path)
        if record["checkpoint"] == "runs/cube-salt/checkpoints/step-000200":
            durable.write_json(path, record | {"checkpoint": "checkpoints/cube-salt"})
    note = sections.training(read_findings(copy)).note
    assert f" Of 3 evaluated or diagnosed runs whose weights are not shipped, 1 have a card in `{copy}/cards`;" in note


def test_the_first_lines_tell_by_which_p_something_is_claimed(text):
    first = text.partition("\n## ")[0]
    assert "where that is a paired test, Holm's p < 0.05 over all its tests decides." in first
    assert "`better` and `worse` in Paired comparisons need p < 0.05 of their own test, and their interval;" in first
    assert "Those of runs whose weights are not shipped need their training first;" in first


def test_table_one_has_the_mean_and_the_quoted_methods_marked_as_quoted(text, results):
    line = next(line for line in text.splitlines() if line.startswith("| Random † |"))
    assert line.endswith("| 15.3 |")
    assert "| PLDM ‡ | 97 | 78 | 78 | 65 | 79.5 |" in text
    ours = next(line for line in text.splitlines() if line.startswith("| SALT | "))
    assert ours.endswith("| - |")  # two of four environments have no mean over four


def test_every_table_and_figure_of_the_paper_has_a_place_or_says_that_it_was_not_run(text):
    part = text.partition("## The paper's tables and figures")[2].partition("\n## ")[0]
    for name in [f"Table {i}" for i in range(1, 9)] + ["Figure 1a", "Figure 2c", *(f"Figure {i}" for i in range(3, 9))]:
        assert part.count(f"| {name} |") == 1
    published = "LeWM 82.7 one-step, 77.8 rollout; SALT 84.4, 92.7 %"
    assert (
        f"| Table 3 | transition and objective, 2 x 2 | not run yet | {published} | `saltwm study objective` |" in part
    )
    assert "| Table 1 | success in four environments | Planning success |" in part


def test_figure_5_shows_the_decoded_predictions_where_they_lie(text, results, tmp_path):
    assert "### Figure 5" not in text
    copy, folder = shutil.copytree(results, tmp_path / "results"), tmp_path / "some" / "docs"
    for run in ("two-room-salt", "cube-salt"):
        make_decoding(copy, run, run.removesuffix("-salt"), "salt")
    shown = document(read_findings(copy), "x", folder).text
    assert "| Figure 5 | decoded open-loop rollouts | drawn below |" in shown
    part = shown.partition("### Figure 5\n")[2].partition("\n#")[0]
    assert shown.index("### Figure 3") < shown.index("### Figure 5") < shown.index("### Figure 6")
    links = re.findall(r"^!\[Decoded open-loop predictions of SALT on (\S+)\]\((.*)\)$", part, re.M)
    pictures = [copy / "diagnostics" / run / "decoded.png" for run in ("two-room-salt", "cube-salt")]
    assert [name for name, _ in links] == ["Two-Room", "OGBench-Cube"]
    assert [(folder / link).resolve() for _, link in links] == [picture.resolve() for picture in pictures]
    assert "0.0063 at t = 45" in part
    assert "is for looking only" in part


def test_other_planners_are_tested_against_blind_cem_in_a_table_of_their_own(results, tmp_path):
    copy = shutil.copytree(results, tmp_path / "results")
    for path in copy.glob("evaluations/clean-*/evaluation.json"):
        record = durable.read_json(path)
        if record["method"] == "salt" and record["environment"] == "cube":
            other = shutil.copytree(path.parent, path.parent.with_name("searched"))
            planner = to_plain(GaussNewtonConfig())
            durable.write_json(other / "evaluation.json", record | {"method": "salt-gauss-newton", "planner": planner})
            break
    text = document(read_findings(copy), "x").text
    first, searched = (text.partition(f"## {title}\n")[2].partition("\n## ")[0] for title in (
        "Success, protocol `clean`", "Search"))  # fmt: skip
    assert "Gauss-Newton" not in first
    assert "| SALT with Gauss-Newton | blind |" in searched
    assert "+0.0" in searched
    assert "1 tests; Holm's p is for all of them together" in searched


def test_a_folder_of_other_searches_says_so_and_begins_with_them(results, tmp_path):
    copy, searched = shutil.copytree(results, tmp_path / "results"), to_plain(MapConfig())
    for path in copy.glob("evaluations/*/evaluation.json"):
        record = durable.read_json(path)
        if record["method"] == "salt":
            durable.write_json(path, record | {"method": "salt-map", "planner": searched})
        elif record["method"] != "random":
            shutil.rmtree(path.parent)
    titles = [
        [line for line in document(read_findings(folder), "x").text.splitlines() if line.startswith(("# ", "## "))]
        for folder in (results, copy)
    ]
    assert [first for first, *_ in titles] == ["# Results", "# Results of other searches"]
    places = [titles[1].index(f"## {title}") for title in ("In short", "Search", "Success, protocol `clean`")]
    assert places == sorted(places)
    found = sections.search(read_findings(copy))  # nothing to test against: no column that is empty in every row
    assert found.header[-1] == "seconds a task"
    assert "tests" not in found.note


def test_episodes_that_look_before_a_plan_is_at_its_end_are_not_called_mismatches(results):
    findings = read_findings(results)
    assert "look before" not in sections.anatomy(findings).note
    plain_salt = next(c for c in findings.cells if (c.evaluation.environment, c.evaluation.method) == ("cube", "salt"))
    looks = replace(plain_salt.evaluation, method="salt-look1", look_every=1)
    found = replace(findings, cells=(*findings.cells, replace(plain_salt, name="looks", evaluation=looks)))
    shown = sections.anatomy(found)
    assert shown.rows == sections.anatomy(findings).rows
    assert "Methods that look before a plan is at its end are left out" in shown.note
    (reached,) = (row[5] for row in sections.search(found).rows if row[3] == "each block")
    assert reached.startswith(f"{looks.success.successes}/{looks.success.n}")  # where their failures are counted
    assert "a look after" not in "".join(one.drawing.alt for one in _anatomy(found, "cube"))


def test_the_median_of_two_ratios_lies_between_them(results):
    findings = read_findings(results)
    cell = next(c for c in findings.cells if c.evaluation.method == "salt")
    episodes = [replace(e, success=True) for e in cell.episodes]
    for i, ratio in enumerate((2.0, 4.0)):
        plans = (PlanRecord(0, (9.0, 1.0)), PlanRecord(25, (ratio, ratio)))
        episodes[i] = replace(episodes[i], success=False, steps_to_success=None, plans=plans)
    shown = sections.anatomy(replace(findings, cells=(replace(cell, episodes=tuple(episodes)),)))
    assert shown.rows[0][shown.header.index("median r")] == "3.0"


def searched(findings, **changes):
    """What the table of searches says with one more evaluation: SALT's first on Cube, in which this differs."""
    plain = next(c for c in findings.cells if (c.evaluation.environment, c.evaluation.method) == ("cube", "salt"))
    other = replace(plain, name="other", evaluation=replace(plain.evaluation, **changes))
    return sections.search(replace(findings, cells=(*findings.cells, other))).note


def test_a_search_is_tested_against_blind_cem_with_its_own_model_only(results):
    findings, planner = read_findings(results), to_plain(GaussNewtonConfig())
    assert " 1 tests;" in searched(findings, method="salt-gauss-newton", planner=planner)
    other = searched(findings, method="salt-gauss-newton", planner=planner, checkpoint_sha256="cd" * 32)
    assert " tests;" not in other
    assert "blind CEM" not in other


def test_the_document_says_where_tasks_come_from_the_data_of_the_prior(results, tmp_path):
    make_results(tmp_path, ("cube",), protocols=(PAPER_PROTOCOL,), n=10, pictures=0)
    findings, says = read_findings(tmp_path), "Tasks of `paper` were drawn from the data that the action priors were"
    data = {t.dataset_sha256 for t in findings.task_sets.values()}
    run = next(run for run in findings.runs if run.name == "cube-salt")
    same, other = (
        replace(findings, runs=(replace(run, training=replace(run.training, dataset_sha256=sha256)),))
        for sha256 in (*data, "ee" * 32)
    )
    with_prior = {"method": "salt-map", "planner": to_plain(MapConfig()), "prior_sha256": "aa" * 32}
    assert says in searched(same, **with_prior)
    assert says not in searched(other, **with_prior)
    assert says not in searched(same, method="salt-gauss-newton", planner=to_plain(GaussNewtonConfig()))


def test_the_readme_hides_no_recipe_behind_another(results):
    findings = read_findings(results)
    of_salt = [c for c in findings.cells if c.evaluation.method == "salt" and c.evaluation.protocol == "clean"]
    others = [
        replace(c, name=f"{c.name}-other", evaluation=replace(
            c.evaluation, checkpoint="runs/other", checkpoint_sha256="cd" * 32, success=wilson(0, 10)))
        for c in of_salt
    ]  # fmt: skip
    lines = readme_table(replace(findings, cells=(*findings.cells, *others))).splitlines()
    line = next(line for line in lines if line.startswith("| OGBench-Cube | clean"))
    assert "| cube-salt: **" in line
    assert "; other: **0.0** (0/10;" in line


def test_the_readme_has_a_line_for_each_protocol_at_its_own_horizon_with_a_method_of_the_paper(results):
    findings = read_findings(results)
    nearer = [
        replace(c, name=f"{c.name}-h3", evaluation=replace(c.evaluation, horizon_blocks=3)) for c in findings.cells
    ]
    searched = [
        replace(c, name=f"{c.name}-map", evaluation=replace(c.evaluation, environment="reacher", method="salt-map"))
        for c in findings.cells
        if c.evaluation.method == "salt"
    ]
    more = replace(findings, cells=(*findings.cells, *nearer, *searched))
    assert readme_table(more) == readme_table(findings)


def test_the_readme_s_searches_count_all_evaluation_seeds_of_what_they_name(results):
    findings = read_findings(results)
    plain = next(c for c in findings.cells if (c.evaluation.method, c.evaluation.protocol) == ("salt", "clean"))

    def line(*evaluations):
        cells = tuple(replace(plain, name=str(i), evaluation=e) for i, e in enumerate(evaluations))
        return _search_table(replace(findings, cells=cells)).splitlines()[2]

    variant = ModelVariant("salt", "rollout", 16, True, 0.3, 192, 5, 7, 0, (), "aa" * 32)
    searched = {"method": "salt-map", "planner": to_plain(MapConfig()), "variant": variant}
    first = replace(plain.evaluation, success=wilson(9, 10), **searched)
    other = replace(first, seed=2, tasks_sha256="u" * 64, success=wilson(1, 10))
    assert "| **50.0** (10/20) |" in line(first, other)
    assert "| **90.0** (9/10) |" in line(first, replace(other, horizon_blocks=3))
    ablation = replace(variant, departures=("R 0",), recipe_sha256="bb" * 32)
    assert "| **90.0** (9/10) |" in line(first, replace(other, variant=ablation))


def test_a_missing_seed_leaves_a_hole_and_not_a_rate(results, tmp_path):
    copy = shutil.copytree(results, tmp_path / "results")
    planned = [PlannedCell("cube", "paper", 5, "salt", seed) for seed in (1, 2, 3, 4)]
    durable.write_json(copy / "suite.json", [to_plain(cell) for cell in planned])
    line = next(
        line for line in readme_table(read_findings(copy)).splitlines() if line.startswith("| OGBench-Cube | paper")
    )
    salt, *others = (part.strip() for part in line.strip("|").split("|")[2:5])
    assert salt == "seed 4 missing"
    assert all("/30, seeds 1, 2, 3 of 1-4;" in other for other in others)  # nobody planned a fourth for them


def test_the_readme_s_table_is_replaced_between_its_markers_only(results, tmp_path, capsys):
    readme, out = tmp_path / "README.md", tmp_path / "docs" / "results.md"
    readme.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    words = ["results", str(results), "--out", str(out), "--readme", str(readme)]
    main(words)
    written = readme.read_text()
    assert written.startswith(f"before\n{BEGIN}\n| environment | protocol | SALT | LeWM | Random |")
    assert written.endswith(f"\n{END}\nafter\n")
    assert "old" not in written
    main([*words, "--check"])
    assert "up to date" in capsys.readouterr().out
    out.write_text(out.read_text().replace("holds", "shines", 1))
    with pytest.raises(MismatchError, match="saltwm results"):
        Results(results, out, readme, check=True).do()
    with pytest.raises(SystemExit) as stopped:
        main([*words, "--check"])
    assert stopped.value.code == 3


def test_a_readme_without_markers_is_refused_and_kept(results, tmp_path):
    (tmp_path / "README.md").write_text("mine")
    with pytest.raises(UsageError, match="README"):
        with_table("mine", "table", tmp_path / "README.md")


def test_names_cannot_break_a_table():
    assert markdown_table(["a|b"], [["<x>\n"]]) == "| a\\|b |\n| --- |\n| \\<x>\N{WHITE SQUARE} |"


def test_durations_are_readable():
    assert [duration(s) for s in (48.2, 720, 12_300)] == ["48 s", "12 min", "3.4 h"]


@pytest.mark.skipif(not (REPOSITORY / "results").exists(), reason="no results are committed yet")
def test_the_committed_documents_are_what_the_committed_records_give(monkeypatch):
    monkeypatch.chdir(REPOSITORY)
    Results(Path("results"), Path("docs/results.md"), Path("README.md"), check=True).do()
    Results(Path("search"), Path("docs/search.md"), Path("README.md"), check=True).do()


@pytest.mark.parametrize("card", sorted((REPOSITORY / "checkpoints").glob("*/README.md")), ids=lambda p: p.parent.name)
def test_the_cards_of_the_shipped_models_are_what_the_committed_records_give(card, tmp_path, monkeypatch):
    monkeypatch.chdir(REPOSITORY)
    shipped = card.parent.relative_to(REPOSITORY)
    written = card.read_text()
    records = "search" if " search/evaluations/" in written else "results"
    Card(str(shipped), Path(records), tmp_path / "card.md").do()
    assert written == (tmp_path / "card.md").read_text(), f"saltwm card {shipped} --results {records}"


def test_the_usual_document_is_not_replaced_by_one_of_other_records(results, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written, *_ = Results(results).do()
    shutil.copytree(results, tmp_path / "others")
    before = written.read_bytes()
    with pytest.raises(UsageError, match="not made from the records in others"):
        Results(Path("others")).do()
    with pytest.raises(UsageError, match="nowhere: no results to report"):
        Results(Path("nowhere")).do()
    assert written.read_bytes() == before
    assert Results(results).do()[0] == written  # its own records may

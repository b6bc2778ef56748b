"""The page shows what is on disk, names what is missing, and is the same every time."""

import dataclasses
import json
import re
import shutil

import pytest
from fake_results import make_decoding, make_results

from saltwm.disk import durable
from saltwm.disk.durable import write_config
from saltwm.disk.records import Efficiency, PredictorCost, Rate, read_cells, read_tasks
from saltwm.evaluation.protocols import CLEAN_PROTOCOL, PAPER_PROTOCOL
from saltwm.evaluation.statistics import wilson
from saltwm.evaluation.tasks import write_tasks
from saltwm.ground.errors import DamagedError, UsageError
from saltwm.ground.strict_json import to_plain
from saltwm.report import tables
from saltwm.report.findings import Picture, picture_caption, read_findings, short_planner
from saltwm.report.overview import _searched_better, bands, in_words, verdicts
from saltwm.report.page import Media, _galleries, _title, render, write_page
from saltwm.report.sections import NOT_RUN
from saltwm.report.templates import _unbroken, _whole_words


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    root = tmp_path_factory.mktemp("results")
    return make_results(root, environments=("two-room",), protocols=(CLEAN_PROTOCOL,), n=20, pictures=2)


@pytest.fixture(scope="module")
def page(results, tmp_path_factory):
    return write_page(results, tmp_path_factory.mktemp("report") / "deep" / "er").read_text()


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
    for comparison in read_findings(results).comparisons:
        assert comparison.verdict in text
        assert f"{comparison.difference:+.1f}" in text
    assert "SALT against LeWM" in text


def test_the_page_says_what_was_run(page, results):
    tasks = json.loads(next(results.glob("tasks/*.json")).read_text())
    evaluation = json.loads(next(results.glob("evaluations/*/evaluation.json")).read_text())
    for expected in ("Two-Room", "64 px", tasks["dataset_sha256"], evaluation["tasks_sha256"], "Python", "saltwm"):
        assert expected in page
    assert "cem: candidates 300, iterations 30, elites 30, initial std 1.0" in words(page)


@pytest.fixture(scope="module")
def written(results, tmp_path_factory):
    return write_page(results, tmp_path_factory.mktemp("written"))


def test_every_picture_has_an_alternative_text_and_a_file_beside_the_page(written):
    images = re.findall(r"<img [^>]*>", written.read_text())
    assert len(images) > 10
    for image in images:
        assert re.search(r'alt="[^"]{10,}"', image), image[:80]
        assert 'loading="lazy"' in image
        source = re.search(r'src="(media/[0-9a-f]{16}\.(?:svg|gif|png))"', image)[1]
        assert (written.parent / source).stat().st_size > 100
    assert written.stat().st_size < 2_000_000


def test_wide_tables_can_be_scrolled_with_the_keyboard(page):
    scrolling = '<div class="scroll" tabindex="0" role="region" aria-label="'
    assert page.count('<div class="scroll"') == page.count(scrolling) > 3


def test_tables_of_many_columns_are_set_tighter_so_that_none_is_hidden(page):
    tables_ = re.findall(r'<table class="numbers ([^"]*)">\s*<thead>(.*?)</thead>', page, re.S)
    assert {("dense" in kinds) == (head.count("<th ") > 7) for kinds, head in tables_} == {True}
    assert any("dense" in kinds for kinds, _ in tables_)


def test_films_say_what_is_now_and_what_is_the_goal_and_methods_stand_side_by_side(page):
    assert "<i>now</i><i>goal</i>" in page
    assert 'class="film of-2"' in page  # at the scale of films of three
    meeting = page.partition('<div class="meeting"')[2].partition("</div>")[0]
    assert meeting.count("<figure>") == 2
    assert "SALT" in meeting
    assert "LeWM" in meeting


@pytest.mark.parametrize(
    ("size", "panels"), [((336, 160), ("now", "goal")), ((500, 160), ("now", "imagined", "goal")), ((160, 160), ())]
)
def test_a_film_says_what_stands_side_by_side_in_it(size, panels):
    assert Picture("cell", "task-000-reached.gif", "gif", b"", *size).panels == panels
    assert Picture("cell", "task-000-reached.png", "png", b"", *size).panels == ()  # a strip has no such parts


def test_the_page_begins_with_each_environment_in_words_and_a_table_of_contents(page, results):
    header = words(page.partition("<header>")[2].partition("</header>")[0])
    (sentence, *_) = in_words(read_findings(results), "two-room")
    assert re.match(r"SALT (plans|rarely plans)[a-z ]*: it reaches \d+ of 20 tasks under clean", sentence)
    assert sentence in header
    assert set(re.findall(r'href="#([^"]+)"', page)) <= set(re.findall(r'id="([^"]+)"', page))


def test_a_search_that_reaches_more_with_the_same_model_is_named(results):
    found = next(row for row in read_findings(results).pooled if row.method == "salt")
    salt = dataclasses.replace(found, rate=wilson(10, 20))
    searched = dataclasses.replace(salt, method="salt-map", label="SALT with MAP", rate=wilson(20, 20))
    poorer = dataclasses.replace(searched, label="SALT with Gauss-Newton", rate=wilson(0, 20))
    lewm = dataclasses.replace(searched, method="lewm", label="LeWM")
    (said,) = _searched_better(salt, [salt, poorer, lewm, searched])
    assert said == "With another search the same model plans reliably: 20 of 20 (MAP)."
    assert _searched_better(salt, [salt, poorer, lewm]) == []
    reliable = dataclasses.replace(salt, rate=wilson(19, 20))
    (said,) = _searched_better(reliable, [reliable, searched])
    assert said == "With another search the same model reaches 20 of 20 (MAP)."
    further = [dataclasses.replace(cell.evaluation, checkpoint_sha256="cd" * 32) for cell in salt.cells]
    cells = (dataclasses.replace(cell, evaluation=e) for cell, e in zip(salt.cells, further, strict=True))
    assert _searched_better(salt, [salt, dataclasses.replace(searched, cells=tuple(cells))]) == []  # another model


def test_without_plain_salt_the_best_of_the_searches_is_named_and_their_table_stands_open(tmp_path):
    results = make_results(
        tmp_path / "r",
        environments=("two-room",),
        protocols=(CLEAN_PROTOCOL,),
        methods=("lewm-map", "salt-map", "random"),
        n=6,
        pictures=0,
    )
    for path in results.glob("evaluations/*/evaluation.json"):
        record = json.loads(path.read_text())
        if record["method"] != "random":
            path.write_text(json.dumps({**record, "planner": {"kind": "map"}}))
    findings = read_findings(results)
    said, chosen = in_words(findings, "two-room")
    best = max((row for row in findings.pooled if row.method != "random"), key=lambda row: row.rate.successes)
    assert said.startswith(f"{best.label} ")
    assert "Random" in said
    assert chosen == "It is the best of 2 methods here."
    assert re.search(r"<details[^>]* open><summary>Search and variants", render(findings))


def test_what_the_paper_compares_keeps_the_other_searches_folded_and_one_environment_shows_its_films(page):
    assert re.findall(r"<details[^>]* open><summary>([^<]*)", page) == ["Planned episodes"]


def test_every_figure_says_its_size_so_that_a_link_into_the_page_ends_where_it_points(page):
    pictures = re.findall(r"<img [^>]*>", page)
    assert any(".svg" in picture for picture in pictures)
    for picture in pictures:
        width, height = (int(re.search(rf' {side}="(\d+)"', picture)[1]) for side in ("width", "height"))
        assert 0.1 < height / width < 10


def test_films_of_one_method_s_training_seeds_are_told_apart(results):
    findings = read_findings(results)
    rows = [row for row in tables.success_rows(findings.cells) if (row.method, row.environment) == ("salt", "two-room")]
    twice = [dataclasses.replace(row, training_seed=seed) for row in rows for seed in (0, 1)]
    for shown, labels in ((rows, {"SALT"}), (twice, {"SALT, training seed 0", "SALT, training seed 1"})):
        galleries = list(_galleries(findings, shown))
        assert {one.label for g in galleries for meeting in g.meetings for one in meeting.filmed} == labels


def test_a_planner_is_told_with_its_settings_or_by_its_name_alone():
    assert short_planner({"kind": "cem", "initial_std": 1.0, "elites": 30}) == "cem: initial std 1.0, elites 30"
    assert short_planner({"kind": "prior"}) == "prior"
    assert short_planner({}) == "none"


def test_a_number_stays_with_its_percent():
    assert _unbroken("(95 %; 89 to 98), p 0.03, up to 5 blocks") == "(95\xa0%; 89 to 98), p\xa00.03, up to 5 blocks"


def test_the_title_names_models_and_not_their_searches(results):
    (row, *_) = tables.success_rows(read_findings(results).cells)
    rows = [dataclasses.replace(row, method=method) for method in TITLED]
    assert _title(["two-room"], rows) == "SALT, LeWM and Random on Two-Room"
    searches = [row for row in rows if row.method not in ("salt", "lewm")]
    assert _title(["two-room"], searches) == "SALT, LeWM and Random on Two-Room"
    mine = dataclasses.replace(row, method="residual-d-32-own-730239", label="residual with shooting, d 32 (mine)")
    assert _title(["two-room"], [*rows, mine]) == "SALT, LeWM, residual and Random on Two-Room"


def test_a_title_calls_dino_wm_by_its_name(results):
    row = tables.success_rows(read_cells(results))[0]
    rows = [dataclasses.replace(row, method="dino-wm-history3", label="DINO-WM, 3 frames")]
    assert _title(["two-room"], rows) == "DINO-WM on Two-Room"


TITLED = ("salt", "salt-map-look1", "salt-memory-yes-gauss-newton-history2", "lewm", "lewm-history3", "random")


def test_failed_episodes_are_one_link_away(written):
    assert 'href="anatomy/index.html"' in written.read_text()
    assert (written.parent / "anatomy" / "index.html").exists()


def test_lewm_with_three_frames_stands_for_lewm_where_it_was_evaluated_so(tmp_path):
    few = {"protocols": (CLEAN_PROTOCOL,), "n": 20, "pictures": 0}
    make_results(tmp_path / "r", ("two-room",), ("salt", "lewm-history3", "random"), **few)
    shutil.rmtree(tmp_path / "r" / "diagnostics")
    results = make_results(tmp_path / "r", ("cube",), ("salt", "lewm", "random"), **few, prefix="other")
    failures = bands(read_findings(results), ["two-room", "cube"])[-1]
    assert [column.drawing.alt.count("SALT, LeWM, 3 frames") for column in failures.columns] == [1, 0]
    assert "SALT, LeWM." in failures.columns[1].drawing.alt
    anatomy = words((write_page(results, tmp_path / "page").parent / "anatomy" / "index.html").read_text())
    assert "SALT against LeWM, 3 frames" in anatomy
    assert "SALT against LeWM:" in anatomy


def test_with_both_the_one_frame_control_is_not_dissected(tmp_path):
    methods = ("salt", "lewm", "lewm-history3")
    results = make_results(tmp_path / "r", ("cube",), methods, (CLEAN_PROTOCOL,), n=20, pictures=0)
    anatomy = words((write_page(results, tmp_path / "page").parent / "anatomy" / "index.html").read_text())
    assert "SALT against LeWM, 3 frames" in anatomy
    assert "SALT against LeWM:" not in anatomy
    assert "LeWM with 3 frames" in in_words(read_findings(results), "cube")[0]


def test_media_of_an_earlier_page_go_and_nothing_else_does(copy, tmp_path):
    out = tmp_path / "page"
    media = write_page(copy, out).parent / "media"
    before = {path.name for path in media.iterdir()}
    (media / "photo.png").write_text("mine")
    (media / f"{'a' * 16}.png").symlink_to(copy / "stages.json")
    for folder in copy.glob("diagnostics/*"):
        shutil.rmtree(folder)
    text = write_page(copy, out).read_text()
    after = {path.name for path in media.iterdir()}
    assert before - after
    assert after - {"photo.png", f"{'a' * 16}.png"} == set(re.findall(r"media/([0-9a-f]{16}\.[a-z]+)", text))
    assert {"photo.png", f"{'a' * 16}.png"} <= after
    assert (copy / "stages.json").exists()
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "media").symlink_to(media)
    write_page(copy, tmp_path / "linked")
    shutil.rmtree(copy / "tasks")
    write_page(copy, tmp_path / "linked")
    assert after <= {path.name for path in media.iterdir()}


def test_planned_episodes_are_captioned_from_their_file_names(page):
    assert picture_caption("task-007-reached") == ("task 7", "reached")
    assert picture_caption("task-007-world-ended") == ("task 7", "ended by the world")
    assert picture_caption("anything else") == ("anything else", "")
    assert 'SALT <span class="outcome' in page


def test_the_same_records_give_the_same_page(page, results):
    assert render(read_findings(results), anatomy=True) == page


def test_several_environments_stand_side_by_side(tmp_path):
    results = make_results(tmp_path / "r", protocols=(CLEAN_PROTOCOL,), methods=("salt", "random"), n=6, pictures=0)
    shutil.rmtree(results / "diagnostics")
    text = words(write_page(results, tmp_path / "page").read_text())
    assert "All environments" in text
    assert text.index("Two-Room") < text.index("Reacher")


@pytest.fixture(scope="module")
def four(tmp_path_factory):
    root = tmp_path_factory.mktemp("four")
    names = ("two-room", "reacher", "push-t", "cube")
    make_results(root, names, protocols=(PAPER_PROTOCOL,), seeds=(1, 2), n=12, pictures=1)
    shutil.rmtree(root / "diagnostics")
    return make_results(root, names, protocols=(CLEAN_PROTOCOL,), n=12, pictures=1, prefix="clean")


def test_the_overview_has_a_column_per_environment_in_every_band(four):
    found = bands(read_findings(four), ["two-room", "reacher", "push-t", "cube"])
    assert [band.title.split()[0] for band in found] == ["Planned", "Rollout", "Propagation", "Failures"]
    for band in found:
        assert [column.name for column in band.columns] == ["Two-Room", "Reacher", "PushT", "OGBench-Cube"]
        assert all(column.drawing or column.picture for column in band.columns)


def test_the_overview_explains_its_scales_and_says_what_was_not_measured(four, tmp_path):
    copy = shutil.copytree(four, tmp_path / "results")
    shutil.rmtree(copy / "diagnostics" / "cube-salt")
    shutil.rmtree(copy / "diagnostics" / "cube-lewm")
    text = words(render(read_findings(copy)))
    assert "one logarithmic scale for all" in text
    assert "OGBench-Cube: not measured" in text
    assert "Two-Room: not measured" not in text


def test_the_verdict_sentences_follow_the_comparisons(four, tmp_path):
    findings = read_findings(four)
    comparisons = [c for c in findings.comparisons if (c.method_a, c.method_b) == ("salt", "lewm")]
    verdicts_of = ("better", "worse", "no difference shown")
    for wanted in (verdicts_of, ("no difference shown",), ("worse",)):
        changed = tuple(dataclasses.replace(c, verdict=wanted[i % len(wanted)]) for i, c in enumerate(comparisons))
        text = " ".join(verdicts(dataclasses.replace(findings, comparisons=changed)))
        assert ("SALT is better than LeWM in" in text) == ("better" in wanted)
        assert ("SALT is worse than LeWM in" in text) == ("worse" in wanted)
        assert ("No difference between SALT and LeWM is shown in" in text) == ("no difference shown" in wanted)
    (none,) = verdicts(dataclasses.replace(findings, comparisons=()))
    assert (
        none == "SALT and LeWM did not meet on the same tasks with plain CEM, so neither is judged against the other."
    )


def test_only_rates_over_the_same_seeds_stand_beside_each_other_in_words(four):
    findings = read_findings(four)
    paper = [cell for cell in findings.cells if cell.evaluation.protocol == "paper"]
    fewer = tuple(cell for cell in paper if (cell.evaluation.method, cell.evaluation.seed) != ("lewm", 2))
    both, salt = (in_words(dataclasses.replace(findings, cells=cells), "cube")[0] for cells in (tuple(paper), fewer))
    assert "LeWM" in both
    assert "Random" in salt
    assert "LeWM" not in salt
    lewm = tuple(cell for cell in fewer if cell.evaluation.method != "salt" or cell.evaluation.seed == 1)
    assert in_words(dataclasses.replace(findings, cells=lewm), "cube")[0].startswith("SALT")


def test_words_are_of_the_protocol_s_own_horizon_or_name_it(four):
    findings = read_findings(four)
    cells = [cell for cell in findings.cells if cell.evaluation.protocol == "clean"]
    nearer = [
        dataclasses.replace(cell, name=f"{cell.name}-h3", evaluation=dataclasses.replace(
            cell.evaluation, horizon_blocks=3, success=wilson(0, 12)))
        for cell in cells
    ]  # fmt: skip

    def first(cells):
        return in_words(dataclasses.replace(findings, cells=tuple(cells)), "cube")[0]

    assert first([*nearer, *cells]) == first(cells)
    assert "under clean, H=3 (" in first(nearer)


def test_probes_training_and_claims_stand_with_one_environment_too(page):
    text = words(page)
    assert 'id="overview"' not in page
    for expected in ("agent_position", "0.98", "cost order", "42 min", "The paper's claims", "How long it took"):
        assert expected.replace("'", "&#39;") in text or expected in text


def test_decoded_predictions_are_shown_in_the_page_with_their_errors_and_what_they_are_for(copy, page):
    assert "Decoded open-loop predictions" not in page
    make_decoding(copy, "two-room-salt", "two-room", "salt")
    media = Media()
    shown = render(read_findings(copy), media)
    text = words(shown)
    assert "is for looking only: nothing is trained or planned with it" in text
    assert "0.0007 of decoded true frames, 0.0009 of decoded predictions at t = 15 and 0.0063 at t = 45" in text
    assert "0.005 of the mean picture" in text
    assert "nothing can be read from its pictures" not in text
    (image,) = re.findall(r'<figure class="wide">\s*<img [^>]*>', shown)
    assert media.files[re.search(r'src="([^"]+)"', image)[1]].startswith(b"\x89PNG")
    assert re.search(r'alt="[^"]{10,}"', image)


def test_a_decoder_that_learnt_nothing_is_named_as_such(copy):
    make_decoding(copy, "two-room-salt", "two-room", "salt", learnt=False)
    assert "no better than that: nothing can be read from its pictures" in words(render(read_findings(copy)))


def test_a_run_that_was_only_decoded_has_its_place_and_its_name_is_escaped(tmp_path):
    make_decoding(tmp_path, "<b>run", "two-room", "<i>mine")
    findings = read_findings(tmp_path)
    shown = render(findings)
    assert "Decoded open-loop predictions" in shown
    assert "<b>run" not in shown
    assert "<i>mine" not in shown
    assert findings.unfinished == ()


def test_a_decoded_picture_that_is_not_the_record_s_is_left_out_and_named(copy):
    folder = make_decoding(copy, "two-room-salt", "two-room", "salt")
    (folder / "decoded.png").write_bytes((folder / "decoded.png").read_bytes() + b"x")
    findings = read_findings(copy)
    assert any("two-room-salt" in note and "decode the run again to make both" in note for note in findings.unfinished)
    assert "Decoded open-loop predictions" not in render(findings)
    (folder / "decoded.png").unlink()
    assert any("decode the run again to make both" in note for note in read_findings(copy).unfinished)


def test_a_decoded_picture_that_is_none_is_damage(copy):
    folder = make_decoding(copy, "two-room-salt", "two-room", "salt")
    (folder / "decoded.png").write_text("<script>")
    record = durable.read_json(folder / "decoded.json") | {"picture_sha256": durable.sha256(folder / "decoded.png")}
    durable.write_json(folder / "decoded.json", record)
    with pytest.raises(DamagedError, match=r"decoded\.png: not a PNG picture; decode again"):
        read_findings(copy)


def test_results_from_before_the_probes_still_make_a_page(copy):
    for name in ("probes.json", "training.json"):
        for path in copy.glob(f"diagnostics/*/{name}"):
            path.unlink()
    (copy / "stages.json").unlink()
    text = words(render(read_findings(copy)))
    assert "Error propagation" in text
    assert "What the latents know" not in text


def test_a_user_s_own_method_is_a_row_like_any_other(tmp_path):
    results = make_results(
        tmp_path / "r",
        environments=("maze",),
        protocols=(CLEAN_PROTOCOL,),
        methods=("_mine", "random"),
        n=6,
        pictures=0,
    )
    assert "_mine against Random" in words(write_page(results, tmp_path / "page").read_text())


# --- what is missing is said ---------------------------------------------------------------------------------------


def test_an_empty_or_missing_folder_names_the_command_that_fills_it(tmp_path):
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(UsageError, match="no results to report"):
            write_page(folder, tmp_path / "page")
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


def test_comparisons_and_anatomies_follow_the_episodes_that_are_there_now(copy):
    cell = next(c for c in read_cells(copy) if c.evaluation.method == "salt")
    folder = copy / "evaluations" / cell.name
    episodes = tuple(dataclasses.replace(e, success=False, steps_to_success=None) for e in cell.episodes)
    durable.write_text(folder / "episodes.jsonl", "".join(json.dumps(to_plain(e)) + "\n" for e in episodes))
    write_config(folder / "evaluation.json", dataclasses.replace(cell.evaluation, success=Rate(0, 20, 0.0, 0.17)))
    findings = read_findings(copy)
    (now,) = (c for c in findings.cells if c.name == cell.name)
    assert len(findings.anatomy_of([now]).failures) == 20
    assert {c.both + c.only_a for c in findings.comparisons if c.method_a == "salt"} == {0}


def test_a_run_without_a_diagnosis_keeps_its_curves_and_is_named(copy):
    run = copy / "diagnostics" / "two-room-salt"
    (run / "diagnosis.json").unlink()
    findings = read_findings(copy)
    assert "Run two-room-salt has training curves but no diagnosis" in " ".join(findings.unfinished)
    assert [(r.environment, r.method) for r in findings.runs if r.name == run.name] == [("two-room", "salt")]


def test_diagnostics_alone_make_a_page(copy):
    shutil.rmtree(copy / "evaluations")
    text = words(render(read_findings(copy)))
    assert "Nothing was evaluated yet" in text
    assert "Error propagation" in text


def test_evaluations_alone_make_a_page(copy):
    shutil.rmtree(copy / "diagnostics")
    shutil.rmtree(copy / "tasks")
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
    [damage_metrics, damage_picture, damage_tasks, damage_count, damage_episodes],
)
def test_damaged_records_stop_the_report_with_the_file_s_name(copy, damage):
    damage(copy)
    with pytest.raises(DamagedError, match=str(copy)):
        read_findings(copy)


def test_the_page_says_which_records_its_tables_came_from(page, results):
    assert f"the records in {results} by saltwm report" in words(page)


def test_success_by_kind_of_task_is_shown_where_the_environment_tells_kinds_apart(tmp_path):
    few = {"protocols": (CLEAN_PROTOCOL,), "methods": ("salt", "random"), "n": 20, "pictures": 0}
    page = render(read_findings(make_results(tmp_path, ("two-room", "reacher"), **few)))
    assert page.count("<h4>What the tasks ask for") == 1  # a reach is a reach
    assert "through the door" in page


def test_kinds_come_from_the_evaluations_own_task_set(tmp_path):
    folder = make_results(tmp_path, ("two-room",), methods=("salt",), protocols=(PAPER_PROTOCOL,), n=20)
    (tasks,) = map(read_tasks, folder.glob("tasks/*.json"))
    through = sum((task.state[0] < 112) != (task.goal[0] < 112) for task in tasks.tasks)
    counted = {kind.kind: kind.reached.n for kind in anatomy_of(folder).tasks}
    assert counted == {"through the door": through, "within a room": 20 - through}

    (path,) = folder.glob("tasks/*.json")
    path.unlink()
    write_tasks(path, dataclasses.replace(tasks, seed=7))  # another set in its place
    assert anatomy_of(folder).tasks == ()


def anatomy_of(results):
    findings = read_findings(results)
    return findings.anatomy_of(findings.cells)


def test_a_report_of_a_users_own_world_has_no_list_of_the_papers_tables(page, tmp_path):
    assert 'id="elements"' in page
    own = make_results(tmp_path / "own", environments=("puck",), protocols=(CLEAN_PROTOCOL,), n=6)
    text = write_page(own, tmp_path / "report").read_text()
    assert 'id="provenance"' in text
    assert "elements" not in text


def test_a_heading_keeps_a_name_with_a_hyphen_in_one_line_and_escapes_it(page):
    assert re.search('<h1>.* on <span class="whole">Two-Room</span></h1>', page)
    assert ".whole { display: inline-block; }" in page
    assert _whole_words("<b> a-<b>") == '&lt;b&gt; <span class="whole">a-&lt;b&gt;</span>'


# --- studies ---------------------------------------------------------------------------------------------------------


def test_a_study_has_its_table_its_figure_and_its_sentences_on_the_page(tmp_path):
    methods = ("salt", "lewm", "lewm-pldm", "lewm-smwm")
    few = {"protocols": (CLEAN_PROTOCOL,), "n": 20, "pictures": 0}
    results = make_results(tmp_path / "results", ("two-room", "reacher"), (*methods, "lewm-pldm-history3"), **few)
    page = write_page(results, tmp_path / "page").read_text()
    assert "needs weights" in words(page)
    assert page.count("paired tests show") == 1  # once, and not below the table of each environment
    assert re.search(r"SALT less PLDM .* Holm", words(page))
    assert '<a href="#studies">Studies</a>' in page
    assert re.search(r'<img [^>]*alt="Other objectives on one backbone[^"]*"', page)


def test_the_list_of_the_papers_tables_points_to_costs_that_are_there_and_to_none_otherwise(copy, page):
    titles = ("Efficiency (Table 2)", "Parameters of the transition (Table 5)")
    assert not any(title in words(page) for title in titles)
    listed = {row.split("</th>")[0]: row for row in page.split('<th scope="row">')}
    assert all(NOT_RUN in listed[name] for name in ("Table 2", "Table 5"))
    costs = tuple(PredictorCost(model, 7_000_000, 1.0, 2.0, 1.0, 3.0, ()) for model in ("salt", "lewm"))
    write_config(copy / "efficiency.json", Efficiency("By hand.", costs))
    measured = render(read_findings(copy))
    listed = {row.split("</th>")[0]: row for row in measured.split('<th scope="row">')}
    assert not any(NOT_RUN in listed[name] for name in ("Table 2", "Table 5"))
    studies = words(measured.split('<h2 id="studies">')[1].split("</section>")[0])
    assert all(title in studies for title in titles)
    assert '<a href="#studies">' in measured

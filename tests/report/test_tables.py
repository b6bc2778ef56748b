"""The same success rows reach the terminal, --json and the page; no mean hides a hole."""

import dataclasses
import io
import json
import re
import shutil
from pathlib import Path

import pytest
from fake_results import make_results
from rich.console import Console

import saltwm.report
from saltwm.disk import durable
from saltwm.disk.records import PlannedCell, read_cells
from saltwm.evaluation.contests import comparisons
from saltwm.evaluation.protocols import CLEAN_PROTOCOL
from saltwm.ground.strict_json import to_plain
from saltwm.report.sections import rate_columns
from saltwm.report.table import Table, listed, plain, terminal
from saltwm.report.tables import (
    json_means,
    known_model,
    method_order,
    method_title,
    p_value,
    pooled_rows,
    success_rows,
    success_table,
)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    root = tmp_path_factory.mktemp("seeds")
    return make_results(
        root,
        environments=("two-room",),
        protocols=(CLEAN_PROTOCOL,),
        methods=("random", "salt"),
        seeds=(1, 2),
        n=10,
        pictures=0,
    )


def printed(table) -> str:
    buffer = io.StringIO()
    Console(file=buffer, width=80).print(table)
    return buffer.getvalue()


def test_the_terminal_table_has_counts_interval_and_verdict(results):
    text = printed(success_table(read_cells(results), comparisons(read_cells(results))))
    row = success_rows(read_cells(results))[0]
    assert row.label == "SALT"
    for expected in (f"{row.successes}/{row.n}", f"{row.percent:.1f}", f"{row.low:.1f} to {row.high:.1f}"):
        assert expected in text
    assert re.search(r"SALT against Random: better, \+\d+\.\d points \(\+\d+\.\d to \+\d+\.\d\), p ", text)


def test_the_terminal_table_fits_eighty_columns(results):
    text = printed(success_table(read_cells(results), comparisons(read_cells(results))))
    assert "Two-Room, clean, H=5" in text
    assert "95 % interval" in text
    assert "…" not in text
    assert max(len(line) for line in text.splitlines()) <= 80


def test_rows_for_machines_are_strict_json(results):
    rows = to_plain(success_rows(read_cells(results)))
    assert json.loads(json.dumps(rows, allow_nan=False)) == rows
    assert {row["method"] for row in rows} == {"salt", "random"}


def test_a_name_with_markup_or_control_characters_is_printed_as_a_name(tmp_path):
    results = make_results(
        tmp_path, environments=("[red]x\x1b[2J",), protocols=(CLEAN_PROTOCOL,), methods=("random",), n=4, pictures=0
    )
    text = printed(success_table(read_cells(results)))
    assert "[red]x□[2J" in text
    assert "\x1b" not in text


def test_means_over_seeds_are_printed_when_every_seed_is_there(results):
    means = pooled_rows(read_cells(results))
    assert [(m.label, m.seeds, m.missing) for m in means] == [("SALT", (1, 2), ()), ("Random", (1, 2), ())]
    rates = [row.percent for row in success_rows(read_cells(results)) if row.method == "salt"]
    assert means[0].mean == pytest.approx(sum(rates) / 2)
    assert [m["mean"] for m in json_means(read_cells(results))] == [m.mean for m in means]


def test_one_seed_alone_has_no_mean_over_seeds(results):
    first = [cell for cell in read_cells(results) if cell.evaluation.seed == 1]
    assert [(row.seeds, row.mean) for row in pooled_rows(first)] == [((1,), None)] * 2
    assert json_means(first) == []
    assert "over seeds" not in printed(success_table(first))


def test_a_planned_seed_that_is_not_there_leaves_neither_rate_nor_mean(results):
    cells = [c for c in read_cells(results) if (c.evaluation.method, c.evaluation.seed) != ("salt", 2)]
    salt, random = pooled_rows(cells, [PlannedCell("two-room", "clean", 5, "salt", seed) for seed in (1, 2)])
    assert (salt.missing, salt.rate, salt.mean, salt.std) == ((2,), None, None, None)
    assert random.mean is not None


def test_a_seed_that_only_another_method_was_to_have_leaves_the_rate_and_names_its_seeds(results):
    cells = [c for c in read_cells(results) if (c.evaluation.method, c.evaluation.seed) != ("random", 2)]
    salt, random = pooled_rows(cells, [PlannedCell("two-room", "clean", 5, "salt", seed) for seed in (1, 2)])
    assert (salt.missing, salt.elsewhere, salt.mean is None) == ((), (), False)
    assert (random.missing, random.elsewhere, random.rate.n, random.mean) == ((), (2,), 10, None)
    percent, counts, _ = map(plain, rate_columns(random))
    assert (percent, counts) == (f"{random.percent:.1f}", f"{random.rate.successes}/10, seed 1 of 1, 2")
    text = printed(success_table(cells))
    assert "Random: no mean to set beside the others', because it has seed 1 of 1, 2" in text
    assert text.count("±") == 1  # SALT's


def test_seeds_of_fewer_are_named_in_short(results):
    more = [PlannedCell("two-room", "clean", 5, "salt", seed) for seed in (3, 4)]
    _, random = pooled_rows(read_cells(results), more)
    assert random.fewer_seeds == "seeds 1, 2 of 1-4"
    _, random = pooled_rows(read_cells(results), more[1:])
    assert random.fewer_seeds == "seeds 1, 2 of 1, 2, 4"


def test_a_seed_that_a_suite_still_owes_leaves_no_mean_and_says_so(results):
    owed = PlannedCell("two-room", "clean", 5, "salt", 3)
    salt, random = pooled_rows(read_cells(results), [owed])
    assert (salt.missing, salt.rate, salt.mean, salt.std) == ((3,), None, None, None)
    assert (random.missing, random.elsewhere, random.mean, random.std) == ((), (3,), None, None)
    text = printed(success_table(read_cells(results), planned=[owed]))
    assert "SALT: no mean, because seed 3 is missing" in text
    assert "±" not in text
    elsewhere = PlannedCell("two-room", "paper", 5, "salt", 3)
    assert all(mean.mean is not None for mean in pooled_rows(read_cells(results), [elsewhere]))


def test_two_runs_of_one_method_are_told_apart_by_their_runs(results, tmp_path):
    copy = shutil.copytree(results, tmp_path / "results")
    source = next(
        p for p in copy.glob("evaluations/*") if json.loads((p / "evaluation.json").read_text())["method"] == "salt"
    )
    other = shutil.copytree(source, copy / "evaluations" / "again")
    evaluation = durable.read_json(other / "evaluation.json")
    durable.write_json(other / "evaluation.json", evaluation | {"checkpoint": "runs/second"})
    labels = {row.label for row in success_rows(read_cells(copy)) if row.method == "salt"}
    assert labels == {"SALT (two-room-salt)", "SALT (second)"}


def test_two_runs_in_one_environment_rename_nothing_in_another(tmp_path):
    environments = ("two-room", "reacher")
    results = make_results(
        tmp_path / "r", environments=environments, protocols=(CLEAN_PROTOCOL,), methods=("salt",), n=4, pictures=0
    )
    cells = {cell.evaluation.environment: cell for cell in read_cells(results)}
    second = dataclasses.replace(cells["two-room"].evaluation, checkpoint="runs/second")
    again = dataclasses.replace(cells["two-room"], name="again", evaluation=second)
    labels = {row.environment: row.label for row in success_rows([*cells.values(), again])}
    assert labels["reacher"] == "SALT"
    assert labels["two-room"] in {"SALT (two-room-salt)", "SALT (second)"}


def test_two_sets_of_weights_of_one_checkpoint_are_never_pooled(results, tmp_path):
    copy = shutil.copytree(results, tmp_path / "results")
    for path in copy.glob("evaluations/*/evaluation.json"):
        evaluation = durable.read_json(path)
        if (evaluation["method"], evaluation["seed"]) == ("salt", 2):
            durable.write_json(path, evaluation | {"checkpoint_sha256": "cd" * 32})  # shipped again between the seeds
    rows = [row for row in pooled_rows(read_cells(copy)) if row.method == "salt"]
    assert [(row.label, row.seeds, row.elsewhere) for row in rows] == [
        ("SALT (two-room-salt, weights abababab)", (1,), (2,)),
        ("SALT (two-room-salt, weights cdcdcdcd)", (2,), (1,)),
    ]


def test_a_run_evaluated_under_two_spellings_of_its_path_is_one_method(results, tmp_path):
    copy = shutil.copytree(results, tmp_path / "results")
    for path in copy.glob("evaluations/*/evaluation.json"):
        evaluation = durable.read_json(path)
        if (evaluation["method"], evaluation["seed"]) == ("salt", 2):
            durable.write_json(path, evaluation | {"checkpoint": f"/somewhere/{evaluation['checkpoint']}"})
    assert [(row.method, row.seeds) for row in pooled_rows(read_cells(copy))] == [("salt", (1, 2)), ("random", (1, 2))]


@pytest.mark.parametrize(("p", "text"), [(1.0, "1.000"), (0.04, "0.040"), (2.3e-13, "2e-13"), (4e-4, "4e-4")])
def test_p_values_are_printed_as_people_do(p, text):
    assert p_value(p) == text


def test_one_method_at_several_horizons_keeps_one_name(results, tmp_path):
    shutil.copytree(results, tmp_path / "more")
    for cell in list((tmp_path / "more" / "evaluations").iterdir()):
        twin = cell.with_name(f"{cell.name}-h10")
        shutil.copytree(cell, twin)
        record = durable.read_json(twin / "evaluation.json")
        durable.write_json(twin / "evaluation.json", record | {"horizon_blocks": 10})
    rows = success_rows(read_cells(tmp_path / "more"))
    assert {row.horizon_blocks for row in rows} == {5, 10}
    assert {row.label for row in rows} == {"SALT", "Random"}


def test_a_method_that_looks_back_says_so():
    names = {
        name: method_title(name)
        for name in (
            "lewm-history3",
            "salt-gauss-newton",
            "lewm",
            "mine-history3",
            "lewm-historyx",
            "salt-icem-look1",
            "salt-look2",
            "dino-wm-history3",
            "dino-wm-icem",
            "dino",
        )
    }
    assert names == {
        "lewm-history3": "LeWM, 3 frames",
        "salt-gauss-newton": "SALT with Gauss-Newton",
        "lewm": "LeWM",
        "mine-history3": "mine-history3",
        "lewm-historyx": "lewm-historyx",
        "salt-icem-look1": "SALT with iCEM, a look after each block",
        "salt-look2": "SALT, a look after 2 blocks",
        "dino-wm-history3": "DINO-WM, 3 frames",
        "dino-wm-icem": "DINO-WM with iCEM",
        "dino": "dino",
    }


def test_a_method_belongs_to_the_model_that_its_name_begins_with():
    names = ("salt-R-0", "lewm-history3", "dino-wm-history3", "random", "saltine", "random-walk", "mine-look1")
    assert [known_model(name) for name in names] == [
        "salt", "lewm", "dino-wm", "random", "saltine", "random", "mine-look1"
    ]  # fmt: skip
    assert max(names, key=method_order) == "random"


def test_every_table_of_a_page_is_drawn_from_its_record():
    report = Path(saltwm.report.__file__).parent
    drawn = [path.name for path in sorted(report.glob("*.html")) if "<table" in path.read_text()]
    assert drawn == ["macros.html"]


def test_a_method_whose_name_is_folded_stays_set_in(capsys):
    shown = Table("", ("method", "reached"), (("a name of many words that are folded", "49/50"),))
    Console(width=30).print(terminal(shown))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 2
    assert all(line.startswith("  ") for line in lines)


def test_names_are_listed_as_people_do():
    names = ["A", "B", "C"]
    assert [listed(names[:n]) for n in range(4)] == ["", "A", "A and B", "A, B and C"]

"""The verbs that act, as their users type them: suite, play and anatomy, one after another on one results folder."""

import json

import pytest

from saltwm.cli import main


@pytest.fixture(scope="module")
def results(dataset, run, tmp_path_factory):
    """Three SALT episodes with two planners, and the random policy's."""
    out = tmp_path_factory.mktemp("acting")
    common = ["--data", str(dataset.path), "--out", str(out), "--protocols", "paper", "--tasks", "3"]
    main(["suite", str(run), *common, "--planners", "cem", "gauss-newton", "--workers", "1", "--pictures", "0"])
    return out


def test_a_suite_prints_rows_and_means_for_machines(results, dataset, run, capsys):
    common = ["--data", str(dataset.path), "--out", str(results), "--protocols", "paper", "--tasks", "3"]
    main(["suite", str(run), *common, "--planners", "cem", "gauss-newton", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert [row["method"] for row in found["rows"]] == ["salt", "salt-gauss-newton", "random"]
    assert found["means"] == []  # one seed


def test_a_play_leaves_a_moving_picture_and_a_strip(dataset, run, tmp_path, capsys):
    words = ["--data", str(dataset.path), "--protocol", "paper", "--tasks", "3", "--task", "2", "--out", str(tmp_path)]
    main(["play", str(run), *words, "--planner", "gauss-newton", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["outcome"] in ("reached", "budget")
    assert "step 0" in found["promised_costs"]
    names = {path.name for path in tmp_path.iterdir()} - {"tasks"}
    assert names == {f"task-002-{found['outcome']}.gif", f"task-002-{found['outcome']}.png"}
    with pytest.raises(SystemExit) as stopped:
        main(["play", "random", *words, "--task", "7"])
    assert stopped.value.code == 2
    assert "no task 7; it has tasks 0 to 2" in capsys.readouterr().err


def test_an_anatomy_films_the_failures_and_writes_their_pages(results, tmp_path, capsys):
    main(["anatomy", str(results), "salt-gauss-newton", "random", "--out", str(tmp_path), "--json"])
    (pair,) = json.loads(capsys.readouterr().out)
    failures = len(pair["a"]["failures"]) + len(pair["b"]["failures"])
    pages = sorted(path.name for path in tmp_path.glob("failure-*.html"))
    assert len(pages) == failures
    assert all("data:image/gif" in (tmp_path / page).read_text() for page in pages)
    main(["anatomy", str(results), "salt", "random", "--out", str(tmp_path)])
    assert "SALT against Random" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["--workers", "0"], ["--tasks", "0"], ["--horizon", "-1"], ["--hold", "0"]])
def test_impossible_numbers_are_refused_at_once(dataset, tmp_path, capsys, words):
    with pytest.raises(SystemExit) as stopped:
        main(["evaluate", "random", "--data", str(dataset.path), "--out", str(tmp_path), "--protocol", "paper", *words])
    assert stopped.value.code == 2
    assert "at least 1" in capsys.readouterr().err

"""The verbs that act, as their users type them: suite, play and anatomy, one after another on one results folder."""

import json
import re
from pathlib import Path

import pytest

from saltwm.cli import main
from saltwm.ground.errors import UsageError
from saltwm.jobs.evaluate import Evaluate, with_best_search
from saltwm.planning.looks import require_looks

ROOT = Path(__file__).parents[2]


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
    assert [row["method"].partition("-")[0] for row in found["rows"]] == ["salt", "salt", "random"]
    assert found["means"] == []  # one seed


def test_a_play_leaves_a_moving_picture_and_a_strip(dataset, run, tmp_path, capsys):
    words = ["--data", str(dataset.path), "--protocol", "paper", "--tasks", "3", "--task", "2", "--out", str(tmp_path)]
    main(["play", str(run), *words, "--planner", "gauss-newton", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["outcome"] in ("reached", "budget")
    assert isinstance(found["promised_costs"]["step 0"], float)
    stem = f"two-room-salt-gauss-newton-paper-seed1-task-002-{found['outcome']}"
    assert {path.name for path in tmp_path.iterdir()} == {f"{stem}.gif", f"{stem}.png"}
    with pytest.raises(SystemExit) as stopped:
        main(["play", "random", *words, "--task", "7"])
    assert stopped.value.code == 2
    assert capsys.readouterr().err == "saltwm: no task 7; there are tasks 0 to 2\n"


def test_the_best_search_for_plans_of_one_block_has_no_look_within_them():
    shipped = str(ROOT / "checkpoints" / "two-room-salt")
    assert with_best_search(Evaluate(shipped)).look_every == 1
    assert with_best_search(Evaluate(shipped, horizon=1)).look_every is None
    with pytest.raises(UsageError, match="`look_every`: a plan of one block has no look within it; leave it out"):
        require_looks(1, 1)


def test_a_play_needs_no_more_tasks_than_the_one_that_it_shows(dataset, tmp_path, capsys):
    """60 episodes hold out 6, far fewer than the 100 tasks of an evaluation; the task is the same."""
    words = ["--data", str(dataset.path), "--protocol", "clean", "--out", str(tmp_path), "--json"]
    found = []
    for more in ([], ["--tasks", "4"]):
        main(["play", "random", *words, "--task", "1", *more])
        found.append(json.loads(capsys.readouterr().out))
    assert found[0] == found[1]
    with pytest.raises(SystemExit) as stopped:
        main(["play", "random", *words, "--task", "90"])
    assert stopped.value.code == 2
    assert re.fullmatch("saltwm: no task 90; there are tasks 0 to [0-5]\n", capsys.readouterr().err)
    with pytest.raises(SystemExit):
        main(["play", "random", *words, "--tasks", "91"])
    assert "of 91 tasks fit in 6 episodes" in capsys.readouterr().err


def test_an_evaluation_without_a_number_takes_the_tasks_that_there_are_and_says_so_once(dataset, tmp_path, capsys):
    """What `train` prints next must run: 60 episodes hold out 6, and `clean` has 100 tasks where there are as many."""
    words = ["--data", str(dataset.path), "--out", str(tmp_path), "--workers", "1", "--pictures", "0", "--json"]
    main(["evaluate", "random", *words])
    found = capsys.readouterr()
    count = json.loads(found.out)["success"]["n"]
    assert 0 < count <= 6
    assert f"{count} tasks, not 100: there are no more held-out episodes with one" in found.err
    main(["evaluate", "random", *words, "--method", "again"])
    assert "not 100" not in capsys.readouterr().err


def test_a_play_says_how_far_it_got_and_with_which_search(run, dataset, tmp_path, capsys):
    main(["play", str(run), "--data", str(dataset.path), "--planner", "gauss-newton", "--out", str(tmp_path)])
    told = " ".join(capsys.readouterr().out.split())
    assert " of 50 steps planned with gauss-newton distance " in told
    assert " success radii at the start, " in told
    assert "(1 is 16 units)" in told


def test_a_shipped_model_without_data_is_told_which_are_shipped_for_it(capsys):
    for words, said in (
        (["play", "two-room-salt"], "; --data two-room-data is shipped for two-room-salt\n"),
        (["play", "runs/mine"], "give one of the two\n"),
        (["suite", "two-room-salt", "cube-lewm", "cube-salt"], "these models is --data two-room-data cube-data\n"),
        (["suite", "two-room-salt", "runs/mine"], "give one of the two\n"),
        (["suite"], "give one of the two\n"),
        (["play", "two-room-slat", "--data", "two-room-data"], "; did you mean two-room-salt, which is shipped?\n"),
        (["play", "two-room-salt", "--data", "two-room-dta"], "; did you mean two-room-data, which is shipped?\n"),
        (["play", "runs/mine", "--data", "two-room-data"], "make one with: saltwm train DATASET --out runs/mine\n"),
        (["watch", "two-room-salt"], f"see it with: saltwm info {ROOT}/checkpoints/two-room-salt\n"),
        (["film"], "film: name a results directory, or folders of evaluations in one\n"),
        (["again"], "again: name a folder that a job filled: a dataset, a run, an evaluation, a diagnosis\n"),
    ):
        with pytest.raises(SystemExit) as stopped:
            main(words)
        assert stopped.value.code == 2
        assert capsys.readouterr().err.endswith(said)


def test_plays_of_other_methods_and_other_task_sets_lie_side_by_side(dataset, tmp_path):
    words = ["play", "random", "--data", str(dataset.path), "--protocol", "paper", "--out", str(tmp_path)]
    for options in (["--tasks", "3"], ["--tasks", "4"], ["--tasks", "3", "--method", "other"], ["--horizon", "2"]):
        main([*words, *options])
    names = {path.stem.partition("-task-")[0] for path in tmp_path.glob("*.gif")}
    assert names == {f"two-room-{end}" for end in ("random-paper-seed1", "other-paper-seed1", "random-paper-seed1-h2")}


def test_an_evaluation_tells_of_its_own_contest_and_its_own_tests(dataset, tmp_path, capsys):
    words = ["evaluate", "random", "--data", str(dataset.path), "--out", str(tmp_path), "--tasks", "3"]
    words += ["--workers", "1", "--pictures", "0"]
    main([*words, "--protocol", "clean"])
    for method in ("first", "second", "third"):
        capsys.readouterr()
        main([*words, "--protocol", "paper", "--method", method])
    told = capsys.readouterr().out
    assert "clean" not in told
    assert all(method in told for method in ("first", "second", "third"))
    sentences = [line for line in told.splitlines() if " against " in line]
    assert len(sentences) == 2
    assert all("third" in sentence for sentence in sentences)


def test_an_anatomy_films_the_failures_and_writes_their_pages(results, tmp_path, capsys):
    main(["anatomy", str(results), "salt-gauss-newton", "random", "--out", str(tmp_path), "--json"])
    (pair,) = json.loads(capsys.readouterr().out)
    failures = len(pair["a"]["failures"]) + len(pair["b"]["failures"])
    pages = sorted(path.name for path in tmp_path.glob("failure-*.html"))
    assert len(pages) == failures
    assert all("data:image/gif" in (tmp_path / page).read_text() for page in pages)
    main(["anatomy", str(results), "salt", "random", "--out", str(tmp_path)])
    assert "against Random" in capsys.readouterr().out


def test_decode_draws_predictions_and_the_report_shows_them(dataset, run, tmp_path, capsys):
    words = ["decode", str(run), "--data", str(dataset.path), "--out", str(tmp_path), "--steps", "2", "--frames", "64"]
    main([*words, "--json"])
    record = json.loads(capsys.readouterr().out)
    assert (record["decoder"], record["steps"], record["frames"], len(record["predicted_mse"])) == ("small", 2, 64, 7)
    folder = tmp_path / "diagnostics" / run.name
    assert {path.name for path in folder.iterdir()} == {"decode.json", "decoded.png", "decoded.json"}
    with pytest.raises(SystemExit):
        main([*words, "--episodes", "1"])
    assert "belongs to another job (episodes: expected 1, found 3)" in capsys.readouterr().err
    main(words)
    printed = capsys.readouterr().out
    assert "of decoded predictions, t = 15 and 45" in printed
    assert f"next: saltwm report {tmp_path}" in printed.replace("\n", " ").replace("  ", " ")
    main(["report", str(tmp_path), "--out", str(tmp_path / "page")])
    assert "Decoded open-loop predictions" in (tmp_path / "page" / "index.html").read_text()


def test_decode_refuses_a_model_of_another_world(run, tmp_path, capsys):
    data = str(tmp_path / "data")
    main(["collect", "two-room", "--episodes", "2", "--image-size", "24", "--frame-every", "5", "--out", data])
    with pytest.raises(SystemExit) as stopped:
        main(["decode", str(run), "--data", data, "--out", str(tmp_path / "results")])
    assert stopped.value.code == 3
    assert "image_size: expected 16, found 24" in capsys.readouterr().err
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize("option", ["--seeds 1", "--seeds 2 3", "--protocols paper clean", "--tasks 3"])
def test_what_chooses_tasks_is_refused_beside_task_sets_that_bring_their_own(results, run, tmp_path, capsys, option):
    sets = str(results / "tasks" / "two-room-paper-seed1.json")
    with pytest.raises(SystemExit) as stopped:
        main(["suite", str(run), "--task-sets", sets, *option.split(), "--out", str(tmp_path / "out")])
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert error == f"saltwm: {option.split()[0]} chooses tasks from --data; task sets bring their own: leave it out\n"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "words",
    [
        "evaluate random --protocol paper --workers 0",
        "evaluate random --protocol paper --tasks 0",
        "evaluate random --protocol paper --horizon -1",
        "evaluate random --protocol paper --hold 0",
        "evaluate random --protocol paper --history 0",
        "evaluate random --protocol paper --seed -1",
        "evaluate random --protocol paper --pictures -1",
        "suite --workers 0",
        "suite --seeds 1 -1",
        "suite --horizons 5 0",
        "suite --pictures -1",
        "suite --tasks 0",
        "suite --no-random",
        "suite --seeds",
        "suite --protocols",
        "play random --seed -1",
        "play random --protocol paper --tasks 0",
        "diagnose RUN --batches 0",
        "diagnose RUN --horizon 0",
        "diagnose RUN --trajectories 0",
        "diagnose RUN --frames 0",
    ],
)
def test_impossible_numbers_are_refused_at_once_with_nothing_written(dataset, run, tmp_path, capsys, words):
    with pytest.raises(SystemExit) as stopped:
        main([*words.replace("RUN", str(run)).split(), "--data", str(dataset.path), "--out", str(tmp_path / "out")])
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert "at least" in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "words",
    [
        "diagnose RUN --data DATA",
        "decode RUN --data DATA",
        "play random --data DATA",
        "anatomy RESULTS salt random",
        "report RESULTS",
        "bench load --quick",
    ],
)
def test_a_file_in_the_place_of_the_output_folder_is_one_line_before_the_work(
    results, dataset, run, tmp_path, capsys, words
):
    file = tmp_path / "file"
    file.write_text("mine")
    places = {"RUN": run, "DATA": dataset.path, "RESULTS": results}
    for out in (file, file / "below"):
        with pytest.raises(SystemExit) as stopped:
            main([*(str(places.get(word, word)) for word in words.split()), "--out", str(out)])
        assert stopped.value.code == 2
        error = capsys.readouterr().err
        assert "cannot be a folder" in error
        assert error.count("\n") == 1
    assert file.read_text() == "mine"


def test_a_document_below_a_file_is_refused_in_one_line(results, tmp_path, capsys):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(SystemExit) as stopped:
        main(["results", str(results), "--out", str(tmp_path / "file" / "docs" / "results.md")])
    assert stopped.value.code == 2
    assert "cannot be a folder" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["evaluate", "play"])
def test_a_word_that_is_nearly_random_is_asked_about(dataset, tmp_path, capsys, verb):
    with pytest.raises(SystemExit) as stopped:
        main([verb, "rondom", "--data", str(dataset.path), "--out", str(tmp_path / "out")])
    assert stopped.value.code == 2
    assert capsys.readouterr().err == "saltwm: rondom: no such run; did you mean the word random?\n"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("EMPTY salt lewm", "no evaluations; make some with: saltwm evaluate RUN --data DATA --out"),
        ("RESULTS salt salt", "salt against itself: name two methods, or two evaluations"),
        ("RESULTS salt random --pages -1", "pages must be at least 0, found -1"),
    ],
)
def test_an_anatomy_of_nothing_is_refused(results, tmp_path, capsys, words, reason):
    places = {"EMPTY": tmp_path, "RESULTS": results}
    with pytest.raises(SystemExit) as stopped:
        main(["anatomy", *(str(places.get(word, word)) for word in words.split()), "--out", str(tmp_path / "out")])
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert reason in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_info_tells_whether_a_model_has_an_action_prior(run, capsys):
    shipped = ROOT / "checkpoints" / "two-room-salt"
    found = []
    for model in (shipped, run):
        main(["info", str(model), "--json"])
        found.append(json.loads(capsys.readouterr().out)["action_prior"])
    assert found[0]["goals_up_to_blocks"] == 20
    assert 0 < found[0]["explained_share_of_held_out_actions"] < 1
    assert found[1] == "none"

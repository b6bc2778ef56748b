"""What verbs print after shipping and collecting in a world of one's own, and on a shelf with a model of one's own."""

import dataclasses
import json
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from small_datasets import make_recipe, write_dataset
from small_runs import write_run

from saltwm.cli import main, parse, telling
from saltwm.cli.telling import tell
from saltwm.disk import checkpoint
from saltwm.disk import shipped as shipped_names
from saltwm.disk.dataset import Dataset
from saltwm.envs import users
from saltwm.envs.check import Checked
from saltwm.ground.errors import DamagedError, UsageError
from saltwm.jobs.again import Again
from saltwm.jobs.collect import Collect
from saltwm.jobs.environment import EnvCheck, EnvList
from saltwm.jobs.evaluate import say_unused_history
from saltwm.jobs.reproduce import Reproduce
from saltwm.jobs.shelf import Item, held_out_data
from saltwm.jobs.shipment import how_learnt
from saltwm.jobs.shipping import Ship, Shipped, _described, _making
from saltwm.jobs.study import Study


def shipped(path, environment, held_out, lacking=None):
    shipment = SimpleNamespace(data=None, precision="half")
    return tell(Ship(path / "run", path), Shipped(shipment, path / "README.md", environment, held_out, lacking))


def test_the_next_command_in_a_world_of_ones_own_names_its_class(tmp_path, monkeypatch):
    monkeypatch.setattr(users, "word_of", lambda name: "slides:Slide")
    lacking = held_out_data("slide", 16, "fast", tmp_path / "slide-data")
    for told in (shipped(tmp_path, "slide", tmp_path / "data"), shipped(tmp_path, "slide", tmp_path / "data", lacking)):
        assert told.next_is.startswith("saltwm --env slides:Slide ")
    dataset = SimpleNamespace(
        world=SimpleNamespace(environment="slide"), lengths=np.array([3]), sha256="0" * 64, lineage=()
    )
    told = tell(Collect("slides:Slide", tmp_path, held_out=True), dataset)
    assert told.next_is.startswith("saltwm --env slides:Slide evaluate ")


def test_a_shipped_model_of_a_benchmarks_file_names_no_data_that_are_not_there(tmp_path):
    assert shipped(tmp_path, "two-room", None).next_is is None


def test_a_card_says_who_has_the_environment_that_nobody_here_has(tmp_path):
    recipe = make_recipe()
    assert _making(recipe, tmp_path).startswith("saltwm collect two-room ")
    own = dataclasses.replace(recipe, world=dataclasses.replace(recipe.world, environment="slide"))
    assert _making(own, tmp_path) == "# collected with the environment slide, which its author has"


def test_a_model_that_needs_its_authors_code_is_left_out_of_the_shelfs_list_and_named(tmp_path, monkeypatch, capsys):
    def card(path):
        if path.name == "own":
            raise UsageError("own: name your model")
        return {"model": path.name}

    monkeypatch.setattr(checkpoint, "card", card)
    items = [Item("two-room", name, tmp_path / name, tmp_path / "data") for name in ("own", "salt")]
    found = _described(tmp_path, items)
    assert (found.items, found.facts) == (items[1:], [{"model": "salt"}])
    assert "own: name your model" in capsys.readouterr().err


def test_the_run_in_the_working_directory_has_its_name(run, monkeypatch):
    name = how_learnt(run).run
    monkeypatch.chdir(run)
    assert how_learnt(Path(".")).run == name == run.name


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("demo all --model foo", "unknown model 'foo'"),
        ("reproduce two-room --preset quick --accelerator tpu --out OUT", "--accelerator is for --preset full-size"),
        ("score all --against OUT --data DATA", "leave --data out"),
        ("collect two-room --out OUT --episodes-per-part -1", "must be at least 1, found -1"),
        ("collect two-room --out OUT --episodes-per-part 0", "must be at least 1, found 0"),
        ("prior RUN --data DATA --horizon 0", "saltwm: horizon must be at least 1"),
        ("play RUN --start [1,2] --goal [1] --out OUT", "--start and --goal: task 0: goal: expected 2 numbers"),
        ("diagnose RUN --data DATA --out OUT --windows", "the number of windows must be at least 1, found 0"),
    ],
)
def test_what_would_be_ignored_or_cannot_be_is_refused_in_one_line(words, said, run, dataset, tmp_path, capsys):
    places = {"OUT": tmp_path / "out", "RUN": run, "DATA": dataset.path}
    with pytest.raises(SystemExit) as stopped:
        main([str(places.get(word, word)) for word in words.split()])
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "evaluate two-room --data two-room-data",
            "two-room: an environment, not a training run; a shipped model of it is two-room-salt",
        ),
        (
            "evaluate two-room-salt --data TwoRoom",
            "TwoRoom: an environment, not a dataset; shipped data of it are two-room-data",
        ),
        ("info two-room-sal", "two-room-sal: no such training run; did you mean two-room-salt, which is shipped?"),
        ("info my-run", "my-run: no training run is there; make one with: saltwm train DATASET --out my-run"),
        ("data info notes.txt", "notes.txt: a file, not a dataset folder\n"),
        (
            "data info take.mp4",
            "not a dataset folder; import the folder that it lies in with: saltwm data import . --out data/NAME",
        ),
        (
            "train a.h5 --out r",
            "not a dataset folder; import it with: saltwm data import a.h5 --env ENV --out data/NAME",
        ),
    ],
)
def test_a_name_or_a_file_in_the_place_of_a_folder_is_told_from_one(words, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("notes.txt", "take.mp4", "a.h5"):
        (tmp_path / name).touch()
    with pytest.raises(SystemExit):
        main(words.split())
    assert said in capsys.readouterr().err


def test_a_model_that_only_a_checkout_has_is_said_to_be_there(tmp_path, monkeypatch, capsys):
    shipped_here = {path.name for path in shipped_names.shelf_folder().glob("*-*") if (path / "shipment.json").exists()}
    assert set(shipped_names.MODELS_OF_A_CHECKOUT) == shipped_here
    monkeypatch.setattr(shipped_names, "shelf_folder", lambda: tmp_path)
    with pytest.raises(SystemExit):
        main(["info", "two-room-lewm"])
    said = "saltwm: two-room-lewm: a checkout of saltwm has this model, and this installation has not\n"
    assert capsys.readouterr().err == said


@pytest.mark.parametrize("words", ["reproduce {} --preset quick --out w", "study seeds --environments {}"])
def test_an_environment_may_be_spelt_in_other_ways(words, monkeypatch):
    done = []
    monkeypatch.setattr(telling, "tell", lambda job, result: done.append(job))
    for kind in (Study, Reproduce):
        monkeypatch.setattr(kind, "do", lambda job: None)
    monkeypatch.setattr(Reproduce, "jobs", lambda job: ())
    for word in ("two_room", "two-room"):
        telling.perform(parse(words.format(word).split()))
    assert done[0] == done[1]


@pytest.mark.parametrize("inside", ["", "/runs/first"])
@pytest.mark.parametrize(
    "words",
    [
        "train DATA --out PLACE --preset quick",
        "evaluate RUN --data DATA --out PLACE",
        "diagnose RUN --data DATA --out PLACE",
        "data stats DATA --out PLACE/stats.png",
        "data preview DATA --out PLACE",
        "report OUT --out PLACE",
    ],
)
def test_nothing_is_written_into_a_dataset(words, inside, run, dataset, tmp_path, capsys):
    place = f"{dataset.path}{inside}"
    before = sorted(dataset.path.rglob("*"))
    with pytest.raises(SystemExit) as stopped:
        main(words.replace("PLACE", place).replace("DATA", str(dataset.path)).replace("RUN", str(run)).split())
    error = capsys.readouterr().err
    assert stopped.value.code == 2
    assert ("a dataset; give the" in error) if place.endswith("two-room") and "png" not in words else "lies in" in error
    assert "of its own, such as --out " in error
    assert error.count("\n") == 1
    assert sorted(dataset.path.rglob("*")) == before


def test_a_dataset_is_not_collected_inside_another(dataset, capsys):
    with pytest.raises(SystemExit):
        main(["collect", "two-room", "--out", str(dataset.path / "more")])
    assert f"{dataset.path}: a dataset; give the output a place of its own" in capsys.readouterr().err
    assert not (dataset.path / "more").exists()


def test_all_that_does_not_belong_to_a_dataset_is_named_at_once(tmp_path):
    write_dataset(tmp_path / "d", make_recipe())
    for name in ("checkpoints", "run.json"):
        (tmp_path / "d" / name).mkdir()
    with pytest.raises(DamagedError, match=r"2 entries do not belong to the dataset \(checkpoints, run.json\); move"):
        Dataset.open(tmp_path / "d")


@pytest.mark.parametrize("name", ["stats", "stats.svg", "stats.jpg", "folder.png", "no/stats.png"])
def test_statistics_are_drawn_into_a_png_or_refused_with_nothing_left(name, dataset, tmp_path, capsys):
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(SystemExit) as stopped:
        main(["data", "stats", str(dataset.path), "--out", str(tmp_path / name)])
    assert stopped.value.code == 2
    expected = f"saltwm: {tmp_path / name}: expected a file NAME.png in a folder that is there\n"
    assert capsys.readouterr().err == expected
    assert [path.name for path in tmp_path.rglob("*")] == ["folder.png"]


def printed(capsys, *words):
    main(list(map(str, words)))
    return capsys.readouterr()


def test_info_says_what_is_other_than_the_preset_and_how_far_a_run_is(tmp_path, capsys):
    assert re.search("other than preset +.*memory yes", printed(capsys, "info", "reacher-salt-memory").out)
    assert "other than preset" not in printed(capsys, "info", "two-room-salt").out
    write_run(tmp_path / "run")
    assert re.search("step +0 of 9\n", printed(capsys, "info", tmp_path / "run").out)
    facts = json.loads(printed(capsys, "info", tmp_path / "run", "--json").out)
    assert (facts["step"], facts["steps_in_all"]) == (0, 9)


@pytest.mark.parametrize("verb", ["evaluate", "suite"])
def test_frames_that_no_model_looks_at_are_said_to_change_nothing(verb, run, dataset, tmp_path, capsys):
    planner, only = ("--planner", ()) if verb == "evaluate" else ("--planners", ("--no-random",))
    protocol = "--protocol" if verb == "evaluate" else "--protocols"
    words = [verb, run, "--data", dataset.path, "--out", tmp_path, "--tasks", 1]
    words += ["--workers", 1, "--pictures", 0, protocol, "paper", planner, "cem,candidates=8,iterations=1,elites=2"]
    said = "--history 3: this model looks at one frame"
    assert said in printed(capsys, *words, *only, "--history", 3).err
    assert "looks at" not in printed(capsys, *words, *only).err


def test_frames_that_one_of_many_models_looks_at_are_used(capsys):
    cells = [SimpleNamespace(job=SimpleNamespace(run=name, history=seen)) for name, seen in (("a", 1), ("b", 3))]
    say_unused_history(3, cells)
    assert capsys.readouterr().err == ""
    say_unused_history(4, cells)
    assert "these models look at 3 frames at most" in capsys.readouterr().err


def test_the_list_of_studies_says_where_it_looks(tmp_path, capsys):
    told = tell(Study(data=tmp_path, results=tmp_path / "none"), [])
    telling.say(told.told)
    heading = capsys.readouterr().out.splitlines()[0]
    assert heading == f"records in {tmp_path}/none (not there), data in {tmp_path}"


def test_a_checked_environment_is_collected_into_a_folder_of_its_own():
    told = tell(EnvCheck("my_module:Slide"), Checked("slide", ()))
    assert told.next_is == "saltwm collect my_module:Slide --out data/slide"


def test_the_list_of_environments_reads_well(monkeypatch):
    monkeypatch.setattr("saltwm.envs.two_room.TwoRoom.action_dim", 1)
    listed = EnvList().do()
    assert "displacement / 5 " in listed["two-room"]
    assert "1 number in an action" in listed["two-room"]
    assert "Like cube, with two cubes" in listed["cube-double"]


@pytest.mark.parametrize("word", ["slide.Slide", "slide.py:Slide"])
def test_a_class_that_is_named_in_another_way_is_asked_about(word, tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["collect", word, "--out", str(tmp_path / "out")])
    assert "did you mean slide:Slide?" in capsys.readouterr().err


def test_an_unknown_environment_names_the_page_about_ones_own(tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["collect", "slide", "--out", str(tmp_path / "out")])
    assert capsys.readouterr().err.endswith("saltwm --env my_module:MyEnv VERB ... (docs/environments.md)\n")


def test_a_card_where_no_results_are_has_no_rates_and_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert (
        "no folder results is here: the card has no rates"
        in printed(capsys, "card", "two-room-salt", "--out", "c.md").err
    )
    assert "Nothing yet: no evaluation" in (tmp_path / "c.md").read_text()
    with pytest.raises(SystemExit):
        main(["card", "two-room-salt"])
    assert "results: no evaluations" in capsys.readouterr().err  # the shipped card, which has rates, stays


@pytest.mark.parametrize("model", ["salt-memory", "dino-wm", "salt-two-stag"])
def test_a_demo_of_what_is_not_shipped_names_what_is(model, capsys):
    with pytest.raises(SystemExit):
        main(["demo", "push-t", "--model", model])
    error = capsys.readouterr().err
    assert error.startswith(f"saltwm: no {model} model of push-t is shipped")
    assert error.endswith("(push-t has: salt, lewm, salt-two-stage)\n")


def test_a_planners_setting_is_no_option_of_a_verb_without_a_planner(capsys):
    with pytest.raises(SystemExit):
        main(["demo", "--mu", "3"])
    assert "--planner" not in capsys.readouterr().err


def test_two_datasets_are_not_repeated_in_one_folder(tmp_path):
    for name in ("a", "b"):
        write_dataset(tmp_path / name, make_recipe(1), [6])
    assert [job.out for job in Again((tmp_path / "a",), tmp_path / "out").jobs()] == [tmp_path / "out"]
    with pytest.raises(UsageError, match="expected one dataset or run"):
        Again((tmp_path / "a", tmp_path / "b"), tmp_path / "out").jobs()


def test_what_a_verb_does_is_told_in_lines_that_fit(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main(["collect", "--help"])
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80

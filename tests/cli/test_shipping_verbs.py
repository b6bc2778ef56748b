"""The verbs about shipped models, as their users type them: ship, card and demo on a shelf of one tiny model."""

import dataclasses
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from saltwm import write_dataset
from saltwm.cli import main
from saltwm.disk.checkpoint import load
from saltwm.jobs.collect import Collect
from saltwm.jobs.shelf import shelf as shelf_of
from saltwm.train import train


@pytest.fixture(scope="module")
def shelf(run, tmp_path_factory):
    directory = tmp_path_factory.mktemp("shelf")
    Collect("two-room", directory / "two-room-data", 20, image_size=16, frame_every=5, held_out=True, workers=1).do()
    main(["ship", str(run), "--out", str(directory / "two-room-salt"), "--json"])
    return directory


def refused(capsys, *words):
    with pytest.raises(SystemExit) as stopped:
        main(list(words))
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.strip().splitlines()) == 1
    return stopped.value.code, captured.err


def test_a_demo_plans_films_and_says_how_it_went(shelf, tmp_path, capsys):
    words = ["demo", "two-room", "--checkpoints", str(shelf), "--out", str(tmp_path), "--task", "1"]
    main([*words, "--json"])
    shown = json.loads(capsys.readouterr().out)
    assert Path(shown["moving"]).read_bytes().startswith(b"GIF")
    assert shown["task"] == 1
    assert shown["start_distance"] >= 3  # the clean protocol
    assert shown["reached"] == (shown["final_distance"] < 1)
    assert shown["cost_after_search"] < shown["cost_before_search"]
    main(words)
    told = "".join(capsys.readouterr().out.split())
    assert "1is16units" in told
    assert shown["moving"] in told  # folded in a narrow terminal, never cut
    assert "next:saltwmevaluate" in told
    assert told.endswith("--outwork/again")  # results holds the shipped models' records already: nothing would happen


def test_a_task_of_a_demo_is_that_of_an_evaluation_with_more_tasks(shelf, tmp_path, capsys):
    main(["demo", "two-room", "--checkpoints", str(shelf), "--out", str(tmp_path), "--task", "2", "--json"])
    shown = json.loads(capsys.readouterr().out)
    shipped, data = str(shelf / "two-room-salt"), str(shelf / "two-room-data")
    main(["play", shipped, "--data", data, "--out", str(tmp_path / "p"), "--tasks", "8", "--task", "2", "--json"])
    again = json.loads(capsys.readouterr().out)
    assert (again["steps"], again["final_distance"]) == (shown["steps"], shown["final_distance"])


def test_without_a_name_it_lists_what_is_shipped(shelf, tmp_path, capsys):
    main(["demo", "--checkpoints", str(shelf), "--json"])
    (item,) = json.loads(capsys.readouterr().out)
    assert (item["environment"], item["model"]) == ("two-room", "salt")
    main(["demo", "--checkpoints", str(shelf)])
    assert "next: saltwm demo two-room" in capsys.readouterr().out
    for words in (["demo"], ["demo", "all"]):
        main([*words, "--checkpoints", str(tmp_path)])
        assert "nothing is shipped" in capsys.readouterr().out


def test_what_is_not_shipped_is_named_with_what_is_and_how_to_make_it(shelf, tmp_path, capsys):
    code, message = refused(capsys, "demo", "push-t", "--checkpoints", str(shelf))
    assert code == 2
    assert "there is: two-room salt" in message
    reproduced, shipped, collected = message.strip().split("with: ")[1].split(" && ")
    assert reproduced == "saltwm reproduce push-t --out work/push-t"
    assert shipped == f"saltwm ship work/push-t/runs/push-t-salt --out {shelf}/push-t-salt"
    assert collected == f"saltwm collect push-t --out {shelf}/push-t-data --seed 1000 --frame-every 5 --held-out"
    assert refused(capsys, "demo", "two-room", "--model", "lewm", "--checkpoints", str(shelf))[0] == 2
    assert "did you mean 'two-room'" in refused(capsys, "demo", "two-rom", "--checkpoints", str(shelf))[1]
    common = ("demo", "two-room", "--checkpoints", str(shelf), "--out", str(tmp_path))
    assert "at least 0" in refused(capsys, *common, "--task", "-1")[1]
    assert re.search("no task 400; there are tasks 0 to [0-9]+$", refused(capsys, *common, "--task", "400")[1].strip())


def test_a_model_without_held_out_data_beside_it_is_shipped_with_the_command_that_collects_them(run, tmp_path, capsys):
    main(["ship", str(run), "--out", str(tmp_path / "two-room-salt")])
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("next: ")]
    where = f"--out {tmp_path}/two-room-data"
    assert line == f"next: saltwm collect two-room {where} --seed 1000 --image-size 16 --frame-every 5 --held-out"
    message = refused(capsys, "demo", "two-room", "--checkpoints", str(tmp_path))[1]
    assert message.strip().endswith(line.removeprefix("next: "))  # pictures of this model's size, too
    assert "saltwm ship" not in message  # that much is there


def test_a_model_of_recordings_is_shipped_with_a_card_while_they_are_at_hand(tiny, tmp_path, capsys):
    rng = np.random.default_rng(0)
    episodes = [
        {"frames": rng.integers(0, 255, (61, 16, 16, 3), np.uint8), "actions": rng.normal(size=(60, 2))}
        for _ in range(12)
    ]
    recorded = write_dataset(tmp_path / "data", episodes, name="my-robot", image_size=16)
    train(tiny, recorded, tmp_path / "run")
    capsys.readouterr()
    main(["ship", str(tmp_path / "run"), "--out", str(tmp_path / "shelf/robot")])
    main(["card", str(tmp_path / "run"), "--out", str(tmp_path / "card.md")])
    assert "saltwm collect" not in capsys.readouterr().out  # nothing collects a robot's pictures
    for card in (tmp_path / "shelf/robot/README.md", tmp_path / "card.md"):
        assert "# written from recordings, by a program, which their owner has\n" in card.read_text()


def test_a_card_that_cannot_be_written_leaves_no_shipment_without_one(run, shelf, tmp_path, capsys):
    copy = shutil.copytree(shelf / "two-room-data", tmp_path / "two-room-data")
    (copy / "zarr.json").write_text("{}")
    assert refused(capsys, "ship", str(run), "--out", str(tmp_path / "two-room-salt"))[0] == 6
    assert not (tmp_path / "two-room-salt").exists()


def test_a_damaged_model_or_dataset_is_never_shown(shelf, tmp_path, capsys):
    copy = shutil.copytree(shelf, tmp_path / "copy")
    for victim in (copy / "two-room-salt" / "weights.safetensors", copy / "two-room-data" / "zarr.json"):
        whole = victim.read_bytes()
        victim.write_bytes(whole[:-7])
        code, message = refused(capsys, "demo", "two-room", "--checkpoints", str(copy), "--out", str(tmp_path / "out"))
        assert (code, victim.name in message) == (6, True)
        victim.write_bytes(whole)


def test_all_shows_what_can_be_drawn_and_says_what_cannot(shelf, tmp_path, capsys, monkeypatch):
    from saltwm.disk import checkpoint
    from saltwm.jobs import doctor

    main(["demo", "all", "--checkpoints", str(shelf), "--out", str(tmp_path), "--json"])
    assert json.loads(capsys.readouterr().out)["environment"] == "two-room"
    info = checkpoint.read_info(shelf / "two-room-salt")
    drawn_by_mujoco = dataclasses.replace(info, world=dataclasses.replace(info.world, renderer="egl"))
    monkeypatch.setattr(doctor, "_renderer", lambda backend: doctor.Finding(backend, "fails", "install it"))
    monkeypatch.setattr(checkpoint, "read_info", lambda path: drawn_by_mujoco)
    main(["demo", "all", "--checkpoints", str(shelf), "--out", str(tmp_path)])
    assert "two-room: not shown, MuJoCo has no renderer here" in capsys.readouterr().out


def test_a_card_gets_the_rates_of_what_was_evaluated_and_the_commands_that_repeat_them(shelf, tmp_path):
    shipped, data, results = (str(path) for path in (shelf / "two-room-salt", shelf / "two-room-data", tmp_path))
    common = ["--data", data, "--out", results, "--tasks", "3", "--workers", "1", "--pictures", "0"]
    main(["suite", shipped, *common, "--protocols", "paper"])
    main(["card", shipped, "--results", results])
    card = (shelf / "two-room-salt" / "README.md").read_text().replace(" \\\n  ", " ")
    assert "| paper, H=5 | SALT, R 2, lambda 0.3, d 16 | **66.7** | 2/3 | 20.8 to 93.9 | - | 1/3 |" in card
    assert "saltwm collect two-room --out data/two-room --episodes 60" in card
    assert "saltwm ship runs/two-room-salt --out checkpoints/two-room-salt\n" in card
    (held_out,) = [line for line in card.splitlines() if "--out checkpoints/two-room-data" in line]
    assert held_out.startswith("saltwm collect two-room --out checkpoints/two-room-data --episodes 20 ")
    (again,) = [line for line in card.splitlines() if line.startswith("saltwm again ")]
    assert f" {results}/evaluations/two-room-salt-paper-seed1 " in again
    assert again.endswith(" --out work/again")
    load(shipped)  # a new card leaves the checkpoint whole


def test_train_refuses_held_out_data_in_one_line(shelf, tmp_path, capsys):
    code, message = refused(capsys, "train", str(shelf / "two-room-data"), "--out", str(tmp_path / "run"))
    assert code == 2
    assert "held out, its episodes are for evaluation alone" in message


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("nothing", "no training run is there; make one with: saltwm train DATASET --out "),
        ("file", "not a training run or checkpoint (no run.json)"),
        ("data", "a dataset, not a training run; see it with: saltwm data info "),
    ],
)
def test_a_card_of_what_is_no_run_is_refused(dataset, tmp_path, capsys, what, message):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "results" / "evaluations").mkdir(parents=True)
    place = {"nothing": tmp_path / "nothing", "file": tmp_path / "file", "data": dataset.path}[what]
    code, error = refused(capsys, "card", str(place), "--results", str(tmp_path / "results"))
    assert code == 2
    assert message in error
    assert not (tmp_path / "results" / "cards").exists()


def test_rates_from_results_of_nothing_are_refused_before_anything_is_written(run, shelf, tmp_path, capsys):
    nothing = str(tmp_path / "nothing")
    for words in (["card", str(shelf / "two-room-salt")], ["ship", str(run), "--out", str(tmp_path / "shipped")]):
        code, error = refused(capsys, *words, "--results", nothing)
        assert code == 2
        assert "nothing: no evaluations; make some with: saltwm evaluate RUN --data DATA --out" in error
    assert not (tmp_path / "shipped").exists()


def test_a_model_is_shown_under_the_name_that_it_was_shipped_under(shelf, tmp_path, capsys):
    copy = shutil.copytree(shelf, tmp_path / "copy")
    shutil.copytree(copy / "two-room-salt", copy / "two-room-salt-two-stage")
    words = ("demo", "two-room", "--checkpoints", str(copy), "--out", str(tmp_path))
    main([*words, "--model", "salt-two-stage", "--json"])
    assert '"model": "salt-two-stage"' in capsys.readouterr().out
    code, message = refused(capsys, "demo", "push-t", "--model", "salt-two-stage", "--checkpoints", str(copy))
    assert code == 2
    assert "there is: two-room salt, two-room salt-two-stage" in message
    assert "reproduce" not in message
    shutil.rmtree(copy / "two-room-salt")
    main(["demo", "--checkpoints", str(copy)])
    assert f"next: saltwm demo two-room --model salt-two-stage --checkpoints {copy}" in capsys.readouterr().out
    assert "did you mean 'salt-two-stage'" in refused(capsys, *words, "--model", "salt-two-stag")[1]


def test_the_models_of_cube_double_are_not_those_of_cube(tmp_path):
    for name in ("cube-salt", "cube-double-salt-two-stage", "cube-data", "cube-double-data"):
        (tmp_path / name).mkdir()
        if not name.endswith("-data"):
            (tmp_path / name / "shipment.json").touch()
    assert [(item.environment, item.model) for item in shelf_of(tmp_path)] == [
        ("cube", "salt"),
        ("cube-double", "salt-two-stage"),
    ]


def test_every_shipped_checkpoint_stands_whole_in_the_list_on_a_narrow_terminal(capsys, monkeypatch):
    monkeypatch.chdir(Path(__file__).parents[2])
    monkeypatch.setenv("COLUMNS", "80")
    main(["demo"])
    lines = capsys.readouterr().out.splitlines()
    shipped = {str(path.parent) for path in Path("checkpoints").glob("*-*/README.md")}
    assert {line.split()[0] for line in lines[1:-1]} == {path for path in shipped if not path.endswith("-data")}
    assert max(map(len, lines)) <= 80


def test_a_model_card_has_a_line_for_each_metric_and_numbers_that_can_be_read(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    main(["info", "two-room-salt", "--json"])
    card = json.loads(capsys.readouterr().out)
    main(["info", "two-room-salt"])
    lines = capsys.readouterr().out.splitlines()
    assert f"parameters      {card['parameters']:,}" in lines
    shown = {line.removeprefix("metrics").strip() for line in lines}
    assert {f"{name.replace('_', ' ')} {value:.4g}" for name, value in card["metrics"].items()} <= shown

"""import-weights and export as a user runs them."""

import json

import pytest
from public_files import PublicModel, config_json, write_public

from saltwm.cli import main
from saltwm.jobs.collect import Collect


@pytest.fixture(scope="module")
def public(tmp_path_factory):
    """A public checkpoint, a dataset for it, and the run that import-weights makes of both."""
    folder = tmp_path_factory.mktemp("public")
    write_public(folder / "weights", PublicModel("salt").state_dict(), config_json("salt"))
    Collect("two-room", folder / "data", 8, image_size=28, frame_every=5, workers=1).do()
    arguments = ["import-weights", "weights", "--env", "tworoom", "--data", "data", "--out", "run", "--json"]
    main([str(folder / part) if part in ("weights", "data", "run") else part for part in arguments])
    return folder


def say(capsys, *arguments):
    """What a verb prints as JSON."""
    capsys.readouterr()
    main([*map(str, arguments), "--json"])
    return json.loads(capsys.readouterr().out)


def test_an_imported_run_has_a_card_and_can_be_evaluated(public, tmp_path, capsys):
    card = say(capsys, "info", public / "run")
    assert (card["preset"], card["environment"], card["step"]) == ("imported", "two-room", 0)
    options = ("--protocol", "paper", "--tasks", 2, "--workers", 1, "--pictures", 0)
    evaluation = say(capsys, "evaluate", public / "run", "--data", public / "data", "--out", tmp_path, *options)
    assert (evaluation["method"], evaluation["success"]["n"]) == ("salt", 2)


def test_an_imported_run_is_exported_in_both_formats(public, tmp_path, capsys):
    swm = say(capsys, "export", public / "run", "--format", "swm", "--out", tmp_path / "swm")
    assert swm["tensors"] == len(PublicModel("salt").state_dict())
    assert (tmp_path / "swm" / "weights.pt").is_file()
    onnx = say(capsys, "export", public / "run", "--format", "onnx", "--out", tmp_path / "onnx")
    assert max(onnx["largest_difference_from_torch"].values()) <= 1e-4


@pytest.mark.parametrize(
    ("environment", "code", "message"),
    [("pusht", 3, "data of two-room, but the weights are said to be push-t's"), ("rooms", 2, "unknown environment")],
)
def test_what_does_not_belong_together_is_one_line_and_an_exit_code(
    public, tmp_path, capsys, environment, code, message
):
    arguments = [public / "weights", "--env", environment, "--data", public / "data", "--out", tmp_path / "run"]
    with pytest.raises(SystemExit) as stopped:
        main(["import-weights", *map(str, arguments)])
    assert stopped.value.code == code
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_names_of_tensors_are_refused_beside_onnx_and_a_file_above_the_folder_is_named(public, tmp_path, capsys):
    (tmp_path / "file").write_text("mine")
    mistakes = {
        ("--names", "transformers-5", "--out", tmp_path / "onnx"): "--names transformers-5 is about --format swm",
        ("--out", tmp_path / "file" / "below"): f"{tmp_path / 'file'}: cannot be a folder",
    }
    for words, reason in mistakes.items():
        with pytest.raises(SystemExit) as stopped:
            main(["export", str(public / "run"), "--format", "onnx", *map(str, words)])
        assert stopped.value.code == 2
        assert reason in capsys.readouterr().err
    assert not (tmp_path / "onnx").exists()

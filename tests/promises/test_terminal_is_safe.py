"""P27: no byte of an input reaches the terminal raw."""

import json
import shutil
import unicodedata
from types import SimpleNamespace

import numpy as np
import pytest

from saltwm.cli.printing import aligned, say, say_error
from saltwm.disk import checkpoint, durable
from saltwm.ground.progress import console
from saltwm.ground.terminal import printable
from saltwm.jobs.chunks import _require_renderer

TITLE = "\x1b]0;PWNED\x1b\\quick\x1b[2J\x07\u202e\x9b31m"


def control_characters(text):
    return [c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Co", "Cs") and c not in "\n\t"]


def hostile_strings(count):
    rng = np.random.default_rng(0)
    pieces = [
        "\x1b]0;x\x1b\\",
        "\x1b[2J",
        "\x9b1m",
        "\r",
        "\x08",
        "\x00",
        "\u202e",
        "\u2066",
        "\ud800",
        "a",
        "\n",
        "[b]",
    ]
    return [TITLE, *("".join(rng.choice(pieces, 6)) for _ in range(count - 1))]


def test_what_is_printed_holds_no_control_characters(capsys):
    assert control_characters(TITLE)
    for text in hostile_strings(200):
        say(text)
        say_error(text)
        say(aligned({"preset": text, "nested": {"key": [text]}}))
        console.print(text, markup=False)
        out, err = capsys.readouterr()
        assert not control_characters(out + err)
        assert err.startswith("saltwm: ")


def test_plain_text_of_any_language_stays_as_it_is():
    text = "Zürich, 東京: λ = 0.09 → 5 %\n\tnext"
    assert printable(text) == text


def test_an_error_is_one_line_whatever_a_file_says(capsys):
    say_error("file: unknown key 'a\nsaltwm: all is well'")
    assert capsys.readouterr().err.count("\n") == 1


def test_the_renderer_that_a_task_set_names_is_shown_without_its_escapes(capsys):
    """Said by `play`, which looks at an episode with any renderer."""
    _require_renderer(SimpleNamespace(renderer="egl"), TITLE, any_renderer=True)
    err = capsys.readouterr().err
    assert "PWNED" in err
    assert not control_characters(err)


@pytest.mark.parametrize("damaged", [False, True])
def test_a_hostile_checkpoint_is_shown_without_its_escapes(run, tmp_path, capsys, damaged):
    from saltwm.cli import main

    source = checkpoint.find_checkpoint(run)
    info = durable.read_json(source / checkpoint.INFO_FILE)
    info["run"]["preset"] = TITLE
    if damaged:
        info[TITLE] = 1
    with durable.publish_directory(tmp_path / "hostile") as folder:
        durable.write_json(folder / checkpoint.INFO_FILE, info)
        durable.write_bytes(folder / checkpoint.WEIGHTS_FILE, (source / checkpoint.WEIGHTS_FILE).read_bytes())
    if damaged:
        with pytest.raises(SystemExit) as ended:
            main(["info", str(tmp_path / "hostile")])
        assert ended.value.code == 6
    else:
        main(["info", str(tmp_path / "hostile")])
    out, err = capsys.readouterr()
    assert "PWNED" in out + err
    assert not control_characters(out + err)
    assert json.dumps(TITLE)[1:8] not in out


def test_a_run_whose_folder_has_a_hostile_name_is_watched_without_its_escapes(run, tmp_path, capsys, monkeypatch):
    from saltwm.cli import main
    from saltwm.report import watch

    hostile = shutil.copytree(run, tmp_path / TITLE)
    main(["watch", str(hostile), "--once"])
    monkeypatch.setattr(watch, "save_picture", lambda files, path: None)
    main(["watch", str(hostile), "--picture", f"o[a]ut{TITLE}.png"])
    out, err = capsys.readouterr()
    assert out.count("PWNED") == 2
    assert "written: o[a]ut" in out
    assert not control_characters(out + err)

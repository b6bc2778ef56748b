"""The help of a verb: what it does, commands to begin with, its own options; and what a typo is answered with."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from saltwm.cli import INNER, VERBS, main, parse
from saltwm.cli.examples import EXAMPLES
from saltwm.cli.overview import in_short

EVERY_VERB = [
    name for verb in VERBS for name in ([f"{verb} {one}" for one in INNER[verb]] if verb in INNER else [verb])
]


def said(capsys, *words):
    with pytest.raises(SystemExit) as end:
        main(list(words))
    captured = capsys.readouterr()
    return end.value.code, captured.out + captured.err


def test_every_verb_has_examples_and_no_example_is_left_over():
    assert set(EXAMPLES) == set(EVERY_VERB)


@pytest.mark.parametrize("verb", EVERY_VERB)
def test_the_examples_of_a_verb_stand_in_its_help_and_are_taken(verb, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    _, text = said(capsys, *verb.split(), "--help")
    for example in EXAMPLES[verb]:
        assert f"\n  {example}\n" in text
        words = shlex.split(example)
        assert words[0] == "saltwm"
        assert verb == parse(words[1:]).VERB
    assert "(default: )" not in text
    assert "{[" not in text


def test_a_mistyped_option_is_answered_with_those_of_its_verb_alone(capsys):
    code, text = said(capsys, "collect", "two-room", "--episods", "3", "--out", "x")
    assert code == 2
    assert "--episodes INT" in text
    assert "saltwm collect --help" in text
    assert "decode" not in text
    assert "import" not in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "evaluate RUN --protocol cleen",
            "unknown protocol 'cleen'; did you mean 'clean'? (known: clean, long, paper)",
        ),
        ("suite RUN --protocols clean cleen", "unknown protocol 'cleen'; did you mean 'clean'?"),
        ("evaluate RUN --protocol None", "unknown protocol 'None' (known: clean, long, paper)"),
        ("train DATA --out RUN --preset papr", "unknown preset 'papr' (known: cpu, full-size, quick)"),
        ("data import FILE --out DATA --format=hdf", "unknown format 'hdf'; did you mean 'hdf5'?"),
    ],
)
def test_a_mistyped_choice_is_answered_with_the_nearest_in_one_line(words, said, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(words.split())
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith(f"saltwm: {said}")
    assert error.count("\n") == 1


def test_a_mistyped_verb_of_a_verb_is_answered_with_the_nearest(capsys):
    code, text = said(capsys, "data", "imprt", "x", "--out", "y")
    assert (code, "did you mean 'import'" in text) == (2, True)


def test_a_reader_who_leaves_ends_a_command_quietly(tmp_path):
    here = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-m", "saltwm", "train", "--help"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path, env=here)
    process.stdout.close()
    assert process.wait(60) == 141
    assert process.stderr.read() == b""
    process.stderr.close()


@pytest.mark.parametrize("width", [80, 120])
def test_the_first_help_has_every_verb_with_a_whole_clause_in_lines_that_fit(width, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    main(["--help"])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    assert {line.split()[0] for line in lines if re.match("  [a-z]", line)} == set(VERBS)
    assert len(lines) <= 70  # two screens at most: the rest is in each verb's own help
    for job in VERBS.values():
        said = in_short(job)
        assert said.count("(") == said.count(")")
        assert len(said.split()) >= 3


def test_the_help_is_read_without_numpy_torch_and_simulators():
    code = "import sys, saltwm.cli; print({'numpy', 'torch', 'pydantic', 'matplotlib', 'gymnasium'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"

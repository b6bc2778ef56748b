"""What is printed can be copied: a command is one line, its words arrive at the shell as they were meant."""

import io
import shlex
from contextlib import redirect_stdout
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Group
from rich.table import Table
from rich.text import Text

from saltwm.cli.printing import aligned, announce, next_command, say
from saltwm.cli.telling import tell
from saltwm.jobs.evaluate import Play
from saltwm.jobs.job import command_line, spell
from saltwm.jobs.suite import Suite

ODD = Path("/somewhere/with spaces/and [bold]brackets[/bold] :smile:") / ("long" * 60) / "it's $HOME"


@pytest.fixture(autouse=True)
def narrow(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")


def printed(work) -> str:
    stream = io.StringIO()
    with redirect_stdout(stream):
        work()
    return stream.getvalue()


def test_an_episode_that_ran_out_of_steps_is_told_in_words_and_recorded_in_one():
    record = SimpleNamespace(reason="budget", steps_taken=50, start_distance=3.0, final_distance=2.0, plans=[])
    played = SimpleNamespace(outcome=SimpleNamespace(record=record), moving="a.gif", strip="a.png")
    told = tell(Play("random"), played)
    assert told.told["outcome"] == "not reached within the steps allowed"
    assert told.plain["outcome"] == "budget"


def test_the_next_command_is_one_line_whose_words_are_those_that_were_meant():
    out = printed(lambda: next_command(command_line("saltwm", "report", ODD, "--out", "report")))
    (line,) = out.splitlines()
    assert shlex.split(line.removeprefix("next: ")) == ["saltwm", "report", str(ODD), "--out", "report"]


def test_an_announced_verb_is_one_line_that_spells_it():
    verb = Suite((ODD, Path("b")), (Path("data c"),), seeds=(1, 2))
    empty, line = printed(lambda: announce(spell(verb))).splitlines()
    assert empty == ""
    words = ["saltwm", "suite", str(ODD), "b", "--data", "data c", "--seeds", "1", "2"]
    assert shlex.split(line.removeprefix("$ ")) == words


def test_an_ordinary_command_has_no_quotes():
    assert spell(Suite((Path("runs/a"),), (Path("d"),), seeds=(1, 2))) == "saltwm suite runs/a --data d --seeds 1 2"


def test_a_path_or_a_hash_is_one_word_however_narrow_the_terminal_is():
    path, words = "results/" + "long" * 30, "many words " * 12
    out = printed(lambda: say(aligned({"where": path, "what_it_says": words, "list": [{"a": 1}, {"a": 2}]})))
    assert f"where         {path}\n" in out
    assert "what it says  many words many words many\n              words many" in out
    assert out.endswith("list          a 1\n              a 2\n")


def test_sentences_between_tables_are_left_to_the_terminal_to_fold():
    sentence = "SALT against Random: no difference shown, and so on past the edge"
    assert f"{sentence}\n" in printed(lambda: say(Group(Table("a"), Text(sentence))))


def test_brackets_are_text_in_results_and_tables_too():
    table = Table(box=None, show_header=False)
    table.add_row("pip install saltwm[ray]")
    assert "saltwm[ray]" in printed(lambda: say(table))
    assert "runs/[red]x" in printed(lambda: say(aligned({"run": "runs/[red]x"})))

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
from saltwm.evaluation.protocols import CLEAN_PROTOCOL
from saltwm.ground import progress
from saltwm.jobs.evaluate import Play, Played
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


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("budget", "not reached within the steps allowed"),
        ("world-ended", "not reached before the world ended the episode"),
    ],
)
def test_an_episode_that_did_not_reach_its_goal_is_told_in_words_and_recorded_in_one(reason, words):
    record = SimpleNamespace(reason=reason, steps_taken=50, start_distance=3.0, final_distance=2.0, plans=[])
    tasks = SimpleNamespace(protocol=CLEAN_PROTOCOL, world=SimpleNamespace(environment="two-room"))
    outcome = SimpleNamespace(record=record)
    told = tell(Play("random"), Played("no plan", tasks, outcome, "a.gif", "a.png", 0.0))
    assert told.told["outcome"] == f"{words}, 50 of 50 steps"
    assert told.told["distance"] == "3.00 success radii at the start, 2.00 at the end (1 is 16 units)"
    assert told.plain["outcome"] == reason


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


def test_a_log_gets_a_line_of_a_long_job_now_and_then_and_none_of_a_short_one(capsys, monkeypatch):
    for seconds, lines in (
        (0.0, ["learn: 6 of 8, about 0 min left", "learn: 8 of 8, about 0 min left, probes"]),
        (60.0, []),
    ):
        monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", seconds)
        with progress.progress("learn", 8, done=4) as advance:
            advance(2)
            advance(2, note="probes")
        assert capsys.readouterr().err.splitlines() == lines

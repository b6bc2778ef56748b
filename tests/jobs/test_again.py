"""A folder's own files are its command: what is shown is repeated by its jobs, and by nothing that was made up."""

import shlex
from pathlib import Path

import pytest

from saltwm import cli
from saltwm.disk.records import Cell, Evaluation, Rate, read_cells
from saltwm.ground.errors import UsageError
from saltwm.jobs.again import AGAIN, Again, spell_again
from saltwm.report.findings import Findings

ROOT = Path(__file__).parents[2]


def cell(method: str, run: str | None) -> Cell:
    tasks, rate = "tasks/x-clean-seed1.json", Rate(5, 10, 0.2, 0.8)
    e = Evaluation("x", method, "clean", 5, {}, tasks, tasks, run, run and "ab", 1, rate, None, 1.0)
    return Cell(f"x-{method}-clean-seed1", e, ())


@pytest.mark.parametrize("results", ["results", "search"])
def test_the_folder_of_every_shipped_cell_holds_the_job_that_was_recorded(results, monkeypatch):
    monkeypatch.chdir(ROOT)
    for recorded in read_cells(Path(results)):
        e = recorded.evaluation
        (job,) = Again((Path(results) / "evaluations" / recorded.name,), AGAIN).jobs()
        assert (job.out, job.method, job.horizon, job.history) == (AGAIN, e.method, e.horizon_blocks, e.history_frames)
        assert (job.inputs["task_set"], job.inputs.get("prior")) == (e.tasks_sha256, e.prior_sha256)
        assert job.inputs["run"] == (e.checkpoint_sha256 or "random")


def test_an_environment_is_repeated_by_one_command_and_what_only_a_program_knew_by_none():
    cells = [cell("salt", "c/salt"), cell("random", None), cell("mine", None)]
    nothing = dict.fromkeys(Findings.__dataclass_fields__)
    findings = Findings(**nothing | {"results": Path("my results"), "again": spell_again})
    (line,) = findings.commands(cells)
    words = shlex.split(line)
    folders = tuple(Path("my results/evaluations") / f"x-{name}-clean-seed1" for name in ("salt", "random"))
    assert cli.parse(words[1:]) == Again(folders, AGAIN)
    assert Findings(**nothing | {"results": Path("r")}).commands(cells) == []


def test_a_folder_that_no_job_filled_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match="no file of a job is there"):
        Again((tmp_path,)).jobs()

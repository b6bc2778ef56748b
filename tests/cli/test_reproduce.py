"""reproduce: every verb in order, resumable, one results folder for all environments, each step's time written down."""

import dataclasses
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "report"))
from fake_results import make_results
from small_runs import SMALL, WORLD, write_run

from saltwm.cli.telling import perform
from saltwm.disk.records import read_stages
from saltwm.evaluation.protocols import CLEAN_PROTOCOL
from saltwm.ground.errors import UsageError
from saltwm.interop.hdf5 import export_hdf5
from saltwm.jobs import reproduce as story
from saltwm.jobs.collect import Collect
from saltwm.jobs.job import Job, spell
from saltwm.jobs.pages import Anatomy
from saltwm.jobs.reproduce import Reproduce, timed
from saltwm.jobs.suite import Suite


def spelled(reproduce: Reproduce, environment: str) -> list[str]:
    return [spell(verb) for verb in reproduce.of(environment)]


def test_one_environment_lies_directly_under_out(tmp_path):
    verbs = spelled(Reproduce("cube", tmp_path), "cube")
    in_order = " ".join(verb.split()[1] for verb in verbs)
    assert in_order == "collect train train prior suite suite suite suite diagnose diagnose decode"
    assert f"--out {tmp_path}/data" in verbs[0]
    assert f"--out {tmp_path}/runs/cube-lewm" in verbs[2]
    assert f"saltwm prior {tmp_path}/runs/cube-salt" in verbs[3]
    assert f"{tmp_path}/runs/cube-salt {tmp_path}/runs/cube-lewm" in verbs[4]
    assert "--planners map prior --look-every 1" in verbs[7]


def test_all_environments_share_their_results_and_nothing_else(tmp_path):
    everything = Reproduce("all", tmp_path)
    assert everything.environments()[:4] == ["two-room", "reacher", "push-t", "cube"]
    verbs = [verb for name in everything.environments() for verb in spelled(everything, name)]
    assert len(set(verbs)) == len(verbs)
    assert all(f"--out {tmp_path}/results" in verb for verb in verbs if " suite " in verb or " diagnose " in verb)
    assert any(f"--out {tmp_path}/reacher/data" in verb for verb in verbs)


def test_both_models_are_trained_alike(tmp_path):
    everything = Reproduce("all", tmp_path)
    for name in everything.environments():
        salt, lewm = (verb for verb in spelled(everything, name) if " train " in verb)
        assert lewm.replace(" --model lewm", "").replace(f"{name}-lewm", f"{name}-salt") == salt


def test_what_is_made_of_everything_comes_last(tmp_path):
    closing = [spell(verb) for verb in Reproduce("all", tmp_path).closing()]
    results = tmp_path / "results"
    assert closing == [
        f"saltwm anatomy {results} salt lewm-history3 --out {tmp_path}/anatomy",
        f"saltwm report {results} --out {tmp_path}/report",
        f"saltwm results {results} --out {tmp_path}/results.md",
    ]
    assert "anatomy" not in " ".join(spell(verb) for verb in Reproduce("two-room", tmp_path, "quick").closing())


@pytest.mark.parametrize("preset", ["cpu", "full-size"])
def test_the_anatomy_is_of_methods_that_the_suites_evaluate(tmp_path, preset):
    reproduce = Reproduce("two-room", tmp_path, preset, source=tmp_path / "file.h5" if preset == "full-size" else None)
    for model in reproduce.models():
        write_run(tmp_path / "runs" / f"two-room-{model}", dataclasses.replace(SMALL, model=model))
    suites = [job for job in reproduce.of("two-room") if isinstance(job, Suite) and len(job.runs) == 2]
    anatomy = next(job for job in reproduce.closing() if isinstance(job, Anatomy))
    assert suites
    for suite in suites:
        assert {anatomy.a, anatomy.b} <= {method.method for method in suite._methods(WORLD)}


@dataclass(frozen=True)
class Step(Job):
    """A verb that does nothing, or is stopped where a file says so."""

    name: str
    stopper: Path

    VERB = "step"

    def do(self) -> None:
        if self.name == "train" and self.stopper.exists():
            raise KeyboardInterrupt


def test_a_stopped_reproduction_goes_on_to_its_report(tmp_path, monkeypatch):
    make_results(tmp_path / "results", ("two-room",), protocols=(CLEAN_PROTOCOL,), n=6, pictures=0)
    (tmp_path / "results" / "stages.json").unlink()
    stopper = tmp_path / "stop"
    stopper.touch()
    steps = [Step("collect", stopper), Step("train", stopper)]
    monkeypatch.setattr(Reproduce, "of", lambda self, environment: iter(steps))
    reproduce = Reproduce("two-room", tmp_path, "quick")
    with pytest.raises(KeyboardInterrupt):
        perform(reproduce)
    assert [(s.sessions, s.finished) for s in read_stages(tmp_path / "results")] == [(1, True), (1, False)]
    stopper.unlink()
    perform(reproduce)
    assert [(s.sessions, s.finished) for s in read_stages(tmp_path / "results")] == [(1, True), (2, True)]
    assert "How long it took" in (tmp_path / "report" / "index.html").read_text()
    assert "How long it took" in (tmp_path / "results.md").read_text()


def test_a_step_s_time_is_that_of_its_sessions_until_it_is_done(tmp_path, monkeypatch):
    clock = iter([0.0, 7.0, 100.0, 105.0, 200.0, 900.0])
    monkeypatch.setattr(story.time, "perf_counter", lambda: next(clock))
    with pytest.raises(KeyboardInterrupt), timed(tmp_path, "cube", "saltwm train"):
        raise KeyboardInterrupt
    with timed(tmp_path, "cube", "saltwm train"):
        (under_way,) = read_stages(tmp_path)
        assert (under_way.sessions, under_way.seconds, under_way.finished) == (2, 7.0, False)
    with timed(tmp_path, "cube", "saltwm train"):
        pass  # done before: nothing to time
    (stage,) = read_stages(tmp_path)
    assert (stage.seconds, stage.sessions, stage.finished) == (12.0, 2, True)


def test_a_reproduction_by_nobody_is_refused_with_nothing_written(tmp_path):
    with pytest.raises(UsageError, match="workers must be at least 1, found 0"):
        perform(Reproduce("two-room", tmp_path / "out", "quick", workers=0))
    assert not (tmp_path / "out").exists()


# --- the paper's size ------------------------------------------------------------------------------------------------


def test_the_papers_size_imports_the_public_file_and_asks_as_the_paper_does(tmp_path):
    verbs = spelled(Reproduce("push-t", tmp_path, "full-size", tmp_path / "pusht.h5.zst"), "push-t")
    in_order = " ".join(verb.split()[1] for verb in verbs)
    assert in_order == "data train train suite diagnose diagnose decode"
    assert verbs[0].startswith(f"saltwm data import {tmp_path}/pusht.h5.zst ")
    assert all(words in verbs[0] for words in ("--env push-t", f"--out {tmp_path}/data"))
    assert all("--preset full-size" in verb for verb in verbs[1:3])
    assert "--protocols paper --seeds 1 2 3 --history 3 --device auto --tasks 50" in verbs[3]
    assert verbs[-1].endswith("--decoder attention")


def test_the_papers_size_without_its_file_says_what_to_give(tmp_path):
    with pytest.raises(UsageError, match=r"give its file for reacher with --source FILE"):
        Reproduce("reacher", tmp_path, "full-size").environments()
    with pytest.raises(UsageError, match=r"unknown environment with public files 'all'"):
        Reproduce("all", tmp_path, "full-size", tmp_path / "file.h5").environments()
    with pytest.raises(UsageError, match=r"--source and --dry-run are for --preset full-size"):
        Reproduce("reacher", tmp_path, dry_run=True).environments()


@pytest.mark.full
def test_the_papers_size_runs_from_a_file_of_the_public_layout_to_its_report(tmp_path, capsys):
    """A dry run: two steps of both models at 224 px, one task, on a file that has the public layout."""
    ours = Collect("push-t", tmp_path / "ours", 24, image_size=224, workers=1).do()
    export_hdf5(ours, tmp_path / "pusht.h5")
    perform(Reproduce("push-t", tmp_path / "out", "full-size", tmp_path / "pusht.h5", dry_run=True, workers=1))
    said = capsys.readouterr().err
    assert "salt: " in said
    assert "steps of 128 windows; on " in said
    assert (tmp_path / "out" / "report" / "index.html").exists()
    assert {stage.finished for stage in read_stages(tmp_path / "out" / "results")} == {True}

"""A study trains what the paper varies, adopts what is there, and is read by the names that it gave."""

import dataclasses
import shlex
from pathlib import Path
from types import SimpleNamespace

import pytest

from saltwm import cli
from saltwm.cli.telling import perform
from saltwm.disk import checkpoint
from saltwm.disk.durable import read_config
from saltwm.disk.records import Evaluation
from saltwm.ground.errors import MismatchError, UsageError
from saltwm.jobs import presets, recipes, study
from saltwm.jobs.collect import Collect
from saltwm.jobs.job import spell
from saltwm.jobs.recipes import DATA, RUN, Recipe
from saltwm.jobs.study import PLANS, Asked, Plan, Study, Variant, same_training, steps
from saltwm.jobs.train import Train
from saltwm.report.studies import STUDIES
from saltwm.train import train

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("environment", ["two-room", "reacher", "push-t", "cube"])
@pytest.mark.parametrize("model", ["salt", "lewm"])
def test_the_shipped_models_are_what_studies_compare_with(environment, model):
    info = checkpoint.read_info(ROOT / "checkpoints" / f"{environment}-{model}")
    assert same_training(info.run, Variant(environment, model).config())
    assert not same_training(info.run, Variant(environment, model, seed=1).config())
    assert not same_training(info.run, Variant(environment, model, lambda_=0.1).config())


@pytest.mark.parametrize("variant", sorted({v for plan in PLANS.values() for v in plan.variants}, key=repr), ids=repr)
def test_the_command_of_a_variant_trains_its_config(variant):
    words = shlex.split(spell(variant.train(Path("data"), Path("run"))))
    assert same_training(cli.parse(words[1:]).config(), variant.config())


def test_variants_are_told_apart_by_their_names():
    variants = {v for plan in PLANS.values() for v in plan.variants}
    by_name = {}
    for variant in variants:
        other = by_name.setdefault((variant.environment, variant.name), variant)
        assert same_training(variant.config(), other.config())
    assert Variant("reacher", modes=0).name == "salt-modes0"
    assert Variant("two-room", "lewm", "rollout", starts=1, seed=2).method == "lewm-rollout-starts1-s2-history3"
    assert Variant("push-t", starts=1).name == "salt"  # the recipe's own


@pytest.mark.parametrize("name", sorted(set(PLANS) - {"efficiency"}))
def test_the_report_reads_the_names_that_a_study_gives(name):
    (read,) = (one for one in STUDIES if one.name == name)
    made = {(v.environment, v.method) for v in PLANS[name].variants}
    looked_for = {(e, arm.method) for e in read.environments for arm in read.arms(e)}
    of_one_frame = {(e, "lewm") for e in read.environments}  # the old cells, which stay shown
    assert made - of_one_frame == looked_for - of_one_frame
    assert read.protocol in {asked.protocol for asked in PLANS[name].asked}


# --- running one -----------------------------------------------------------------------------------------------------


@pytest.fixture
def small(monkeypatch, tmp_path, tiny):
    """A study of two variants that takes seconds, run in this process."""
    monkeypatch.chdir(tmp_path)
    config = dataclasses.replace(tiny, preset="cpu")
    monkeypatch.setitem(presets.PRESETS, "cpu", config)
    usual = Recipe(Collect("two-room", DATA, 30, image_size=16, frame_every=5), Train(DATA, RUN, steps=4), ())
    monkeypatch.setitem(recipes.RECIPES, ("cpu", "two-room"), usual)
    plan = Plan("nowhere", "anything?", (Variant("two-room"), Variant("two-room", modes=0)), (Asked(tasks=2),))
    monkeypatch.setitem(PLANS, "modulation", plan)
    ran = []

    def run(words, check):
        ran.append(words[3])
        perform(cli.parse(words[3:]))
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(study.subprocess, "run", run)
    return Study(
        "modulation", data=tmp_path / "data", out=tmp_path / "out", results=tmp_path / "results", workers=1
    ), ran


def test_a_study_runs_what_is_missing_and_nothing_twice(small, monkeypatch):
    job, ran = small
    commands = [step.job.VERB for step in steps(job)]
    assert commands == ["collect", *["train", "evaluate", "diagnose"] * 2]
    perform(job)
    assert sorted(ran) == sorted(commands)
    assert all(step.done for step in steps(job))
    ran.clear()
    perform(job)
    assert ran == []
    found = {p.parent.name for p in job.results.glob("evaluations/*/evaluation.json")}
    assert found == {"two-room-salt-clean-seed1", "two-room-salt-modes0-clean-seed1"}
    record = read_config(Evaluation, job.results / "evaluations/two-room-salt-modes0-clean-seed1/evaluation.json")
    assert record.variant.departures == ("R 0",)


def test_finished_runs_are_adopted_by_what_they_are_and_not_by_their_names(small, dataset, tmp_path):
    job, _ = small
    elsewhere = tmp_path / "elsewhere"
    train(Variant("two-room", modes=0).config(), dataset, elsewhere / "any-name")
    train(Variant("two-room", seed=7).config(), dataset, elsewhere / "two-room-salt")
    adopting = dataclasses.replace(job, runs=(elsewhere,))
    jobs = [step.job for step in steps(adopting)]
    assert [job.out.name for job in jobs if job.VERB == "train"] == ["two-room-salt"]
    evaluated = [job.run for job in jobs if job.VERB == "evaluate"]
    assert str(elsewhere / "any-name") in evaluated


def test_runs_of_two_datasets_are_no_study(dataset, run, monkeypatch):
    info = checkpoint.read_info(checkpoint.find_checkpoint(run))
    infos = {Path("a"): info, Path("b"): dataclasses.replace(info, dataset_sha256="f" * 64)}
    monkeypatch.setattr(study, "_read_info", lambda path, changed: infos[path])
    monkeypatch.setattr(study, "_newest", lambda path: 0.0)
    study._require_one_dataset({Variant("two-room"): Path("a"), Variant("reacher"): Path("b"), Variant("cube"): None})
    with pytest.raises(MismatchError, match=r"b: learnt from dataset ffffffffffff, a from .*one dataset"):
        study._require_one_dataset({Variant("two-room"): Path("a"), Variant("two-room", modes=0): Path("b")})


def test_a_command_that_fails_ends_the_study_with_its_exit_code(small, monkeypatch):
    job, _ = small
    monkeypatch.setattr(study.subprocess, "run", lambda words, check: SimpleNamespace(returncode=7))
    with pytest.raises(study.StudyFailedError, match="exit code 7 of: saltwm collect two-room") as error:
        perform(job)
    assert error.value.exit_code == 7


def test_an_unknown_study_or_environment_is_a_usage_error():
    with pytest.raises(UsageError, match="unknown study 'modulatoin'; did you mean 'modulation'"):
        steps(Study("modulatoin"))
    with pytest.raises(UsageError, match="unknown environment of study 'modulation' 'push-t'"):
        steps(Study("modulation", environments=("push-t",)))


def test_the_list_of_studies_says_what_each_costs_and_how_far_it_is(capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    perform(Study())
    said = capsys.readouterr().out
    assert all(name in said for name in PLANS)

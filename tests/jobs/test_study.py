"""A study trains what the paper varies, adopts what is there, and is read by the names that it gave."""

import contextlib
import dataclasses
import re
import shlex
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from tiny_dinov2 import save_tiny_dinov2

from saltwm import cli
from saltwm.cli.telling import perform
from saltwm.disk import checkpoint, durable
from saltwm.disk.durable import read_config
from saltwm.disk.lineage import Start
from saltwm.disk.records import Evaluation
from saltwm.evaluation import lineup, sweep
from saltwm.evaluation.protocols import PROTOCOLS
from saltwm.ground.errors import MismatchError, Stopped, UsageError
from saltwm.jobs import lanes, presets, recipes, study
from saltwm.jobs.collect import Collect
from saltwm.jobs.job import spell
from saltwm.jobs.recipes import DATA, RUN, Recipe
from saltwm.jobs.study import Study, same_training, steps
from saltwm.jobs.study_plans import PLANS, Asked, Plan, Variant
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


TRIED = {dataclasses.replace(v, scale=x) for plan in PLANS.values() for v in plan.swept for x in sweep.FACTORS}
VARIANTS = {v for plan in PLANS.values() for v in plan.variants if not v.needs_dino} | TRIED


@pytest.mark.parametrize("variant", sorted(VARIANTS, key=repr), ids=repr)
def test_the_command_of_a_variant_trains_its_config(variant):
    words = shlex.split(spell(variant.train(Path("data"), Path("run"))))
    assert same_training(cli.parse(words[1:]).config(), variant.config())


def test_variants_are_told_apart_by_their_names():
    by_name = {}
    for variant in VARIANTS:
        other = by_name.setdefault((variant.environment, variant.name), variant)
        assert same_training(variant.config(), other.config())
    assert Variant("reacher", modes=0).name == "salt-modes0"
    assert Variant("two-room", "lewm", "rollout", starts=1, seed=2).method == "lewm-rollout-starts1-s2-history3"
    assert Variant("push-t", starts=1).name == "salt"  # the recipe's own
    assert Variant("two-room", "lewm", "pldm", scale=3.0).name == "lewm-pldm-variance54"
    assert Variant("two-room", "lewm", "sub-jepa", scale=1 / 3).name == "lewm-sub-jepa-lambda0.1"


def test_dino_wm_is_a_variant_for_those_who_bring_its_weights(tmp_path):
    asked = {"name": "objectives", "environments": ("reacher",)}
    assert not any("dino-wm" in step.command for step in steps(Study(**asked)))
    save_tiny_dinov2(tmp_path / "weights")
    commands = [step.command for step in steps(Study(**asked, dino=tmp_path / "weights")) if "dino-wm" in step.command]
    assert [shlex.split(command)[1] for command in commands] == ["train", "evaluate", "diagnose", "card"]
    config = cli.parse(shlex.split(commands[0])[1:]).config()
    assert config.model.latent_dim == 4**2 * 12
    assert same_training(config, Variant("reacher", "dino-wm", dino=tmp_path / "weights").config())
    assert "--history 3 --method dino-wm-history3" in commands[1]


def test_the_list_of_studies_keeps_to_the_chosen_environments():
    named = {progress.name for progress in Study(environments=("push-t",)).do()}
    assert {"objective", "spectral"} <= named
    assert not {"modulation", "efficiency", "cube-double"} & named
    with pytest.raises(UsageError, match="of which study"):
        Study(dry_run=True).do()
    with pytest.raises(UsageError, match="'efficiency' is about none of them"):
        steps(Study("efficiency", environments=("push-t",)))


def test_a_stopped_study_goes_on_with_as_many_workers_as_it_was_given(monkeypatch):
    class Ends(SimpleNamespace):
        def start(self, *_):
            self.has_room = False

        def next_end(self):
            return "two-room-salt-train", 130

    @contextlib.contextmanager
    def ended(at_once, logs):
        yield Ends(running=[], has_room=True)

    monkeypatch.setattr(study, "lanes", ended)
    train = study.Step(study.Train(Path("data"), Path("run")), False, None, ("two-room", "salt"))
    monkeypatch.setattr(study, "steps", lambda job: [train])
    with pytest.raises(Stopped, match=r"saltwm study seeds --workers 16 --at-once 4$"):
        study.run_study(Study("seeds", workers=16, at_once=4))


def test_a_shipped_checkpoint_elsewhere_has_its_card(tmp_path):
    shutil.copytree("checkpoints/two-room-salt", tmp_path / "shelf" / "two-room-salt")
    job = Study(
        "lambda",
        environments=("two-room",),
        runs=(tmp_path / "shelf",),
        without_shipped=True,
        results=tmp_path / "results",
    )
    assert not any("shelf" in step.command for step in steps(job) if step.job.VERB == "card")


def test_every_method_gets_the_same_sweep():
    swept = PLANS["objectives"].swept
    for environment in sweep.ENVIRONMENTS:
        names = [v.name for v in swept if v.environment == environment]
        assert sorted(names) == sorted(["salt", "lewm", *(f"lewm-{name}" for name in lineup.OTHERS)])
    usual = Variant("reacher", "lewm", "smwm").config()
    for factor, weight in ((1 / 3, 1.67), (3.0, 15.0)):
        config = Variant("reacher", "lewm", "smwm", scale=factor).config()
        assert config.objective.weights == {"inverse": weight}
        assert dataclasses.replace(config, objective=usual.objective) == usual  # nothing but the weight


@pytest.mark.parametrize("name", sorted(set(PLANS) - {"efficiency"}))
def test_the_report_reads_the_names_that_a_study_gives(name):
    (read,) = (one for one in STUDIES if one.name == name)
    made = {(v.environment, v.method_by(one.planner(v))) for v in PLANS[name].variants for one in PLANS[name].asked}
    made = {(e, method) for e, method in made if not re.search(r"-prior\b", method)}  # columns, not rows
    looked_for = {(e, arm.method) for e in read.environments for arm in read.arms(e)}
    of_one_frame = {(e, "lewm") for e in read.environments}  # the old cells, which stay shown
    assert made - of_one_frame == looked_for - of_one_frame
    asked = [one for one in PLANS[name].asked if one.protocol == read.protocol]
    usual = PROTOCOLS[read.protocol].horizon_blocks
    assert {usual if h is None else h for one in asked for h in one.horizons} == set(read.horizons)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("lambda", lambda run: run.objective.sigreg_weight),
        ("dim", lambda run: run.model.latent_dim),
        ("rollout", lambda run: run.objective.rollout_steps),
    ],
)
def test_the_report_calls_an_arm_of_a_sweep_by_the_value_that_it_is_trained_with(name, value):
    (read,) = (one for one in STUDIES if one.name == name)
    for environment in read.environments:
        labels = {arm.method: arm.label for arm in read.arms(environment)}
        mine = [v for v in PLANS[name].variants if v.environment == environment]
        assert {v.method: f"{value(v.config()):g}" for v in mine} == labels


# --- running one -----------------------------------------------------------------------------------------------------


def ended(code):
    """A process that is over."""
    return SimpleNamespace(poll=lambda: code, terminate=lambda: None)


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

    def begin(words, **_):
        ran.append(words[3])
        perform(cli.parse(words[3:]))
        return ended(0)

    monkeypatch.setattr(lanes.subprocess, "Popen", begin)
    return Study(
        "modulation", data=tmp_path / "data", out=tmp_path / "out", results=tmp_path / "results", workers=1
    ), ran


def test_a_study_runs_what_is_missing_and_nothing_twice(small, monkeypatch):
    job, ran = small
    commands = [step.job.VERB for step in steps(job)]
    assert commands == ["collect", *["train", "evaluate", "diagnose", "card"] * 2]
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


@pytest.mark.parametrize("name", PLANS)
def test_no_two_steps_of_a_study_have_one_name(name, tmp_path):
    names = [step.name for step in steps(Study(name, results=tmp_path))]
    assert len(set(names)) == len(names)


def test_side_by_side_a_study_does_the_same(small):
    job, ran = small
    perform(dataclasses.replace(job, at_once=2))
    assert ran[:3] == ["collect", "train", "train"]
    assert sorted(ran[3:]) == ["card", "card", "diagnose", "diagnose", "evaluate", "evaluate"]
    assert all(step.done for step in steps(job))


def test_a_record_of_another_model_under_a_variant_s_name_is_refused_before_anything_is_trained(small):
    job, _ = small
    perform(job)
    path = job.results / "evaluations/two-room-salt-clean-seed1/evaluation.json"
    record = read_config(Evaluation, path)
    durable.write_config(path, dataclasses.replace(record, variant=None))  # of before there were variants
    assert all(step.done for step in steps(job))
    ablation = dataclasses.replace(record.variant, departures=("R 0",))
    durable.write_config(path, dataclasses.replace(record, variant=ablation))
    with pytest.raises(
        MismatchError, match=r"is of another model \(salt, seed 0, R 0\) than the study's salt; evaluate"
    ):
        steps(job)


def test_a_record_of_another_training_under_a_variant_s_name_is_refused(small, monkeypatch):
    job, _ = small
    perform(job)
    longer = recipes.RECIPES["cpu", "two-room"]._replace(train=Train(DATA, RUN, steps=5))
    monkeypatch.setitem(recipes.RECIPES, ("cpu", "two-room"), longer)
    with pytest.raises(MismatchError, match=r"is of a salt that was trained otherwise than the study's \(steps, "):
        steps(job)


def test_the_committed_records_are_of_the_recipe_s_trainings(monkeypatch):
    """The check above lets all of them pass, on the shipped models' data."""
    monkeypatch.chdir(ROOT)
    for name in PLANS:
        steps(Study(name, data=Path("nowhere"), out=Path("nowhere")))


def test_lewm_s_costs_are_those_of_plans_with_three_frames(monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    asked = {"environments": ("push-t",), "out": tmp_path, "data": tmp_path}
    (step,) = (s for s in steps(Study("spectral", **asked)) if s.record and "lewm-history3" in s.record.parent.name)
    assert step.seconds == read_config(Evaluation, step.record).seconds


def test_a_card_names_a_cell_and_not_one_that_begins_like_it():
    cell = "two-room-salt-long-seed1"
    assert study._names(f"| [{cell}](x) |", cell)
    assert not study._names(f"| [{cell}-h15](x) |", cell)


def test_a_variant_whose_records_are_there_is_not_trained_again(small, tmp_path):
    job, _ = small
    perform(job)
    shutil.rmtree(tmp_path / "out")
    shutil.rmtree(tmp_path / "data")
    assert [step for step in steps(job) if not step.done] == []
    shutil.rmtree(job.results / "diagnostics" / "two-room-salt-modes0")
    left = [step.job for step in steps(job) if not step.done]
    assert [job.VERB for job in left] == ["collect", "train", "diagnose"]  # its card is there
    assert left[1].out.name == "two-room-salt-modes0"


def test_a_run_that_is_still_there_gets_the_card_that_it_lacks(small, tmp_path):
    job, _ = small
    perform(job)
    card = job.results / "cards" / "two-room-salt-modes0.md"
    assert "# SALT on Two-Room, R 0" in card.read_text()
    card.unlink()
    assert [step.job.VERB for step in steps(job) if not step.done] == ["card"]
    card.write_text("# SALT on Two-Room, R 0, before it was evaluated")
    assert [step.job.VERB for step in steps(job) if not step.done] == ["card"]
    shutil.rmtree(tmp_path / "out")  # nothing is trained for a card alone
    assert [step for step in steps(job) if not step.done] == []


@pytest.fixture
def sweeping(small, monkeypatch, tmp_path):
    """A study of one variant and its sweep, evaluated on held-out data of its own."""
    job, ran = small
    plan = Plan("nowhere", "anything?", (Variant("two-room"),), (Asked(tasks=2),), swept=(Variant("two-room"),))
    monkeypatch.setitem(PLANS, "modulation", plan)
    monkeypatch.setattr(sweep, "TASKS", 2)
    held_out = Collect("two-room", tmp_path / "checkpoints" / "two-room-data", 10, image_size=16, frame_every=5)
    dataclasses.replace(held_out, held_out=True, workers=1).do()
    return job, ran


def test_a_sweep_tries_three_weights_and_evaluates_the_chosen_one(sweeping, monkeypatch):
    job, ran = sweeping
    perform(job)
    tried = ["train", "evaluate"] * 2 + ["evaluate"]
    assert sorted(ran) == sorted(["collect", "train", "evaluate", "diagnose", "card", *tried])
    tuned = {p.parent.name for p in (job.results / "tuning").glob("evaluations/*/evaluation.json")}
    assert tuned == {f"two-room-{name}-clean-seed7" for name in ("salt", "salt-lambda0.1", "salt-lambda0.9")}
    # The published weight is not evaluated twice; another that reaches more is, and nothing else is done.
    better = job.results / "tuning/evaluations/two-room-salt-lambda0.9-clean-seed7/evaluation.json"
    record = read_config(Evaluation, better)
    evaluated = read_config(Evaluation, job.results / "evaluations/two-room-salt-clean-seed1/evaluation.json")
    assert (record.planner["candidates"], evaluated.planner["candidates"]) == (100, 300)  # tuned with a smaller search
    winner = dataclasses.replace(record, success=dataclasses.replace(record.success, successes=99))
    durable.write_config(better, winner)
    left = [step.job for step in steps(job) if not step.done]
    assert [(left.VERB, Path(left.run).name) for left in left] == [
        ("evaluate", "two-room-salt-lambda0.9"),
        ("diagnose", "two-room-salt-lambda0.9"),
        ("card", "two-room-salt-lambda0.9"),
    ]


def test_a_variant_that_is_trained_again_for_its_sweep_keeps_the_card_of_the_run_that_was_evaluated(sweeping, tmp_path):
    job, _ = sweeping
    perform(job)
    card = job.results / "cards" / "two-room-salt.md"
    shutil.rmtree(tmp_path / "out" / "runs" / "two-room-salt")
    shutil.rmtree(job.results / "tuning" / "evaluations" / "two-room-salt-clean-seed7")
    (tmp_path / "out" / "runs" / "two-room-salt").mkdir()  # the run that is being trained has no checkpoint yet
    assert [step.job.VERB for step in steps(job) if not step.done] == ["train", "evaluate"]
    record = job.results / "evaluations/two-room-salt-clean-seed1/evaluation.json"
    durable.write_config(record, dataclasses.replace(read_config(Evaluation, record), checkpoint_sha256="0" * 64))
    card.unlink()
    perform(job)
    assert not card.exists()


def test_a_weight_whose_records_are_there_is_not_trained_again(sweeping, tmp_path):
    job, _ = sweeping
    perform(job)
    shutil.rmtree(tmp_path / "out")
    shutil.rmtree(tmp_path / "data")
    assert [step.command for step in steps(job) if not step.done] == []
    shutil.rmtree(job.results / "tuning/evaluations/two-room-salt-lambda0.9-clean-seed7")
    left = [step.job for step in steps(job) if not step.done]
    assert [job.VERB for job in left] == ["collect", "train", "evaluate"]
    assert left[1].out.name == "two-room-salt-lambda0.9"


def test_a_sweep_on_the_episodes_of_the_evaluation_is_refused(sweeping):
    job, _ = sweeping
    shutil.rmtree("checkpoints")  # the evaluation's tasks then come from the training set's held-out episodes, too
    with pytest.raises(MismatchError, match="have both tuning and evaluation tasks"):
        perform(job)


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


def test_a_run_that_started_from_another_s_weights_is_not_adopted(small, dataset, tmp_path):
    job, _ = small
    config, elsewhere = Variant("two-room", modes=0).config(), tmp_path / "elsewhere"
    train(config, dataset, tmp_path / "first")
    train(config, dataset, elsewhere / "second", start=Start(tmp_path / "first"))
    started = dataclasses.replace(job, runs=(elsewhere,))
    assert sum(step.job.VERB == "train" for step in steps(started)) == 2
    shutil.copytree(tmp_path / "first", elsewhere / "first")
    assert sum(step.job.VERB == "train" for step in steps(started)) == 1


def test_a_run_of_other_pictures_is_not_adopted(small, dataset, tmp_path):
    job, _ = small
    larger = Collect("two-room", tmp_path / "larger", 30, image_size=24, frame_every=5, workers=1).do()
    adopting = dataclasses.replace(job, runs=(tmp_path / "elsewhere",))
    for data, trainings in ((larger, 2), (dataset, 1)):  # the second is the control
        train(Variant("two-room", modes=0).config(), data, tmp_path / "elsewhere" / data.path.name)
        assert sum(step.job.VERB == "train" for step in steps(adopting)) == trainings


def test_runs_of_two_datasets_are_no_study(dataset, run, monkeypatch):
    info = checkpoint.read_info(checkpoint.find_checkpoint(run))
    infos = {Path("a"): info, Path("b"): dataclasses.replace(info, dataset_sha256="f" * 64)}
    monkeypatch.setattr(study, "_read_info", lambda path, changed: infos[path])
    monkeypatch.setattr(study, "_newest", lambda path: 0.0)
    apart = {Variant("two-room"): Path("a"), Variant("reacher"): Path("b"), Variant("cube"): None}
    study._require_one_dataset(apart, Path("nowhere"))
    with pytest.raises(MismatchError, match=r"b: dataset ffffffffffff, a: dataset .*one dataset"):
        study._require_one_dataset({Variant("two-room"): Path("a"), Variant("two-room", modes=0): Path("b")}, Path())


def test_other_data_are_refused_before_anything_is_trained(small, dataset, tmp_path):
    job, _ = small
    train(Variant("two-room").config(), dataset, tmp_path / "elsewhere" / "run")
    adopting = dataclasses.replace(job, runs=(tmp_path / "elsewhere",))
    shutil.copytree(dataset.path, tmp_path / "data" / "two-room")
    assert steps(adopting)
    shutil.rmtree(tmp_path / "data")
    Collect("two-room", tmp_path / "data" / "two-room", 4, image_size=16, frame_every=5, workers=1).do()
    with pytest.raises(MismatchError, match="a study compares runs of one dataset"):
        steps(adopting)


def test_without_shipped_models_other_data_are_no_mismatch_and_records_go_elsewhere(
    small, dataset, tmp_path, monkeypatch
):
    job, _ = small
    monkeypatch.setattr(study, "SHIPPED", tmp_path / "shipped")
    train(Variant("two-room").config(), dataset, tmp_path / "shipped" / "two-room-salt")
    Collect("two-room", tmp_path / "data" / "two-room", 4, image_size=16, frame_every=5, workers=1).do()
    with pytest.raises(MismatchError, match="--without-shipped"):
        steps(job)
    alone = dataclasses.replace(job, without_shipped=True)
    assert sum(step.job.VERB == "train" for step in steps(alone)) == 2
    monkeypatch.setattr(study, "RESULTS", job.results)
    with pytest.raises(UsageError, match="records of the shipped models"):
        perform(alone)


def test_a_command_that_fails_ends_the_study_with_its_exit_code(small, monkeypatch):
    job, _ = small
    monkeypatch.setattr(lanes.subprocess, "Popen", lambda words: ended(7))
    with pytest.raises(study.StudyFailedError, match="exit code 7 of: saltwm collect two-room") as error:
        perform(job)
    assert error.value.exit_code == 7


def test_a_command_that_is_stopped_stops_the_study_which_names_its_own_command(small, monkeypatch):
    job, _ = small
    monkeypatch.setattr(lanes.subprocess, "Popen", lambda words: ended(130))
    with pytest.raises(Stopped, match=f"Go on with: {re.escape(spell(job))}$") as error:
        perform(job)
    assert error.value.exit_code == 130


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

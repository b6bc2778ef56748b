"""Collections, evaluations and suites on a real Ray cluster of two nodes, one of which is killed while it works."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from ray_cluster import LOOPBACK, two_nodes

from saltwm.disk import durable
from saltwm.ground.errors import DamagedError, MismatchError, UsageError
from saltwm.ground.strict_json import to_plain
from saltwm.interop import on_ray
from saltwm.interop.on_ray import NodeActor, RayWorkers
from saltwm.jobs.chunks import Chunks
from saltwm.jobs.collect import Collect, Parts, prepare_sent
from saltwm.jobs.evaluate import Evaluate
from saltwm.jobs.study import Study, steps
from saltwm.jobs.suite import Suite
from saltwm.planning.names import planner_named

pytestmark = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="the extra ray is not installed")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with two_nodes(tmp_path_factory.mktemp("cluster") / "log") as nodes:
        yield nodes


def verb_on(cluster, *words):
    """The verb as typed, in a process of its own: Ray leaves threads and handlers in whoever connects."""
    return subprocess.Popen(
        [sys.executable, "-c", "from saltwm.cli import main; main()", *map(str, words), "--ray", cluster.address],
        env={**os.environ, **LOOPBACK},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def suite_on(cluster, dataset, out, *words):
    return verb_on(cluster, "suite", *words, "--data", dataset.path, "--out", out, "--protocols", "paper", "--json")


def records(results):
    """The bytes of every record that has no clock in it."""
    kept = ("episodes.jsonl", "actions.npy")
    return {path.relative_to(results): path.read_bytes() for path in results.rglob("*") if path.name in kept}


def test_a_killed_node_costs_a_retry_and_changes_no_byte(cluster, dataset, tmp_path):
    local = {"out": tmp_path / "local", "workers": 1, "pictures": 0, "protocols": ("paper",)}
    Suite((), (dataset.path,), seeds=(1, 2), tasks=50, **local).do()
    process = suite_on(cluster, dataset, tmp_path / "ray", "--seeds", "1", "2", "--tasks", "50", "--pictures", "0")
    halted = []
    while not cluster.second_works():
        assert process.poll() is None, process.communicate()
        halted += cluster.halt_first()
        time.sleep(0.005)
    cluster.kill_second()
    for pid in set(halted):
        os.kill(pid, signal.SIGCONT)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert "a worker on 127.0.0.1 was lost" in errors
    assert [row["n"] for row in json.loads(output)["rows"]] == [50, 50]
    assert len(records(tmp_path / "ray")) == 4
    assert records(tmp_path / "ray") == records(tmp_path / "local")


def test_a_checkpoint_travels_to_a_node_and_a_model_plans_there_as_here(cluster, dataset, run, tmp_path):
    words = ("--planners", "gauss-newton", "--tasks", "6", "--no-random", "--workers", "1", "--pictures", "0")
    process = suite_on(cluster, dataset, tmp_path / "ray", str(run), *words)
    local = {"out": tmp_path / "local", "workers": 1, "pictures": 0, "protocols": ("paper",)}
    Suite((run,), (dataset.path,), planners=(planner_named("gauss-newton"),), tasks=6, no_random=True, **local).do()
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert len(records(tmp_path / "ray")) == 2
    assert records(tmp_path / "ray") == records(tmp_path / "local")


def test_a_collection_has_the_same_bytes_on_a_cluster_and_grows_there(cluster, tmp_path):
    options = {"image_size": 16, "frame_every": 5, "episodes_per_part": 3, "workers": 1}
    Collect("two-room", tmp_path / "local", 8, **options).do()
    Collect("two-room", tmp_path / "local", 11, **options).do()
    words = ["--image-size", 16, "--frame-every", 5, "--episodes-per-part", 3, "--workers", 1, "--json"]
    for episodes in (8, 11):
        process = verb_on(cluster, "collect", "two-room", "--episodes", episodes, "--out", tmp_path / "ray", *words)
        output, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
        assert json.loads(output)["episodes"] == episodes
    here, there = (durable.file_hashes(tmp_path / name) for name in ("local", "ray"))
    assert len(here) > 20
    assert {name: entry for name, entry in here.items() if name != ".lock"} == {
        name: entry for name, entry in there.items() if name != ".lock"
    }


def test_an_evaluation_alone_runs_on_a_cluster_too(cluster, dataset, tmp_path):
    words = ("--data", dataset.path, "--protocol", "paper", "--tasks", 6, "--pictures", 0, "--workers", 1)
    process = verb_on(cluster, "evaluate", "random", *words, "--out", tmp_path / "ray")
    Evaluate("random", dataset.path, protocol="paper", tasks=6, pictures=0, workers=1, out=tmp_path / "local").do()
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert len(records(tmp_path / "ray")) == 2
    assert records(tmp_path / "ray") == records(tmp_path / "local")


# --- without a cluster -----------------------------------------------------------------------------------------------


def pool(address="127.0.0.1:1"):
    return RayWorkers(address, 1, Chunks(), item_seconds=60.0)


def test_without_ray_the_user_is_told_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match=r"pip install '\.\[ray\]'"):
        pool()


@pytest.mark.parametrize(
    ("address", "message"),
    [("127.0.0.1:1", "nobody answers there"), ("nowhere", "expected HOST:PORT"), ("a:99999", "nobody answers there")],
)
def test_an_address_without_a_cluster_is_refused_at_once(address, message):
    with pytest.raises(UsageError, match=message), pool(address):
        pass


def test_a_node_with_other_software_is_refused_by_name():
    other = {"node": "10.0.0.7", "software": {**on_ray.software(), "torch": "1.0"}}
    with pytest.raises(MismatchError, match=r"10.0.0.7: torch 1.0 there, 2.* here; install the same"):
        pool()._welcome(on_ray._Actor(None, None), other)
    same = {"node": "10.0.0.7", "software": on_ray.software()}
    pool()._welcome(on_ray._Actor(None, None), same)


def test_an_error_on_a_node_comes_back_as_its_kind_and_its_line(monkeypatch):
    monkeypatch.setattr(os, "environ", dict(os.environ))  # an actor's process is its own
    answer = NodeActor().run("chunk", {"method": "random"}, {}, 0)
    assert answer == {"error": "DamagedError", "message": "the job: run is missing"}


def test_a_study_hands_its_cluster_to_every_step_that_collects_or_evaluates(tmp_path):
    study = Study("horizon", tmp_path / "data", out=tmp_path / "out", results=tmp_path / "results", ray="10.0.0.5:6379")
    wanted = [step.job for step in steps(study) if step.job.VERB in ("collect", "evaluate")]
    assert wanted
    assert {job.ray for job in wanted} == {"10.0.0.5:6379"}
    assert not any("--ray" in step.command for step in steps(replace(study, ray=None)))


def test_a_part_made_elsewhere_has_the_bytes_of_one_made_here_and_leads_nowhere_else(dataset, tmp_path):
    parts = Parts(tmp_path, dataset.recipe)
    order, which = parts.order(2)
    parts.receive(2, prepare_sent(order, tmp_path)(which))
    assert durable.file_hashes(tmp_path / "part-00002") == durable.file_hashes(dataset.path / "part-00002")
    with pytest.raises(DamagedError, match="which leads elsewhere"):
        parts.receive(1, {"../../stolen": b"x"})
    assert not (tmp_path.parent / "stolen").exists()
    assert not (tmp_path / "part-00001").exists()


def test_a_node_that_draws_otherwise_is_refused_by_name(dataset):
    other = replace(dataset.recipe, world=replace(dataset.recipe.world, renderer="egl"))
    with pytest.raises(MismatchError, match="renderer: expected 'egl', found 'numpy'"):
        prepare_sent(to_plain(other), Path("unused"))

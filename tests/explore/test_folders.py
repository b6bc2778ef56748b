"""P30: only the given folders are read: no traversal, no link out, no pickle, whatever hostile folders say."""

import json
import shutil
import sys
from pathlib import Path

import pytest
from exploring import ROOT, SECRET
from hostile_files import edit_json, object_array

from saltwm.explore.desk import Desk
from saltwm.explore.folders import find_places, inside
from saltwm.explore.worker import answer
from saltwm.ground.errors import DamagedError, UsageError

sys.path.insert(0, str(Path(__file__).parents[1] / "promises"))
from test_report_is_inert import HOSTILE, QUICK, hostile_results

CELL = "two-room-salt-clean-seed1"


@pytest.fixture
def copied(results, tmp_path):
    """Results of one's own, beside a secret that is not part of them."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret.json").write_text(json.dumps(SECRET))
    return Path(shutil.copytree(results, tmp_path / "given/results"))


def asked(folder, ask, **options):
    return answer(Desk(find_places([folder])), ask, options)


def test_an_untouched_copy_is_shown(copied):
    """The control of those below."""
    shown = asked(copied, "episodes", results="results").header
    assert not shown["problems"]
    assert {cell["name"] for cell in shown["cells"]} == {CELL, "two-room-lewm-clean-seed1"}


@pytest.mark.parametrize(
    ("changed", "shown"),
    [({}, "cem"), ({"candidates": 64}, "cem,candidates=64"), ({"of_another_time": 1}, "cem")],
)
def test_a_recorded_planner_is_named_with_its_settings(copied, changed, shown):
    record = copied / "evaluations" / CELL / "evaluation.json"
    edit_json(record, lambda value: value["planner"].update(changed))
    cells = {cell["name"]: cell for cell in asked(copied, "episodes", results="results").header["cells"]}
    assert cells[CELL]["planner"] == shown


@pytest.mark.parametrize(
    "tasks_file", ["../../outside/secret.json", "/etc/passwd", "tasks/../../../outside/secret.json", "tasks\x00"]
)
def test_a_record_that_names_a_file_outside_is_refused(copied, tasks_file):
    edit_json(copied / "evaluations" / CELL / "evaluation.json", lambda value: value.update(tasks_file=tasks_file))
    found = asked(copied, "episode", results="results", cell=CELL, task=0)
    assert "outside" in found.header["error"] or "not there" in found.header["error"]
    assert SECRET not in json.dumps(found.header)


@pytest.mark.parametrize("name", ["evaluation.json", "episodes.jsonl", "actions.npy"])
def test_a_link_that_leads_outside_is_not_followed(copied, name):
    file = copied / "evaluations" / CELL / name
    shutil.move(file, copied.parents[1] / "outside" / name)
    file.symlink_to(copied.parents[1] / "outside" / name)
    assert "outside of it" in asked(copied, "episode", results="results", cell=CELL, task=0).header["error"]


def test_a_cell_or_a_folder_behind_a_link_is_not_listed(copied):
    outside = copied.parents[1] / "outside"
    shutil.move(copied / "evaluations" / CELL, outside / CELL)
    (copied / "evaluations" / CELL).symlink_to(outside / CELL)
    assert [cell["name"] for cell in asked(copied, "episodes", results="results").header["cells"]] == [
        "two-room-lewm-clean-seed1"
    ]
    shutil.move(copied / "evaluations", outside / "evaluations")
    (copied / "evaluations").symlink_to(outside / "evaluations")
    assert asked(copied, "episodes", results="results").header["cells"] == []


def test_pickled_actions_run_nothing(copied, tmp_path):
    object_array(tmp_path / "canary", copied / "evaluations" / CELL / "actions.npy")
    assert "error" in asked(copied, "episode", results="results", cell=CELL, task=0).header
    assert not (tmp_path / "canary").exists()


@pytest.mark.parametrize("kind", ["two-room-salt", "two-room-data"])
def test_checkpoints_and_datasets_with_links_are_refused(tmp_path, kind):
    given = shutil.copytree(ROOT / "checkpoints" / kind, tmp_path / kind)
    target = next(path for path in sorted(given.rglob("*")) if path.is_file() and path.name != "README.md")
    shutil.move(target, tmp_path / "moved")
    target.symlink_to(tmp_path / "moved")
    catalogue = asked(given, "catalogue").header
    (entry,) = catalogue["models"] + catalogue["datasets"]
    assert "is a link" in entry["problem"]


@pytest.mark.parametrize("name", QUICK)
def test_hostile_results_are_listed_or_named_as_problems(name, tmp_path):
    check_hostile(name, tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("name", [name for name in HOSTILE if name not in QUICK])
def test_every_hostile_results_folder_is(name, tmp_path):
    check_hostile(name, tmp_path)


def check_hostile(name, tmp_path):
    results = hostile_results(tmp_path / "results", name)
    found = asked(results, "episodes", results="results").header
    assert len(found["cells"]) + len(found["problems"]) == 2
    for cell in found["cells"]:
        assert "error" in asked(results, "episode", results="results", cell=cell["name"], task=0).header


@pytest.mark.parametrize("name", ["../results", "results/../..", "/", "", "two-room-salt"])
def test_things_are_named_by_their_names_alone(copied, name):
    assert "error" in asked(copied, "episodes", results=name).header
    assert "error" in asked(copied, "episode", results="results", cell=f"../{name}", task=0).header


def test_inside_lets_through_what_is_inside(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a/b").write_text("")
    assert inside(tmp_path, "a/b") == (tmp_path / "a/b").resolve()
    (tmp_path / "a/within").symlink_to(tmp_path / "a/b")
    assert inside(tmp_path, "a/within") == (tmp_path / "a/b").resolve()
    with pytest.raises(DamagedError, match="outside"):
        inside(tmp_path / "a", "..")


def test_a_folder_of_nothing_is_refused_with_what_to_do(tmp_path):
    with pytest.raises(UsageError, match="none is in it") as refused:
        find_places([tmp_path])
    assert refused.value.remedy == "reproduce"
    with pytest.raises(UsageError, match="no such folder"):
        find_places([tmp_path / "missing"])


def test_folders_of_one_name_get_names_of_their_own(tmp_path):
    for parent in ("a", "b", "c/b"):
        (tmp_path / parent / "results/evaluations").mkdir(parents=True)
    names = [place.name for place in find_places([tmp_path / p / "results" for p in ("a", "b", "c/b")])]
    assert names[:2] == ["results", "b/results"]
    assert len(set(names)) == 3

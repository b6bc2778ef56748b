"""What a page waits for is done once: one simulator for a world, one reading of a task set, one first look."""

import numpy as np
import pytest

from saltwm.disk.records import TaskSet
from saltwm.envs import mujoco_render, users
from saltwm.explore import browsing
from saltwm.explore import desk as desks
from saltwm.explore.desk import Desk
from saltwm.explore.worker import answer


@pytest.fixture
def fresh(desk):
    """The same places, nothing at hand yet."""
    return Desk(list(desk.places.values()))


def count(monkeypatch, owner, name):
    """Calls of a function from now on."""
    calls, real = [], getattr(owner, name)
    monkeypatch.setattr(owner, name, lambda *given, **options: calls.append(given) or real(*given, **options))
    return calls


def test_acting_and_browsing_share_one_simulator(fresh, monkeypatch):
    built = count(monkeypatch, desks, "make_env")
    assert "error" not in answer(fresh, "scene", {"model": "two-room-salt"}).header
    asked = {"results": "results", "cell": "two-room-salt-clean-seed1", "task": 0}
    assert "error" not in answer(fresh, "episode", asked).header
    assert len(built) == 1


def test_listing_records_looks_at_installed_packages_and_hashes_each_task_set_once(fresh, monkeypatch):
    packages = count(monkeypatch, users, "entry_points")
    browsing._read_tasks.cache_clear()
    hashed = []
    real = TaskSet.sha256.fget
    monkeypatch.setattr(TaskSet, "sha256", property(lambda tasks: hashed.append(tasks) or real(tasks)))
    found = answer(fresh, "episodes", {"results": "results"}).header
    assert len(found["cells"]) == 2
    assert packages == []  # Two-Room is the package's own
    assert len(hashed) <= 2  # when the file is read, and to compare; not once more for every cell


def test_a_foreign_environment_is_looked_for_once(fresh, monkeypatch):
    packages = count(monkeypatch, users, "entry_points")
    assert not any(fresh.has_simulator("nobody-has-this") for _ in range(5))
    assert len(packages) == 1


def test_the_first_look_is_made_in_an_idle_moment(fresh, monkeypatch):
    encoded = count(monkeypatch, fresh, "encode")
    assert not fresh.idle()
    answer(fresh, "scene", {"model": "two-room-salt"})
    assert encoded == []
    assert fresh.idle()
    assert len(encoded) == 1
    assert not fresh.idle()


def test_a_simulator_starts_while_the_browser_does(fresh, monkeypatch):
    built = count(monkeypatch, desks, "make_env")
    fresh.expect_first()
    assert built == []
    assert fresh.idle()
    assert len(built) == 1
    assert "error" not in answer(fresh, "scene", {"model": "two-room-salt"}).header
    assert len(built) == 1


def test_a_model_that_cannot_be_looked_with_ends_nothing(fresh, monkeypatch):
    monkeypatch.setattr(fresh, "encode", lambda *_: 1 / 0)
    fresh.expect_first()
    assert fresh.idle()
    assert not fresh.idle()  # it is tried once; whoever asks hears what is wrong


def test_ranks_are_alike_and_ordered_as_the_rows_are():
    rows = np.floor(np.random.default_rng(0).normal(0, 3, (400, 3)))
    ranked, sorted_rows = (
        np.unique(some, axis=axis, return_index=True, return_inverse=True)
        for some, axis in ((mujoco_render._ranks(rows), None), (rows, 0))
    )
    assert np.array_equal(ranked[1], sorted_rows[1])
    assert np.array_equal(ranked[2], sorted_rows[2].reshape(-1))

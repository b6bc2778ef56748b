"""Imported datasets: starts and goals are shown as the file shows them, not as we would draw them."""

import dataclasses

import h5py
import numpy as np
import pytest

from saltwm.disk.records import read_tasks
from saltwm.ground.errors import MismatchError
from saltwm.interop.hdf5 import export_hdf5, import_hdf5
from saltwm.jobs.chunks import surroundings
from saltwm.jobs.collect import Collect
from saltwm.jobs.evaluate import Evaluate, evaluate_policy, settle
from saltwm.planning.policy import Decision


class Watcher:
    """Stands still and remembers what it saw first."""

    window = 1

    def __init__(self):
        self.first = None

    def decide(self, view, keys):
        self.first = self.first or view
        return Decision(np.zeros((len(keys), 25, 2), np.float32), np.empty((len(keys), 0)))


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    """Two-Room as another renderer drew it: its colours are ours, inverted."""
    folder = tmp_path_factory.mktemp("imported")
    ours = Collect("two-room", folder / "ours", 6, image_size=16, workers=1, episodes_per_part=6).do()
    export_hdf5(ours, folder / "file.h5")
    with h5py.File(folder / "file.h5", "r+") as file:
        file["pixels"][...] = 255 - file["pixels"][...]
    return import_hdf5(folder / "file.h5", "two-room", folder / "imported")


def test_starts_and_goals_are_the_files_own_frames(imported, tmp_path):
    watcher, options = Watcher(), {"protocol": "paper", "tasks": 3, "pictures": 1}
    job = Evaluate("own", data=imported.path, method="watcher", out=tmp_path, **options)
    evaluation = evaluate_policy(watcher, job)
    tasks = read_tasks(tmp_path / evaluation.tasks_file).tasks
    episodes = np.array([task.episode for task in tasks])
    starts = np.array([task.start_step for task in tasks])
    np.testing.assert_array_equal(watcher.first.frames[:, 0], imported.read_frames(episodes, starts))
    np.testing.assert_array_equal(watcher.first.goals, imported.read_frames(episodes, starts + 25))


def test_another_dataset_than_the_tasks_own_is_refused(imported, dataset, tmp_path):
    job = settle(Evaluate("random", data=imported.path, protocol="paper", tasks=3), tmp_path).job
    elsewhere = dataclasses.replace(job, data=dataset.path)
    with pytest.raises(MismatchError, match="not the dataset that the tasks"):
        surroundings(elsewhere, read_tasks(tmp_path / "tasks" / "two-room-paper-seed1.json"))


def test_frozen_tasks_of_imported_pictures_are_shown_with_their_dataset(imported, tmp_path):
    chosen = settle(Evaluate("random", data=imported.path, protocol="paper", tasks=3), tmp_path)
    frozen = Evaluate("random", data=imported.path, task_set=chosen.job.task_set, out=tmp_path)
    assert settle(frozen, tmp_path) == chosen._replace(job=dataclasses.replace(chosen.job, out=tmp_path))

"""P28: what was not synced may be lost, nothing else.

`Disk` watches every `fsync` of this process. At each durable step it makes two images of what a power cut would leave:
one in which only synced directory entries exist, and one in which every rename has reached the disk but the bytes that
were not synced have not: files are torn in half. Each image must hold the old state or the new one.
"""

import dataclasses
import os
import shutil

import pytest
from small_datasets import make_episode, make_recipe

import saltwm
from saltwm.disk import checkpoint, durable, layout
from saltwm.disk import dataset_writer as parts
from saltwm.disk.dataset import Dataset
from saltwm.disk.records import read_cells
from saltwm.ground.config import CEMConfig, PriorConfig
from saltwm.interop.hdf5 import export_hdf5, import_hdf5
from saltwm.jobs.collect import Collect
from saltwm.jobs.evaluate import Evaluate
from saltwm.jobs.prior_learner import learn_prior
from saltwm.jobs.shipment import ship
from saltwm.planning.prior_files import load_prior
from saltwm.train import train


class Disk:
    """The images that power cuts would leave of `root`."""

    def __init__(self, root, store, monkeypatch):
        self.root, self.store = root, store
        self.synced, self.entries, self.images, self._kept = {}, {}, [], []
        self._fsync = os.fsync
        self._note_all()
        monkeypatch.setattr(os, "fsync", self._synced)
        monkeypatch.setattr(durable, "_before_step", lambda step, path: self.cut(step))

    def _note_all(self):
        """What is there at the start is on the disk."""
        for folder, _, names in os.walk(self.root):
            self._note(folder)
            for name in names:
                self._note(os.path.join(folder, name))

    def _note(self, path):
        inode = os.stat(path).st_ino
        if inode not in self.synced and inode not in self.entries:
            self._kept.append(os.open(path, os.O_PATH))  # so that its number is not given to another file
        if os.path.isdir(path):
            self.entries[inode] = {entry.name: entry.inode() for entry in os.scandir(path)}
        else:
            with open(path, "rb") as file:
                self.synced[inode] = file.read()

    def close(self):
        for descriptor in self._kept:
            os.close(descriptor)

    def _synced(self, descriptor):
        self._fsync(descriptor)
        self._note(os.readlink(f"/proc/self/fd/{descriptor}"))

    def cut(self, step):
        """The two images of this moment."""
        for kind, copy in (("entries", self._copy_synced), ("renames", self._copy_all)):
            image = self.store / f"{len(self.images):04d}-{step}-{kind}"
            copy(self.root if copy == self._copy_all else os.stat(self.root).st_ino, image)
            self.images.append(image)

    def _copy_synced(self, folder, image):
        """What the synced directories list, with the synced bytes."""
        image.mkdir(parents=True)
        for name, inode in self.entries.get(folder, {}).items():
            if inode in self.entries:
                self._copy_synced(inode, image / name)
            else:
                (image / name).write_bytes(self.synced.get(inode, b""))

    def _copy_all(self, folder, image):
        """What is listed now, with bytes torn where they are not synced."""
        image.mkdir(parents=True)
        for entry in folder.iterdir():
            if entry.is_dir():
                self._copy_all(entry, image / entry.name)
            else:
                (image / entry.name).write_bytes(self._left_of(entry))

    def _left_of(self, file):
        """The synced bytes, and half of those that were appended or written since."""
        now, synced = file.read_bytes(), self.synced.get(file.stat().st_ino, b"")
        if now == synced:
            return now
        return now[: (len(synced) + len(now)) // 2] if now.startswith(synced) else now[: len(now) // 2]


@pytest.fixture
def disk(tmp_path, monkeypatch):
    made = []

    def of(root):
        root.mkdir(parents=True, exist_ok=True)
        made.append(Disk(root, tmp_path / "images", monkeypatch))
        return made[-1]

    yield of
    for one in made:
        one.close()


def test_a_file_is_the_old_one_or_the_new_one(disk, tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    (root / "file").write_bytes(b"old" * 100)
    made = disk(root)
    durable.write_bytes(root / "file", b"new" * 50)
    made.cut("end")
    found = [(image / "file").read_bytes() for image in made.images]
    assert set(found) == {b"old" * 100, b"new" * 50}
    assert found[-1] == b"new" * 50


def test_a_published_directory_is_whole_or_absent(disk, tmp_path):
    made = disk(tmp_path / "root")
    with durable.publish_directory(tmp_path / "root" / "d") as folder:
        (folder / "deep").mkdir()
        (folder / "deep" / "a").write_bytes(b"alpha" * 1000)
    made.cut("end")
    whole = [image for image in made.images if (image / "d").exists()]
    for image in whole:
        durable.verify_directory(image / "d")
    assert made.images[-1] in whole
    assert made.images[-2] in whole


def test_a_new_folder_is_on_the_disk_with_those_above_it(disk, tmp_path):
    made = disk(tmp_path / "root")
    place = tmp_path / "root" / "deep" / "deeper"
    durable.make_folder(place)
    durable.write_bytes(place / "file", b"saved")
    made.cut("end")
    for image in made.images[-2:]:
        assert (image / "deep" / "deeper" / "file").read_bytes() == b"saved"


def test_the_simulation_tears_what_is_not_synced(disk, tmp_path):
    """The control: a writer that does not sync is found out."""
    made = disk(tmp_path / "root")
    (tmp_path / "root" / ".new").write_bytes(b"new" * 50)
    os.replace(tmp_path / "root" / ".new", tmp_path / "root" / "file")
    made.cut("end")
    entries, renames = made.images
    assert not (entries / "file").exists()
    assert (renames / "file").read_bytes() == (b"new" * 50)[:75]


def test_every_power_cut_of_a_collection_leaves_parts_that_are_whole(disk, tmp_path):
    recipe, root = make_recipe(episodes=4, episodes_per_part=2), tmp_path / "data"
    made = disk(root)
    with durable.only_writer(root, "collect"):
        parts.start(root, recipe)
        for part in range(recipe.parts):
            parts.write_part(root, recipe, part, [make_episode(i, recipe) for i in recipe.part_episodes(part)])
        parts.finish(root, recipe)
    made.cut("end")
    for image in made.images:
        for part in image.glob("part-*"):
            durable.verify_directory(part)
        if (image / layout.ROOT_FILE).exists():
            assert len(list(image.glob("part-*"))) == recipe.parts
        for leftover in image.glob(f"{durable.TMP_PREFIX}*"):
            shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
        if (image / layout.ROOT_FILE).exists():
            assert Dataset.open(image).sha256 == Dataset.open(root).sha256
    assert sum((image / layout.ROOT_FILE).exists() for image in made.images) >= 2


def test_every_power_cut_of_a_training_leaves_a_run_that_goes_on_to_the_same_metrics(disk, tiny, dataset, tmp_path):
    made = disk(tmp_path / "run")
    train(tiny, dataset, tmp_path / "run")
    made.cut("end")
    metrics = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    steps = []
    for image in made.images:
        saved = checkpoint.list_checkpoints(image)
        for path in saved:
            checkpoint.verify(path)
        # A checkpoint never outlives the measurements that led to it.
        newest = checkpoint.read_info(saved[-1]).step if saved else 0
        known = durable.read_json_lines(image / "metrics.jsonl") if (image / "metrics.jsonl").exists() else []
        assert len([row for row in known if row["step"] <= newest]) == sum(
            f'"step": {step},' in line for line in metrics for step in range(1, newest + 1)
        )
        steps.append(newest)
    assert steps[-1] == steps[-2] == 6
    unfinished = next(image for image, step in zip(made.images, steps, strict=True) if step == 4)
    train(tiny, dataset, unfinished)
    assert (unfinished / "metrics.jsonl").read_text().splitlines() == metrics


def test_every_power_cut_of_a_shipment_leaves_the_old_one_or_the_new_one(disk, run, tmp_path):
    root = tmp_path / "shelf"
    root.mkdir()
    ship(run, root / "model")
    made = disk(root)
    ship(run, root / "model", "full")
    made.cut("end")
    for image in made.images:
        with durable.only_replacer(image / "model", "ship"):  # brings back what a cut between two moves set aside
            pass
        saltwm.load(image / "model")


def test_every_power_cut_of_learning_a_prior_leaves_none_or_a_whole_one_and_goes_on_to_the_same_bytes(
    disk, run, dataset, tmp_path
):
    config = PriorConfig(width=16, depth=2, batch_size=32, steps=6, save_every=2)
    shutil.copytree(run, tmp_path / "run")
    made = disk(tmp_path / "run")
    learn_prior(tmp_path / "run", dataset, config)
    made.cut("end")
    whole = [image for image in made.images if (image / "prior").exists()]
    for image in whole:
        load_prior(image)
    assert made.images[-1] in whole
    assert made.images[-2] in whole
    before = [image for image in made.images if image not in whole]
    for image in before[:: len(before) // 4]:
        learn_prior(image, dataset, config)
        for file in (tmp_path / "run" / "prior").iterdir():
            assert (image / "prior" / file.name).read_bytes() == file.read_bytes()


def test_every_power_cut_of_an_evaluation_leaves_records_that_count_what_they_hold(disk, run, dataset, tmp_path):
    made = disk(tmp_path / "results")
    planner = CEMConfig(candidates=8, iterations=2, elites=4)
    asked = Evaluate(str(run), data=dataset.path, protocol="paper", tasks=4, planner=planner, workers=1, pictures=0)
    found = dataclasses.replace(asked, out=tmp_path / "results").do()
    made.cut("end")
    counted = [image for image in made.images if list(image.glob("evaluations/*/evaluation.json"))]
    for image in counted:
        (cell,) = read_cells(image)
        assert cell.evaluation.success == found.success
    assert made.images[-1] in counted
    unfinished = next(image for image in made.images if image not in counted and (image / "evaluations").exists())
    assert dataclasses.replace(asked, out=unfinished).do().success == found.success


def test_every_power_cut_of_an_import_leaves_nothing_or_a_dataset_that_is_whole(disk, tmp_path):
    recorded = tmp_path / "rooms.h5"
    export_hdf5(Collect("two-room", tmp_path / "rooms", 3, image_size=16, workers=1).do(), recorded)
    made = disk(tmp_path / "data")
    whole = import_hdf5(recorded, "two-room", tmp_path / "data")
    made.cut("end")
    opened = [image for image in made.images if (image / layout.ROOT_FILE).exists()]
    for image in opened:
        assert Dataset.open(image).sha256 == whole.sha256
    assert made.images[-1] in opened
    unfinished = [image for image in made.images if image not in opened and list(image.glob("part-*"))]
    assert import_hdf5(recorded, "two-room", unfinished[-1]).sha256 == whole.sha256


@pytest.mark.parametrize("sabotage", ["copy instead of rename", "file not synced"])
def test_a_writer_that_cuts_corners_is_found_out(disk, tmp_path, monkeypatch, sabotage):
    root = tmp_path / "root"
    root.mkdir()
    (root / "file").write_bytes(b"old" * 100)
    if sabotage == "copy instead of rename":
        monkeypatch.setattr(durable.os, "replace", lambda a, b: (shutil.copyfile(a, b), os.unlink(a)))
    else:
        monkeypatch.setattr(durable, "sync_file", lambda path: None)
    made = disk(root)
    durable.write_bytes(root / "file", b"new" * 50)
    made.cut("end")
    found = {(image / "file").read_bytes() for image in made.images if (image / "file").exists()}
    assert not found <= {b"old" * 100, b"new" * 50}

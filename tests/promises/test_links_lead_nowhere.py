"""P24: nothing in a folder leads a writer out of it. P29: a removed or replaced lock admits no second writer."""

import os
import shutil
import subprocess
import sys

import pytest

from saltwm.disk import durable
from saltwm.disk.journal import Journal
from saltwm.ground.errors import DamagedError, LockedError, SaltError
from saltwm.jobs.shipment import ship
from saltwm.train import train

VICTIM = "what must not change"


@pytest.fixture
def victim(tmp_path):
    path = tmp_path / "elsewhere" / "victim"
    path.parent.mkdir()
    path.write_text(VICTIM)
    return path


def as_symlink(place, victim):
    place.symlink_to(victim)


def as_dangling_symlink(place, victim):
    place.symlink_to(victim.with_name("new"))


def as_hard_link(place, victim):
    os.link(victim, place)


def as_pipe(place, victim):
    os.mkfifo(place)


def as_folder(place, victim):
    place.mkdir()


PLANTS = [as_symlink, as_dangling_symlink, as_hard_link, as_pipe, as_folder]


@pytest.mark.parametrize("plant", PLANTS)
@pytest.mark.parametrize("kind", ["writer", "replacer"])
def test_a_lock_that_is_not_a_plain_file_is_refused_and_nothing_outside_is_touched(tmp_path, victim, kind, plant):
    folder = tmp_path / "folder"
    folder.mkdir()
    plant(folder / ".lock" if kind == "writer" else tmp_path / ".folder.lock", victim)
    hold = durable.only_writer if kind == "writer" else durable.only_replacer
    with pytest.raises(DamagedError, match=r"lock: a link, a pipe, a folder"), hold(folder, "train"):
        pass
    assert [path.name for path in victim.parent.iterdir()] == ["victim"]
    assert victim.read_text() == VICTIM


def test_a_plain_lock_of_an_earlier_writer_is_taken(tmp_path):
    """The control: what is refused above is refused for being a link."""
    (tmp_path / ".lock").write_text("saltwm train (process 7)")
    with durable.only_writer(tmp_path, "collect"):
        assert "saltwm collect" in (tmp_path / ".lock").read_text()


@pytest.mark.parametrize("plant", PLANTS)
def test_a_journal_is_appended_only_to_a_plain_file(tmp_path, victim, plant):
    plant(tmp_path / "metrics.jsonl", victim)
    with pytest.raises(DamagedError, match=r"metrics\.jsonl: a link, a pipe"):
        durable.append_json_line(tmp_path / "metrics.jsonl", {"step": 1})
    assert [path.name for path in victim.parent.iterdir()] == ["victim"]
    assert victim.read_text() == VICTIM


@pytest.mark.parametrize("name", [".lock", "run.json", "metrics.jsonl", "timing.jsonl", "checkpoints", "step"])
@pytest.mark.parametrize("kind", ["file", "folder"])
def test_training_writes_through_no_link(tiny, dataset, tmp_path, victim, name, kind):
    run, before = tmp_path / "run", durable.file_hashes(victim.parent)
    (run / "checkpoints").mkdir(parents=True)
    place = run / "checkpoints" / "step-000002" if name == "step" else run / name
    if name == "checkpoints":
        place.rmdir()
    place.symlink_to(victim if kind == "file" else victim.parent)
    try:
        train(tiny, dataset, run)
    except SaltError as error:
        assert error.exit_code in (2, 5, 6)  # noqa: PT017
    assert durable.file_hashes(victim.parent) == before


def test_shipping_follows_no_planted_lock(run, tmp_path, victim):
    (tmp_path / ".model.lock").symlink_to(victim)
    with pytest.raises(DamagedError, match=r"\.model\.lock: a link"):
        ship(run, tmp_path / "model")
    assert victim.read_text() == VICTIM


def test_a_temporary_name_cannot_be_guessed(tmp_path):
    names = {durable.temporary_beside(tmp_path / "x").name for _ in range(100)}
    assert len(names) == 100
    assert not any(str(os.getpid()) in name.split("-")[1] for name in names)


def test_only_what_saltwm_made_counts_as_a_leftover(tmp_path, victim):
    mine = ["my-notes", ".tmp-my-notes", ".tmp-123-notes", ".tmp-saltwm-notes", ".tmp-saltwm-123-notes"]
    for name in mine:
        (tmp_path / name).write_text("mine")
    made = durable.temporary_beside(tmp_path / "weights")
    made.mkdir()
    (made / "link").symlink_to(victim.parent)
    durable.temporary_beside(tmp_path / "linked").symlink_to(victim.parent)
    with durable.only_writer(tmp_path, "train"):
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*mine, ".lock", "elsewhere"])
    assert victim.read_text() == VICTIM


# --- P29 -------------------------------------------------------------------------------------------------------------

HOLD = """
import sys
from pathlib import Path
from saltwm.disk import durable
with durable.only_writer(Path(sys.argv[1]), "train"):
    print("held", flush=True)
    sys.stdin.readline()
    durable.write_text(Path(sys.argv[1]) / "saved", "by the first")
"""


def remove(folder):
    (folder / ".lock").unlink()


def replace(folder):
    (folder / ".new").write_text("")
    os.replace(folder / ".new", folder / ".lock")


def replace_by_copy(folder):
    shutil.copy(folder / ".lock", folder / ".copy")
    os.replace(folder / ".copy", folder / ".lock")


@pytest.mark.parametrize("meddle", [remove, replace, replace_by_copy])
def test_who_removes_or_replaces_a_lock_lets_no_second_writer_in(tmp_path, meddle):
    folder = tmp_path / "run"
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout.readline() == b"held\n"
        meddle(folder)
        with pytest.raises(LockedError, match="in use by"), durable.only_writer(folder, "train"):
            pass
        holder.communicate(b"go on\n", timeout=20)
    assert holder.returncode == 0
    assert (folder / "saved").read_text() == "by the first"
    with durable.only_writer(folder, "train"):  # it is free again
        pass


def test_a_writer_whose_folder_was_replaced_stops_before_its_next_save(tmp_path):
    folder = tmp_path / "run"
    with durable.only_writer(folder, "train"):
        durable.write_text(folder / "first", "saved")
        folder.rename(tmp_path / "moved")
        folder.mkdir()  # by a second writer, which holds its own lock there
        for write in (
            lambda: durable.write_text(folder / "second", "lost"),
            lambda: durable.append_json_line(folder / "metrics.jsonl", {}),
            lambda: Journal(folder, 0, 1),
        ):
            with pytest.raises(LockedError, match="removed or replaced"):
                write()
    assert list(folder.iterdir()) == []


def test_a_replacer_whose_lock_was_taken_stops_before_it_publishes(tmp_path):
    model = tmp_path / "model"

    def publish():
        with durable.only_replacer(model, "ship"), durable.publish_directory(model, replace=True) as directory:
            (directory / "weights").write_text("of the first")
            subprocess.run([sys.executable, "-c", SHIP, str(model)], check=True)

    with pytest.raises(LockedError, match="removed or replaced"):
        publish()
    assert (model / "weights").read_text() == "of the second"


SHIP = """
import sys
from pathlib import Path
from saltwm.disk import durable
model = Path(sys.argv[1])
(model.parent / ".model.lock").unlink()
with durable.only_replacer(model, "ship"), durable.publish_directory(model, replace=True) as directory:
    (directory / "weights").write_text("of the second")
"""

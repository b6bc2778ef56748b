"""P04, P08 and P09 of docs/promises.md: killed collections, damaged datasets, bad values."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from processes import group_members, wait_until_gone, workers_of

from saltwm.data.windows import Windows
from saltwm.disk import durable
from saltwm.disk.dataset import Dataset
from saltwm.ground.errors import DamagedError, SaltError
from saltwm.jobs.collect import Collect

PROGRAM = """
import sys
from pathlib import Path
from saltwm.jobs.collect import Collect
from saltwm.ground.errors import SaltError
if __name__ == "__main__":
    try:
        path, episodes, per_part, name = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
        Collect(name, path, episodes, image_size=16, frame_every=5, episodes_per_part=per_part, workers=2).do()
    except SaltError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
"""


def start(program, path, episodes, per_part, name="two-room"):
    """The collector as a user's process, in a process group of its own."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(program), str(path), str(episodes), str(per_part), name]
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True)


def content(path):
    return {name: entry for name, entry in durable.file_hashes(path).items() if name != ".lock"}


@pytest.fixture
def program(tmp_path):
    file = tmp_path / "collector.py"
    file.write_text(PROGRAM)
    return file


def kill_often(program, path, episodes, per_part, kills, name, seconds, begin=shutil.rmtree):
    """Kill the collector `kills` times while it works, then let it finish; `begin` puts back what it starts from."""
    chance, hits = random.Random(0), 0
    while hits < kills:
        process = start(program, path, episodes, per_part, name)
        # Anything from the imports to several parts into the work.
        time.sleep(chance.uniform(0.3, seconds))
        if process.poll() is not None:
            process.stderr.close()
            begin(path)  # it finished first: begin again, there are kills left
            continue
        victims = [process.pid] if hits % 2 else group_members(process.pid)
        os.kill(chance.choice(victims), signal.SIGKILL)
        process.wait(timeout=600)  # a collector that loses a worker goes on to its end
        process.stderr.close()
        assert not wait_until_gone(process.pid), "a worker outlived its collector"
        hits += 1
    process = start(program, path, episodes, per_part, name)
    _, err = process.communicate(timeout=600)
    assert process.returncode == 0, err


def in_full(*values):
    return pytest.param(*values, marks=[pytest.mark.full, pytest.mark.timeout(1800)])


# Episodes, kills, and the seconds within which a kill comes: simulators take a while before their first part.
KILLED = [
    ("two-room", 60, 3, 2.5),
    in_full("two-room", 200, 50, 2.5),
    in_full("push-t", 40, 8, 6),
    in_full("reacher", 40, 8, 6),
    in_full("cube", 8, 5, 20),
    in_full("cube-double", 8, 5, 20),
]


@pytest.mark.parametrize(("name", "episodes", "kills", "seconds"), KILLED)
def test_p04_a_killed_collection_ends_with_the_same_bytes_as_an_undisturbed_one(
    tmp_path, program, name, episodes, kills, seconds
):
    per_part = 4 if episodes > 10 else 2
    kill_often(program, tmp_path / "killed", episodes, per_part, kills, name, seconds)
    options = {"image_size": 16, "frame_every": 5, "episodes_per_part": per_part, "workers": 1}
    calm = Collect(name, tmp_path / "calm", episodes, **options).do()
    assert content(tmp_path / "killed") == content(calm.path)
    assert len(Dataset.open(tmp_path / "killed")) == episodes


@pytest.mark.parametrize(("episodes", "kills"), [(60, 3), in_full(200, 30)])
def test_p04_a_killed_growth_ends_with_the_same_bytes_as_an_undisturbed_one(tmp_path, program, episodes, kills):
    options = {"image_size": 16, "frame_every": 5, "episodes_per_part": 4, "workers": 1}
    small = Collect("two-room", tmp_path / "small", 10, **options).do()

    def begin(path):
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(small.path, path)

    for name in ("killed", "calm"):
        begin(tmp_path / name)
    kill_often(program, tmp_path / "killed", episodes, 4, kills, "two-room", 2.5, begin)
    calm = Collect("two-room", tmp_path / "calm", episodes, **options).do()
    assert content(tmp_path / "killed") == content(calm.path)
    assert [was.sha256 for was in Dataset.open(tmp_path / "killed").lineage] == [small.sha256]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_collection_says_how_to_go_on_and_leaves_nobody_behind(tmp_path, program, number):
    path = tmp_path / "data"
    process = start(program, path, 4000, 4)
    while not list(path.glob("part-*")):
        time.sleep(0.05)
        assert process.poll() is None, process.stderr.read()
    # Ctrl-C reaches the whole group of a terminal; a supervisor's SIGTERM only the collector.
    (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 128 + number
    assert "stopped; what is complete is kept, the same command goes on" in err
    assert "Traceback" not in err
    assert not wait_until_gone(process.pid)
    assert not list(path.glob(".tmp-*"))


def test_a_dead_worker_costs_a_retry_and_no_episode(tmp_path, program):
    path = tmp_path / "data"
    process = start(program, path, 400, 4)
    while not list(path.glob("part-*")):
        time.sleep(0.05)
        assert process.poll() is None, process.stderr.read()
    os.kill(workers_of(process.pid)[0], signal.SIGKILL)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert len(Dataset.open(path, verify="full")) == 400
    assert not wait_until_gone(process.pid)


# --- damage ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    path = tmp_path_factory.mktemp("sound") / "data"
    return Collect("two-room", path, 6, image_size=16, episodes_per_part=2, workers=1).do()


def files_of(path):
    return sorted(file for file in path.rglob("*") if file.is_file() and file.name != ".lock")


def truncate(path, chance):
    file = chance.choice(files_of(path))
    os.truncate(file, chance.randrange(file.stat().st_size))


def flip_a_bit(path, chance):
    file = chance.choice(files_of(path))
    data = bytearray(file.read_bytes())
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    file.write_bytes(bytes(data))


def append_a_byte(path, chance):
    file = chance.choice(files_of(path))
    file.write_bytes(file.read_bytes() + bytes([chance.randrange(256)]))


def remove_a_file(path, chance):
    chance.choice(files_of(path)).unlink()


def remove_a_part(path, chance):
    shutil.rmtree(chance.choice(sorted(path.glob("part-*"))))


def swap_two_files(path, chance):
    parts = sorted(path.glob("part-*"))
    name = chance.choice([file.relative_to(parts[0]) for file in files_of(parts[0])])
    one, two = chance.sample(parts, 2)
    first, second = (one / name).read_bytes(), (two / name).read_bytes()
    if first == second:
        return flip_a_bit(path, chance)
    (one / name).write_bytes(second)
    (two / name).write_bytes(first)
    return None


def add_a_file(path, chance):
    place = chance.choice([path, *sorted(path.glob("part-*")), *sorted(path.glob("part-*/*"))])
    target = place if place.is_dir() else place.parent
    (target / f"stray-{chance.randrange(10)}").write_text("x")


def link_out(path, chance):
    """A file that is a link to an identical one outside the folder."""
    file = chance.choice(files_of(path))
    outside = path.parent / f"outside-{chance.randrange(10**9)}"
    shutil.move(file, outside)
    file.symlink_to(outside)


def link_a_manifest_out(path, chance):
    """The one file that no manifest lists."""
    manifest = chance.choice(sorted(path.glob("part-*"))) / "manifest.json"
    outside = path.parent / f"outside-{chance.randrange(10**9)}"
    shutil.move(manifest, outside)
    manifest.symlink_to(outside)


def link_a_part_out(path, chance):
    part = chance.choice(sorted(path.glob("part-*")))
    outside = path.parent / f"outside-{chance.randrange(10**9)}"
    shutil.move(part, outside)
    part.symlink_to(outside, target_is_directory=True)


def escape_by_manifest(path, chance):
    manifest = chance.choice(sorted(path.glob("part-*"))) / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"actions/zarr.json"', '"../../outside.json"'))


DAMAGES = (
    truncate,
    flip_a_bit,
    append_a_byte,
    remove_a_file,
    remove_a_part,
    swap_two_files,
    add_a_file,
    link_out,
    link_a_manifest_out,
    link_a_part_out,
    escape_by_manifest,
)


@pytest.mark.parametrize("rounds", [4, pytest.param(50, marks=pytest.mark.full)])
@pytest.mark.parametrize("damage", DAMAGES)
def test_p08_a_damaged_dataset_is_refused_before_use_and_a_sound_one_never(sound, tmp_path, damage, rounds):
    for index in range(rounds):
        copy = tmp_path / f"copy-{index}"
        shutil.copytree(sound.path, copy)
        assert Dataset.open(copy).sha256 == sound.sha256
        damage(copy, random.Random(index))
        with pytest.raises(SaltError, match=str(tmp_path)):
            Dataset.open(copy)


def test_p08_a_dataset_damaged_after_opening_gives_no_wrong_frame(sound, tmp_path):
    """Each frame has its own checksum: what is read is right or refused, at any later time."""
    copy = tmp_path / "copy"
    shutil.copytree(sound.path, copy)
    shard = next(f for f in (copy / "part-00001" / "frames" / "c").rglob("*") if f.is_file())
    whole, refused = shard.read_bytes(), 0
    episodes, steps = np.full(20, 2), np.arange(20)
    expected = sound.read_frames(episodes, steps)
    for index in range(20):
        dataset = Dataset.open(copy, verify="sizes")
        data = bytearray(whole)
        data[random.Random(index).randrange(len(data))] ^= 0x10
        shard.write_bytes(bytes(data))
        try:
            assert np.array_equal(dataset.read_frames(episodes, steps), expected)
        except DamagedError:
            refused += 1
        shard.write_bytes(whole)
    assert refused > 0


def test_p08_windows_are_made_of_a_verified_dataset_only(sound, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(sound.path, copy)
    assert len(Windows(Dataset.open(copy), frames=3, frameskip=5)) > 0
    flip_a_bit(copy, random.Random(1))
    with pytest.raises(SaltError):
        Windows(Dataset.open(copy), frames=3, frameskip=5)

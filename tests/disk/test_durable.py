"""Durable files: whole or absent, hashed, one writer at a time, clear errors."""

import contextlib
import errno
import json
import os
import socket
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saltwm.disk import durable
from saltwm.ground.errors import DamagedError, DiskError, LockedError, UsageError

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=50, deadline=None)
@given(PLAIN)
def test_json_comes_back_as_it_was_written(tmp_path_factory, value):
    path = tmp_path_factory.mktemp("json") / "value.json"
    durable.write_json(path, value)
    assert durable.read_json(path) == value


@pytest.mark.parametrize(
    "text",
    ['{"a": NaN}', '{"a": 1, "a": 2}', '{"a": Infinity}', '{"a": 1e999}', "[-1e400]", "{", "", "\x00", "[" * 100_000],
)
def test_anything_but_strict_json_is_damage(tmp_path, text):
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(DamagedError, match=r"bad\.json"):
        durable.read_json(path)


def test_non_finite_numbers_are_not_written(tmp_path):
    with pytest.raises(ValueError, match="JSON compliant"):
        durable.write_json(tmp_path / "x.json", {"a": float("nan")})
    assert list(tmp_path.iterdir()) == []


def test_a_missing_file_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match="no such file"):
        durable.read_json(tmp_path / "nothing.json")


@pytest.mark.timeout(20)
@pytest.mark.parametrize("read", [durable.read_json, durable.read_json_lines, durable.sha256])
def test_a_pipe_or_a_device_is_refused_and_not_waited_for(tmp_path, read):
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "device.json").symlink_to("/dev/zero")
    for name in ("pipe.json", "device.json"):
        with pytest.raises(DamagedError, match=rf"{name}: is a pipe or a device, expected a file"):
            read(tmp_path / name)
    with contextlib.chdir(tmp_path), socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket.json")  # by its short name: a socket's address has room for a hundred bytes
    with pytest.raises(DamagedError, match=r"socket\.json: is a socket, expected a file"):
        read(tmp_path / "socket.json")


def test_a_file_lies_inside_unless_a_link_or_its_name_leads_out(tmp_path):
    root = tmp_path / "root"
    (root / "deep").mkdir(parents=True)
    (root / "file").write_text("here")
    (tmp_path / "secret").write_text("there")
    (root / "deep" / "alias").symlink_to("../file")
    for path in (root / "file", root / "deep" / "alias", root / "deep" / ".." / "file"):
        assert durable.inside(root, path) == path
    (root / "out").symlink_to(tmp_path / "secret")
    (root / "folder").symlink_to(tmp_path)
    for path in (root / "out", root / "folder" / "secret", root / ".." / "secret"):
        with pytest.raises(DamagedError, match=rf"{path.name}: leads out of .*root, .* put the file itself there"):
            durable.inside(root, path)
    (root / "circle").symlink_to("circle")
    for path in (root / "circle", root / "nothing", root / "nul\0"):
        with pytest.raises(DamagedError, match="leads to nothing"):
            durable.inside(root, path)


def test_a_file_beyond_the_budget_is_refused_before_it_is_read(tmp_path):
    """One of holes alone takes no room on the disk, and none in an archive."""
    with open(tmp_path / "holes.json", "wb") as file:
        file.truncate(2**40)
    with pytest.raises(DamagedError, match=r"holes\.json: the file would take 1.02e\+03 GB.* set SALTWM_BUDGET_GB"):
        durable.read_json(tmp_path / "holes.json")


def test_a_place_where_no_file_can_be_is_a_usage_error(tmp_path):
    (tmp_path / "file").write_text("kept")
    for path, why in (
        (tmp_path / "file" / "x.json", "no folder .*file"),
        (tmp_path / "nowhere" / "x.json", "no folder .*nowhere"),
        (tmp_path, "is a directory"),
    ):
        with pytest.raises(UsageError, match=why):
            durable.write_json(path, {})
    with pytest.raises(UsageError, match="no such file"):
        durable.read_json(tmp_path / "file" / "x.json")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_a_file_in_the_place_of_a_folder_is_a_usage_error_and_stays(tmp_path, place):
    (tmp_path / "file").write_text("kept")
    with pytest.raises(UsageError, match="there is a file"), durable.only_writer(tmp_path / place, "train"):
        pass
    for hold in (
        durable.publish_directory(tmp_path / place / "d"),
        durable.only_replacer(tmp_path / place / "d", "ship"),
    ):
        with pytest.raises(UsageError, match="there is a file"), hold:
            pass
    assert (tmp_path / "file").read_text() == "kept"


def test_a_write_without_permission_is_a_disk_error(tmp_path, monkeypatch):
    def denied(descriptor):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "fsync", denied)
    with pytest.raises(DiskError, match="file: cannot write 3 bytes: Permission denied"):
        durable.write_bytes(tmp_path / "file", b"new")


def test_a_crash_before_any_step_leaves_the_old_file_or_the_new_one(tmp_path, monkeypatch):
    path = tmp_path / "file"
    steps = []
    monkeypatch.setattr(durable, "_before_step", lambda step, _: steps.append(step))
    durable.write_bytes(path, b"old")
    for crash_at in range(len(steps)):
        seen = []

        def crash(step, _, seen=seen, crash_at=crash_at):
            seen.append(step)
            if len(seen) == crash_at + 1:
                raise KeyboardInterrupt

        monkeypatch.setattr(durable, "_before_step", crash)
        with pytest.raises(KeyboardInterrupt):
            durable.write_bytes(path, b"new")
        assert path.read_bytes() == b"old"
        assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_a_full_disk_is_said_with_path_and_bytes_and_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "file"
    durable.write_bytes(path, b"old")

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DiskError, match=r"file: cannot write 3 bytes: No space left"):
        durable.write_bytes(path, b"new")
    assert path.read_bytes() == b"old"
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def publish(path):
    with durable.publish_directory(path) as directory:
        (directory / "a").write_bytes(b"alpha")
        (directory / "deep").mkdir()
        (directory / "deep" / "b").write_bytes(b"beta" * 100)


def test_a_published_directory_is_whole_and_verifies(tmp_path):
    publish(tmp_path / "d")
    durable.verify_directory(tmp_path / "d")


def test_a_publication_that_fails_leaves_nothing(tmp_path):
    def fail():
        with durable.publish_directory(tmp_path / "d") as directory:
            (directory / "a").write_bytes(b"alpha")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert list(tmp_path.iterdir()) == []


def damage_missing(d):
    (d / "a").unlink()


def damage_extra(d):
    (d / "c").write_bytes(b"")


def damage_truncated(d):
    (d / "deep" / "b").write_bytes(b"beta" * 99)


def damage_flipped(d):
    data = bytearray((d / "deep" / "b").read_bytes())
    data[7] ^= 1
    (d / "deep" / "b").write_bytes(data)


def damage_swapped(d):
    (d / "a").write_bytes((d / "deep" / "b").read_bytes())


def damage_manifest(d):
    (d / "manifest.json").write_text(json.dumps({"a": 3}))


def damage_link(d):
    (d / "a").unlink()
    (d / "a").symlink_to("/etc/hostname")


@pytest.mark.parametrize(
    "damage",
    [damage_missing, damage_extra, damage_truncated, damage_flipped, damage_swapped, damage_manifest, damage_link],
)
def test_every_kind_of_damage_is_found(tmp_path, damage):
    publish(tmp_path / "d")
    damage(tmp_path / "d")
    with pytest.raises(DamagedError):
        durable.verify_directory(tmp_path / "d")


def test_a_half_written_last_line_is_left_out_and_earlier_damage_is_an_error(tmp_path):
    path = tmp_path / "log.jsonl"
    durable.append_json_line(path, {"step": 1})
    durable.append_json_line(path, {"step": 2})
    with open(path, "a") as file:
        file.write('{"step": 3')
    assert durable.read_json_lines(path) == [{"step": 1}, {"step": 2}]
    path.write_text('{"step"\n{"step": 2}\n')
    with pytest.raises(DamagedError, match="line 1"):
        durable.read_json_lines(path)


HOLD = """
import sys, time
from pathlib import Path
from saltwm.disk import durable
with durable.only_writer(Path(sys.argv[1]), "train"):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_second_writer_is_refused_and_a_killed_one_leaves_no_lock(tmp_path):
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE)
    try:
        assert holder.stdout.readline() == b"held\n"
        with (
            pytest.raises(LockedError, match=f"saltwm train .process {holder.pid}"),
            durable.only_writer(tmp_path, "train"),
        ):
            pass
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()
    (tmp_path / f".tmp-saltwm-{'1' * 16}-half").write_text("left by the dead")
    with durable.only_writer(tmp_path, "train"):
        assert not (tmp_path / f".tmp-saltwm-{'1' * 16}-half").exists()


def test_the_right_to_replace_a_directory_is_one_process_s_and_its_lock_does_not_stay(tmp_path):
    (tmp_path / f".tmp-saltwm-{'1' * 16}-neighbour").mkdir()
    with durable.only_replacer(tmp_path / "d", "ship"):
        with pytest.raises(LockedError, match="saltwm ship"), durable.only_replacer(tmp_path / "d", "ship"):
            pass
        with durable.only_replacer(tmp_path / "e", "ship"):  # another one beside it
            pass
    assert [path.name for path in tmp_path.iterdir()] == [f".tmp-saltwm-{'1' * 16}-neighbour"]


def test_a_lock_whose_file_its_holder_removed_is_not_held(tmp_path, monkeypatch):
    """Opened before the last holder removed it, locked after: another process may hold the next file by now."""
    real = durable.fcntl.flock

    def removed_meanwhile(file, how):
        (tmp_path / ".d.lock").unlink()
        real(file, how)

    monkeypatch.setattr(durable.fcntl, "flock", removed_meanwhile)
    with pytest.raises(LockedError, match="repeat"), durable.only_replacer(tmp_path / "d", "ship"):
        pass

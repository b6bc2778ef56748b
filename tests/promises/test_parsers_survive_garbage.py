"""P14: whatever stands in a file, its parser answers with a SaltError or a valid result, and at once.

Where hashes protect a file they are made to fit again, so that it is the parser that is tried.
"""

import json
import random
import shutil
import struct
import time

import pytest
from outside_files import KINDS, STEP, Kind, refusal_of, write_all

from saltwm.ground.errors import SaltError

QUICK, FULL = 60, 2000

# --- mutations ------------------------------------------------------------------------------------------------------

ODD_VALUES = (
    *(None, True, False, 0, -1, 1, 7, 2**31, 2**63, 10**30, -(10**400)),
    *(0.5, -0.0, 1e308, 5e-324, "", "salt", "../../etc/passwd", "\x00", "\ud800", "é" * 3000),
    *([], {}, [[]], {"": None}, [1] * 1000, {"_target_": "os.system"}, {"a": {"a": {"a": {}}}}),
)
RAW_VALUES = ("NaN", "Infinity", "-Infinity", "1e999", "01", '"\\u12"', "[" * 3000, '{"a":' * 990 + "1" + "}" * 990, "")


def mutate_bytes(data, rng):
    """One of the ways in which disks, transfers and editors break files."""
    data = bytearray(data)
    start = rng.randrange(len(data) + 1)
    stop = min(len(data), start + rng.choice((1, 4, 64, 5000)))
    kind = rng.randrange(7)
    if kind == 0:
        for _ in range(rng.choice((1, 3, 30))):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif kind == 1:
        del data[start:]
    elif kind == 2:
        del data[start:stop]
    elif kind == 3:
        data[start:start] = rng.randbytes(rng.choice((1, 8, 200)))
    elif kind == 4:
        data[start:start] = data[start:stop]
    elif kind == 5:
        data[start:stop] = bytes(stop - start)
    else:
        data = bytearray(rng.randbytes(rng.choice((0, 1, 8, 1000))))
    return bytes(data)


def mutate_json(value, rng):
    """The text of a JSON value with one place in it changed, lost, added or doubled."""
    places = list(_places(value))
    holder, key = rng.choice(places)
    kind = rng.randrange(5)
    if kind == 0:
        del holder[key]
    elif kind == 1 and isinstance(holder, dict):
        holder[rng.choice(("", "_target_", "extra", str(key).upper()))] = rng.choice(ODD_VALUES)
    elif kind == 2:
        other, place = rng.choice(places)
        holder[key] = json.loads(json.dumps(other[place]))
    elif kind == 3:
        holder[key] = "@raw@"
        return json.dumps(value).replace('"@raw@"', rng.choice(RAW_VALUES))
    else:
        holder[key] = rng.choice(ODD_VALUES)
    return json.dumps(value)


def _places(value):
    """(container, key) of every value below this one."""
    for key, child in list(value.items() if isinstance(value, dict) else enumerate(value)):
        yield value, key
        if isinstance(child, dict | list):
            yield from _places(child)


def mutate_json_file(data, rng):
    if rng.random() < 0.4:
        return mutate_bytes(data, rng)
    return mutate_json(json.loads(data), rng).encode()


def mutate_json_lines(data, rng):
    lines = data.decode().splitlines()
    if rng.random() < 0.4:
        return mutate_bytes(data, rng)
    number = rng.randrange(len(lines))
    lines[number] = mutate_json(json.loads(lines[number]), rng)
    return ("\n".join(lines) + "\n").encode()


def mutate_safetensors(data, rng):
    """Bytes, the length of the header, or one place in the header."""
    length = struct.unpack("<Q", data[:8])[0]
    kind = rng.randrange(3)
    if kind == 0:
        return mutate_bytes(data, rng)
    if kind == 1:
        return struct.pack("<Q", rng.choice((0, 1, length - 1, length + 1, 2**40, 2**64 - 1))) + data[8:]
    header = mutate_json(json.loads(data[8 : 8 + length]), rng).encode()
    return struct.pack("<Q", len(header)) + header + data[8 + length :]


# --- kinds of file --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """One valid file of each kind, in the place where its reader looks for it."""
    folder = tmp_path_factory.mktemp("files")
    write_all(folder)
    return folder


MUTATED = {
    "run.json": mutate_json_file,
    "checkpoint.json": mutate_json_file,
    "manifest.json": mutate_json_file,
    "weights.safetensors": mutate_safetensors,
    "prior.json": mutate_json_file,
    "tasks.json": mutate_json_file,
    "evaluation.json": mutate_json_file,
    "episodes.jsonl": mutate_json_lines,
    "job.json": mutate_json_file,
    "config.json": mutate_json_file,
    "zarr.json": mutate_json_file,
    "take.csv": mutate_bytes,
    "info.json": mutate_json_file,
    "rows.parquet": mutate_bytes,
    "episodes.parquet": mutate_bytes,
}


def try_mutations(kind, count, files, tmp_path):
    """The number of mutations that were refused; any other exception, or a second of work, fails the test."""
    name, mutate, read = KINDS[kind].file, MUTATED[kind], KINDS[kind].read
    folder = tmp_path / "files"
    shutil.copytree(files, folder)
    original = (folder / name).read_bytes()
    read(folder)  # unharmed, it is read
    refused = 0
    for number in range(count):
        (folder / name).write_bytes(mutate(original, random.Random(f"{kind} {number}")))
        started = time.process_time()
        refusal = refusal_of(read, folder, f"{kind}: mutation {number}")
        assert time.process_time() - started < 1, f"{kind}: mutation {number} took too long"
        assert "\n" not in refusal, f"{kind}: mutation {number}: more than one line: {refusal}"
        refused += bool(refusal)
    return refused


@pytest.mark.parametrize("kind", MUTATED)
def test_mutated_files_are_refused_or_valid_and_never_hang(kind, files, tmp_path):
    assert try_mutations(kind, QUICK, files, tmp_path) > QUICK // 4  # the mutations do bite


@pytest.mark.full
@pytest.mark.parametrize("kind", MUTATED)
def test_two_thousand_mutations_of_each_kind(kind, files, tmp_path):
    assert try_mutations(kind, FULL, files, tmp_path) > FULL // 4


def test_a_reader_that_trusts_its_file_does_not_survive(files, tmp_path, monkeypatch):
    """The control: the same mutations, read by code that takes the file at its word."""

    def trusting(folder):
        info = json.loads((folder / "run" / "run.json").read_text())
        return info["run"]["model"]["encoder"]["width"] // info["run"]["model"]["encoder"]["heads"]

    monkeypatch.setitem(KINDS, "run.json", Kind("run/run.json", trusting))
    with pytest.raises(AssertionError, match=r"run.json: mutation \d+ escaped"):
        try_mutations("run.json", QUICK, files, tmp_path)


@pytest.mark.parametrize("place", ["run.model.latent_dim", "run.model.frameskip", "world.action_dim"])
def test_a_checkpoint_of_no_size_is_refused_in_one_line(place, files, tmp_path):
    folder = shutil.copytree(files, tmp_path / "files")
    file = folder / STEP / "checkpoint.json"
    value = json.loads(file.read_text())
    *way, last = place.split(".")
    inner = value
    for name in way:
        inner = inner[name]
    inner[last] = 0
    file.write_text(json.dumps(value))
    with pytest.raises(SaltError):
        KINDS["checkpoint.json"].read(folder)

"""What a Parquet file declares is what pyarrow says of a sound one, and a damaged footer is one line."""

import random
from pathlib import Path

import pyarrow
import pytest
from outside_files import refusal_of
from pyarrow import parquet

from saltwm.ground.errors import DamagedError
from saltwm.interop.parquet_footer import Declared, declared


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Numbers, lists, structs, texts and values of one length, in three row groups."""
    table = pyarrow.table(
        {
            "number": [1, 2, 3, 4, 5],
            "list": [[1.0] * count for count in (0, 1, 2, 3, 4)],
            "picture": [{"bytes": b"x" * 20, "path": "a"}] * 5,
            "flag": [True, False, None, True, False],
            "fixed": pyarrow.array([b"12345678"] * 5, pyarrow.binary(8)),
        }
    )
    parquet.write_table(table, tmp_path / "file.parquet", row_group_size=2)
    return tmp_path / "file.parquet"


def test_it_declares_what_pyarrow_says(file: Path) -> None:
    metadata = parquet.ParquetFile(file).metadata
    groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
    assert len(groups) == 3
    values = sum(group.column(place).num_values for group in groups for place in range(group.num_columns))
    assert values == 5 * 5 + 11  # the empty list counts as a value
    size = sum(group.total_byte_size for group in groups)
    assert declared(file) == Declared(5, values, size, wide_bytes=5 * 8)


def test_a_damaged_footer_is_one_line(file: Path) -> None:
    whole, refused = file.read_bytes(), 0
    for number in range(300):
        rng, data = random.Random(number), bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(len(data) // 2, len(data))] = rng.randrange(256)
        file.write_bytes(bytes(data))
        refused += bool(said := refusal_of(declared, file, f"damage {number}"))
        assert "\n" not in said
    assert refused > 50


@pytest.mark.parametrize(
    ("footer", "said"),
    [
        (b"", "IndexError"),
        (b"\x19\xfc" + b"\xff" * 12, "a number without an end"),
        (b"\x19\xf3" + b"\xff" * 8 + b"\x01", "IndexError"),  # a list of countless bytes
        (b"\x18\xff\xff\xff\x7f", "bytes beyond its end"),
        (b"\x1c" * 5000, "RecursionError"),
        (b"\x1d", "unknown kind 13"),
        (b"\x00", "KeyError"),
    ],
)
def test_an_absurd_footer_is_refused(tmp_path: Path, footer: bytes, said: str) -> None:
    file = tmp_path / "absurd.parquet"
    file.write_bytes(b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1")
    with pytest.raises(DamagedError, match=rf"absurd\.parquet: not a readable Parquet file .*{said}"):
        declared(file)


@pytest.mark.parametrize("data", [b"", b"PAR1", b"PAR1\xff\xff\xff\xffPAR1", b"PAR1\x00\x00\x00\x00PARE"])
def test_what_is_no_parquet_file_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "none").write_bytes(data)
    with pytest.raises(DamagedError, match=r"none: not a readable Parquet file"):
        declared(tmp_path / "none")

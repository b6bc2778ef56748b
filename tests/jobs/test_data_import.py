"""Options of an import that would be left unread are refused."""

from pathlib import Path
from typing import Any

import pytest

from saltwm.ground.errors import UsageError
from saltwm.jobs.data import DataImport


@pytest.mark.parametrize("option", [{"camera": "top"}, {"fit": "crop"}, {"frame_every": 5}, {"append": True}])
def test_what_is_for_recordings_is_refused_beside_a_benchmark_file(tmp_path: Path, option: dict[str, Any]) -> None:
    (tmp_path / "two_room.h5").write_bytes(b"not read yet")
    (name,) = option
    with pytest.raises(UsageError, match=f"--{name.replace('_', '-')}"):
        DataImport(tmp_path / "two_room.h5", tmp_path / "data", "two-room", **option).do()
    assert not (tmp_path / "data").exists()


def test_pictures_of_no_pixels_are_refused_in_recordings_and_benchmark_files(tmp_path: Path) -> None:
    (tmp_path / "two_room.h5").write_bytes(b"not read yet")
    for file in (tmp_path, tmp_path / "two_room.h5"):
        with pytest.raises(UsageError, match="image_size must be at least 1, found 0"):
            DataImport(file, tmp_path / "data", "two-room", image_size=0).do()

"""Small datasets for this room's tests."""

import pytest
from small_datasets import make_recipe, write_dataset

from saltwm.disk.dataset import Dataset


@pytest.fixture
def make_dataset(tmp_path):
    """make_dataset(...) -> (Dataset, its episodes)"""
    count = iter(range(1000))

    def make(lengths=None, **options):
        path = tmp_path / f"data-{next(count)}"
        if lengths is not None:
            options["episodes"] = len(lengths)
        episodes = write_dataset(path, make_recipe(**options), lengths)
        return Dataset.open(path), episodes

    return make

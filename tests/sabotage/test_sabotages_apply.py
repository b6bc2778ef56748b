"""A sabotage that no longer finds its line proves nothing: each must fit the code of today in exactly one place."""

import runpy
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SABOTAGES = runpy.run_path(str(HERE / "sabotages.py"))["SABOTAGES"]


def test_each_sabotage_has_a_name_of_its_own():
    assert len({sabotage.name for sabotage in SABOTAGES}) == len(SABOTAGES)


@pytest.mark.parametrize("sabotage", SABOTAGES, ids=lambda sabotage: sabotage.name)
def test_a_sabotage_fits_one_place_and_names_tests_that_exist(sabotage):
    text = (HERE.parents[1] / "saltwm" / sabotage.file).read_text()
    assert text.count(sabotage.old) == 1
    assert sabotage.new != sabotage.old
    assert (HERE.parents[1] / sabotage.tests.split()[0].split("::")[0]).exists()

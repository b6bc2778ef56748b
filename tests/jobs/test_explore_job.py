"""Which folders the explorer opens for the words that it is given."""

import pytest

from saltwm.ground.errors import UsageError
from saltwm.jobs import explore
from saltwm.jobs.explore import folders_of


def test_an_environment_is_looked_for_on_the_shelf_wherever_the_package_has_it(tmp_path, monkeypatch):
    installed = tmp_path / "site-packages" / "saltwm" / "shipped"
    names = ("two-room-salt", "two-room-lewm", "two-room-salt-two-stage", "two-room-data")
    for name in names:
        (installed / name).mkdir(parents=True)
        if name != "two-room-data":
            (installed / name / "shipment.json").touch()
    monkeypatch.setattr(explore, "shelf_folder", lambda: installed)
    assert folders_of(("two-room",)) == folders_of(("TwoRoom",)) == [installed / name for name in names]
    with pytest.raises(UsageError, match=f"nothing is shipped for reacher under {installed}"):
        folders_of(("reacher",))

"""What a node of a cluster says of its software, where not every package is there."""

from importlib.metadata import PackageNotFoundError

import pytest

from saltwm.interop import on_ray


def test_a_node_without_simulators_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    real = on_ray.version

    def without_simulators(name: str) -> str:
        if name in ("pymunk", "mujoco"):
            raise PackageNotFoundError(name)
        return real(name)

    whole = on_ray.software()
    monkeypatch.setattr(on_ray, "version", without_simulators)
    found = on_ray.software()
    assert {name for name in whole if whole[name] != found[name]} == {"pymunk", "mujoco"}
    assert found["mujoco"] == "not installed"

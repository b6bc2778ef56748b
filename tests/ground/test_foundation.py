"""Streams, configs and shapes: the ground that the rooms stand on."""

import dataclasses
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import saltwm
from saltwm.evaluation.protocols import PROTOCOLS
from saltwm.ground.checks import at_least, check, one_of
from saltwm.ground.config import EncoderConfig, ModelConfig, ProtocolConfig, RunConfig, WorldSpec
from saltwm.ground.errors import DamagedError, ShapeError, UsageError
from saltwm.ground.rng import derive, stream, torch_stream
from saltwm.ground.strict_json import LATER, differing_fields, from_plain, to_plain

KEYS = st.lists(st.integers(-(2**40), 2**40) | st.text(max_size=8), max_size=4)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**31), KEYS, KEYS)
def test_streams_are_equal_exactly_when_their_keys_are(seed, key, other):
    assert (derive(seed, *key) == derive(seed, *other)) == (key == other)


def test_streams_do_not_confuse_numbers_with_their_spelling_or_neighbours():
    seeds = {derive(0, "a", 1), derive(0, "a", "1"), derive(0, "a1"), derive(0, "a", 1, ""), derive(1, "a", 1)}
    assert len(seeds) == 5


def test_streams_are_the_same_in_another_process():
    code = "from saltwm.ground.rng import derive; print(derive(3, 'batch', 7))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(out.stdout) == derive(3, "batch", 7)


def test_numpy_and_torch_streams_repeat():
    assert np.array_equal(stream(0, "x").normal(size=4), stream(0, "x").normal(size=4))
    assert torch.equal(torch.randn(4, generator=torch_stream(0, "x")), torch.randn(4, generator=torch_stream(0, "x")))


@pytest.mark.parametrize("value", [RunConfig(), WorldSpec("two-room", 2), *PROTOCOLS.values()])
def test_configs_come_back_from_plain_data(value):
    assert from_plain(type(value), to_plain(value), "here") == value


def broken(**changes):
    return {**to_plain(WorldSpec("two-room", 2)), **changes}


@pytest.mark.parametrize(
    ("value", "place"),
    [
        (broken(action_dim="2"), "action_dim"),
        (broken(action_dim=2.5), "action_dim"),
        (broken(action_dim=None), "action_dim"),
        (broken(render="blurred"), "render"),
        (broken(_target_="os.system"), "_target_"),
        ({key: v for key, v in broken().items() if key != "renderer"}, "renderer is missing"),
        ([], "whole"),
        ("two-room", "whole"),
    ],
)
def test_a_file_supplies_values_never_structure(value, place):
    with pytest.raises(DamagedError, match=place) as error:
        from_plain(WorldSpec, value, "world.json")
    assert str(error.value).startswith("world.json")


def test_nested_places_are_named():
    value = to_plain(RunConfig())
    value["model"]["encoder"]["depth"] = "twelve"
    with pytest.raises(DamagedError, match=r"run\.json: model\.encoder\.depth"):
        from_plain(RunConfig, value, "run.json")
    del value["model"]["encoder"]["depth"]
    with pytest.raises(DamagedError, match=r"model\.encoder\.depth is missing"):
        from_plain(RunConfig, value, "run.json")


def test_configs_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        EncoderConfig().width = 3


def test_differences_are_named_field_by_field():
    different = differing_fields(WorldSpec("two-room", 2), WorldSpec("push-t", 2, image_size=224))
    assert different == ["environment: expected 'two-room', found 'push-t'", "image_size: expected 64, found 224"]


def test_differences_within_a_field_are_named_not_the_whole_field():
    wider = dataclasses.replace(ModelConfig(), encoder=EncoderConfig(width=3))
    assert differing_fields(ModelConfig(), wider) == ["encoder.width: expected 192, found 3"]


def test_an_unknown_name_gets_the_nearest_known_one():
    with pytest.raises(UsageError, match="did you mean 'two-room'"):
        one_of("environment", "tworoom", ["two-room", "push-t"])


def test_protocols_are_what_their_names_say():
    paper, clean, long = PROTOCOLS["paper"], PROTOCOLS["clean"], PROTOCOLS["long"]
    assert (paper.goal_offset_steps, paper.budget_steps, paper.horizon_blocks) == (25, 50, 5)
    assert (long.goal_offset_steps, long.budget_steps) == (100, 300)
    assert clean == ProtocolConfig()
    assert not paper.bound_actions
    assert clean.min_distance == 3


SHAPES = st.lists(st.integers(0, 4), min_size=0, max_size=4)


@settings(max_examples=200, deadline=None)
@given(SHAPES, st.integers(0, 4))
def test_shapes_fit_only_when_every_letter_does(shape, size):
    fits = len(shape) == 3 and shape[2] == size and shape[0] == shape[1]
    if fits:
        assert check("z", np.zeros(shape), "B B D", D=size) == {"B": shape[0], "D": size}
    else:
        with pytest.raises(ShapeError, match="z: expected shape"):
            check("z", np.zeros(shape), "B B D", D=size)


def test_dtypes_are_checked_for_numpy_and_torch_alike():
    check("x", np.zeros(2, np.float32), "N", dtype="float")
    check("x", torch.zeros(2), "N", dtype="float32")
    with pytest.raises(ShapeError, match="expected uint8 values, found float32"):
        check("x", torch.zeros(2), "N", dtype="uint8")
    with pytest.raises(ShapeError, match="found list"):
        check("x", [1, 2], "N")


@pytest.mark.parametrize(("value", "least"), [(0, 1), (-1, 0), (float("nan"), 0), (0.5, 1)])
def test_a_number_below_the_least_that_makes_sense_is_refused_by_name(value, least):
    with pytest.raises(UsageError, match=f"--keep must be at least {least}, found {value}"):
        at_least("--keep", value, least)


@pytest.mark.parametrize("value", [None, 1, 7])
def test_what_was_not_asked_for_and_what_is_enough_pass(value):
    at_least("--keep", value)


@dataclasses.dataclass(frozen=True)
class Grown:
    """A record that has got a field since it was first written."""

    old: int
    new: int | None = dataclasses.field(default=None, metadata=LATER)
    other: int = 3


def test_only_a_field_that_was_added_later_may_be_absent_from_a_file():
    assert from_plain(Grown, {"old": 1, "other": 2}, "here") == Grown(1, None, 2)
    assert from_plain(Grown, to_plain(Grown(1, 5, 2)), "here") == Grown(1, 5, 2)
    with pytest.raises(DamagedError, match="here: other is missing"):
        from_plain(Grown, {"old": 1}, "here")


def test_a_public_name_means_the_same_before_and_after_its_module_is_imported():
    """A name that is also a module of the package would be the module from its first use on."""
    modules = {"propagation"}
    for name in saltwm.__all__:
        first, second = getattr(saltwm, name), getattr(saltwm, name)
        assert first is second, name
        assert isinstance(first, types.ModuleType) == (name in modules), name
    for path in Path(saltwm.__path__[0]).iterdir():
        assert path.stem not in saltwm.__all__, path

"""P16: a checkpoint acts only in the world it was trained for; the refusal names each field that differs."""

import dataclasses
import itertools

import pytest
from small_runs import SMALL, write_run

import saltwm
from saltwm.disk.checkpoint import require_same_world
from saltwm.envs import ENVIRONMENTS, env_class
from saltwm.ground.config import WorldSpec
from saltwm.ground.errors import MismatchError


def world_of(environment):
    return WorldSpec(environment, env_class(environment).action_dim, image_size=16)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run per environment."""
    paths = {name: tmp_path_factory.mktemp("runs") / name for name in ENVIRONMENTS}
    for name, path in paths.items():
        write_run(path, SMALL, world_of(name))
    return paths


def test_shape_alone_could_not_tell_most_environments_apart():
    same_actions = [name for name in ENVIRONMENTS if env_class(name).action_dim == 2]
    assert len(same_actions) >= 3


@pytest.mark.parametrize(("trained", "other"), itertools.permutations(ENVIRONMENTS, 2))
def test_every_ordered_pair_of_environments_is_refused(trained, other, runs):
    with pytest.raises(MismatchError) as error:
        saltwm.load(runs[trained], world=world_of(other))
    assert f"environment: expected '{trained}', found '{other}'" in str(error.value)
    differs = world_of(trained).action_dim != world_of(other).action_dim
    assert ("action_dim" in str(error.value)) == differs


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_the_world_it_was_trained_for_is_accepted(name, runs):
    assert saltwm.load(runs[name], world=world_of(name)).world == world_of(name)


@pytest.mark.parametrize(
    ("field", "value"), [("image_size", 32), ("render", "full"), ("renderer", "egl"), ("action_dim", 5)]
)
def test_any_other_field_of_the_world_is_refused_by_name(field, value, runs):
    world = dataclasses.replace(world_of("two-room"), **{field: value})
    with pytest.raises(MismatchError, match=rf"trained for another world: {field}: expected .*, found {value!r}"):
        saltwm.load(runs["two-room"], world=world)


def test_all_differing_fields_are_named_at_once(tmp_path):
    other = WorldSpec("cube", 5, 224, "full", "osmesa")
    with pytest.raises(MismatchError) as error:
        require_same_world(world_of("two-room"), other, tmp_path)
    for field in dataclasses.fields(WorldSpec):
        assert f"{field.name}: expected" in str(error.value)

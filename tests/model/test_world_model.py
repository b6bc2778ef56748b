"""The three verbs, and P11: every public function of the room refuses shapes that are not its own."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from saltwm.diagnostics import jacobians, propagation
from saltwm.ground.config import AffineConfig, EncoderConfig, ModelConfig, ObjectiveConfig, TransformerConfig, WorldSpec
from saltwm.ground.errors import ShapeError, UsageError
from saltwm.losses.sigreg import draw_projections, sigreg
from saltwm.model.traits import TRANSITIONS
from saltwm.model.world_model import WorldModel
from saltwm.monitors import effective_rank
from saltwm.objective import prediction_loss, training_loss

D, SIZE, BLOCK, K = 6, 8, 4, 3
ENCODER = EncoderConfig(kind="conv", channels=(4,), width=8, projection_dim=8)
TRANSFORMER = TransformerConfig(depth=1, heads=2, head_dim=4, mlp_dim=8, projection_dim=8)
WORLD = WorldSpec("two-room", action_dim=2, image_size=SIZE)
PROJECTIONS = draw_projections(D, 5, torch.Generator().manual_seed(0))


def world_model(kind):
    torch.manual_seed(0)
    config = ModelConfig(kind, D, 2, 3, ENCODER, AffineConfig(modes=2), TRANSFORMER)
    return WorldModel(config, WORLD).eval()


MODELS = {kind: world_model(kind) for kind, traits in TRANSITIONS.items() if not traits.is_frozen}


@pytest.mark.parametrize("kind", MODELS)
def test_raw_frames_and_actions_give_predicted_latents(kind):
    model = MODELS[kind]
    latents = model.encode(torch.randint(0, 256, (2, 1, SIZE, SIZE, 3), dtype=torch.uint8))
    conditions = model.condition(torch.randn(2, K, BLOCK))
    assert latents.shape == (2, 1, D)
    assert model.rollout(latents, conditions).shape == (2, K, D)
    assert model.window == {"salt": 1, "lewm": 3}[kind]


def test_frames_of_a_window_are_encoded_each_on_its_own():
    frames = torch.randint(0, 256, (2, 3, SIZE, SIZE, 3), dtype=torch.uint8)
    latents = MODELS["salt"].encode(frames)
    assert torch.allclose(latents[1, 2], MODELS["salt"].encoder(frames[1, 2][None])[0], atol=1e-6)


def test_latents_leave_autocast_in_full_precision():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        latents = MODELS["salt"].encode(torch.zeros(1, 1, SIZE, SIZE, 3, dtype=torch.uint8))
        conditions = MODELS["salt"].condition(torch.zeros(1, 1, BLOCK))
        assert latents.dtype == conditions.dtype == MODELS["salt"].rollout(latents, conditions).dtype == torch.float32


def test_an_unknown_model_is_refused():
    with pytest.raises(UsageError, match="did you mean 'salt'"):
        WorldModel(ModelConfig(model="sald"), WORLD)  # type: ignore[arg-type]


# --- P11 -------------------------------------------------------------------------------------------------------------

SALT, LEWM = MODELS["salt"], MODELS["lewm"]
FRAMES, ACTIONS, LATENTS, CONDITIONS = (2, K + 1, SIZE, SIZE, 3), (2, K, BLOCK), (2, K + 1, D), (2, K, D)
OBJECTIVE = ObjectiveConfig(rollout_steps=K)

# name: the function of its tensors, their shapes, and the axes of each that may have any size
FUNCTIONS = {
    "encode": (SALT.encode, [FRAMES], [{0, 1}]),
    "encoder": (SALT.encoder, [(2, SIZE, SIZE, 3)], [{0}]),
    "condition": (SALT.condition, [ACTIONS], [{0, 1}]),
    "set_scaling": (lambda m, s: SALT.action_encoder.set_scaling(m, s.abs() + 1), [(2,), (2,)], [set(), set()]),
    "salt rollout": (SALT.rollout, [(2, 1, D), CONDITIONS], [set(), {1}]),
    "lewm rollout": (LEWM.rollout, [(2, 1, D), CONDITIONS], [{1}, {1}]),
    "salt predict": (SALT.transition.predict, [CONDITIONS, CONDITIONS], [set(), set()]),
    "lewm predict": (LEWM.transition.predict, [CONDITIONS, CONDITIONS], [set(), set()]),
    "lewm forward": (LEWM.transition, [CONDITIONS, CONDITIONS], [set(), set()]),
    "step": (SALT.transition, [(2, D), (2, D)], [set(), set()]),
    "matrix": (SALT.transition.matrix, [(2, D)], [{0}]),
    "sigreg": (sigreg, [LATENTS, (D, 5)], [{0, 1}, {1}]),
    "effective_rank": (effective_rank, [(7, D)], [{0, 1}]),
    "rollout loss": (lambda z, c: prediction_loss(SALT, z, c, "rollout"), [LATENTS, CONDITIONS], [set(), set()]),
    "one-step loss": (lambda z, c: prediction_loss(LEWM, z, c, "one-step"), [LATENTS, CONDITIONS], [set(), set()]),
    "training_loss": (
        lambda f, a, p: training_loss(SALT, f, a, OBJECTIVE, p),
        [FRAMES, ACTIONS, (D, 5)],
        [set(), set(), {1}],
    ),
    "measure": (lambda z, c: propagation.measure(SALT.transition, z, c), [LATENTS, CONDITIONS], [set(), set()]),
    "jacobian": (
        lambda z, c: jacobians.history_jacobians(LEWM.transition, z, c),
        [CONDITIONS, CONDITIONS],
        [set(), set()],
    ),
    "state_dependence": (
        lambda z, c: jacobians.state_dependence(LEWM.transition, z, c),
        [(4, 2, D), (3, 2, D)],
        [{0}, {0}],
    ),
}


def tensor(shape):
    images = len(shape) >= 4 and shape[-1] == 3
    return torch.randint(0, 256, shape, dtype=torch.uint8) if images else torch.randn(shape)


@st.composite
def wrong_shape(draw, right, free):
    """`right` with another number of axes, or with another size on an axis that is not free; 1 would broadcast."""
    kind = draw(st.sampled_from(["add", "drop", "resize"]))
    shape = list(right)
    axis = draw(st.integers(0, len(shape) - 1))
    if kind == "add":
        shape.insert(axis, draw(st.sampled_from([1, 2, 5])))
    elif kind == "drop" and len(shape) > 1:
        del shape[axis]
    else:
        bound = [a for a in range(len(shape)) if a not in free]
        axis = draw(st.sampled_from(bound or [0]))
        if not bound:
            return (*shape, 1)
        shape[axis] = draw(st.sampled_from([size for size in (1, 2, 5, 7, 9) if size != shape[axis]]))
    return tuple(shape)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_right_shapes_are_accepted(name):
    function, shapes, _ = FUNCTIONS[name]
    function(*map(tensor, shapes))


@pytest.mark.parametrize("name", FUNCTIONS)
@settings(deadline=None, max_examples=200, database=None)
@given(data=st.data())
def test_wrong_shapes_are_refused_and_never_broadcast(name, data):
    function, shapes, free = FUNCTIONS[name]
    which = data.draw(st.integers(0, len(shapes) - 1))
    wrong = data.draw(wrong_shape(shapes[which], free[which]))
    values = [tensor(shape) for shape in shapes]
    values[which] = torch.zeros(wrong, dtype=values[which].dtype)
    with pytest.raises(ShapeError, match="expected"):
        function(*values)


ENCODERS = [SALT.action_encoder, SALT.action_encoder.encode_normalised, SALT.action_encoder.normalise]


@pytest.mark.parametrize("function", [*ENCODERS, SALT.action_encoder.denormalise])
@pytest.mark.parametrize("shape", [(1,), (2,), (3, 1), (3, 8), (4, 3), ()])
def test_action_blocks_of_another_length_are_refused(function, shape):
    with pytest.raises(ShapeError, match="action blocks"):
        function(torch.zeros(shape))


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize(("known", "conditions"), [(0, 3), (4, 5), (1, 0), (2, 1)])
def test_a_history_that_the_transition_cannot_use_is_refused(kind, known, conditions):
    with pytest.raises(ShapeError):
        MODELS[kind].rollout(torch.zeros(2, known, D), torch.zeros(2, conditions, D))


def test_arrays_of_numpy_are_refused_where_tensors_are_expected():
    with pytest.raises(ShapeError, match="frames: expected a torch tensor, found ndarray"):
        SALT.encode(np.zeros(FRAMES, np.uint8))
    with pytest.raises(ShapeError, match="action blocks: expected a torch tensor, found ndarray"):
        SALT.condition(np.zeros(ACTIONS, np.float32))


def test_integer_latents_are_refused():
    with pytest.raises(ShapeError, match="float"):
        SALT.rollout(torch.zeros(2, 1, D, dtype=torch.long), torch.zeros(2, K, D))

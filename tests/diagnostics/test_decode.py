"""Decoded predictions: a decoder finds what latents hold, and no more than the mean picture where they hold nothing."""

import dataclasses
import shutil
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from saltwm.data.stretches import Stretches
from saltwm.diagnostics.decoder import DECODERS, Convolutions, CrossAttention, Decoder, DecoderKind, fit_decoder
from saltwm.diagnostics.probe import fit_and_test_episodes
from saltwm.disk import checkpoint, durable
from saltwm.disk.records import read_decoding
from saltwm.ground.errors import DamagedError, MismatchError, NonFiniteError, UsageError
from saltwm.jobs import decode
from saltwm.jobs.decode import Decoded, choose_frames, decode_run, draw_rollouts, pixel_mse, predict
from saltwm.jobs.measures import Decode

STEPS = 40


def draw(run, dataset, results, **options) -> Decoded:
    return decode_run(Decode(run, dataset.path, results, **options), dataset)


@pytest.fixture(scope="module")
def decoded(run, dataset, tmp_path_factory):
    return draw(run, dataset, tmp_path_factory.mktemp("decoded"), steps=STEPS, episodes=2)


def test_decoded_true_frames_beat_the_mean_picture(decoded):
    record = decoded.record
    assert record.tells_frames_apart
    assert np.mean(record.true_mse) < 0.8 * np.mean(record.mean_mse)
    assert record.times == (0, 5, 10, 15, 20, 25, 30, 35, 40, 45)
    assert (record.context, len(record.predicted_mse), record.steps) == (3, 7, STEPS)


@pytest.mark.parametrize("collapse", [torch.zeros_like, lambda z: z.flip(0)], ids=["constant", "shuffled"])
def test_latents_that_say_nothing_of_their_frames_do_not_beat_the_mean_picture(
    collapse, run, dataset, tmp_path, monkeypatch
):
    encode = decode.encode_pictures
    monkeypatch.setattr(decode, "encode_pictures", lambda model, frames: collapse(encode(model, frames)))
    record = draw(run, dataset, tmp_path, steps=STEPS).record
    assert np.mean(record.true_mse) > 0.97 * np.mean(record.mean_mse)


def test_held_out_episodes_never_enter_the_fit(run, dataset, tmp_path, monkeypatch):
    fitted, tested = fit_and_test_episodes(dataset)
    assert not set(fitted) & set(tested)
    read, seen = dataset.read_frames, []
    monkeypatch.setattr(dataset, "read_frames", lambda e, t: seen.append((set(e), len(e))) or read(e, t))
    record = draw(run, dataset, tmp_path, steps=1).record
    (drawn, _), (fit, count) = seen
    assert drawn <= set(tested)
    assert fit <= set(fitted)
    assert record.frames == count


def test_frames_are_chosen_once_each_and_only_stored_ones(dataset):
    episodes, steps = choose_frames(dataset, np.array([3, 7]), 10_000, seed=0)
    pairs = set(zip(episodes.tolist(), steps.tolist(), strict=True))
    stored = {(e, t) for e in (3, 7) for t in range(0, int(dataset.lengths[e]) + 1, dataset.frame_every)}
    assert pairs == stored
    assert len(pairs) == len(episodes)
    assert len(choose_frames(dataset, np.array([3, 7]), 5, seed=0)[0]) == 5


def test_the_same_seed_gives_the_same_bytes_and_another_another(run, dataset, decoded, tmp_path):
    again = draw(run, dataset, tmp_path / "again", steps=STEPS, episodes=2)
    for name in ("decoded.png", "decoded.json"):
        assert (again.folder / name).read_bytes() == (decoded.folder / name).read_bytes()
    other = draw(run, dataset, tmp_path / "other", steps=1, episodes=2, seed=1)
    assert other.record.picture_sha256 != again.record.picture_sha256


def test_the_record_reads_back_and_names_its_picture(decoded):
    assert read_decoding(decoded.folder / "decoded.json") == decoded.record
    assert durable.sha256(decoded.picture) == decoded.record.picture_sha256
    assert decoded.folder.parent.name == "diagnostics"


@pytest.mark.parametrize("change", [{"true_mse": []}, {"predicted_mse": [0.1] * 8}, {"context": 10}, {"steps": "many"}])
def test_a_record_that_does_not_add_up_is_damage(change, decoded, tmp_path):
    durable.write_json(tmp_path / "decoded.json", durable.read_json(decoded.folder / "decoded.json") | change)
    with pytest.raises(DamagedError, match=r"decoded\.json"):
        read_decoding(tmp_path / "decoded.json")


def test_predictions_start_from_as_many_context_frames_as_the_model_looks_back_at(run, lewm_run, dataset):
    _, tested = fit_and_test_episodes(dataset)
    for path, looks_back_at in ((run, [2]), (lewm_run, [0, 1, 2])):
        model = checkpoint.load(path)
        stretches = decode.held_out_stretches(dataset, tested, 5, wanted=2, seed=0)
        _, predictions = predict(model, stretches)
        for t in range(10):
            frames = stretches.frames.copy()
            frames[:, t] = 255 - frames[:, t]
            _, changed = predict(model, dataclasses.replace(stretches, frames=frames))
            assert torch.equal(changed, predictions) == (t not in looks_back_at)


def test_rows_hold_truth_then_context_and_predictions_then_decoded_truth():
    size, shades = 4, np.arange(10, dtype=np.uint8)[:, None, None, None]
    truth = np.zeros((1, 10, size, size, 3), np.uint8) + shades
    stretches = Stretches(np.array([17]), np.array([5]), truth, np.zeros((1, 9, 10), np.float32))
    image = np.array(draw_rollouts(stretches, truth + 100, truth[:, 3:] + 200, range(0, 50, 5), episodes=1))
    side = decode.LEAST_SIDE
    lefts = [decode.LABELS_WIDTH + i * (side + decode.GAP) + (decode.APART if i >= 3 else 0) for i in range(10)]
    for row, expected in enumerate([range(10), [0, 1, 2, *range(203, 210)], range(100, 110)]):
        top = decode.HEADER_HEIGHT + row * (side + decode.GAP)
        for left, shade in zip(lefts, expected, strict=True):
            assert (image[top : top + side, left : left + side] == shade).all()


def test_pixel_errors_are_by_frame_and_of_pixels_in_0_to_1():
    truth = np.zeros((2, 3, 4, 4, 3), np.uint8)
    guess = truth.copy()
    guess[:, 1] = 255
    guess[0, 2] = 51
    assert pixel_mse(truth, guess) == pytest.approx((0.0, 1.0, 0.5 * 0.2**2))


class Nothing(torch.nn.Module):
    def forward(self, latents):
        return torch.zeros(len(latents), 3, 16, 16)


def test_an_unfitted_decoder_of_nothing_draws_the_mean_picture(run):
    encoder, rng = checkpoint.load(run).encoder, np.random.default_rng(0)
    frames = rng.integers(0, 256, (4, 16, 16, 3), dtype=np.uint8)
    drawn = Decoder(Nothing(), encoder, torch.ones(4, 5), frames).draw(torch.zeros(2, 3, 5))
    assert np.abs(drawn - frames.mean(axis=0)).max() < 0.51  # pictures are whole numbers


def test_the_paper_s_decoder_has_its_queries_and_blocks():
    network = DECODERS["paper"].network(192, 224)
    assert network.queries.shape == (1, 196, 512)
    assert [block.attention.num_heads for block in network.blocks] == [8] * 4
    assert network.out.out_features == 3 * 16 * 16
    assert DECODERS["paper"].steps == 30_000
    with torch.no_grad():
        assert network(torch.zeros(1, 192)).shape == (1, 3, 224, 224)
    with pytest.raises(UsageError, match="use the decoder small"):
        DECODERS["paper"].network(192, 100)


@pytest.mark.parametrize("size", [6, 16, 24, 64])
def test_the_small_decoder_draws_frames_of_the_world_s_size(size):
    assert DECODERS["small"].network(12, size)(torch.zeros(2, 12)).shape == (2, 3, size, size)


def test_both_decoders_place_what_a_latent_says_where_it_is(run):
    """A bright square in one of four corners, and a latent that says which."""
    corner = np.arange(64) % 4
    frames = np.zeros((64, 16, 16, 3), np.uint8)
    for frame, c in zip(frames, corner, strict=True):
        frame[8 * (c // 2) : 8 * (c // 2) + 8, 8 * (c % 2) : 8 * (c % 2) + 8] = 200
    latents, encoder = torch.nn.functional.one_hot(torch.from_numpy(corner), 12).float(), checkpoint.load(run).encoder
    networks = partial(Convolutions, channels=16), partial(CrossAttention, patch_size=4, width=32, depth=2, heads=2)
    for network in networks:
        drawn = fit_decoder(DecoderKind(network, 100, 1e-2), encoder, latents, frames, steps=100, seed=0).draw(latents)
        errors = pixel_mse(frames[:, None], drawn[:, None])
        assert errors[0] < 0.1 * np.mean((frames / 255 - frames.mean(axis=0) / 255) ** 2)


def test_a_model_of_another_world_is_refused_before_anything_is_written(run, dataset, tmp_path):
    other = SimpleNamespace(path=dataset.path, world=dataclasses.replace(dataset.world, image_size=24))
    with pytest.raises(MismatchError, match="image_size: expected 16, found 24"):
        draw(run, other, tmp_path)
    assert not list(tmp_path.iterdir())


def test_another_run_of_the_same_name_is_not_replaced(run, lewm_run, dataset, decoded, tmp_path):
    results, twin = decoded.folder.parents[1], shutil.copytree(lewm_run, tmp_path / run.name)
    with pytest.raises(MismatchError, match=r"belongs to another job \(run: expected"):
        draw(twin, dataset, results, steps=1)
    assert read_decoding(decoded.folder / "decoded.json") == decoded.record


def test_impossible_wishes_are_refused(run, dataset, tmp_path):
    for wish in ({"steps": 0}, {"episodes": 0}, {"frames": 0}):
        with pytest.raises(UsageError, match="must be at least 1"):
            draw(run, dataset, tmp_path, **wish)
    with pytest.raises(UsageError, match="held-out episodes have 45 steps, expected at least 50"):
        draw(run, dataset, tmp_path, episodes=50)
    with pytest.raises(UsageError, match="decoder"):
        draw(run, dataset, tmp_path, decoder="large")


def test_latents_that_are_not_finite_are_refused(run):
    encoder, frames = checkpoint.load(run).encoder, np.zeros((4, 16, 16, 3), np.uint8)
    with pytest.raises(NonFiniteError, match="latents are not finite"):
        fit_decoder(DECODERS["small"], encoder, torch.full((4, 12), torch.nan), frames, steps=1, seed=0)


def test_the_picture_is_a_png_with_a_row_per_kind(decoded):
    with Image.open(decoded.picture, formats=["PNG"]) as image:
        rows = 2 * 3 * (decode.LEAST_SIDE + decode.GAP)
        assert image.height == decode.HEADER_HEIGHT + rows + decode.BELOW
